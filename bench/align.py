#!/usr/bin/env python3
"""The main job, FASTQ to a sorted, duplicate-marked BAM, against bwa alone with its output thrown away.

The quotient of the wall times is the price of everything but alignment; the difference of the peaks is its memory.
"""

import shlex
import shutil

import _measure as bench


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--plain", action="store_true", help="read plain FASTQ instead of gzip")
    parser.add_argument("--block-bases", type=int, default=100_000_000, help="bwa's -K (default: 100,000,000)")
    parser.add_argument("--memory", help="godwit's --memory")
    options = parser.parse_args()
    bench.need("bwa", "samtools")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    files = bench.reads(options, godwit, fasta, gzip=not options.plain)
    scratch = bench.scratch_directory(options, "align")

    reference, first, second, out = (shlex.quote(str(path)) for path in (fasta, *files, scratch / "out"))
    memory = f" --memory {shlex.quote(options.memory)}" if options.memory else ""
    group = r"'@RG\tID:bench\tSM:bench\tLB:bench'"
    base = "bwa mem > /dev/null"
    competitors = {
        base: f"bwa mem -K {options.block_bases} -t {options.threads} -R {group} {reference} {first} {second} > /dev/null",
        "godwit align": f"""
            rm -rf {out}
            {shlex.quote(str(godwit))} align --reference {reference} --reads {first} {second} --sample bench --read-group {group}
            --block-bases {options.block_bases} --threads {options.threads}{memory} --out {out} --quiet""".replace(
            "\n            --block", " --block"
        ),
    }
    measured = bench.compete(competitors, {name: options.rounds for name in competitors}, scratch)

    own, peer = measured["godwit align"], measured[base]
    more_memory = [(one["peak_bytes"] - other["peak_bytes"]) / 2**20 for one, other in zip(own, peer)]
    promises = [
        bench.promise("FASTQ to marked BAM, wall over bwa mem alone", bench.quotients(own, peer, "wall_s"), at_most=1.05),
        bench.promise("FASTQ to marked BAM, memory beyond bwa's, the aligner's process included", more_memory, at_most=512, unit="MiB"),
    ]
    remarks = [f"CPU: {bench.quotient(own, peer, 'cpu_s'):.3f} x bwa."]
    bench.report("align", "FASTQ to marked BAM", options, godwit, competitors, measured, base, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
