"""The Flight client: commands for the server and streams from it. Requires only pyarrow."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ._background_threads import is_exiting, start_background_thread
from ._errors import GodwitError, InputError, MachineError, RemoteError, UsageError
from ._protobuf import decode_field, encode_field
from ._reasons import ReasonReader, reason_of

# Batches that are prefetched for each stream: enough to keep the network busy while the reader processes a batch.
PREFETCH_BATCHES_PER_STREAM = 4

# URLs that the Flight client of pyarrow accepts.
URL_SCHEMES = ("grpc://", "grpc+tcp://", "grpc+tls://", "grpc+unix://")

T = TypeVar("T")

# gRPC does not survive a fork: a call in the child would hang forever, so the child rejects it.
_fork_state = {"has_connections": False, "is_fork_of_one_with": False}
os.register_at_fork(after_in_child=lambda: _fork_state.update(is_fork_of_one_with=_fork_state["has_connections"]))


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Returns the content of a file. Raises `MachineError` if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error


def strip_token(token: str | None) -> str | None:
    """Returns a token without the line break of its file. Raises `UsageError` for a text that cannot be a token."""
    stripped = token.strip() if token is not None else ""
    if not stripped.isascii() or any(character.isspace() for character in stripped):
        raise UsageError("a token is one line without spaces; pass the line that `godwit token` printed")
    return stripped or None


def statement_command(sql: str) -> bytes:
    """Returns the command of Flight SQL for the rows of a statement."""
    return _encode_sql_message("CommandStatementQuery", sql.encode())


def _encode_sql_message(name: str, value: bytes) -> bytes:
    """Returns a message of Flight SQL whose first field is ``value``, as a protobuf message in an `Any`."""
    kind = f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()
    return encode_field(1, kind) + encode_field(2, encode_field(1, value))


def parameter_row(parameters: Sequence[Any] | Mapping[str, Any]) -> pa.RecordBatch:
    """Returns the values of the parameters ``$1``, ``$2`` and so on of a statement, or of ``$name`` by their names, as one row."""
    if isinstance(parameters, str | bytes):
        raise UsageError("parameters are a list of values, or a dictionary of values by name")
    named = parameters if isinstance(parameters, Mapping) else {str(number): value for number, value in enumerate(parameters, 1)}
    return pa.RecordBatch.from_pydict({f"${str(name).removeprefix('$')}": _parameter_column(name, value) for name, value in named.items()})


def _parameter_column(name: str, value: Any) -> pa.Array:
    try:
        return pa.array([value])
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise UsageError(f"the parameter {name} has a value that Arrow cannot represent: {error}") from error


def get_bound_statement_info(client: flight.FlightClient, options: flight.FlightCallOptions, sql: str, row: pa.RecordBatch) -> flight.FlightInfo:
    """Returns the flight info of a statement with the values of its parameters. Its tickets contain the statement and the values."""

    def act(name: str, message: str, value: bytes) -> list[bytes]:
        return [result.body.to_pybytes() for result in client.do_action(flight.Action(name, _encode_sql_message(message, value)), options)]

    created = act("CreatePreparedStatement", "ActionCreatePreparedStatementRequest", sql.encode())
    # An `Any` with the message `ActionCreatePreparedStatementResult`, whose first field is the handle.
    handle = decode_field(decode_field(created[0], 2), 1)
    try:
        command = _encode_sql_message("CommandPreparedStatementQuery", handle)
        upload_rows(client, options, command, pa.RecordBatchReader.from_batches(row.schema, [row]))
        return client.get_flight_info(flight.FlightDescriptor.for_command(command), options)
    finally:
        # A server removes statements that are not closed later.
        with contextlib.suppress(flight.FlightError, pa.ArrowException):
            act("ClosePreparedStatement", "ActionClosePreparedStatementRequest", handle)


def format_region(contig: str, first: int, last: int | None = None) -> str:
    """Formats a region, 1-based and closed; without ``last`` it extends to the end of the contig. Braces quote the name of the contig."""
    return f"{{{contig}}}:{first}-{'' if last is None else last}"


def dataset_command(dataset: str, **options: Any) -> bytes:
    """Returns the JSON command for rows of a dataset; options that are `None` are omitted."""
    return json.dumps({"dataset": dataset, **{name: value for name, value in options.items() if value is not None}}).encode()


def in_schema_order(columns: Sequence[str] | None, schema: pa.Schema) -> list[str] | None:
    """Returns the columns in the order of the dataset, which a command requires. Unknown columns are last; the server rejects them."""
    if columns is None:
        return None
    order = {name: at for at, name in enumerate(schema.names)}
    return sorted(dict.fromkeys(columns), key=lambda name: order.get(name, len(order)))


def to_batch_reader(data: Any) -> pa.RecordBatchReader:
    """Returns a reader of an object with the Arrow stream interface, or of batches."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    return pa.RecordBatchReader.from_stream(data if hasattr(data, "__arrow_c_stream__") else pa.Table.from_batches(data))


def upload_rows(client: flight.FlightClient, options: flight.FlightCallOptions, command: bytes, rows: pa.RecordBatchReader) -> bytes:
    """Uploads rows, batch by batch; returns the response of the server after the last batch."""
    writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), rows.schema, options)
    with writer:
        for batch in rows:
            writer.write_batch(batch)
        writer.done_writing()
        answer = answers.read()
    return answer.to_pybytes() if answer else b""


class Connection:
    """A client of one server, with its credentials. ``transport`` holds options of gRPC by name."""

    default_parts = os.cpu_count() or 1
    """Number of streams to fetch over, if the query does not set ``parts``."""

    def __init__(self, url: str, token: str | None, ca: bytes | None, transport: Mapping[str, int] | None = None):
        if _fork_state["is_fork_of_one_with"]:
            raise UsageError(
                "this process was forked from one that has connections, which gRPC does not support; start workers by spawn or forkserver"
                " (of multiprocessing, or multiprocessing_context of a DataLoader)"
            )
        if not url.startswith(URL_SCHEMES):
            raise UsageError(f"{url!r} is not the URL of a server; write grpc+tcp://HOST:PORT, or grpc+tls://HOST:PORT for a server with TLS")
        _fork_state["has_connections"] = True
        self.url, self.token, self.ca = url, strip_token(token), ca
        self.headers = [(b"authorization", f"Bearer {self.token}".encode())] if self.token else []
        self.options = flight.FlightCallOptions(headers=self.headers)
        trust = {"tls_root_certs": ca} if ca else {}
        options = list((transport or {}).items())
        self.client = self.call(lambda: flight.FlightClient(url, generic_options=options, middleware=[ReasonReader()], **trust))

    def call(self, operation: Callable[[], T]) -> T:
        """Runs an operation and translates its error into a `GodwitError` with the message of the server."""
        try:
            return operation()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise translate_error(error, self.url) from error

    def get_flight_info(self, command: bytes) -> flight.FlightInfo:
        return self.call(lambda: self.client.get_flight_info(flight.FlightDescriptor.for_command(command), self.options))

    def get_bound_statement_info(self, sql: str, row: pa.RecordBatch) -> flight.FlightInfo:
        return self.call(lambda: get_bound_statement_info(self.client, self.options, sql, row))

    def list_flights(self) -> list[flight.FlightInfo]:
        return self.call(lambda: list(self.client.list_flights(options=self.options)))

    def do_action(self, name: str, body: bytes) -> list[bytes]:
        results = self.call(lambda: list(self.client.do_action(flight.Action(name, body), self.options)))
        return [result.body.to_pybytes() for result in results]

    def upload(self, command: bytes, reader: pa.RecordBatchReader, reread: Callable[[], pa.RecordBatchReader] | None = None) -> bytes:
        """Uploads rows. ``reread`` reads the same rows again, for a connection that may send them twice."""
        return self.call(lambda: upload_rows(self.client, self.options, command, reader))

    def fetch_endpoint(self, endpoint: flight.FlightEndpoint) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one endpoint, batch by batch."""
        reader = self.call(lambda: self.client.do_get(endpoint.ticket, self.options))
        try:
            while True:
                try:
                    chunk = self.call(reader.read_chunk)
                except StopIteration:
                    return
                if chunk.data is not None:
                    yield chunk.data
        finally:
            with contextlib.suppress(flight.FlightError, pa.ArrowException):
                reader.cancel()

    def fetch_endpoints(self, endpoints: list[flight.FlightEndpoint]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of all endpoints, in their order. The endpoints are fetched concurrently.

        The number of prefetched batches is bounded for each endpoint.
        """
        if len(endpoints) == 1:
            yield from self.fetch_endpoint(endpoints[0])
            return
        yield from prefetch([lambda endpoint=endpoint: self.fetch_endpoint(endpoint) for endpoint in endpoints], len(endpoints))  # type: ignore[misc]

    def close(self) -> None:
        self.client.close()


def prefetch(streams: Sequence[Callable[[], Iterator[T]]], at_once: int) -> Iterator[T]:
    """Yields the items of all streams, in their order. ``at_once`` streams are read concurrently, each on a thread that prefetches a few items."""
    stopped = threading.Event()
    queues: list[queue.Queue[Any]] = [queue.Queue(PREFETCH_BATCHES_PER_STREAM) for _ in streams]

    def offer(to: queue.Queue[Any], item: Any) -> bool:
        while not stopped.is_set() and not is_exiting.is_set():
            with contextlib.suppress(queue.Full):
                to.put(item, timeout=0.1)
                return True
        return False

    def run_stream(stream: Callable[[], Iterator[T]], to: queue.Queue[Any]) -> None:
        try:
            with contextlib.closing(stream()) as items:  # type: ignore[type-var]
                for item in items:
                    if not offer(to, item):
                        return
            offer(to, None)
        except BaseException as error:
            offer(to, error)

    def start(at: int) -> None:
        if at < len(streams):
            start_background_thread("godwit-fetch", run_stream, streams[at], queues[at])

    try:
        for at in range(at_once):
            start(at)
        for at, items in enumerate(queues):
            while (item := items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
            start(at + at_once)
    finally:
        stopped.set()


def translate_error(error: Exception, url: str) -> GodwitError:
    """Translates an error of pyarrow into a `GodwitError`, with the reason that the server sent."""
    translated = _classify_error(error, url)
    translated.reason = reason_of(error)
    return translated


def _classify_error(error: Exception, url: str) -> GodwitError:
    # pyarrow adds the status before and its own context behind the server's message.
    status = re.match(r"(?:Unknown: )?(?:Flight|gRPC) returned ([\w ]+?) error, with message: ", str(error))
    message = str(error)[status.end() if status else 0 :].split(". gRPC client debug context", 1)[0]
    # The rest is from the C++ library or, for a server in Python, a traceback.
    message = message.split(". Detail: ", 1)[0]
    # pyarrow has no class for these statuses.
    if status and status[1] == "data loss":
        return InputError(message)
    if status and status[1] == "already exists":
        return UsageError(message)
    if message == "FlightClient is closed":
        return UsageError("the session is closed")
    if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError | OSError):
        return RemoteError(f"{url}: {message}")
    if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return RemoteError(f"{url} refuses: {message}")
    if isinstance(error, KeyError | pa.ArrowInvalid):
        return UsageError(message.strip("'"))
    if isinstance(error, flight.FlightServerError):
        return InputError(message)
    return GodwitError(message)
