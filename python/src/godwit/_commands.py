"""Commands of the program as functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ._errors import UsageError
from ._program import Progress, progress_bar, run_program
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
        sample: Name of the sample.
        out: Output directory.
        step: Function that runs on every partition between marking and writing (`godwit.pipeline`), or its name, ``module:function``. It runs in
            the Python of this process, unless ``python=`` names another.
        progress: Called with each event (default: a bar of tqdm, if tqdm is installed).
        options: Options of the command with ``_`` for ``-``: ``format="bam,parquet"``, ``threads=8``, ``resume=True``.

    Returns:
        A session of the output directory.
    """
    lanes = [[lane] if isinstance(lane, str | os.PathLike) else list(lane) for lane in reads]
    if all(len(lane) == 1 for lane in lanes) and all(isinstance(lane, str | os.PathLike) for lane in reads):
        lanes = [[path for lane in lanes for path in lane]]
    args = [arg for lane in lanes for arg in ("--reads", *lane)]
    if step is not None:
        options = {"python": sys.executable, **options, "step": name_of(step)}
    _run_command(["align", "--reference", reference, *args, "--sample", sample, "--out", out], options, progress)
    return open_directory(out)


def call(reference: PathLike, reads: PathLike, out: PathLike, *, progress: Progress | None = None, **options: Option) -> Path:
    """Calls variants: ``godwit call``. Returns the VCF."""
    _run_command(["call", "--reference", reference, "--reads", reads, "--out", out], options, progress)
    return Path(out)


def run(reference: PathLike, samples: PathLike, out: PathLike, *, progress: Progress | None = None, **options: Option) -> Session:
    """Aligns and calls every sample of a sheet: ``godwit run``. Returns a session of ``out``."""
    _run_command(["run", "--reference", reference, "--samples", samples, "--out", out], options, progress)
    return open_directory(out)


def copy(*paths: PathLike, progress: Progress | None = None, **options: Option) -> None:
    """Copies files from or to a server: ``godwit copy SRC.. DST``."""
    if len(paths) < 2:
        raise UsageError("copy requires at least a source and a destination")
    _run_command(["copy", *paths], options, progress)


def search(command: Sequence[PathLike], *, progress: Progress | None = None, **options: Option) -> None:
    """Runs a BLAST+ command line in parts on several workers: ``godwit search -- blastp -db DB -query Q -out F``."""
    _run_command(["search"], options, progress, ["--", *command])


def _run_command(args: list[PathLike], options: dict[str, Option], progress: Progress | None, rest: Sequence[PathLike] = ()) -> None:
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            args.append(flag)
        elif value is False or value is None:
            continue
        elif isinstance(value, str | os.PathLike | int | float):
            args += [flag, value if isinstance(value, os.PathLike) else str(value)]
        else:
            args += [flag, *value]
    run_program([*args, "--json", *rest], progress or progress_bar())
