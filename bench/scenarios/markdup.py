"""From aligned reads to a sorted, duplicate-marked, level-1 BAM with its index: godwit and its competitors.

In: SAM as bwa writes it. Every tool reads the same file from the page cache and writes BAM and index to the same disk.
"""

import argparse
import shlex
import shutil
from pathlib import Path

from godwit_bench import harness


def competitor_scripts(options: argparse.Namespace, godwit: Path, sam: Path, scratch: Path) -> dict[str, str]:
    """Returns one bash script per competitor; each writes NAME.bam and its index into the scratch directory."""
    reads, out, program = (shlex.quote(str(path)) for path in (sam, scratch, godwit))
    more = max(options.threads - 1, 0)
    found = {
        "godwit markdup": f"{program} markdup {reads} --out {out}/godwit.bam --threads {options.threads} --temp {out} --quiet",
        "samblaster, samtools sort": f"""
            samblaster -i {reads} | samtools sort -@ {more} -l 1 -T {out}/t1 -o {out}/samblaster.bam -
            samtools index -@ {more} {out}/samblaster.bam""",
        "samtools fixmate, sort, markdup": f"""
            samtools fixmate -@ {more} -m -u {reads} - | samtools sort -@ {more} -u -T {out}/t2 - |
            samtools markdup -@ {more} -T {out}/t3 --output-fmt bam,level=1 - {out}/markdup.bam
            samtools index -@ {more} {out}/markdup.bam""",
    }
    if options.picard_rounds > 0:
        found["samtools sort, Picard"] = f"""
            samtools sort -@ {more} -l 1 -T {out}/t4 -o {out}/sorted.bam {reads}
            java -Xmx6g -cp '{harness.PICARD}/*' picard.cmdline.PicardCommandLine MarkDuplicates --VERBOSITY ERROR --QUIET true
              --COMPRESSION_LEVEL 1 --CREATE_INDEX true --ADD_PG_TAG_TO_READS false --TMP_DIR {out}
              -I {out}/sorted.bam -O {out}/picard.bam -M {out}/picard.txt""".replace("\n              ", " ")
    return found


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--picard-rounds", type=int, default=1, help="rounds of Picard, which is slow (default: 1; 0 omits it)")
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools", "samblaster")
    if options.picard_rounds > 0:
        harness.require_tools("java")
        if not (harness.PICARD / "picard-3.4.0.jar").exists():
            harness.exit_with_error("Picard is missing; run tests/tools/picard/fetch.sh, or pass --picard-rounds 0")
    godwit = harness.godwit_binary(options)
    sam = harness.aligned_sam(options, godwit)
    scratch = harness.scratch_directory(options, "markdup")
    harness.load_into_page_cache(sam)
    competitors = competitor_scripts(options, godwit, sam, scratch)
    rounds = {name: options.picard_rounds if "Picard" in name else options.rounds for name in competitors}
    measured = harness.measure_competitors(competitors, rounds, scratch)
    base = "godwit markdup"
    own, fixmate = measured[base], measured["samtools fixmate, sort, markdup"]
    per_million = [result["cpu_s"] / options.pairs * 1e6 for result in own]
    over_samblaster = harness.ratios(own, measured["samblaster, samtools sort"], "cpu_s")
    promises = [
        harness.target("aligned reads to marked BAM, CPU per million pairs", per_million, at_most=6.5, unit="s"),
        harness.target("aligned reads to marked BAM, CPU over samblaster | samtools sort", over_samblaster, at_most=1),
        harness.target("aligned reads to marked BAM, CPU over samtools fixmate | sort | markdup", harness.ratios(own, fixmate, "cpu_s"), at_most=0.5),
    ]
    remarks = []
    for bam in sorted(scratch.glob("*.bam")):
        if bam.stem != "sorted":
            duplicates = harness.first_output_line(["samtools", "view", "-c", "-f", "1024", str(bam)])
            remarks.append(f"{bam.stem}: {duplicates} records marked, {bam.stat().st_size / 1e6:.0f} MB.")
    harness.write_comparison("markdup", "Sort and mark duplicates", options, godwit, competitors, measured, base, promises, remarks)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
