"""Variant calling by region, beside the plain commands over the whole genome.

The ratio of the wall times shows the gain of parallel regions; the ratio of the CPU seconds shows the cost of partitioning. bcftools is two
concurrent processes: it is therefore also measured on one core, and partitioned in the same way by xargs, as the upper bound of the machine.
"""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from godwit_bench import harness


def megabases(fasta: Path) -> Iterator[str]:
    """Yields lines `contig:start-end`, 1-based, closed, of an indexed FASTA file."""
    for name, bases in harness.read_contigs(fasta):
        for start in range(0, bases, 1_000_000):
            yield f"{name}:{start + 1}-{min(start + 1_000_000, bases)}\n"


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--caller", choices=["bcftools", "freebayes"], default="bcftools")
    parser.add_argument("--grid-size", default="1M", help="godwit's --grid-size (default: 1M)")
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools", "bgzip", options.caller)
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    bam = harness.aligned_bam(options, godwit, fasta, harness.simulated_reads(options, godwit, fasta, gzip=True))
    scratch = harness.scratch_directory(options, "call")
    harness.load_into_page_cache(bam)
    reference, reads, out, program = (shlex.quote(str(path)) for path in (fasta, bam, scratch, godwit))
    plain = {
        "bcftools": f"bcftools mpileup -Ou -f {reference} {reads} | bcftools call -mv -Oz -o {out}/plain.vcf.gz",
        "freebayes": f"freebayes -f {reference} {reads} | bgzip > {out}/plain.vcf.gz",
    }
    base = f"{options.caller}, one run"
    one_core, by_xargs = f"{options.caller}, one run on one core", f"{options.caller}, xargs over megabases"
    by_region = {
        "bcftools": f"bcftools mpileup -Ou -r {{}} -f {reference} {reads} | bcftools call -mv > /dev/null",
        "freebayes": f"freebayes -r {{}} -f {reference} {reads} > /dev/null",
    }
    scripts = {
        base: plain[options.caller],
        one_core: f"taskset -c 0 bash -euo pipefail -c {shlex.quote(plain[options.caller])}",
        by_xargs: f"xargs -P {options.threads} -I{{}} bash -c {shlex.quote(by_region[options.caller])} < {out}/regions.txt",
        "godwit call": f"{program} call --reference {reference} --reads {reads} --out {out}/godwit.vcf.gz --caller {options.caller}"
        f" --grid-size {options.grid_size} --threads {options.threads} --quiet",
    }
    (scratch / "regions.txt").write_text("".join(megabases(fasta)))
    measured = harness.measure_competitors(scripts, dict.fromkeys(scripts, options.rounds), scratch)

    def records(name: str) -> str:
        return harness.first_output_line(["bash", "-c", f"bgzip -dc {out}/{name}.vcf.gz | grep -v '^#' | md5sum"]).split()[0]

    same = "the same" if records("plain") == records("godwit") else "NOT the same, byte for byte"
    faster = harness.ratios(measured[base], measured["godwit call"], "wall_s")
    promises = [harness.target(f"calling with {options.caller} on 2 cores, times as fast as one run", faster, at_least=1.8)]
    beside = {name: harness.median_ratio(measured[name], measured["godwit call"], "wall_s") for name in (one_core, by_xargs)}
    remarks = [
        f"CPU: {harness.median_ratio(measured['godwit call'], measured[base], 'cpu_s'):.3f} x one run.",
        *[f"{quotient:.2f} x as fast as {name}." for name, quotient in beside.items()],
        f"records: {same}.",
        f"versions: {harness.first_output_line([options.caller, '--version'], options.caller[0])}.",
    ]
    name = "call" if options.caller == "bcftools" else f"call-{options.caller}"
    harness.write_comparison(name, f"Calling by region with {options.caller}", options, godwit, scripts, measured, base, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
