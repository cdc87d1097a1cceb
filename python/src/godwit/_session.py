"""A server that is asked: one that is there, or one of our own for a directory."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from ._errors import RemoteError, UsageError, of_exit
from ._flight import Connection, as_reader, dataset_command, in_order, statement_command
from ._pool import SCHEME, PoolConnection, nodes_of
from ._program import last_error, program
from ._query import Query

# Which file `reads("S")` means where several have that name: the first of these.
PREFERRED = (".bam", ".cram", ".parquet", ".arrow", ".sam", ".vcf.gz", ".bcf", ".vcf")
# A server that is not ready by then is broken; a listing of many files takes a while.
READY_SECONDS = 120


@dataclass(frozen=True)
class Dataset:
    """A dataset as a listing has it."""

    name: str
    """Its path below the root."""
    kind: str
    """``reads``, ``variants`` or ``table``."""
    rows: int | None
    """How many, where that is known without reading it."""
    bytes: int | None
    """Of the file."""
    schema: pa.Schema
    """Names and types of its columns."""

    @property
    def stem(self) -> str:
        """The name without directory and ending."""
        return Path(self.name).name.split(".")[0]


class Session:
    """Datasets of one server. Ends with ``close()``, or at the end of a ``with``."""

    def __init__(self, connection: Connection, server: _Server | None = None):
        self._connection = connection
        self._server = server

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<godwit.Session at {self._connection.url}>"

    def close(self) -> None:
        """Closes the connection, and ends the server where it is our own."""
        self._connection.close()
        if self._server is not None:
            self._server.stop()

    def datasets(self) -> list[Dataset]:
        """All datasets that the server shows."""

        return [_dataset(b"/".join(info.descriptor.path).decode(), info) for info in self._connection.listed()]

    def reads(self, name: str, **options: Any) -> Query:
        """Aligned reads of a dataset; the options are those of `table`, and columns those of docs/formats/alignments.md."""
        return self._rows("reads", name, **options)

    def variants(self, name: str, **options: Any) -> Query:
        """Variants of a dataset; the options are those of `table`, and columns those of docs/formats/variants.md."""
        return self._rows("variants", name, **options)

    def table(self, name: str, **options: Any) -> Query:
        """Rows of any dataset.

        Args:
            name: Its path, or its name without directory and ending.
            region: ``chr20:1-1000`` or several: rows that overlap one of them, each once. 1-based and closed, with commas or without.
                Braces quote a name: ``{HLA-A*01:01:01:01}:1-1000``.
            columns: Which, in this order; all where nothing is said.
            where: A condition in SQL.
            parts: Streams to fetch over; as many as there are processors where nothing is said, and more of a pool, not all at a time.
        """
        return self._rows(None, name, **options)

    def sql(self, statement: str) -> Query:
        """Rows of a SELECT statement."""
        return Query(self._connection, statement_command(statement), statement)

    def put(self, name: str, data: Any, mode: str = "create", *, temporary: bool = False) -> None:
        """Puts a table on a server that lets clients write: whole, or not at all.

        Args:
            name: Under which it is kept.
            data: Anything with the Arrow stream interface (a table of pyarrow, a frame of polars or pandas, a `Query`), or batches.
            mode: ``create`` (there must be none of that name), ``replace`` or ``append``.
            temporary: Kept in memory, until the server ends.
        """
        if mode not in ("create", "replace", "append"):
            raise UsageError(f"mode is create, replace or append, not {mode!r}")
        again = None if isinstance(data, pa.RecordBatchReader | Iterator) else lambda: as_reader(data)
        self._connection.put(dataset_command(name, put=mode, temporary=temporary or None), as_reader(data), again)

    def drop(self, name: str) -> None:
        """Removes a dataset that was put."""
        self._connection.action("DropDataset", name.encode())

    def _rows(
        self,
        kind: str | None,
        name: str,
        *,
        region: str | Iterable[str] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        parts: int | None = None,
    ) -> Query:
        found = self._named(kind, name)
        dataset = found.name
        regions = None if region is None else [region] if isinstance(region, str) else list(region)
        text = f"{dataset}" + (f" {' '.join(regions)}" if regions else "")
        if where is None:
            ordered = in_order(columns, found.schema)
            command = dataset_command(dataset, columns=ordered, regions=regions, parts=parts or self._connection.parts)
            return Query(self._connection, command, text, list(columns) if columns is not None and list(columns) != ordered else None)
        listed = ", ".join(_identifier(column) for column in columns) if columns is not None else "*"
        overlap = " OR ".join(f"region('{_escaped(region)}')" for region in regions or [])
        conditions = f"({where})" + (f" AND ({overlap})" if overlap else "")
        return self.sql(f"SELECT {listed} FROM {_identifier(dataset)} WHERE {conditions}")

    def _named(self, kind: str | None, name: str) -> Dataset:
        """A dataset by its path or its name."""
        # A path is asked for alone: a listing looks into every file there is. A server knows stems as well, and prefers others.
        if "." in name:
            with contextlib.suppress(UsageError):
                found = _dataset(name, self._connection.info(dataset_command(name)))
                if kind in (None, found.kind):
                    return found
        listed = [dataset for dataset in self.datasets() if kind is None or dataset.kind == kind]
        for dataset in listed:
            if dataset.name == name:
                return dataset
        alike = [dataset for dataset in listed if dataset.stem == name]
        if not alike:
            what = "dataset" if kind is None else f"dataset of {kind}"
            raise UsageError(f"there is no {what} {name!r}; there are {', '.join(sorted(dataset.name for dataset in listed)) or 'none'}")
        for ending in PREFERRED:
            fitting = [dataset for dataset in alike if dataset.name.endswith(ending)]
            if len(fitting) == 1:
                return fitting[0]
        if len(alike) == 1:
            return alike[0]
        raise UsageError(f"{name!r} is the name of {', '.join(sorted(dataset.name for dataset in alike))}; say which by its path")


def _dataset(name: str, info: flight.FlightInfo) -> Dataset:
    def known(number: int) -> int | None:
        return number if number >= 0 else None

    return Dataset(name, info.app_metadata.decode(), known(info.total_records), known(info.total_bytes), info.schema)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(text: str) -> str:
    return text.replace("'", "''")


def connect(
    url: str,
    *,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    pool: str | os.PathLike[str] | None = None,
    wait: float = 900,
) -> Session:
    """Asks a server, or a pool of them.

    Args:
        url: ``grpc+tls://HOST:PORT`` or ``grpc+tcp://HOST:PORT``; ``godwit+pool://NAME`` for several servers as one.
        token: What `godwit token` printed.
        ca: A file of certificates to trust, PEM; those of the system where nothing is said.
        pool: The file that describes the pool; all addresses of the name where nothing is said.
        wait: Seconds that a pool is waited for of which no node answers.

    Raises:
        RemoteError: It cannot be reached, or refuses.
    """
    trusted = Path(ca).read_bytes() if ca is not None else None
    connection: Connection
    if url.startswith(SCHEME):
        name, nodes = nodes_of(url, None if pool is None else Path(pool))
        connection = PoolConnection(name, nodes, token, trusted, wait)
    else:
        connection = Connection(url, token, trusted)
    session = Session(connection)
    try:
        session._connection.action("Status", b"")
    except BaseException:
        session.close()
        raise
    return session


def open_directory(path: str | os.PathLike[str], *, reference: str | os.PathLike[str] | None = None, writable: bool = False) -> Session:
    """The datasets below a directory: a run of godwit, or any files that it reads.

    A server is started for it, which only this process is let in to, and ends with it.

    Args:
        path: The directory.
        reference: The reference that CRAM files were made with, FASTA.
        writable: Whether `Session.put` may write to it.

    Raises:
        MachineError: There is no such directory, or no program.
    """
    server = _Server(Path(path), reference, writable)
    try:
        return Session(Connection(server.url, server.token, None), server)
    except BaseException:
        server.stop()
        raise


class _Server:
    """A server of our own on the loopback device; who asks has to show a token that nobody else knows."""

    def __init__(self, root: Path, reference: str | os.PathLike[str] | None, writable: bool):
        self._private = tempfile.TemporaryDirectory(prefix="godwit-python-")
        tokens = Path(self._private.name) / "tokens"
        made = subprocess.run([program(), "token", "python", "--tokens", tokens], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise of_exit(made.returncode, last_error(made.stderr))
        self.token = made.stdout.strip()
        command: list[str | os.PathLike[str]] = [program(), "serve", "--root", root, "--listen", "127.0.0.1:0", "--tokens", tokens, "--drain", "0s"]
        command += ["--reference", reference] if reference is not None else []
        command += ["--writable"] if writable else []
        # What it says goes to a file: nobody reads on once it is ready, and a full pipe would stop it.
        self._said = Path(self._private.name) / "said"
        with self._said.open("w") as said:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True)
        # Whoever forgets to close a session leaves no server behind.
        self._end = weakref.finalize(self, _end, self._child, self._private)
        self.url = self._greeting()

    def _greeting(self) -> str:
        """Where it is, once it says so."""
        said: queue.Queue[str] = queue.Queue()
        stdout = self._child.stdout
        assert stdout is not None
        threading.Thread(target=lambda: said.put(stdout.readline()), daemon=True).start()
        try:
            line = said.get(timeout=READY_SECONDS)
        except queue.Empty:
            self.stop()
            raise RemoteError(f"the server for this session was not ready within {READY_SECONDS} s") from None
        if "://" not in line:
            code = self._child.wait()
            words = last_error(self._said.read_text(errors="replace"))
            self.stop()
            raise of_exit(code, words)
        return line.split()[-1]

    def stop(self) -> None:
        self._end()


def _end(child: subprocess.Popen[str], private: tempfile.TemporaryDirectory[str]) -> None:
    child.terminate()
    if child.stdout is not None:
        child.stdout.close()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    private.cleanup()
