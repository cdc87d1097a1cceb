"""Steps: user functions that ``godwit align --step MODULE:FUNCTION`` runs on every partition, between marking and writing.

A step takes the sorted table of a partition and, optionally, the `Partition`. It returns the table itself, a mask of the rows to keep, or a table of
the same columns with rows removed or changed. A plain function is sufficient; this module adds options that a function cannot express.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from ._step_worker import Partition

__all__ = ["Partition", "name_of", "step"]

Function = TypeVar("Function", bound=Callable[..., Any])


def step(*, columns: Iterable[str] | None = None, frame: Literal["pyarrow", "polars", "pandas"] | None = None) -> Callable[[Function], Function]:
    """Decorates a function with the options of a step; the function itself is unchanged.

    Args:
        columns: Columns of the table that it receives (default: all). Fewer columns cost less. A function that receives some columns must return the
            table itself or a mask.
        frame: Library of the table that it receives (default: that of the annotation of its first parameter, or else pyarrow).
    """

    def describe(function: Function) -> Function:
        said = {"columns": None if columns is None else list(columns), "frame": frame}
        function.__godwit_step__ = said  # type: ignore[attr-defined]
        return function

    return describe


def name_of(function: str | Callable[..., Any]) -> str:
    """Returns the name of a function for ``--step``: ``MODULE:FUNCTION``. Other processes must be able to import it."""
    if isinstance(function, str):
        return function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or "<" in name or not name:
        raise ValueError(f"{function!r} cannot be imported by the processes of a run: define it in a module, at the top level")
    return f"{module}:{name}"
