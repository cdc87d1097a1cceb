#!/usr/bin/env python3
"""A table into Spark: JDBC from PostgreSQL, in one partition and in several, beside the data source of godwit, in one and in several.

The same rows, 18 columns with the shape of taxi trips, lie in PostgreSQL (with an index of the column that partitions are cut by) and, as Parquet, below a
`godwit serve`. Spark runs on all cores and looks at every value; all ways have to give the same sum of hashes. Each is asked once before it is measured.
"""

import os
import subprocess

import _clients
import _databases
import _measure as bench

PACKAGE = bench.ROOT / "python" / "src"
SERIAL_JDBC, JDBC, SERIAL, PARALLEL = "JDBC, one partition", "JDBC, {} partitions", "godwit, one partition", "godwit, {} partitions"


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table (default: 1,000,000)")
    parser.add_argument("--partitions", type=int, default=4, help="partitions of the parallel ways (default: 4)")
    options = parser.parse_args()
    bench.need("java", "mvn", "psql")
    godwit = bench.godwit_binary(options)
    os.environ["PYTHONPATH"] = str(PACKAGE)
    interpreters = {name: _clients.python(name) for name in ("databases", "spark")}
    # What Maven tells when it fetches them is not the directory.
    jars = subprocess.check_output([bench.ROOT / "bench" / "spark" / "jdbc" / "fetch.sh"], text=True).strip()
    file = _clients.table_file(interpreters["databases"], options, "taxi", options.rows)
    bench.into_page_cache(file)
    many = options.partitions
    jdbc, parallel = JDBC.format(many), PARALLEL.format(many)
    ways = {SERIAL_JDBC: ("jdbc", 1), jdbc: ("jdbc", many), SERIAL: ("godwit", 1), parallel: ("godwit", many)}
    with _clients.scratch_directory("spark") as scratch, _databases.Postgresql(scratch) as postgresql, _clients.Served(godwit, file.parent) as served:
        loader = _clients.Client(interpreters["databases"], "databases.py", "adbc", postgresql.port)
        loader.ask("load", table="taxi", file=str(file))
        loader.close()
        for statement in ("CREATE INDEX ON taxi (pickup_at)", "ANALYZE taxi"):
            bench.run(["psql", "-q", "-h", "127.0.0.1", "-p", postgresql.port, "-U", "bench", "-c", statement, "postgres"])
        words = (f"{jars}/postgresql-42.7.8.jar", postgresql.port, f"grpc+tcp://{served.address}", options.rows)
        spark = _clients.Client(interpreters["spark"], "spark_reads.py", *words)
        # The machine of Java and the workers are children of the client.
        spent = lambda: [sum(map(_clients.tree_cpu_s, pids)) for pids in ((spark.process.pid,), (postgresql.pid, served.pid))]  # noqa: E731

        def ask(way, partitions):
            before = spent()
            answer = spark.ask("read", way=way, partitions=partitions)
            client, servers = (now - then for now, then in zip(spent(), before))
            return answer | {"cpu_s": client + servers, "server_cpu_s": servers}

        asks = {name: lambda way=way: ask(*way) for name, way in ways.items()}
        for asked in asks.values():
            asked()
        measured = _clients.interleaved(options.rounds, asks, "spark")
        spark.close()
    found = {(answer["rows"], answer["hash"]) for rounds in measured.values() for answer in rounds}
    if len(found) > 1 or next(iter(found))[0] != options.rows:
        bench.fail(f"not all ways give the same rows: { {name: rounds[0] for name, rounds in measured.items()} }")
    promised = [
        bench.promise(f"{SERIAL_JDBC} over {parallel}", bench.quotients(measured[SERIAL_JDBC], measured[parallel], "wall_s"), at_least=2),
        bench.promise(f"{jdbc} over {parallel}", bench.quotients(measured[jdbc], measured[parallel], "wall_s"), at_least=1),
        bench.promise(f"{SERIAL_JDBC} over {SERIAL}", bench.quotients(measured[SERIAL_JDBC], measured[SERIAL], "wall_s"), at_least=1),
    ]
    around = bench.host(godwit)
    around["versions"] |= {"postgresql": postgresql.version, "jdbc": "postgresql JDBC 42.7.8", "java": bench.first_line(["java", "-version"])}
    around["versions"] |= _clients.versions(interpreters["spark"], "pyspark", "pyarrow")
    text = "\n".join([
        "# A table into Spark",
        "",
        f"{options.rows:,} rows of 18 columns, {options.rounds} interleaved rounds; {bench.machine(around)}. {_clients.version_words(around)}.",
        "",
        "CPU is that of Spark, its workers and the server.",
        "",
        *_clients.table(measured, parallel, 1, "s"),
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("spark_read", options.results, text, around, promised, {"measured": measured})


if __name__ == "__main__":
    main()
