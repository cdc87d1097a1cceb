"""Files of records: BAM, VCF and BCF that the program `godwit` writes from the rows of a query."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa

from ._errors import UsageError
from ._flight_client import Connection
from ._program import run_program


def write_records(
    connection: Connection,
    statement: str,
    parameters: pa.RecordBatch | None,
    path: str | os.PathLike[str],
    suffixes: tuple[str, ...],
    header_from: str | None,
) -> Path:
    """Writes the rows of a statement, with the values of its parameters, to a file of records with its index and its manifest; returns the path.

    The program writes the file on this machine, so that no row passes through Python.

    Raises `UsageError` if the path has another suffix, or the statement lacks a column.
    """
    target = Path(path)
    if not target.name.endswith(suffixes):
        raise UsageError(f"{target}: the name must end with {' or '.join(suffixes)}")
    quoted = os.fspath(target).replace("'", "''")
    args = ["query", f"COPY ({statement}) TO '{quoted}'", "--at", connection.url]
    args += ["--header-from", header_from] if header_from is not None else []
    with tempfile.TemporaryDirectory(prefix="godwit-python-") as directory:
        # Files of this directory are readable by this user only.
        for option, name, content in [
            ("--token-file", "token", connection.token and connection.token.encode()),
            ("--ca", "authority.pem", connection.ca),
            ("--parameters-from", "parameters.arrows", _encode_row(parameters) if parameters is not None else None),
        ]:
            if content:
                file = Path(directory) / name
                file.write_bytes(content)
                args += [option, os.fspath(file)]
        run_program(args, None)
    return target


def _encode_row(row: pa.RecordBatch) -> bytes:
    """Returns a row as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
