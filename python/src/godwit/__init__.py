"""Reads, variants and tables of godwit as Arrow, from a directory or from a server.

``open`` starts a server of its own for a directory, ``connect`` asks one that is there; both give the same `Session`.
Positions in columns are 0-based, rows cover ``[position, end_position)``; regions are written as for samtools, 1-based and closed,
and mean overlap.
"""

from ._errors import EngineError, GodwitError, InputError, Interrupted, MachineError, RemoteError, UsageError
from ._query import Query
from ._session import Dataset, Session, connect
from ._session import open_directory as open
from ._verbs import align, call, copy, run, search

__all__ = [
    "Dataset",
    "EngineError",
    "GodwitError",
    "InputError",
    "Interrupted",
    "MachineError",
    "Query",
    "RemoteError",
    "Session",
    "UsageError",
    "align",
    "call",
    "connect",
    "copy",
    "open",
    "run",
    "search",
]
