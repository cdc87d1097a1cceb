"""DuckDB's Quack protocol: quack.py serve FILE.parquet THREADS, or quack.py client ADDRESS THREADS.

The server loads a Parquet file into a table in memory, prints its address, and runs until its standard input is closed. Jobs of the client: `sql`
returns the rows of a statement that the server runs, as an Arrow table; `digest` returns a digest of them.
"""

import secrets
import socket
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs


def connect(threads: int) -> duckdb.DuckDBPyConnection:
    """Opens a database in memory with the extensions of the packages `duckdb-extension-*`, which have the version of DuckDB."""
    connection = duckdb.connect(config={"threads": threads})
    for name in ("httpfs", "quack"):
        module = __import__(f"duckdb_extension_{name}")
        (file,) = Path(module.__path__[0]).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection


def serve(file: str, threads: int) -> None:
    connection = connect(threads)
    connection.execute(f"CREATE TABLE {Path(file).stem} AS FROM '{file}'")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    connection.execute(f"CALL quack_serve('quack:127.0.0.1:{port}', token => '{token}', disable_ssl => true)")
    print(f"{token}@127.0.0.1:{port}", flush=True)
    sys.stdin.read()


def jobs(address: str, threads: int) -> Jobs:
    connection = connect(threads)
    token, _, place = address.partition("@")

    def table(sql: str) -> pa.Table:
        return connection.execute(f"FROM quack_query('quack:{place}', ?, token => '{token}', disable_ssl => true)", [sql]).to_arrow_table()

    return {"sql": lambda sql: job_loop.first_row_values(table(sql)), "digest": lambda sql: job_loop.table_digest(table(sql))}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        job_loop.run_jobs(jobs(sys.argv[2], int(sys.argv[3])))
