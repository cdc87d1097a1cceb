"""Random rules, random questions: nothing that a rule hides is in any byte that a server sends.

Arguments: a directory that is not used, what to do, and words for it. `make ROOT SEED` writes datasets whose cells can be told from one
another, `policy ROOT SEED` rules about who sees which of them. `ask ADDRESS ROOT SEED GODWIT TOKENS SCRATCH COUNT` asks a server, over
a relay that keeps every byte, as each of the callers, and compares with what the rules say by an account of its own; it prints
how much was asked and seen.
"""

import base64
import gzip
import json
import os
import random
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import pyarrow
from pyarrow import flight

from rules_data import (
    CALLERS,
    CONTIGS,
    DATASETS,
    ROWS,
    a_region,
    groups_in,
    groups_of,
    is_whole,
    make,
    marks_in,
    marks_of,
    overlaps,
    policy,
    rules_of,
    seen_of,
)


class Relay:
    """Passes everything on, and keeps what comes from the server."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.to = (host, int(port))
        self.kept = bytearray()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            here, _ = self.listener.accept()
            there = socket.create_connection(self.to)
            threading.Thread(target=self.pass_on, args=(here, there, False), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(there, here, True), daemon=True).start()

    def pass_on(self, source, sink, keeps):
        try:
            while piece := source.recv(1 << 16):
                if keeps:
                    with self.lock:
                        self.kept += piece
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def take(self):
        with self.lock:
            kept, self.kept = bytes(self.kept), bytearray()
        return kept


class Caller:
    def __init__(self, name, token, address):
        self.name = name
        self.relay = Relay(address)
        self.client = flight.connect(f"grpc+tcp://{self.relay.address}")
        self.options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        self.token = token
        self.sql = None

    def rows(self, descriptor):
        info = self.client.get_flight_info(descriptor, self.options)
        return [self.client.do_get(endpoint.ticket, self.options).read_all() for endpoint in info.endpoints]

    def command(self, **words):
        return self.rows(flight.FlightDescriptor.for_command(json.dumps(words).encode()))

    def look_up(self, dataset, regions):
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"dataset": dataset}).encode())
        schema = pyarrow.schema({"contig": pyarrow.string(), "start": pyarrow.int64(), "end": pyarrow.int64()})
        writer, reader = self.client.do_exchange(descriptor, self.options)
        with writer:
            writer.begin(schema)
            writer.write_batch(pyarrow.record_batch([list(column) for column in zip(*regions)], schema=schema))
            writer.done_writing()
            return [chunk.data for chunk in reader]

    def cursor(self):
        import adbc_driver_flightsql.dbapi

        if self.sql is None:
            header = {"adbc.flight.sql.authorization_header": f"Bearer {self.token}"}
            self.sql = adbc_driver_flightsql.dbapi.connect(f"grpc://{self.relay.address}", db_kwargs=header)
        return self.sql.cursor()

    def ask(self, statement):
        with self.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetch_arrow_table()


def statements(draw, dataset, columns, some_mark):
    """SQL of all shapes about a dataset; what is asked for is one of the columns that the dataset may have."""
    table = '"%s"' % dataset
    one, two = (draw.choice(columns) for _ in range(2))
    number = draw.choice(["position", "end_position", "age", "number", "mapping_quality"])
    return draw.choice(
        [
            f"SELECT * FROM {table}",
            f"SELECT {one}, {two} FROM {table} ORDER BY {two} DESC LIMIT 7",
            f"SELECT min({one}), max({one}), count(DISTINCT {one}), count(*) FROM {table}",
            f"SELECT {one}, count(*) FROM {table} GROUP BY {one} ORDER BY 2 DESC, 1",
            f"SELECT array_agg({one}), string_agg(CAST({one} AS VARCHAR), ' ') FROM {table}",
            f"SELECT CAST({one} AS INT) FROM {table}",
            f"SELECT 1 / (CASE WHEN {one} IS NULL THEN 1 ELSE 0 END) FROM {table}",
            f"SELECT to_timestamp(CAST({one} AS VARCHAR)) FROM {table}",
            f"EXPLAIN SELECT * FROM {table} WHERE {number} > 5",
            f"EXPLAIN ANALYZE VERBOSE SELECT {one} FROM {table} WHERE {number} > 5 ORDER BY {one}",
            f"EXPLAIN VERBOSE SELECT max({one}) FROM {table}",
            f"SELECT a.{one}, b.{two} FROM {table} a JOIN {table} b ON a.{one} = b.{one}",
            f"SELECT * FROM {table} WHERE region('chr1:1-50000')",
            f"SELECT {one} FROM {table} WHERE contig = 'chr2' AND position < 70000 AND end_position > 100",
            f"WITH x AS (SELECT {one} y FROM {table}) SELECT upper(CAST(y AS VARCHAR)), y FROM x UNION ALL SELECT 'a', y FROM x",
            f"SELECT {one}, row_number() OVER (PARTITION BY {two} ORDER BY {one}), lag({one}) OVER (ORDER BY {two}) FROM {table}",
            f"SELECT * FROM {table} WHERE {one} IN (SELECT {one} FROM {table} WHERE {number} IS NOT NULL)",
            f"SELECT substr(CAST({one} AS VARCHAR), 1, 6) || substr(CAST({one} AS VARCHAR), 7) FROM {table}",
            f"SELECT concat_ws('', {one}, '', {two}) FROM {table} FETCH FIRST 5 ROWS ONLY",
            "SELECT * FROM reads('**.?am')",
            "SELECT * FROM variants('**')",
            f"SELECT * FROM reads('{dataset}')",
            f"SELECT * FROM coverage('{dataset}')",
            f"SELECT * FROM overlaps('{dataset}', 'b.bed')",
            f"SELECT * FROM nearest('b.bed', '{dataset}')",
            f"SELECT approx_distinct({one}), first_value({one}), nth_value({one}, 3) FROM {table}",
            f"SELECT * FROM {table} WHERE {one} = '{some_mark}'",
            f"SELECT count(*) FROM {table} WHERE CAST({one} AS VARCHAR) LIKE '{str(some_mark)[:9]}%'",
            "SELECT * FROM information_schema.tables",
            f"SELECT nothing FROM {table}",
        ]
    )


def one_question(draw, caller, dataset, columns, some_mark):
    """Asks one thing; the text of what is said where that fails. A question that has a mark in it is said to have."""
    kind = draw.randrange(8)
    client = caller.client
    if kind == 0:
        words = {"dataset": draw.choice([dataset, "./" + dataset, dataset + "/", dataset.replace("/", "//")])}
        if draw.random() < 0.5:
            words["parts"] = draw.randrange(1, 5)
        if draw.random() < 0.4:
            words["regions"] = [a_region(draw) for _ in range(2)]
        if draw.random() < 0.4:
            words["columns"] = draw.sample(columns, 1)
        return False, caller.command(**words)
    if kind == 1:
        regions = [(draw.choice(CONTIGS), start, start + 20_000) for start in (draw.randrange(90_000), 0)]
        return False, caller.look_up(dataset, regions)
    if kind == 2:
        return False, [info.schema for info in client.list_flights(b"", caller.options)]
    if kind == 3:
        path = draw.choice([[dataset], ["t.parquet", "0.parquet"], dataset.split("/"), ["..", "policy.toml"], ["r.bam.bai"]])
        return False, caller.rows(flight.FlightDescriptor.for_path(*path))
    statement = statements(draw, dataset, columns, some_mark)
    return str(some_mark) in statement, caller.ask(statement)


def copied(godwit, address, token, name, target):
    """The bytes of a file, where it is had, and all that was said."""
    command = [godwit, "copy", f"grpc+tcp://{address}/{name}", target, "--token-file", token, "--quiet"]
    done = subprocess.run(command, capture_output=True, check=False)
    there = os.path.isfile(target)
    content = open(target, "rb").read() if there else b""
    if there:
        os.remove(target)
    return done.returncode == 0 and there, content + done.stderr + done.stdout


def by_htsget(address, token, dataset, words):
    """The bytes of a dataset by htsget, unpacked, where they are had, and all that was said."""
    kind = "variants" if dataset.endswith(".vcf.gz") else "reads"
    asked = urllib.request.Request(f"http://{address}/{kind}/{dataset}?{urllib.parse.urlencode(words)}")
    asked.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asked) as answer:
            said = answer.read()
    except urllib.error.HTTPError as error:
        return False, error.read()
    content = b""
    for part in json.loads(said)["htsget"]["urls"]:
        if part["url"].startswith("data:"):
            content += base64.b64decode(part["url"].split(",", 1)[1])
            continue
        place = urllib.parse.urlsplit(part["url"])._replace(netloc=address)
        with urllib.request.urlopen(urllib.request.Request(place.geturl(), headers=part.get("headers", {}))) as answer:
            content += answer.read()
    return True, gzip.decompress(content) + said


def told(error):
    return f"{error} {getattr(error, 'extra_info', '')}".encode()


def ask(address, root, seed, godwit, tokens, scratch, count):
    tokens_of = json.load(open(tokens, encoding="utf8"))
    draw = random.Random(f"questions {seed}")
    admin = Caller("admin", tokens_of["admin"], address)
    rows, marks, columns = {}, {}, {}
    for dataset in DATASETS:
        whole = pyarrow.concat_tables(admin.command(dataset=dataset))
        rows[dataset] = whole.to_pylist()
        columns[dataset] = whole.column_names
        marks[dataset] = set().union(*[marks_of(value) for row in rows[dataset] for value in row.values()])
        assert len(marks[dataset]) >= ROWS, (dataset, len(marks[dataset]))
    # What is in headers and other files is seen with the whole only.
    every = set().union(*marks.values())
    for directory, _, names in os.walk(root):
        for name in names:
            if name.endswith((".sam", ".vcf", ".txt")):
                every |= marks_in(open(os.path.join(directory, name), "rb").read())
    assert every <= marks_in(admin.relay.take()) | marks_in(open(f"{root}/notes.txt", "rb").read()), "the relay keeps all"
    rules = rules_of(seed)
    asked = answered = shown = files = grouped = streamed = 0
    for name in [f"c{number}" for number in range(CALLERS)]:
        caller = Caller(name, tokens_of[name], address)
        own = {rule["datasets"][0]: rule for rule in rules if rule["who"] == [name]}
        visible, whole = set(), set()
        for dataset, rule in own.items():
            if not rule.get("deny"):
                visible |= seen_of(rule, dataset, rows[dataset])
            if is_whole(rule, dataset):
                whole.add(dataset)
                if dataset.endswith((".sam", ".vcf")):
                    visible |= marks_in(open(os.path.join(root, dataset), "rb").read())
                visible |= marks[dataset]
                # The same file in another form has the same header.
                twin = {"r.bam": "r.sam", "v.vcf.gz": "v.vcf"}.get(dataset)
                if twin:
                    visible |= marks_in(open(os.path.join(root, twin), "rb").read())
        hidden = every - visible
        for dataset, rule in own.items():
            if rule.get("deny"):
                continue
            caller.relay.take()
            tables = caller.command(dataset=dataset)
            found = marks_in(caller.relay.take())
            expected = seen_of(rule, dataset, rows[dataset])
            extra = found & (hidden if dataset in whole else every - expected)
            assert expected <= found and not extra, (name, dataset, rule, len(expected - found), extra)
            assert dataset in whole or sum(table.num_rows for table in tables) <= len(rows[dataset])
            shown += len(expected)
            if "groups" in rule:
                assert groups_in(rule, tables) == groups_of(rule, rows[dataset]), (name, dataset, rule)
                by = ", ".join(rule["groups"]["by"])
                counted = caller.ask(f'SELECT {by}, count(*) n FROM "{dataset}" GROUP BY {by}')
                assert all(row["n"] >= rule["groups"]["at_least"] for row in counted.to_pylist()), (rule, counted)
                grouped += 1
        for _ in range(int(count)):
            dataset = draw.choice(list(DATASETS))
            some_mark = draw.choice(sorted(marks[dataset], key=str))
            caller.relay.take()
            said, has_mark = b"", False
            try:
                has_mark, answer = one_question(draw, caller, dataset, columns[dataset], some_mark)
                said = repr(answer).encode()
                answered += 1
            except Exception as error:  # Whatever a client makes of a refusal, its words are looked at.
                said, has_mark = told(error), True
            found = marks_in(caller.relay.take() + said)
            if has_mark:
                # What was asked with is no news.
                found -= {some_mark}
            assert not found & hidden, (name, dataset, own.get(dataset), found & hidden, said[:3000])
            asked += 1
        token = os.path.join(scratch, f"{name}.token")
        with open(token, "w", encoding="utf8") as out:
            out.write(caller.token)
        for file in list(DATASETS) + ["notes.txt", "r.bam.bai", "v.vcf.gz.tbi", "t.parquet/0.parquet"]:
            if file == "t.parquet":
                continue
            caller.relay.take()
            had, content = copied(godwit, caller.relay.address, token, file, os.path.join(scratch, "copied"))
            found = marks_in(content + caller.relay.take())
            owner = {"t.parquet/0.parquet": "t.parquet"}.get(file, file)
            may = owner in whole
            assert had == may, (name, file, own.get(owner), had, content[:500])
            assert not found & hidden, (name, file, found & hidden)
            files += had
        start = draw.randrange(90_000)
        region = {"referenceName": draw.choice(CONTIGS), "start": start, "end": start + draw.randrange(1, 40_000)}
        for dataset in ["r.bam", "v.vcf.gz"]:
            for words in [{}, region, {"class": "header"}]:
                caller.relay.take()
                had, content = by_htsget(caller.relay.address, caller.token, dataset, words)
                found = marks_in(content + caller.relay.take())
                assert had == (dataset in whole), (name, dataset, words, own.get(dataset), had, content[:500])
                assert not found & hidden, (name, dataset, words, found & hidden)
                assert not had or found, (name, dataset, words)
                streamed += had
    assert files > 0 and shown > 0 and grouped > 0 and answered > asked // 4, (files, shown, grouped, answered, asked)
    print(asked, answered, shown, files, grouped, streamed)


def put(address, tokens, *callers):
    """What comes of putting a table, putting it in memory, appending to one that is there, and removing it, for each caller."""
    table = pyarrow.table({"x": [1, 2]})
    for name in callers:
        caller = Caller(name, json.load(open(tokens, encoding="utf8"))[name], address)

        def tried(work):
            try:
                work()
                return "done"
            except (flight.FlightError, pyarrow.ArrowException) as error:
                return type(error).__name__

        def written(**words):
            descriptor = flight.FlightDescriptor.for_command(json.dumps(words).encode())
            writer, answers = caller.client.do_put(descriptor, table.schema, caller.options)
            with writer:
                writer.write_table(table)
                writer.done_writing()
                answers.read()

        def removed(name):
            list(caller.client.do_action(flight.Action("DropDataset", name), caller.options))

        print(
            name,
            tried(lambda: written(dataset="in/new", put="replace")),
            tried(lambda: written(dataset="in/new", put="replace", temporary=True)),
            tried(lambda: written(dataset="cohort/people", put="append")),
            tried(lambda: written(dataset="in//..//new", put="replace")),
            tried(lambda: removed(b"in/new")),
        )


if __name__ == "__main__":
    act, *arguments = sys.argv[2:]
    {"make": make, "policy": policy, "ask": ask, "put": put}[act](*arguments)
