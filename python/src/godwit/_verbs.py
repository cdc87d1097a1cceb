"""Verbs of the program as functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ._errors import UsageError
from ._program import Progress, bar, perform
from ._session import Session, open_directory
from .pipeline import name_of

PathLike = str | os.PathLike[str]
Option = str | int | float | bool | PathLike | Iterable[str | PathLike]


def align(
    reference: PathLike,
    reads: Sequence[PathLike] | Sequence[Sequence[PathLike]],
    sample: str,
    out: PathLike,
    *,
    step: str | Callable[..., object] | None = None,
    progress: Progress | None = None,
    **options: Option,
) -> Session:
    """Aligns, sorts and marks reads: ``godwit align``.

    Args:
        reference: FASTA.
        reads: Files of one lane (one, or two of mates), or of several lanes, a sequence each.
        sample: Its name.
        out: Directory for what is written.
        step: Function that runs on every partition between marking and writing (`godwit.pipeline`), or its name, ``module:function``. The Python that
            runs this runs it, unless ``python=`` names another.
        progress: Called with each event; a bar of tqdm where nothing is said and tqdm is there.
        options: Options of the verb with ``_`` for ``-``: ``format="bam,parquet"``, ``threads=8``, ``resume=True``.

    Returns:
        A session of ``out``.
    """
    lanes = [[lane] if isinstance(lane, str | os.PathLike) else list(lane) for lane in reads]
    if all(len(lane) == 1 for lane in lanes) and all(isinstance(lane, str | os.PathLike) for lane in reads):
        lanes = [[path for lane in lanes for path in lane]]
    words = [word for lane in lanes for word in ("--reads", *lane)]
    if step is not None:
        options = {"python": sys.executable, **options, "step": name_of(step)}
    _perform(["align", "--reference", reference, *words, "--sample", sample, "--out", out], options, progress)
    return open_directory(out)


def call(reference: PathLike, reads: PathLike, out: PathLike, *, progress: Progress | None = None, **options: Option) -> Path:
    """Calls variants: ``godwit call``. Returns the VCF."""
    _perform(["call", "--reference", reference, "--reads", reads, "--out", out], options, progress)
    return Path(out)


def run(reference: PathLike, samples: PathLike, out: PathLike, *, progress: Progress | None = None, **options: Option) -> Session:
    """Aligns and calls every sample of a sheet: ``godwit run``. Returns a session of ``out``."""
    _perform(["run", "--reference", reference, "--samples", samples, "--out", out], options, progress)
    return open_directory(out)


def copy(*paths: PathLike, progress: Progress | None = None, **options: Option) -> None:
    """Copies files from or to a server: ``godwit copy SRC.. DST``."""
    if len(paths) < 2:
        raise UsageError("copy takes at least a source and a destination")
    _perform(["copy", *paths], options, progress)


def search(command: Sequence[PathLike], *, progress: Progress | None = None, **options: Option) -> None:
    """Runs a BLAST+ command line shared among workers: ``godwit search -- blastp -db DB -query Q -out F``."""
    _perform(["search"], options, progress, ["--", *command])


def _perform(words: list[PathLike], options: dict[str, Option], progress: Progress | None, rest: Sequence[PathLike] = ()) -> None:
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False or value is None:
            continue
        elif isinstance(value, str | os.PathLike | int | float):
            words += [flag, value if isinstance(value, os.PathLike) else str(value)]
        else:
            words += [flag, *value]
    perform([*words, "--json", *rest], progress or bar())
