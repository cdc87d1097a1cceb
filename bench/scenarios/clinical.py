"""Recalibration and Picard's metrics in the pass that writes the BAM, beside GATK and Picard on the finished BAM.

The CPU time that each adds to `godwit align` is the difference to the same alignment without it, in the same round. The known sites are the
simulated variants.
"""

import argparse
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from godwit_bench import harness

# The tools of Picard that read every position of the genome, or only the targets, are measured apart.
READ_TOOLS = (
    "CollectAlignmentSummaryMetrics",
    "CollectInsertSizeMetrics",
    "MeanQualityByCycle",
    "QualityScoreDistribution",
    "CollectBaseDistributionByCycle",
    "CollectGcBiasMetrics",
    "CollectOxoGMetrics",
)
CHARTS = {
    "CollectInsertSizeMetrics": "--Histogram_FILE {out}.pdf",
    "MeanQualityByCycle": "--CHART_OUTPUT {out}.pdf",
    "QualityScoreDistribution": "--CHART_OUTPUT {out}.pdf",
    "CollectBaseDistributionByCycle": "--CHART_OUTPUT {out}.pdf",
    "CollectGcBiasMetrics": "--CHART_OUTPUT {out}.pdf --SUMMARY_OUTPUT {out}.summary",
}
# The metrics of these tools, as `godwit metrics` names them.
READ_METRICS = "AlignmentSummary,InsertSize,QualityByCycle,QualityDistribution,BaseDistributionByCycle,GcBias,OxoG"


def write_targets(fasta: Path, dictionary: Path, path: Path) -> None:
    """Writes an interval list with 100 bases of every 10,000."""
    text = dictionary.read_text()
    for name, bases in harness.read_contigs(fasta):
        text += "".join(f"{name}\t{start + 1}\t{start + 100}\t+\tt{start}\n" for start in range(0, bases - 100, 10_000))
    path.write_text(text)


def picard_script(tools: Sequence[str], bam: Path, fasta: Path, out: Path) -> str:
    """Returns the script that runs tools of Picard one after the other. They require R for charts; here, R draws nothing."""
    r = shlex.quote(str(out / "Rscript"))
    lines = [f"printf '#!/bin/sh\\n' > {r}", f"chmod +x {r}", f'PATH="$PATH:{shlex.quote(str(out))}"']
    for tool in tools:
        output = shlex.quote(str(out / tool))
        files = f"-I {shlex.quote(str(bam))} -O {output} -R {shlex.quote(str(fasta))} {CHARTS.get(tool, '').format(out=output)}"
        common = "--VALIDATION_STRINGENCY SILENT --VERBOSITY ERROR --QUIET true"
        lines.append(f"java -Xmx3g -cp '{harness.PICARD}/*' picard.cmdline.PicardCommandLine {tool} {common} {files}")
    return "\n".join(lines)


def gatk_script(bam: Path, fasta: Path, known: Path, out: Path) -> str:
    """Returns the script of base recalibration by GATK."""
    start = f"java -Xmx3g -cp '{harness.GATK}/*' org.broadinstitute.hellbender.Main"
    reads = f"--verbosity ERROR -R {shlex.quote(str(fasta))} -I {shlex.quote(str(bam))}"
    table, result = (shlex.quote(str(out / name)) for name in ("gatk.table", "gatk.bam"))
    return "\n".join(
        [
            f"{start} BaseRecalibrator {reads} --known-sites {shlex.quote(str(known))} -O {table}",
            f"{start} ApplyBQSR {reads} --bqsr-recal-file {table} -O {result}",
        ]
    )


def godwit_scripts(
    options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path], known: Path, targets: Path, out: Path
) -> dict[str, str]:
    """Returns the scripts of godwit by name: the alignment alone, and with each of the further results."""
    align = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--out", out, "--threads", options.threads, "--quiet"]
    command = f"rm -rf {shlex.quote(str(out))}; " + shlex.join(map(str, align))
    lists = f"--targets {shlex.quote(str(targets))} --baits {shlex.quote(str(targets))}"
    return {
        "godwit align": f"{command} --metrics off",
        "godwit align, recalibrated": f"{command} --metrics off --recalibrate {shlex.quote(str(known))}",
        "godwit align, metrics of reads": f"{command} --metrics {READ_METRICS}",
        "godwit align, all metrics": f"{command} --metrics all {lists}",
    }


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of godwit (default: 3)")
    parser.add_argument("--java-rounds", type=int, default=1, help="rounds of GATK and Picard, which are slow (default: 1)")
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools", "bcftools", "java")
    for folder, script in ((harness.GATK, "gatk"), (harness.PICARD, "picard")):
        if not folder.exists():
            harness.exit_with_error(f"{folder} is missing; run tests/tools/{script}/fetch.sh")
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    files = harness.simulated_reads(options, godwit, fasta, gzip=True)
    bam = harness.aligned_bam(options, godwit, fasta, files)
    known = harness.known_sites(files)
    scratch = harness.scratch_directory(options, "clinical")
    targets = scratch / "targets.interval_list"
    reference = harness.reference_with_dictionary(fasta, scratch)
    write_targets(fasta, reference.with_suffix(".dict"), targets)
    scripts = godwit_scripts(options, godwit, fasta, files, known, targets, scratch / "out")
    base, recalibrated, of_reads, everything = scripts
    gatk, picard = "GATK BaseRecalibrator, ApplyBQSR", "Picard, seven tools of reads"
    scripts[gatk] = gatk_script(bam, reference, known, scratch)
    scripts[picard] = picard_script(READ_TOOLS, bam, reference, scratch)
    rounds = {name: options.java_rounds if name in (gatk, picard) else options.rounds for name in scripts}
    measured = harness.measure_competitors(scripts, rounds, scratch)

    def added(name: str) -> list[float]:
        """Returns the CPU seconds per million pairs that a result adds to the alignment, by round."""
        pairs = zip(measured[name], measured[base], strict=True)
        return [(result["cpu_s"] - alone["cpu_s"]) / options.pairs * 1e6 for result, alone in pairs]

    promises = [
        harness.target("recalibration, CPU added per million pairs", added(recalibrated), at_most=4, unit="s"),
        harness.target("metrics of reads, CPU added per million pairs", added(of_reads), at_most=3, unit="s"),
        harness.target("all metrics, CPU added per million pairs", added(everything), at_most=6, unit="s"),
    ]
    peers = [f"{name}: {harness.median_field(measured[name], 'cpu_s') / options.pairs * 1e6:.1f} CPU s per million pairs." for name in (gatk, picard)]
    harness.write_comparison(
        "clinical", "Recalibration and metrics while reads are aligned", options, godwit, scripts, measured, base, promises, peers
    )
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
