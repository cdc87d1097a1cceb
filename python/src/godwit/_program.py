"""The program, and what it says while it works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._errors import MachineError, of_exit

Progress = Callable[[dict[str, Any]], None]


def program() -> str:
    """The path of ``godwit``: that of ``GODWIT_PROGRAM``, of this environment, or on the PATH.

    Raises `MachineError` where there is none.
    """
    if named := os.environ.get("GODWIT_PROGRAM"):
        return named
    beside = Path(sys.executable).with_name("godwit")
    found = str(beside) if beside.exists() else shutil.which("godwit")
    if found is None:
        raise MachineError("the program godwit is not in this environment nor on the PATH; `pip install ./python` installs it, or set GODWIT_PROGRAM")
    return found


def last_error(text: str) -> str:
    """What the program said last, as one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("godwit: error:")]
    return (errors or lines or ["it said nothing"])[-1].removeprefix("godwit: error:").strip()


def perform(words: Sequence[str | os.PathLike[str]], progress: Progress | None) -> None:
    """Runs the program with ``--json`` and waits; raises the error for what it ended with.

    Args:
        words: The verb and its arguments.
        progress: Is called with each event: a dictionary with ``event`` and what belongs to it.
    """
    command = [program(), *(os.fspath(word) for word in words)]
    message = ""
    said: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace") as child:
        assert child.stderr is not None
        try:
            for line in child.stderr:
                try:
                    event = json.loads(line)
                except ValueError:
                    said = [*said[-20:], line]
                    continue
                if event.get("event") == "error":
                    message = str(event.get("message", "")).removeprefix("godwit: error:").strip()
                if progress is not None:
                    progress(event)
        except BaseException:
            # The program cleans up when it is told to end; leaving it behind would not.
            child.terminate()
            raise
    if child.returncode != 0:
        raise of_exit(child.returncode, message or last_error("".join(said)))


def bar() -> Progress | None:
    """A bar of tqdm for share of the input that is aligned, files copied and the like; nothing without tqdm or a terminal to show it on."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    shown = tqdm(total=1.0, bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}", disable=None)

    def show(event: dict[str, Any]) -> None:
        if name := event.get("name") or event.get("step"):
            shown.set_description(str(name), refresh=False)
        if (fraction := event.get("fraction")) is not None:
            shown.update(max(0.0, float(fraction) - shown.n))
        if event.get("event") in ("done", "error"):
            shown.close()

    return show
