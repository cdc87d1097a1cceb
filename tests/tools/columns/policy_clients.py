"""Random rules and random requests: no byte that a server sends contains data that a rule hides.

Arguments: an unused directory, a command, and its arguments. `write_datasets ROOT SEED` writes datasets whose cells are unique,
`write_policy ROOT SEED` random rules. `run_random_requests ADDRESS ROOT SEED GODWIT TOKENS SCRATCH COUNT` sends requests as each client, over a
proxy that records every byte, and compares the result with an independent evaluation of the rules. It prints the numbers of requests,
responses, visible marks, files, groups and streams. `check_uploads ADDRESS TOKENS NAME...` uploads and removes datasets as each client.
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

from policy_data import (
    CLIENTS,
    CONTIGS,
    DATASETS,
    ROWS,
    expected_groups,
    fetched_groups,
    find_marks,
    random_region,
    rules_for_seed,
    shows_everything,
    value_marks,
    visible_marks,
    write_datasets,
    write_policy,
)


class RecordingProxy:
    """A TCP proxy that records the bytes from the server."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.to = (host, int(port))
        self.recorded = bytearray()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            here, _ = self.listener.accept()
            there = socket.create_connection(self.to)
            threading.Thread(target=self.forward, args=(here, there, False), daemon=True).start()
            threading.Thread(target=self.forward, args=(there, here, True), daemon=True).start()

    def forward(self, source, sink, keeps):
        try:
            while piece := source.recv(1 << 16):
                if keeps:
                    with self.lock:
                        self.recorded += piece
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def take_recorded_bytes(self):
        with self.lock:
            kept, self.recorded = bytes(self.recorded), bytearray()
        return kept


class FlightClient:
    def __init__(self, name, token, address):
        self.name = name
        self.relay = RecordingProxy(address)
        self.client = flight.connect(f"grpc+tcp://{self.relay.address}")
        self.options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        self.token = token
        self.sql = None

    def fetch_descriptor(self, descriptor):
        info = self.client.get_flight_info(descriptor, self.options)
        return [self.client.do_get(endpoint.ticket, self.options).read_all() for endpoint in info.endpoints]

    def fetch_command(self, **fields):
        return self.fetch_descriptor(flight.FlightDescriptor.for_command(json.dumps(fields).encode()))

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

    def query(self, statement):
        with self.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetch_arrow_table()


def statements(draw, dataset, columns, some_mark):
    """Returns a random SQL statement about a dataset, with some of the given columns."""
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
            f"SELECT * FROM pileup('{dataset}')",
            f"SELECT * FROM coverage_windows('{dataset}', 500)",
            f"SELECT * FROM pileup('{dataset}') WHERE region('chr1:1-50000')",
            f"SELECT * FROM mismatches('{dataset}')",
            f"SELECT * FROM mismatches('{dataset}', 'chr1:1-50000') WHERE mismatches > 1",
            f"SELECT * FROM insert_sizes('{dataset}')",
            f"SELECT * FROM overlaps('{dataset}', 'b.bed')",
            f"SELECT * FROM genotypes('{dataset}')",
            "SELECT * FROM genotypes('**')",
            f"SELECT sample, {one} FROM genotypes('{dataset}') WHERE sample IN ('first', 'third') AND {number} >= 0",
            f"SELECT {one} FROM {table} WHERE filter('seq =~ \"A\" || default([NM], 1) >= 0 || qname != library')",
            f"SELECT filter('qname == \"{some_mark}\" || [CO] =~ \"{str(some_mark)[:9]}\"'), {one} FROM {table}",
            f"SELECT {one} FROM variants('{dataset}') WHERE filter('QUAL>=0 || GT=\"alt\" || N_SAMPLES>1 || ID!=\".\"')",
            f"SELECT filter('NOTE~\"{str(some_mark)[:9]}\" || WORD=\"{some_mark}\" || ID=\"{some_mark}\"'), {one} FROM variants('{dataset}')",
            f"SELECT * FROM nearest('b.bed', '{dataset}')",
            f"SELECT approx_distinct({one}), first_value({one}), nth_value({one}, 3) FROM {table}",
            f"SELECT * FROM {table} WHERE {one} = '{some_mark}'",
            f"SELECT count(*) FROM {table} WHERE CAST({one} AS VARCHAR) LIKE '{str(some_mark)[:9]}%'",
            "SELECT * FROM information_schema.tables",
            f"SELECT nothing FROM {table}",
        ]
    )


def random_request(draw, client, dataset, columns, some_mark):
    """Sends a random request; returns whether the request contains a mark, and the response."""
    kind = draw.randrange(8)
    if kind == 0:
        fields = {"dataset": draw.choice([dataset, "./" + dataset, dataset + "/", dataset.replace("/", "//")])}
        if draw.random() < 0.5:
            fields["parts"] = draw.randrange(1, 5)
        if draw.random() < 0.4:
            fields["regions"] = [random_region(draw) for _ in range(2)]
        if draw.random() < 0.4:
            fields["columns"] = draw.sample(columns, 1)
        return False, client.fetch_command(**fields)
    if kind == 1:
        regions = [(draw.choice(CONTIGS), start, start + 20_000) for start in (draw.randrange(90_000), 0)]
        return False, client.look_up(dataset, regions)
    if kind == 2:
        return False, [info.schema for info in client.client.list_flights(b"", client.options)]
    if kind == 3:
        path = draw.choice([[dataset], ["t.parquet", "0.parquet"], dataset.split("/"), ["..", "policy.toml"], ["r.bam.bai"]])
        return False, client.fetch_descriptor(flight.FlightDescriptor.for_path(*path))
    statement = statements(draw, dataset, columns, some_mark)
    return str(some_mark) in statement, client.query(statement)


def copy_file(godwit, address, token, name, target):
    """Copies a file; returns whether it succeeded, and the bytes of the file and of all output."""
    command = [godwit, "copy", f"grpc+tcp://{address}/{name}", target, "--token-file", token, "--quiet"]
    done = subprocess.run(command, capture_output=True, check=False)
    there = os.path.isfile(target)
    content = open(target, "rb").read() if there else b""
    if there:
        os.remove(target)
    return done.returncode == 0 and there, content + done.stderr + done.stdout


def fetch_by_htsget(address, token, dataset, parameters):
    """Fetches a dataset by htsget; returns whether it succeeded, and the decompressed bytes with the responses."""
    kind = "variants" if dataset.endswith(".vcf.gz") else "reads"
    request = urllib.request.Request(f"http://{address}/{kind}/{dataset}?{urllib.parse.urlencode(parameters)}")
    request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request) as answer:
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


def error_text(error):
    return f"{error} {getattr(error, 'extra_info', '')}".encode()


def run_random_requests(address, root, seed, godwit, tokens, scratch, count):
    tokens_of = json.load(open(tokens, encoding="utf8"))
    draw = random.Random(f"questions {seed}")
    admin = FlightClient("admin", tokens_of["admin"], address)
    rows, marks, columns = {}, {}, {}
    for dataset in DATASETS:
        whole = pyarrow.concat_tables(admin.fetch_command(dataset=dataset))
        rows[dataset] = whole.to_pylist()
        columns[dataset] = whole.column_names
        marks[dataset] = set().union(*[value_marks(value) for row in rows[dataset] for value in row.values()])
        assert len(marks[dataset]) >= ROWS, (dataset, len(marks[dataset]))
    # Marks in headers and other files are visible only to clients that see the whole dataset.
    every = set().union(*marks.values())
    for directory, _, names in os.walk(root):
        for name in names:
            if name.endswith((".sam", ".vcf", ".txt")):
                every |= find_marks(open(os.path.join(directory, name), "rb").read())
    assert every <= find_marks(admin.relay.take_recorded_bytes()) | find_marks(open(f"{root}/notes.txt", "rb").read()), "the proxy records all bytes"
    rules = rules_for_seed(seed)
    requests = answered = shown = files = grouped = streamed = 0
    for name in [f"c{number}" for number in range(CLIENTS)]:
        client = FlightClient(name, tokens_of[name], address)
        own = {rule["datasets"][0]: rule for rule in rules if rule["who"] == [name]}
        visible, whole = set(), set()
        for dataset, rule in own.items():
            if not rule.get("deny"):
                visible |= visible_marks(rule, dataset, rows[dataset])
            if shows_everything(rule, dataset):
                whole.add(dataset)
                if dataset.endswith((".sam", ".vcf")):
                    visible |= find_marks(open(os.path.join(root, dataset), "rb").read())
                visible |= marks[dataset]
                # The same file in another format has the same header.
                twin = {"r.bam": "r.sam", "v.vcf.gz": "v.vcf"}.get(dataset)
                if twin:
                    visible |= find_marks(open(os.path.join(root, twin), "rb").read())
        hidden = every - visible
        for dataset, rule in own.items():
            if rule.get("deny"):
                continue
            client.relay.take_recorded_bytes()
            tables = client.fetch_command(dataset=dataset)
            found = find_marks(client.relay.take_recorded_bytes())
            expected = visible_marks(rule, dataset, rows[dataset])
            extra = found & (hidden if dataset in whole else every - expected)
            assert expected <= found and not extra, (name, dataset, rule, len(expected - found), extra)
            assert dataset in whole or sum(table.num_rows for table in tables) <= len(rows[dataset])
            shown += len(expected)
            if "groups" in rule:
                assert fetched_groups(rule, tables) == expected_groups(rule, rows[dataset]), (name, dataset, rule)
                by = ", ".join(rule["groups"]["by"])
                counted = client.query(f'SELECT {by}, count(*) n FROM "{dataset}" GROUP BY {by}')
                assert all(row["n"] >= rule["groups"]["at_least"] for row in counted.to_pylist()), (rule, counted)
                grouped += 1
        for _ in range(int(count)):
            dataset = draw.choice(list(DATASETS))
            some_mark = draw.choice(sorted(marks[dataset], key=str))
            client.relay.take_recorded_bytes()
            said, has_mark = b"", False
            try:
                has_mark, answer = random_request(draw, client, dataset, columns[dataset], some_mark)
                said = repr(answer).encode()
                answered += 1
            except Exception as error:  # The text of every error is checked.
                said, has_mark = error_text(error), True
            found = find_marks(client.relay.take_recorded_bytes() + said)
            if has_mark:
                # A mark of the request itself may be in the response.
                found -= {some_mark}
            assert not found & hidden, (name, dataset, own.get(dataset), found & hidden, said[:3000])
            requests += 1
        token = os.path.join(scratch, f"{name}.token")
        with open(token, "w", encoding="utf8") as out:
            out.write(client.token)
        for file in list(DATASETS) + ["notes.txt", "r.bam.bai", "v.vcf.gz.tbi", "t.parquet/0.parquet"]:
            if file == "t.parquet":
                continue
            client.relay.take_recorded_bytes()
            had, content = copy_file(godwit, client.relay.address, token, file, os.path.join(scratch, "copied"))
            found = find_marks(content + client.relay.take_recorded_bytes())
            owner = {"t.parquet/0.parquet": "t.parquet"}.get(file, file)
            may = owner in whole
            assert had == may, (name, file, own.get(owner), had, content[:500])
            assert not found & hidden, (name, file, found & hidden)
            files += had
        start = draw.randrange(90_000)
        region = {"referenceName": draw.choice(CONTIGS), "start": start, "end": start + draw.randrange(1, 40_000)}
        for dataset in ["r.bam", "v.vcf.gz"]:
            for parameters in [{}, region, {"class": "header"}]:
                client.relay.take_recorded_bytes()
                had, content = fetch_by_htsget(client.relay.address, client.token, dataset, parameters)
                found = find_marks(content + client.relay.take_recorded_bytes())
                assert had == (dataset in whole), (name, dataset, parameters, own.get(dataset), had, content[:500])
                assert not found & hidden, (name, dataset, parameters, found & hidden)
                assert not had or found, (name, dataset, parameters)
                streamed += had
    assert files > 0 and shown > 0 and grouped > 0 and answered > requests // 4, (files, shown, grouped, answered, requests)
    print(requests, answered, shown, files, grouped, streamed)


def check_uploads(address, tokens, *names):
    """Prints the results of an upload, a temporary upload, an append, an invalid name, and a removal, for each client."""
    table = pyarrow.table({"x": [1, 2]})
    for name in names:
        client = FlightClient(name, json.load(open(tokens, encoding="utf8"))[name], address)

        def outcome(work):
            try:
                work()
                return "done"
            except (flight.FlightError, pyarrow.ArrowException) as error:
                return type(error).__name__

        def upload(**fields):
            descriptor = flight.FlightDescriptor.for_command(json.dumps(fields).encode())
            writer, answers = client.client.do_put(descriptor, table.schema, client.options)
            with writer:
                writer.write_table(table)
                writer.done_writing()
                answers.read()

        def remove(name):
            list(client.client.do_action(flight.Action("DropDataset", name), client.options))

        print(
            name,
            outcome(lambda: upload(dataset="in/new", put="replace")),
            outcome(lambda: upload(dataset="in/new", put="replace", temporary=True)),
            outcome(lambda: upload(dataset="cohort/people", put="append")),
            outcome(lambda: upload(dataset="in//..//new", put="replace")),
            outcome(lambda: remove(b"in/new")),
        )


if __name__ == "__main__":
    command, *arguments = sys.argv[2:]
    {"write_datasets": write_datasets, "write_policy": write_policy, "run_random_requests": run_random_requests, "check_uploads": check_uploads}[command](*arguments)
