"""The wire: commands for the server and streams from it, on pyarrow alone."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ._errors import GodwitError, InputError, RemoteError, UsageError
from ._reasons import ReasonReader, reason_of

# Batches that wait for the reader, for each stream: enough to keep the network busy while it works.
WAITING_BATCHES = 4

T = TypeVar("T")

# gRPC does not survive a fork: what hangs in the child for ever is refused there.
_process = {"has_connections": False, "is_fork_of_one_with": False}
os.register_at_fork(after_in_child=lambda: _process.update(is_fork_of_one_with=_process["has_connections"]))


def statement_command(sql: str) -> bytes:
    """A `CommandStatementQuery` of Flight SQL, as its protobuf message in an `Any`."""

    def field(number: int, value: bytes) -> bytes:
        length, size = b"", len(value)
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + value

    name = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return field(1, name) + field(2, field(1, sql.encode()))


def region_text(contig: str, first: int, last: int | None = None) -> str:
    """The region of some bases, 1-based and closed; to the end of the contig without ``last``. Braces quote the name."""
    return f"{{{contig}}}:{first}-{'' if last is None else last}"


def dataset_command(dataset: str, **options: Any) -> bytes:
    """The JSON command for rows of a dataset; options that are `None` are left out."""
    return json.dumps({"dataset": dataset, **{name: value for name, value in options.items() if value is not None}}).encode()


def in_order(columns: Sequence[str] | None, schema: pa.Schema) -> list[str] | None:
    """Columns in the order of the dataset, as a command has to name them; what it does not have last, for the server to refuse."""
    if columns is None:
        return None
    order = {name: at for at, name in enumerate(schema.names)}
    return sorted(dict.fromkeys(columns), key=lambda name: order.get(name, len(order)))


def as_reader(data: Any) -> pa.RecordBatchReader:
    """A reader of anything with the Arrow stream interface, or of batches."""
    if isinstance(data, pa.RecordBatchReader):
        return data
    return pa.RecordBatchReader.from_stream(data if hasattr(data, "__arrow_c_stream__") else pa.Table.from_batches(data))


def put_rows(client: flight.FlightClient, options: flight.FlightCallOptions, command: bytes, rows: pa.RecordBatchReader) -> bytes:
    """Puts rows, batch by batch; returns what the server answers at the end."""
    writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), rows.schema, options)
    with writer:
        for batch in rows:
            writer.write_batch(batch)
        writer.done_writing()
        answer = answers.read()
    return answer.to_pybytes() if answer else b""


class Connection:
    """A client of one server, with what it shows to be let in. ``transport`` has options of gRPC by their names."""

    parts = os.cpu_count() or 1
    """Streams to fetch over, where nobody says how many."""

    def __init__(self, url: str, token: str | None, ca: bytes | None, transport: Mapping[str, int] | None = None):
        if _process["is_fork_of_one_with"]:
            raise UsageError(
                "this process was forked from one that has connections, which gRPC does not survive; start workers by spawn or forkserver"
                " (of multiprocessing, or multiprocessing_context of a DataLoader)"
            )
        _process["has_connections"] = True
        self.url, self.token, self.ca = url, token, ca
        self.headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self.options = flight.FlightCallOptions(headers=self.headers)
        trust = {"tls_root_certs": ca} if ca else {}
        options = list((transport or {}).items())
        self.client = self.asked(lambda: flight.FlightClient(url, generic_options=options, middleware=[ReasonReader()], **trust))

    def asked(self, question: Callable[[], T]) -> T:
        """An answer of the server; what it refuses is an error of ours, with its words."""
        try:
            return question()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise translated(error, self.url) from error

    def info(self, command: bytes) -> flight.FlightInfo:
        return self.asked(lambda: self.client.get_flight_info(flight.FlightDescriptor.for_command(command), self.options))

    def listed(self) -> list[flight.FlightInfo]:
        return self.asked(lambda: list(self.client.list_flights(options=self.options)))

    def action(self, name: str, body: bytes) -> list[bytes]:
        results = self.asked(lambda: list(self.client.do_action(flight.Action(name, body), self.options)))
        return [result.body.to_pybytes() for result in results]

    def put(self, command: bytes, reader: pa.RecordBatchReader, again: Callable[[], pa.RecordBatchReader] | None = None) -> bytes:
        """Puts rows. ``again`` reads the same ones anew, for a connection that may send them twice."""

        return self.asked(lambda: put_rows(self.client, self.options, command, reader))

    def fetch(self, endpoint: flight.FlightEndpoint) -> Iterator[pa.RecordBatch]:
        """Rows of one endpoint, batch by batch."""
        reader = self.asked(lambda: self.client.do_get(endpoint.ticket, self.options))
        try:
            while True:
                try:
                    chunk = self.asked(reader.read_chunk)
                except StopIteration:
                    return
                if chunk.data is not None:
                    yield chunk.data
        finally:
            with contextlib.suppress(flight.FlightError, pa.ArrowException):
                reader.cancel()

    def fetch_all(self, endpoints: list[flight.FlightEndpoint]) -> Iterator[pa.RecordBatch]:
        """Rows of all endpoints, in their order, fetched at the same time.

        What is ahead of the reader is bounded: a few batches for each endpoint.
        """
        if len(endpoints) == 1:
            yield from self.fetch(endpoints[0])
            return
        yield from ahead([lambda endpoint=endpoint: self.fetch(endpoint) for endpoint in endpoints], len(endpoints))  # type: ignore[misc]

    def close(self) -> None:
        self.client.close()


def ahead(streams: Sequence[Callable[[], Iterator[T]]], at_once: int) -> Iterator[T]:
    """Items of all streams, in their order, so many of them at a time on threads of their own, each a few items ahead of the reader."""
    stopped = threading.Event()
    queues: list[queue.Queue[Any]] = [queue.Queue(WAITING_BATCHES) for _ in streams]

    def hand_on(to: queue.Queue[Any], item: Any) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                to.put(item, timeout=0.1)
                return True
        return False

    def work(stream: Callable[[], Iterator[T]], to: queue.Queue[Any]) -> None:
        try:
            with contextlib.closing(stream()) as items:  # type: ignore[type-var]
                for item in items:
                    if not hand_on(to, item):
                        return
            hand_on(to, None)
        except BaseException as error:
            hand_on(to, error)

    def start(at: int) -> None:
        if at < len(streams):
            threading.Thread(target=work, args=(streams[at], queues[at]), name="godwit-fetch", daemon=True).start()

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


def translated(error: Exception, url: str) -> GodwitError:
    """An error of pyarrow as one of ours, with the reason that the server gave."""
    ours = _in_words(error, url)
    ours.reason = reason_of(error)
    return ours


def _in_words(error: Exception, url: str) -> GodwitError:
    # pyarrow puts the status and its own context around the server's words.
    words = re.sub(r"^Flight returned [\w ]+? error, with message: ", "", str(error)).split(". gRPC client debug context", 1)[0]
    # What follows is of the C++ library, and of a server in Python its traceback.
    words = words.split(". Detail: ", 1)[0]
    if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError | OSError):
        return RemoteError(f"{url}: {words}")
    if isinstance(error, flight.FlightUnauthenticatedError | flight.FlightUnauthorizedError):
        return RemoteError(f"{url} refuses: {words}")
    if isinstance(error, KeyError | pa.ArrowInvalid):
        return UsageError(words.strip("'"))
    if isinstance(error, flight.FlightServerError):
        return InputError(words)
    return GodwitError(words)
