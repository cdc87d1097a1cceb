#!/usr/bin/env python3
"""Exporting a table in which rows still change: the ORDER_LINE table of TPC-C, 0 to 100 % of its blocks hot.

After the published measurement of a database that keeps blocks as Arrow: a frozen block lies as columns and is sent as it lies, a hot one is
rows that are made into columns first. Beside it the same rows by PostgreSQL's protocol of rows, from PostgreSQL, and by blocks of columns, from
ClickHouse: for them all rows are always hot, or never are, so that theirs is one figure for all percentages.
"""

import statistics
import subprocess

import _clients
import _databases
import _measure as bench

FLIGHT = "godwit, Flight by pyarrow"
WAYS = {"PostgreSQL protocol of rows, into Arrow": "connectorx_rows", "PostgreSQL protocol of rows, into tuples": "psycopg"}
VECTORISED, NATIVE = "ClickHouse protocol of blocks, into numpy", "ClickHouse protocol of blocks, its own client"


def load_clickhouse(clickhouse, interpreter, file):
    """Through CSV, which both know."""
    clickhouse.run("CREATE TABLE order_line (ol_o_id Int32, ol_d_id Int32, ol_w_id Int32, ol_number Int32, ol_i_id Int32, ol_supply_w_id Int32,"
                   " ol_delivery_d Int64, ol_quantity Int32, ol_amount Float64, ol_dist_info String) ENGINE = Memory")
    code = """
import sys, pyarrow as pa, pyarrow.compute as pc, pyarrow.csv as csv
with pa.ipc.open_stream(sys.argv[1]) as reader:
    out = None
    for batch in reader:
        at = batch.schema.get_field_index("ol_delivery_d")
        batch = batch.set_column(at, "ol_delivery_d", pc.fill_null(batch.column(at).cast(pa.int64()), 0))
        out = out or csv.CSVWriter(sys.stdout.buffer, batch.schema, write_options=csv.WriteOptions(include_header=False))
        out.write(batch)
    out.close()
"""
    making = subprocess.Popen([interpreter, "-c", code, file], stdout=subprocess.PIPE)
    clickhouse.run("INSERT INTO order_line FORMAT CSV", stdin=making.stdout)
    if making.wait() != 0:
        bench.fail("the table could not be written as CSV; see above")


def native(clickhouse):
    """ClickHouse's own client, which takes blocks apart and writes nothing but their columns."""
    command = ["clickhouse-client", "--host", "127.0.0.1", "--port", clickhouse.port, "--compression", "0", "--query", "SELECT * FROM order_line FORMAT Native"]
    before = _clients.tree_cpu_s(clickhouse.pid)
    answer = _clients.process(command, stdout=subprocess.DEVNULL)
    server = _clients.tree_cpu_s(clickhouse.pid) - before
    return answer | {"server_cpu_s": server, "cpu_s": answer["cpu_s"] + server, "rows": None}


def measure(options, interpreter, stream, parquet):
    with _clients.scratch_directory("rows") as rows, _clients.scratch_directory("columns") as columns, \
            _databases.Postgresql(rows) as postgresql, _databases.Clickhouse(columns) as clickhouse, _clients.HotBlocks(options, stream) as blocks:
        clients = {name: _clients.Client(interpreter, "databases.py", way, postgresql.port, server=postgresql.pid) for name, way in WAYS.items()}
        clients[VECTORISED] = _clients.Client(interpreter, "databases.py", "clickhouse", clickhouse.port, server=clickhouse.pid)
        with _clients.Client(interpreter, "databases.py", "adbc", postgresql.port) as loader:
            loader.ask("load", table="order_line", file=str(parquet))
        load_clickhouse(clickhouse, interpreter, stream)
        flight = _clients.Client(interpreter, "node.py", blocks.address, server=blocks.pid)
        asks = {f"{FLIGHT}, {percent} % hot": lambda percent=percent: flight.ask("ticket", ticket=str(percent)) for percent in options.percent}
        asks |= {name: lambda client=client: client.ask("fetch", table="order_line") for name, client in clients.items()}
        asks[NATIVE] = lambda: native(clickhouse)
        for name, ask in asks.items():
            answer = ask()
            if answer["rows"] not in (None, options.rows):
                bench.fail(f"{name} gave {answer['rows']} rows, not {options.rows}")
        measured = _clients.interleaved(options.rounds, asks, "order_line")
        for client in (flight, *clients.values()):
            client.close()
        return measured, [postgresql.version, clickhouse.version]


def plot(options, measured, size_bytes):
    def rate(name):
        return size_bytes / 1e6 / bench.median(measured[name], "wall_s")

    lines = {FLIGHT: [[percent, rate(f"{FLIGHT}, {percent} % hot")] for percent in options.percent]}
    for name in (VECTORISED, NATIVE, *WAYS):
        lines[name] = [[percent, rate(name)] for percent in options.percent]
    return {"name": "order_line", "title": "ORDER_LINE: export by share of hot blocks", "x": "% of blocks hot", "y": "MB/s of Arrow", "log": "y", "lines": lines}


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the table (default: 3,000,000)")
    parser.add_argument("--percent", default="0,20,40,60,80,100", help="shares of hot blocks (default: 0,20,40,60,80,100)")
    _clients.hot_blocks_option(parser)
    options = parser.parse_args()
    options.percent = list(map(int, options.percent.split(",")))
    godwit = bench.godwit_binary(options)
    interpreter = _clients.python("databases")
    stream, parquet = (_clients.table_file(interpreter, options, "order_line", options.rows, ending) for ending in ("arrows", "parquet"))
    measured, servers = measure(options, interpreter, stream, parquet)
    size_bytes = measured[f"{FLIGHT}, 0 % hot"][0]["bytes"]
    around = bench.host(godwit)
    around["versions"] |= {str(at): version for at, version in enumerate(servers)}
    around["versions"] |= _clients.versions(interpreter, "pyarrow", "connectorx", "psycopg", "clickhouse-driver")
    figure = plot(options, measured, size_bytes)
    rates = {name: size_bytes / 1e6 / statistics.median(answer["wall_s"] for answer in answers) for name, answers in measured.items()}
    text = "\n".join([
        "# A table with hot blocks",
        "",
        f"{options.rows:,} rows of ORDER_LINE, {size_bytes / 1e6:.0f} MB of Arrow, blocks of 16,384 rows, {options.rounds} interleaved rounds; {bench.machine(around)}."
        f" {_clients.version_words(around)}.",
        "",
        "![MB/s by share of hot blocks](order_line.svg)",
        "",
        *_clients.table(measured, f"{FLIGHT}, 0 % hot", 1, "s"),
        "",
        *[f"- {name}: {rate:,.0f} MB/s." for name, rate in rates.items()],
        "",
        f"MB are those of the table as Arrow, whatever goes over the wire. In ClickHouse, whose version here is too old for microseconds,"
        " ol_delivery_d is a number of them, and 0 where it is null.",
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("order_line", options.results, text, around, [], {"measured": measured, "plots": [figure]})
    _clients.plot(interpreter, options.results / "order_line.json")


if __name__ == "__main__":
    main()
