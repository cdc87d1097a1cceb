"""Tests of the data source of Spark against samtools. Requires PySpark; arguments as for test_session."""

import os
import sys
import tempfile
import unittest

from pyspark.sql import SparkSession
from samtools_reference import RUN, samtools

import godwit.spark
from godwit.spark import EqualTo, GreaterThan, LessThan, LessThanOrEqual, region_from_filters


class Spark(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Workers use this Python, not the first one on the PATH.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        cls.session = godwit.open(RUN)
        cls.addClassCleanup(cls.session.close)
        cls.spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        cls.addClassCleanup(cls.spark.stop)
        godwit.spark.register(cls.spark)

    def read(self, path="sample.bam", **options):
        server = self.session._server
        options = {"url": server.url, "token": server.token, **options}
        return self.spark.read.format("godwit").options(**options).load(path)

    def test_all_rows_arrive_once(self):
        names = [line.split("\t")[0] for line in samtools(RUN / "sample.bam")]
        frame = self.read(parts="5", columns="name,flags,position")
        self.assertEqual(frame.rdd.getNumPartitions(), 5)
        self.assertEqual(sorted(row.name for row in frame.collect()), sorted(names))

    def test_regions_come_from_options_and_from_filters(self):
        expected = len(samtools(RUN / "sample.bam", "chr1:1000-20000"))
        self.assertEqual(self.read(region="chr1:1,000-20,000").count(), expected)
        filtered = self.read(columns="contig,position,end_position,name").filter("contig = 'chr1' AND position < 20000 AND end_position > 999")
        self.assertEqual(filtered.count(), expected)
        mapped = [line for line in samtools("-F", "4", RUN / "sample.bam", "chr2") if int(line.split("\t")[3]) > 500]
        self.assertEqual(self.read().filter("contig = 'chr2' AND position >= 500 AND (flags & 4) = 0").count(), len(mapped))

    def test_statements_and_aggregates(self):
        frame = self.spark.read.format("godwit").options(url=self.session._server.url, token=self.session._server.token, sql="SELECT 1 + 1 AS two")
        self.assertEqual([row.two for row in frame.load().collect()], [2])
        counts = {row.contig: row["count"] for row in self.read(columns="contig").groupBy("contig").count().collect()}
        self.assertEqual(counts["chr1"], len(samtools(RUN / "sample.bam", "chr1")))

    def test_frames_are_written_whole_and_leave_nothing_else(self):
        with tempfile.TemporaryDirectory() as root, godwit.open(root, writable=True) as session:
            frame = self.spark.range(0, 1000, numPartitions=7).selectExpr("id", "concat('read ', id) AS name", "id / 4 AS share")

            def write(frame, mode):
                options = {"url": session._server.url, "token": session._server.token}
                frame.write.format("godwit").options(**options).mode(mode).save("panel")

            write(frame, "append")
            write(frame.filter("id < 10"), "append")
            found = session.table("panel").to_arrow()
            self.assertEqual(found["id"].to_pylist(), [*range(1000), *range(10)])
            self.assertEqual(found["name"][999].as_py(), "read 999")
            write(frame.filter("id % 2 = 0"), "overwrite")
            self.assertEqual(session.table("panel").to_arrow()["id"].to_pylist(), list(range(0, 1000, 2)))
            # If one task fails, nothing is stored.
            with self.assertRaises(Exception):  # noqa: B017
                write(frame.selectExpr("CASE WHEN id = 900 THEN raise_error('mine') ELSE id END AS id", "name", "share"), "overwrite")
            self.assertEqual(session.table("panel").to_arrow().num_rows, 500)
            self.assertEqual([dataset.name for dataset in session.datasets()], ["panel.parquet"])

    def test_what_is_wrong_is_said(self):
        for expected, wrong in [
            ("nope.bam", lambda: self.read("nope.bam").count()),
            ("url", lambda: self.spark.read.format("godwit").load("x").count()),
        ]:
            with self.assertRaises(Exception) as raised:
                wrong()
            self.assertIn(expected, str(raised.exception))


class Regions(unittest.TestCase):
    def test_filters_become_the_region_that_holds_their_rows(self):
        contig, after = EqualTo(("contig",), "chr1"), GreaterThan(("end_position",), 10)
        below, at_most = LessThan(("position",), 100), LessThanOrEqual(("position",), 100)
        for filters, region in [
            ([contig], "{chr1}:1-"),
            ([contig, below, after], "{chr1}:10-100"),
            ([contig, at_most], "{chr1}:1-101"),
            ([contig, GreaterThan(("position",), 7)], "{chr1}:8-"),
            ([below, after], None),
            ([EqualTo(("contig",), "HLA-A*01:01"), after], "{HLA-A*01:01}:10-"),
        ]:
            self.assertEqual(region_from_filters(filters), region)


if __name__ == "__main__":
    unittest.main()
