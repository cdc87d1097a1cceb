"""A pool of servers as one: each client goes to the node that the pool grants, and what it has under way goes on at another when that is lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ._errors import GodwitError, InputError, RemoteError, UsageError
from ._flight import Connection, ahead, put_rows, translated

log = logging.getLogger("godwit")

SCHEME = "godwit+pool://"
# How often a node is asked for a sign of life, over a connection of its own, and how long an answer may take; then it is asked once more,
# over another one. A machine that lost its power says nothing, and TCP would wait for a quarter of an hour. gRPC's own pings were not
# sent once a stream stood still.
LOOK_SECONDS = 0.25
ANSWER_SECONDS = (0.5, 0.7)
# A node may take so long to be reached and to say which one to use.
GRANT_SECONDS = 1.5
# How long a node that was lost is asked last.
SUSPECT_SECONDS = 3.0
# Between two rounds in which no node answered.
PAUSE_SECONDS = 0.3
# Nodes that may be lost in a row before a batch comes.
LOST_AT_MOST = 12

T = TypeVar("T")


def nodes_of(url: str, pool: str | Path | None) -> tuple[str, list[str]]:
    """The name of a pool and the addresses of its nodes: of its file, or all addresses that the name has."""
    name = url.removeprefix(SCHEME).rstrip("/")
    if not name or "/" in name:
        raise UsageError(f"{url} is no pool; write {SCHEME}NAME")
    if pool is None:
        host, _, port = name.partition(":")
        try:
            found = socket.getaddrinfo(host, int(port or 8815), type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            raise RemoteError(f"cannot find {name}: {error}; check the name, or give pool=FILE") from error
        hosts = dict.fromkeys(str(address[0]) for *_, address in found)
        return name, [f"grpc+tls://{f'[{address}]' if ':' in address else address}:{port or 8815}" for address in hosts]
    try:
        import tomllib
    except ModuleNotFoundError as error:
        raise UsageError("files of pools are read by Python 3.11 or later") from error
    try:
        described = tomllib.loads(Path(pool).read_text())
        named, nodes = described["name"], [node["url"] for node in described["node"]]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{pool} describes no pool: {error}") from error
    if named != name:
        raise UsageError(f"{pool} describes the pool {named}, not {name}")
    return name, nodes


class _Lost(Exception):
    """A node is gone, or going; the cause says how that was found out."""


class _Seat(Connection):
    """A connection to a node that is looked after until it is closed or lost."""

    def __init__(self, node: str, token: str | None, ca: bytes | None, grant: str):
        transport = {
            # Otherwise connections to one node are one, with what went wrong on it before.
            "grpc.use_local_subchannel_pool": 1,
            "grpc.initial_reconnect_backoff_ms": 200,
        }
        super().__init__(node, token, ca, transport)
        self.headers.append((b"godwit-grant", grant.encode()))
        self.options = flight.FlightCallOptions(headers=self.headers)
        self.gone, self.closed = threading.Event(), threading.Event()
        self._transport = transport
        self._readers: set[Any] = set()
        self._lock = threading.Lock()

    def look_after(self) -> None:
        threading.Thread(target=self._look, name="godwit-look", daemon=True).start()

    def _look(self) -> None:
        client: flight.FlightClient | None = None
        while not self.closed.wait(LOOK_SECONDS):
            for seconds in ANSWER_SECONDS:
                try:
                    client = client or Connection(self.url, self.token, self.ca, self._transport).client
                    # A node that answers at all is there, whatever it says.
                    list(client.do_action(flight.Action("PoolStatus", b"look"), flight.FlightCallOptions(headers=self.headers, timeout=seconds)))
                    break
                except (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError, GodwitError):
                    client = None
                except (flight.FlightError, pa.ArrowException, OSError):
                    break
            else:
                self.give_up()
                return

    def give_up(self) -> None:
        """Whoever waits for this node is told that it is lost."""
        self.gone.set()
        with self._lock:
            readers = list(self._readers)
        for reader in readers:
            with contextlib.suppress(flight.FlightError, pa.ArrowException):
                reader.cancel()

    def close(self) -> None:
        self.closed.set()
        super().close()

    @contextlib.contextmanager
    def reading(self, reader: Any) -> Iterator[Any]:
        """A reader that is ended where the node is lost."""
        with self._lock:
            self._readers.add(reader)
        try:
            if self.gone.is_set():
                raise _Lost from flight.FlightUnavailableError("it does not answer")
            yield reader
        finally:
            with self._lock:
                self._readers.discard(reader)
            with contextlib.suppress(flight.FlightError, pa.ArrowException):
                reader.cancel()

    def waited_for(self, question: Callable[[], T]) -> T:
        """An answer, waited for as long as the node is there; who asked is left behind on a thread where it is lost."""
        answers: queue.Queue[tuple[bool, Any]] = queue.Queue()

        def ask() -> None:
            try:
                answers.put((True, question()))
            except BaseException as error:
                answers.put((False, error))

        threading.Thread(target=ask, name="godwit-ask", daemon=True).start()
        while True:
            try:
                well, answer = answers.get(timeout=0.05)
            except queue.Empty:
                if self.gone.is_set():
                    raise _Lost from flight.FlightUnavailableError("it does not answer")
                continue
            if well:
                return answer  # type: ignore[no-any-return]
            raise answer


class PoolConnection(Connection):
    """A connection to whichever node of a pool is granted."""

    # More than are fetched at a time: the part that was under way is fetched again when its node is lost.
    parts = 32

    def __init__(self, url: str, nodes: list[str], token: str | None, ca: bytes | None, wait: float):
        self.pool, self.nodes, self.token, self.ca, self.wait = url, nodes, token, ca, wait
        self._suspects: dict[str, float] = {}
        self._lock = threading.Lock()
        self._seat: _Seat | None = None

    @property
    def url(self) -> str:  # type: ignore[override]
        """The node that is used now: what is handed to other processes goes there."""
        return self._here().url

    @property
    def client(self) -> flight.FlightClient:  # type: ignore[override]
        return self._here().client

    @property
    def options(self) -> flight.FlightCallOptions:  # type: ignore[override]
        return self._here().options

    def close(self) -> None:
        with self._lock:
            if self._seat is not None:
                self._seat.close()
                self._seat = None

    # Which node.

    def _here(self) -> _Seat:
        with self._lock:
            if self._seat is None:
                self._seat = self._granted()
                self._seat.look_after()
            return self._seat

    def _lost(self, seat: _Seat) -> None:
        seat.give_up()
        seat.closed.set()
        with self._lock:
            self._suspects[seat.url] = time.monotonic()
            # Another thread may have found out first.
            if self._seat is seat:
                self._seat = None
                log.warning("pool %s: %s is lost; going on at another node", self.pool, seat.url)

    def _by_trust(self) -> list[str]:
        def is_suspect(node: str) -> bool:
            return time.monotonic() - self._suspects.get(node, -SUSPECT_SECONDS) < SUSPECT_SECONDS

        return sorted(self.nodes, key=is_suspect)

    def _granted(self) -> _Seat:
        """A connection to the node that the pool grants; where none answers, they are asked again for as long as may be waited."""
        until, told = time.monotonic() + self.wait, False
        grant = secrets.token_hex(8)
        while True:
            refused: GodwitError | None = None
            for node in self._by_trust():
                try:
                    connection = self._asked_of(node, grant)
                except _Lost:
                    self._suspects[node] = time.monotonic()
                    continue
                except GodwitError as error:
                    refused = error
                    continue
                return connection
            if refused is not None:
                raise refused
            if time.monotonic() >= until:
                raise RemoteError(f"{self.pool}: none of its {len(self.nodes)} nodes answered for {self.wait:g} s")
            if not told:
                told = True
                log.warning("no node of the pool %s answers; waiting up to %g s", self.pool, self.wait)
            time.sleep(PAUSE_SECONDS)

    def _asked_of(self, node: str, grant: str) -> _Seat:
        """Asks a node which one to use, and goes there."""
        avoid = [node for node in self.nodes if time.monotonic() - self._suspects.get(node, -SUSPECT_SECONDS) < SUSPECT_SECONDS]
        if len(avoid) == len(self.nodes):
            avoid = []
        connection = _Seat(node, self.token, self.ca, grant)
        try:
            answer = _in_time(connection, "PoolGrant", json.dumps({"id": grant, "avoid": avoid}).encode())
            wanted = next((place for place in answer.get("locations", []) if place in self.nodes), node)
            if wanted == node:
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        other = _Seat(wanted, self.token, self.ca, grant)
        try:
            _in_time(other, "PoolStatus", b"look")
        except _Lost:
            other.close()
            self._suspects[wanted] = time.monotonic()
            raise
        except BaseException:
            other.close()
            raise
        return other

    # What is asked. What a lost node was asked, another is.

    def _anywhere(self, question: Callable[[_Seat], T]) -> T:
        for _ in range(LOST_AT_MOST):
            seat = self._here()
            try:
                return _of_node(lambda seat: seat.waited_for(lambda: question(seat)), seat)
            except _Lost as lost:
                self._lost(seat)
                cause = lost.__cause__
        raise RemoteError(f"{self.pool}: {cause}") from cause

    def asked(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise translated(error, self.pool) from error

    def info(self, command: bytes) -> flight.FlightInfo:
        return self._anywhere(lambda seat: seat.client.get_flight_info(flight.FlightDescriptor.for_command(command), seat.options))

    def listed(self) -> list[flight.FlightInfo]:
        return self._anywhere(lambda seat: list(seat.client.list_flights(options=seat.options)))

    def action(self, name: str, body: bytes) -> list[bytes]:
        def act(seat: _Seat) -> list[bytes]:
            return [result.body.to_pybytes() for result in seat.client.do_action(flight.Action(name, body), seat.options)]

        return self._anywhere(act)

    def put(self, command: bytes, reader: pa.RecordBatchReader, again: Callable[[], pa.RecordBatchReader] | None = None) -> bytes:
        """Puts rows once: where the node is lost, all of them are sent to another under the same name, which keeps them if the first did not.
        Rows that come only once cannot be sent again."""
        command = json.dumps({**json.loads(command), "upload": secrets.token_hex(16)}).encode()
        first = [reader]

        def send(seat: _Seat) -> bytes:
            if not first and again is None:
                raise GodwitError("the node was lost, and these rows cannot be read again; it was put or it was not: look, or put a table")
            rows = first.pop() if first else again()  # type: ignore[misc]
            return put_rows(seat.client, seat.options, command, rows)

        return self._anywhere(send)

    def fetch(self, endpoint: flight.FlightEndpoint) -> Iterator[pa.RecordBatch]:
        """Rows of one endpoint, batch by batch, each once, whichever node it comes from."""
        come: list[bytes] = []
        lost = 0
        while True:
            seat, at = self._here(), 0
            try:
                for batch in _rows(seat, endpoint.ticket):
                    digest = _digest(batch)
                    at += 1
                    if at > len(come):
                        come.append(digest)
                        lost = 0
                        yield batch
                    elif come[at - 1] != digest:
                        raise _other_rows(self.pool)
                if at < len(come):
                    raise _other_rows(self.pool)
                return
            except _Lost as error:
                lost += 1
                if lost >= LOST_AT_MOST:
                    raise RemoteError(f"{self.pool}: {error.__cause__}") from error.__cause__
                self._lost(seat)

    def fetch_all(self, endpoints: list[flight.FlightEndpoint]) -> Iterator[pa.RecordBatch]:
        if len(endpoints) == 1:
            yield from self.fetch(endpoints[0])
            return
        # There may be many parts: what is fetched again when a node is lost is one of them.
        yield from ahead([lambda endpoint=endpoint: self.fetch(endpoint) for endpoint in endpoints], os.cpu_count() or 1)  # type: ignore[misc]


def _other_rows(pool: str) -> GodwitError:
    return InputError(
        f"{pool}: the rows are not, or not in the same order, those that came before the node was lost; ask again,"
        " with ORDER BY where it is a statement"
    )


def _rows(seat: _Seat, ticket: flight.Ticket) -> Iterator[pa.RecordBatch]:
    with seat.reading(_of_node(lambda seat: seat.waited_for(lambda: seat.client.do_get(ticket, seat.options)), seat)) as reader:
        while True:
            try:
                chunk = _of_node(lambda _: reader.read_chunk(), seat)
            except StopIteration:
                return
            if chunk.data is not None:
                yield chunk.data


def _digest(batch: pa.RecordBatch) -> bytes:
    """What a batch was: the digest of it as an Arrow stream, with the values that its dictionaries have."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return hashlib.blake2b(sink.getvalue(), digest_size=16).digest()


def _in_time(seat: _Seat, action: str, body: bytes) -> dict[str, Any]:
    options = flight.FlightCallOptions(headers=seat.headers, timeout=GRANT_SECONDS)

    def ask(seat: _Seat) -> dict[str, Any]:
        answers = list(seat.client.do_action(flight.Action(action, body), options))
        found = json.loads(answers[0].body.to_pybytes()) if answers else {}
        return found if isinstance(found, dict) else {}

    return _of_node(ask, seat)


def _of_node(question: Callable[[_Seat], T], seat: _Seat) -> T:
    """An answer of a node; that it is gone is told apart from what it refuses."""
    try:
        return question(seat)
    except (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError) as error:
        raise _Lost from error
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise translated(error, seat.url) from error
