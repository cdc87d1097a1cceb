"""FASTQ to BAM and VCF in one command, compared with the same in two commands.

`align --call` calls regions while the rest of the BAM is still written, and reads the reference once. Its bytes must equal those of `align`
followed by `call`.
"""

import filecmp
import shlex
import shutil

from godwit_bench import harness


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    options = parser.parse_args()
    harness.require_tools("bwa", "bcftools")
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    reads = harness.simulated_reads(options, godwit, fasta, gzip=True)
    scratch = harness.scratch_directory(options, "align-and-call")
    for file in reads:
        harness.load_into_page_cache(file)
    program, reference, out, one, two = (shlex.quote(str(path)) for path in (godwit, fasta, scratch, *reads))

    def align(name: str) -> str:
        return f"{program} align --reference {reference} --reads {one} {two} --sample s --out {out}/{name} --threads {options.threads} --quiet"

    first, together = "align, then call", "align --call"
    call = f"{program} call --reference {reference} --reads {out}/two --out {out}/two/s.vcf.gz --threads {options.threads} --quiet"
    scripts = {first: f"{align('two')} && {call}", together: f"{align('one')} --call"}
    measured = harness.measure_competitors(scripts, dict.fromkeys(scripts, options.rounds), scratch)
    equal = all(filecmp.cmp(scratch / "one" / name, scratch / "two" / name, shallow=False) for name in ("s.bam", "s.vcf.gz"))
    promises = [harness.target("files that differ between one command and two", [float(not equal)], at_most=0)]
    remarks = [
        f"wall: {harness.median_ratio(measured[first], measured[together], 'wall_s'):.3f} x as fast; CPU: "
        f"{harness.median_ratio(measured[together], measured[first], 'cpu_s'):.3f} x two commands."
    ]
    harness.write_comparison("align_and_call", "From FASTQ to variants in one command", options, godwit, scripts, measured, first, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
