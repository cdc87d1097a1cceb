"""Comparing calls with a truth set: `godwit compare`, beside aardvark and the recorded times of RTG vcfeval.

In: the golden cases of vcfeval that have a recorded time (beside the repository), and generated call sets. The generated genome has ten
contigs. Its truth has SNPs, pairs of neighbouring SNPs, and indels in tandem repeats; some variants are close together. The calls describe the
same haplotypes in another way (pairs as one record, indels at the other end of the repeat), with mistakes: missed variants, false calls and
wrong genotypes. Every program reads indexed VCF files. Aardvark ignores FILTER and requires regions: it reads records that passed, and
whole contigs, or the confident regions of the case.
"""

import argparse
import csv
import gzip
import random
import shlex
import shutil
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from godwit_bench import harness

AARDVARK = "1.1.0"
TO_BASES = bytes(b"ACGT"[value & 3] for value in range(256))
CONTIGS = 10
# The wall times in seconds that the README of the golden cases reports for vcfeval: RTG Tools 3.12.1, Java 17, one thread, two shared cores.
VCFEVAL_WALL_S = {
    "dense/toocomplex2": 25.4,
    "dense/toocomplex": 12.3,
    "dense/denser": 6.9,
    "dense/far": 2.0,
    "callers/dense-gatk": 1.5,
    "callers/giab-gatk": 0.8,
}
# Its peak memory in MB, from the same table.
VCFEVAL_PEAK_MB = {
    "dense/toocomplex2": 450,
    "dense/toocomplex": 459,
    "dense/denser": 389,
    "dense/far": 218,
    "callers/dense-gatk": 200,
    "callers/giab-gatk": 137,
}
GODWIT, PEER, VCFEVAL, GENERATED = "godwit compare", "aardvark", "vcfeval, recorded", "generator"
SCORES = ("truth found", "truth missed", "true calls", "false calls", "recall", "precision", "F1")
# Share of the sites of the generated truth by what the calls have there; the rest is called correctly.
MISTAKES = {"missed": 0.01, "false call": 0.01, "genotype": 0.01}


class Case(NamedTuple):
    """The input of a comparison: calls with their truth, reference and regions, and the scores that are known beforehand."""

    name: str
    reference: Path
    calls: Path
    truth: Path
    confident: Path | None
    score: str
    known: dict[str, list[Any]]


class CallSetWriter:
    """Writes the variants of a generated genome as the truth and, with mistakes, as calls; counts what a comparison has to find."""

    def __init__(self, draw: random.Random, truth: TextIO, calls: TextIO) -> None:
        self.draw = draw
        self.truth = truth
        self.calls = calls
        self.counts: Counter[str] = Counter()

    def write_site(self, contig: str, truth: list[tuple[int, str, str]], calls: list[tuple[int, str, str]]) -> None:
        """Writes a site: the same haplotype as records of 0-based position, reference and alternate bases, as the truth and as the calls have it."""
        genotype = self.draw.choice(("0/1", "1/1"))
        [mistake] = self.draw.choices(["", *MISTAKES], [1 - sum(MISTAKES.values()), *MISTAKES.values()])
        if mistake != "false call":
            self.write(self.truth, contig, truth, genotype, 99)
        if mistake != "missed":
            called = {"0/1": "1/1", "1/1": "0/1"}[genotype] if mistake == "genotype" else genotype
            self.write(self.calls, contig, calls, called, self.draw.randrange(1, 40) if mistake else self.draw.randrange(20, 100))
        self.counts["truth found"] += 0 if mistake else len(truth)
        self.counts["truth missed"] += len(truth) if mistake in ("missed", "genotype") else 0
        self.counts["true calls"] += 0 if mistake else len(calls)
        self.counts["false calls"] += len(calls) if mistake in ("false call", "genotype") else 0

    def write(self, file: TextIO, contig: str, records: list[tuple[int, str, str]], genotype: str, quality: int) -> None:
        for start, reference, alternate in records:
            file.write(f"{contig}\t{start + 1}\t.\t{reference}\t{alternate}\t{quality}\tPASS\t.\tGT:GQ\t{genotype}:{quality}\n")


def write_contig(contig: str, sequence: bytearray, spacing: int, writer: CallSetWriter) -> None:
    """Draws the variants of a contig, and writes repeats into its sequence."""
    draw, start = writer.draw, 50
    while True:
        # A tenth of the sites are within ten bases of the one before.
        start += draw.randrange(2, 10) if draw.random() < 0.1 else draw.randrange(10, 2 * spacing)
        if start + 50 > len(sequence):
            return
        kind = draw.choices(("SNP", "pair", "indel"), (80, 5, 15))[0]
        if kind == "indel":
            start = write_indel(contig, sequence, start, writer)
            continue
        first, second = (sequence[start + at : start + at + 1].decode() for at in (0, 1))
        other, other_second = (draw.choice("ACGT".replace(base, "")) for base in (first, second))
        if kind == "SNP":
            writer.write_site(contig, [(start, first, other)], [(start, first, other)])
        else:
            apart = [(start, first, other), (start + 1, second, other_second)]
            writer.write_site(contig, apart, [(start, first + second, other + other_second)])
        start += 2


def write_indel(contig: str, sequence: bytearray, start: int, writer: CallSetWriter) -> int:
    """Writes a tandem repeat after a base, and an indel of one unit: at the left end in the truth, at the right end in the calls. Returns its end."""
    draw = writer.draw
    unit = bytes(draw.choices(b"ACGT", k=draw.randrange(1, 4)))
    copies = draw.randrange(4, 9)
    end = start + 1 + len(unit) * copies
    sequence[start + 1 : end] = unit * copies
    is_deletion = draw.random() < 0.5
    last = end - 1 - len(unit) if is_deletion else end - 1
    records = []
    for anchor in (start, last):
        base = sequence[anchor : anchor + 1].decode()
        records.append((anchor, base + unit.decode(), base) if is_deletion else (anchor, base, base + unit.decode()))
    writer.write_site(contig, records[:1], records[1:])
    return end


def generate(folder: Path, options: argparse.Namespace) -> None:
    """Writes ref.fa, truth.vcf.gz and calls.vcf.gz with their indexes, and the counts that the mistakes make."""
    draw = random.Random(options.seed)
    bases = options.megabases * 1_000_000 // CONTIGS
    names = [f"chr{number + 1}" for number in range(CONTIGS)]
    with (folder / "truth.vcf").open("w") as truth, (folder / "calls.vcf").open("w") as calls, (folder / "ref.fa").open("wb") as fasta:
        for file, sample in ((truth, "truth"), (calls, "calls")):
            file.write("##fileformat=VCFv4.2\n" + "".join(f"##contig=<ID={name},length={bases}>\n" for name in names))
            file.write('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n')
            file.write('##FORMAT=<ID=GQ,Number=1,Type=Integer,Description="Genotype quality">\n')
            file.write(f"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\t{sample}\n")
        writer = CallSetWriter(draw, truth, calls)
        for name in names:
            sequence = bytearray(draw.randbytes(bases).translate(TO_BASES))
            write_contig(name, sequence, options.spacing, writer)
            fasta.write(b">%s\n" % name.encode() + b"\n".join(sequence[at : at + 60] for at in range(0, bases, 60)) + b"\n")
    for vcf in (folder / "truth.vcf", folder / "calls.vcf"):
        harness.run_checked(["bgzip", vcf])
        harness.run_checked(["bcftools", "index", "-t", f"{vcf}.gz"])
    (folder / "counts.tsv").write_text("".join(f"{name}\t{writer.counts[name]}\n" for name in SCORES[:4]))


def rates(found: int, missed: int, true: int, false: int) -> list[float | None]:
    """Returns recall, precision and F1; None where there is nothing to count."""
    recall = found / (found + missed) if found + missed else None
    precision = true / (true + false) if true + false else None
    both = recall is not None and precision is not None
    return [recall, precision, 2 * recall * precision / (recall + precision) if both and recall and precision else None]


def generated_case(options: argparse.Namespace) -> Case:
    name = f"compare-{options.megabases}mb-{options.spacing}-{options.seed}"
    folder = harness.build_once(options.cache.resolve() / name, lambda part: generate(part, options))
    lines = [line.split("\t") for line in (folder / "counts.tsv").read_text().splitlines()]
    counts = [int(count) for _, count in lines]
    called, expected = counts[2] + counts[3], counts[0] + counts[1]
    title = f"generated, {options.megabases} Mb, {expected:,} variants, {called:,} calls"
    known = {GENERATED: [*counts, *rates(*counts)]}
    return Case(title, folder / "ref.fa", folder / "calls.vcf.gz", folder / "truth.vcf.gz", None, "GQ", known)


def vcfeval_scores(summary: Path) -> list[Any]:
    """Returns the scores of all calls, whatever their score, from a summary.txt of vcfeval."""
    row = next(line.split() for line in summary.read_text().splitlines() if line.split()[:1] == ["None"])
    found, true, false, missed = map(int, row[1:5])
    return [found, missed, true, false, float(row[6]), float(row[5]), float(row[7])]


def golden_cases(options: argparse.Namespace) -> list[Case]:
    """Returns the golden cases of vcfeval with a recorded time; none if the data are not on this machine."""
    cases = []
    for name in VCFEVAL_WALL_S if options.golden.is_dir() else ():
        given = options.golden.resolve() / name
        words = [word.partition("=") for word in (given / "options.txt").read_text().split()]
        if unknown := {word for word, _, _ in words} - {"--vcf-score-field", "--evaluation-regions"}:
            harness.exit_with_error(f"{given / 'options.txt'}: this benchmark does not translate {', '.join(sorted(unknown))}")
        values = {word: value for word, _, value in words}
        reference = given / "reference.fa"
        if not reference.exists():
            folder = harness.build_once(options.cache.resolve() / f"compare-{given.name}", partial(decompress, given))
            reference = folder / "reference.fa"
        confident = given / values["--evaluation-regions"] if "--evaluation-regions" in values else None
        score = values.get("--vcf-score-field", "GQ")
        known = {VCFEVAL: vcfeval_scores(given / "expect/summary.txt")}
        cases.append(Case(name, reference, given / "calls.vcf.gz", given / "baseline.vcf.gz", confident, score, known))
    return cases


def decompress(given: Path, folder: Path) -> None:
    with gzip.open(given / "reference.fa.gz", "rb") as packed, (folder / "reference.fa").open("wb") as fasta:
        shutil.copyfileobj(packed, fasta)


def godwit_script(options: argparse.Namespace, godwit: Path, case: Case, scratch: Path) -> str:
    command = [godwit, "compare", case.calls, case.truth, "--match", "haplotypes", "--reference", case.reference, "--score", case.score]
    command += ["--confident", case.confident] if case.confident else []
    command += ["--threads", options.threads, "--out", scratch / "godwit"]
    return f"rm -rf {scratch}/godwit; " + shlex.join(map(str, command))


def aardvark_script(options: argparse.Namespace, aardvark: Path, case: Case, scratch: Path) -> str:
    """Returns the script of aardvark; prepares its inputs, which are not measured."""
    for given, name in ((case.calls, "calls"), (case.truth, "truth")):
        passed = scratch / f"{name}.vcf.gz"
        harness.run_checked(["bcftools", "view", "-f", "PASS,.", "-O", "z", "-o", passed, given])
        harness.run_checked(["bcftools", "index", "-f", "-t", passed])
    regions = case.confident
    if not regions:
        regions = scratch / "contigs.bed"
        regions.write_text("".join(f"{name}\t0\t{bases}\n" for name, bases in fasta_lengths(case.reference)))
    command: list[object] = [aardvark, "compare", "--reference", case.reference, "--truth-vcf", scratch / "truth.vcf.gz"]
    command += ["--query-vcf", scratch / "calls.vcf.gz", "--regions", regions, "--output-dir", scratch / "aardvark", "--threads", options.threads]
    return f"rm -rf {scratch}/aardvark; " + shlex.join(map(str, command))


def fasta_lengths(fasta: Path) -> list[tuple[str, int]]:
    """Returns the name and the number of bases of each contig of a FASTA file without an index."""
    lengths: dict[str, int] = {}
    name = ""
    with fasta.open() as lines:
        for line in lines:
            if line.startswith(">"):
                name = line[1:].split()[0]
                lengths[name] = 0
            else:
                lengths[name] += len(line.rstrip("\n"))
    return list(lengths.items())


def failure(script: str, seconds: int) -> str | None:
    """Runs a script once, unmeasured; returns why it failed, or None."""
    try:
        done = subprocess.run(["timeout", str(seconds), "bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if done.returncode == 124:
        return f"not finished after {seconds} s"
    lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return None if done.returncode == 0 else f"exit status {done.returncode}: {lines[-1] if lines else ''}"


def godwit_scores(folder: Path) -> list[Any]:
    return vcfeval_scores(folder / "summary.txt")


def aardvark_scores(folder: Path) -> list[Any]:
    """Returns the scores by genotype over all variants. Aardvark counts alternate alleles, vcfeval and godwit count records."""
    with (folder / "summary.tsv").open() as text:
        rows = csv.DictReader(text, delimiter="\t")
        wanted = {"comparison": "GT", "region_label": "ALL", "filter": "ALL", "variant_type": "ALL"}
        row = next(row for row in rows if all(row[field] == value for field, value in wanted.items()))
    counts = [int(row[field]) for field in ("truth_tp", "truth_fn", "query_tp", "query_fp")]
    return [*counts, *rates(*counts)]


def measure_case(options: argparse.Namespace, godwit: Path, aardvark: Path, case: Case) -> harness.Result:
    """Measures the programs on a case, and returns the measurements, the scores and the failures."""
    scratch = harness.scratch_directory(options, "compare")
    scripts = {GODWIT: godwit_script(options, godwit, case, scratch), PEER: aardvark_script(options, aardvark, case, scratch)}
    for file in (case.reference, case.calls, case.truth):
        harness.load_into_page_cache(file)
    failures = {}
    for name, script in scripts.items():
        if problem := failure(script, options.timeout):
            harness.report_progress(f"{case.name}: {name}: {problem}")
            failures[name] = problem
    if GODWIT in failures:
        harness.exit_with_error(f"{case.name}: {failures[GODWIT]}")
    running = {name: script for name, script in scripts.items() if name not in failures}
    measured = harness.measure_competitors(running, dict.fromkeys(running, options.rounds), scratch)
    scores = {GODWIT: godwit_scores(scratch / "godwit"), **case.known}
    if PEER not in failures:
        scores[PEER] = aardvark_scores(scratch / "aardvark")
    shutil.rmtree(scratch)
    return {"measured": measured, "scores": scores, "failures": failures}


def speed_rows(found: dict[str, harness.Result]) -> list[list[str]]:
    rows = []
    for name, one in found.items():
        for tool, rounds in one["measured"].items():
            wall, cpu = (f"{harness.median_field(rounds, field):.2f}" for field in ("wall_s", "cpu_s"))
            peak = max(result["peak_bytes"] for result in rounds) / 1e6
            rows.append([name, tool, wall, harness.format_range(rounds, "wall_s"), cpu, f"{peak:.0f}"])
        rows += [[name, tool, problem, "", "", ""] for tool, problem in one["failures"].items()]
        if name in VCFEVAL_WALL_S:
            rows.append([name, VCFEVAL, str(VCFEVAL_WALL_S[name]), "", "", str(VCFEVAL_PEAK_MB[name])])
    return rows


def score_rows(found: dict[str, harness.Result]) -> list[list[str]]:
    def cell(value: Any) -> str:
        return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)

    return [[name, tool, *map(cell, values)] for name, one in found.items() for tool, values in one["scores"].items()]


def targets(found: dict[str, harness.Result]) -> list[harness.Result]:
    """Returns the targets: the counts of vcfeval, its time on the slowest case, and 1 GiB of memory for generated call sets."""
    golden = {name: one for name, one in found.items() if name in VCFEVAL_WALL_S}
    made = []
    if golden:
        apart = [
            sum(one != other for one, other in zip(result["scores"][GODWIT][:4], result["scores"][VCFEVAL][:4], strict=True))
            for result in golden.values()
        ]
        made.append(harness.target(f"counts other than those of vcfeval, {len(golden)} golden cases", [sum(apart)], at_most=0))
        slowest = max(golden, key=VCFEVAL_WALL_S.__getitem__)
        walls = [result["wall_s"] / VCFEVAL_WALL_S[slowest] for result in golden[slowest]["measured"][GODWIT]]
        made.append(harness.target(f"wall over the recorded wall of vcfeval, {slowest}", walls, at_most=0.1))
    for name, one in found.items():
        if name not in golden:
            peaks = [result["peak_bytes"] / 2**20 for result in one["measured"][GODWIT]]
            apart = sum(one["scores"][GODWIT][at] != count for at, count in enumerate(one["scores"][GENERATED][:4]))
            made.append(harness.target(f"counts other than those of the generator, {name}", [apart], at_most=0))
            made.append(harness.target(f"memory, {name}", peaks, at_most=1024, unit="MiB"))
    return made


def parse_arguments() -> argparse.Namespace:
    parser = harness.base_parser(__doc__)
    parser.set_defaults(threads=1)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--megabases", type=int, default=100, help="size of the generated genome (default: 100)")
    parser.add_argument("--spacing", type=int, default=500, help="mean distance of generated variants in bases, about (default: 500)")
    parser.add_argument("--timeout", type=int, default=900, metavar="S", help="a competitor that takes longer is reported as such (default: 900)")
    beside = harness.ROOT / "../shared/data/vcfeval"
    parser.add_argument("--golden", type=Path, default=beside, help="the golden cases of vcfeval (default: beside the repository)")
    parser.add_argument("--note", action="append", default=[], help="a remark on the machine or the build, for the page; repeat for each")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    harness.require_tools("bcftools", "bgzip")
    aardvark = harness.cargo_tool(options, "aardvark-bio", AARDVARK, "aardvark")
    godwit = harness.godwit_binary(options)
    found = {case.name: measure_case(options, godwit, aardvark, case) for case in [*golden_cases(options), generated_case(options)]}
    promises = targets(found)
    around = harness.host_description(godwit)
    around["versions"] |= {"aardvark": f"aardvark-bio {AARDVARK}", "bcftools": harness.first_output_line(["bcftools", "--version"])}
    text = "\n".join(
        [
            "# Comparing calls with a truth set",
            "",
            (__doc__ or "").split("\n", 1)[1].strip(),
            "",
            f"{options.threads} threads, {options.rounds} interleaved rounds; {harness.format_host(around)}."
            f" {', '.join(filter(None, around['versions'].values()))}.",
            "The times of vcfeval are those in the README of the golden cases: RTG Tools 3.12.1, Java 17, one thread, on another machine of two "
            "shared cores; they were not measured here.",
            *options.note,
            "",
            *[f"- {harness.format_target(promised)}" for promised in promises],
            "",
            "## Time and memory",
            "",
            *harness.plain_table(["case", "program", "wall s, median", "spread", "CPU s", "peak MB"], speed_rows(found)),
            "## Scores",
            "",
            "All variants, without a threshold of the score. vcfeval and godwit count records; aardvark (comparison `GT`) counts alternate alleles, "
            "takes only variants with all their bases within the regions, and has other limits in dense repeats. Its figures are a second opinion, "
            "not the same figures.",
            "",
            *harness.plain_table(["case", "program", *SCORES], score_rows(found)),
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("compare", options.results, text, around, promises, {"cases": found})


if __name__ == "__main__":
    main()
