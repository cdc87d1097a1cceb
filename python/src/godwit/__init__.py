"""Reads, variants and tables of godwit as Arrow, from a directory or from a server.

``open`` starts a server for a directory, ``connect`` connects to a running server; both return a `Session`.
Positions in columns are 0-based, and a row covers ``[position, end_position)``. Regions have the syntax of samtools (1-based, closed)
and select the rows that overlap them.
"""

from ._commands import align, call, copy, run, search
from ._errors import EngineError, GodwitError, InputError, Interrupted, MachineError, RemoteError, UsageError
from ._genotypes import Genotypes
from ._query import Query
from ._session import Dataset, Session, connect
from ._session import open_directory as open
from ._version import find_version

__version__ = find_version()

__all__ = [
    "Dataset",
    "EngineError",
    "Genotypes",
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
