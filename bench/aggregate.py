#!/usr/bin/env python3
"""Counting and grouping rows of Parquet files, beside DuckDB.

Two pairs: a server that is warm, asked through ADBC, beside DuckDB that stays open in a Python program; and `godwit query` beside a Python
that starts, asks DuckDB and ends. Rows are the same, or the benchmark ends.
"""

import subprocess

import _clients
import _measure as bench

QUERIES = {
    "count(*)": "SELECT count(*) FROM {}",
    "7 groups": "SELECT passenger_count, count(*) AS trips, avg(total) AS total, sum(tip) AS tips FROM {} GROUP BY passenger_count",
    "70,000 groups": "SELECT pickup_place, dropoff_place, count(*) AS trips, avg(fare) AS fare, max(trip_distance) AS furthest FROM {}"
    " GROUP BY pickup_place, dropoff_place",
}
WARM, COLD = ("godwit serve, ADBC", "DuckDB, open"), ("godwit query", "DuckDB, started")


def competitors(options, godwit, interpreter, file, query, node, duck):
    ours, theirs = query.format(file.stem), query.format(f"'{file}'")
    code = f"import duckdb; duckdb.connect(config={{'threads': {options.threads}}}).sql({theirs!r}).to_arrow_table()"
    same = node.ask("digest", sql=ours), duck.ask("digest", sql=theirs)
    if any(same[0][field] != same[1][field] for field in ("rows", "sums")):
        bench.fail(f"{query}: godwit gives {same[0]}, DuckDB {same[1]}")
    command = [godwit, "query", "--quiet", "--threads", options.threads, "--format", "arrow", "--data", file.parent, ours]
    return {
        WARM[0]: lambda: node.ask("sql", sql=ours),
        WARM[1]: lambda: duck.ask("sql", sql=theirs),
        COLD[0]: lambda: _clients.process(command, stdout=subprocess.DEVNULL),
        COLD[1]: lambda: _clients.process([interpreter, "-c", code]),
    }


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--rows", default="100000,1000000,10000000", help="rows of the tables (default: 0.1, 1 and 10 million)")
    options = parser.parse_args()
    godwit = bench.godwit_binary(options)
    interpreter = _clients.python("databases")
    sections, raw, promised = [], {}, []
    for rows in map(int, options.rows.split(",")):
        file = _clients.table_file(interpreter, options, "taxi", rows)
        bench.into_page_cache(file)
        with _clients.Served(godwit, file.parent, "--threads", options.threads, "--statement-memory", "2G") as served, \
                _clients.Client(interpreter, "duck.py", options.threads) as duck, \
                _clients.Client(interpreter, "node.py", served.address, server=served.pid) as node:
            for name, query in QUERIES.items():
                asks = competitors(options, godwit, interpreter, file, query, node, duck)
                for ask in asks.values():
                    ask()
                title = f"{name} of {rows:,} rows"
                measured = raw[title] = _clients.interleaved(options.rounds, asks, title)
                sections += [f"## {title}", "", *_clients.table(measured, WARM[1]), ""]
                for ours, theirs in (WARM, COLD):
                    quotients = bench.quotients(measured[ours], measured[theirs], "wall_s")
                    promised.append(bench.promise(f"{title}, {ours} over {theirs}", quotients, at_most=1.2))
    around = bench.host(godwit)
    around["versions"] |= _clients.versions(interpreter, "duckdb", "adbc-driver-flightsql", "pyarrow")
    text = "\n".join([
        "# Counting and grouping beside DuckDB",
        "",
        f"Tables with the shape of taxi trips, 18 columns, Parquet with zstd, {options.threads} threads, {options.rounds} interleaved rounds;"
        f" {bench.machine(around)}. {_clients.version_words(around)}.",
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        *sections,
        "Statements:",
        "",
        *[f"- {name}: `{query.format('taxi')}`" for name, query in QUERIES.items()],
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("aggregate", options.results, text, around, promised, {"measured": raw})


if __name__ == "__main__":
    main()
