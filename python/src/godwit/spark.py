"""Datasets of a server as data frames of Spark (PySpark 4.1 or later).

::

    import godwit.spark

    godwit.spark.register(spark)
    reads = spark.read.format("godwit").option("url", "grpc+tcp://127.0.0.1:8815").load("S.bam")

Each part that the server offers is a partition of Spark, which an executor fetches.

Frames are uploaded as datasets (to a server with ``--writable``), by ``append`` or ``overwrite``::

    frame.write.format("godwit").option("url", "grpc+tcp://127.0.0.1:8815").mode("overwrite").save("panel")

Each task uploads its rows under a temporary name. When all tasks are done, the driver combines them into one table, which is stored
completely or not at all.

Options: ``url``, ``token`` and ``ca`` as for `godwit.connect`; ``columns`` (``name,position``), ``region`` (``chr1:1-1000``, several separated
by blanks), ``parts`` (default 8); ``sql``, a statement instead of a dataset. Filters on ``contig`` (equality), ``position`` and ``end_position``
(bounds) become a region that the server looks up in the index; Spark applies all other filters.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import flight
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ._errors import UsageError
from ._flight_client import Connection, dataset_command, format_region, in_schema_order, statement_command
from ._query_parts import fetch_part
from ._session import Session

DEFAULT_PARTS = 8
# Spark has no unsigned integers: each type becomes the next larger signed type.
SIGNED_TYPE = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a column in Spark."""
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, spark_type(field.type), field.nullable) for field in kind])
    return SIGNED_TYPE.get(kind, kind)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Returns the schema with the types of Spark."""
    return pa.schema([pa.field(field.name, spark_type(field.type), field.nullable) for field in schema])


def register(spark: SparkSession) -> None:
    """Registers the format ``godwit`` in a session, and enables filter pushdown."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(GodwitDataSource)


class QueryPartition(InputPartition):  # type: ignore[misc]
    """A part of the rows: its ticket and its locations, best first; without locations it is on the server of the query."""

    def __init__(self, ticket: bytes, locations: list[str]):
        super().__init__(None)
        self.ticket = ticket
        self.locations = locations


class GodwitDataSource(DataSource):  # type: ignore[misc]
    """The data source of ``spark.read.format("godwit")``."""

    @classmethod
    def name(cls) -> str:
        return "godwit"

    def schema(self) -> StructType:
        return from_arrow_schema(spark_schema(ReadOptions(self.options).info([]).schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        return GodwitReader(ReadOptions(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        read_options = ReadOptions(self.options)
        if read_options.sql is not None:
            raise UsageError('the option "sql" is for reading, not for writing')
        return GodwitWriter(read_options, overwrite)


class ReadOptions:
    """Options of a read or a write. Executors receive a copy, so it holds no connection."""

    def __init__(self, options: Mapping[str, str]):
        given = {name.lower(): value for name, value in options.items()}
        if "url" not in given:
            raise UsageError('the option "url", the address of the server, is missing')
        if ("path" in given) == ("sql" in given):
            raise UsageError('set either a dataset, as in .load("S.bam"), or the option "sql" with a statement')
        self.url = given["url"]
        self.token = given.get("token")
        self.ca = Path(given["ca"]).read_bytes() if "ca" in given else None
        self.sql = given.get("sql")
        self.dataset = given.get("path", "")
        self.columns = [name.strip() for name in given["columns"].split(",")] if "columns" in given else None
        self.regions = given.get("region", "").split()
        self.parts = int(given.get("parts", DEFAULT_PARTS))

    def connection(self, url: str | None = None) -> Connection:
        return Connection(url or self.url, self.token, self.ca)

    def info(self, regions: list[str]) -> flight.FlightInfo:
        """Returns schema and parts; ``regions`` are used if the options name none."""
        connection = self.connection()
        try:
            if self.sql is not None:
                return connection.get_flight_info(statement_command(self.sql))
            columns = self.columns and in_schema_order(self.columns, connection.get_flight_info(dataset_command(self.dataset)).schema)
            return connection.get_flight_info(
                dataset_command(self.dataset, columns=columns, regions=self.regions or regions or None, parts=self.parts)
            )
        finally:
            connection.close()


class GodwitReader(DataSourceReader):  # type: ignore[misc]
    """Reads the parts of the rows."""

    def __init__(self, read_options: ReadOptions):
        self.options = read_options
        self.regions: list[str] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        if self.options.sql is None and (region := region_from_filters(filters)):
            self.regions = [region]
        # A region may have more rows than the filters accept: Spark applies the filters again.
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        info = self.options.info(self.regions)
        return [QueryPartition(endpoint.ticket.ticket, [location.uri.decode() for location in endpoint.locations]) for endpoint in info.endpoints]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueryPartition)
        description = self.options.dataset or "the statement"
        for batch in fetch_part(self.options.connection, partition.ticket, partition.locations, description):
            yield from pa.Table.from_batches([batch]).cast(spark_schema(batch.schema)).combine_chunks().to_batches()


@dataclass
class TaskCommit(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task: the temporary name of its rows; None if it had no rows."""

    name: str | None


class GodwitWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Uploads rows."""

    def __init__(self, read_options: ReadOptions, overwrite: bool):
        self.options = read_options
        self.mode = "replace" if overwrite else "append"
        self.prefix = f"spark-{uuid.uuid4().hex}-"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        first = next(iterator, None)
        if first is None:
            return TaskCommit(None)
        # Each attempt at a task has a name of its own, and Spark commits only one attempt.
        name = f"{self.prefix}{uuid.uuid4().hex}"
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], iterator))
        with self.session() as session:
            session.put(name, reader, temporary=True)
        return TaskCommit(f"temporary/{name}.parquet")

    def commit(self, messages: list[TaskCommit | None]) -> None:
        names = [message.name for message in messages if message is not None and message.name is not None]
        with self.session() as session:
            try:
                if names:
                    session.put(self.options.dataset, self.read_temporary_rows(session, names), self.mode)
            finally:
                self.drop_temporary_datasets(session)

    def abort(self, messages: list[TaskCommit | None]) -> None:
        with self.session() as session:
            self.drop_temporary_datasets(session)

    def session(self) -> Session:
        return Session(self.options.connection())

    @staticmethod
    def read_temporary_rows(session: Session, names: list[str]) -> pa.RecordBatchReader:
        """Returns a reader of the rows of all tasks, in the order of the tasks, which holds a few batches at a time."""
        schema = session.table(names[0]).schema.remove_metadata()
        return pa.RecordBatchReader.from_batches(schema, (batch for name in names for batch in session.table(name, parts=1)))

    def drop_temporary_datasets(self, session: Session) -> None:
        """Drops the temporary datasets of all tasks, including failed attempts."""
        for dataset in session.datasets():
            if dataset.name.startswith(f"temporary/{self.prefix}"):
                session.drop(dataset.name)


def region_from_filters(filters: Sequence[Filter]) -> str | None:
    """Returns a region, 1-based and closed, that contains all rows that the filters accept; `None` without a contig."""
    contig: str | None = None
    first, end = 0, None
    for condition in filters:
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        column = path[0] if len(path) == 1 else None
        if column == "contig" and isinstance(condition, EqualTo):
            contig = condition.value
        elif column == "end_position" and isinstance(condition, GreaterThan | GreaterThanOrEqual):
            # The end is behind the last base; without bases it is equal to the start.
            first = max(first, condition.value - 1)
        elif column == "position" and isinstance(condition, GreaterThan | GreaterThanOrEqual):
            first = max(first, condition.value)
        elif column == "position" and isinstance(condition, EqualTo):
            first, end = max(first, condition.value), minimum(end, condition.value + 1)
        elif column == "position" and isinstance(condition, LessThan | LessThanOrEqual):
            end = minimum(end, condition.value + isinstance(condition, LessThanOrEqual))
    if contig is None or (end is not None and end <= first):
        return None
    return format_region(contig, first + 1, end)


def minimum(bound: int | None, value: int) -> int:
    return value if bound is None else min(bound, value)
