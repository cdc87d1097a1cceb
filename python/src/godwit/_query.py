"""Rows that were asked for and are not fetched yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ._flight import Connection

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyarrow import flight


class Query:
    """Rows of a dataset or of a statement: nothing is read before they are asked for, and each time they are, they are read anew.

    Whatever takes Arrow streams takes a `Query` as it is: ``polars.DataFrame(query)``, ``pyarrow.table(query)``,
    ``duckdb.from_arrow(query.to_reader())``.
    """

    def __init__(self, connection: Connection, command: bytes, text: str, columns: list[str] | None = None):
        """``columns``: the order that was asked for, where the server has another."""
        self._connection = connection
        self._columns = columns
        self._command = command
        self._text = text
        self._known: pa.Schema | None = None

    def __repr__(self) -> str:
        return f"<godwit.Query {self._text}>"

    def _info(self) -> flight.FlightInfo:
        info = self._connection.info(self._command)
        schema = info.schema
        if self._columns is not None:
            schema = pa.schema([schema.field(name) for name in self._columns], schema.metadata)
        self._known = schema
        return info

    def _rows(self, info: flight.FlightInfo) -> Iterator[pa.RecordBatch]:
        batches = self._connection.fetch_all(info.endpoints)
        return batches if self._columns is None else (batch.select(self._columns) for batch in batches)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; nothing is read for them."""
        if self._known is None:
            self._info()
        return self._known

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Batches as they come, in the order of the rows, fetched ahead over as many streams as the server offers."""
        yield from self._rows(self._info())

    __iter__ = to_batches

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as a reader of pyarrow, which DuckDB and others take."""
        info = self._info()
        return pa.RecordBatchReader.from_batches(self.schema, self._rows(info))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as a table of pyarrow."""
        return self.to_reader().read_all()

    def to_polars(self) -> polars.DataFrame:
        """All rows as a frame of polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a frame of pandas."""
        return self.to_arrow().to_pandas()

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a relation of DuckDB."""
        import duckdb

        return (connection or duckdb.default_connection()).from_arrow(self.to_arrow())
