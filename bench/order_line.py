#!/usr/bin/env python3
"""Exporting a table in which rows still change: the ORDER_LINE table of TPC-C, 0 to 100 % of its blocks hot.

After the published measurement of a database that stores blocks as Arrow: a frozen block is stored and sent as columns, a hot one is stored as
rows, which are converted to columns first. For comparison, PostgreSQL sends the same rows by its row protocol, and ClickHouse sends them by blocks of
columns. PostgreSQL's rows are always hot and ClickHouse's never, so that each has one value for all percentages.
"""

import statistics
import subprocess

import _client_processes
import _databases
import _measure as bench

FLIGHT = "godwit, Flight by pyarrow"
CLIENTS = {"PostgreSQL protocol of rows, into Arrow": "connectorx_rows", "PostgreSQL protocol of rows, into tuples": "psycopg"}
CLICKHOUSE_NUMPY, CLICKHOUSE_NATIVE = "ClickHouse protocol of blocks, into numpy", "ClickHouse protocol of blocks, its own client"


def load_clickhouse(clickhouse, interpreter, file):
    """Loads the table through CSV, which both programs support."""
    clickhouse.execute("CREATE TABLE order_line (ol_o_id Int32, ol_d_id Int32, ol_w_id Int32, ol_number Int32, ol_i_id Int32, ol_supply_w_id Int32,"
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
    clickhouse.execute("INSERT INTO order_line FORMAT CSV", stdin=making.stdout)
    if making.wait() != 0:
        bench.exit_with_error("the table was not written as CSV; see above")


def measure_clickhouse_client(clickhouse):
    """Measures ClickHouse's own client, which decodes blocks and writes their columns only."""
    command = ["clickhouse-client", "--host", "127.0.0.1", "--port", clickhouse.port, "--compression", "0", "--query", "SELECT * FROM order_line FORMAT Native"]
    before = _client_processes.tree_cpu_s(clickhouse.pid)
    answer = _client_processes.time_process(command, stdout=subprocess.DEVNULL)
    server = _client_processes.tree_cpu_s(clickhouse.pid) - before
    return answer | {"server_cpu_s": server, "cpu_s": answer["cpu_s"] + server, "rows": None}


def measure(options, interpreter, stream, parquet):
    with _client_processes.scratch_directory("rows") as rows, _client_processes.scratch_directory("columns") as columns, \
            _databases.Postgresql(rows) as postgresql, _databases.Clickhouse(columns) as clickhouse, _client_processes.HotBlocksServer(options, stream) as blocks:
        clients = {name: _client_processes.Client(interpreter, "databases.py", way, postgresql.port, server=postgresql.pid) for name, way in CLIENTS.items()}
        clients[CLICKHOUSE_NUMPY] = _client_processes.Client(interpreter, "databases.py", "clickhouse", clickhouse.port, server=clickhouse.pid)
        with _client_processes.Client(interpreter, "databases.py", "adbc", postgresql.port) as loader:
            loader.run_job("load", table="order_line", file=str(parquet))
        load_clickhouse(clickhouse, interpreter, stream)
        flight = _client_processes.Client(interpreter, "flight_clients.py", blocks.address, server=blocks.pid)
        asks = {f"{FLIGHT}, {percent} % hot": lambda percent=percent: flight.run_job("ticket", ticket=str(percent)) for percent in options.percent}
        asks |= {name: lambda client=client: client.run_job("fetch", table="order_line") for name, client in clients.items()}
        asks[CLICKHOUSE_NATIVE] = lambda: measure_clickhouse_client(clickhouse)
        for name, ask in asks.items():
            answer = ask()
            if answer["rows"] not in (None, options.rows):
                bench.exit_with_error(f"{name} returned {answer['rows']} rows, expected {options.rows}")
        measured = _client_processes.run_interleaved(options.rounds, asks, "order_line")
        for client in (flight, *clients.values()):
            client.close()
        return measured, [postgresql.version, clickhouse.version]


def plot(options, measured, size_bytes):
    def rate(name):
        return size_bytes / 1e6 / bench.median_field(measured[name], "wall_s")

    lines = {FLIGHT: [[percent, rate(f"{FLIGHT}, {percent} % hot")] for percent in options.percent]}
    for name in (CLICKHOUSE_NUMPY, CLICKHOUSE_NATIVE, *CLIENTS):
        lines[name] = [[percent, rate(name)] for percent in options.percent]
    return {"name": "order_line", "title": "ORDER_LINE: export by share of hot blocks", "x": "% of blocks hot", "y": "MB/s of Arrow", "log": "y", "lines": lines}


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the table (default: 3,000,000)")
    parser.add_argument("--percent", default="0,20,40,60,80,100", help="shares of hot blocks (default: 0,20,40,60,80,100)")
    _client_processes.hot_blocks_option(parser)
    options = parser.parse_args()
    options.percent = list(map(int, options.percent.split(",")))
    godwit = bench.godwit_binary(options)
    interpreter = _client_processes.client_python("databases")
    stream, parquet = (_client_processes.table_file(interpreter, options, "order_line", options.rows, ending) for ending in ("arrows", "parquet"))
    measured, servers = measure(options, interpreter, stream, parquet)
    size_bytes = measured[f"{FLIGHT}, 0 % hot"][0]["bytes"]
    around = bench.host_description(godwit)
    around["versions"] |= {str(at): version for at, version in enumerate(servers)}
    around["versions"] |= _client_processes.package_versions(interpreter, "pyarrow", "connectorx", "psycopg", "clickhouse-driver")
    figure = plot(options, measured, size_bytes)
    rates = {name: size_bytes / 1e6 / statistics.median(answer["wall_s"] for answer in answers) for name, answers in measured.items()}
    text = "\n".join([
        "# A table with hot blocks",
        "",
        f"{options.rows:,} rows of ORDER_LINE, {size_bytes / 1e6:.0f} MB of Arrow, blocks of 16,384 rows, {options.rounds} interleaved rounds; {bench.format_host(around)}."
        f" {_client_processes.format_versions(around)}.",
        "",
        "![MB/s by share of hot blocks](order_line.svg)",
        "",
        *_client_processes.markdown_table(measured, f"{FLIGHT}, 0 % hot", 1, "s"),
        "",
        *[f"- {name}: {rate:,.0f} MB/s." for name, rate in rates.items()],
        "",
        "MB are those of the table as Arrow, whatever the wire format. In ClickHouse, whose version here is too old for microseconds,"
        " ol_delivery_d is an integer in microseconds, and 0 for null.",
        "",
        f"Command: `{bench.command_line()}`",
        "",
    ])
    bench.write_result("order_line", options.results, text, around, [], {"measured": measured, "plots": [figure]})
    _client_processes.draw_plots(interpreter, options.results / "order_line.json")


if __name__ == "__main__":
    main()
