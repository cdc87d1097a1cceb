"""Steps: functions of yours that ``godwit align --step MODULE:FUNCTION`` runs on every partition, between marking and writing.

A step takes the sorted table of a partition and, if it wants, the `Partition`. It returns the table itself, a mask of the rows to keep, or a table of
the same columns with rows left out or changed. Nothing of this module is needed for that; it is for what a plain function cannot say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from ._step_worker import Partition

__all__ = ["Partition", "name_of", "step"]

Function = TypeVar("Function", bound=Callable[..., Any])


def step(*, columns: Iterable[str] | None = None, frame: Literal["pyarrow", "polars", "pandas"] | None = None) -> Callable[[Function], Function]:
    """Says how a function is called; it stays the function that it is.

    Args:
        columns: The columns it is given; all of them where nothing is said. Fewer cost less. A function that is given some columns returns the table
            itself or a mask.
        frame: The library whose table it is given; by the annotation of its first parameter where nothing is said, and pyarrow where there is none.
    """

    def describe(function: Function) -> Function:
        said = {"columns": None if columns is None else list(columns), "frame": frame}
        function.__godwit_step__ = said  # type: ignore[attr-defined]
        return function

    return describe


def name_of(function: str | Callable[..., Any]) -> str:
    """What ``--step`` takes for a function: ``MODULE:FUNCTION``. It has to be one that another process can import."""
    if isinstance(function, str):
        return function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or "<" in name or not name:
        raise ValueError(f"{function!r} cannot be imported by the processes of a run: put it into a module, as a function of its own")
    return f"{module}:{name}"
