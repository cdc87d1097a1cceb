"""Sessions: connections to a running server, or to a local server that is started for a directory."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from ._errors import RemoteError, UsageError, error_for_exit_code
from ._flight_client import Connection, dataset_command, in_schema_order, parameter_row, read_file, statement_command, to_batch_reader
from ._genotypes import Genotypes
from ._pool import SCHEME, PoolConnection, pool_member_urls
from ._program import last_error_message, program_path
from ._query import Query

# The suffix that `reads("S")` prefers if several files have that name: the first of these.
PREFERRED_SUFFIXES = (".bam", ".cram", ".parquet", ".arrow", ".sam", ".vcf.gz", ".bcf", ".vcf")
DATASET_KINDS = ("reads", "variants", "table")
# A server that is not ready after this time has failed; listing many files takes a while.
READY_TIMEOUT_S = 120


@dataclass(frozen=True)
class Dataset:
    """A dataset of a listing."""

    name: str
    """The path below the root."""
    kind: str | None
    """``reads``, ``variants`` or ``table``; None if the file cannot be read."""
    rows: int | None
    """Number of rows; None if it is not known without reading the dataset."""
    bytes: int | None
    """Size of the file in bytes; None if it is not known."""
    schema: pa.Schema
    """Names and types of the columns."""
    error: str | None = None
    """Reason why the file cannot be read; None if it can."""

    @property
    def stem(self) -> str:
        """The name without directory, up to its first dot."""
        return Path(self.name).name.split(".")[0]


class Session:
    """Datasets of one server. Closed by ``close()``, or at the end of a ``with`` block."""

    def __init__(self, connection: Connection, server: _LocalServer | None = None):
        self._connection = connection
        self._server = server

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<godwit.Session at {self._connection.url}>"

    def close(self) -> None:
        """Closes the connection, and stops the server if the session started it."""
        self._connection.close()
        if self._server is not None:
            self._server.stop()

    def datasets(self) -> list[Dataset]:
        """Lists all datasets of the server that the client is allowed to see."""
        return [_dataset_from_info(b"/".join(info.descriptor.path).decode(), info) for info in self._connection.list_flights()]

    def reads(
        self,
        name: str,
        *,
        region: str | Iterable[str] | None = None,
        columns: str | Sequence[str] | None = None,
        where: str | None = None,
        parts: int | None = None,
    ) -> Query:
        """Returns the aligned reads of a dataset. Options are those of `table`; docs/formats/alignments.md describes the columns."""
        return self._query_dataset("reads", name, region, columns, where, parts)

    def variants(
        self,
        name: str,
        *,
        region: str | Iterable[str] | None = None,
        columns: str | Sequence[str] | None = None,
        where: str | None = None,
        parts: int | None = None,
    ) -> Query:
        """Returns the variants of a dataset. Options are those of `table`; docs/formats/variants.md describes the columns."""
        return self._query_dataset("variants", name, region, columns, where, parts)

    def genotypes(
        self,
        name: str,
        *,
        region: str | Iterable[str] | None = None,
        samples: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        where: str | None = None,
    ) -> Genotypes:
        """Returns the genotypes of a dataset of variants, a row for each sample of each variant, or as a matrix of NumPy.

        Args:
            name: As for `table`.
            region: As for `table`.
            samples: Name of a sample, or of several (default: all).
            columns: Name of a column of the SQL function ``genotypes``, or of several in this order (default: all). Not for a matrix.
            where: A condition in SQL on these columns. Not for a matrix.
        """
        found = self._find_dataset("variants", name)
        regions, samples, columns = _to_list(region), _to_list(samples), _to_list(columns)
        listed = "*" if columns is None else ", ".join(_quote_identifier(column) for column in columns)
        conditions = [] if where is None else [f"({where})"]
        if regions is not None:
            conditions.append("(" + (" OR ".join(f"region('{_escape_literal(region)}')" for region in regions) or "false") + ")")
        if samples is not None:
            conditions.append("sample IN (" + ", ".join(f"'{_escape_literal(sample)}'" for sample in samples) + ")" if samples else "false")
        statement = f"SELECT {listed} FROM genotypes('{_escape_literal(found.name)}')"
        statement += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        lists = None
        if where is None and columns is None:
            lists = self._query_dataset("variants", found.name, regions, "genotype_alleles", None, None)
        return Genotypes(self._connection, statement_command(statement), statement, lists, found.schema, samples)

    def table(
        self,
        name: str,
        *,
        region: str | Iterable[str] | None = None,
        columns: str | Sequence[str] | None = None,
        where: str | None = None,
        parts: int | None = None,
    ) -> Query:
        """Returns the rows of any dataset.

        Args:
            name: Path of the dataset, or its name without directory, up to the first dot: ``S`` for ``run/S.vcf.gz``.
            region: ``chr20:1-1000`` or several: rows that overlap one of them, each once. 1-based and closed; commas in numbers are optional.
                Braces quote a name: ``{HLA-A*01:01:01:01}:1-1000``. ``*``: unplaced reads.
            columns: Name of a column, or of several in this order (default: all).
            where: A condition in SQL.
            parts: Number of streams to fetch over (default: the number of processors; for a pool 32, not all concurrently).
        """
        return self._query_dataset(None, name, region, columns, where, parts)

    def sql(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Query:
        """Returns the rows of a SELECT statement.

        Args:
            statement: The statement.
            parameters: Values of its parameters ``$1``, ``$2`` and so on, or a dictionary with those of ``$name`` by name. They are
                sent apart from the text, so they need no quotes. Parameters stand for values, not for names of tables and columns.
        """
        row = parameter_row(parameters) if parameters is not None and len(parameters) > 0 else None
        return Query(self._connection, statement_command(statement), statement, statement=statement, parameters=row)

    def put(self, name: str, data: Any, mode: str = "create", *, temporary: bool = False) -> str:
        """Uploads a table to a writable server; it is stored completely or not at all. Returns its path, for example ``panel.parquet``.

        Args:
            name: Name of the dataset.
            data: Anything with the Arrow stream interface (a table of pyarrow, a frame of polars or pandas, a `Query`), or batches.
            mode: ``create`` (fails if the name exists), ``replace`` or ``append``.
            temporary: Whether the server keeps it in memory only, below ``temporary/``, until it stops.
        """
        if mode not in ("create", "replace", "append"):
            raise UsageError(f"mode is create, replace or append, not {mode!r}")
        self._check_writable()
        reread = None if isinstance(data, pa.RecordBatchReader | Iterator) else lambda: to_batch_reader(data)
        answer = self._connection.upload(dataset_command(name, put=mode, temporary=temporary or None), to_batch_reader(data), reread)
        return str(json.loads(answer)["dataset"])

    def drop(self, name: str) -> None:
        """Removes an uploaded dataset, by its path or the name that `put` was called with. A temporary one is removed if there is no other."""
        self._check_writable()
        try:
            self._connection.do_action("DropDataset", name.encode())
        except UsageError as error:
            if "/" in name:
                raise
            try:
                self._connection.do_action("DropDataset", f"temporary/{name}".encode())
            except UsageError:
                raise error from None

    def _check_writable(self) -> None:
        if self._server is not None and not self._server.is_writable:
            raise UsageError("the session is read-only; open it with godwit.open(.., writable=True)")

    def _query_dataset(
        self,
        kind: str | None,
        name: str,
        region: str | Iterable[str] | None,
        columns: str | Sequence[str] | None,
        where: str | None,
        parts: int | None,
    ) -> Query:
        found = self._find_dataset(kind, name)
        dataset = found.name
        regions, columns = _to_list(region), _to_list(columns)
        text = f"{dataset}" + (f" {' '.join(regions)}" if regions else "")
        listed = ", ".join(_quote_identifier(column) for column in columns) if columns is not None else "*"
        overlap = " OR ".join(f"region('{_escape_literal(region)}')" for region in regions or [])
        conditions = [f"({where})"] if where is not None else []
        if overlap:
            # A single region without other conditions is read without the SQL engine if it has no parentheses.
            conditions.append(f"({overlap})" if conditions else overlap)
        statement = f"SELECT {listed} FROM {_quote_identifier(dataset)}" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
        is_ordered = where is None and len(regions or []) < 2
        # The rows of a statement that is not ordered are in no order, but files of records are sorted.
        needs_order = not is_ordered and kind in ("reads", "variants")
        records = f"{statement} ORDER BY contig_id NULLS LAST, position" if needs_order else statement
        if where is None:
            ordered = in_schema_order(columns, found.schema)
            command = dataset_command(dataset, columns=ordered, regions=regions, parts=parts or self._connection.default_parts)
            reordered = columns if columns != ordered else None
            return Query(self._connection, command, text, reordered, statement=records)
        return Query(self._connection, statement_command(statement), statement, statement=records)

    def _find_dataset(self, kind: str | None, name: str) -> Dataset:
        """Returns a dataset by its path or its name."""
        # A path is requested alone, because a listing opens every file. The server resolves stems as well, but prefers other suffixes.
        if "." in name:
            with contextlib.suppress(UsageError):
                found = _dataset_from_info(name, self._connection.get_flight_info(dataset_command(name)))
                if kind in (None, found.kind):
                    return found
        datasets = self.datasets()
        listed = [dataset for dataset in datasets if dataset.error is None and (kind is None or dataset.kind == kind)]
        for dataset in listed:
            if dataset.name == name:
                return dataset
        same_stem = [dataset for dataset in listed if dataset.stem == name]
        if not same_stem:
            for dataset in datasets:
                if dataset.error is not None and name in (dataset.name, dataset.stem):
                    # The error of the server for this file.
                    return _dataset_from_info(dataset.name, self._connection.get_flight_info(dataset_command(dataset.name)))
            what = "dataset" if kind is None else f"dataset of {kind}"
            raise UsageError(f"there is no {what} {name!r}; there are {', '.join(sorted(dataset.name for dataset in listed)) or 'none'}")
        for ending in PREFERRED_SUFFIXES:
            preferred = [dataset for dataset in same_stem if dataset.name.endswith(ending)]
            if len(preferred) == 1:
                return preferred[0]
        if len(same_stem) == 1:
            return same_stem[0]
        raise UsageError(f"{name!r} is the name of {', '.join(sorted(dataset.name for dataset in same_stem))}; name one by its path")


def _dataset_from_info(name: str, info: flight.FlightInfo) -> Dataset:
    def none_if_negative(number: int) -> int | None:
        return number if number >= 0 else None

    # A listing has the kind of a dataset, or the error of a file that cannot be read.
    described = info.app_metadata.decode()
    kind, error = (described, None) if described in DATASET_KINDS else (None, described)
    return Dataset(name, kind, none_if_negative(info.total_records), none_if_negative(info.total_bytes), info.schema, error)


def _to_list(names: str | Iterable[str] | None) -> list[str] | None:
    """Returns a list of names; one name may be a text."""
    return None if names is None else [names] if isinstance(names, str) else list(names)


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escape_literal(text: str) -> str:
    return text.replace("'", "''")


def connect(
    url: str,
    *,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    pool: str | os.PathLike[str] | None = None,
    wait: float = 900,
) -> Session:
    """Connects to a server or to a pool of servers.

    Args:
        url: ``grpc+tls://HOST:PORT`` or ``grpc+tcp://HOST:PORT``; ``godwit+pool://NAME`` for several servers as one.
        token: Token that `godwit token` printed.
        token_file: File with the token, instead of ``token``.
        ca: File of trusted certificates, PEM (default: those of the system).
        pool: File that describes the pool (default: all addresses to which the name resolves).
        wait: Seconds to wait for a pool of which no member responds.

    Raises:
        RemoteError: The server cannot be reached, or rejects the call.
        MachineError: A file cannot be read.
    """
    if token_file is not None:
        if token is not None:
            raise UsageError("token and token_file exclude each other")
        token = read_file(token_file).decode(errors="replace")
    trusted = read_file(ca) if ca is not None else None
    connection: Connection
    if url.startswith(SCHEME):
        name, members = pool_member_urls(url, None if pool is None else Path(pool))
        connection = PoolConnection(name, members, token, trusted, wait)
    else:
        connection = Connection(url, token, trusted)
    session = Session(connection)
    try:
        session._connection.do_action("Status", b"")
    except BaseException:
        session.close()
        raise
    return session


def open_directory(path: str | os.PathLike[str], *, reference: str | os.PathLike[str] | None = None, writable: bool = False) -> Session:
    """Opens the datasets below a directory: the output of a godwit run, or any files that godwit reads.

    Starts a local server that accepts only this process; it stops when the session is closed or the process exits.

    Args:
        path: The directory.
        reference: Reference of the CRAM files, FASTA.
        writable: Whether `Session.put` may write to the directory.

    Raises:
        MachineError: The directory or the program does not exist.
        UsageError: The path is a file.
    """
    if Path(path).is_file():
        raise UsageError(f"{path} is a file; open its directory, {Path(path).parent}")
    server = _LocalServer(Path(path), reference, writable)
    try:
        return Session(Connection(server.url, server.token, None), server)
    except BaseException:
        server.stop()
        raise


class _LocalServer:
    """A server on the loopback device that accepts only a token that this process created."""

    def __init__(self, root: Path, reference: str | os.PathLike[str] | None, writable: bool):
        self.is_writable = writable
        self._directory = tempfile.TemporaryDirectory(prefix="godwit-python-")
        tokens = Path(self._directory.name) / "tokens"
        created = subprocess.run([program_path(), "token", "python", "--tokens", tokens], capture_output=True, text=True, check=False)
        if created.returncode != 0:
            raise error_for_exit_code(created.returncode, last_error_message(created.stderr))
        self.token = created.stdout.strip()
        command: list[str | os.PathLike[str]] = [
            program_path(),
            "serve",
            "--root",
            root,
            "--listen",
            "127.0.0.1:0",
            "--tokens",
            tokens,
            "--drain",
            "0s",
        ]
        command += ["--reference", reference] if reference is not None else []
        command += ["--writable"] if writable else []
        # stderr goes to a file: no thread reads it once the server is ready, and a full pipe would block the server.
        self._stderr_path = Path(self._directory.name) / "stderr"
        with self._stderr_path.open("w") as stderr:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True)
        # Stops the server if a session is never closed.
        self._end = weakref.finalize(self, _terminate, self._child, self._directory)
        self.url = self._wait_for_url()

    def _wait_for_url(self) -> str:
        """Returns the URL of the server, which it prints when it is ready."""
        first_lines: queue.Queue[str] = queue.Queue()
        stdout = self._child.stdout
        assert stdout is not None
        threading.Thread(target=lambda: first_lines.put(stdout.readline()), daemon=True).start()
        try:
            line = first_lines.get(timeout=READY_TIMEOUT_S)
        except queue.Empty:
            self.stop()
            raise RemoteError(f"the server for this session was not ready within {READY_TIMEOUT_S} s") from None
        if "://" not in line:
            code = self._child.wait()
            message = last_error_message(self._stderr_path.read_text(errors="replace"))
            self.stop()
            raise error_for_exit_code(code, message)
        return line.split()[-1]

    def stop(self) -> None:
        self._end()


def _terminate(child: subprocess.Popen[str], directory: tempfile.TemporaryDirectory[str]) -> None:
    child.terminate()
    if child.stdout is not None:
        child.stdout.close()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    directory.cleanup()
