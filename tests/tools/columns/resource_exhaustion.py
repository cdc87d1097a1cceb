"""Runs statements that would exhaust the server or leave its sandbox, while another client runs small queries.

Arguments: an unused directory, the address HOST:PORT, the name of a table, the time limit of a statement in seconds. Prints a line for each
statement: verdict, seconds, expected outcome, and the statement. The last line has the count, the maximum seconds and failures of the other client.
"""

import sys
import threading
import time

import adbc_driver_flightsql.dbapi as dbapi


def statements_with_outcome(table):
    """Yields statements with their expected outcome: refused, stopped or any."""
    files = ["/etc/passwd", "../secret.csv", "file:///etc/passwd", "s3://bucket/x.parquet", "http://127.0.0.1:1/x.csv", "/proc/self/environ"]
    for file in files:
        yield "refused", f"SELECT * FROM '{file}'"
        yield "refused", f"SELECT * FROM \"{file}\""
        yield "refused", f"SELECT * FROM read_csv('{file}')"
        yield "refused", f"CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{file}'"
        yield "refused", f"COPY (SELECT 1) TO '{file}'"
        yield "refused", f"SELECT * FROM reads('{file}')"
        yield "refused", f"SELECT * FROM genotypes('{file}')"
        yield "refused", f"SELECT * FROM pileup('{file}')"
        yield "refused", f"SELECT * FROM mismatches('{file}')"
        yield "refused", f"SELECT * FROM insert_sizes('{file}')"
        yield "refused", f"SELECT * FROM coverage_windows('{file}', 1)"
    for statement in [
        "SET datafusion.execution.batch_size = 1",
        "SET datafusion.catalog.location = '/etc'",
        "RESET datafusion.execution.batch_size",
        "SHOW ALL",
        "SHOW datafusion.execution.batch_size",
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE SCHEMA s",
        "CREATE DATABASE d",
        "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP TABLE t",
        "DROP SCHEMA data",
        f"INSERT INTO \"{table}\" VALUES (1)",
        f"UPDATE \"{table}\" SET flags = 0",
        f"DELETE FROM \"{table}\"",
        f"TRUNCATE TABLE \"{table}\"",
        "BEGIN",
        "COMMIT",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "DEALLOCATE p",
        "SELECT 1; DROP TABLE t",
        "EXPLAIN COPY (SELECT 1) TO '/tmp/x.csv'",
        "EXPLAIN ANALYZE INSERT INTO t VALUES (1)",
        "WITH x AS (INSERT INTO t VALUES (1)) SELECT * FROM x",
        "SELECT * INTO t FROM (VALUES (1)) v",
        "CALL shutdown()",
        "LOAD 'x.so'",
        "ATTACH 'x' AS y",
        "GRANT ALL ON t TO PUBLIC",
    ]:
        yield "refused", statement
    for statement in [
        "SELECT length(repeat('A', 500000000))",
        "SELECT length(repeat('A', 2000000000))",
        "SELECT repeat(repeat('A', 40000), 40000)",
        "SELECT length(repeat(repeat('A', 30000), 30000))",
        "SELECT lpad('x', 2000000000, 'y')",
        "SELECT length(rpad('x', 2000000000, 'y'))",
        "SELECT replace(repeat('a', 50000), 'a', repeat('b', 50000))",
        "SELECT length(regexp_replace(repeat('a', 50000), 'a', repeat('b', 50000), 'g'))",
        "SELECT array_repeat(1, 2000000000)",
        "SELECT array_repeat(array_repeat('abcdefgh', 30000), 30000)",
        "SELECT array_length(range(0, 4000000000))",
        "SELECT range(0, 1000000000)",
        "SELECT array_to_string(array_repeat('abcdefgh', 200000000), ',')",
        "SELECT count(*) FROM generate_series(1, 10000000000000)",
        "SELECT array_agg(value) FROM generate_series(1, 10000000000)",
        "SELECT string_agg(CAST(value AS VARCHAR), ',') FROM generate_series(1, 10000000000)",
        "SELECT value FROM generate_series(1, 10000000000) ORDER BY value DESC LIMIT 5",
        "SELECT count(DISTINCT value) FROM generate_series(1, 10000000000)",
        "SELECT value, count(*) FROM generate_series(1, 10000000000) GROUP BY value",
        "SELECT sum(value) OVER (ORDER BY value) FROM generate_series(1, 10000000000)",
        "SELECT count(*) FROM generate_series(1, 1000000) a CROSS JOIN generate_series(1, 1000000) b",
        "SELECT max(a.value + b.value) FROM generate_series(1, 10000000) a CROSS JOIN generate_series(1, 10000000) b",
        "SELECT sum(a.value * b.value * c.value) FROM generate_series(1, 100000) a, generate_series(1, 100000) b, generate_series(1, 100000) c",
        f"SELECT count(a.name || b.name || c.name) FROM \"{table}\" a, \"{table}\" b, \"{table}\" c",
        f"SELECT a.name, b.name FROM \"{table}\" a, \"{table}\" b, \"{table}\" c WHERE a.position + b.position + c.position = -7",
        f"SELECT count(*) FROM \"{table}\" a JOIN \"{table}\" b ON a.flags <> b.flags JOIN \"{table}\" c ON b.position <> c.position WHERE length(a.name || b.name || c.name) < 0",
        f"SELECT count(*) FROM coverage_windows('{table}', 1) a CROSS JOIN coverage_windows('{table}', 1) b WHERE a.depth_sum + b.depth_sum = -7",
        f"SELECT sum(a.depth * b.depth) FROM pileup('{table}') a CROSS JOIN pileup('{table}') b WHERE a.depth + b.depth = -7",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r AS (SELECT 'x' AS s UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT a.n FROM r a, r b) SELECT count(*) FROM r",
        "SELECT unnest(range(0, 2000000000))",
        "SELECT " + " || ".join(["repeat('A', 100000000)"] * 20),
        "SELECT count(*) FROM (SELECT DISTINCT a.value * 7919 + b.value FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b)",
        "SELECT array_sort(range(0, 500000000))",
        "SELECT concat(repeat('A', 1000000000), repeat('B', 1000000000))",
        "SELECT translate(repeat('A', 400000000), 'A', 'BCDEF')",
        "SELECT to_hex(value) || repeat('z', 100000) FROM generate_series(1, 1000000) ORDER BY 1 DESC",
        "SELECT array_agg(repeat('z', 100000)) FROM generate_series(1, 1000000)",
        "SELECT approx_percentile_cont(value, 0.5) FROM generate_series(1, 100000000000)",
        "SELECT flatten(array_repeat(range(0, 100000), 100000))",
        "SELECT array_distinct(range(0, 1000000000))",
    ]:
        yield "stopped", statement
    doubled = "WITH d0 AS (SELECT 'xxxxxxxxxxxxxxxx' AS s)" + "".join(f", d{n + 1} AS (SELECT s || s AS s FROM d{n})" for n in range(28))
    yield "stopped", doubled + " SELECT length(s) FROM d28"
    # Deep and long statements may succeed, within the limits of time and memory.
    yield "any", "SELECT " + "(" * 5000 + "1" + ")" * 5000
    yield "any", "SELECT " + "NOT " * 20000 + "true"
    yield "any", "SELECT " + "-" + " -" * 20000 + "1"
    yield "any", "SELECT " + " + ".join(["1"] * 20000)
    yield "any", "SELECT " + "abs(" * 3000 + "1" + ")" * 3000
    yield "any", "SELECT 1" + " UNION ALL SELECT 1" * 3000
    yield "any", "SELECT * FROM " + "(SELECT * FROM " * 1000 + "(SELECT 1)" + ")" * 1000
    yield "any", "SELECT 1 WHERE 1 IN (" + ", ".join(map(str, range(100000))) + ")"
    yield "any", "SELECT CASE " + " ".join(f"WHEN 1 = {n} THEN {n}" for n in range(10000)) + " END"
    yield "any", "SELECT '" + "x" * 5000000 + "'"
    yield "any", "SELECT 'a' ~ '" + "(a?){1000}" * 20 + "'"
    yield "any", "SELECT 'a' ~ '((((a{1,100}){1,100}){1,100}){1,100})'"
    for expression in [
        "(" * 5000 + "1" + ")" * 5000,
        "!" * 20000 + "1",
        " == ".join(["1"] * 20000),
        " + ".join(["mapq"] * 20000),
        'seq =~ "((((a{1,100}){1,100}){1,100}){1,100})"',
        'seq =~ "' + "(a?){1000}" * 20 + '"',
        'seq =~ "' + "x" * 2000000 + '"',
        " || ".join('qname =~ "(a|b)*c"' for _ in range(2000)),
        "\\",
        "[é]",
    ]:
        yield "any", f"SELECT count(*) FROM reads('{table}') WHERE filter('{expression}')"
    for expression in ["(" * 5000 + "QUAL" + ")" * 5000, "-" * 20000 + "1", "QUAL+" * 20000 + "1", 'ALT~"' + "x" * 2000000 + '"', "XI[0-999999999]=1"]:
        variants = f"SELECT 1.0 AS quality, ['A'] AS alternates FROM reads('{table}')"
        yield "any", f"SELECT count(*) FROM ({variants}) WHERE filter('{expression}')"
    yield "any", "SELECT gff_attributes(repeat('a=b;', 10000000))"
    yield "any", "SELECT \"" + "x" * 1000000 + "\""
    yield "any", "\x00\x01\x02"
    yield "any", "SELECT " + ", ".join(f"{n} AS c{n}" for n in range(5000))


def query(address, statement):
    with dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def main():
    address, table, limit_s = sys.argv[2], sys.argv[3], float(sys.argv[4])
    stop, waits, failures = threading.Event(), [], []

    def query_repeatedly():
        while not stop.is_set():
            started = time.monotonic()
            try:
                assert query(address, "SELECT 41 + 1") == [(42,)]
            except Exception as error:  # every error counts
                failures.append(str(error))
            waits.append(time.monotonic() - started)
            time.sleep(0.2)

    other = threading.Thread(target=query_repeatedly)
    other.start()
    try:
        for meant, statement in statements_with_outcome(table):
            started = time.monotonic()
            try:
                query(address, statement)
                ended = "answered"
            except Exception as error:
                ended = "refused " + " ".join(str(error).split())[:200]
            took = time.monotonic() - started
            verdict = "ok" if took < limit_s and (meant == "any" or ended != "answered") else "BAD"
            print(verdict, f"{took:.2f}", meant, statement[:80].encode("unicode_escape").decode(), "->", ended, flush=True)
    finally:
        stop.set()
        other.join()
    print("other", len(waits), f"{max(waits):.2f}", *failures[:3])


main()
