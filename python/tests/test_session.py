"""Tests of sessions against samtools and pyarrow. GODWIT_TEST_RUN is the directory of a run with `sample.bam`, `sample.parquet` and others."""

import contextlib
import datetime
import gc
import gzip
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet
from samtools_reference import RUN, samtools

import godwit

REGIONS = ["chr1:1,000-20,000", "chr2:100-5,000"]


class DirectorySession(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.session = godwit.open(RUN)
        cls.addClassCleanup(cls.session.close)

    def test_datasets_are_listed(self):
        by_name = {dataset.name: dataset for dataset in self.session.datasets()}
        bam = by_name["sample.bam"]
        self.assertEqual((bam.kind, bam.rows, bam.stem), ("reads", len(samtools(RUN / "sample.bam")), "sample"))
        self.assertIn("position", bam.schema.names)
        self.assertEqual(bam.bytes, (RUN / "sample.bam").stat().st_size)

    def test_regions_are_those_of_samtools(self):
        for region in [REGIONS[0], REGIONS, ["chr1"], "*", ["chr2:1-500", "*"]]:
            listed = [region] if isinstance(region, str) else region
            expected = [line.split("\t")[0] for line in samtools("-M", RUN / "sample.bam", *listed)]
            for parts in [1, 3]:
                names = self.session.reads("sample", region=region, columns=["name"], parts=parts).to_arrow()
                self.assertEqual(names["name"].to_pylist(), expected)

    def test_bam_files_have_the_records_of_samtools(self):
        with tempfile.TemporaryDirectory() as directory:
            target = Path(directory) / "it's.bam"
            for query, options in [
                (self.session.reads("sample.bam"), []),
                (self.session.reads("sample.bam", region=REGIONS[0]), [REGIONS[0]]),
                (self.session.reads("sample.bam", region=REGIONS, where="mapping_quality >= 30"), ["-q", "30", "-M", *REGIONS]),
            ]:
                self.assertEqual(query.write_bam(target), target)
                flags, regions = [word for word in options if ":" not in word], [word for word in options if ":" in word]
                expected = samtools(*flags, RUN / "sample.bam", *regions)
                # Records at the same position may be in any order.
                self.assertEqual(sorted(samtools(target)), sorted(expected))
                self.assertTrue(target.with_name(target.name + ".bai").exists())
            with self.assertRaisesRegex(godwit.UsageError, "column cigar is missing"):
                self.session.sql("SELECT * EXCEPT (cigar) FROM reads('sample.bam')").write_bam(Path(directory) / "x.bam")
            with self.assertRaisesRegex(godwit.UsageError, "must end with .bam"):
                self.session.reads("sample.bam").write_bam(Path(directory) / "x.sam")

    def test_regions_of_contigs_named_like_ranges_are_found(self):
        header = "@SQ\tSN:chr1\tLN:1000\n@SQ\tSN:chr1:100-200\tLN:1000\n@SQ\tSN:HLA-A*01:01:01:01\tLN:1000\n"
        places = [("a", "chr1", 150), ("b", "chr1:100-200", 5), ("c", "HLA-A*01:01:01:01", 7), ("d", "HLA-A*01:01:01:01", 500)]
        lines = [f"{name}\t0\t{contig}\t{position}\t60\t4M\t*\t0\t0\tACGT\tIIII\n" for name, contig, position in places]
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "odd.sam").write_text(header + "".join(lines))
            with contextlib.closing(godwit.open(directory)) as session:
                for region, expected in [
                    ("HLA-A*01:01:01:01", ["c", "d"]),
                    ("{HLA-A*01:01:01:01}:1-100", ["c"]),
                    ("HLA-A*01:01:01:01:1-1,00", ["c"]),
                    (["{chr1:100-200}", "{chr1}:100-200"], ["a", "b"]),
                ]:
                    self.assertEqual(session.reads("odd.sam", region=region).to_arrow()["name"].to_pylist(), expected)
                    rows = session.reads("odd.sam", region=region, where="mapping_quality > 0").to_arrow()
                    self.assertEqual(sorted(rows["name"].to_pylist()), expected)
                with self.assertRaisesRegex(godwit.UsageError, "ambiguous"):
                    session.reads("odd.sam", region="chr1:100-200").to_arrow()

    def test_conditions_are_those_of_samtools(self):
        expected = [line.split("\t")[0] for line in samtools("-q", "30", "-f", "16", RUN / "sample.bam", REGIONS[0])]
        query = self.session.reads("sample", region=REGIONS[0], columns=["name"], where="mapping_quality >= 30 AND is_reverse()")
        self.assertEqual(sorted(query.to_arrow()["name"].to_pylist()), sorted(expected))
        self.assertGreater(len(expected), 10)

    def test_all_rows_are_those_of_the_parquet_file(self):
        table = self.session.table("sample.parquet").to_arrow()
        expected = pyarrow.parquet.read_table(RUN / "sample.parquet")
        self.assertEqual(table.num_rows, expected.num_rows)
        for name in ["name", "position", "flags", "bases"]:
            self.assertEqual(table[name].to_pylist(), expected[name].to_pylist(), name)

    def test_all_libraries_take_it(self):
        query = self.session.reads("sample", region=REGIONS[0], columns=["name", "position"])
        table = query.to_arrow()
        self.assertEqual(table.schema.names, ["name", "position"])
        self.assertEqual(query.schema, table.schema)
        self.assertTrue(query.to_polars().equals(polars.DataFrame(query)))
        self.assertEqual(query.to_polars().rows(), list(zip(*table.to_pydict().values(), strict=True)))
        self.assertEqual(query.to_pandas()["position"].tolist(), table["position"].to_pylist())
        self.assertEqual(query.to_duckdb().aggregate("count(*)").fetchall(), [(table.num_rows,)])
        last = duckdb.connect().from_arrow(query.to_reader()).aggregate("max(position)").fetchall()
        self.assertEqual(last, [(max(table["position"].to_pylist()),)])
        self.assertEqual(pa.table(query).num_rows, sum(batch.num_rows for batch in query))

    def test_columns_come_in_the_order_that_was_asked_for(self):
        table = self.session.reads("sample", columns=["position", "name"]).to_arrow()
        self.assertEqual(table.schema.names, ["position", "name"])
        self.assertEqual(table.select(["name", "position"]), self.session.reads("sample", columns=["name", "position"]).to_arrow())
        self.assertEqual(self.session.reads("sample", columns="name").to_arrow(), table.select(["name"]))

    def test_statements(self):
        table = self.session.sql("SELECT count(*) AS n FROM reads('sample.bam') WHERE region('chr2')").to_arrow()
        self.assertEqual(table["n"].to_pylist(), [len(samtools(RUN / "sample.bam", "chr2"))])

    def test_statements_have_parameters(self):
        def values(statement, parameters):
            return list(self.session.sql(statement, parameters).to_arrow().to_pylist()[0].values())

        written = "SELECT count(*) FROM reads('sample.bam') WHERE contig = 'chr2' AND position >= 100 AND mapping_quality >= 30"
        expected = values(written, None)
        self.assertGreater(expected[0], 0)
        numbered = "SELECT count(*) FROM reads('sample.bam') WHERE contig = $1 AND position >= $2 AND mapping_quality >= $3"
        named = "SELECT count(*) FROM reads('sample.bam') WHERE contig = $contig AND position >= $first AND mapping_quality >= $least"
        self.assertEqual(values(numbered, ["chr2", 100, 30]), expected)
        self.assertEqual(values(numbered, ("chr2", 100.0, 30)), expected)
        self.assertEqual(values(named, {"least": 30, "contig": "chr2", "$first": 100}), expected)
        overlapping = len(samtools(RUN / "sample.bam", "chr2:1-500"))
        self.assertEqual(values("SELECT count(*) FROM reads('sample.bam') WHERE region($1)", ["chr2:1-500"]), [overlapping])
        self.assertEqual(self.session.sql("SELECT name FROM reads('sample.bam') LIMIT $1", [7]).to_arrow().num_rows, 7)
        day = datetime.date(2026, 11, 29)
        typed = [1.5, None, True, day, b"\xff"]
        self.assertEqual(values("SELECT $1 AS a, $2 AS b, $3 AS c, $4 AS d, $5 AS e", typed), typed)
        self.assertEqual(values("SELECT $1 + 1 AS a, '$2' AS b", [0.5]), [1.5, "$2"])
        query = self.session.sql("SELECT name FROM reads('sample.bam') WHERE contig = $1 ORDER BY name", ["chr2"])
        self.assertEqual(query.to_arrow(), query.to_arrow())

    def test_hostile_texts_of_parameters_are_values(self):
        for text in ["' OR true --", "x'; SELECT 1", '") UNION SELECT 1 --', "$1", "$text", "\\'", "\x00", "é\u2028\U0001f9ec", "%_*", ""]:
            for parameters, name in [([text], "$1"), ({"text": text}, "$text")]:
                found = self.session.sql(f"SELECT {name} AS text, length({name}) AS n", parameters).to_arrow().to_pylist()
                self.assertEqual(found, [{"text": text, "n": len(text)}])
                matching = self.session.sql(f"SELECT name FROM reads('sample.bam') WHERE name = {name}", parameters).to_arrow()
                self.assertEqual(matching.num_rows, 0)
        for text in ["chr2') OR region('chr1", "'", "chr2' --"]:
            with self.assertRaisesRegex(godwit.UsageError, "contig"):
                self.session.sql("SELECT name FROM reads('sample.bam') WHERE region($1)", [text]).to_arrow()

    def test_parameters_that_do_not_fit_are_rejected(self):
        for statement, parameters, expected in [
            ("SELECT $1 AS a, $2 AS b", [1], "parameter $2 of the statement has no value"),
            ("SELECT $1 AS a", [1, 2], "no parameter $2"),
            ("SELECT $a AS a", {"b": 1}, "parameter $a of the statement has no value"),
            ("SELECT $a AS a", {"a": 1, "b": 1}, "no parameter $b"),
            ("SELECT 1 AS a", [1], "no parameter $1"),
            ("SELECT $1 AS a", None, "parameter $1 of the statement has no value"),
            ("SELECT $1 AS a", [object()], "cannot represent"),
            ("SELECT $1 AS a", "text", "list of values"),
            ("SELECT nope FROM reads('sample.bam') WHERE name = $1", ["x"], "nope"),
        ]:
            with self.assertRaises(godwit.UsageError) as raised:
                self.session.sql(statement, parameters).to_arrow()
            self.assertIn(expected, str(raised.exception))
        with self.assertRaisesRegex(godwit.UsageError, "parameter \\$2"):
            self.session.sql("SELECT * FROM reads('sample.bam') WHERE name = $1", ["x", 5]).write_bam("never.bam")

    def test_files_of_records_are_written_from_statements_with_parameters(self):
        statement = "SELECT * FROM reads('sample.bam') WHERE contig = $contig AND mapping_quality >= $least AND name <> coalesce($hidden, '')"
        parameters = {"least": 30, "contig": "chr2", "hidden": None}
        variants = "##fileformat=VCFv4.2\n##contig=<ID=1>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
        variants += "".join(f"1\t{position}\t.\tA\tC\t.\t.\t.\n" for position in [10, 20, 30])
        with tempfile.TemporaryDirectory() as directory:
            target = Path(directory) / "chr2.bam"
            self.session.sql(f"{statement} ORDER BY position", parameters).write_bam(target)
            self.assertEqual(sorted(samtools(target)), sorted(samtools("-q", "30", RUN / "sample.bam", "chr2")))
            (Path(directory) / "v.vcf").write_text(variants)
            with godwit.open(directory) as session:
                query = session.sql("SELECT * FROM variants('v.vcf') WHERE position + 1 BETWEEN $1 AND $2 ORDER BY position LIMIT $3", [15, 30, 1])
                written = gzip.decompress(query.write_vcf(Path(directory) / "w.vcf.gz").read_bytes()).decode()
            self.assertEqual([line.split("\t")[1] for line in written.splitlines() if not line.startswith("#")], ["20"])

    def test_genotypes_are_rows_and_matrices(self):
        header = "##fileformat=VCFv4.2\n##contig=<ID=1>\n##FORMAT=<ID=GT,Number=1,Type=String,Description=x>\n"
        header += "##FORMAT=<ID=DP,Number=1,Type=Integer,Description=x>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ta\tb\tc\n"
        genotypes = [("GT:DP", "0/1:3", "1|1:4", "."), ("GT", "1", ".|2", "0/0/1"), ("DP", "1", "2", "3"), ("GT", "200/0", "./.", "0")]
        lines = ["\t".join(["1", str(at), ".", "A", "C", ".", ".", ".", *fields]) + "\n" for at, fields in enumerate(genotypes, 1)]
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "cohort.vcf").write_text(header + "".join(lines))
            with contextlib.closing(godwit.open(directory)) as session:
                found = session.genotypes("cohort")
                matrix = found.to_numpy()
                self.assertEqual(found.samples, ["a", "b", "c"])
                self.assertEqual((matrix.shape, str(matrix.dtype)), ((4, 3, 3), "int16"))
                none = [-1, -2, -2]
                self.assertEqual(matrix[0].tolist(), [[0, 1, -2], [1, 1, -2], none])
                self.assertEqual(matrix[1].tolist(), [[1, -2, -2], [-1, 2, -2], [0, 0, 1]])
                self.assertEqual(matrix[2].tolist(), [none, none, none])
                some = session.genotypes("cohort.vcf", region="1:1-2", samples=["c", "a"])
                self.assertEqual(some.samples, ["a", "c"])
                self.assertEqual(session.genotypes("cohort", samples="b", columns="sample").to_arrow()["sample"].to_pylist(), ["b"] * 4)
                self.assertEqual((some.to_numpy().shape, str(some.to_numpy().dtype)), ((2, 2, 3), "int8"))
                self.assertEqual(some.to_numpy().tolist(), matrix[:2, [0, 2]].tolist())
                rows = session.genotypes("cohort", samples=["b"], columns=["sample", "dosage", "DP"], where="position < 3").to_arrow()
                rows = sorted(zip(*rows.to_pydict().values(), strict=True), key=str)
                self.assertEqual(rows, [("b", 2, 4), ("b", None, 2), ("b", None, None)])
                self.assertEqual(some.to_arrow().num_rows, 4)
                for wrong in [session.genotypes("cohort", samples=["d"]), session.genotypes("cohort", columns=["DP"])]:
                    with self.assertRaises(godwit.UsageError):
                        wrong.to_numpy()

    def test_a_stream_may_be_left(self):
        stream = iter(self.session.reads("sample", parts=4))
        next(stream)
        stream.close()
        self.assertEqual(self.session.sql("SELECT 1 AS one").to_arrow()["one"].to_pylist(), [1])

    def test_what_is_wrong_is_said(self):
        for error, expected, wrong in [
            (godwit.UsageError, "no dataset of reads 'nope'", lambda: self.session.reads("nope")),
            (godwit.UsageError, "nope", lambda: self.session.reads("sample", columns=["nope"]).to_arrow()),
            (godwit.UsageError, "chrX", lambda: self.session.reads("sample", region="chrX:1-2").to_arrow()),
            (godwit.UsageError, "nope", lambda: self.session.sql("SELECT nope").to_arrow()),
            (godwit.UsageError, "create, replace or append", lambda: self.session.put("x", pa.table({"a": [1]}), mode="upsert")),
            (godwit.UsageError, "writable=True", lambda: self.session.put("x", pa.table({"a": [1]}))),
            (godwit.UsageError, "writable=True", lambda: self.session.drop("x")),
            (godwit.RemoteError, "token", lambda: godwit.connect(self.session._connection.url)),
            (godwit.UsageError, "one line", lambda: godwit.connect(self.session._connection.url, token="a\nb")),
            (godwit.UsageError, "exclude", lambda: godwit.connect(self.session._connection.url, token="a", token_file="b")),
            (godwit.MachineError, "/nope", lambda: godwit.connect(self.session._connection.url, token_file="/nope")),
            (godwit.UsageError, "grpc+tcp://HOST:PORT", lambda: godwit.connect("127.0.0.1:8815")),
            (godwit.UsageError, "grpc+tls://HOST:PORT", lambda: godwit.connect("http://127.0.0.1:8815")),
            (godwit.UsageError, f"open its directory, {RUN}", lambda: godwit.open(RUN / "sample.bam")),
            (godwit.RemoteError, "127.0.0.1:1", lambda: godwit.connect("grpc+tcp://127.0.0.1:1")),
            (godwit.MachineError, "/nope", lambda: godwit.open("/nope")),
            (godwit.MachineError, "nope.fa", lambda: godwit.align("nope.fa", ["a.fq"], "S", RUN / "none", progress=lambda _: None)),
        ]:
            with self.assertRaises(error) as raised:
                wrong()
            self.assertIn(expected, str(raised.exception))
            self.assertEqual(raised.exception.exit_code, error.exit_code)

    def test_unknown_options_are_named_with_the_method(self):
        for method in [self.session.reads, self.session.variants, self.session.table]:
            with self.assertRaisesRegex(TypeError, rf"Session\.{method.__name__}\(\) .*'regions'"):
                method("sample", regions="chr1")

    def test_tokens_are_read_from_files(self):
        url, token = self.session._connection.url, self.session._server.token
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "token.txt"
            file.write_text(f"{token}\n")
            for options in [{"token_file": file}, {"token": file.read_text()}]:
                with godwit.connect(url, **options) as session:
                    self.assertEqual(session.reads("sample").schema, self.session.reads("sample").schema)

    def test_connections_need_no_program(self):
        with (
            mock.patch.dict(os.environ, {"GODWIT_PROGRAM": "/nope"}),
            godwit.connect(self.session._connection.url, token=self.session._server.token) as session,
        ):
            query = session.reads("sample", region=REGIONS[0])
            self.assertGreater(query.to_arrow().num_rows, 0)
            with self.assertRaisesRegex(godwit.MachineError, "/nope, which GODWIT_PROGRAM names"):
                query.write_bam("never.bam")

    def test_the_version_is_that_of_the_program(self):
        said = subprocess.run([os.environ["GODWIT_PROGRAM"], "--version"], capture_output=True, text=True, check=True).stdout
        self.assertIn(f" {godwit.__version__}", said)


class InvalidData(unittest.TestCase):
    def test_files_that_cannot_be_read_have_their_error(self):
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "broken.bam").write_bytes(b"this is not a BAM file")
            (Path(directory) / "cut.bam").write_bytes((RUN / "sample.bam").read_bytes()[:30_000])
            with godwit.open(directory) as session:
                broken, cut = session.datasets()
                self.assertEqual((broken.name, broken.kind, cut.kind, cut.error), ("broken.bam", None, "reads", None))
                self.assertIn("broken.bam is not BGZF", broken.error)
                for expected, wrong in [
                    ("broken.bam is not BGZF", lambda: session.reads("broken")),
                    ("broken.bam is not BGZF", lambda: session.table("broken.bam")),
                    ("cut.bam is truncated", lambda: session.reads("cut").to_arrow()),
                    ("cut.bam is truncated", lambda: session.reads("cut", parts=1, where="mapping_quality > 0").to_arrow()),
                ]:
                    with self.assertRaisesRegex(godwit.InputError, expected) as raised:
                        wrong()
                    self.assertNotIn("returned", str(raised.exception))

    def test_closed_sessions_are_named(self):
        session = godwit.open(RUN)
        session.close()
        with self.assertRaisesRegex(godwit.UsageError, "the session is closed"):
            session.datasets()


class WriteTests(unittest.TestCase):
    def test_tables_are_put_appended_to_and_dropped(self):
        with tempfile.TemporaryDirectory() as root, godwit.open(root, writable=True) as session:
            table = pa.table({"contig": ["chr1", "chr2"], "start": [1, 2]})
            self.assertEqual(session.put("panel", table), "panel.parquet")
            session.put("panel", polars.DataFrame({"contig": ["chr3"], "start": [3]}).to_arrow().cast(table.schema), mode="append")
            self.assertEqual(session.table("panel").to_arrow()["start"].to_pylist(), [1, 2, 3])
            with self.assertRaisesRegex(godwit.UsageError, "^dataset panel.parquet already exists"):
                session.put("panel", table)
            session.put("panel", table.to_batches(), mode="replace")
            self.assertEqual(session.put("beside", session.table("panel"), temporary=True), "temporary/beside.parquet")
            self.assertEqual(sorted(dataset.name for dataset in session.datasets()), ["panel.parquet", "temporary/beside.parquet"])
            session.drop("panel")
            self.assertEqual([dataset.name for dataset in session.datasets()], ["temporary/beside.parquet"])
            with self.assertRaisesRegex(godwit.UsageError, '"panel.parquet" does not exist'):
                session.drop("panel")
            session.drop("beside")
            self.assertEqual(session.datasets(), [])

    def test_intervals_of_every_library_are_joined(self):
        # Their texts have different Arrow types.
        columns = {"contig": ["chr1", "chr1", "chr2"], "position": [10, 50, 10], "end_position": [20, 60, 20]}
        frames = {
            "of_arrow": pa.table(columns),
            "of_pandas": pandas.DataFrame(columns),
            "of_polars": polars.DataFrame(columns),
            "of_views": pa.table({**columns, "contig": pa.array(columns["contig"], pa.string_view())}),
            "of_large": pa.table({**columns, "contig": pa.array(columns["contig"], pa.large_string())}),
            "of_categories": polars.DataFrame(columns).with_columns(polars.col("contig").cast(polars.Categorical)),
        }
        with tempfile.TemporaryDirectory() as root, godwit.open(root, writable=True) as session:
            for name, frame in frames.items():
                session.put(name, frame)
            session.put("of_categories", frames["of_categories"], "append")
            self.assertEqual(session.table("of_categories").to_arrow()["contig"].to_pylist(), columns["contig"] * 2)
            session.put("of_categories", frames["of_categories"], "replace")
            for name in frames:
                for one, other in [("of_arrow", name), (name, "of_arrow"), (name, name)]:
                    for function, expected in [("overlaps", 3), ("nearest", 3)]:
                        rows = session.sql(f"SELECT * FROM {function}('{one}', '{other}') WHERE contig = contig_2").to_arrow()
                        self.assertEqual(rows.num_rows, expected, (function, one, other))


class SessionEnd(unittest.TestCase):
    def test_no_server_is_left_behind(self):
        for forget in [lambda session: session.close(), lambda _: None]:
            session = godwit.open(RUN)
            process = session._server._child
            forget(session)
            del session, forget
            gc.collect()
            for _ in range(600):
                if process.poll() is not None:
                    break
                time.sleep(0.1)
            self.assertIsNotNone(process.poll())


class Verbs(unittest.TestCase):
    def test_events_are_told_and_failures_have_the_words_of_the_program(self):
        events = []
        with tempfile.TemporaryDirectory() as out:
            reads = Path(out) / "bad.fq"
            reads.write_text("no FASTQ\n")
            with self.assertRaises(godwit.InputError) as raised:
                godwit.align(os.environ["GODWIT_TEST_REFERENCE"], [reads], "S", Path(out) / "run", progress=events.append)
        self.assertIn("bad.fq", str(raised.exception))
        self.assertEqual(events[-1]["event"], "error")
        self.assertEqual(raised.exception.exit_code, 3)


if __name__ == "__main__":
    unittest.main()
