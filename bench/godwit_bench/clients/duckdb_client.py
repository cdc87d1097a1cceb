"""DuckDB in this process: duckdb_client.py THREADS. Jobs: `sql` returns rows as an Arrow table; `digest` returns a digest of the rows."""

import sys

import duckdb
import pyarrow as pa

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs


def jobs(threads: int) -> Jobs:
    connection = duckdb.connect(config={"threads": threads})

    def table(sql: str) -> pa.Table:
        return connection.sql(sql).to_arrow_table()

    return {"sql": lambda sql: job_loop.first_row_values(table(sql)), "digest": lambda sql: job_loop.table_digest(table(sql))}


if __name__ == "__main__":
    job_loop.run_jobs(jobs(int(sys.argv[1])))
