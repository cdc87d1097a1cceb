"""A whole table into a Python program: PostgreSQL by its usual clients, beside `godwit serve` on Parquet and on rows.

The table has the shape of taxi trips, 18 columns. All servers and clients are on this machine, over TCP, connected and warm. The first
answer of each client is not counted, unless it took over 20 s; such a client runs once for that size. "Frozen" is a table stored as columns
(Parquet, or Arrow in memory); "hot" is a table stored as rows, which the server converts to columns first. Sums of every column verify each
client's rows, at the smallest size.
"""

import argparse
import functools
import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from godwit_bench import harness
from godwit_bench.databases import servers
from godwit_bench.harness import client_processes
from godwit_bench.plots import draw_plots

CLIENTS = {
    "pyodbc": "pyodbc",
    "arrow-odbc": "arrow_odbc",
    "psycopg": "psycopg",
    "COPY as CSV, pyarrow": "copy_csv",
    "COPY binary, bytes only": "copy_binary",
    "connectorx": "connectorx",
    "adbc-postgresql": "adbc",
}
SQL, FLIGHT, FROZEN_ARROW, HOT_ROWS = (
    "godwit, Flight SQL by ADBC, Parquet",
    "godwit, Flight by pyarrow, Parquet",
    "godwit, Flight by pyarrow, frozen Arrow",
    "godwit, Flight by pyarrow, hot rows",
)
# The required speed of Flight SQL on Parquet as a multiple of that of each client.
REQUIRED_SPEEDUP = {"pyodbc": 30, "arrow-odbc": 12, "adbc-postgresql": 4}
# A client that takes longer runs once.
TIMEOUT_S = 20


def check_sums(name: str, found: harness.Result, wanted: harness.Result) -> None:
    """Fails if sums differ by more than the rounding of a four-byte float."""
    same = found["rows"] == wanted["rows"] and len(found["sums"]) == len(wanted["sums"])
    if not same or not all(math.isclose(one, other, rel_tol=1e-6) for one, other in zip(found["sums"], wanted["sums"], strict=False)):
        harness.exit_with_error(f"{name} returned {found}, expected {wanted}")


def client_jobs(
    flight_client: client_processes.Client, clients: dict[str, client_processes.Client], hot: client_processes.Client
) -> dict[str, Callable[[], harness.Result]]:
    asks: dict[str, Callable[[], harness.Result]] = {
        SQL: lambda: flight_client.run_job("sql", sql="SELECT * FROM taxi"),
        FLIGHT: lambda: flight_client.run_job("flight", dataset="taxi.parquet"),
        FROZEN_ARROW: lambda: hot.run_job("ticket", ticket="0"),
        HOT_ROWS: lambda: hot.run_job("ticket", ticket="100"),
    }
    for name, client in clients.items():
        asks[name] = functools.partial(client.run_job, "fetch", table="taxi")
    return asks


def measure(options: argparse.Namespace, godwit: Path, interpreter: str, rows: int, verify: bool) -> tuple[harness.Rounds, str]:
    """Measures the rounds of each client for a table of `rows` rows."""
    file = client_processes.table_file(interpreter, options, "taxi", rows)
    stream = client_processes.table_file(interpreter, options, "taxi", rows, "arrows")
    harness.load_into_page_cache(file)
    with (
        client_processes.scratch_directory("export") as scratch,
        servers.Postgresql(scratch) as postgresql,
        client_processes.HotBlocksServer(options, stream) as blocks,
        client_processes.DataServer(godwit, file.parent, "--statement-memory", "2G") as served,
    ):
        clients = {
            name: client_processes.Client(interpreter, "databases", way, postgresql.port, server=postgresql.pid) for name, way in CLIENTS.items()
        }
        clients["adbc-postgresql"].run_job("load", table="taxi", file=str(file))
        flight_client = client_processes.Client(interpreter, "flight_clients", served.address, server=served.pid)
        hot = client_processes.Client(interpreter, "flight_clients", blocks.address, server=blocks.pid)
        if verify:
            wanted = flight_client.run_job("digest", sql="SELECT * FROM taxi")
            for name, client in clients.items():
                if name != "COPY binary, bytes only":
                    check_sums(name, client.run_job("digest", table="taxi"), wanted)
        measured: harness.Rounds = {}
        for round_number in range(options.rounds):
            for name, ask in client_jobs(flight_client, clients, hot).items():
                answers = measured.setdefault(name, [])
                if answers and answers[-1]["wall_s"] > TIMEOUT_S:
                    continue
                answer = ask()
                if round_number == 0 and answer["wall_s"] <= TIMEOUT_S:
                    answer = ask()
                answers.append(answer)
                harness.report_progress(f"{rows:,} rows: round {round_number + 1}: {name}: {answers[-1]['wall_s']:.2f} s")
                if answers[-1]["rows"] not in (None, rows):
                    harness.exit_with_error(f"{name} returned {answers[-1]['rows']} rows, not {rows}")
        for client in (flight_client, hot, *clients.values()):
            client.close()
        return measured, postgresql.version


def section(rows: int, measured: harness.Rounds) -> list[str]:
    lines = [
        f"## {rows:,} rows",
        "",
        "| client | rounds | s, median | spread | million rows/s | x Flight SQL | CPU s | of it the server's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    base = harness.median_field(measured[SQL], "wall_s")
    for name, answers in measured.items():
        wall = harness.median_field(answers, "wall_s")
        lines.append(
            f"| {name} | {len(answers)} | {wall:.3f} | {harness.format_range(answers, 'wall_s')} | {rows / 1e6 / wall:.2f} | {wall / base:.1f}"
            f" | {harness.median_field(answers, 'cpu_s'):.2f} | {harness.median_field(answers, 'server_cpu_s'):.2f} |"
        )
    return [*lines, ""]


def targets(rows: int, measured: harness.Rounds) -> Iterator[harness.Result]:
    for competitor, times in REQUIRED_SPEEDUP.items():
        quotients = harness.ratios(measured[competitor], measured[SQL], "wall_s")
        yield harness.target(f"{rows:,} rows, {competitor} over Flight SQL on Parquet", quotients, at_least=times)


def plot(found: dict[int, harness.Rounds]) -> harness.Result:
    lines: dict[str, list[list[float]]] = {}
    for rows, measured in found.items():
        for name, answers in measured.items():
            lines.setdefault(name, []).append([rows / 1e6, harness.median_field(answers, "wall_s")])
    return {"name": "export", "title": "A table of 18 columns into Python", "x": "million rows", "y": "seconds", "log": "xy", "lines": lines}


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", default="100000,1000000,4000000", help="rows of the tables (default: 0.1, 1 and 4 million)")
    client_processes.add_hot_blocks_option(parser)
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    interpreter = client_processes.client_python("databases")
    found: dict[int, harness.Rounds] = {}
    promised: list[harness.Result] = []
    sections: list[str] = []
    for rows in map(int, options.rows.split(",")):
        found[rows], postgresql = measure(options, godwit, interpreter, rows, verify=not found)
        promised += targets(rows, found[rows])
        sections += section(rows, found[rows])
    around = harness.host_description(godwit)
    around["versions"] |= {"postgresql": postgresql} | client_processes.package_versions(
        interpreter, "pyodbc", "arrow-odbc", "psycopg", "connectorx", "adbc-driver-postgresql", "adbc-driver-flightsql", "pyarrow"
    )
    bytes_of = statistics.median(answer["bytes"] for answer in found[rows][SQL]) / rows
    text = "\n".join(
        [
            "# A table into Python",
            "",
            f"18 columns with the shape of taxi trips, {bytes_of:.0f} bytes of Arrow a row, up to {options.rounds} interleaved rounds; "
            f"{harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            "Seconds from the request to the last row, over an open connection. pyodbc and psycopg return tuples, which are dropped; COPY "
            "binary returns bytes that are not"
            ' decoded; all others return an Arrow table. "Hot" rows are stored as rows, and the server converts them to columns for each '
            'request; "frozen" ones are stored as Arrow.',
            "",
            "![seconds by rows](export.svg)",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            *sections,
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("export", options.results, text, around, promised, {"measured": found, "plots": [plot(found)]})
    draw_plots(interpreter, options.results / "export.json")


if __name__ == "__main__":
    main()
