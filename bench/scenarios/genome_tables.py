"""Tables of BAM and VCF files in Python: `godwit serve` by the stock driver of Flight SQL, beside polars-bio and oxbow.

Reads, a region, variants, the genotypes of a cohort, filters, and counts by group. All programs are warm, all files are in the page cache, and
all programs have the same number of threads; oxbow reads with one. Rows and sums of their columns are verified before the rounds.
"""

import argparse
import functools
import math
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from godwit_bench import harness
from godwit_bench.harness import client_processes

GODWIT, PACKAGES = "godwit, Flight SQL by ADBC", ("polars-bio", "oxbow")
# The required wall time as a fraction of that of each package.
MOST_OF_PACKAGE = 0.667
NOT_MEASURED = "duckhts, an extension of DuckDB, is not measured: no package of the Python package index contains it."
SITES, COHORT = "sites.vcf.gz", "cohort.vcf.gz"


class Workload(NamedTuple):
    """A table: its title, the job of the packages and its arguments, and the statements that return its rows and its sums."""

    title: str
    job: str
    sql: str
    sums: str
    arguments: harness.Result | None = None


def workloads(bam: Path, region: harness.Region) -> list[Workload]:
    """Returns all workloads. The sums of a table begin with the number of its rows."""
    contig, start, end = region
    reads = f"SELECT {', '.join(harness.READ_COLUMNS)} FROM reads('{bam.name}')"
    in_region = f"{reads} WHERE region('{harness.format_region(region)}')"
    used = f"SELECT name, contig, position FROM reads('{bam.name}') WHERE filter('mapq >= 30 && !flag.dup')"
    flags = f"SELECT flags, count(*) AS reads FROM reads('{bam.name}') GROUP BY flags"
    sites = f"FROM variants('{SITES}')"
    variants = f"SELECT contig, position, end_position, identifiers, reference, alternates, quality, filters, info_DP, info_MQ {sites}"
    good = f"SELECT contig, position, reference, alternates {sites} WHERE filter('QUAL>30 && INFO/DP>10')"
    lists = f"SELECT contig, position, format_GT, format_DP, format_GQ FROM variants('{COHORT}')"
    carried = f"SELECT sample, count(*) AS carried FROM genotypes('{COHORT}') WHERE dosage > 0 GROUP BY sample"

    def sums(sql: str, *columns: str) -> str:
        return f"SELECT count(*), {', '.join(f'sum(CAST({column} AS DOUBLE))' for column in columns)} FROM ({sql})"

    genotype_sums = f"SELECT count(DISTINCT position), count(*), sum(DP), sum(GQ) FROM genotypes('{COHORT}')"
    numbers = ("flags", "mapping_quality", "position")
    where = {"contig": contig, "start": start, "end": end}
    return [
        Workload("All reads, twelve columns", "reads", reads, sums(reads, *numbers)),
        Workload(f"Reads of a region of {end - start:,} bases", "region", in_region, sums(in_region, *numbers), where),
        Workload("Reads that pass a filter, three columns", "filtered_reads", used, sums(used, "position")),
        Workload("Number of reads by flags", "reads_by_flags", flags, sums(flags, "flags", "reads")),
        Workload("All variants with two INFO fields", "variants", variants, sums(variants, "position", "info_DP", "info_MQ")),
        Workload("Variants that pass a filter", "filtered_variants", good, sums(good, "position")),
        Workload("Genotypes with depth and quality, lists of all samples", "genotypes", lists, genotype_sums),
        Workload("Number of variants that each sample has", "carriers", carried, sums(carried, "carried")),
    ]


def served_files(options: argparse.Namespace, interpreter: str, bam: Path) -> Path:
    """Returns a directory with all files. The VCF files and their indexes are written once."""

    def write(file: Path, samples: int, sites: int) -> None:
        command = client_processes.client_command(interpreter, "random_variants", samples, sites)
        with file.open("wb") as out, subprocess.Popen(command, stdout=subprocess.PIPE, cwd=harness.BENCH) as source:
            subprocess.run(["bgzip", "-c"], stdin=source.stdout, stdout=out, check=True)
        harness.run_checked(["tabix", "-p", "vcf", file])

    def build(folder: Path) -> None:
        write(folder / SITES, 0, options.variants)
        write(folder / COHORT, options.samples, options.sites)

    variants = harness.build_once(options.cache.resolve() / f"variants-{options.variants}-{options.samples}-{options.sites}", build)
    folder = harness.scratch_directory(options, "genome_tables")
    for file in (bam, Path(f"{bam}.bai"), *variants.iterdir()):
        (folder / file.name).hardlink_to(file)
        harness.load_into_page_cache(file)
    return folder


def measure(rounds: int, work: Workload, godwit: client_processes.Client, packages: dict[str, client_processes.Client]) -> harness.Rounds:
    """Verifies the tables of all programs, and measures them."""
    wanted = godwit.run_job("digest", sql=work.sums)["sums"]
    asks: dict[str, Callable[[], harness.Result]] = {GODWIT: functools.partial(godwit.run_job, "sql", sql=work.sql)}
    asks[GODWIT]()
    for name, package in packages.items():
        sums = package.run_job(work.job, verify=True, **(work.arguments or {}))["sums"]
        if not all(math.isclose(one, other, rel_tol=1e-6) for one, other in zip(sums, wanted, strict=True)):
            harness.exit_with_error(f"{work.title}: {name} returned {sums}, godwit {wanted}")
        asks[name] = functools.partial(package.run_job, work.job, **(work.arguments or {}))
    return client_processes.run_interleaved(rounds, asks, work.title)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--variants", type=int, default=1_000_000, help="variants of the file without samples (default: 1,000,000)")
    parser.add_argument("--samples", type=int, default=500, help="samples of the cohort (default: 500)")
    parser.add_argument("--sites", type=int, default=100_000, help="variants of the cohort (default: 100,000)")
    parser.add_argument("--region-bases", type=int, default=1_000_000, help="length of the region (default: 1,000,000)")
    options = parser.parse_args()
    harness.require_tools("bgzip", "tabix")
    os.environ["POLARS_MAX_THREADS"] = str(options.threads)
    binary = harness.godwit_binary(options)
    fasta, bam = harness.simulated_bam(options, binary)
    interpreters = {name: client_processes.client_python(name) for name in ("readers", "databases")}
    folder = served_files(options, interpreters["readers"], bam)
    (region,) = harness.random_regions(fasta, options.region_bases, 1, random.Random(options.seed))
    with client_processes.DataServer(binary, folder, "--threads", options.threads, "--statement-memory", "2G") as server:
        godwit = client_processes.Client(interpreters["databases"], "flight_clients", server.address, server=server.pid)
        files = (folder / bam.name, folder / SITES, folder / COHORT, options.threads)
        packages = {name: client_processes.Client(interpreters["readers"], "genome_tables", name, *files) for name in PACKAGES}
        measured = {work.title: measure(options.rounds, work, godwit, packages) for work in workloads(bam, region)}
        for client in (godwit, *packages.values()):
            client.close()
    promised = [
        harness.target(f"{title}, godwit over {name}", harness.ratios(rounds[GODWIT], rounds[name], "wall_s"), at_most=MOST_OF_PACKAGE)
        for title, rounds in measured.items()
        for name in PACKAGES
    ]
    around = harness.measurement_context(options, binary)
    around["versions"] |= client_processes.package_versions(interpreters["readers"], *PACKAGES, "polars")
    around["versions"] |= client_processes.package_versions(interpreters["databases"], "adbc-driver-flightsql")
    sizes = f"{2 * options.pairs:,} reads; {options.variants:,} variants; {options.samples:,} samples at {options.sites:,} sites"
    lines = ["# Tables of BAM and VCF files in Python", "", f"{sizes}; {options.threads} threads, {options.rounds} interleaved rounds;"]
    lines += [f"{harness.format_host(around)}. {client_processes.format_versions(around)}. {NOT_MEASURED}", ""]
    lines += [*(f"- {harness.format_target(one)}" for one in promised), ""]
    for title, rounds in measured.items():
        lines += [f"## {title}", "", *client_processes.markdown_table(rounds, PACKAGES[0]), ""]
    text = "\n".join([*lines, f"Command: `{harness.command_line()}`", ""])
    harness.write_result("genome_tables", options.results, text, around, promised, {"measured": measured})


if __name__ == "__main__":
    main()
