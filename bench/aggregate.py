#!/usr/bin/env python3
"""Counting and grouping rows of Parquet files, beside DuckDB.

Two pairs are measured: a warm server queried through ADBC beside DuckDB in a Python process that stays open; and `godwit query` beside a Python
process that starts, queries DuckDB and ends. If the rows differ, the benchmark fails.
"""

import subprocess

import _client_processes
import _measure as bench

QUERIES = {
    "count(*)": "SELECT count(*) FROM {}",
    "7 groups": "SELECT passenger_count, count(*) AS trips, avg(total) AS total, sum(tip) AS tips FROM {} GROUP BY passenger_count",
    "70,000 groups": "SELECT pickup_place, dropoff_place, count(*) AS trips, avg(fare) AS fare, max(trip_distance) AS furthest FROM {}"
    " GROUP BY pickup_place, dropoff_place",
}
WARM, COLD = ("godwit serve, ADBC", "DuckDB, open"), ("godwit query", "DuckDB, started")


def competitors(options, godwit, interpreter, file, query, flight_client, duck):
    ours, theirs = query.format(file.stem), query.format(f"'{file}'")
    code = f"import duckdb; duckdb.connect(config={{'threads': {options.threads}}}).sql({theirs!r}).to_arrow_table()"
    same = flight_client.run_job("digest", sql=ours), duck.run_job("digest", sql=theirs)
    if any(same[0][field] != same[1][field] for field in ("rows", "sums")):
        bench.exit_with_error(f"{query}: godwit returned {same[0]}, DuckDB {same[1]}")
    command = [godwit, "query", "--quiet", "--threads", options.threads, "--format", "arrow", "--data", file.parent, ours]
    return {
        WARM[0]: lambda: flight_client.run_job("sql", sql=ours),
        WARM[1]: lambda: duck.run_job("sql", sql=theirs),
        COLD[0]: lambda: _client_processes.time_process(command, stdout=subprocess.DEVNULL),
        COLD[1]: lambda: _client_processes.time_process([interpreter, "-c", code]),
    }


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--rows", default="100000,1000000,10000000", help="rows of the tables (default: 0.1, 1 and 10 million)")
    options = parser.parse_args()
    godwit = bench.godwit_binary(options)
    interpreter = _client_processes.client_python("databases")
    sections, raw, promised = [], {}, []
    for rows in map(int, options.rows.split(",")):
        file = _client_processes.table_file(interpreter, options, "taxi", rows)
        bench.load_into_page_cache(file)
        with _client_processes.DataServer(godwit, file.parent, "--threads", options.threads, "--statement-memory", "2G") as served, \
                _client_processes.Client(interpreter, "duckdb_client.py", options.threads) as duck, \
                _client_processes.Client(interpreter, "flight_clients.py", served.address, server=served.pid) as flight_client:
            for name, query in QUERIES.items():
                asks = competitors(options, godwit, interpreter, file, query, flight_client, duck)
                for ask in asks.values():
                    ask()
                title = f"{name} of {rows:,} rows"
                measured = raw[title] = _client_processes.run_interleaved(options.rounds, asks, title)
                sections += [f"## {title}", "", *_client_processes.markdown_table(measured, WARM[1]), ""]
                for ours, theirs in (WARM, COLD):
                    quotients = bench.ratios(measured[ours], measured[theirs], "wall_s")
                    promised.append(bench.target(f"{title}, {ours} over {theirs}", quotients, at_most=1.2))
    around = bench.host_description(godwit)
    around["versions"] |= _client_processes.package_versions(interpreter, "duckdb", "adbc-driver-flightsql", "pyarrow")
    text = "\n".join([
        "# Counting and grouping beside DuckDB",
        "",
        f"Tables with the shape of taxi trips, 18 columns, Parquet with zstd, {options.threads} threads, {options.rounds} interleaved rounds;"
        f" {bench.format_host(around)}. {_client_processes.format_versions(around)}.",
        "",
        *[f"- {bench.format_target(one)}" for one in promised],
        "",
        *sections,
        "Statements:",
        "",
        *[f"- {name}: `{query.format('taxi')}`" for name, query in QUERIES.items()],
        "",
        f"Command: `{bench.command_line()}`",
        "",
    ])
    bench.write_result("aggregate", options.results, text, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
