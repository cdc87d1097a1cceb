"""Models of several libraries as one thing: columns of numbers in, scores out.

Libraries are imported when a model of theirs comes, and not before. What a model is asked for is a matrix with a row for each row of the
batch and a column for each feature, in the type that the library computes with, so that a score is the one that the library gives
locally. A missing value is NaN.
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

# Rows of a matrix: more at a time takes memory and gains nothing.
SLICE_ROWS = 65_536
# Beside a model that does not know what its features are called: a name in each line.
NAMES_ENDING = ".features.txt"


class Model(ABC):
    """A model that scores.

    ``features`` are the names of its columns. With ``by_position`` the model knows no names, and those are f0, f1 and so on: a table
    that lacks them may have any, but as many columns, in this order.
    """

    kind: str
    features: list[str]
    by_position: bool = False
    scores: list[str]
    """Names of what it gives, each a number for each row."""
    wide: bool = True
    """Whether numbers of 64 bits make a difference to it."""

    @abstractmethod
    def predict(self, matrix: Matrix) -> Matrix:
        """Scores: an array as long as the matrix, or a matrix with a column for each of ``scores``."""

    def predict_few(self, matrix: Matrix) -> Matrix:
        """The same for so few rows that threads would wait for each other longer than they work."""
        return self.predict(matrix)

    @property
    def feature_type(self) -> pa.DataType:
        """The widest type that makes a difference."""
        return pa.float64() if self.wide else pa.float32()

    @property
    def schema(self) -> pa.Schema:
        """The features."""
        return pa.schema([pa.field(name, self.feature_type) for name in self.features])

    @property
    def score_schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, self._score_type) for name in self.scores])

    @property
    def _score_type(self) -> pa.DataType:
        return pa.float64() if self.wide else pa.float32()

    def columns(self, schema: pa.Schema) -> list[int]:
        """Where the features are among the columns of a table; raises `UsageError` where they are not, or are no numbers."""
        places = {name: at for at, name in reversed(list(enumerate(schema.names)))}
        missing = [name for name in self.features if name not in places]
        if not missing:
            found = [places[name] for name in self.features]
        elif self.by_position and len(missing) == len(self.features) == len(schema.names):
            found = list(range(len(self.features)))
        elif self.by_position:
            raise UsageError(f"the model does not know what its {len(self.features)} features are called, and there are {len(schema.names)} columns")
        else:
            raise UsageError(f"the model wants the column{'s' * (len(missing) > 1)} {', '.join(missing)}, and there is no such")
        for at in found:
            if not _is_number(schema.field(at).type):
                name, kind = schema.field(at).name, schema.field(at).type
                raise UsageError(f"column {name} is {kind}, and a model takes numbers; make one of it as the training did")
        return found

    def matrix(self, batch: pa.RecordBatch, columns: Sequence[int]) -> Matrix:
        """Columns of a batch as rows of features."""
        narrow = all(batch.schema.field(at).type in _NARROW for at in columns)
        result = np.empty((batch.num_rows, len(columns)), np.float32 if narrow or not self.wide else np.float64)
        for to, at in enumerate(columns):
            result[:, to] = _numbers(batch.column(at))
        return result

    def score(self, batch: pa.RecordBatch, columns: Sequence[int]) -> pa.RecordBatch:
        """Scores of a batch, whose columns `columns` found."""
        pieces = [self.score_matrix(self.matrix(batch.slice(at, SLICE_ROWS), columns)) for at in range(0, batch.num_rows, SLICE_ROWS)]
        return self.batch(pieces[0] if len(pieces) == 1 else np.concatenate([self.nothing(), *pieces]))

    def nothing(self) -> Matrix:
        """The scores of no rows."""
        return np.empty((0, len(self.scores)), self._score_type.to_pandas_dtype())

    def score_matrix(self, matrix: Matrix) -> Matrix:
        """Scores as a matrix with a column for each."""
        return self._checked(matrix, self.predict(matrix))

    def score_few(self, matrix: Matrix) -> Matrix:
        """The same for few rows."""
        return self._checked(matrix, self.predict_few(matrix))

    def _checked(self, matrix: Matrix, found: Matrix) -> Matrix:
        found = np.asarray(found)
        found = found.reshape(len(found), -1) if found.ndim != 2 else found
        if found.shape != (len(matrix), len(self.scores)):
            raise InputError(f"the model gave {found.shape} scores for {len(matrix)} rows; {len(self.scores)} for each are expected")
        return found

    def batch(self, scores: Matrix) -> pa.RecordBatch:
        kind = self._score_type
        columns = [pa.array(np.ascontiguousarray(scores[:, at], kind.to_pandas_dtype()), kind) for at in range(len(self.scores))]
        return pa.record_batch(columns, schema=self.score_schema)


# What a float of 32 bits holds exactly.
_NARROW = {pa.float32(), pa.float16(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.bool_()}


def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_number(kind.value_type)
    is_one = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(holds(kind) for holds in is_one)


def _numbers(column: pa.Array) -> Matrix:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        column = column.cast(pa.uint8() if pa.types.is_boolean(column.type) else pa.float64())
    # With nulls, numbers come as floats, and a null as NaN.
    numbers: Matrix = column.to_numpy(zero_copy_only=False)
    return numbers


def _named(names: Sequence[str] | None, count: int) -> tuple[list[str], bool]:
    """Names of features, and whether they are made up."""
    if names:
        if len(names) != count:
            raise UsageError(f"{len(names)} names of features are given, and the model has {count}")
        if len(set(names)) < count:
            raise UsageError("two features of the model have one name")
        return list(names), False
    return [f"f{at}" for at in range(count)], True


def _outputs(count: int, labels: Sequence[Any] | None = None) -> list[str]:
    return ["score"] if count == 1 else [f"score_{label}" for label in (labels if labels is not None else range(count))]


class Function(Model):
    """A function of one's own as a model: it takes a matrix and gives an array, or a matrix with a column for each of ``scores``.

    Args:
        function: What scores. Several threads may call it at a time.
        features: Names of the columns of the matrix.
        scores: Names of what it gives.
    """

    kind = "function"

    def __init__(self, function: Callable[[Matrix], Matrix], features: Sequence[str], scores: Sequence[str] = ("score",)):
        self.features, self.by_position = _named(features, len(features))
        self.scores = list(scores)
        self._function = function

    def predict(self, matrix: Matrix) -> Matrix:
        return self._function(matrix)


class XGBoost(Model):
    """A booster, or one of the wrappers for scikit-learn, whose trees up to the best one count where training was stopped early."""

    kind = "xgboost"
    wide = False

    def __init__(self, model: Any, features: Sequence[str] | None, threads: int | None):
        import xgboost

        self._booster = model if isinstance(model, xgboost.Booster) else model.get_booster()
        if threads:
            self._booster.set_param({"nthread": threads})
        # How many threads there are is the booster's, not the call's.
        self._of_one_thread = self._booster.copy()
        self._of_one_thread.set_param({"nthread": 1})
        self.features, self.by_position = _named(features or self._booster.feature_names, self._booster.num_features())
        best = self._booster.attributes().get("best_iteration")
        self._iterations = (0, int(best) + 1) if best is not None else (0, 0)
        given = self.predict(np.zeros((1, len(self.features)), np.float32))
        self.scores = _outputs(given.size)

    def predict(self, matrix: Matrix) -> Matrix:
        return self._predicted(self._booster, matrix)

    def predict_few(self, matrix: Matrix) -> Matrix:
        return self._predicted(self._of_one_thread, matrix)

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
        # What was trained without names has these.
        made_up = own == [f"Column_{at}" for at in range(len(own))]
        self.features, self.by_position = _named(features or (None if made_up else own), self._booster.num_feature())
        self.scores = _outputs(self.predict(np.zeros((1, len(self.features)))).size)

    def predict(self, matrix: Matrix) -> Matrix:
        found: Matrix = self._booster.predict(matrix, validate_features=False, **self._threads)
        return found

    def predict_few(self, matrix: Matrix) -> Matrix:
        found: Matrix = self._booster.predict(matrix, validate_features=False, num_threads=1)
        return found


class ScikitLearn(Model):
    """An estimator or a pipeline that takes numbers: the probability of the second of two classes, of each of more, or what is predicted."""

    kind = "scikit-learn"

    def __init__(self, model: Any, features: Sequence[str] | None, threads: int | None):
        self._model = model
        names = features if features else getattr(model, "feature_names_in_", None)
        self.features, self.by_position = _named(None if names is None else [str(name) for name in names], int(model.n_features_in_))
        self._classes = list(model.classes_) if hasattr(model, "predict_proba") else None
        if self._classes is not None and len(self._classes) != 2:
            self.scores = _outputs(len(self._classes), self._classes)
        elif self._classes is not None:
            self.scores = ["score"]
        else:
            self.scores = _outputs(np.asarray(self.predict(np.zeros((1, len(self.features))))).size)

    def predict(self, matrix: Matrix) -> Matrix:
        import warnings

        with warnings.catch_warnings():
            # It wants names, which were looked at here.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            if self._classes is None:
                plain: Matrix = self._model.predict(matrix)
                return plain
            found: Matrix = self._model.predict_proba(matrix)
        return found[:, 1] if len(self._classes) == 2 else found


class Onnx(Model):
    """A session of ONNX Runtime with one matrix as its input, of floats or doubles.

    Of several outputs the first of floats counts; where a label stands beside it, and there are two classes, the probability of the
    second. Names of features are those of the model's metadata (``features``, a list in JSON), or of a file beside it.
    """

    kind = "onnx"

    def __init__(self, session: Any, features: Sequence[str] | None):
        self._session = session
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in ("tensor(float)", "tensor(double)") or len(inputs[0].shape) != 2:
            told = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
            raise InputError(f"the model takes {told}; one matrix of floats or doubles is expected")
        self._input = inputs[0].name
        self.wide = inputs[0].type == "tensor(double)"
        names = features or json.loads(session.get_modelmeta().custom_metadata_map.get("features", "null"))
        count = inputs[0].shape[1] if isinstance(inputs[0].shape[1], int) else len(names or [])
        if not count:
            raise InputError(f"the model does not say how many features it has; name them in a file NAME{NAMES_ENDING} beside it")
        self.features, self.by_position = _named(names, count)
        outputs = session.get_outputs()
        numbers = [one for one in outputs if one.type in ("tensor(float)", "tensor(double)")]
        if not numbers:
            told = ", ".join(f"{one.name} {one.type}" for one in outputs)
            raise InputError(f"the model gives {told}, and no numbers; convert it with zipmap=False")
        self._output = numbers[0].name
        self._second = False
        given = self.predict(np.zeros((1, count), np.float64 if self.wide else np.float32))
        self._second = len(outputs) > 1 and given.size == 2
        self.scores = _outputs(1 if self._second else given.size)

    def predict(self, matrix: Matrix) -> Matrix:
        kind = np.float64 if self.wide else np.float32
        found: Matrix = self._session.run([self._output], {self._input: matrix.astype(kind, copy=False)})[0]
        return found[:, 1] if self._second else found


def of_object(model: Any, features: Sequence[str] | None = None, threads: int | None = None) -> Model:
    """A model of a library, by where its type is from."""
    if isinstance(model, Model):
        return model
    origins = {kind.__module__.split(".")[0] for kind in type(model).__mro__}
    # The wrappers of both are estimators of scikit-learn as well.
    if "xgboost" in origins:
        return XGBoost(model, features, threads)
    if "lightgbm" in origins:
        return LightGBM(model, features, threads)
    if "sklearn" in origins:
        return ScikitLearn(model, features, threads)
    if "onnxruntime" in origins:
        return Onnx(model, features)
    raise UsageError(f"{type(model).__qualname__} is no model of XGBoost, LightGBM, scikit-learn or ONNX Runtime; wrap it in godwit.scoring.Function")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MachineError(f"the model needs {name}, which is not installed here: {error}") from error


def _xgboost(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    booster = _library("xgboost").Booster()
    booster.load_model(path)
    return XGBoost(booster, features, threads)


def _lightgbm(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    return LightGBM(_library("lightgbm").Booster(model_file=path), features, threads)


def _onnx(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    runtime = _library("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    return Onnx(runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"]), features)


def _pickle(path: Path, features: Sequence[str] | None, threads: int | None) -> Model:
    return of_object(_library("joblib").load(path), features, threads)


_READERS: Mapping[str, Callable[[Path, Sequence[str] | None, int | None], Model]] = {
    ".json": _xgboost,
    ".ubj": _xgboost,
    ".txt": _lightgbm,
    ".onnx": _onnx,
    ".joblib": _pickle,
    ".pkl": _pickle,
}
# A pickle is a program, which is run as it is read.
_PICKLES = (".joblib", ".pkl")


def is_model_file(path: Path) -> bool:
    return path.suffix in _READERS and not path.name.endswith(NAMES_ENDING) and not path.name.startswith(".")


def of_file(path: str | os.PathLike[str], threads: int | None = None, trust_pickles: bool = False) -> Model:
    """A model as its library keeps it: .json and .ubj of XGBoost, .txt of LightGBM, .onnx, .joblib and .pkl of scikit-learn.

    Raises `MachineError` where there is no such file or library, `InputError` where it is no model, `UsageError` for pickles that
    are not trusted.
    """
    path = Path(path)
    if not path.is_file():
        raise MachineError(f"there is no model {path}")
    if path.suffix not in _READERS:
        raise UsageError(f"{path} is no model by its ending; there are {', '.join(_READERS)}")
    if path.suffix in _PICKLES and not trust_pickles:
        raise UsageError(f"{path} is a pickle, which may do anything as it is read; trust_pickles lets it, where you know who made it")
    beside = path.with_name(path.name.removesuffix(path.suffix) + NAMES_ENDING)
    names = beside.read_text().split("\n") if beside.is_file() else []
    try:
        return _READERS[path.suffix](path, [name.strip() for name in names if name.strip()] or None, threads)
    except (MachineError, UsageError):
        raise
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:
        # Each library has errors of its own, some of them bare.
        raise InputError(
            f"{path} is not read as a model: {str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__}"
        ) from error
