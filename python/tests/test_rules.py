"""Tests of columns under the access rules of a server, in each kind of data frame. Requires the program, pyarrow, polars, pandas and DuckDB."""

import contextlib
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import pyarrow as pa

import godwit
from godwit._program import program_path

PEOPLE = """subject,age,consent,sex,born,weight
ann,34,GRU,f,1990-05-04,61.5
bea,61,DS,f,1963-01-02,70
cal,47,GRU,m,1977-12-31,
"""
RULES = """key = "pseudonyms.key"

[[rule]]
name = "study"
who = ["bob"]
datasets = ["people.csv"]
where = [{ column = "consent", in = ["GRU"] }]
show = ["sex"]
mask = { subject = "hash", age = { bin = 5 }, born = { date = "year" }, weight = "redact" }
"""


class Masks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        private = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        root = private / "root"
        root.mkdir()
        (root / "people.csv").write_text(PEOPLE)
        (private / "rules.toml").write_text(RULES)
        key = private / "pseudonyms.key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        tokens = private / "tokens"
        made = subprocess.run([program_path(), "token", "bob", "--tokens", tokens], capture_output=True, text=True, check=True)
        command = [program_path(), "serve", "--root", root, "--listen", "127.0.0.1:0", "--tokens", tokens, "--policy", private / "rules.toml"]
        server = cls.enterClassContext(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        cls.addClassCleanup(server.terminate)
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        cls.session = cls.enterClassContext(contextlib.closing(godwit.connect(url, token=made.stdout.strip())))
        cls.people = cls.session.table("people.csv")

    def test_types_are_told_before_rows(self):
        expected = {"subject": pa.string(), "age": pa.int64(), "sex": pa.string(), "born": pa.string(), "weight": pa.float64()}
        self.assertEqual({field.name: field.type for field in self.people.schema}, expected)

    def test_frames_hold_pseudonyms_steps_years_and_nulls(self):
        table = self.people.to_arrow()
        for name in table["subject"].to_pylist():
            self.assertTrue(re.fullmatch("[0-9a-f]{32}", name), name)
        columns = ["age", "sex", "born", "weight"]
        expected = [(30, "f", "1990", None), (45, "m", "1977", None)]
        self.assertEqual([tuple(row.values()) for row in table.select(columns).to_pylist()], expected)
        self.assertEqual(self.people.to_polars().select(columns).rows(), expected)
        self.assertEqual(self.people.to_duckdb().project("age, sex, born, weight").fetchall(), expected)
        frame = self.people.to_pandas()
        self.assertEqual(list(frame[["age", "sex", "born"]].itertuples(index=False, name=None)), [row[:3] for row in expected])
        self.assertTrue(frame["weight"].isna().all())
        self.assertEqual(str(frame["weight"].dtype), "float64")

    def test_what_is_not_shown_is_no_column(self):
        with self.assertRaises(godwit.UsageError) as raised:
            self.session.table("people.csv", columns=["consent"]).to_arrow()
        self.assertIn("consent", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
