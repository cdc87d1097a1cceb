"""The main loop of every client: reads jobs from stdin, one per line, and prints the result and the time of each."""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

# The jobs of a client by name; each returns the values of its result by name.
Jobs: TypeAlias = dict[str, Callable[..., dict[str, Any]]]


def first_row_values(table: pa.Table) -> dict[str, Any]:
    """Returns the size of an Arrow table, and the first value of its row if it has a single row."""
    row = table.to_pylist()[0] if table.num_rows == 1 else {}
    return {"rows": table.num_rows, "bytes": table.nbytes, "first": next(iter(row.values()), None)}


def table_digest(table: pa.Table) -> dict[str, Any]:
    """Returns a digest that does not depend on the order of rows: their number, and for each column the sum of its numbers, of its times
    in microseconds, or of the byte lengths of its texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def column_sum(column: Any) -> float:
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
            column = pc.binary_length(column)
        return pc.sum(pc.cast(column, pa.float64(), safe=False)).as_py() or 0.0

    return {"rows": table.num_rows, "sums": [float(f"{column_sum(column):.9g}") for column in table.columns]}


def run_jobs(jobs: Jobs) -> None:
    """Runs jobs by name. Prints the result of each with its wall and CPU seconds."""
    for line in sys.stdin:
        asked = json.loads(line)
        gc.collect()
        cpu, started = time.process_time(), time.perf_counter()
        found = jobs[asked["do"]](**asked["with"])
        took, spent = time.perf_counter() - started, time.process_time() - cpu
        print(json.dumps({"wall_s": took, "cpu_s": spent, **found}), flush=True)
    # Some drivers report errors when Python destroys their objects at exit.
    os._exit(0)
