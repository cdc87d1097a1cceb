"""DuckDB in this process: duckdb_client.py THREADS. Jobs: `sql` returns rows as an Arrow table; `digest` returns a digest of the rows."""

import sys

import _job_loop
import duckdb


def jobs(threads):
    connection = duckdb.connect(config={"threads": threads})

    def table(sql):
        return connection.sql(sql).to_arrow_table()

    return {"sql": lambda sql: _job_loop.first_row_values(table(sql)), "digest": lambda sql: _job_loop.table_digest(table(sql))}


if __name__ == "__main__":
    _job_loop.run_jobs(jobs(int(sys.argv[1])))
