"""A server of up to a million datasets, and a table of two thousand columns.

Directories with small Parquet files, at most 10,000 in each, are served by `godwit serve`. A client in pyarrow calls ListFlights once, then
GetFlightInfo for datasets drawn at random, then both again, and reads a table of many columns and one of 20 columns with as many values.
"""

import argparse
import random
import shutil
import time
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

DIRECTORY_ENTRIES = 10_000
REQUESTS = 1000
NARROW_COLUMNS = 20
WRITE_TABLES = """
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
root, values, columns = sys.argv[1], int(sys.argv[2]), [int(count) for count in sys.argv[3:]]
for count in columns:
    rows = values // count
    table = pa.table({f"column_{number}": np.arange(rows) * number for number in range(count)})
    pq.write_table(table, f"{root}/columns_{count}.parquet")
pq.write_table(pa.table({"number": [1]}), f"{root}/small.parquet")
"""


def dataset_name(number: int) -> str:
    return f"{number // DIRECTORY_ENTRIES}/{number}.parquet"


def make_datasets(root: Path, small: Path, count: int) -> None:
    content = small.read_bytes()
    for number in range(count):
        if number % DIRECTORY_ENTRIES == 0:
            (root / str(number // DIRECTORY_ENTRIES)).mkdir(parents=True)
        (root / dataset_name(number)).write_bytes(content)


def peak_mib(pid: int) -> float:
    with Path(f"/proc/{pid}/status").open() as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


def measure_datasets(godwit: Path, interpreter: str, root: Path, count: int) -> harness.Result:
    """Serves the datasets; returns seconds until the server listens, of each call, and its peak memory."""
    draw = random.Random(count)
    started = time.monotonic()
    with client_processes.DataServer(godwit, root) as served:
        found: harness.Result = {"start_s": time.monotonic() - started}
        with client_processes.Client(interpreter, "flight_clients", served.address, server=served.pid) as client:
            for turn in ("first", "second"):
                listed = client.run_job("list")
                if listed["datasets"] != count:
                    harness.exit_with_error(f"{listed['datasets']} of {count} datasets were listed")
                names = [dataset_name(draw.randrange(count)) for _ in range(REQUESTS)]
                found[f"{turn}_list_s"] = listed["wall_s"]
                found[f"{turn}_request_ms"] = client.run_job("info", datasets=names)["wall_s"] / REQUESTS * 1000
        found["peak_mib"] = peak_mib(served.pid)
    return found


def measure_columns(godwit: Path, interpreter: str, root: Path, columns: list[int], rounds: int) -> harness.Rounds:
    names = {count: f"columns_{count}.parquet" for count in columns}
    measured: harness.Rounds = {f"{count:,} columns": [] for count in columns}
    with (
        client_processes.DataServer(godwit, root) as served,
        client_processes.Client(interpreter, "flight_clients", served.address, server=served.pid) as client,
    ):
        for count in columns:
            client.run_job("flight", dataset=names[count])
        for _ in range(rounds):
            for count in columns:
                measured[f"{count:,} columns"].append(client.run_job("flight", dataset=names[count]))
    return measured


def parse_arguments() -> argparse.Namespace:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--datasets", default=[1000, 1_000_000], type=harness.comma_separated(int), help="default: 1000,1000000")
    parser.add_argument("--columns", type=int, default=2000, help="columns of the wide table (default: 2000)")
    parser.add_argument("--values", type=int, default=40_000_000, help="values of each table (default: 40,000,000)")
    parser.add_argument("--rounds", type=int, default=5, help="readings of each table (default: 5)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    godwit = harness.godwit_binary(options)
    interpreter = client_processes.client_python("databases")
    scratch = harness.scratch_directory(options, "serve-scale")
    tables = scratch / "tables"
    tables.mkdir()
    columns = [NARROW_COLUMNS, options.columns]
    harness.run_checked([interpreter, "-c", WRITE_TABLES, tables, options.values, *columns])
    rows = []
    measured: dict[int, harness.Result] = {}
    for count in options.datasets:
        root = scratch / "datasets"
        make_datasets(root, tables / "small.parquet", count)
        measured[count] = found = measure_datasets(godwit, interpreter, root, count)
        harness.report_progress(f"{count:,} datasets: {found}")
        shutil.rmtree(root)
        seconds = [f"{found[name]:.2f}" for name in ("start_s", "first_list_s", "second_list_s", "first_request_ms", "second_request_ms")]
        rows.append([f"{count:,}", *seconds, f"{found['peak_mib']:.0f}"])
    read = measure_columns(godwit, interpreter, tables, columns, options.rounds)
    read_rows = [[name, *(f"{harness.median_field(results, field):.2f}" for field in ("wall_s", "cpu_s"))] for name, results in read.items()]
    around = harness.measurement_context(options, godwit)
    heads = ["datasets", "start, s", "first ListFlights, s", "second, s", "GetFlightInfo, ms", "again, ms", "peak of the server, MiB"]
    text = "\n".join(
        [
            "# Many datasets and many columns",
            "",
            f"{DIRECTORY_ENTRIES:,} Parquet files in a directory; {REQUESTS:,} calls of GetFlightInfo for random datasets, mean;",
            f"{harness.format_host(around)}.",
            "",
            *harness.plain_table(heads, rows),
            f"Tables of {options.values:,} integers of 64 bits from Parquet into pyarrow, {options.rounds} rounds:",
            "",
            *harness.plain_table(["table", "wall s, median", "CPU s of server and client"], read_rows),
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("serve_scale", options.results, text, around, [], {"datasets": measured, "columns": read})
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
