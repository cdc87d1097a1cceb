"""DuckDB in this process: duck.py THREADS. Jobs: `sql`, whose rows come as an Arrow table; `digest`, what they sum up to."""

import sys

import _loop
import duckdb


def jobs(threads):
    connection = duckdb.connect(config={"threads": threads})

    def table(sql):
        return connection.sql(sql).to_arrow_table()

    return {"sql": lambda sql: _loop.told(table(sql)), "digest": lambda sql: _loop.digest(table(sql))}


if __name__ == "__main__":
    _loop.serve(jobs(int(sys.argv[1])))
