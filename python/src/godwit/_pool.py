"""A pool of servers that acts as one server: the pool grants each client a member, and calls continue at another member if that one is lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import queue
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from ._background_threads import is_exiting, start_background_thread
from ._errors import GodwitError, InputError, RemoteError, UsageError
from ._flight_client import Connection, get_bound_statement_info, prefetch, translate_error, upload_rows

logger = logging.getLogger("godwit")

SCHEME = "godwit+pool://"
# Interval of health checks, which have a connection of their own, and timeouts of the first and the second attempt; the second uses a new
# connection. A machine without power sends nothing, and TCP would wait for 15 minutes. gRPC sent no keepalive pings once a stream had
# stalled.
HEALTH_CHECK_INTERVAL_S = 0.25
HEALTH_CHECK_TIMEOUTS_S = (0.5, 0.7)
# Timeout for connecting to a member and for its response to PoolGrant.
GRANT_TIMEOUT_S = 1.5
# Period after a loss in which a member is tried last.
SUSPECT_PERIOD_S = 3.0
# Pause between two rounds in which no member responded.
RETRY_INTERVAL_S = 0.3
# Members that may be lost in a row without a batch in between.
MAX_LOST_MEMBERS = 12
# The reason in the messages of gRPC with OpenSSL and with BoringSSL.
UNTRUSTED_CERTIFICATE = re.compile(r"certificate[ _]verify[ _]failed(: [\w -]+)?|Peer name \S+ is not in peer certificate", re.IGNORECASE)

T = TypeVar("T")


def pool_member_urls(url: str, pool: str | Path | None) -> tuple[str, list[str]]:
    """Returns the name of a pool and the URLs of its members: those of its file, or all addresses to which the name resolves."""
    name = url.removeprefix(SCHEME).rstrip("/")
    if not name or "/" in name:
        raise UsageError(f"{url} is not the URL of a pool; write {SCHEME}NAME")
    if pool is None:
        host, _, port = name.partition(":")
        try:
            found = socket.getaddrinfo(host, int(port or 8815), type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            raise RemoteError(f"cannot find {name}: {error}; check the name, or set pool=FILE") from error
        hosts = dict.fromkeys(str(address[0]) for *_, address in found)
        return name, [f"grpc+tls://{f'[{address}]' if ':' in address else address}:{port or 8815}" for address in hosts]
    try:
        import tomllib
    except ModuleNotFoundError as error:
        raise UsageError("reading the file of a pool requires Python 3.11 or later") from error
    try:
        description = tomllib.loads(Path(pool).read_text())
        declared_name, urls = description["name"], [member["url"] for member in description["node"]]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{pool} does not describe a pool: {error}") from error
    if declared_name != name:
        raise UsageError(f"{pool} describes the pool {declared_name}, not {name}")
    return name, urls


class _LostMemberError(Exception):
    """A member is lost or is shutting down; the cause is the error that showed it."""


class _MemberConnection(Connection):
    """A connection to a pool member, with a health check until it is closed or lost."""

    def __init__(self, url: str, token: str | None, ca: bytes | None, grant: str):
        transport = {
            # Otherwise gRPC shares one connection to a member, with the failures that it had before.
            "grpc.use_local_subchannel_pool": 1,
            "grpc.initial_reconnect_backoff_ms": 200,
        }
        super().__init__(url, token, ca, transport)
        self.headers.append((b"godwit-grant", grant.encode()))
        self.options = flight.FlightCallOptions(headers=self.headers)
        self.lost_event, self.closed = threading.Event(), threading.Event()
        self._transport = transport
        self._readers: set[Any] = set()
        self._lock = threading.Lock()

    def start_health_check(self) -> None:
        start_background_thread("godwit-health", self._check_health)

    def _check_health(self) -> None:
        client: flight.FlightClient | None = None
        while not self.closed.wait(HEALTH_CHECK_INTERVAL_S) and not is_exiting.is_set():
            for seconds in HEALTH_CHECK_TIMEOUTS_S:
                try:
                    client = client or Connection(self.url, self.token, self.ca, self._transport).client
                    # Any response shows that the member is up.
                    list(client.do_action(flight.Action("PoolStatus", b"look"), flight.FlightCallOptions(headers=self.headers, timeout=seconds)))
                    break
                except (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError, GodwitError):
                    client = None
                except (flight.FlightError, pa.ArrowException, OSError):
                    break
            else:
                self.mark_lost()
                return

    def mark_lost(self) -> None:
        """Marks the member as lost and cancels the calls that wait for it."""
        self.lost_event.set()
        with self._lock:
            readers = list(self._readers)
        for reader in readers:
            with contextlib.suppress(flight.FlightError, pa.ArrowException):
                reader.cancel()

    def close(self) -> None:
        self.closed.set()
        super().close()

    @contextlib.contextmanager
    def cancel_on_loss(self, reader: Any) -> Iterator[Any]:
        """Cancels a reader if the member is lost."""
        with self._lock:
            self._readers.add(reader)
        try:
            if self.lost_event.is_set():
                raise _LostMemberError from flight.FlightUnavailableError("it does not answer")
            yield reader
        finally:
            with self._lock:
                self._readers.discard(reader)
            with contextlib.suppress(flight.FlightError, pa.ArrowException):
                reader.cancel()

    def call_until_lost(self, operation: Callable[[], T]) -> T:
        """Runs an operation on a thread and waits for its result until the member is lost; then the thread is abandoned."""
        answers: queue.Queue[tuple[bool, Any]] = queue.Queue()

        def run() -> None:
            try:
                answers.put((True, operation()))
            except BaseException as error:
                answers.put((False, error))

        start_background_thread("godwit-call", run)
        while True:
            try:
                succeeded, answer = answers.get(timeout=0.05)
            except queue.Empty:
                if self.lost_event.is_set():
                    raise _LostMemberError from flight.FlightUnavailableError("it does not answer")
                continue
            if succeeded:
                return answer  # type: ignore[no-any-return]
            raise answer


class PoolConnection(Connection):
    """A connection to the member that the pool grants."""

    # More parts than are fetched concurrently: if a member is lost, only the part in progress is fetched again.
    default_parts = 32

    def __init__(self, url: str, members: list[str], token: str | None, ca: bytes | None, wait: float):
        self.pool, self.members, self.token, self.ca, self.wait = url, members, token, ca, wait
        self._suspected_at: dict[str, float] = {}
        # Members whose certificates are not trusted, which are logged once.
        self._untrusted: set[str] = set()
        self._lock = threading.Lock()
        self._member: _MemberConnection | None = None

    @property
    def url(self) -> str:  # type: ignore[override]
        """The URL of the current member; other processes connect to it."""
        return self._current_member().url

    @property
    def client(self) -> flight.FlightClient:  # type: ignore[override]
        return self._current_member().client

    @property
    def options(self) -> flight.FlightCallOptions:  # type: ignore[override]
        return self._current_member().options

    def close(self) -> None:
        with self._lock:
            if self._member is not None:
                self._member.close()
                self._member = None

    # Choice of the member.

    def _current_member(self) -> _MemberConnection:
        with self._lock:
            if self._member is None:
                self._member = self._acquire_member()
                self._member.start_health_check()
            return self._member

    def _replace_member(self, member: _MemberConnection) -> None:
        member.mark_lost()
        member.closed.set()
        with self._lock:
            self._suspected_at[member.url] = time.monotonic()
            # Another thread may have replaced it already.
            if self._member is member:
                self._member = None
                logger.warning("pool %s: %s is lost; continuing at another member", self.pool, member.url)

    def _members_by_health(self) -> list[str]:
        def is_suspect(url: str) -> bool:
            return time.monotonic() - self._suspected_at.get(url, -SUSPECT_PERIOD_S) < SUSPECT_PERIOD_S

        return sorted(self.members, key=is_suspect)

    def _acquire_member(self) -> _MemberConnection:
        """Returns a connection to the member that the pool grants; if no member responds, retries for ``wait`` seconds."""
        until, is_warned = time.monotonic() + self.wait, False
        grant = secrets.token_hex(8)
        while True:
            rejection: GodwitError | None = None
            is_any_lost = False
            for url in self._members_by_health():
                try:
                    connection = self._request_grant(url, grant)
                except _LostMemberError:
                    is_any_lost = True
                    continue
                except GodwitError as error:
                    rejection = error
                    continue
                return connection
            is_too_late = time.monotonic() >= until
            if rejection is not None and (is_too_late or not is_any_lost):
                raise rejection
            if is_too_late:
                raise RemoteError(f"{self.pool}: none of its {len(self.members)} members answered for {self.wait:g} s")
            if not is_warned:
                is_warned = True
                logger.warning("no member of the pool %s answers; waiting up to %g s", self.pool, self.wait)
            time.sleep(RETRY_INTERVAL_S)

    def _request_grant(self, url: str, grant: str) -> _MemberConnection:
        """Requests a grant from a member and connects to the member that the grant names."""
        avoid = [url for url in self.members if time.monotonic() - self._suspected_at.get(url, -SUSPECT_PERIOD_S) < SUSPECT_PERIOD_S]
        if len(avoid) == len(self.members):
            avoid = []
        connection = _MemberConnection(url, self.token, self.ca, grant)
        try:
            answer = _call_action_with_timeout(connection, "PoolGrant", json.dumps({"id": grant, "avoid": avoid}).encode())
            granted = next((location for location in answer.get("locations", []) if location in self.members), url)
            if granted == url:
                return connection
        except _LostMemberError as lost:
            connection.close()
            raise self._mark_failed(url, lost) from lost.__cause__
        except BaseException:
            connection.close()
            raise
        connection.close()
        other = _MemberConnection(granted, self.token, self.ca, grant)
        try:
            _call_action_with_timeout(other, "PoolStatus", b"look")
        except _LostMemberError as lost:
            other.close()
            self._mark_failed(granted, lost)
            # Not a rejection, even if the certificate is not trusted: the member that answered is asked for another one.
            raise lost
        except BaseException:
            other.close()
            raise
        return other

    def _mark_failed(self, url: str, lost: _LostMemberError) -> Exception:
        """Avoids a member for a while. Returns ``lost``, or an error about a certificate that is not trusted, which it logs once."""
        self._suspected_at[url] = time.monotonic()
        found = UNTRUSTED_CERTIFICATE.search(str(lost.__cause__))
        if found is None:
            return lost
        error = RemoteError(f"the certificate of {url} is not trusted; name the certificate of its authority with ca=FILE: {found[0]}")
        if url not in self._untrusted:
            self._untrusted.add(url)
            logger.warning("pool %s: %s is not used: %s", self.pool, url, error)
        return error

    # Calls. If the member is lost, a call is repeated at another member.

    def _call_any_member(self, operation: Callable[[_MemberConnection], T]) -> T:
        for _ in range(MAX_LOST_MEMBERS):
            member = self._current_member()
            try:
                return _call_member(lambda member: member.call_until_lost(lambda: operation(member)), member)
            except _LostMemberError as lost:
                self._replace_member(member)
                cause = lost.__cause__
        raise RemoteError(f"{self.pool}: {cause}") from cause

    def call(self, operation: Callable[[], T]) -> T:
        try:
            return operation()
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise translate_error(error, self.pool) from error

    def get_flight_info(self, command: bytes) -> flight.FlightInfo:
        return self._call_any_member(lambda member: member.client.get_flight_info(flight.FlightDescriptor.for_command(command), member.options))

    def get_bound_statement_info(self, sql: str, row: pa.RecordBatch) -> flight.FlightInfo:
        # A prepared statement exists at one member only.
        return self._call_any_member(lambda member: get_bound_statement_info(member.client, member.options, sql, row))

    def list_flights(self) -> list[flight.FlightInfo]:
        return self._call_any_member(lambda member: list(member.client.list_flights(options=member.options)))

    def do_action(self, name: str, body: bytes) -> list[bytes]:
        def act(member: _MemberConnection) -> list[bytes]:
            return [result.body.to_pybytes() for result in member.client.do_action(flight.Action(name, body), member.options)]

        return self._call_any_member(act)

    def upload(self, command: bytes, reader: pa.RecordBatchReader, reread: Callable[[], pa.RecordBatchReader] | None = None) -> bytes:
        """Uploads rows once: if the member is lost, all rows are sent to another member with the same upload ID, which stores them unless the
        first member did. Rows that can be read only once cannot be sent again."""
        command = json.dumps({**json.loads(command), "upload": secrets.token_hex(16)}).encode()
        first = [reader]

        def send(member: _MemberConnection) -> bytes:
            if not first and reread is None:
                raise GodwitError(
                    "the pool member was lost, and these rows cannot be read again; check whether the dataset was stored, or upload a table"
                )
            rows = first.pop() if first else reread()  # type: ignore[misc]
            return upload_rows(member.client, member.options, command, rows)

        return self._call_any_member(send)

    def fetch_endpoint(self, endpoint: flight.FlightEndpoint) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one endpoint, batch by batch, each once, also if the member changes."""
        received: list[bytes] = []
        losses = 0
        while True:
            member, at = self._current_member(), 0
            try:
                for batch in _read_batches(member, endpoint.ticket):
                    digest = _batch_digest(batch)
                    at += 1
                    if at > len(received):
                        received.append(digest)
                        losses = 0
                        yield batch
                    elif received[at - 1] != digest:
                        raise _changed_rows_error(self.pool)
                if at < len(received):
                    raise _changed_rows_error(self.pool)
                return
            except _LostMemberError as error:
                losses += 1
                if losses >= MAX_LOST_MEMBERS:
                    raise RemoteError(f"{self.pool}: {error.__cause__}") from error.__cause__
                self._replace_member(member)

    def fetch_endpoints(self, endpoints: list[flight.FlightEndpoint]) -> Iterator[pa.RecordBatch]:
        if len(endpoints) == 1:
            yield from self.fetch_endpoint(endpoints[0])
            return
        # Many parts are possible; if a member is lost, only one of them is fetched again.
        yield from prefetch([lambda endpoint=endpoint: self.fetch_endpoint(endpoint) for endpoint in endpoints], os.cpu_count() or 1)  # type: ignore[misc]


def _changed_rows_error(pool: str) -> GodwitError:
    return InputError(
        f"{pool}: the rows, or their order, differ from those received before the member was lost; run the query again,"
        " with ORDER BY if it is a statement"
    )


def _read_batches(member: _MemberConnection, ticket: flight.Ticket) -> Iterator[pa.RecordBatch]:
    with member.cancel_on_loss(
        _call_member(lambda member: member.call_until_lost(lambda: member.client.do_get(ticket, member.options)), member)
    ) as reader:
        while True:
            try:
                chunk = _call_member(lambda _: reader.read_chunk(), member)
            except StopIteration:
                return
            if chunk.data is not None:
                yield chunk.data


def _batch_digest(batch: pa.RecordBatch) -> bytes:
    """Returns the digest of a batch as an Arrow stream, which includes the values of its dictionaries."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return hashlib.blake2b(sink.getvalue(), digest_size=16).digest()


def _call_action_with_timeout(member: _MemberConnection, action: str, body: bytes) -> dict[str, Any]:
    options = flight.FlightCallOptions(headers=member.headers, timeout=GRANT_TIMEOUT_S)

    def run(member: _MemberConnection) -> dict[str, Any]:
        answers = list(member.client.do_action(flight.Action(action, body), options))
        found = json.loads(answers[0].body.to_pybytes()) if answers else {}
        return found if isinstance(found, dict) else {}

    return _call_member(run, member)


def _call_member(operation: Callable[[_MemberConnection], T], member: _MemberConnection) -> T:
    """Runs a call at a member. Raises `_LostMemberError` if the member is lost, and another error if it rejects the call."""
    try:
        return operation(member)
    except (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError) as error:
        raise _LostMemberError from error
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise translate_error(error, member.url) from error
