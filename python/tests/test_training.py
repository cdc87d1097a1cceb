"""Tests of parts of workers, batches for training, and pileups against samtools. Arguments as for test_session."""

import multiprocessing
import pickle
import re
import unittest

import numpy as np
import pyarrow as pa
from samtools_reference import RUN, samtools

import godwit
from godwit import _training
from godwit._query_parts import QueryParts
from godwit.pileups import CHANNELS, Pileups

BASES = " ACGTN*"


class DirectorySession(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = godwit.open(RUN)
        cls.addClassCleanup(cls.session.close)


class Shares(DirectorySession):
    def rows(self, parts, workers, shuffle, **options):
        """Returns the rows of each worker, in the order in which it receives them, and the sizes of batches."""
        found, sizes = [], []
        for worker in range(workers):
            which = _training.parts_of_worker(len(parts), worker, workers, shuffle)
            batches = list(_training.batches(parts, which, options.get("rows", 64), shuffle, options.get("mixed_blocks", 3), 2))
            sizes.append([batch.num_rows for batch in batches])
            found.append([row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)])
        return found, sizes

    def test_workers_have_each_row_once_between_them(self):
        query = self.session.reads("sample", columns=["position", "flags", "name"], parts=7)
        # Another process receives only the pickled parts.
        parts = pickle.loads(pickle.dumps(QueryParts(query)))
        self.assertEqual(len(parts), 7)
        self.assertEqual(parts.schema.names, ["position", "flags", "name"])
        expected = list(zip(*query.to_arrow().to_pydict().values(), strict=True))
        for workers in (1, 3, 9):
            for shuffle in (None, (1, 0)):
                found, sizes = self.rows(parts, workers, shuffle)
                self.assertEqual(sorted(row for rows in found for row in rows), sorted(expected))
                for of_worker in sizes:
                    self.assertTrue(all(size == 64 for size in of_worker[:-1]) and all(0 < size <= 64 for size in of_worker), of_worker)
        self.assertEqual(self.rows(parts, 1, None)[0][0], expected)

    def test_an_order_is_that_of_seed_and_epoch(self):
        parts = QueryParts(self.session.reads("sample", columns=["name", "flags"], parts=5))
        first = self.rows(parts, 2, (1, 0))
        self.assertEqual(self.rows(parts, 2, (1, 0)), first)
        self.assertNotEqual(self.rows(parts, 2, (1, 1)), first)
        self.assertNotEqual(self.rows(parts, 2, (2, 0)), first)

    def test_numbers_keep_their_type_whether_or_not_a_batch_has_nulls(self):
        lists = pa.list_(pa.field("item", pa.float32(), nullable=False), 2)
        fields = [("count", pa.int32()), ("yes", pa.bool_()), ("share", pa.float32())]
        schema = pa.schema([*fields, pa.field("place", pa.int64(), nullable=False), pa.field("pair", lists)])
        with_nulls = pa.record_batch([[1, None], [None, True], [None, 0.5], [3, 4], [[1, 2], [3, 4]]], schema=schema)
        without = pa.record_batch([[1, 2], [False, True], [1, 0.5], [3, 4], [[1, 2], [3, 4]]], schema=schema)
        kinds = {"count": np.float64, "yes": np.float32, "share": np.float32, "place": np.int64, "pair": np.float32}
        for batch in (with_nulls, without, _training.empty_batch(schema)):
            found = _training.to_arrays(batch)
            self.assertEqual({name: array.dtype for name, array in found.items()}, kinds)
            self.assertEqual(found["pair"].shape, (batch.num_rows, 2))
        np.testing.assert_array_equal(_training.to_arrays(with_nulls)["count"], [1, np.nan])
        with self.assertRaises(godwit.UsageError) as raised:
            _training.to_arrays(pa.record_batch({"name": ["x"]}))
        self.assertIn("column name is string", str(raised.exception))

    def test_a_fork_with_connections_is_refused_in_place_of_hanging(self):
        parts = QueryParts(self.session.reads("sample", columns=["name"], parts=2))
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe()

        def send_row_count():
            try:
                sender.send(sum(batch.num_rows for batch in parts.read_part(0)))
            except godwit.GodwitError as error:
                sender.send(str(error))

        process = context.Process(target=send_row_count)
        process.start()
        self.assertIn("spawn", receiver.recv())
        process.join()


class PileupTests(DirectorySession):
    WIDTH = 41

    def candidates(self):
        """Returns positions of both contigs; windows at the start of a contig extend beyond it."""
        positions = [0, 3, *range(400, 20_000, 1_500)]
        contigs = ["chr1", "chr2"]
        table = {"contig": [contig for contig in contigs for _ in positions], "position": 2 * positions, "label": np.arange(2 * len(positions)) % 3}
        return pa.table(table | {"note": ["x"] * 2 * len(positions)})

    def mpileup(self, contig, position):
        """Returns the bases at a position by samtools, those on the reverse strand in lower case, with their qualities."""
        expected = ["-Q", "0", "-B", "-A", "-x", "-r", f"{contig}:{position + 1}-{position + 1}"]
        lines = [line.split("\t") for line in samtools_mpileup(*expected)]
        text = lines[0][4] if lines else ""
        text = re.sub(r"\^.", "", text).replace("$", "").replace("#", "*")
        found = []
        while text:
            if text[0] in "+-":
                count = re.match(r"[+-](\d+)", text)
                text = text[count.end() + int(count[1]) :]
                continue
            found.append(text[0])
            text = text[1:]
        qualities = [ord(letter) - 33 for letter in lines[0][5]] if lines else []
        return sorted(zip(found, qualities, strict=True))

    def test_every_column_is_that_of_samtools_mpileup(self):
        candidates = self.candidates()
        pileups = pickle.loads(pickle.dumps(Pileups(self.session, "sample", candidates, width=self.WIDTH, depth=200, block=5)))
        blocks = list(pileups)
        self.assertEqual(len(blocks), len(pileups))
        pile = np.concatenate([block["pileup"] for block in blocks])
        self.assertEqual(pile.shape, (candidates.num_rows, len(CHANNELS), 200, self.WIDTH))
        self.assertEqual(np.concatenate([block["label"] for block in blocks]).tolist(), candidates["label"].to_pylist())
        self.assertNotIn("note", blocks[0])
        compared = 0
        for at, (contig, position) in enumerate(zip(candidates["contig"].to_pylist(), candidates["position"].to_pylist(), strict=True)):
            for offset in (-self.WIDTH // 2 + 1, -3, 0, 11):
                if position + offset < 0:
                    self.assertFalse(pile[at, :, :, self.WIDTH // 2 + offset].any())
                    continue
                column = pile[at, :, :, self.WIDTH // 2 + offset].astype(int)
                sender = column[0] != 0
                letters = [
                    BASES[code] if strand == 1 or code == 6 else BASES[code].lower() for code, strand in zip(column[0], column[3], strict=True)
                ]
                found = sorted((letter, int(quality)) for letter, quality in zip(letters, column[1], strict=True) if letter != " ")
                expected = self.mpileup(contig, position + offset)
                # For a deleted base, samtools prints the quality of a neighbour.
                plain = [one for one in found if one[0] != "*"]
                self.assertEqual(plain, [one for one in expected if one[0] != "*"], (contig, position + offset))
                self.assertEqual(len(found), len(expected))
                self.assertFalse((column[:, ~sender] != 0).any())
                compared += len(found)
        self.assertGreater(compared, 100)

    def test_where_reads_are_more_than_rows_they_are_taken_evenly(self):
        candidates = pa.table({"contig": ["chr1"], "position": [3_000]})
        whole = next(iter(Pileups(self.session, "sample", candidates, width=401, depth=500)))["pileup"][0]
        rows = int((whole[0] != 0).any(axis=1).sum())
        self.assertGreater(rows, 4)
        few = next(iter(Pileups(self.session, "sample", candidates, width=401, depth=3)))["pileup"][0]
        np.testing.assert_array_equal(few, whole[:, [0, round((rows - 1) / 2), rows - 1]])

    def test_what_is_wrong_is_said(self):
        for expected, wrong in [
            ("width is an odd number", lambda: Pileups(self.session, "sample", self.candidates(), width=100)),
            ("no column position", lambda: Pileups(self.session, "sample", pa.table({"contig": ["chr1"]}))),
            ("no dataset of reads 'nope'", lambda: Pileups(self.session, "nope", self.candidates())),
            ("chrX", lambda: list(Pileups(self.session, "sample", pa.table({"contig": ["chrX"], "position": [1]})))),
        ]:
            with self.subTest(expected), self.assertRaises(godwit.UsageError) as raised:
                wrong()
            self.assertIn(expected, str(raised.exception))


def samtools_mpileup(*expected):
    return samtools(*expected, RUN / "sample.bam", verb="mpileup")


if __name__ == "__main__":
    unittest.main()
