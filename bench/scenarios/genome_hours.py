"""Hours of a genome in the workflow of GATK, step by step: by the tools themselves, and by `godwit run --workflow gatk`.

Both process the same reads of a small genome with all threads of this machine. `godwit plan` scales the measured hours to the bases of
a human genome. The time of a step is taken to be proportional to the bases of the reads. The index of a large genome makes alignment
more expensive, for bwa by more than for godwit; this is not included.
"""

import argparse
import json
import os
import shlex
import shutil
from pathlib import Path

from godwit_bench import harness

HUMAN_BASES = 3.1e9
# Hours of the published experiment: Table 3 in K. Yoon, "Understanding the Role of Dell EMC Isilon SmartConnect in Genomics Workloads",
# 2016; 10x human genomes, three samples on one node, 11 cores each. It also realigned reads around indels (2.41 h), which GATK 4 does not.
PUBLISHED = {"align": 3.48, "mark duplicates": 0.46, "recalibrate": 1.17, "call": 4.13, "genotype": 0.02, "filter": 0.60}
GATK = f"java -Xmx3g -cp '{harness.GATK}/*' org.broadinstitute.hellbender.Main"
PICARD = f"java -Xmx3g -cp '{harness.PICARD}/*' picard.cmdline.PicardCommandLine"
# GATK's documented filters of SNPs and of other variants, in one pass over both.
HARD_FILTERS = "--filter-name QD2 --filter-expression 'QD < 2.0' --filter-name FS60 --filter-expression 'FS > 60.0'"


def peer_scripts(fasta: Path, files: list[Path], known: Path, out: Path, threads: int) -> dict[str, str]:
    """Returns the scripts of the steps by the tools themselves."""
    ref, one, two = (shlex.quote(str(path)) for path in (fasta, *files))
    at = {
        name: shlex.quote(str(out / name))
        for name in ("sorted.bam", "marked.bam", "x.table", "recal.bam", "x.g.vcf.gz", "x.vcf.gz", "x.filtered.vcf.gz")
    }
    quiet = "--verbosity ERROR"
    group = r"'@RG\tID:x\tSM:x\tLB:x\tPL:ILLUMINA'"
    return {
        "align": f"bwa mem -t {threads} -R {group} {ref} {one} {two} | samtools sort -@ {threads} -o {at['sorted.bam']} -\n"
        f"samtools index {at['sorted.bam']}",
        "mark duplicates": f"{PICARD} MarkDuplicates -I {at['sorted.bam']} -O {at['marked.bam']} -M {at['x.table']}.md --CREATE_INDEX true"
        " --VERBOSITY ERROR --QUIET true",
        "recalibrate": f"{GATK} BaseRecalibrator {quiet} -R {ref} -I {at['marked.bam']} --known-sites {shlex.quote(str(known))} -O {at['x.table']}\n"
        f"{GATK} ApplyBQSR {quiet} -R {ref} -I {at['marked.bam']} --bqsr-recal-file {at['x.table']} -O {at['recal.bam']}",
        "call": f"{GATK} HaplotypeCaller {quiet} -R {ref} -I {at['recal.bam']} -ERC GVCF --native-pair-hmm-threads {threads} -O {at['x.g.vcf.gz']}",
        "genotype": f"{GATK} GenotypeGVCFs {quiet} -R {ref} -V {at['x.g.vcf.gz']} -O {at['x.vcf.gz']}",
        "filter": f"{GATK} VariantFiltration {quiet} -R {ref} -V {at['x.vcf.gz']} {HARD_FILTERS} -O {at['x.filtered.vcf.gz']}",
    }


def planned_hours(godwit: Path, report: Path, scale: float) -> dict[str, float]:
    """Returns the hours of each step that `godwit plan` predicts for one sample on one host."""
    facility = ["--samples", 1, "--nodes", 1, "--storage-nodes", 1, "--per-node", 1]
    plan = harness.run_json([godwit, "plan", *facility, "--from", report, "--scale", scale, "--json"])
    joint = {step["step"]: step["seconds"] * scale / 3600 for step in json.loads(report.read_text())["cohort"]}
    return {step["step"]: step["hours"] for step in plan["steps"]} | joint | {"whole": plan["makespan_hours"]}


def measure_coverage(options: argparse.Namespace, godwit: Path, fasta: Path, coverage: int, scratch: Path) -> dict[str, dict[str, float]]:
    """Measures both ways at one coverage; returns the hours of a human genome by step."""
    bases = sum(length for _, length in harness.read_contigs(fasta))
    options.pairs = round(bases * coverage / 300)
    files = harness.simulated_reads(options, godwit, fasta, gzip=True)
    known = harness.known_sites(files)
    out = harness.empty_directory(scratch / f"{coverage}x")
    reference = harness.reference_with_dictionary(fasta, out)
    scale = HUMAN_BASES / bases
    peers = {}
    for name, script in peer_scripts(reference, files, known, out, options.threads).items():
        seconds = harness.measure_script(script, scratch / "stderr.txt")["wall_s"]
        harness.report_progress(f"{coverage}x, {name}: {seconds:.1f} s")
        peers[name] = seconds * scale / 3600
    peers["whole"] = sum(peers.values())
    sheet = out / "sheet.csv"
    sheet.write_text(f"sample,fastq_1,fastq_2\nx,{files[0]},{files[1]}\n")
    run = [godwit, "run", "--workflow", "gatk", "--reference", reference, "--samples", sheet, "--known-sites", known, "--out", out / "run"]
    run += ["--threads", options.threads, "--grid-size", bases // (2 * options.threads), "--metrics", "all", "--quiet"]
    harness.report_progress(f"{coverage}x, godwit run")
    harness.run_checked(run)
    return {"tools": peers, "godwit": planned_hours(godwit, out / "run/run.json", scale)}


def coverage_table(coverage: int, hours: dict[str, dict[str, float]]) -> list[str]:
    """Returns the table of one coverage."""
    tools, godwit = hours["tools"], hours["godwit"]
    rows = []
    for step, peer in tools.items():
        # godwit has no step that only marks duplicates: alignment does it.
        ours = godwit.get(step)
        published = sum(PUBLISHED.values()) if step == "whole" else PUBLISHED[step]
        shown = "in align" if ours is None else f"{ours:.2f}"
        ratio = "" if ours is None else f"{ours / peer:.2f}"
        rows.append([step, f"{published:.2f}" if coverage == 10 else "", f"{peer:.2f}", shown, ratio])
    heads = ["step", "published, 10x, 11 cores", "bwa, Picard, GATK", "godwit", "godwit / tools"]
    return [f"## {coverage}x", "", *harness.plain_table(heads, rows), ""]


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--genome", type=int, default=10, help="megabases of the simulated genome (default: 10)")
    parser.add_argument("--coverage", type=harness.comma_separated(int), default=[10, 30], help="coverages to measure (default: 10,30)")
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools", "bcftools", "java")
    os.environ["GODWIT_GATK"] = str(harness.GATK)
    godwit = harness.godwit_binary(options)
    scratch = harness.scratch_directory(options, "genome_hours")
    fasta = harness.reference_fasta(options, godwit, options.genome)
    hours = {coverage: measure_coverage(options, godwit, fasta, coverage, scratch) for coverage in options.coverage}
    around = harness.measurement_context(options, godwit)
    heads = ", ".join(version for version in around["versions"].values() if version)
    text = "\n".join(
        [
            "# Hours of a human genome in the workflow of GATK",
            "",
            f"Measured on a simulated genome of {options.genome} Mb with {options.threads} threads, and scaled to 3.1 Gb by `godwit plan`; one run.",
            f"{harness.format_host(around)}. {heads}.",
            "",
            "Steps of godwit are those of `godwit run --workflow gatk --metrics all`: `align` marks duplicates and computes Picard's metrics, which",
            "the other columns do not include. Alignment to a whole human genome takes more time than to this one, in both columns. Fixed times are",
            "scaled with the rest, which favours steps with few processes: `godwit run` starts Java twice for each of its regions, to import it into",
            "GenomicsDB and to genotype it, the other column once.",
            "",
            *[line for coverage in options.coverage for line in coverage_table(coverage, hours[coverage])],
        ]
    )
    promises = [
        harness.target(f"hours of a {coverage}x genome over those of the tools", [found["godwit"]["whole"] / found["tools"]["whole"]], at_most=1)
        for coverage, found in hours.items()
    ]
    text += "\n".join(f"- {harness.format_target(promised)}" for promised in promises) + "\n"
    harness.write_result("genome_hours", options.results, text, around, promises, {"hours": hours})
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
