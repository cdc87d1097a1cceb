"""Queries: rows that are fetched when they are used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ._flight_client import Connection
from ._record_files import write_records

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyarrow import flight


class Query:
    """Rows of a dataset or of a statement. Each use of a `Query` reads the rows again; before that, nothing is read.

    Every library that accepts Arrow streams accepts a `Query`: ``polars.DataFrame(query)``, ``pyarrow.table(query)``,
    ``duckdb.from_arrow(query.to_reader())``.
    """

    def __init__(
        self,
        connection: Connection,
        command: bytes,
        text: str,
        columns: list[str] | None = None,
        *,
        statement: str,
        parameters: pa.RecordBatch | None = None,
    ):
        """``columns``: the requested order, if the server has another one. ``statement``: the SQL statement with the same rows.
        ``parameters``: the values of its parameters, one row."""
        self._parameters = parameters
        self._connection = connection
        self._statement = statement
        self._columns = columns
        self._command = command
        self._description = text
        self._schema: pa.Schema | None = None

    def __repr__(self) -> str:
        return f"<godwit.Query {self._description}>"

    def _get_flight_info(self) -> flight.FlightInfo:
        if self._parameters is None:
            info = self._connection.get_flight_info(self._command)
        else:
            info = self._connection.get_bound_statement_info(self._statement, self._parameters)
        schema = info.schema
        if self._columns is not None:
            schema = pa.schema([schema.field(name) for name in self._columns], schema.metadata)
        self._schema = schema
        return info

    def _fetch(self, info: flight.FlightInfo) -> Iterator[pa.RecordBatch]:
        batches = self._connection.fetch_endpoints(info.endpoints)
        return batches if self._columns is None else (batch.select(self._columns) for batch in batches)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns, without reading rows."""
        if self._schema is None:
            self._get_flight_info()
        return self._schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields batches in the order of the rows, prefetched over as many streams as the server offers."""
        yield from self._fetch(self._get_flight_info())

    __iter__ = to_batches

    def to_reader(self) -> pa.RecordBatchReader:
        """Returns a reader of pyarrow, which DuckDB and other libraries accept."""
        info = self._get_flight_info()
        return pa.RecordBatchReader.from_batches(self.schema, self._fetch(info))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Returns all rows as a table of pyarrow."""
        return self.to_reader().read_all()

    def to_polars(self) -> polars.DataFrame:
        """Returns all rows as a data frame of polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Returns all rows as a data frame of pandas."""
        return self.to_arrow().to_pandas()

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Returns all rows as a relation of DuckDB."""
        import duckdb

        return (connection or duckdb.default_connection()).from_arrow(self.to_arrow())

    def write_bam(self, path: str | os.PathLike[str], *, header_from: str | None = None) -> Path:
        """Writes all rows as a BAM file, with an index if the header has ``SO:coordinate``, and a manifest. Returns the path.

        Args:
            path: The file, ``.bam``. It gets its name when it is complete.
            header_from: Dataset whose header the file gets (default: the dataset of the query).

        The query must have all columns of reads except ``end_position``, in rows that the order of the header allows.
        """
        return write_records(self._connection, self._statement, self._parameters, path, (".bam",), header_from)

    def write_vcf(self, path: str | os.PathLike[str], *, header_from: str | None = None) -> Path:
        """Writes all rows as a VCF or BCF file, with an index and a manifest. Returns the path.

        Args:
            path: The file, ``.vcf.gz`` or ``.bcf``. It gets its name when it is complete.
            header_from: Dataset whose header the file gets (default: the dataset of the query).

        The query must have all columns of its dataset, sorted by contig and position.
        """
        return write_records(self._connection, self._statement, self._parameters, path, (".vcf.gz", ".bcf"), header_from)
