"""The parts of a query, for workers in other processes and on other machines."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import flight

from ._errors import GodwitError, RemoteError
from ._flight import Connection, ahead

if TYPE_CHECKING:
    from ._query import Query


def fetch_part(connect: Callable[[str | None], Connection], ticket: bytes, locations: Sequence[str], what: str) -> Iterator[pa.RecordBatch]:
    """Rows of a part, from the first of the servers that have it and can be reached; none named is the server that was asked."""
    places: list[str | None] = [*locations] or [None]
    for last, place in enumerate(places, 1 - len(places)):
        sent = False
        try:
            with contextlib.closing(connect(place)) as connection:
                for batch in connection.fetch(flight.FlightEndpoint(ticket, [])):
                    sent = True
                    yield batch
                return
        except RemoteError as error:
            # Rows that somebody has already are not sent twice.
            if sent or last == 0:
                raise GodwitError(f"a part of {what} was not read: {error}") from error


class Parts:
    """The parts that a query had when it was asked. Holds no connection: it can be sent to other processes."""

    def __init__(self, query: Query):
        info = query._info()
        connection = query._connection
        self._access = (connection.url, connection.token, connection.ca)
        self._columns = query._columns
        self._what = query._text
        self._tickets = [(endpoint.ticket.ticket, [location.uri.decode() for location in endpoint.locations]) for endpoint in info.endpoints]
        self._schema = query.schema.remove_metadata().serialize().to_pybytes()

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def schema(self) -> pa.Schema:
        """The columns of all parts."""
        return pa.ipc.read_schema(pa.py_buffer(self._schema))

    def _connection(self, place: str | None) -> Connection:
        url, token, ca = self._access
        return Connection(place or url, token, ca)

    def fetch(self, at: int) -> Iterator[pa.RecordBatch]:
        """Rows of one part."""
        ticket, locations = self._tickets[at]
        for batch in fetch_part(self._connection, ticket, locations, self._what):
            yield batch if self._columns is None else batch.select(self._columns)

    def fetch_all(self, which: Sequence[int], at_once: int) -> Iterator[pa.RecordBatch]:
        """Rows of several parts, one after the other, so many of them fetched at a time."""
        return ahead([functools.partial(self.fetch, at) for at in which], at_once)
