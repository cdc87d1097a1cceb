"""A table into Spark: JDBC from PostgreSQL, in one partition and in several, beside the data source of godwit, in one and in several.

The same rows, 18 columns with the shape of taxi trips, are in PostgreSQL (with an index of the column that defines the partitions) and, as
Parquet, below a `godwit serve`. Spark runs on all cores and reads every value; all readers must return the same sum of hashes. Each reader
runs once before it is measured.
"""

import functools
import os
import subprocess

from godwit_bench import harness
from godwit_bench.databases import servers
from godwit_bench.harness import client_processes

SERIAL_JDBC, JDBC, SERIAL, PARALLEL = "JDBC, one partition", "JDBC, {} partitions", "godwit, one partition", "godwit, {} partitions"


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default: 1,000,000)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the parallel readers (default: 4)")
    options = parser.parse_args()
    harness.require_tools("java", "mvn", "psql")
    godwit = harness.godwit_binary(options)
    os.environ["PYTHONPATH"] = str(harness.PYTHON_PACKAGE)
    interpreters = {name: client_processes.client_python(name) for name in ("databases", "spark")}
    # The output of Maven while it fetches the driver is not the directory.
    jars = subprocess.check_output([harness.ROOT / "bench" / "spark" / "jdbc" / "fetch.sh"], text=True).strip()
    file = client_processes.table_file(interpreters["databases"], options, "taxi", options.rows)
    harness.load_into_page_cache(file)
    many = options.partitions
    jdbc, parallel = JDBC.format(many), PARALLEL.format(many)
    ways = {SERIAL_JDBC: ("jdbc", 1), jdbc: ("jdbc", many), SERIAL: ("godwit", 1), parallel: ("godwit", many)}
    with (
        client_processes.scratch_directory("spark") as scratch,
        servers.Postgresql(scratch) as postgresql,
        client_processes.DataServer(godwit, file.parent) as served,
    ):
        loader = client_processes.Client(interpreters["databases"], "databases", "adbc", postgresql.port)
        loader.run_job("load", table="taxi", file=str(file))
        loader.close()
        for statement in ("CREATE INDEX ON taxi (pickup_at)", "ANALYZE taxi"):
            harness.run_checked(["psql", "-q", "-h", "127.0.0.1", "-p", postgresql.port, "-U", "bench", "-c", statement, "postgres"])
        args = (f"{jars}/postgresql-42.7.8.jar", postgresql.port, f"grpc+tcp://{served.address}", options.rows)
        spark = client_processes.Client(interpreters["spark"], "spark_reads", *args)

        # The JVM and the workers are children of the client.
        def spent() -> list[float]:
            return [sum(map(client_processes.tree_cpu_s, pids)) for pids in ((spark.process.pid,), (postgresql.pid, served.pid))]

        def ask(way: str, partitions: int) -> harness.Result:
            before = spent()
            answer = spark.run_job("read", way=way, partitions=partitions)
            client, servers = (now - then for now, then in zip(spent(), before, strict=False))
            return answer | {"cpu_s": client + servers, "server_cpu_s": servers}

        asks = {name: functools.partial(ask, *way) for name, way in ways.items()}
        for asked in asks.values():
            asked()
        measured = client_processes.run_interleaved(options.rounds, asks, "spark")
        spark.close()
    found = {(answer["rows"], answer["hash"]) for rounds in measured.values() for answer in rounds}
    if len(found) > 1 or next(iter(found))[0] != options.rows:
        harness.exit_with_error(f"the readers return different rows: { {name: rounds[0] for name, rounds in measured.items()} }")
    promised = [
        harness.target(f"{SERIAL_JDBC} over {parallel}", harness.ratios(measured[SERIAL_JDBC], measured[parallel], "wall_s"), at_least=2),
        harness.target(f"{jdbc} over {parallel}", harness.ratios(measured[jdbc], measured[parallel], "wall_s"), at_least=1),
        harness.target(f"{SERIAL_JDBC} over {SERIAL}", harness.ratios(measured[SERIAL_JDBC], measured[SERIAL], "wall_s"), at_least=1),
    ]
    around = harness.host_description(godwit)
    around["versions"] |= {
        "postgresql": postgresql.version,
        "jdbc": "postgresql JDBC 42.7.8",
        "java": harness.first_output_line(["java", "-version"]),
    }
    around["versions"] |= client_processes.package_versions(interpreters["spark"], "pyspark", "pyarrow")
    text = "\n".join(
        [
            "# A table into Spark",
            "",
            f"{options.rows:,} rows of 18 columns, {options.rounds} interleaved rounds; {harness.format_host(around)}. "
            f"{client_processes.format_versions(around)}.",
            "",
            "CPU is that of Spark, its workers and the server.",
            "",
            *client_processes.markdown_table(measured, parallel, 1, "s"),
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("spark_read", options.results, text, around, promised, {"measured": measured})


if __name__ == "__main__":
    main()
