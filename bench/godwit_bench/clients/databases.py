"""Fetches a whole database table into Python by different clients: databases.py CLIENT PORT, for PostgreSQL or ClickHouse on this machine.

Jobs: `fetch` a table; `digest`, a digest of its rows; `load`, by ADBC, a Parquet file into a table of PostgreSQL. Clients that return rows
of Python objects drop each batch after it was received, so that large tables fit in memory. The other clients return an Arrow table, except
`copy_binary`, whose bytes are not decoded, and `clickhouse`, which returns numpy arrays.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from godwit_bench.clients import job_loop

FETCH_ROWS = 65_536
DATABASE = {"host": "127.0.0.1", "user": "bench", "dbname": "postgres"}
ODBC = "Driver=psqlodbcw.so;Server=127.0.0.1;Port={port};Database=postgres;Uid=bench;UseDeclareFetch=1;Fetch=65536;MaxVarcharSize=32"
URI = "postgresql://bench@127.0.0.1:{port}/postgres"


def everything(table: str) -> str:
    return f"SELECT * FROM {table}"


class Rows:
    """A client that returns rows as tuples."""

    def __init__(self, port: int) -> None:
        self.port = port

    def batches(self, table: str) -> Iterator[list[Any]]:
        raise NotImplementedError

    def fetch(self, table: str) -> dict[str, Any]:
        return {"rows": sum(len(batch) for batch in self.batches(table))}

    def digest(self, table: str) -> dict[str, Any]:
        rows = [tuple(row) for batch in self.batches(table) for row in batch]
        return job_loop.table_digest(pa.table([pa.array(column) for column in zip(*rows, strict=False)], [str(at) for at in range(len(rows[0]))]))


class Pyodbc(Rows):
    def __init__(self, port: int) -> None:
        import pyodbc

        self.connection = pyodbc.connect(ODBC.format(port=port))

    def batches(self, table: str) -> Iterator[list[Any]]:
        cursor = self.connection.execute(everything(table))
        while batch := cursor.fetchmany(FETCH_ROWS):
            yield batch


class Psycopg(Rows):
    def __init__(self, port: int) -> None:
        import psycopg

        self.connection = psycopg.connect(port=port, autocommit=False, **DATABASE)

    def batches(self, table: str) -> Iterator[list[Any]]:
        with self.connection.cursor(name="rows", binary=True) as cursor:
            cursor.execute(everything(table))
            while batch := cursor.fetchmany(FETCH_ROWS):
                yield batch


class Columns:
    """A client that returns rows as an Arrow table."""

    def table(self, name: str) -> pa.Table:
        raise NotImplementedError

    def fetch(self, table: str) -> dict[str, Any]:
        return {"rows": self.table(table).num_rows}

    def digest(self, table: str) -> dict[str, Any]:
        return job_loop.table_digest(self.table(table))


class ArrowOdbc(Columns):
    def __init__(self, port: int) -> None:
        self.text = ODBC.format(port=port)

    def table(self, name: str) -> pa.Table:
        import arrow_odbc

        reader = arrow_odbc.read_arrow_batches_from_odbc(query=everything(name), connection_string=self.text, batch_size=FETCH_ROWS, max_text_size=32)
        return pa.Table.from_batches(list(reader), reader.schema)


class CopyCsv(Columns):
    """`COPY` as CSV, read by pyarrow."""

    def __init__(self, port: int) -> None:
        import psycopg

        self.connection = psycopg.connect(port=port, autocommit=True, **DATABASE)

    def table(self, name: str) -> pa.Table:
        from pyarrow import csv

        with self.connection.cursor().copy(f"COPY {name} TO STDOUT (FORMAT csv, HEADER)") as copy:
            return csv.read_csv(pa.py_buffer(b"".join(copy)))


class CopyBinary:
    """The bytes of a binary `COPY`, which are not decoded."""

    def __init__(self, port: int) -> None:
        import psycopg

        self.connection = psycopg.connect(port=port, autocommit=True, **DATABASE)

    def fetch(self, table: str) -> dict[str, Any]:
        with self.connection.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as copy:
            return {"rows": None, "bytes": sum(map(len, copy))}


class Connectorx(Columns):
    protocol = "binary"

    def __init__(self, port: int) -> None:
        self.uri = URI.format(port=port)

    def table(self, name: str) -> pa.Table:
        import connectorx

        return connectorx.read_sql(self.uri, everything(name), return_type="arrow", protocol=self.protocol)


class ConnectorxRows(Connectorx):
    """PostgreSQL's row protocol, converted to Arrow."""

    protocol = "cursor"


class AdbcPostgresql(Columns):
    def __init__(self, port: int) -> None:
        import adbc_driver_postgresql.dbapi

        self.connection = adbc_driver_postgresql.dbapi.connect(URI.format(port=port))
        self.cursor = self.connection.cursor()

    def load(self, table: str, file: Path) -> dict[str, Any]:
        import pyarrow.parquet as pq

        source = pq.ParquetFile(file)
        batches = pa.RecordBatchReader.from_batches(source.schema_arrow, source.iter_batches())
        rows = self.cursor.adbc_ingest(table, batches, mode="create")
        self.connection.commit()
        self.cursor.execute(f"ANALYZE {table}")
        self.connection.commit()
        return {"rows": rows}

    def table(self, name: str) -> pa.Table:
        self.cursor.execute(everything(name))
        return self.cursor.fetch_arrow_table()


class Clickhouse:
    """Blocks of columns, as in a vectorised protocol."""

    def __init__(self, port: int) -> None:
        from clickhouse_driver import Client

        self.client = Client("127.0.0.1", port=port, compression=False, settings={"use_numpy": True, "strings_as_bytes": True})

    def fetch(self, table: str) -> dict[str, Any]:
        columns = self.client.execute(everything(table), columnar=True)
        return {"rows": len(columns[0])}


CLIENTS = {
    "pyodbc": Pyodbc,
    "psycopg": Psycopg,
    "arrow_odbc": ArrowOdbc,
    "copy_csv": CopyCsv,
    "copy_binary": CopyBinary,
    "connectorx": Connectorx,
    "connectorx_rows": ConnectorxRows,
    "adbc": AdbcPostgresql,
    "clickhouse": Clickhouse,
}


if __name__ == "__main__":
    client = CLIENTS[sys.argv[1]](int(sys.argv[2]))
    job_loop.run_jobs({job: getattr(client, job) for job in ("fetch", "digest", "load") if hasattr(client, job)})
