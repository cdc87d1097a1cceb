#!/usr/bin/env python3
"""From aligned reads to a sorted, duplicate-marked, level-1 BAM with its index: godwit and its competitors.

In: SAM as bwa writes it. Every tool reads the same file from the page cache and writes BAM and index to the same disk.
"""

import shlex
import shutil
from pathlib import Path

import _measure as bench

PICARD = Path.home() / ".cache/godwit/picard-3.4.0"


def aligned_sam(options, godwit):
    """Aligns the reads once and returns the SAM file."""
    fasta = bench.reference_fasta(options, godwit)
    first, second = bench.simulated_reads(options, godwit, fasta, gzip=False)

    def build(folder):
        group = r"@RG\tID:bench\tSM:bench\tLB:bench"
        command = ["bwa", "mem", "-K", "100000000", "-t", options.threads, "-R", group, "-o", folder / "in.sam", fasta, first, second]
        bench.run_checked(command)

    return bench.build_once(first.parent.with_name(first.parent.name + "-sam"), build) / "in.sam"


def competitor_scripts(options, godwit, sam, scratch):
    """Returns one bash script per competitor; each writes NAME.bam and its index into the scratch directory."""
    sam, out, godwit = (shlex.quote(str(path)) for path in (sam, scratch, godwit))
    more = max(options.threads - 1, 0)
    found = {
        "godwit markdup": f"{godwit} markdup {sam} --out {out}/godwit.bam --threads {options.threads} --temp {out} --quiet",
        "samblaster, samtools sort": f"""
            samblaster -i {sam} | samtools sort -@ {more} -l 1 -T {out}/t1 -o {out}/samblaster.bam -
            samtools index -@ {more} {out}/samblaster.bam""",
        "samtools fixmate, sort, markdup": f"""
            samtools fixmate -@ {more} -m -u {sam} - | samtools sort -@ {more} -u -T {out}/t2 - |
            samtools markdup -@ {more} -T {out}/t3 --output-fmt bam,level=1 - {out}/markdup.bam
            samtools index -@ {more} {out}/markdup.bam""",
    }
    if options.picard_rounds > 0:
        found["samtools sort, Picard"] = f"""
            samtools sort -@ {more} -l 1 -T {out}/t4 -o {out}/sorted.bam {sam}
            java -Xmx6g -cp '{PICARD}/*' picard.cmdline.PicardCommandLine MarkDuplicates --VERBOSITY ERROR --QUIET true
              --COMPRESSION_LEVEL 1 --CREATE_INDEX true --ADD_PG_TAG_TO_READS false --TMP_DIR {out}
              -I {out}/sorted.bam -O {out}/picard.bam -M {out}/picard.txt""".replace("\n              ", " ")
    return found


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--picard-rounds", type=int, default=1, help="rounds of Picard, which is slow (default: 1; 0 omits it)")
    options = parser.parse_args()
    bench.require_tools("bwa", "samtools", "samblaster")
    if options.picard_rounds > 0:
        bench.require_tools("java")
        if not (PICARD / "picard-3.4.0.jar").exists():
            bench.exit_with_error("Picard is missing; run tests/tools/picard/fetch.sh, or pass --picard-rounds 0")
    godwit = bench.godwit_binary(options)
    sam = aligned_sam(options, godwit)
    scratch = bench.scratch_directory(options, "markdup")
    bench.load_into_page_cache(sam)
    competitors = competitor_scripts(options, godwit, sam, scratch)
    rounds = {name: options.picard_rounds if "Picard" in name else options.rounds for name in competitors}
    measured = bench.measure_competitors(competitors, rounds, scratch)
    base = "godwit markdup"
    own, fixmate = measured[base], measured["samtools fixmate, sort, markdup"]
    per_million = [result["cpu_s"] / options.pairs * 1e6 for result in own]
    over_samblaster = bench.ratios(own, measured["samblaster, samtools sort"], "cpu_s")
    promises = [
        bench.target("aligned reads to marked BAM, CPU per million pairs", per_million, at_most=6.5, unit="s"),
        bench.target("aligned reads to marked BAM, CPU over samblaster | samtools sort", over_samblaster, at_most=1),
        bench.target("aligned reads to marked BAM, CPU over samtools fixmate | sort | markdup", bench.ratios(own, fixmate, "cpu_s"), at_most=0.5),
    ]
    remarks = []
    for bam in sorted(scratch.glob("*.bam")):
        if bam.stem != "sorted":
            duplicates = bench.first_output_line(["samtools", "view", "-c", "-f", "1024", str(bam)])
            remarks.append(f"{bam.stem}: {duplicates} records marked, {bam.stat().st_size / 1e6:.0f} MB.")
    bench.write_comparison("markdup", "Sort and mark duplicates", options, godwit, competitors, measured, base, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
