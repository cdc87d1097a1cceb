"""Tests of scoring by user functions, which apply to models of every library. Requires only pyarrow and polars."""

import json
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
from pyarrow import flight

import godwit
from godwit import scoring

ROWS = 50_000
TABLE = pa.table(
    {
        "name": [f"row {at}" for at in range(ROWS)],
        "b": pa.array([at % 7 for at in range(ROWS)], pa.int8()),
        "a": pa.array([None if at % 10 == 0 else at / 3 for at in range(ROWS)], pa.float64()),
        "c": pa.array([at % 2 == 0 for at in range(ROWS)]),
    }
)


def weighted(matrix):
    return matrix[:, 0] + 10 * matrix[:, 1] + 100 * matrix[:, 2]


EXPECTED = [float("nan") if a is None else a + 10 * b + 100 * c for a, b, c in zip(*(TABLE[name].to_pylist() for name in "abc"), strict=True)]
WEIGHTED = scoring.Function(weighted, ["a", "b", "c"])


def assert_same(found, expected):
    """Values are equal, where NaN equals NaN."""
    np.testing.assert_array_equal(np.asarray(found, float), np.asarray(expected, float))


class ServedModels(unittest.TestCase):
    def setUp(self):
        models = {"weighted": {"1": WEIGHTED, "9": WEIGHTED, "10": scoring.Function(lambda m: -m.sum(axis=1), ["a", "b"])}, "pair": pair()}
        self.service = scoring.serve(models, "127.0.0.1:0")
        self.addCleanup(self.service.stop)

    def scorer(self, model="weighted", **options):
        scorer = scoring.connect(self.service.url, model, **options)
        self.addCleanup(scorer.close)
        return scorer


class FloatModel(scoring.Function):
    """A model that computes with float32, and records the types that it received."""

    uses_float64 = False

    def __init__(self):
        super().__init__(weighted, ["a", "b", "c"])
        self.received_types = set()

    def matrix(self, batch, columns):
        self.received_types |= {tuple(map(str, batch.schema.types))}
        return super().matrix(batch, columns)


def pair():
    return scoring.Function(lambda m: np.column_stack([m[:, 0], 2 * m[:, 0]]), ["a"], ["once", "twice"])


class Scores(ServedModels):
    def test_each_row_gets_its_score_whatever_the_order_of_columns_and_the_size_of_batches(self):
        scorer = self.scorer(version="9")
        for rows in [1, 999, 16_384, 1_000_000]:
            table = TABLE.slice(0, 2_000) if rows == 1 else TABLE
            found = scorer.score(table, keep=["name"], batch_rows=rows)
            self.assertEqual(found.schema.names, ["name", "score"])
            self.assertEqual(found["name"], table["name"])
            assert_same(found["score"].to_pylist(), EXPECTED[: table.num_rows])

    def test_doubles_travel_as_floats_to_a_model_of_floats(self):
        model, edges = FloatModel(), [0.1, 1 + 2**-24, 1 + 3 * 2**-24, 1e-46, 1e39, -1e300, float("nan"), None]
        table = pa.concat_tables([TABLE.select(["a", "b", "c"]), pa.table({"a": edges, "b": pa.array([0] * 8, pa.int8()), "c": [False] * 8})])
        with np.errstate(over="ignore"):
            wanted = weighted(np.column_stack([column.to_numpy().astype(np.float32) for column in table.columns]))
        with scoring.serve(model, "127.0.0.1:0") as service, scoring.connect(service.url) as scorer:
            found = scorer.score(table)["score"]
        self.assertEqual(model.received_types, {("float", "int8", "bool")})
        self.assertEqual(found.type, pa.float32())
        np.testing.assert_array_equal(found.to_numpy(), wanted)

    def test_anything_with_the_stream_interface_is_taken_and_streamed(self):
        scorer = self.scorer(version="9")
        frame = polars.DataFrame(TABLE)
        assert_same(scorer.score(frame)["score"].to_pylist(), EXPECTED)
        seen = 0
        for batch in scorer.score_stream(TABLE.to_reader(max_chunksize=1_000)):
            assert_same(batch["score"].to_pylist(), EXPECTED[seen : seen + batch.num_rows])
            seen += batch.num_rows
        self.assertEqual(seen, ROWS)
        self.assertEqual(scorer.score(TABLE.slice(0, 0)).num_rows, 0)

    def test_a_stream_that_is_left_leaves_nothing_behind(self):
        scorer = self.scorer(version="9")
        stream = scorer.score_stream(TABLE, batch_rows=100)
        stream.read_next_batch()
        del stream
        assert_same(scorer.score(TABLE)["score"].to_pylist(), EXPECTED)

    def test_the_last_version_is_the_largest_number(self):
        self.assertEqual(self.scorer().described()["version"], "10")
        self.assertEqual(self.scorer().score(TABLE.slice(1, 1))["score"].to_pylist(), [-(1 / 3 + 1)])
        self.assertEqual(self.scorer(version="1").described()["version"], "1")

    def test_several_scores_are_several_columns(self):
        found = self.scorer("pair").score(TABLE.slice(3, 2))
        self.assertEqual(found.to_pydict(), {"once": [1.0, 4 / 3], "twice": [2.0, 8 / 3]})
        with self.scorer("pair").stream() as stream:
            self.assertEqual(stream.score([{"a": 1}, {"a": 2}]).tolist(), [[1, 2], [2, 4]])


class OneRow(ServedModels):
    def test_rows_are_scored_one_by_one_over_one_exchange(self):
        with self.scorer(version="9").stream() as stream:
            for row in TABLE.slice(0, 30).to_pylist():
                found = stream.score(row)
                expected = float("nan") if row["a"] is None else weighted(np.array([[row["a"], row["b"], row["c"]]], float))[0]
                assert_same(found.tolist(), [expected])

    def test_concurrent_clients_are_scored_together_and_get_their_own_scores(self):
        # The model blocks until all other clients are queued, so that batching does not depend on timing.
        clients, first, released = 9, threading.Event(), threading.Event()
        calls = []

        def slow(matrix):
            calls.append(len(matrix))
            if not first.is_set():
                first.set()
                released.wait(60)
            return matrix.sum(axis=1)

        found = {}
        with scoring.serve(scoring.Function(slow, ["a"]), "127.0.0.1:0") as service:

            def score_one(client):
                with scoring.connect(service.url) as scorer, scorer.stream() as stream:
                    found[client] = stream.score({"a": client}).tolist()

            threads = [threading.Thread(target=score_one, args=(client,)) for client in range(clients)]
            threads[0].start()
            self.assertTrue(first.wait(60))
            for thread in threads[1:]:
                thread.start()
            micro = service._registry.find_version("model").micro_batcher
            while len(micro._pending) < clients - 1:
                self.assertTrue(any(thread.is_alive() for thread in threads))
                time.sleep(0.01)
            released.set()
            for thread in threads:
                thread.join()
            with scoring.connect(service.url) as scorer:
                metrics = scorer.metrics()
        self.assertEqual(found, {client: [client] for client in range(clients)})
        self.assertEqual(calls, [1, clients - 1])
        self.assertIn(f'godwit_scoring_combined_batches_total{{model="model",version="1"}} {clients - 1}', metrics)
        self.assertIn(f'godwit_scoring_rows_total{{model="model",version="1"}} {clients}', metrics)
        self.assertIn('godwit_scoring_exchanges_open{model="model",version="1"} 0', metrics)

    def test_one_that_fails_does_not_take_others_along(self):
        def picky(matrix):
            if (matrix < 0).any():
                raise ValueError("below zero")
            return matrix[:, 0]

        requests = [scoring._micro_batching._Request(np.array([[value]])) for value in (1.0, -1.0, 2.0)]
        micro = scoring._micro_batching.MicroBatcher(picky, scoring._metrics.ModelMetrics())
        micro._pending.extend(requests)
        self.assertEqual(micro.score(np.array([[3.0]])).tolist(), [3.0])
        self.assertEqual([None if one.scores is None else one.scores.tolist() for one in requests], [[1.0], None, [2.0]])
        self.assertIsInstance(requests[1].error, ValueError)


class StockClients(ServedModels):
    def test_models_are_listed_described_and_used_by_flight_alone(self):
        client = flight.connect(self.service.url)
        self.addCleanup(client.close)
        listed = {tuple(part.decode() for part in info.descriptor.path): info.schema for info in client.list_flights()}
        self.assertEqual(list(listed), [("pair", "1"), ("weighted", "1"), ("weighted", "9"), ("weighted", "10")])
        schema = client.get_schema(flight.FlightDescriptor.for_path("weighted", "9")).schema
        self.assertEqual(schema, pa.schema([("a", pa.float64()), ("b", pa.float64()), ("c", pa.float64())]))
        self.assertEqual(json.loads(schema.metadata[b"godwit.model"])["scores"], [{"name": "score", "type": "double"}])
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("weighted", "9"))
        with writer:
            writer.begin(TABLE.schema)
            writer.write_with_metadata(TABLE.slice(1, 2).to_batches()[0], b"mine")
            answer = reader.read_chunk()
            writer.done_writing()
        self.assertEqual(answer.app_metadata.to_pybytes(), b"mine")
        assert_same(answer.data["score"].to_pylist(), EXPECTED[1:3])


class Errors(ServedModels):
    def test_what_is_wrong_is_said(self):
        scorer = self.scorer(version="9")
        texts = TABLE.set_column(1, "b", [["x"] * ROWS])

        def broken():
            yield TABLE.to_batches()[0]
            raise ZeroDivisionError("mine")

        for error, expected, wrong in [
            (godwit.UsageError, "there is no c", lambda: scorer.score(TABLE.drop_columns(["c"]))),
            (godwit.UsageError, "no column nope", lambda: scorer.score(TABLE, keep=["nope"])),
            (godwit.UsageError, "column b is string", lambda: scorer.score(texts)),
            (godwit.UsageError, "column b is string", lambda: scorer.stream().score(texts.to_batches()[0])),
            (godwit.UsageError, "lacks c", lambda: scorer.stream().score({"a": 1, "b": 2})),
            (godwit.UsageError, "no model 'nope'; there are pair, weighted", lambda: scoring.connect(self.service.url, "nope")),
            (godwit.UsageError, "no version '2'; there are 1, 9, 10", lambda: scoring.connect(self.service.url, "weighted", version="2")),
            (godwit.UsageError, "which model? There are pair, weighted", lambda: scoring.connect(self.service.url)),
            (godwit.RemoteError, "127.0.0.1:1", lambda: scoring.connect("grpc+tcp://127.0.0.1:1")),
            (ZeroDivisionError, "mine", lambda: scorer.score(pa.RecordBatchReader.from_batches(TABLE.schema, broken()))),
            (godwit.UsageError, "is not a name for a model", lambda: scoring.serve({"a b": WEIGHTED}, "127.0.0.1:0")),
            (godwit.UsageError, "int is not a model of", lambda: scoring.serve(7, "127.0.0.1:0")),
            (godwit.UsageError, "is not an address", lambda: scoring.serve(WEIGHTED, "8816")),
            (godwit.UsageError, "reached by other machines", lambda: scoring.serve(WEIGHTED, "0.0.0.0:0", token="t")),
            (godwit.MachineError, "cannot listen", lambda: scoring.serve(WEIGHTED, self.service.url.rpartition("/")[2])),
            (godwit.MachineError, "no model /nope.ubj", lambda: scoring.serve("/nope.ubj", "127.0.0.1:0")),
        ]:
            with self.subTest(expected), self.assertRaises(error) as raised:
                wrong()
            self.assertIn(expected, str(raised.exception))
            self.assertNotIn("Traceback", str(raised.exception))
        # The service still works.
        assert_same(scorer.score(TABLE)["score"].to_pylist(), EXPECTED)

    def test_a_model_that_gives_other_scores_than_rows_is_at_fault(self):
        with (
            scoring.serve(scoring.Function(lambda m: m[1:, 0], ["a"]), "127.0.0.1:0") as service,
            scoring.connect(service.url) as scorer,
            self.assertRaises(godwit.InputError) as raised,
        ):
            scorer.score(TABLE)
        self.assertIn("expected", str(raised.exception))

    def test_a_service_that_fails_while_it_is_sent_to_ends_the_call_and_not_the_program(self):
        # gRPC aborts a process that writes to a call while a read of it fails: each round could trigger that.
        many = pa.table({"a": np.arange(50_000.0)})
        with (
            scoring.serve(scoring.Function(lambda m: m[1:, 0], ["a"]), "127.0.0.1:0") as service,
            scoring.connect(service.url) as scorer,
        ):
            for _ in range(200):
                with self.assertRaises(godwit.InputError):
                    scorer.score(many, batch_rows=1_000)

    def test_only_clients_with_the_token_are_accepted(self):
        with scoring.serve(WEIGHTED, "127.0.0.1:0", token="secret") as service:
            for token in [None, "secre", "secrets"]:
                with self.assertRaises(godwit.RemoteError) as raised:
                    scoring.connect(service.url, token=token)
                self.assertIn("token is missing or wrong", str(raised.exception))
            with scoring.connect(service.url, token="secret") as scorer:
                self.assertEqual(scorer.score(TABLE).num_rows, ROWS)

    def test_over_tls_only_with_the_authority(self):
        with tempfile.TemporaryDirectory() as directory:
            key, certificate = Path(directory) / "key.pem", Path(directory) / "certificate.pem"
            args = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate]
            args += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            subprocess.run(["openssl", *args], check=True, capture_output=True)
            with scoring.serve(WEIGHTED, "127.0.0.1:0", token="secret", tls_cert=certificate, tls_key=key) as service:
                self.assertTrue(service.url.startswith("grpc+tls://"))
                with scoring.connect(service.url, token="secret", ca=certificate) as scorer:
                    self.assertEqual(scorer.score(TABLE).num_rows, ROWS)
                with self.assertRaises(godwit.RemoteError):
                    scoring.connect(service.url, token="secret")


class Program(unittest.TestCase):
    def test_what_cannot_be_served_is_told_in_a_line(self):
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "filter.joblib").write_bytes(b"whatever")
            for args, expected, code in [
                ([directory], "is a pickle", 2),
                ([f"{directory}/none.ubj"], "there is no model", 4),
                ([directory, "--listen", "0.0.0.0:0"], "reached by other machines", 2),
            ]:
                ended = subprocess.run([sys.executable, "-m", "godwit.scoring", *args], capture_output=True, text=True, check=False)
                self.assertEqual(ended.returncode, code, ended)
                self.assertRegex(ended.stderr, f"^godwit: error: .*{expected}.*\n$")


if __name__ == "__main__":
    unittest.main()
