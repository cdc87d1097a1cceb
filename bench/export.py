#!/usr/bin/env python3
"""A whole table into a Python program: PostgreSQL by the ways there are, beside `godwit serve` on Parquet and on rows.

The table has the shape of taxi trips, 18 columns. All servers and clients are on this machine, over TCP, connected and warm: the first answer of each
is not counted, but where it took over 20 s; such a client is asked for that size once. "Frozen" is a table that lies as columns (Parquet, or Arrow in memory); "hot" is one held as rows,
which are made into columns first. Every client's rows are checked by sums of every column, at the smallest size.
"""

import math
import statistics

import _clients
import _databases
import _measure as bench

WAYS = {
    "pyodbc": "pyodbc", "arrow-odbc": "arrow_odbc", "psycopg": "psycopg", "COPY as CSV, pyarrow": "copy_csv", "COPY binary, bytes only": "copy_binary",
    "connectorx": "connectorx", "adbc-postgresql": "adbc",
}
SQL, FLIGHT, FROZEN, HOT = (
    "godwit, Flight SQL by ADBC, Parquet", "godwit, Flight by pyarrow, Parquet", "godwit, Flight by pyarrow, frozen Arrow", "godwit, Flight by pyarrow, hot rows")
# How many times as fast Flight SQL on Parquet is to be.
ASKED = {"pyodbc": 30, "arrow-odbc": 12, "adbc-postgresql": 4}
# A client that takes longer is asked once.
PATIENCE_S = 20


def check(name, found, wanted):
    """Sums that differ in more than what a float of four bytes loses are other rows."""
    same = found["rows"] == wanted["rows"] and len(found["sums"]) == len(wanted["sums"])
    if not same or not all(math.isclose(one, other, rel_tol=1e-6) for one, other in zip(found["sums"], wanted["sums"])):
        bench.fail(f"{name} gives {found}, not {wanted}")


def asks_of(node, clients, hot):
    asks = {
        SQL: lambda: node.ask("sql", sql="SELECT * FROM taxi"),
        FLIGHT: lambda: node.ask("flight", dataset="taxi.parquet"),
        FROZEN: lambda: hot.ask("ticket", ticket="0"),
        HOT: lambda: hot.ask("ticket", ticket="100"),
    }
    for name, client in clients.items():
        asks[name] = lambda client=client: client.ask("fetch", table="taxi")
    return asks


def measure(options, godwit, interpreter, rows, verify):
    """Each client's rounds for a table of so many rows."""
    file = _clients.table_file(interpreter, options, "taxi", rows)
    stream = _clients.table_file(interpreter, options, "taxi", rows, "arrows")
    bench.into_page_cache(file)
    with _clients.scratch_directory("export") as scratch, _databases.Postgresql(scratch) as postgresql, \
            _clients.HotBlocks(options, stream) as blocks, _clients.Served(godwit, file.parent, "--statement-memory", "2G") as served:
        clients = {name: _clients.Client(interpreter, "databases.py", way, postgresql.port, server=postgresql.pid) for name, way in WAYS.items()}
        clients["adbc-postgresql"].ask("load", table="taxi", file=str(file))
        node = _clients.Client(interpreter, "node.py", served.address, server=served.pid)
        hot = _clients.Client(interpreter, "node.py", blocks.address, server=blocks.pid)
        if verify:
            wanted = node.ask("digest", sql="SELECT * FROM taxi")
            for name, client in clients.items():
                if name != "COPY binary, bytes only":
                    check(name, client.ask("digest", table="taxi"), wanted)
        measured = {}
        for round_number in range(options.rounds):
            for name, ask in asks_of(node, clients, hot).items():
                answers = measured.setdefault(name, [])
                if answers and answers[-1]["wall_s"] > PATIENCE_S:
                    continue
                answer = ask()
                if round_number == 0 and answer["wall_s"] <= PATIENCE_S:
                    answer = ask()
                answers.append(answer)
                bench.progress(f"{rows:,} rows: round {round_number + 1}: {name}: {answers[-1]['wall_s']:.2f} s")
                if answers[-1]["rows"] not in (None, rows):
                    bench.fail(f"{name} gave {answers[-1]['rows']} rows, not {rows}")
        for client in (node, hot, *clients.values()):
            client.close()
        return measured, postgresql.version


def section(rows, measured):
    lines = [f"## {rows:,} rows", "", "| client | rounds | s, median | spread | million rows/s | x Flight SQL | CPU s | of it the server's |",
             "|---|---|---|---|---|---|---|---|"]
    base = bench.median(measured[SQL], "wall_s")
    for name, answers in measured.items():
        wall = bench.median(answers, "wall_s")
        lines.append(f"| {name} | {len(answers)} | {wall:.3f} | {bench.spread(answers, 'wall_s')} | {rows / 1e6 / wall:.2f} | {wall / base:.1f}"
                     f" | {bench.median(answers, 'cpu_s'):.2f} | {bench.median(answers, 'server_cpu_s'):.2f} |")
    return [*lines, ""]


def promises(rows, measured):
    for peer, times in ASKED.items():
        quotients = bench.quotients(measured[peer], measured[SQL], "wall_s")
        yield bench.promise(f"{rows:,} rows, {peer} over Flight SQL on Parquet", quotients, at_least=times)


def plot(found):
    lines = {}
    for rows, measured in found.items():
        for name, answers in measured.items():
            lines.setdefault(name, []).append([rows / 1e6, bench.median(answers, "wall_s")])
    return {"name": "export", "title": "A table of 18 columns into Python", "x": "million rows", "y": "seconds", "log": "xy", "lines": lines}


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", default="100000,1000000,4000000", help="rows of the tables (default: 0.1, 1 and 4 million)")
    _clients.hot_blocks_option(parser)
    options = parser.parse_args()
    godwit = bench.godwit_binary(options)
    interpreter = _clients.python("databases")
    found, promised, sections = {}, [], []
    for rows in map(int, options.rows.split(",")):
        found[rows], postgresql = measure(options, godwit, interpreter, rows, verify=not found)
        promised += promises(rows, found[rows])
        sections += section(rows, found[rows])
    around = bench.host(godwit)
    around["versions"] |= {"postgresql": postgresql} | _clients.versions(
        interpreter, "pyodbc", "arrow-odbc", "psycopg", "connectorx", "adbc-driver-postgresql", "adbc-driver-flightsql", "pyarrow")
    bytes_of = statistics.median(answer["bytes"] for answer in found[rows][SQL]) / rows
    text = "\n".join([
        "# A table into Python",
        "",
        f"18 columns with the shape of taxi trips, {bytes_of:.0f} bytes of Arrow a row, up to {options.rounds} interleaved rounds; {bench.machine(around)}."
        f" {_clients.version_words(around)}.",
        "",
        "Seconds from the question to the last row, connected before. pyodbc and psycopg give tuples, which are dropped; COPY binary gives bytes that nobody"
        " looks at; all others give an Arrow table. \"Hot\" rows are held as rows and made into columns by the server on their way, \"frozen\" ones lie as Arrow.",
        "",
        "![seconds by rows](export.svg)",
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        *sections,
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("export", options.results, text, around, promised, {"measured": found, "plots": [plot(found)]})
    _clients.plot(interpreter, options.results / "export.json")


if __name__ == "__main__":
    main()
