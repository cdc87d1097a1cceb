"""Datasets of a server as data frames of Spark (PySpark 4.1 or later).

::

    import godwit.spark

    godwit.spark.register(spark)
    reads = spark.read.format("godwit").option("url", "grpc+tcp://127.0.0.1:8815").load("S.bam")

Each part that the server offers is a partition of Spark, fetched by whichever worker gets it.

Options: ``url``, ``token`` and ``ca`` as for `godwit.connect`; ``columns`` (``name,position``), ``region`` (``chr1:1-1000``, several with blanks
between), ``parts`` (default 8); ``sql``, a statement in place of a dataset. Equality of ``contig`` and bounds of ``position`` and ``end_position``
that a frame is filtered by become a region that is looked up in the index; the rest is Spark's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import flight
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ._errors import UsageError
from ._flight import Connection, dataset_command, in_order, statement_command
from ._parts import fetch_part
from ._session import plain

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
        self.regions = [plain(region) for region in given.get("region", "").split()]
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
    # A name with a colon or a blank could be read as something else.
    if contig is None or ":" in contig or " " in contig or (end is not None and end <= first):
        return None
    return contig if (first, end) == (0, None) else f"{contig}:{first + 1}-{end if end is not None else ''}"


def smaller(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)
