"""Reads a table into Spark by JDBC and by the data source of godwit: spark_reads.py JAR POSTGRESQL_PORT GODWIT_URL ROWS.

Job: `read`, all rows by `jdbc` or `godwit` in a given number of partitions. Spark reads every value: it counts rows and sums a hash of all columns.
So the reader cannot omit a column, and the sums show that all readers return the same rows.
"""

import datetime
import os
import sys
from typing import Any

import godwit.spark
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs


def jobs(jar: str, port: str, url: str, rows: str) -> Jobs:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.jars": jar,
        "spark.driver.memory": "4g",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    }
    spark = SparkSession.builder.master(f"local[{os.cpu_count()}]").config(map=settings).getOrCreate()
    godwit.spark.register(spark)

    def by_jdbc(partitions: int) -> Any:
        reader = spark.read.format("jdbc").option("url", f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=bench").option("dbtable", "taxi")
        # The fetch size in rows: the default, all rows, exceeds the memory of a worker.
        reader = reader.option("fetchsize", 50_000).option("driver", "org.postgresql.Driver")
        if partitions > 1:
            # Rows are in the order of this column, one every two seconds, and PostgreSQL has an index of it.
            last = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=2 * int(rows))
            bounds = {"partitionColumn": "pickup_at", "lowerBound": "2026-01-01 00:00:00", "upperBound": f"{last:%Y-%m-%d %H:%M:%S}"}
            reader = reader.options(**bounds, numPartitions=str(partitions))
        return reader.option("preferTimestampNTZ", "true").load()

    def by_godwit(partitions: int) -> Any:
        return spark.read.format("godwit").options(url=url, parts=str(partitions)).load("taxi.parquet")

    def read(way: str, partitions: int) -> dict[str, Any]:
        frame = {"jdbc": by_jdbc, "godwit": by_godwit}[way](partitions)
        # Texts, integers and doubles have the same hash with every reader.
        hashed = f.sum(f.xxhash64(*[f.col(name) for name in sorted(frame.columns)]).cast("decimal(38,0)"))
        found = frame.agg(f.count(f.lit(1)), hashed).collect()[0]
        return {"rows": found[0], "hash": str(found[1]), "partitions": frame.rdd.getNumPartitions()}

    return {"read": read}


if __name__ == "__main__":
    job_loop.run_jobs(jobs(*sys.argv[1:]))
