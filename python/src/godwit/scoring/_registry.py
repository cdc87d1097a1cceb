"""Models by name and version, and what becomes of them when files change."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._errors import GodwitError, UsageError
from ._metrics import Counts
from ._micro import Micro
from ._models import NAMES_ENDING, Model, is_model_file, of_file, of_object

ONLY_VERSION = "1"
# What a model or a version may be called: it stands in paths, URLs and labels of metrics.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")

Identity = tuple[tuple[int, int, int] | None, ...]


@dataclass
class Served:
    """A version of a model at work."""

    name: str
    version: str
    model: Model
    path: Path | None = None
    identity: Identity | None = None
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.micro = Micro(self.model.score_few, self.counts)

    def described(self) -> dict[str, Any]:
        """What a client has to know of it."""
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


def in_order(version: str) -> tuple[Any, ...]:
    """Versions in the order that people count in: 2 before 10, 1.9 before 1.10."""
    return tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in re.findall(r"\d+|\D+", version))


class Registry:
    """Models that are served; `reload` takes what has changed below a directory."""

    def __init__(self, models: Any, threads: int | None, trust_pickles: bool):
        self._threads = threads
        self._trust_pickles = trust_pickles
        self._root: Path | None = None
        self._lock = threading.Lock()
        self._models: dict[str, dict[str, Served]] = {}
        if isinstance(models, str | os.PathLike) and Path(models).is_dir():
            self._root = Path(models)
            outcome = self.reload()
            if outcome["failed"]:
                raise UsageError("; ".join(outcome["failed"].values()))
            if not self._models:
                raise UsageError(f"{models} holds no model; put NAME.ubj or NAME/VERSION.ubj there, or .json, .txt, .onnx, .joblib")
            return
        if isinstance(models, str | os.PathLike):
            models = {Path(models).name.split(".")[0]: models}
        given: Mapping[str, Any] = models if isinstance(models, Mapping) else {"model": models}
        for name, versions in given.items():
            several: Mapping[Any, Any] = versions if isinstance(versions, Mapping) else {ONLY_VERSION: versions}
            self._models[name] = {str(version): self._made(name, str(version), model) for version, model in several.items()}
        if not self._models or not all(self._models.values()):
            raise UsageError("there is no model to serve")

    def _made(self, name: str, version: str, model: Any) -> Served:
        for word in (name, version):
            if not NAME.fullmatch(word):
                raise UsageError(f"{word!r} is no name for a model or a version: letters, digits and . _ + - are taken")
        if isinstance(model, str | os.PathLike):
            return Served(name, version, of_file(model, self._threads, self._trust_pickles), Path(model))
        return Served(name, version, of_object(model, None, self._threads))

    def all(self) -> list[Served]:
        """All of them, by name, then version."""
        models = self._models
        return [models[name][version] for name in sorted(models) for version in sorted(models[name], key=in_order)]

    def find(self, name: str, version: str | None = None) -> Served:
        """A version of a model, the last where none is named. Raises `KeyError` with words for it."""
        versions = self._models.get(name)
        if not versions:
            raise KeyError(f"there is no model {name!r}; there are {', '.join(sorted(self._models))}")
        if version is None:
            return versions[max(versions, key=in_order)]
        if version not in versions:
            raise KeyError(f"model {name} has no version {version!r}; there are {', '.join(sorted(versions, key=in_order))}")
        return versions[version]

    def reload(self) -> dict[str, Any]:
        """Takes new and changed files of the directory, and lets go of those that are gone.

        A file that cannot be read is told under ``failed``; what was there in its place goes on. Exchanges that are open end with the
        model they began with.
        """
        with self._lock:
            if self._root is None:
                return {"loaded": [], "removed": [], "failed": {}}
            before = {(served.name, served.version): served for served in self.all()}
            after: dict[str, dict[str, Served]] = {}
            loaded: list[str] = []
            failed: dict[str, str] = {}
            for (name, version), paths in sorted(self._found(self._root).items()):
                label, was = f"{name}/{version}", before.pop((name, version), None)
                served = was
                try:
                    served = self._current(name, version, paths, was)
                except GodwitError as error:
                    failed[label] = str(error)
                if served is not was:
                    loaded.append(label)
                if served is not None:
                    after.setdefault(name, {})[version] = served
            self._models = after
            return {"loaded": loaded, "removed": sorted("/".join(key) for key in before), "failed": failed}

    def _current(self, name: str, version: str, paths: list[Path], was: Served | None) -> Served:
        if len(paths) > 1:
            raise UsageError(f"{' and '.join(map(str, paths))} are both version {version} of {name}; take one away")
        identity = _identity(paths[0])
        if was is not None and was.identity == identity:
            return was
        made = self._made(name, version, paths[0])
        made.identity = identity
        if was is not None:
            made.counts = was.counts
            made.__post_init__()
        return made

    @staticmethod
    def _found(root: Path) -> dict[tuple[str, str], list[Path]]:
        found: dict[tuple[str, str], list[Path]] = {}
        for path in sorted([*root.iterdir(), *root.glob("*/*")]):
            if path.is_file() and is_model_file(path):
                # A version may have points: 1.2.ubj.
                stem = path.name.removesuffix(path.suffix)
                key = (stem, ONLY_VERSION) if path.parent == root else (path.parent.name, stem)
                found.setdefault(key, []).append(path)
        return found


def _identity(path: Path) -> Identity:
    """What changes when a model or the names of its features do."""

    def of(one: Path) -> tuple[int, int, int] | None:
        try:
            state = one.stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns, state.st_size

    return of(path), of(path.with_name(path.name.removesuffix(path.suffix) + NAMES_ENDING))
