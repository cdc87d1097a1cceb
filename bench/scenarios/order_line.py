"""Exporting a table in which rows still change: the ORDER_LINE table of TPC-C, 0 to 100 % of its blocks hot.

After the published measurement of a database that stores blocks as Arrow: a frozen block is stored and sent as columns, a hot one is stored as
rows, which are converted to columns first. For comparison, PostgreSQL sends the same rows by its row protocol, and ClickHouse sends them by blocks of
columns. PostgreSQL's rows are always hot and ClickHouse's never, so that each has one value for all percentages.
"""

import argparse
import functools
import statistics
import subprocess
from pathlib import Path

from godwit_bench import harness
from godwit_bench.databases import servers
from godwit_bench.harness import client_processes
from godwit_bench.plots import draw_plots

FLIGHT = "godwit, Flight by pyarrow"
CLIENTS = {"PostgreSQL protocol of rows, into Arrow": "connectorx_rows", "PostgreSQL protocol of rows, into tuples": "psycopg"}
CLICKHOUSE_NUMPY, CLICKHOUSE_NATIVE = "ClickHouse protocol of blocks, into numpy", "ClickHouse protocol of blocks, its own client"


def load_clickhouse(clickhouse: servers.Clickhouse, interpreter: str, file: Path) -> None:
    """Loads the table through CSV, which both programs support."""
    clickhouse.execute(
        "CREATE TABLE order_line (ol_o_id Int32, ol_d_id Int32, ol_w_id Int32, ol_number Int32, ol_i_id Int32, ol_supply_w_id Int32,"
        " ol_delivery_d Int64, ol_quantity Int32, ol_amount Float64, ol_dist_info String) ENGINE = Memory"
    )
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
        harness.exit_with_error("the table was not written as CSV; see above")


def measure_clickhouse_client(clickhouse: servers.Clickhouse) -> harness.Result:
    """Measures ClickHouse's own client, which decodes blocks and writes their columns only."""
    command = ["clickhouse-client", "--host", "127.0.0.1", "--port", clickhouse.port, "--compression", "0"]
    command += ["--query", "SELECT * FROM order_line FORMAT Native"]
    before = client_processes.tree_cpu_s(clickhouse.pid)
    answer = client_processes.time_process(command, stdout=subprocess.DEVNULL)
    server = client_processes.tree_cpu_s(clickhouse.pid) - before
    return answer | {"server_cpu_s": server, "cpu_s": answer["cpu_s"] + server, "rows": None}


def measure(options: argparse.Namespace, interpreter: str, stream: Path, parquet: Path) -> tuple[harness.Rounds, list[str]]:
    with (
        client_processes.scratch_directory("rows") as rows,
        client_processes.scratch_directory("columns") as columns,
        servers.Postgresql(rows) as postgresql,
        servers.Clickhouse(columns) as clickhouse,
        client_processes.HotBlocksServer(options, stream) as blocks,
    ):
        clients = {
            name: client_processes.Client(interpreter, "databases", way, postgresql.port, server=postgresql.pid) for name, way in CLIENTS.items()
        }
        clients[CLICKHOUSE_NUMPY] = client_processes.Client(interpreter, "databases", "clickhouse", clickhouse.port, server=clickhouse.pid)
        with client_processes.Client(interpreter, "databases", "adbc", postgresql.port) as loader:
            loader.run_job("load", table="order_line", file=str(parquet))
        load_clickhouse(clickhouse, interpreter, stream)
        flight = client_processes.Client(interpreter, "flight_clients", blocks.address, server=blocks.pid)
        asks = {f"{FLIGHT}, {percent} % hot": functools.partial(flight.run_job, "ticket", ticket=str(percent)) for percent in options.percent}
        asks |= {name: functools.partial(client.run_job, "fetch", table="order_line") for name, client in clients.items()}
        asks[CLICKHOUSE_NATIVE] = functools.partial(measure_clickhouse_client, clickhouse)
        for name, ask in asks.items():
            answer = ask()
            if answer["rows"] not in (None, options.rows):
                harness.exit_with_error(f"{name} returned {answer['rows']} rows, expected {options.rows}")
        measured = client_processes.run_interleaved(options.rounds, asks, "order_line")
        for client in (flight, *clients.values()):
            client.close()
        return measured, [postgresql.version, clickhouse.version]


def plot(options: argparse.Namespace, measured: harness.Rounds, size_bytes: int) -> harness.Result:
    def rate(name: str) -> float:
        return size_bytes / 1e6 / harness.median_field(measured[name], "wall_s")

    lines = {FLIGHT: [[percent, rate(f"{FLIGHT}, {percent} % hot")] for percent in options.percent]}
    for name in (CLICKHOUSE_NUMPY, CLICKHOUSE_NATIVE, *CLIENTS):
        lines[name] = [[percent, rate(name)] for percent in options.percent]
    return {
        "name": "order_line",
        "title": "ORDER_LINE: export by share of hot blocks",
        "x": "% of blocks hot",
        "y": "MB/s of Arrow",
        "log": "y",
        "lines": lines,
    }


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=3_000_000, help="rows of the table (default: 3,000,000)")
    parser.add_argument(
        "--percent", type=harness.comma_separated(int), default="0,20,40,60,80,100", help="shares of hot blocks (default: 0,20,40,60,80,100)"
    )
    client_processes.add_hot_blocks_option(parser)
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    interpreter = client_processes.client_python("databases")
    stream, parquet = (client_processes.table_file(interpreter, options, "order_line", options.rows, ending) for ending in ("arrows", "parquet"))
    measured, servers = measure(options, interpreter, stream, parquet)
    size_bytes = measured[f"{FLIGHT}, 0 % hot"][0]["bytes"]
    around = harness.host_description(godwit)
    around["versions"] |= {str(at): version for at, version in enumerate(servers)}
    around["versions"] |= client_processes.package_versions(interpreter, "pyarrow", "connectorx", "psycopg", "clickhouse-driver")
    figure = plot(options, measured, size_bytes)
    rates = {name: size_bytes / 1e6 / statistics.median(answer["wall_s"] for answer in answers) for name, answers in measured.items()}
    text = "\n".join(
        [
            "# A table with hot blocks",
            "",
            f"{options.rows:,} rows of ORDER_LINE, {size_bytes / 1e6:.0f} MB of Arrow, blocks of 16,384 rows, {options.rounds} interleaved "
            f"rounds; {harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            "![MB/s by share of hot blocks](order_line.svg)",
            "",
            *client_processes.markdown_table(measured, f"{FLIGHT}, 0 % hot", 1, "s"),
            "",
            *[f"- {name}: {rate:,.0f} MB/s." for name, rate in rates.items()],
            "",
            "MB are those of the table as Arrow, whatever the wire format. In ClickHouse, whose version here is too old for microseconds,"
            " ol_delivery_d is an integer in microseconds, and 0 for null.",
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("order_line", options.results, text, around, [], {"measured": measured, "plots": [figure]})
    draw_plots(interpreter, options.results / "order_line.json")


if __name__ == "__main__":
    main()
