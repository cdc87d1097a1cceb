"""Tests of datasets for TensorFlow. Requires TensorFlow; arguments as for test_session."""

import unittest

import numpy as np
import pyarrow as pa
import tensorflow as tf
from samtools_reference import RUN, samtools

import godwit
import godwit.tensorflow
from godwit.pileups import Pileups


class Datasets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = godwit.open(RUN)
        cls.addClassCleanup(cls.session.close)

    def test_workers_have_each_row_once_between_them_and_epochs_differ(self):
        expected = sorted(int(line.split("\t")[3]) - 1 for line in samtools(RUN / "sample.bam"))
        query = self.session.reads("sample", columns=["position", "mapping_quality"], parts=7)
        found = []
        for worker in range(2):
            dataset = godwit.tensorflow.dataset(query, rows=100, shuffle=True, worker=(worker, 2))
            self.assertEqual(dataset.element_spec["position"], tf.TensorSpec((None,), tf.int32))
            epochs = [np.concatenate([batch["position"].numpy() for batch in dataset]).tolist() for _ in range(2)]
            self.assertNotEqual(*epochs)
            found += epochs[0]
        self.assertEqual(sorted(found), expected)

    def test_pileups(self):
        candidates = pa.table({"contig": ["chr1"] * 20, "position": range(500, 20_500, 1_000), "label": np.arange(20) % 2})
        pileups = Pileups(self.session, "sample", candidates, width=31, depth=20, block=8)
        dataset = godwit.tensorflow.pileups(pileups)
        for found, expected in zip(dataset, pileups, strict=True):
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name].numpy(), array)

    def test_texts_are_refused(self):
        with self.assertRaises(godwit.UsageError):
            godwit.tensorflow.dataset(self.session.reads("sample", columns=["name"], parts=2))


if __name__ == "__main__":
    unittest.main()
