"""Runs the Python client at a pool while a member is lost: pool_failover.py POOL.toml read_rows|upload_slow_table SIGNAL.

Prints a line in the middle of the transfer, and waits for a line on standard input.
"""

import logging
import sys

import pyarrow as pa

import godwit

ROWS = 900_000


def wait_for_signal():
    print("in the middle", flush=True)
    sys.stdin.readline()


def read_rows(session):
    """Asserts that each row is received once, in the order of the file, if the member is lost after the first batch."""
    at = 0
    for batch in session.table("a.bed", parts=1):
        starts = batch["position"].to_pylist()
        assert starts == list(range(at, at + len(starts))), at
        if at == 0:
            wait_for_signal()
        at += len(starts)
    print(at, "in order")


class SlowTable:
    """A table that calls `wait_for_signal` after a third of its rows; it can be read again."""

    def __init__(self):
        self.reported = False

    def __arrow_c_stream__(self, requested_schema=None):
        schema = pa.schema([("n", pa.int64()), ("text", pa.string())])

        def batches():
            for first in range(0, ROWS, 30_000):
                if first == ROWS // 3 and not self.reported:
                    self.reported = True
                    wait_for_signal()
                numbers = list(range(first, first + 30_000))
                yield pa.record_batch([pa.array(numbers), pa.array([f"text of {number}" for number in numbers])], schema)

        return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)


def upload_slow_table(session):
    session.put("t", SlowTable())
    print(session.table("t").to_arrow().num_rows, "rows")


logging.basicConfig(format="%(message)s")
with godwit.connect("godwit+pool://storage", pool=sys.argv[1], wait=120) as session:
    {"read_rows": read_rows, "upload_slow_table": upload_slow_table}[sys.argv[2]](session)
