"""What every client does: take jobs from stdin, one a line, and tell what each took."""

import gc
import json
import os
import sys
import time


def told(table):
    """An Arrow table in a few words: the one row that it may have."""
    row = table.to_pylist()[0] if table.num_rows == 1 else {}
    return {"rows": table.num_rows, "bytes": table.nbytes, "first": next(iter(row.values()), None)}


def digest(table):
    """What has to be the same for the same rows in any order: their number, and for each column the sum of its numbers, of its times
    in microseconds, or of the bytes of its texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def summed(column):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        elif pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        elif not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            column = pc.binary_length(column)
        return pc.sum(pc.cast(column, pa.float64(), safe=False)).as_py() or 0.0

    return {"rows": table.num_rows, "sums": [float(f"{summed(column):.9g}") for column in table.columns]}


def serve(jobs):
    """Runs jobs by name. What one gives is told beside its wall and CPU seconds."""
    for line in sys.stdin:
        asked = json.loads(line)
        gc.collect()
        cpu, started = time.process_time(), time.perf_counter()
        found = jobs[asked["do"]](**asked["with"])
        took, spent = time.perf_counter() - started, time.process_time() - cpu
        print(json.dumps({"wall_s": took, "cpu_s": spent, **found}), flush=True)
    # Some drivers complain when they are taken apart in the order that Python likes.
    os._exit(0)
