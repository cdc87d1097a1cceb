"""The program `godwit` as a child process, and the events that it prints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ._errors import MachineError, error_for_exit_code

Progress = Callable[[dict[str, Any]], None]


def program_path() -> str:
    """Returns the path of ``godwit``: that of ``GODWIT_PROGRAM``, of this environment, or on the PATH.

    Raises `MachineError` if there is none.
    """
    if configured := os.environ.get("GODWIT_PROGRAM"):
        if shutil.which(configured) is None:
            raise MachineError(f"{configured}, which GODWIT_PROGRAM names, is not a program")
        return configured
    in_environment = Path(sys.executable).with_name("godwit")
    found = str(in_environment) if in_environment.exists() else shutil.which("godwit")
    if found is None:
        raise MachineError(
            "the program godwit is neither in this environment nor on the PATH; `pip install ./python` installs it, or set GODWIT_PROGRAM"
        )
    return found


def last_error_message(text: str) -> str:
    """Returns the last error message of the program, as one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("godwit: error:")]
    return (errors or lines or ["it printed no message"])[-1].removeprefix("godwit: error:").strip()


def run_program(args: Sequence[str | os.PathLike[str]], progress: Progress | None) -> None:
    """Runs the program with ``--json`` and waits for it; raises the error for its exit code.

    Args:
        words: The verb and its arguments.
        progress: Called with each event: a dictionary with ``event`` and the fields of this event.
    """
    command = [program_path(), *(os.fspath(arg) for arg in args)]
    message = ""
    other_lines: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace") as child:
        assert child.stderr is not None
        try:
            for line in child.stderr:
                try:
                    event = json.loads(line)
                except ValueError:
                    other_lines = [*other_lines[-20:], line]
                    continue
                if event.get("event") == "error":
                    message = str(event.get("message", "")).removeprefix("godwit: error:").strip()
                if progress is not None:
                    progress(event)
        except BaseException:
            # The program cleans up on SIGTERM; an abandoned child would not.
            child.terminate()
            raise
    if child.returncode != 0:
        raise error_for_exit_code(child.returncode, message or last_error_message("".join(other_lines)))


def progress_bar() -> Progress | None:
    """Returns a callback that shows the fraction of the work done in a bar of tqdm; None without tqdm. Without a terminal the bar is not shown."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    bar = tqdm(total=1.0, bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}", disable=None)

    def show(event: dict[str, Any]) -> None:
        if name := event.get("name") or event.get("step"):
            bar.set_description(str(name), refresh=False)
        if (fraction := event.get("fraction")) is not None:
            bar.update(max(0.0, float(fraction) - bar.n))
        if event.get("event") in ("done", "error"):
            bar.close()

    return show
