#!/usr/bin/env python3
"""The main job over nodes of one machine, against the same run in one process.

The quotient of the CPU times is the price of the exchange; bytes on the wire are held against the uncompressed BAM; the time
that alignment does not hide comes from `run.json`. All outputs have to be the same bytes.
"""

import filecmp
import json
import shlex
import shutil
import subprocess

import _measure as bench


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--nodes", type=int, default=4, help="nodes, of one thread each (default: 4)")
    parser.add_argument("--block-bases", type=int, default=10_000_000, help="bwa's -K (default: 10,000,000)")
    options = parser.parse_args()
    bench.need("bwa", "samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    files = bench.reads(options, godwit, fasta, gzip=True)
    scratch = bench.scratch_directory(options, "nodes")
    one, many = scratch / "one", scratch / "many"

    def align(out, words):
        reference, first, second, quoted = (shlex.quote(str(path)) for path in (fasta, *files, out))
        return (
            f"rm -rf {quoted}; {shlex.quote(str(godwit))} align --reference {reference} --reads {first} {second} --sample bench "
            f"--block-bases {options.block_bases} --out {quoted} --quiet {words}"
        )

    base, spread = "one process", f"{options.nodes} nodes"
    competitors = {
        base: align(one, f"--threads {options.nodes}"),
        spread: align(many, f"--threads 1 --on local --nodes {options.nodes}"),
    }
    measured = bench.compete(competitors, {name: options.rounds for name in competitors}, scratch)
    if not filecmp.cmp(one / "bench.bam", many / "bench.bam", shallow=False):
        bench.fail("the two BAMs differ")
    report = json.loads((many / "run.json").read_text())
    exchange = report["exchange"]
    plain = subprocess.run(
        f"samtools view -u {shlex.quote(str(many / 'bench.bam'))} | wc -c", shell=True, check=True, capture_output=True, text=True
    )
    plain_bytes = int(plain.stdout)
    wire_bytes = exchange["fetched_bytes"] + exchange["head_bytes"]
    aligning = next(stage["seconds"] for stage in report["stages"] if stage["name"] == "align and sort")
    allowed_bytes = 1.05 * plain_bytes + 64 * options.pairs
    cpu = bench.quotients(measured[spread], measured[base], "cpu_s")
    promises = [
        bench.promise(f"{options.nodes} nodes, CPU over one process", cpu, at_most=1.10),
        bench.promise("bytes on the wire over 1.05 x the uncompressed BAM and 64 bytes a pair", [wire_bytes / allowed_bytes], at_most=1),
        bench.promise("shuffle not hidden behind alignment", [100 * exchange["exposed_seconds"] / aligning], at_most=5, unit="%"),
    ]
    remarks = [
        f"between nodes: {exchange['fetched_bytes'] / 2**20:.0f} MiB of slices, second copies included; to the head "
        f"{exchange['head_bytes'] / 2**20:.0f} MiB; uncompressed BAM: {plain_bytes / 2**20:.0f} MiB. Reads to the nodes are not counted.",
        f"fetching took {exchange['fetching_seconds']:.2f} s over all nodes; {exchange['exposed_seconds']:.3f} s after the last block was aligned.",
        f"{exchange['alignments']} alignments of {exchange['blocks']} blocks; the BAMs are the same bytes.",
    ]
    bench.report("nodes", "The main job over nodes of one machine", options, godwit, competitors, measured, base, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
