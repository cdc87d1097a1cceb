"""Reads of random regions from a warm server, beside `samtools view REGION` and Python readers of BAM.

Each round runs every tool on the same regions. Tools that return Arrow return the columns that all of them support; samtools writes SAM to
/dev/null. Rows are counted: the report names each tool whose count differs from `samtools view -c`. `godwit query` and samtools are
commands, started for each region; the others are long-running programs, as notebooks and services are.
"""

import argparse
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

SAMTOOLS_VIEW, SAMTOOLS_COUNT = "samtools view", "samtools view -c"


def time_command(args: harness.Command) -> harness.Result:
    """Returns the wall and CPU seconds of a command, and the number it prints."""
    found = client_processes.time_process(args, stderr=subprocess.DEVNULL)
    return found | {"rows": int(found["last"]) if found["last"].isdigit() else None}


def competitors(
    godwit: Path, bam: Path, served: client_processes.DataServer, flight_client: client_processes.Client, readers: dict[str, client_processes.Client]
) -> dict[str, dict[str, Callable[[harness.Region], harness.Result]]]:
    """Returns the competitors for rows and for counts: each maps a name to a function that takes a region and returns its time and result."""
    sql = f"FROM reads('{bam.name}') WHERE region('{{}}')"
    rows_of, count_of = f"SELECT {', '.join(harness.READ_COLUMNS)} {sql}", f"SELECT count(*) {sql}"
    query = [godwit, "query", "--quiet", "--data", bam.parent, "--format"]
    at = [godwit, "query", "--quiet", "--at", f"grpc://{served.address}", "--format"]
    knows_at = "--at" in subprocess.run([godwit, "query", "--help"], stdout=subprocess.PIPE, text=True).stdout

    def first_value(answer: harness.Result) -> harness.Result:
        return answer | {"rows": answer["first"]}

    rows: dict[str, Callable[[harness.Region], harness.Result]] = {
        SAMTOOLS_VIEW: lambda region: time_command(["samtools", "view", bam, harness.format_region(region)]) | {"rows": None},
        "godwit serve, pyarrow Flight": lambda region: flight_client.run_job(
            "flight", dataset=bam.name, columns=harness.READ_COLUMNS, regions=[harness.format_region(region)]
        ),
        "godwit serve, ADBC": lambda region: flight_client.run_job("sql", sql=rows_of.format(harness.format_region(region))),
    }
    counts: dict[str, Callable[[harness.Region], harness.Result]] = {
        SAMTOOLS_COUNT: lambda region: time_command(["samtools", "view", "-c", bam, harness.format_region(region)]),
        "godwit serve, ADBC": lambda region: first_value(flight_client.run_job("sql", sql=count_of.format(harness.format_region(region)))),
    }

    def add_query(name: str, args: harness.Command) -> None:
        rows[name] = lambda region: time_command([*args, "arrow", rows_of.format(harness.format_region(region))]) | {"rows": None}
        counts[name] = lambda region: time_command([*args, "csv", count_of.format(harness.format_region(region))])

    def add_reader(name: str, reader: client_processes.Client) -> None:
        rows[name] = lambda region: reader.run_job("rows", region=region)
        counts[name] = lambda region: reader.run_job("count", region=region)

    if knows_at:
        add_query("godwit query --at", at)
    add_query("godwit query", query)
    for name, reader in readers.items():
        add_reader(f"{name}, warm", reader)
    return {"rows": rows, "count": counts}


def measure(
    asked: dict[str, Callable[[harness.Region], harness.Result]], chosen: list[harness.Region], rounds: int, expected: dict[harness.Region, int]
) -> tuple[harness.Rounds, dict[str, int]]:
    """Returns the seconds of each tool in each round, the median over regions; and the regions with other row counts."""
    measured: harness.Rounds = {name: [] for name in asked}
    wrong = dict.fromkeys(asked, 0)
    for round_number in range(rounds):
        found: harness.Rounds = {name: [] for name in asked}
        for region in chosen:
            for name, ask in asked.items():
                answer = ask(region)
                found[name].append(answer)
                if round_number == 0 and answer["rows"] not in (None, expected[region]):
                    wrong[name] += 1
        for name, answers in found.items():
            measured[name].append({field: statistics.median(one[field] for one in answers) for field in ("wall_s", "cpu_s")})
    return measured, wrong


def table(measured: harness.Rounds, wrong: dict[str, int], base: str) -> list[str]:
    lines = [f"| tool | ms, median | spread of rounds | x {base} | CPU ms | regions with other rows |", "|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        wall, cpu = [1e3 * one["wall_s"] for one in rounds], statistics.median(1e3 * one["cpu_s"] for one in rounds)
        against = harness.median_ratio(rounds, measured[base], "wall_s")
        lines.append(f"| {name} | {statistics.median(wall):.1f} | {min(wall):.1f} - {max(wall):.1f} | {against:.2f} | {cpu:.1f} | {wrong[name]} |")
    return lines


def targets(kind: str, length: int, measured: harness.Rounds) -> Iterator[harness.Result]:
    base = SAMTOOLS_VIEW if kind == "rows" else SAMTOOLS_COUNT
    for name in measured:
        if name.startswith("godwit serve") or name == "godwit query --at":
            quotients = harness.ratios(measured[name], measured[base], "wall_s")
            yield harness.target(f"{kind} of a region of {length:,} bases, {name}, over {base}", quotients, at_most=2)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--regions", type=int, default=40, help="regions of each length (default: 40)")
    parser.add_argument("--lengths", default="1000,10000,100000", help="bases of regions (default: 1000,10000,100000)")
    options = parser.parse_args()
    harness.require_tools("samtools")
    godwit = harness.godwit_binary(options)
    fasta, bam = harness.simulated_bam(options, godwit)
    interpreters = {name: client_processes.client_python(name) for name in ("readers", "databases")}
    draw = random.Random(options.seed)
    sections: list[str] = []
    promised: list[harness.Result] = []
    raw: harness.Result = {}
    with client_processes.DataServer(godwit, bam.parent) as served:
        flight_client = client_processes.Client(interpreters["databases"], "flight_clients", served.address, server=served.pid)
        readers = {name: client_processes.Client(interpreters["readers"], "readers", name, bam) for name in harness.BAM_READERS}
        asked = competitors(godwit, bam, served, flight_client, readers)
        for length in map(int, options.lengths.split(",")):
            chosen = list(harness.random_regions(fasta, length, options.regions, draw))
            expected = {region: time_command(["samtools", "view", "-c", bam, harness.format_region(region)])["rows"] for region in chosen}
            reads = statistics.median(expected.values())
            for kind, tools in asked.items():
                started = time.monotonic()
                measured, wrong = measure(tools, chosen, options.rounds, expected)
                title = f"{'Reads' if kind == 'rows' else 'Number of reads'}, regions of {length:,} bases ({reads:.0f} reads)"
                sections += [f"## {title}", "", *table(measured, wrong, SAMTOOLS_VIEW if kind == "rows" else SAMTOOLS_COUNT), ""]
                promised += targets(kind, length, measured)
                raw[title] = {"measured": measured, "regions_with_other_rows": wrong}
                print(f"bench: {title}: {time.monotonic() - started:.0f} s")
        for client in (flight_client, *readers.values()):
            client.close()
    report(options, godwit, bam, interpreters, sections, promised, raw)


def report(
    options: argparse.Namespace,
    godwit: Path,
    bam: Path,
    interpreters: dict[str, str],
    sections: list[str],
    promised: list[harness.Result],
    raw: harness.Result,
) -> None:
    around = harness.measurement_context(options, godwit)
    around["versions"] |= client_processes.package_versions(interpreters["readers"], *harness.BAM_READERS)
    around["versions"] |= client_processes.package_versions(interpreters["databases"], "pyarrow", "adbc-driver-flightsql")
    text_of = "\n".join(
        [
            "# Regions of a BAM file",
            "",
            f"{options.regions} random regions of each length, {options.rounds} rounds, {bam.stat().st_size / 1e6:.0f} MB of BAM; "
            f"{harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            "The value of a round is the median over its regions. CPU is of both ends. Commands are started for each region, from Python.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            *sections,
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("query", options.results, text_of, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
