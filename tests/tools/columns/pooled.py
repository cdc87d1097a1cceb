"""The Python client at a pool one of whose nodes is lost: pooled.py POOL.toml rows|puts SIGNAL. Says when it is in the middle, and waits for a line."""

import logging
import sys

import pyarrow as pa

import godwit

ROWS = 900_000


def in_the_middle():
    print("in the middle", flush=True)
    sys.stdin.readline()


def rows(session):
    """Each row once, in the order of the file, though the node is lost behind the first of them."""
    at = 0
    for batch in session.table("a.bed", parts=1):
        starts = batch["position"].to_pylist()
        assert starts == list(range(at, at + len(starts))), at
        if at == 0:
            in_the_middle()
        at += len(starts)
    print(at, "in order")


class Slow:
    """A table that tells when some of it was sent; it can be read again."""

    def __init__(self):
        self.told = False

    def __arrow_c_stream__(self, requested_schema=None):
        schema = pa.schema([("n", pa.int64()), ("text", pa.string())])

        def batches():
            for first in range(0, ROWS, 30_000):
                if first == ROWS // 3 and not self.told:
                    self.told = True
                    in_the_middle()
                numbers = list(range(first, first + 30_000))
                yield pa.record_batch([pa.array(numbers), pa.array([f"text of {number}" for number in numbers])], schema)

        return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)


def puts(session):
    session.put("t", Slow())
    print(session.table("t").to_arrow().num_rows, "rows")


logging.basicConfig(format="%(message)s")
with godwit.connect("godwit+pool://storage", pool=sys.argv[1], wait=120) as session:
    {"rows": rows, "puts": puts}[sys.argv[2]](session)
