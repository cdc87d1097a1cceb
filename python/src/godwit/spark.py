"""Datasets of a server as data frames of Spark (PySpark 4.1 or later).

::

    import godwit.spark

    godwit.spark.register(spark)
    reads = spark.read.format("godwit").option("url", "grpc+tcp://127.0.0.1:8815").load("S.bam")

Each part that the server offers is a partition of Spark, fetched by whichever worker gets it.

Frames are written as datasets that clients put (a server with ``--writable``), by ``append`` or ``overwrite``::

    frame.write.format("godwit").option("url", "grpc+tcp://127.0.0.1:8815").mode("overwrite").save("panel")

Each task puts its rows under a temporary name; the driver has them as one table when all are there, which is there whole or not at all.

Options: ``url``, ``token`` and ``ca`` as for `godwit.connect`; ``columns`` (``name,position``), ``region`` (``chr1:1-1000``, several with blanks
between), ``parts`` (default 8); ``sql``, a statement in place of a dataset. Equality of ``contig`` and bounds of ``position`` and ``end_position``
that a frame is filtered by become a region that is looked up in the index; the rest is Spark's.
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
from ._flight import Connection, dataset_command, in_order, region_text, statement_command
from ._parts import fetch_part
from ._session import Session

DEFAULT_PARTS = 8
# Spark has no numbers without a sign: each becomes the next larger one that has.
SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def for_spark(kind: pa.DataType) -> pa.DataType:
    """The type of a column as Spark has it."""
    if pa.types.is_dictionary(kind):
        return for_spark(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(for_spark(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, for_spark(field.type), field.nullable) for field in kind])
    return SIGNED.get(kind, kind)


def schema_for_spark(schema: pa.Schema) -> pa.Schema:
    """The columns as Spark has them."""
    return pa.schema([pa.field(field.name, for_spark(field.type), field.nullable) for field in schema])


def register(spark: SparkSession) -> None:
    """Makes the format ``godwit`` known to a session, and lets it look filters up in indexes."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(GodwitDataSource)


class Part(InputPartition):  # type: ignore[misc]
    """A part of the rows: its ticket, and the servers that have it, best first; none is the server that was asked."""

    def __init__(self, ticket: bytes, locations: list[str]):
        super().__init__(None)
        self.ticket = ticket
        self.locations = locations


class GodwitDataSource(DataSource):  # type: ignore[misc]
    """What ``spark.read.format("godwit")`` reads."""

    @classmethod
    def name(cls) -> str:
        return "godwit"

    def schema(self) -> StructType:
        return from_arrow_schema(schema_for_spark(Asked(self.options).info([]).schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        return GodwitReader(Asked(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        asked = Asked(self.options)
        if asked.sql is not None:
            raise UsageError('the option "sql" says what is read, not what is written')
        return GodwitWriter(asked, overwrite)


class Asked:
    """What was asked for by options. Is sent to workers, so it holds no connection."""

    def __init__(self, options: Mapping[str, str]):
        given = {name.lower(): value for name, value in options.items()}
        if "url" not in given:
            raise UsageError('the option "url" is missing: where is the server?')
        if ("path" in given) == ("sql" in given):
            raise UsageError('either a dataset, as in .load("S.bam"), or the option "sql" with a statement')
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
        """Schema and parts; ``regions`` where the options name none."""
        connection = self.connection()
        try:
            if self.sql is not None:
                return connection.info(statement_command(self.sql))
            columns = self.columns and in_order(self.columns, connection.info(dataset_command(self.dataset)).schema)
            return connection.info(dataset_command(self.dataset, columns=columns, regions=self.regions or regions or None, parts=self.parts))
        finally:
            connection.close()


class GodwitReader(DataSourceReader):  # type: ignore[misc]
    """Parts of the rows."""

    def __init__(self, asked: Asked):
        self.asked = asked
        self.regions: list[str] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        if self.asked.sql is None and (region := region_of(filters)):
            self.regions = [region]
        # A region may have more rows than the filters let through: Spark looks at each again.
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        info = self.asked.info(self.regions)
        return [Part(endpoint.ticket.ticket, [location.uri.decode() for location in endpoint.locations]) for endpoint in info.endpoints]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        what = self.asked.dataset or "the statement"
        for batch in fetch_part(self.asked.connection, partition.ticket, partition.locations, what):
            yield from pa.Table.from_batches([batch]).cast(schema_for_spark(batch.schema)).combine_chunks().to_batches()


@dataclass
class Put(WriterCommitMessage):  # type: ignore[misc]
    """What a task has put: the name under which its rows wait, none where it had none."""

    name: str | None


class GodwitWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Puts rows."""

    def __init__(self, asked: Asked, overwrite: bool):
        self.asked = asked
        self.mode = "replace" if overwrite else "append"
        self.prefix = f"spark-{uuid.uuid4().hex}-"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Put:
        first = next(iterator, None)
        if first is None:
            return Put(None)
        # An attempt at a task that is made again has a name of its own, and only one of them is told of.
        name = f"{self.prefix}{uuid.uuid4().hex}"
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], iterator))
        with self.session() as session:
            session.put(name, reader, temporary=True)
        return Put(f"temporary/{name}.parquet")

    def commit(self, messages: list[Put | None]) -> None:
        names = [message.name for message in messages if message is not None and message.name is not None]
        with self.session() as session:
            try:
                if names:
                    session.put(self.asked.dataset, self.gathered(session, names), self.mode)
            finally:
                self.forget(session)

    def abort(self, messages: list[Put | None]) -> None:
        with self.session() as session:
            self.forget(session)

    def session(self) -> Session:
        return Session(self.asked.connection())

    @staticmethod
    def gathered(session: Session, names: list[str]) -> pa.RecordBatchReader:
        """The rows of all tasks, in the order of the tasks, a few batches at a time."""
        schema = session.table(names[0]).schema.remove_metadata()
        return pa.RecordBatchReader.from_batches(schema, (batch for name in names for batch in session.table(name, parts=1)))

    def forget(self, session: Session) -> None:
        """Drops what tasks have put, those that were given up included."""
        for dataset in session.datasets():
            if dataset.name.startswith(f"temporary/{self.prefix}"):
                session.drop(dataset.name)


def region_of(filters: Sequence[Filter]) -> str | None:
    """A region, 1-based and closed, with at least the rows that all of these filters let through; `None` without a contig."""
    contig: str | None = None
    first, end = 0, None
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        column = path[0] if len(path) == 1 else None
        if column == "contig" and isinstance(one, EqualTo):
            contig = one.value
        elif column == "end_position" and isinstance(one, GreaterThan | GreaterThanOrEqual):
            # Rows end behind their last base; without a base, where they begin.
            first = max(first, one.value - 1)
        elif column == "position" and isinstance(one, GreaterThan | GreaterThanOrEqual):
            first = max(first, one.value)
        elif column == "position" and isinstance(one, EqualTo):
            first, end = max(first, one.value), smaller(end, one.value + 1)
        elif column == "position" and isinstance(one, LessThan | LessThanOrEqual):
            end = smaller(end, one.value + isinstance(one, LessThanOrEqual))
    if contig is None or (end is not None and end <= first):
        return None
    return region_text(contig, first + 1, end)


def smaller(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)
