"""Reads a BAM file as Arrow by Python packages: readers.py pysam|polars-bio|oxbow FILE.

Jobs: `rows` of all reads or of those that overlap a region, with the columns that all three packages support, as an Arrow table; `count` of the same.
Regions are contig, start and end, 0-based and half-open.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

from godwit_bench.clients.job_loop import Jobs

os.environ["TQDM_DISABLE"] = "1"

from godwit_bench.clients import job_loop


def pysam_jobs(path: str) -> Jobs:
    import pyarrow as pa
    import pysam

    file = pysam.AlignmentFile(path, "rb")
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("contig", pa.string()),
            ("position", pa.int32()),
            ("end_position", pa.int32()),
            ("flags", pa.uint16()),
            ("cigar", pa.string()),
            ("mapping_quality", pa.uint8()),
            ("mate_contig", pa.string()),
            ("mate_position", pa.int32()),
            ("template_length", pa.int32()),
            ("bases", pa.string()),
            ("qualities", pa.string()),
        ]
    )

    def overlapping_reads(region: list[Any] | None) -> Any:
        if region:
            return file.fetch(*region)
        file.reset()
        return file.fetch(until_eof=True)

    def batches(region: list[Any] | None, most: int = 65_536) -> Iterator[Any]:
        columns: list[list[Any]] = [[] for _ in schema]
        add = [column.append for column in columns]
        for read in overlapping_reads(region):
            values = (
                read.query_name,
                read.reference_name,
                read.reference_start,
                read.reference_end,
                read.flag,
                read.cigarstring,
                read.mapping_quality,
                read.next_reference_name,
                read.next_reference_start,
                read.template_length,
                read.query_sequence,
                read.qual,
            )
            for put, value in zip(add, values, strict=False):
                put(value)
            if len(columns[0]) == most:
                yield pa.record_batch(columns, schema)
                for column in columns:
                    column.clear()
        yield pa.record_batch(columns, schema)

    def rows(region: list[Any] | None = None) -> dict[str, Any]:
        return {"rows": pa.Table.from_batches(batches(region), schema).num_rows}

    def count(region: list[Any] | None = None) -> dict[str, Any]:
        if region:
            return {"rows": file.count(*region)}
        return {"rows": sum(1 for _ in overlapping_reads(None))}

    return {"rows": rows, "count": count}


def polars_bio_jobs(path: str) -> Jobs:
    import polars as pl
    import polars_bio as pb

    def reads(region: list[Any] | None) -> Any:
        frame = pb.scan_bam(path, use_zero_based=True)
        if region:
            contig, start, end = region
            frame = frame.filter((pl.col("chrom") == contig) & (pl.col("start") < end) & (pl.col("end") > start))
        return frame

    def rows(region: list[Any] | None = None) -> dict[str, Any]:
        return {"rows": reads(region).collect().height}

    def count(region: list[Any] | None = None) -> dict[str, Any]:
        return {"rows": reads(region).select(pl.len()).collect().item()}

    return {"rows": rows, "count": count}


def oxbow_jobs(path: str) -> Jobs:
    import oxbow

    def batches(region: list[Any] | None, fields: str | list[str]) -> Any:
        where = None if region is None else f"{region[0]}:{region[1] + 1}-{region[2]}"
        return oxbow.from_bam(path, fields=fields, regions=where).batches()

    def rows(region: list[Any] | None = None) -> dict[str, Any]:
        return {"rows": sum(batch.num_rows for batch in list(batches(region, "*")))}

    def count(region: list[Any] | None = None) -> dict[str, Any]:
        return {"rows": sum(batch.num_rows for batch in batches(region, ["flag"]))}

    return {"rows": rows, "count": count}


if __name__ == "__main__":
    job_loop.run_jobs({"pysam": pysam_jobs, "polars-bio": polars_bio_jobs, "oxbow": oxbow_jobs}[sys.argv[1]](sys.argv[2]))
