"""A common interface for models of several libraries: numeric columns in, scores out.

A library is imported when one of its models is loaded. A model receives a matrix with a row for each row of the batch and a column for each
feature, in the type in which the library computes, so that scores are equal to those of the library itself. A missing value is NaN.
"""

from __future__ import annotations

import importlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .._errors import InputError, MachineError, UsageError

Matrix = npt.NDArray[Any]

# Maximum rows of a matrix: larger ones need more memory and are not faster.
MAX_PREDICT_ROWS = 65_536
# Suffix of the file beside a model without feature names: a name in each line.
FEATURE_NAMES_SUFFIX = ".features.txt"


class Model(ABC):
    """A model that scores.

    ``features`` are the names of its columns. With ``by_position`` the model has no feature names, and they are f0, f1 and so on: a table
    without these names is accepted if it has the same number of columns, in this order.
    """

    kind: str
    features: list[str]
    by_position: bool = False
    scores: list[str]
    """Names of the scores, each a number for each row."""
    uses_float64: bool = True
    """Whether the model computes with float64 instead of float32."""

    @abstractmethod
    def predict(self, matrix: Matrix) -> Matrix:
        """Returns scores: an array as long as the matrix, or a matrix with a column for each of ``scores``."""

    def predict_few(self, matrix: Matrix) -> Matrix:
        """Like `predict`, for few rows, where synchronizing threads would take longer than the work."""
        return self.predict(matrix)

    @property
    def feature_type(self) -> pa.DataType:
        """The widest type that can change a score."""
        return pa.float64() if self.uses_float64 else pa.float32()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the features."""
        return pa.schema([pa.field(name, self.feature_type) for name in self.features])

    @property
    def score_schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, self._score_type) for name in self.scores])

    @property
    def _score_type(self) -> pa.DataType:
        return pa.float64() if self.uses_float64 else pa.float32()

    def columns(self, schema: pa.Schema) -> list[int]:
        """Returns the positions of the features in a table; raises `UsageError` if one is missing or not numeric."""
        places = {name: at for at, name in reversed(list(enumerate(schema.names)))}
        missing = [name for name in self.features if name not in places]
        if not missing:
            found = [places[name] for name in self.features]
        elif self.by_position and len(missing) == len(self.features) == len(schema.names):
            found = list(range(len(self.features)))
        elif self.by_position:
            raise UsageError(f"the model has {len(self.features)} features without names, but the table has {len(schema.names)} columns")
        else:
            raise UsageError(f"the table has no column {', '.join(missing)}, which the model requires")
        for at in found:
            if not _is_number(schema.field(at).type):
                name, kind = schema.field(at).name, schema.field(at).type
                raise UsageError(f"column {name} is {kind}, which is not numeric; convert it as for training")
        return found

    def matrix(self, batch: pa.RecordBatch, columns: Sequence[int]) -> Matrix:
        """Returns columns of a batch as a matrix with a row for each row of the batch."""
        narrow = all(batch.schema.field(at).type in _NARROW for at in columns)
        result = np.empty((batch.num_rows, len(columns)), np.float32 if narrow or not self.uses_float64 else np.float64)
        for to, at in enumerate(columns):
            result[:, to] = _to_numbers(batch.column(at))
        return result

    def score(self, batch: pa.RecordBatch, columns: Sequence[int]) -> pa.RecordBatch:
        """Scores a batch; ``columns`` are the positions of the features."""
        pieces = [self.score_matrix(self.matrix(batch.slice(at, MAX_PREDICT_ROWS), columns)) for at in range(0, batch.num_rows, MAX_PREDICT_ROWS)]
        return self.score_batch(pieces[0] if len(pieces) == 1 else np.concatenate([self.empty_scores(), *pieces]))

    def empty_scores(self) -> Matrix:
        """Returns a matrix of scores without rows."""
        return np.empty((0, len(self.scores)), self._score_type.to_pandas_dtype())

    def score_matrix(self, matrix: Matrix) -> Matrix:
        """Returns the scores as a matrix with a column for each score."""
        return self._check_scores(matrix, self.predict(matrix))

    def score_few(self, matrix: Matrix) -> Matrix:
        """Like `score_matrix`, for few rows."""
        return self._check_scores(matrix, self.predict_few(matrix))

    def _check_scores(self, matrix: Matrix, found: Matrix) -> Matrix:
        found = np.asarray(found)
        found = found.reshape(len(found), -1) if found.ndim != 2 else found
        if found.shape != (len(matrix), len(self.scores)):
            raise InputError(f"the model returned {found.shape} scores for {len(matrix)} rows; {len(self.scores)} for each row are expected")
        return found

    def score_batch(self, scores: Matrix) -> pa.RecordBatch:
        kind = self._score_type
        columns = [pa.array(np.ascontiguousarray(scores[:, at], kind.to_pandas_dtype()), kind) for at in range(len(self.scores))]
        return pa.record_batch(columns, schema=self.score_schema)


# Types whose values float32 represents exactly.
_NARROW = {pa.float32(), pa.float16(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.bool_()}


def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_number(kind.value_type)
    is_one = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(holds(kind) for holds in is_one)


def _to_numbers(column: pa.Array) -> Matrix:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        column = column.cast(pa.uint8() if pa.types.is_boolean(column.type) else pa.float64())
    # With nulls, numbers become floats, and a null NaN.
    numbers: Matrix = column.to_numpy(zero_copy_only=False)
    return numbers


def _feature_names(names: Sequence[str] | None, count: int) -> tuple[list[str], bool]:
    """Returns names of features, and whether they are generated."""
    if names:
        if len(names) != count:
            raise UsageError(f"{len(names)} names of features are given, but the model has {count} features")
        if len(set(names)) < count:
            raise UsageError("two features of the model have the same name")
        return list(names), False
    return [f"f{at}" for at in range(count)], True


def _score_names(count: int, labels: Sequence[Any] | None = None) -> list[str]:
    return ["score"] if count == 1 else [f"score_{label}" for label in (labels if labels is not None else range(count))]


class Function(Model):
    """A user function as a model: it takes a matrix and returns an array, or a matrix with a column for each of ``scores``.

    Args:
        function: Function that scores. Several threads may call it concurrently.
        features: Names of the columns of the matrix.
        scores: Names of the scores.
    """

    kind = "function"

    def __init__(self, function: Callable[[Matrix], Matrix], features: Sequence[str], scores: Sequence[str] = ("score",)):
        self.features, self.by_position = _feature_names(features, len(features))
        self.scores = list(scores)
        self._function = function

    def predict(self, matrix: Matrix) -> Matrix:
        return self._function(matrix)


class XGBoost(Model):
    """A booster, or one of the wrappers for scikit-learn. After early stopping, the trees up to the best iteration count."""

    kind = "xgboost"
    uses_float64 = False

    def __init__(self, model: Any, features: Sequence[str] | None, threads: int | None):
        import xgboost

        self._booster = model if isinstance(model, xgboost.Booster) else model.get_booster()
        if threads:
            self._booster.set_param({"nthread": threads})
        # The number of threads is a parameter of the booster, not of the call.
        self._single_thread_booster = self._booster.copy()
        self._single_thread_booster.set_param({"nthread": 1})
        self.features, self.by_position = _feature_names(features or self._booster.feature_names, self._booster.num_features())
        best = self._booster.attributes().get("best_iteration")
        self._iterations = (0, int(best) + 1) if best is not None else (0, 0)
        probe = self.predict(np.zeros((1, len(self.features)), np.float32))
        self.scores = _score_names(probe.size)

    def predict(self, matrix: Matrix) -> Matrix:
        return self._predicted(self._booster, matrix)

    def predict_few(self, matrix: Matrix) -> Matrix:
        return self._predicted(self._single_thread_booster, matrix)

    def _predicted(self, booster: Any, matrix: Matrix) -> Matrix:
        found: Matrix = booster.inplace_predict(matrix, iteration_range=self._iterations, validate_features=False)
        return found


class LightGBM(Model):
    """A booster, or one of the wrappers for scikit-learn."""

    kind = "lightgbm"

    def __init__(self, model: Any, features: Sequence[str] | None, threads: int | None):
        import lightgbm

        self._booster = model if isinstance(model, lightgbm.Booster) else model.booster_
        self._threads = {"num_threads": threads} if threads else {}
        own = self._booster.feature_name()
        # Names of a model that was trained without names.
        made_up = own == [f"Column_{at}" for at in range(len(own))]
        self.features, self.by_position = _feature_names(features or (None if made_up else own), self._booster.num_feature())
        self.scores = _score_names(self.predict(np.zeros((1, len(self.features)))).size)

    def predict(self, matrix: Matrix) -> Matrix:
        found: Matrix = self._booster.predict(matrix, validate_features=False, **self._threads)
        return found

    def predict_few(self, matrix: Matrix) -> Matrix:
        found: Matrix = self._booster.predict(matrix, validate_features=False, num_threads=1)
        return found


class ScikitLearn(Model):
    """An estimator or a pipeline with numeric features. Scores are the probability of the second of two classes, of each of more
    classes, or the prediction.
    """

    kind = "scikit-learn"

    def __init__(self, model: Any, features: Sequence[str] | None, threads: int | None):
        self._model = model
        names = features if features else getattr(model, "feature_names_in_", None)
        self.features, self.by_position = _feature_names(None if names is None else [str(name) for name in names], int(model.n_features_in_))
        self._classes = list(model.classes_) if hasattr(model, "predict_proba") else None
        if self._classes is not None and len(self._classes) != 2:
            self.scores = _score_names(len(self._classes), self._classes)
        elif self._classes is not None:
            self.scores = ["score"]
        else:
            self.scores = _score_names(np.asarray(self.predict(np.zeros((1, len(self.features))))).size)

    def predict(self, matrix: Matrix) -> Matrix:
        import warnings

        with warnings.catch_warnings():
            # The estimator expects names, which were checked already.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            if self._classes is None:
                plain: Matrix = self._model.predict(matrix)
                return plain
            found: Matrix = self._model.predict_proba(matrix)
        return found[:, 1] if len(self._classes) == 2 else found


class Onnx(Model):
    """A session of ONNX Runtime with one matrix as its input, of floats or doubles.

    The scores are the first output of floats; if there is a label beside it, and two classes, the probability of the second class.
    Names of features are those of the model's metadata (``features``, a list in JSON), or of a file beside the model.
    """

    kind = "onnx"

    def __init__(self, session: Any, features: Sequence[str] | None):
        self._session = session
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in ("tensor(float)", "tensor(double)") or len(inputs[0].shape) != 2:
            listing = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
            raise InputError(f"the model takes {listing}; one matrix of floats or doubles is expected")
        self._input = inputs[0].name
        self.uses_float64 = inputs[0].type == "tensor(double)"
        names = features or json.loads(session.get_modelmeta().custom_metadata_map.get("features", "null"))
        count = inputs[0].shape[1] if isinstance(inputs[0].shape[1], int) else len(names or [])
        if not count:
            raise InputError(f"the number of features of the model is unknown; name them in a file NAME{FEATURE_NAMES_SUFFIX} beside it")
        self.features, self.by_position = _feature_names(names, count)
        outputs = session.get_outputs()
        numbers = [one for one in outputs if one.type in ("tensor(float)", "tensor(double)")]
        if not numbers:
            listing = ", ".join(f"{one.name} {one.type}" for one in outputs)
            raise InputError(f"the model returns {listing}, which are not numbers; convert it with zipmap=False")
        self._output = numbers[0].name
        self._second = False
        probe = self.predict(np.zeros((1, count), np.float64 if self.uses_float64 else np.float32))
        self._second = len(outputs) > 1 and probe.size == 2
        self.scores = _score_names(1 if self._second else probe.size)

    def predict(self, matrix: Matrix) -> Matrix:
        kind = np.float64 if self.uses_float64 else np.float32
        found: Matrix = self._session.run([self._output], {self._input: matrix.astype(kind, copy=False)})[0]
        return found[:, 1] if self._second else found


def model_from_object(model: Any, features: Sequence[str] | None = None, threads: int | None = None) -> Model:
    """Returns a model for an object of a library, by the module of its type."""
    if isinstance(model, Model):
        return model
    origins = {kind.__module__.split(".")[0] for kind in type(model).__mro__}
    # The wrappers of XGBoost and LightGBM are also estimators of scikit-learn.
    if "xgboost" in origins:
        return XGBoost(model, features, threads)
    if "lightgbm" in origins:
        return LightGBM(model, features, threads)
    if "sklearn" in origins:
        return ScikitLearn(model, features, threads)
    if "onnxruntime" in origins:
        return Onnx(model, features)
    raise UsageError(
        f"{type(model).__qualname__} is not a model of XGBoost, LightGBM, scikit-learn or ONNX Runtime; wrap it in godwit.scoring.Function"
    )


def _import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MachineError(f"the model requires {name}, which is not installed: {error}") from error


def _xgboost(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    booster = _import_library("xgboost").Booster()
    booster.load_model(path)
    return XGBoost(booster, features, threads)


def _lightgbm(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    return LightGBM(_import_library("lightgbm").Booster(model_file=path), features, threads)


def _onnx(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    runtime = _import_library("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    return Onnx(runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), features)


def _pickle(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    return model_from_object(_import_library("joblib").load(path), features, threads)


_READER_BY_SUFFIX: Mapping[str, Callable[[Path, Sequence[str] | None, int | None], Model]] = {
    ".json": _xgboost,
    ".ubj": _xgboost,
    ".txt": _lightgbm,
    ".onnx": _onnx,
    ".joblib": _pickle,
    ".pkl": _pickle,
}
# Reading a pickle runs code in it.
_PICKLE_SUFFIXES = (".joblib", ".pkl")


def is_model_file(path: Path) -> bool:
    return path.suffix in _READER_BY_SUFFIX and not path.name.endswith(FEATURE_NAMES_SUFFIX) and not path.name.startswith(".")


def model_from_file(path: str | os.PathLike[str], threads: int | None = None, trust_pickles: bool = False) -> Model:
    """Reads a model from a file of its library: .json and .ubj of XGBoost, .txt of LightGBM, .onnx, .joblib and .pkl of scikit-learn.

    Raises `MachineError` if the file or the library is missing, `InputError` if the file is not a model, `UsageError` for pickles
    without ``trust_pickles``.
    """
    path = Path(path)
    if not path.is_file():
        raise MachineError(f"there is no model {path}")
    if path.suffix not in _READER_BY_SUFFIX:
        raise UsageError(f"{path} does not have the suffix of a model; supported are {', '.join(_READER_BY_SUFFIX)}")
    if path.suffix in _PICKLE_SUFFIXES and not trust_pickles:
        raise UsageError(f"{path} is a pickle, which can run any code when it is read; set trust_pickles if you trust its origin")
    beside = path.with_name(path.name.removesuffix(path.suffix) + FEATURE_NAMES_SUFFIX)
    names = beside.read_text().split("\n") if beside.is_file() else []
    try:
        return _READER_BY_SUFFIX[path.suffix](path, [name.strip() for name in names if name.strip()] or None, threads)
    except (MachineError, UsageError):
        raise
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:
        # Each library has its own errors, some of them without a message.
        raise InputError(
            f"{path} cannot be read as a model: {str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__}"
        ) from error
