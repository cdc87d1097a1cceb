"""Counting and grouping rows of Parquet files, beside DuckDB.

Two pairs are measured: a warm server queried through ADBC beside DuckDB in a Python process that stays open; and `godwit query` beside a Python
process that starts, queries DuckDB and ends. If the rows differ, the benchmark fails.
"""

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

QUERIES = {
    "count(*)": "SELECT count(*) FROM {}",
    "7 groups": "SELECT passenger_count, count(*) AS trips, avg(total) AS total, sum(tip) AS tips FROM {} GROUP BY passenger_count",
    "70,000 groups": "SELECT pickup_place, dropoff_place, count(*) AS trips, avg(fare) AS fare, max(trip_distance) AS furthest FROM {}"
    " GROUP BY pickup_place, dropoff_place",
}
WARM, COLD = ("godwit serve, ADBC", "DuckDB, open"), ("godwit query", "DuckDB, started")


def competitors(
    options: argparse.Namespace,
    godwit: Path,
    interpreter: str,
    file: Path,
    query: str,
    flight_client: client_processes.Client,
    duck: client_processes.Client,
) -> dict[str, Callable[[], harness.Result]]:
    ours, theirs = query.format(file.stem), query.format(f"'{file}'")
    code = f"import duckdb; duckdb.connect(config={{'threads': {options.threads}}}).sql({theirs!r}).to_arrow_table()"
    same = flight_client.run_job("digest", sql=ours), duck.run_job("digest", sql=theirs)
    if any(same[0][field] != same[1][field] for field in ("rows", "sums")):
        harness.exit_with_error(f"{query}: godwit returned {same[0]}, DuckDB {same[1]}")
    command = [godwit, "query", "--quiet", "--threads", options.threads, "--format", "arrow", "--data", file.parent, ours]
    return {
        WARM[0]: lambda: flight_client.run_job("sql", sql=ours),
        WARM[1]: lambda: duck.run_job("sql", sql=theirs),
        COLD[0]: lambda: client_processes.time_process(command, stdout=subprocess.DEVNULL),
        COLD[1]: lambda: client_processes.time_process([interpreter, "-c", code]),
    }


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--rows", default="100000,1000000,10000000", help="rows of the tables (default: 0.1, 1 and 10 million)")
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    interpreter = client_processes.client_python("databases")
    sections, raw, promised = [], {}, []
    for rows in map(int, options.rows.split(",")):
        file = client_processes.table_file(interpreter, options, "taxi", rows)
        harness.load_into_page_cache(file)
        with (
            client_processes.DataServer(godwit, file.parent, "--threads", options.threads, "--statement-memory", "2G") as served,
            client_processes.Client(interpreter, "duckdb_client", options.threads) as duck,
            client_processes.Client(interpreter, "flight_clients", served.address, server=served.pid) as flight_client,
        ):
            for name, query in QUERIES.items():
                asks = competitors(options, godwit, interpreter, file, query, flight_client, duck)
                for ask in asks.values():
                    ask()
                title = f"{name} of {rows:,} rows"
                measured = raw[title] = client_processes.run_interleaved(options.rounds, asks, title)
                sections += [f"## {title}", "", *client_processes.markdown_table(measured, WARM[1]), ""]
                for ours, theirs in (WARM, COLD):
                    quotients = harness.ratios(measured[ours], measured[theirs], "wall_s")
                    promised.append(harness.target(f"{title}, {ours} over {theirs}", quotients, at_most=1.2))
    around = harness.host_description(godwit)
    around["versions"] |= client_processes.package_versions(interpreter, "duckdb", "adbc-driver-flightsql", "pyarrow")
    text = "\n".join(
        [
            "# Counting and grouping beside DuckDB",
            "",
            f"Tables with the shape of taxi trips, 18 columns, Parquet with zstd, {options.threads} threads, {options.rounds} interleaved rounds;"
            f" {harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            *sections,
            "Statements:",
            "",
            *[f"- {name}: `{query.format('taxi')}`" for name, query in QUERIES.items()],
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("aggregate", options.results, text, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
