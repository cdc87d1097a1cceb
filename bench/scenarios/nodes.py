"""A cluster run with local workers, compared with the same job in one process.

The ratio of the CPU times is the cost of the exchange; bytes on the wire are compared with the uncompressed BAM; `run.json` reports the time
that alignment does not hide. All outputs must have the same bytes.
"""

import filecmp
import json
import shlex
import shutil
import subprocess
from pathlib import Path

from godwit_bench import harness


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--nodes", type=int, default=4, help="workers, of one thread each (default: 4)")
    parser.add_argument("--block-bases", type=int, default=10_000_000, help="bwa's -K (default: 10,000,000)")
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools")
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    files = harness.simulated_reads(options, godwit, fasta, gzip=True)
    scratch = harness.scratch_directory(options, "nodes")
    one, many = scratch / "one", scratch / "many"

    def align(out: Path, args: str) -> str:
        reference, first, second, quoted = (shlex.quote(str(path)) for path in (fasta, *files, out))
        return (
            f"rm -rf {quoted}; {shlex.quote(str(godwit))} align --reference {reference} --reads {first} {second} --sample bench "
            f"--block-bases {options.block_bases} --out {quoted} --quiet {args}"
        )

    base, spread = "one process", f"{options.nodes} nodes"
    competitors = {
        base: align(one, f"--threads {options.nodes}"),
        spread: align(many, f"--threads 1 --on local --nodes {options.nodes}"),
    }
    measured = harness.measure_competitors(competitors, dict.fromkeys(competitors, options.rounds), scratch)
    if not filecmp.cmp(one / "bench.bam", many / "bench.bam", shallow=False):
        harness.exit_with_error("the two BAMs differ")
    report = json.loads((many / "run.json").read_text())
    exchange = report["exchange"]
    plain = subprocess.run(f"samtools view -u {shlex.quote(str(many / 'bench.bam'))} | wc -c", shell=True, check=True, capture_output=True, text=True)
    plain_bytes = int(plain.stdout)
    wire_bytes = exchange["fetched_bytes"] + exchange["head_bytes"]
    aligning = next(stage["seconds"] for stage in report["stages"] if stage["name"] == "align and sort")
    allowed_bytes = 1.05 * plain_bytes + 64 * options.pairs
    cpu = harness.ratios(measured[spread], measured[base], "cpu_s")
    promises = [
        harness.target(f"{options.nodes} nodes, CPU over one process", cpu, at_most=1.10),
        harness.target("bytes on the wire over 1.05 x the uncompressed BAM and 64 bytes a pair", [wire_bytes / allowed_bytes], at_most=1),
        harness.target("shuffle not hidden behind alignment", [100 * exchange["exposed_seconds"] / aligning], at_most=5, unit="%"),
    ]
    remarks = [
        f"between workers: {exchange['fetched_bytes'] / 2**20:.0f} MiB of slices, second copies included; to the head "
        f"{exchange['head_bytes'] / 2**20:.0f} MiB; uncompressed BAM: {plain_bytes / 2**20:.0f} MiB. Reads sent to the workers are not counted.",
        f"fetching took {exchange['fetching_seconds']:.2f} s over all workers; {exchange['exposed_seconds']:.3f} s after the last block was aligned.",
        f"{exchange['alignments']} alignments of {exchange['blocks']} blocks; the BAMs are the same bytes.",
    ]
    harness.write_comparison("nodes", "A cluster run with local workers", options, godwit, competitors, measured, base, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
