"""Counts the records of regions in a Parquet data set with pyarrow, polars and DuckDB.

Arguments: the directory, then regions CONTIG:START-END, 1-based. Prints for each region: count by pyarrow, by polars, by DuckDB, bytes
of row groups that pyarrow read (without the footers), bytes of all files.
"""

import sys
from pathlib import Path

import duckdb
import polars
import pyarrow
import pyarrow.parquet as parquet


class CountingFile:
    """A file that counts the bytes that are read from it."""

    total = 0

    def __init__(self, path):
        self.file, self.closed = open(path, "rb"), False

    def read(self, count=-1):
        data = self.file.read(count)
        CountingFile.total += len(data)
        return data

    def seek(self, *where):
        return self.file.seek(*where)

    def tell(self):
        return self.file.tell()

    def close(self):
        self.closed = True
        self.file.close()

    def readable(self):
        return True

    def seekable(self):
        return True

    def writable(self):
        return False


def statistics_bounds(group, name):
    column = next(group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == name)
    return column.statistics.min, column.statistics.max


def count_by_pyarrow(files, contig, start, end):
    """Counts records of a region: selects row groups by statistics, then reads all their columns."""
    count, read = 0, 0
    for path in files:
        file = parquet.ParquetFile(pyarrow.PythonFile(CountingFile(path), mode="r"), pre_buffer=False)
        for at in range(file.num_row_groups):
            group = file.metadata.row_group(at)
            contigs = statistics_bounds(group, "contig") if group.num_rows else (None, None)
            if contigs[0] is None or not contigs[0] <= contig <= contigs[1]:
                continue
            if contigs[0] == contigs[1] and (statistics_bounds(group, "position")[0] >= end or statistics_bounds(group, "end_position")[1] <= start):
                continue
            before = CountingFile.total
            rows = file.read_row_group(at).select(["contig", "position", "end_position"]).to_pylist()
            read += CountingFile.total - before
            count += sum(row["contig"] == contig and row["position"] < end and row["end_position"] > start for row in rows)
    return count, read


def main():
    directory, regions = Path(sys.argv[1]), sys.argv[2:]
    files = sorted(directory.iterdir())
    for region in regions:
        contig, span = region.rsplit(":", 1)
        first, last = (int(number) for number in span.split("-"))
        start, end = first - 1, last
        counted, read = count_by_pyarrow(files, contig, start, end)
        condition = (
            (polars.col("contig").cast(polars.String) == contig)
            & (polars.col("position") < end)
            & (polars.col("end_position") > start)
        )
        by_polars = polars.scan_parquet(directory / "*.parquet").filter(condition).select(polars.len()).collect().item()
        query = f"SELECT count(*) FROM '{directory}/*.parquet' WHERE contig = ? AND position < ? AND end_position > ?"
        by_duckdb = duckdb.execute(query, [contig, end, start]).fetchone()[0]
        print(counted, by_polars, by_duckdb, read, sum(path.stat().st_size for path in files))


main()
