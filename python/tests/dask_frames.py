"""Tests of data frames of Dask against samtools and pandas. Requires Dask; arguments as for test_session."""

import unittest

import dask
from samtools_reference import RUN, samtools

import godwit
import godwit.dask


class Frames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = godwit.open(RUN)
        cls.addClassCleanup(cls.session.close)

    def frame(self, **options):
        return godwit.dask.frame(self.session.reads("sample", **options))

    def test_all_rows_arrive_once_in_their_order_with_the_types_that_were_said(self):
        names = [line.split("\t")[0] for line in samtools(RUN / "sample.bam")]
        frame = self.frame(columns=["name", "flags", "position"], parts=5)
        self.assertEqual(frame.npartitions, 5)
        self.assertEqual(frame.compute().name.tolist(), names)
        for partition in dask.compute(*frame.to_delayed()):
            self.assertEqual(partition.dtypes.tolist(), frame.dtypes.tolist())

    def test_aggregates_are_those_of_pandas(self):
        options = {"columns": ["contig", "mapping_quality", "position"], "region": "chr1:1-20,000"}
        expected = self.session.reads("sample", **options).to_pandas().groupby("contig").mapping_quality.mean()
        found = self.frame(**options, parts=4).groupby("contig").mapping_quality.mean().compute()
        self.assertEqual(list(found.index), list(expected.index))
        for contig in expected.index:
            self.assertAlmostEqual(float(found[contig]), float(expected[contig]))

    def test_processes_fetch_by_themselves(self):
        frame = self.frame(columns=["flags"], parts=3)
        expected = len(samtools(RUN / "sample.bam"))
        self.assertEqual(len(frame.compute(scheduler="processes", num_workers=2)), expected)


if __name__ == "__main__":
    unittest.main()
