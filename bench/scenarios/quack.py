"""A table into a Python program: `godwit serve` by stock clients of Flight SQL, beside DuckDB's Quack protocol.

The table has the shape of LINEITEM of TPC-H, 16 columns. DuckDB has it in memory, godwit as Parquet in the page cache. All servers and clients are
on this machine, without TLS, connected and warm; every client returns an Arrow table. The first answer of each client is not counted. Digests of
every column verify the rows, at the smallest size.
"""

import argparse
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

QUACK = "DuckDB, quack_query"
ADBC, PARTITIONS = "godwit, Flight SQL by ADBC", "godwit, partitions by ADBC"
FLIGHT, PARALLEL, PACKAGE = "godwit, Flight by pyarrow, one stream", "godwit, Flight by pyarrow, all parts", "godwit, Python package"
# The required wall time as a fraction of that of Quack.
MOST_OF_QUACK = {ADBC: 0.35, FLIGHT: 0.35, PARTITIONS: 0.25, PARALLEL: 0.25, PACKAGE: 0.25}
SQL = "SELECT * FROM lineitem"


def check_digests(found: harness.Result, wanted: harness.Result) -> None:
    """Fails if the rows differ by more than the rounding of their sums."""
    same = found["rows"] == wanted["rows"] and len(found["sums"]) == len(wanted["sums"])
    if not same or not all(math.isclose(one, other, rel_tol=1e-6) for one, other in zip(found["sums"], wanted["sums"], strict=False)):
        harness.exit_with_error(f"Quack returned {wanted}, godwit {found}")


def client_jobs(
    threads: int, quack: client_processes.Client, stock: client_processes.Client, package: client_processes.Client
) -> dict[str, Callable[[], harness.Result]]:
    return {
        QUACK: lambda: quack.run_job("sql", sql=SQL),
        ADBC: lambda: stock.run_job("sql", sql=SQL),
        PARTITIONS: lambda: stock.run_job("partitions", sql=SQL),
        FLIGHT: lambda: stock.run_job("flight", dataset="lineitem.parquet", parts=1),
        PARALLEL: lambda: stock.run_job("parallel_flight", dataset="lineitem.parquet", parts=threads),
        PACKAGE: lambda: package.run_job("table", parts=threads),
    }


def measure(options: argparse.Namespace, godwit: Path, interpreter: str, rows: int, verify: bool) -> harness.Rounds:
    file = client_processes.table_file(interpreter, options, "lineitem", rows)
    harness.load_into_page_cache(file)
    server_command = client_processes.client_command(interpreter, "quack", "serve", file, options.threads)
    with (
        client_processes.AddressServer(server_command) as duckdb,
        client_processes.DataServer(godwit, file.parent, "--threads", options.threads, "--statement-memory", "2G") as served,
        client_processes.Client(interpreter, "quack", "client", duckdb.address, options.threads, server=duckdb.pid) as quack,
        client_processes.Client(interpreter, "flight_clients", served.address, server=served.pid) as stock,
        client_processes.Client(interpreter, "godwit_package", f"grpc+tcp://{served.address}", "lineitem.parquet", server=served.pid) as package,
    ):
        if verify:
            check_digests(stock.run_job("digest", sql=SQL), quack.run_job("digest", sql=SQL))
        asks = client_jobs(options.threads, quack, stock, package)
        for name, ask in asks.items():
            answer = ask()
            if answer["rows"] != rows:
                harness.exit_with_error(f"{name} returned {answer['rows']} rows, expected {rows}")
        return client_processes.run_interleaved(options.rounds, asks, f"{rows:,} rows")


def targets(rows: int, measured: harness.Rounds) -> Iterator[harness.Result]:
    for name, most in MOST_OF_QUACK.items():
        yield harness.target(f"{rows:,} rows, {name} over Quack", harness.ratios(measured[name], measured[QUACK], "wall_s"), at_most=most)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    rows_help = "rows of the tables (default: 1, 5 and 20 million)"
    parser.add_argument("--rows", type=harness.comma_separated(int), default="1000000,5000000,20000000", help=rows_help)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(harness.PYTHON_PACKAGE)
    godwit = harness.godwit_binary(options)
    interpreter = client_processes.client_python("quack")
    found: dict[int, harness.Rounds] = {}
    for rows in options.rows:
        found[rows] = measure(options, godwit, interpreter, rows, verify=not found)
    promised = [one for rows, measured in found.items() for one in targets(rows, measured)]
    around = harness.host_description(godwit)
    around["versions"] |= client_processes.package_versions(interpreter, "duckdb", "duckdb-extension-quack", "adbc-driver-flightsql", "pyarrow")
    text = "\n".join(
        [
            "# A table into Python, beside DuckDB's Quack",
            "",
            f"16 columns with the shape of LINEITEM of TPC-H, {options.rounds} interleaved rounds; {harness.format_host(around)}. "
            f"{client_processes.format_versions(around)}.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            *[
                line
                for rows, measured in found.items()
                for line in (f"## {rows:,} rows", "", *client_processes.markdown_table(measured, QUACK, 1, "s"), "")
            ],
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("quack", options.results, text, around, promised, {"measured": found})


if __name__ == "__main__":
    main()
