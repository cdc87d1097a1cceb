"""Variant accuracy of a partitioned genome: one run over everything, a run over ten parts, and `godwit call`, compared with the truth.

The run over ten parts is the published parallelization by chromosome: the reads of each tenth of a contig go into their own file, each file
is called separately, and the calls are concatenated. Reads over a border go into both files, or, as a shuffle by position assigns them, into
the file in which they start. `godwit call` partitions about as finely. `godwit compare` evaluates all call sets by haplotypes.
HaplotypeCaller is slow: `--callers gatk` measures it, into separate results.
"""

import argparse
import gzip
import itertools
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from godwit_bench import harness

CALLERS = "bcftools,freebayes"
PARTS = 10
MEGABASES = 3
# Lines of 50 bases of chr20, which extend beyond the interval of the human reads.
HUMAN_LINES = 222_000
HUMAN_INTERVAL = ("chr20", 10_000_000, 10_100_000)
HUMAN_NAME = "NA12878, 100 kb of chr20"
ONE_RUN, CUT, CUT_BY_START, GODWIT = RUNS = ("one run", "cut in ten", "cut in ten, each read once", "godwit call")
# Counts and rates of a type of variants: keys of `godwit compare --json`.
COUNTS = ("truth", "found", "missed", "called", "true", "false", "recall", "precision", "f1")
CHANGES = ("true lost", "true gained", "false gained", "false lost")
# Types of variants: keys of `godwit compare --json`, and headings. Substitutions of several bases are counted in `all` only.
KINDS = {"snps": "SNPs", "indels": "indels", "all": "all"}


class Sample(NamedTuple):
    """The input of a caller: reads with their reference and truth."""

    name: str
    fasta: Path
    bam: Path
    truth: Path
    confident: Path | None
    stretches: list[harness.Region]
    grid: str


def simulated_sample(options: argparse.Namespace, godwit: Path) -> Sample:
    """Simulates reads of a genome whose variants are known because they were generated."""
    fasta = harness.reference_fasta(options, godwit, MEGABASES)
    reads = harness.simulated_reads(options, godwit, fasta, gzip=True)
    bam = harness.aligned_bam(options, godwit, fasta, reads)
    stretches = [(name, 0, bases) for name, bases in harness.read_contigs(fasta)]
    coverage = options.pairs * 2 * 148 / sum(end for _, _, end in stretches)
    name = f"simulated, {MEGABASES} Mb at {coverage:.0f}x" if not options.reference else f"{options.reference.name} at {coverage:.0f}x"
    return Sample(name, fasta, bam, reads[0].parent / "x.truth.vcf", None, stretches, f"{1000 // options.parts}K")


def human_sample(options: argparse.Namespace, godwit: Path) -> Sample | None:
    """Returns the interval of NA12878 whose variants are known, from FASTQ; None if the data are not on this machine."""
    given = options.human
    if not given.is_dir():
        return None

    def build(folder: Path) -> None:
        with gzip.open(given / "ucsc.hg19.chr20.unittest.fasta.gz", "rt") as whole, (folder / "chr20.fa").open("w") as fasta:
            fasta.writelines(itertools.islice(whole, HUMAN_LINES))
        with gzip.open(given / "test_nist.b37_chr20_100kbp_at_10mb.vcf.gz", "rt") as lines, (folder / "truth.vcf").open("w") as truth:
            for line in lines:
                truth.write("chr" + line if line.startswith("20\t") else line.replace("##contig=<ID=20,", "##contig=<ID=chr20,"))
        harness.run_checked([godwit, "index", folder / "chr20.fa"])
        reads = [given / f"NA12878.10_10p1mb_R{mate}.fastq.gz" for mate in (1, 2)]
        harness.align_reads(options, godwit, folder / "chr20.fa", reads, folder / "out")

    folder = harness.build_once(options.cache / "accuracy-human", build)
    confident = given / "test_nist.b37_chr20_100kbp_at_10mb.bed"
    return Sample(
        HUMAN_NAME, folder / "chr20.fa", folder / "out/bench.bam", folder / "truth.vcf", confident, [HUMAN_INTERVAL], f"{100 // options.parts}K"
    )


def caller_script(caller: str, fasta: Path, bam: Path, out: Path) -> str:
    """Returns the plain command of a caller over a BAM file, as a bash script."""
    genome, reads, calls = (shlex.quote(str(path)) for path in (fasta, bam, out))
    return {
        "bcftools": f"bcftools mpileup -Ou -f {genome} {reads} | bcftools call -mv -Oz -o {calls}",
        "freebayes": f"freebayes -f {genome} {reads} | bgzip > {calls}",
        "gatk": f"java -Xmx2g -XX:+UseSerialGC -cp '{harness.GATK}/*' org.broadinstitute.hellbender.Main HaplotypeCaller --verbosity ERROR"
        f" -R {genome} -I {reads} -O {calls}",
    }[caller]


def split_intervals(stretches: list[harness.Region], parts: int) -> Iterator[harness.Region]:
    """Splits each interval into equal parts of contig, first and last position, 1-based."""
    for contig, start, end in stretches:
        edges = [start + (end - start) * part // parts for part in range(parts + 1)]
        yield from ((contig, first + 1, last) for first, last in itertools.pairwise(edges))


def call_set_script(run: str, caller: str, sample: Sample, options: argparse.Namespace, godwit: Path, scratch: Path, out: Path) -> str:
    """Returns a bash script that makes one call set."""
    if run == ONE_RUN:
        return caller_script(caller, sample.fasta, sample.bam, out)
    if run == GODWIT:
        args = [godwit, "call", "--reference", sample.fasta, "--reads", sample.bam, "--out", out, "--caller", caller]
        args += ["--grid-size", sample.grid, "--threads", options.threads, "--quiet"]
        if sample.confident:
            # With such small parts, callers would also start on parts without reads.
            bed = scratch / "stretches.bed"
            bed.write_text("".join(f"{contig}\t{start}\t{end}\n" for contig, start, end in sample.stretches))
            args += ["--regions", bed]
        return shlex.join(map(str, args))
    pieces, lines = [], []
    for number, (contig, first, last) in enumerate(split_intervals(sample.stretches, options.parts)):
        piece = scratch / f"{number}.bam"
        which = f"-e 'pos >= {first}' " if run == CUT_BY_START else ""
        cut = f"samtools view -b -o {piece} {which}{sample.bam} {contig}:{first}-{last}; samtools index {piece}"
        lines.append(f"{cut}; {caller_script(caller, sample.fasta, piece, scratch / f'{number}.bam.vcf.gz')}; bcftools index -f -t {piece}.vcf.gz\n")
        pieces.append(f"{piece}.vcf.gz")
    (scratch / "parts.sh").write_text("".join(lines))
    # A variant that two parts have at their border counts once.
    return f"""
        tr '\\n' '\\0' < {scratch}/parts.sh | xargs -0 -P {options.threads} -n 1 bash -euo pipefail -c
        bcftools concat -a -D -Oz -o {out} {" ".join(pieces)}"""


def vcf_records(vcf: Path, stretches: list[harness.Region]) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    """Returns the records that start in the intervals, as whole lines and as site and genotype."""

    def inside(fields: list[str]) -> bool:
        return any(fields[0] == contig and start < int(fields[1]) <= end for contig, start, end in stretches)

    with gzip.open(vcf, "rt") as lines:
        split = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
    whole = [fields for fields in split if inside(fields)]
    genotypes = [(*fields[:2], *fields[3:5], fields[9].split(":")[0]) for fields in whole]
    return Counter(map(tuple, whole)), Counter(genotypes)


def differences(one: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> int:
    """Returns the records that are in one set only."""
    return sum((one - other).values()) + sum((other - one).values())


def compare_with_truth(godwit: Path, sample: Sample, calls: Path, verdicts: Path) -> Any:
    """Returns the accuracy that `godwit compare` reports for a call set, and writes the records by verdict into a directory."""
    shutil.rmtree(verdicts, ignore_errors=True)
    command = [godwit, "compare", calls, sample.truth, "--match", "haplotypes", "--reference", sample.fasta, "--json", "--out", verdicts]
    command += ["--confident", sample.confident] if sample.confident else []
    return harness.run_json(command)


def variant_kind(record: tuple[str, ...]) -> str:
    """Returns the type of a record of position, alleles and genotype, by the alternate alleles in the genotype."""
    _, _, reference, alternates, genotype = record
    used = {int(allele) for allele in genotype.replace("|", "/").split("/") if allele.isdigit()} - {0}
    lengths = {len(alternates.split(",")[allele - 1]) for allele in used}
    return "indels" if lengths - {len(reference)} else "snps" if len(reference) == 1 else "mnps"


def verdict_records(vcf: Path, kind: str) -> Counter[tuple[str, ...]]:
    """Returns the records of a type in a VCF of `godwit compare`, as position, alleles and genotype."""
    with gzip.open(vcf, "rt") as lines:
        split = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
    records = [(*fields[:2], *fields[3:5], fields[9].split(":")[0]) for fields in split]
    return Counter(record for record in records if kind in ("all", variant_kind(record)))


def lost_and_gained(verdicts: Path, baseline: Path, kind: str) -> list[int]:
    """Returns the variants of the truth that only the baseline or only the run finds, and the false calls that only the run or the baseline has."""
    found, before = (verdict_records(folder / "tp-baseline.vcf.gz", kind) for folder in (verdicts, baseline))
    false, false_before = (verdict_records(folder / "fp.vcf.gz", kind) for folder in (verdicts, baseline))
    return [sum(counts.values()) for counts in (before - found, found - before, false - false_before, false_before - false)]


def accuracy_columns(comparison: harness.Result, kind: str, changes: list[int] | None) -> harness.Result:
    """Returns the columns of a table. A wrong genotype counts as a missed variant and as a false call, as in vcfeval and hap.py."""
    counts = comparison[kind]
    return {name: counts[name] for name in COUNTS} | {name: changes[index] if changes else None for index, name in enumerate(CHANGES)}


def measure_caller(caller: str, sample: Sample, options: argparse.Namespace, godwit: Path, scratch: Path) -> dict[str, harness.Result]:
    """Measures all call sets of a caller: counts per kind of variant, and differences from the one run."""
    outs = {run: scratch / f"run-{number}.vcf.gz" for number, run in enumerate(RUNS)}
    verdicts = {run: scratch / f"verdicts-{number}" for number, run in enumerate(RUNS)}
    found = {}
    for run, out in outs.items():
        print(f"bench: {sample.name}, {caller}: {run}", flush=True)
        seconds = harness.measure_script(call_set_script(run, caller, sample, options, godwit, scratch, out), scratch / "stderr.txt")["wall_s"]
        (whole, genotypes), (base, base_genotypes) = (vcf_records(path, sample.stretches) for path in (out, outs[ONE_RUN]))
        comparison = compare_with_truth(godwit, sample, out, verdicts[run])
        changes = {kind: None if run == ONE_RUN else lost_and_gained(verdicts[run], verdicts[ONE_RUN], kind) for kind in KINDS}
        of_kind = {kind: accuracy_columns(comparison, kind, changes[kind]) for kind in KINDS}
        found[run] = {
            "records": sum(whole.values()),
            "other_records": differences(whole, base),
            "other_genotypes": differences(genotypes, base_genotypes),
            "wall_s": seconds,
            **of_kind,
        }
    return found


def format_cell(value: object) -> str:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def table(heads: Sequence[str], rows: list[list[Any]]) -> list[str]:
    return harness.plain_table(heads, [map(format_cell, row) for row in rows])


def tables(callers: dict[str, dict[str, harness.Result]]) -> list[str]:
    """Returns the tables of correct and wrong calls of each run, and of its differences from the one run."""
    each = [(caller, run, found[run]) for caller, found in callers.items() for run in RUNS]
    accuracy = [[caller, name, run, *one[kind].values()] for kind, name in KINDS.items() for caller, run, one in each]
    apart = [[caller, run, *(one[field] for field in ("records", "other_records", "other_genotypes"))] for caller, run, one in each if run != ONE_RUN]
    return [
        *table(["caller", "variants", "run", *COUNTS[:-1], "F1", *CHANGES], accuracy),
        *table(["caller", "run", "records", "other records", "other sites or genotypes"], apart),
    ]


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.set_defaults(pairs=300_000)
    parser.add_argument("--callers", default=CALLERS, help=f"some of bcftools,freebayes,gatk (default: {CALLERS})")
    parser.add_argument(
        "--parts", type=int, choices=range(2, 101), default=PARTS, metavar="N", help=f"parts of each contig, 2 to 100 (default: {PARTS})"
    )
    beside = harness.ROOT / "../shared/data/human"
    parser.add_argument(
        "--human", type=Path, default=beside, help="directory with the reads and the truth of NA12878 (default: beside the repository)"
    )
    options = parser.parse_args()
    callers = options.callers.split(",")
    harness.require_tools("bwa", "samtools", "bcftools", "bgzip", *("java" if caller == "gatk" else caller for caller in callers))
    if "gatk" in callers:
        harness.run_checked([harness.ROOT / "tests/tools/gatk/fetch.sh"])
        os.environ["GODWIT_GATK"] = str(harness.GATK)
    godwit = harness.godwit_binary(options)
    samples = [sample for sample in (simulated_sample(options, godwit), human_sample(options, godwit)) if sample]
    results: dict[str, dict[str, harness.Result]] = {}
    promises = []
    for sample in samples:
        results[sample.name] = {}
        if "gatk" in callers and not sample.fasta.with_suffix(".dict").exists():
            harness.run_checked(["samtools", "dict", sample.fasta, "-o", sample.fasta.with_suffix(".dict")])
        for caller in callers:
            scratch = harness.scratch_directory(options, f"accuracy-{caller}")
            found = results[sample.name][caller] = measure_caller(caller, sample, options, godwit, scratch)
            what, field = ("records", "other_records") if caller == "bcftools" else ("sites and genotypes", "other_genotypes")
            other = [found[GODWIT][field]]
            promises.append(harness.target(f"{what} by {caller} in regions other than in one run, {sample.name}", other, at_most=0))
            shutil.rmtree(scratch)
    around = harness.host_description(godwit)
    around["versions"] |= {name: harness.first_output_line([name, "--version"]) for name in ("samtools", "bcftools")}
    around["versions"]["freebayes"] = f"freebayes {harness.first_output_line(['freebayes', '--version'])}"
    around["versions"] |= {"gatk": harness.GATK.name} if "gatk" in callers else {}
    sections = [line for name, of_callers in results.items() for line in [f"## {name}", "", *tables(of_callers)]]
    grids = ", ".join(f"{sample.grid} for {sample.name}" for sample in samples)
    text = "\n".join(
        [
            "# Variant accuracy of a partitioned genome",
            "",
            "One run of the caller over everything; the same cut in ten (the reads of each part of a contig in a separate file, which is "
            "called separately; of",
            "a call that two parts have, one is kept); that with each read only in the file in which it starts, as a shuffle by position "
            "assigns it; and `godwit call`, cut",
            f"about as fine (`--grid-size`: {grids}).",
            "",
            "Counted by `godwit compare` against the truth, by haplotypes, with the verdicts of RTG vcfeval: a call with another genotype than the "
            "truth is false, and the",
            "variant of the truth is missed. *All* includes substitutions of several bases. Lost and gained are records that one run has and the "
            "one run over everything",
            "has not, by position, alleles and genotype. Other records are those that only one of the two runs has: compared as text, and by site, "
            "alleles and genotype.",
            "",
            f"{options.pairs:,} simulated pairs, seed {options.seed}; {harness.format_host(around)}. "
            f"{', '.join(filter(None, around['versions'].values()))}.",
            "",
            *sections,
            *[f"- {harness.format_target(promised)}" for promised in promises],
            "",
        ]
    )
    name = "accuracy" if options.callers == CALLERS else f"accuracy-{'-'.join(callers)}"
    if options.parts != PARTS:
        name, text = f"{name}-{options.parts}", text.replace(CUT, f"cut in {options.parts}")
    harness.write_result(name, options.results, text, around, promises, {"pairs": options.pairs, "seed": options.seed, "results": results})


if __name__ == "__main__":
    main()
