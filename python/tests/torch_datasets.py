"""Tests of datasets for PyTorch with real loaders. Requires PyTorch; arguments as for test_session."""

import unittest

import numpy as np
import pyarrow as pa
import torch
from samtools_reference import RUN, samtools

import godwit
import godwit.torch
from godwit.pileups import Pileups


class Datasets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = godwit.open(RUN)
        cls.addClassCleanup(cls.session.close)
        cls.expected = sorted((int(line.split("\t")[3]) - 1, int(line.split("\t")[1])) for line in samtools(RUN / "sample.bam"))

    def dataset(self, **options):
        query = self.session.reads("sample", columns=["position", "flags", "mapping_quality"], parts=7)
        return godwit.torch.Dataset(query, rows=100, **options)

    @staticmethod
    def rows(batches):
        return [(int(place), int(flags)) for batch in batches for place, flags in zip(batch["position"], batch["flags"], strict=True)]

    def test_loaders_with_and_without_workers_give_each_row_once(self):
        for workers in (0, 2):
            batches = list(self.dataset(shuffle=True).loader(workers=workers))
            self.assertEqual(sorted(self.rows(batches)), self.expected)
            self.assertEqual(
                {name: tensor.dtype for name, tensor in batches[0].items()},
                {"position": torch.int32, "flags": torch.int32, "mapping_quality": torch.uint8},
            )

    def test_epochs_differ_and_repeat(self):
        dataset = self.dataset(shuffle=True, seed=3)
        first, again = self.rows(dataset), self.rows(dataset)
        self.assertEqual(first, again)
        dataset.set_epoch(1)
        self.assertNotEqual(self.rows(dataset), first)
        in_order = self.rows(self.dataset())
        self.assertNotEqual(in_order, first)
        self.assertEqual(sorted(in_order), sorted(first))

    def test_a_model_learns_from_it(self):
        # Whether a read is reversed is a bit of its flags, which a layer can learn.
        torch.manual_seed(1)
        layer = torch.nn.Linear(12, 1)
        optimizer = torch.optim.Adam(layer.parameters(), 0.05)
        bits = 2 ** torch.arange(12)
        dataset = self.dataset(shuffle=True)
        for epoch in range(4):
            dataset.set_epoch(epoch)
            for batch in dataset:
                known = ((batch["flags"][:, None] & bits) != 0).float()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(layer(known)[:, 0], known[:, 4])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        self.assertLess(loss.item(), 0.2)

    def test_texts_are_refused_unless_something_is_made_of_them(self):
        query = self.session.reads("sample", columns=["name"], parts=2)
        with self.assertRaises(godwit.UsageError):
            list(godwit.torch.Dataset(query))
        lengths = godwit.torch.Dataset(query, transform=lambda batch: [len(name) for name in batch["name"].to_pylist()])
        self.assertEqual(sum(map(len, lengths)), len(self.expected))

    def test_pileups_are_shared_among_workers(self):
        candidates = pa.table({"contig": ["chr1"] * 50, "position": range(500, 20_500, 400), "label": np.arange(50) % 2})
        pileups = Pileups(self.session, "sample", candidates, width=31, depth=20, block=8)
        expected = {int(place): pile for block in pileups for place, pile in zip(block["position"], block["pileup"], strict=True)}
        for workers in (0, 2):
            blocks = list(godwit.torch.PileupDataset(pileups, shuffle=True).loader(workers=workers))
            found = {int(place): pile for block in blocks for place, pile in zip(block["position"], block["pileup"], strict=True)}
            self.assertEqual(sorted(found), sorted(expected))
            for place, pile in found.items():
                self.assertEqual(pile.dtype, torch.uint8)
                np.testing.assert_array_equal(pile.numpy(), expected[place])


if __name__ == "__main__":
    unittest.main()
