"""Parts of a query, for workers in other processes and on other machines."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import flight

from ._errors import GodwitError, RemoteError
from ._flight_client import Connection, prefetch

if TYPE_CHECKING:
    from ._query import Query


def fetch_part(connect: Callable[[str | None], Connection], ticket: bytes, locations: Sequence[str], description: str) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a part from the first location that can be reached; without locations, from the server of the query."""
    candidates: list[str | None] = [*locations] or [None]
    for last, location in enumerate(candidates, 1 - len(candidates)):
        has_yielded = False
        try:
            with contextlib.closing(connect(location)) as connection:
                for batch in connection.fetch_endpoint(flight.FlightEndpoint(ticket, [])):
                    has_yielded = True
                    yield batch
                return
        except RemoteError as error:
            # Rows that were yielded already must not be yielded twice.
            if has_yielded or last == 0:
                raise GodwitError(f"a part of {description} could not be read: {error}") from error


class QueryParts:
    """The parts of a query at the time of construction. Holds no connection, so it can be sent to other processes."""

    def __init__(self, query: Query):
        info = query._get_flight_info()
        connection = query._connection
        self._credentials = (connection.url, connection.token, connection.ca)
        self._columns = query._columns
        self._description = query._description
        self._tickets = [(endpoint.ticket.ticket, [location.uri.decode() for location in endpoint.locations]) for endpoint in info.endpoints]
        self._schema = query.schema.remove_metadata().serialize().to_pybytes()

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def schema(self) -> pa.Schema:
        """The schema of all parts."""
        return pa.ipc.read_schema(pa.py_buffer(self._schema))

    def _connection(self, location: str | None) -> Connection:
        url, token, ca = self._credentials
        return Connection(location or url, token, ca)

    def read_part(self, at: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one part."""
        ticket, locations = self._tickets[at]
        for batch in fetch_part(self._connection, ticket, locations, self._description):
            yield batch if self._columns is None else batch.select(self._columns)

    def read_parts(self, which: Sequence[int], at_once: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows of several parts, one after the other; ``at_once`` parts are fetched concurrently."""
        return prefetch([functools.partial(self.read_part, at) for at in which], at_once)
