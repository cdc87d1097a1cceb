"""Tests that scores of the service are equal to those of each library, for models as files and as objects. Requires all four libraries."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import joblib
import lightgbm
import numpy as np
import onnxruntime
import pyarrow as pa
import skl2onnx
import xgboost
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import godwit
from godwit import scoring

NAMES = ["depth", "quality", "bias", "length"]
RNG = np.random.default_rng(20261123)
MATRIX = RNG.normal(size=(3_000, len(NAMES)))
TRUTH = MATRIX[:, 0] * MATRIX[:, 1] + MATRIX[:, 2] > 0
KIND = np.digitize(MATRIX[:, 0], [-0.5, 0.5])
# The columns have another order than in the models, and there is an additional column.
TABLE = pa.table({"name": [str(at) for at in range(len(MATRIX))]} | {name: MATRIX[:, NAMES.index(name)] for name in reversed(NAMES)})
MATRIX_WITH_NANS = MATRIX.copy()
MATRIX_WITH_NANS[::7, 1] = np.nan
WITH_NULLS = TABLE.set_column(3, "quality", pa.array(MATRIX_WITH_NANS[:, 1], from_pandas=True))


def booster(rounds=20, **options):
    return xgboost.train({"max_depth": 4, **options}, xgboost.DMatrix(MATRIX, TRUTH, feature_names=NAMES), rounds)


def onnx(estimator, kind):
    types = {np.float32: skl2onnx.common.data_types.FloatTensorType, np.float64: skl2onnx.common.data_types.DoubleTensorType}
    inputs = [("input", types[kind]([None, len(NAMES)]))]
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else None
    return skl2onnx.convert_sklearn(estimator, initial_types=inputs, options=options)


@contextlib.contextmanager
def serve_models(models, **options):
    with scoring.serve(models, "127.0.0.1:0", **options) as service, scoring.connect(service.url) as scorer:
        yield scorer


class Libraries(unittest.TestCase):
    def assert_scores(self, model, expected, table=TABLE, sums=False, **options):
        """Asserts that the scores of all rows, and of some rows one by one, are equal to the expected ones, bit for bit. With ``sums``, the last
        digits may differ: sums of products depend on the number of rows of a call."""
        expected = np.asarray(expected).reshape(table.num_rows, -1)
        digits = {np.dtype("f4"): 1e-5, np.dtype("f8"): 1e-12}[expected.dtype] if sums else 0
        with serve_models(model, **options) as scorer:
            found = scorer.score(table, batch_rows=1_000)
            np.testing.assert_allclose(np.column_stack([column.to_numpy() for column in found.columns]), expected, rtol=digits)
            with scorer.stream() as stream:
                for row in (0, 7, 1_234):
                    one = stream.score(table.slice(row, 1).select(NAMES).to_batches()[0])
                    np.testing.assert_allclose(np.atleast_2d(one), expected[row : row + 1], rtol=digits)
            return found.schema.names

    def save_to_file(self, name, save):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        save(Path(directory.name) / name)
        return Path(directory.name) / name

    def test_xgboost(self):
        model = booster(objective="binary:logistic")
        expected = model.predict(xgboost.DMatrix(MATRIX, feature_names=NAMES))
        for name in ("filter.ubj", "filter.json"):
            self.assert_scores(self.save_to_file(name, model.save_model), expected)
        holes = model.predict(xgboost.DMatrix(MATRIX_WITH_NANS, feature_names=NAMES))
        self.assertEqual(self.assert_scores(model, holes, WITH_NULLS, threads=1), ["score"])
        several = booster(objective="multi:softprob", num_class=3)
        self.assertEqual(
            self.assert_scores(several, several.predict(xgboost.DMatrix(MATRIX, feature_names=NAMES))), ["score_0", "score_1", "score_2"]
        )

    def test_trees_after_the_best_one_do_not_count(self):
        stopped = xgboost.XGBClassifier(n_estimators=500, learning_rate=0.5, early_stopping_rounds=3)
        stopped.fit(MATRIX[:2_000], TRUTH[:2_000], eval_set=[(MATRIX[2_000:], TRUTH[2_000:])], verbose=False)
        self.assertLess(stopped.best_iteration, stopped.get_booster().num_boosted_rounds() - 1)
        by_position = TABLE.select(NAMES)
        self.assert_scores(stopped, stopped.predict_proba(MATRIX)[:, 1], by_position)
        self.assert_scores(self.save_to_file("stopped.ubj", stopped.save_model), stopped.predict_proba(MATRIX)[:, 1], by_position)

    def test_lightgbm(self):
        data = lightgbm.Dataset(MATRIX, TRUTH, feature_name=NAMES)
        model = lightgbm.train({"objective": "binary", "verbose": -1}, data, 20)
        self.assert_scores(self.save_to_file("filter.txt", model.save_model), model.predict(MATRIX))
        self.assert_scores(model, model.predict(MATRIX_WITH_NANS), WITH_NULLS, threads=1)
        wrapped = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(MATRIX, KIND)
        self.assertEqual(self.assert_scores(wrapped, wrapped.predict_proba(MATRIX), TABLE.select(NAMES)), ["score_0", "score_1", "score_2"])

    def test_scikit_learn(self):
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(TABLE.select(NAMES).to_pandas(), TRUTH)
        expected = model.predict_proba(TABLE.select(NAMES).to_pandas())[:, 1]
        self.assert_scores(model, expected, sums=True)
        path = self.save_to_file("filter.joblib", lambda path: joblib.dump(model, path))
        self.assert_scores(path, expected, sums=True, trust_pickles=True)
        with self.assertRaises(godwit.UsageError) as raised:
            scoring.serve(path, "127.0.0.1:0")
        self.assertIn("is a pickle", str(raised.exception))
        plain = LinearRegression().fit(MATRIX, MATRIX[:, 0])
        self.assertEqual(self.assert_scores(plain, plain.predict(MATRIX), TABLE.select(NAMES), sums=True), ["score"])
        words = RandomForestClassifier(5).fit(MATRIX, np.array(["het", "hom", "ref"])[KIND])
        self.assertEqual(self.assert_scores(words, words.predict_proba(MATRIX), TABLE.select(NAMES)), ["score_het", "score_hom", "score_ref"])

    def test_onnx(self):
        estimator = LogisticRegression().fit(MATRIX, TRUTH)
        for kind in (np.float32, np.float64):
            path = self.save_to_file("filter.onnx", lambda path, kind=kind: path.write_bytes(onnx(estimator, kind).SerializeToString()))
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            expected = session.run(["probabilities"], {"input": MATRIX.astype(kind)})[0][:, 1]
            self.assert_scores(path, expected, TABLE.select(NAMES), sums=True)
            # Names may be in a file beside the model, or in the model.
            path.with_name("filter.features.txt").write_text("\n".join(NAMES) + "\n")
            self.assert_scores(path, expected, sums=True)
        named = onnx(estimator, np.float32)
        entry = named.metadata_props.add()
        entry.key, entry.value = "features", '["depth", "quality", "bias", "length"]'
        path = self.save_to_file("named.onnx", lambda path: path.write_bytes(named.SerializeToString()))
        with serve_models(path) as scorer:
            self.assertEqual(scorer.described()["features"], NAMES)

    def test_files_that_are_no_models_are_named(self):
        for name in ("filter.ubj", "filter.json", "filter.txt", "filter.onnx"):
            path = self.save_to_file(name, lambda path: path.write_bytes(b"no model"))
            with self.subTest(name), self.assertRaises(godwit.InputError) as raised:
                scoring.serve(path, "127.0.0.1:0")
            self.assertIn(f"{name} cannot be read as a model", str(raised.exception))


class ReloadTests(unittest.TestCase):
    def test_new_changed_broken_and_removed_files(self):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            aside = root / ".aside.ubj"

            def put(path, rounds):
                booster(rounds).save_model(aside)
                path.parent.mkdir(exist_ok=True)
                aside.rename(path)

            def scores(rounds):
                return booster(rounds).predict(xgboost.DMatrix(MATRIX, feature_names=NAMES))

            put(root / "filter" / "1.ubj", 1)
            put(root / "other.ubj", 5)
            with scoring.serve(root, "127.0.0.1:0") as service, scoring.connect(service.url, "filter") as scorer:

                def found():
                    return scorer.score(TABLE)["score"].to_numpy()

                np.testing.assert_array_equal(found(), scores(1))
                self.assertEqual(scorer.reload(), {"loaded": [], "removed": [], "failed": {}})
                stream = scorer.stream()
                row = TABLE.slice(0, 1).to_batches()[0]
                self.assertEqual(stream.score(row), scores(1)[:1])
                put(root / "filter" / "2.ubj", 2)
                self.assertEqual(scorer.reload()["loaded"], ["filter/2"])
                np.testing.assert_array_equal(found(), scores(2))
                # An exchange continues with the model with which it started.
                self.assertEqual(stream.score(row), scores(1)[:1])
                stream.close()
                put(root / "filter" / "2.ubj", 3)
                self.assertEqual(scorer.reload()["loaded"], ["filter/2"])
                np.testing.assert_array_equal(found(), scores(3))
                (root / "filter" / "2.ubj").write_bytes(b"no model")
                outcome = scorer.reload()
                self.assertEqual((outcome["loaded"], list(outcome["failed"])), ([], ["filter/2"]))
                np.testing.assert_array_equal(found(), scores(3))
                (root / "filter" / "2.ubj").unlink()
                (root / "other.ubj").unlink()
                self.assertEqual(scorer.reload(), {"loaded": [], "removed": ["filter/2", "other/1"], "failed": {}})
                np.testing.assert_array_equal(found(), scores(1))
                self.assertIn(f'godwit_scoring_rows_total{{model="filter",version="1"}} {2 * len(MATRIX) + 2}', scorer.metrics())

    def test_a_program_serves_a_directory_reloads_on_a_signal_and_ends_on_another(self):
        with tempfile.TemporaryDirectory() as name:
            booster(1).save_model(Path(name) / "filter.ubj")
            command = [sys.executable, "-m", "godwit.scoring", name, "--listen", "127.0.0.1:0"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
                try:
                    greeting = program.stdout.readline()
                    self.assertRegex(greeting, r"^scoring by filter/1 on grpc\+tcp://127.0.0.1:\d+\n$")
                    (Path(name) / "filter").mkdir()
                    booster(2).save_model(Path(name) / "filter" / "2.ubj")
                    program.send_signal(signal.SIGHUP)
                    told = next(itertools.dropwhile(lambda line: "reloaded" not in line, program.stderr))
                    self.assertIn("'loaded': ['filter/2']", told)
                    with scoring.connect(greeting.split()[-1]) as scorer:
                        self.assertEqual([one["version"] for one in scorer.models()], ["1", "2"])
                finally:
                    program.terminate()
                program.communicate()
                self.assertEqual(program.returncode, 0)


if __name__ == "__main__":
    # One thread for each library: sums do not depend on the number of threads.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main()
