"""Steps of all kinds, for the tests of `align --step`."""

import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc


def same(table):
    return table


def rebuilt(table):
    """Returns the same rows in new buffers."""
    return table.take(pa.array(range(table.num_rows)))


def mask(table):
    return pc.greater_equal(table["mapping_quality"], 30)


def two_columns(table):
    assert table.column_names == ["flags", "mapping_quality"]
    return pc.greater_equal(table["mapping_quality"], 30)


two_columns.__godwit_step__ = {"columns": ["mapping_quality", "flags"]}


def table(table):
    return table.filter(pc.greater_equal(table["mapping_quality"], 30))


def polars_table(table: "polars.DataFrame"):
    import polars

    return table.filter(polars.col("mapping_quality") >= 30)


def polars_mask(table: "polars.DataFrame"):
    return table["mapping_quality"] >= 30


def pandas_table(table: "pandas.DataFrame"):
    return table[table["mapping_quality"] >= 30]


def pandas_mask(table: "pandas.DataFrame"):
    return table["mapping_quality"] >= 30


def changed(table):
    """Changes qualities, removes a tag and adds a tag."""
    halved = pc.cast(pc.divide(table["mapping_quality"], pa.scalar(2, pa.uint8())), pa.int64())
    table = table.set_column(6, "mapping_quality", halved)
    at = table.column_names.index("tag_MD")
    table = table.set_column(at, "tag_MD", pa.nulls(table.num_rows, pa.string()))
    at = table.column_names.index("tag_XS")
    return table.set_column(at, "tag_XS", pc.cast(pc.add(table["position"], 1), pa.int32()))


def counted(table, partition):
    """Keeps some rows, and writes a file for each partition."""
    kept = pc.greater_equal(table["mapping_quality"], 30)
    start, end = partition.start, partition.end
    partition.path("qc.csv").write_text(f"{partition.sample},{partition.index},{partition.count},{start},{end},{table.num_rows},{pc.sum(kept)}\n")
    return kept


def report_location(table, partition):
    """Reports whether the table is in memory or in a scratch file."""
    unnamed_files = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("(deleted)")]
    in_memory = [line for line in unnamed_files if "godwit-table" in line]
    partition.path("where.txt").write_text("memory" if in_memory else "scratch" if unnamed_files else "nowhere")
    return table


kept_tables = []


def keeps_tables(table):
    """Keeps references to all tables, which must not change."""
    kept_tables.append((table, table.column("name").to_pylist()))
    assert all(table.column("name").to_pylist() == names for table, names in kept_tables)
    return table


def noisy(table):
    print("this is no answer")
    os.system("echo nor this")
    return table


def raising(table, partition):
    return table["no such column"]


def returns_none(table):
    pass


def without_column(table):
    return table.drop_columns(["cigar"])


def with_extra_column(table):
    return table.append_column("more", table["flags"])


def as_text(table):
    return table.set_column(6, "mapping_quality", pc.cast(table["mapping_quality"], pa.string()))


def too_large(table):
    return table.set_column(6, "mapping_quality", pa.array([300] * table.num_rows))


def doubled(table):
    return pa.concat_tables([table, table])


def reversed_rows(table):
    return table.take(pa.array(range(table.num_rows - 1, -1, -1)))


def moved(table, partition):
    if partition.index != 0:
        return table
    return table.set_column(4, "position", pa.array([60_000] * table.num_rows, pa.int32()))


def short_mask(table):
    return pa.array([True] * (table.num_rows + 1))


def no_mask(table):
    return table["mapping_quality"]


def returns_some_columns(table):
    return table.select(["flags"])


returns_some_columns.__godwit_step__ = {"columns": ["flags"]}


def unknown_column(table):
    return table


unknown_column.__godwit_step__ = {"columns": ["nonsense"]}


def writes_stray_file(table, partition):
    (partition.out / "mine.txt").write_text("x")
    return table


def exits_python(table):
    raise SystemExit(0)


def kills_itself(table):
    os.kill(os.getpid(), signal.SIGKILL)


def sleeping(table):
    Path(os.environ["GODWIT_TEST_PID"]).write_text(str(os.getpid()))
    time.sleep(1000)


def failing_once(table, partition):
    """Fails as long as a file exists."""
    if partition.index == 2 and Path(os.environ["GODWIT_TEST_FLAG"]).exists():
        raise RuntimeError("the flag is up")
    return pc.greater_equal(table["mapping_quality"], 30)


def takes_nothing():
    pass


no_function = 7
