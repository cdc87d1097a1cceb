"""Tables from a fixed seed, as Parquet, or as an Arrow stream if FILE ends with .arrows: tables.py taxi|order_line|lineitem ROWS FILE.

`taxi` has the 18 columns of the trip records of the New York taxi commission, in plausible ranges; `order_line` has those of the TPC-C
table (clause 1.3), with amounts as double precision; `lineitem` has the 16 columns of the TPC-H table (clause 1.4), with prices as decimals. All
values are synthetic.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Rows per generated batch and per row group.
ROWS = 1 << 18
SEED = 20261122


def taxi(draw: np.random.Generator, rows: int, first: int) -> dict[str, Any]:
    """Returns trips in the order of their start times."""

    def small(values: list[int], p: list[float] | None = None) -> Any:
        return draw.choice(np.array(values, "i8"), rows, p=p)

    def place() -> Any:
        return draw.integers(1, 266, rows)

    started = np.datetime64("2026-01-01", "us").astype("i8") + (first + np.arange(rows)) * 2_000_000 + draw.integers(0, 2_000_000, rows)
    seconds = draw.integers(60, 5400, rows)
    distance = np.round(seconds / 300 * draw.uniform(0.5, 1.5, rows), 2)
    fare = np.round(3 + 2.5 * distance, 2)
    tip = np.where(draw.random(rows) < 0.6, np.round(fare * draw.uniform(0.1, 0.3, rows), 2), 0.0)
    extra, tolls = draw.choice([0.0, 0.5, 1.0, 2.5], rows), np.where(draw.random(rows) < 0.06, 6.55, 0.0)
    passengers = draw.integers(1, 7, rows).astype("f8")
    return {
        "vendor_id": small([1, 2]),
        "pickup_at": pa.array(started, pa.timestamp("us")),
        "dropoff_at": pa.array(started + seconds * 1_000_000, pa.timestamp("us")),
        "passenger_count": pa.array(passengers, mask=draw.random(rows) < 0.03),
        "trip_distance": distance,
        "rate_code": small([1, 2, 3, 4, 5], [0.93, 0.04, 0.01, 0.01, 0.01]),
        "stored_and_forwarded": pa.array(np.where(draw.random(rows) < 0.01, "Y", "N")),
        "pickup_place": place(),
        "dropoff_place": place(),
        "payment_type": small([1, 2, 3, 4], [0.7, 0.26, 0.02, 0.02]),
        "fare": fare,
        "extra": extra,
        "mta_tax": np.full(rows, 0.5),
        "tip": tip,
        "tolls": tolls,
        "improvement_surcharge": np.full(rows, 1.0),
        "total": np.round(fare + tip + extra + tolls + 1.5, 2),
        "congestion_surcharge": draw.choice([0.0, 2.5], rows, p=[0.1, 0.9]),
    }


def order_line(draw: np.random.Generator, rows: int, first: int) -> dict[str, Any]:
    """Returns order lines: ten lines per order, 3,000 orders per district, ten districts per warehouse."""
    line = first + np.arange(rows)
    order, district = line // 10, line // 30_000
    warehouse = (district // 10 + 1).astype("i4")
    delivered = np.datetime64("2026-01-01", "us").astype("i8") + order * 1_000_000
    is_open = order % 3000 >= 2100
    letters = draw.integers(ord("A"), ord("Z") + 1, (rows, 24), "u1").view("S24").ravel().astype("U24")
    return {
        "ol_o_id": (order % 3000 + 1).astype("i4"),
        "ol_d_id": (district % 10 + 1).astype("i4"),
        "ol_w_id": warehouse,
        "ol_number": (line % 10 + 1).astype("i4"),
        "ol_i_id": draw.integers(1, 100_001, rows, "i4"),
        "ol_supply_w_id": warehouse,
        "ol_delivery_d": pa.array(delivered, pa.timestamp("us"), mask=is_open),
        "ol_quantity": np.full(rows, 5, "i4"),
        "ol_amount": np.where(is_open, np.round(draw.uniform(0.01, 9999.99, rows), 2), 0.0),
        "ol_dist_info": pa.array(letters),
    }


def lineitem(draw: np.random.Generator, rows: int, first: int) -> dict[str, Any]:
    """Returns line items: four lines per order, with comments of 10 to 43 letters."""
    line = first + np.arange(rows)
    order = line // 4 + 1
    shipped = np.datetime64("1992-01-02", "D") + draw.integers(0, 2526, rows)
    letters = draw.integers(ord("a"), ord("z") + 1, (rows, 43), "u1").tobytes().decode()
    lengths = draw.integers(10, 44, rows)
    comments = [letters[43 * at : 43 * at + int(length)] for at, length in enumerate(lengths)]

    def words(choices: list[str]) -> Any:
        return pa.array(np.array(choices)[draw.integers(0, len(choices), rows)])

    def hundredths(low: int, high: int) -> Any:
        # The unscaled numbers as integers of 128 bits.
        wide = np.zeros((rows, 2), "<i8")
        wide[:, 0] = draw.integers(low, high, rows)
        return pa.Array.from_buffers(pa.decimal128(15, 2), rows, [None, pa.py_buffer(wide.tobytes())])

    return {
        "l_orderkey": order.astype("i8"),
        "l_partkey": draw.integers(1, 200_001, rows),
        "l_suppkey": draw.integers(1, 10_001, rows),
        "l_linenumber": (line % 4 + 1).astype("i4"),
        "l_quantity": hundredths(100, 5001),
        "l_extendedprice": hundredths(90_000, 10_500_000),
        "l_discount": hundredths(0, 11),
        "l_tax": hundredths(0, 9),
        "l_returnflag": words(["A", "N", "R"]),
        "l_linestatus": words(["F", "O"]),
        "l_shipdate": pa.array(shipped, pa.date32()),
        "l_commitdate": pa.array(shipped + draw.integers(-60, 60, rows), pa.date32()),
        "l_receiptdate": pa.array(shipped + draw.integers(1, 31, rows), pa.date32()),
        "l_shipinstruct": words(["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"]),
        "l_shipmode": words(["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]),
        "l_comment": pa.array(comments),
    }


def batches(make: Callable[[np.random.Generator, int, int], dict[str, Any]], rows: int) -> Iterator[pa.RecordBatch]:
    draw = np.random.default_rng(SEED)
    for first in range(0, rows, ROWS):
        yield pa.record_batch(make(draw, min(ROWS, rows - first), first))


if __name__ == "__main__":
    table, rows, path = {"taxi": taxi, "order_line": order_line, "lineitem": lineitem}[sys.argv[1]], int(sys.argv[2]), sys.argv[3]
    batches_iterator = batches(table, rows)
    first_batch = next(batches_iterator)
    parquet = not path.endswith(".arrows")
    with pq.ParquetWriter(path, first_batch.schema, compression="zstd") if parquet else pa.ipc.new_stream(path, first_batch.schema) as writer:
        writer.write_batch(first_batch)
        for batch in batches_iterator:
            writer.write_batch(batch)
