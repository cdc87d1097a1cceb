"""Registry of served models by name and version, with reloading of changed files."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._errors import GodwitError, UsageError
from ._metrics import ModelMetrics
from ._micro_batching import MicroBatcher
from ._models import FEATURE_NAMES_SUFFIX, Model, is_model_file, model_from_file, model_from_object

DEFAULT_VERSION = "1"
# Allowed names of models and versions: they are part of paths, URLs and labels of metrics.
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")

FileIdentity = tuple[tuple[int, int, int] | None, ...]


@dataclass
class ServedModel:
    """A version of a model that is served."""

    name: str
    version: str
    model: Model
    path: Path | None = None
    identity: FileIdentity | None = None
    metrics: ModelMetrics = field(default_factory=ModelMetrics)

    def __post_init__(self) -> None:
        self.micro_batcher = MicroBatcher(self.model.score_few, self.metrics)

    def describe(self) -> dict[str, Any]:
        """Returns the description of the model for clients."""
        kinds = {name: str(self.model.score_schema.field(name).type) for name in self.model.scores}
        return {
            "model": self.name,
            "version": self.version,
            "kind": self.model.kind,
            "features": self.model.features,
            "by_position": self.model.by_position,
            "feature_type": str(self.model.feature_type),
            "scores": [{"name": name, "type": kind} for name, kind in kinds.items()],
        }


def version_sort_key(version: str) -> tuple[Any, ...]:
    """Returns a sort key of versions in numeric order: 2 before 10, 1.9 before 1.10."""
    return tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in re.findall(r"\d+|\D+", version))


class Registry:
    """Served models; `reload` loads changed files below a directory."""

    def __init__(self, models: Any, threads: int | None, trust_pickles: bool):
        self._threads = threads
        self._trust_pickles = trust_pickles
        self._root: Path | None = None
        self._lock = threading.Lock()
        self._models: dict[str, dict[str, ServedModel]] = {}
        if isinstance(models, str | os.PathLike) and Path(models).is_dir():
            self._root = Path(models)
            outcome = self.reload()
            if outcome["failed"]:
                raise UsageError("; ".join(outcome["failed"].values()))
            if not self._models:
                raise UsageError(f"{models} contains no model; put NAME.ubj or NAME/VERSION.ubj there, or .json, .txt, .onnx, .joblib")
            return
        if isinstance(models, str | os.PathLike):
            models = {Path(models).name.split(".")[0]: models}
        given: Mapping[str, Any] = models if isinstance(models, Mapping) else {"model": models}
        for name, versions in given.items():
            by_version: Mapping[Any, Any] = versions if isinstance(versions, Mapping) else {DEFAULT_VERSION: versions}
            self._models[name] = {str(version): self._create(name, str(version), model) for version, model in by_version.items()}
        if not self._models or not all(self._models.values()):
            raise UsageError("there is no model to serve")

    def _create(self, name: str, version: str, model: Any) -> ServedModel:
        for word in (name, version):
            if not NAME_PATTERN.fullmatch(word):
                raise UsageError(f"{word!r} is not a name for a model or a version: letters, digits and . _ + - are allowed")
        if isinstance(model, str | os.PathLike):
            return ServedModel(name, version, model_from_file(model, self._threads, self._trust_pickles), Path(model))
        return ServedModel(name, version, model_from_object(model, None, self._threads))

    def all_versions(self) -> list[ServedModel]:
        """Returns all versions of all models, ordered by name, then version."""
        models = self._models
        return [models[name][version] for name in sorted(models) for version in sorted(models[name], key=version_sort_key)]

    def find_version(self, name: str, version: str | None = None) -> ServedModel:
        """Returns a version of a model (default: the latest). Raises `KeyError` with a message if it does not exist."""
        versions = self._models.get(name)
        if not versions:
            raise KeyError(f"there is no model {name!r}; there are {', '.join(sorted(self._models))}")
        if version is None:
            return versions[max(versions, key=version_sort_key)]
        if version not in versions:
            raise KeyError(f"model {name} has no version {version!r}; there are {', '.join(sorted(versions, key=version_sort_key))}")
        return versions[version]

    def reload(self) -> dict[str, Any]:
        """Loads new and changed files of the directory, and removes models whose files are gone.

        A file that cannot be read is reported under ``failed``, and its previous model stays. Open exchanges continue with the model
        with which they started.
        """
        with self._lock:
            if self._root is None:
                return {"loaded": [], "removed": [], "failed": {}}
            before = {(served.name, served.version): served for served in self.all_versions()}
            after: dict[str, dict[str, ServedModel]] = {}
            loaded: list[str] = []
            failed: dict[str, str] = {}
            for (name, version), paths in sorted(self._model_files(self._root).items()):
                label, previous = f"{name}/{version}", before.pop((name, version), None)
                served = previous
                try:
                    served = self._load_if_changed(name, version, paths, previous)
                except GodwitError as error:
                    failed[label] = str(error)
                if served is not previous:
                    loaded.append(label)
                if served is not None:
                    after.setdefault(name, {})[version] = served
            self._models = after
            return {"loaded": loaded, "removed": sorted("/".join(key) for key in before), "failed": failed}

    def _load_if_changed(self, name: str, version: str, paths: list[Path], previous: ServedModel | None) -> ServedModel:
        if len(paths) > 1:
            raise UsageError(f"{' and '.join(map(str, paths))} are both version {version} of {name}; remove one")
        identity = _file_identity(paths[0])
        if previous is not None and previous.identity == identity:
            return previous
        created = self._create(name, version, paths[0])
        created.identity = identity
        if previous is not None:
            created.metrics = previous.metrics
            created.__post_init__()
        return created

    @staticmethod
    def _model_files(root: Path) -> dict[tuple[str, str], list[Path]]:
        found: dict[tuple[str, str], list[Path]] = {}
        for path in sorted([*root.iterdir(), *root.glob("*/*")]):
            if path.is_file() and is_model_file(path):
                # A version may contain dots: 1.2.ubj.
                stem = path.name.removesuffix(path.suffix)
                key = (stem, DEFAULT_VERSION) if path.parent == root else (path.parent.name, stem)
                found.setdefault(key, []).append(path)
        return found


def _file_identity(path: Path) -> FileIdentity:
    """Returns a value that changes if the file of a model, or that of its feature names, changes."""

    def stat_key(file: Path) -> tuple[int, int, int] | None:
        try:
            state = file.stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size

    return stat_key(path), stat_key(path.with_name(path.name.removesuffix(path.suffix) + FEATURE_NAMES_SUFFIX))
