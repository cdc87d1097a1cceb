"""Random rules, random questions: nothing that a rule hides is in any byte that a server sends.

Arguments: a directory that is not used, what to do, and words for it. `make ROOT SEED` writes datasets whose cells can be told from one
another, `policy ROOT SEED` rules about who sees which of them. `ask ADDRESS ROOT SEED GODWIT TOKENS SCRATCH COUNT` asks a server, over
a relay that keeps every byte, as each of the callers, and compares with what the rules say by an account of its own; it prints
how much was asked and seen.
"""

import base64
import collections
import gzip
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from pyarrow import flight

CALLERS = 10
ROWS = 80
CONTIGS = ["chr1", "chr2", "chr3"]
USES = ["GRU", "HMB", "DS"]
# No other number looks like these: their two highest bytes.
HIGH = 0x5A51
TEXT = re.compile(rb"zq[a-z0-9]{10}")
NUMBER = re.compile(rb"(?=(.{6}\x51\x5a))", re.DOTALL)
DIGITS = re.compile(rb"(?<!\d)65\d{17}(?!\d)")


def unique_text(draw):
    return "zq" + "".join(draw.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(10))


def unique_number(draw):
    return (HIGH << 48) + draw.getrandbits(47) * 2 + 1


def make(root, seed):
    draw = random.Random(int(seed))
    os.makedirs(f"{root}/sub")
    for kind in ["csv", "arrow", "parquet"]:
        table = a_table(draw)
        if kind == "csv":
            write_csv(f"{root}/sub/t.csv", table)
        elif kind == "arrow":
            write_arrow(f"{root}/t.arrow", table)
        else:
            os.makedirs(f"{root}/t.parquet")
            for part in range(2):
                piece = table.slice(part * ROWS // 2, ROWS // 2)
                pyarrow.parquet.write_table(piece, f"{root}/t.parquet/{part}.parquet", row_group_size=16)
    write_bed(f"{root}/b.bed", draw)
    write_sam(f"{root}/r.sam", draw)
    write_vcf(f"{root}/v.vcf", draw)
    with open(f"{root}/notes.txt", "w", encoding="utf8") as out:
        out.write(unique_text(draw))


def a_table(draw):
    starts = sorted((draw.choice(CONTIGS), draw.randrange(100_000)) for _ in range(ROWS))
    return pyarrow.table(
        {
            "contig": pyarrow.array([contig for contig, _ in starts], pyarrow.string()),
            "position": pyarrow.array([start for _, start in starts], pyarrow.int64()),
            "end_position": pyarrow.array([start + draw.randrange(1, 3000) for _, start in starts], pyarrow.int64()),
            "subject": pyarrow.array([unique_text(draw) for _ in starts], pyarrow.string()),
            "note": pyarrow.array([unique_text(draw) if draw.random() < 0.9 else None for _ in starts], pyarrow.string()),
            "number": pyarrow.array([unique_number(draw) for _ in starts], pyarrow.int64()),
            "use": pyarrow.array([draw.choice(USES) for _ in starts], pyarrow.string()),
            "age": pyarrow.array([draw.randrange(100) for _ in starts], pyarrow.int64()),
        }
    )


def write_csv(path, table):
    with open(path, "w", encoding="utf8") as out:
        print(*table.column_names, sep=",", file=out)
        for row in table.to_pylist():
            print(*["" if value is None else value for value in row.values()], sep=",", file=out)


def write_arrow(path, table):
    """With types whose values lie apart from their rows."""
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    columns["subject"] = columns["subject"].dictionary_encode()
    columns["note"] = columns["note"].cast(pyarrow.string_view())
    columns["tags"] = pyarrow.array([[value.as_py()[::-1].replace("qz", "")[:3]] for value in table["subject"]])
    whole = pyarrow.table(columns)
    with pyarrow.ipc.new_file(path, whole.schema) as out:
        out.write_table(whole, max_chunksize=32)


def write_bed(path, draw):
    with open(path, "w", encoding="utf8") as out:
        for _ in range(ROWS):
            start = draw.randrange(100_000)
            print(draw.choice(CONTIGS), start, start + draw.randrange(1, 3000), unique_text(draw), sep="\t", file=out)


def write_sam(path, draw):
    with open(path, "w", encoding="utf8") as out:
        print("@HD\tVN:1.6\tSO:coordinate", file=out)
        for contig in CONTIGS:
            print(f"@SQ\tSN:{contig}\tLN:200000", file=out)
        print("@RG\tID:g\tSM:first", file=out)
        print(f"@CO\t{unique_text(draw)}", file=out)
        for contig, start in sorted((draw.choice(CONTIGS), draw.randrange(100_000)) for _ in range(ROWS)):
            bases = "".join(draw.choice("ACGT") for _ in range(50))
            tags = f"RG:Z:g\tXX:Z:{unique_text(draw)}"
            print(unique_text(draw), 0, contig, start + 1, 60, "50M", "*", 0, 0, bases, "I" * 50, tags, sep="\t", file=out)


def write_vcf(path, draw):
    samples = ["first", "second", "third"]
    with open(path, "w", encoding="utf8") as out:
        print("##fileformat=VCFv4.3", file=out)
        print(f"##remark={unique_text(draw)}", file=out)
        for contig in CONTIGS:
            print(f"##contig=<ID={contig},length=200000>", file=out)
        print('##INFO=<ID=NOTE,Number=1,Type=String,Description="x">', file=out)
        print('##FORMAT=<ID=GT,Number=1,Type=String,Description="x">', file=out)
        print('##FORMAT=<ID=WORD,Number=1,Type=String,Description="x">', file=out)
        print("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples, sep="\t", file=out)
        for contig, start in sorted((draw.choice(CONTIGS), draw.randrange(100_000)) for _ in range(ROWS)):
            words = [f"0/1:{unique_text(draw)}" for _ in samples]
            info = f"NOTE={unique_text(draw)}"
            print(contig, start + 1, unique_text(draw), "A", "C", 30, "PASS", info, "GT:WORD", *words, sep="\t", file=out)


# What each dataset has that rules are made of: columns of texts, of numbers, and whether it has samples.
DATASETS = {
    "sub/t.csv": (["subject", "note"], ["number"], []),
    "t.arrow": (["subject", "note"], ["number"], []),
    "t.parquet": (["subject", "note"], ["number"], []),
    "b.bed": (["name"], [], []),
    "r.sam": (["name", "other_tags"], [], ["first"]),
    "r.bam": (["name", "other_tags"], [], ["first"]),
    "v.vcf": (["info_NOTE", "identifiers", "format_WORD"], [], ["first", "second", "third"]),
    "v.vcf.gz": (["info_NOTE", "identifiers", "format_WORD"], [], ["first", "second", "third"]),
}


def a_rule(draw, caller, dataset):
    """A rule about one caller and one dataset; `None` where there is to be none."""
    texts, numbers, samples = DATASETS[dataset]
    rule = {"name": f"{caller} {dataset}", "who": [caller], "datasets": [dataset]}
    fate = draw.random()
    if fate < 0.1:
        return None
    if fate < 0.15:
        return rule | {"deny": True}
    if fate < 0.25:
        return rule
    if draw.random() < 0.5:
        rule["regions"] = [a_region(draw) for _ in range(draw.randrange(1, 4))]
    if numbers and draw.random() < 0.4:
        condition = [{"in": draw.sample(USES, 2)}, {"not_in": ["DS"]}][draw.randrange(2)]
        rule["where"] = [{"column": "use"} | condition, {"column": "age", "at_least": draw.randrange(60)}]
    if numbers and draw.random() < 0.2:
        by = draw.sample(["use", "contig", "age"], draw.randrange(1, 3))
        rule["groups"] = {"by": by, "at_least": draw.choice([2, 5, 20]), "of": "subject", "means": ["position"]}
        return rule | ({"mask": {"age": {"bin": 20}}} if "age" in by else {})
    if samples and draw.random() < 0.5:
        rule["samples"] = draw.sample(samples, draw.randrange(1, len(samples) + 1))
    mask = {}
    for column in texts:
        kinds = [None, "drop", "redact", "hash"] + ([{"keep": 3}] if column in ["subject", "note", "name"] else [])
        mask[column] = draw.choice(kinds)
    for column in numbers:
        mask[column] = draw.choice([None, "drop", "redact", "hash", {"bin": 1000}])
    mask = {column: kind for column, kind in mask.items() if kind is not None}
    if draw.random() < 0.3:
        rule["show"] = draw.sample([column for column in texts + numbers if column not in mask] or ["contig"], 1)
        rule["show"] += ["contig", "position", "end_position"] if draw.random() < 0.7 else []
    if draw.random() < 0.2 and not rule.get("show"):
        mask[draw.choice(["contig", "position"])] = draw.choice(["drop", "redact"])
    if mask:
        rule["mask"] = mask
    return rule


def a_region(draw):
    if draw.random() < 0.2:
        return draw.choice(CONTIGS + ["nowhere"])
    start = draw.randrange(1, 100_000)
    return f"{draw.choice(CONTIGS)}:{start}-{start + draw.randrange(40_000)}"


def rules_of(seed):
    draw = random.Random(f"rules {seed}")
    rules = []
    for caller in [f"c{number}" for number in range(CALLERS)]:
        rules += [rule for dataset in DATASETS if (rule := a_rule(draw, caller, dataset))]
    draw.shuffle(rules)
    return [{"name": "all", "who": ["admin"], "datasets": ["**"]}] + rules


def policy(root, seed):
    with open(f"{root}/key", "wb") as out:
        out.write(bytes(range(32)))
    with open(f"{root}/policy.toml", "w", encoding="utf8") as out:
        print('key = "key"', file=out)
        for rule in rules_of(seed):
            print("[[rule]]", file=out)
            for name, value in rule.items():
                print(name, "=", toml(value), file=out)


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    return json.dumps(value)


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


def marks_in(sent):
    """What can be told from anything else, of some bytes."""
    found = {word.decode() for word in TEXT.findall(sent)}
    found |= {struct.unpack("<q", number)[0] for number in NUMBER.findall(sent)}
    found |= {int(number) for number in DIGITS.findall(sent)}
    return found


def marks_of(value):
    if isinstance(value, list):
        return set().union(*[marks_of(one) for one in value])
    if isinstance(value, (str, bytes)):
        return marks_in(value if isinstance(value, bytes) else value.encode())
    if isinstance(value, int) and value >> 48 == HIGH:
        return {value}
    return set()


def overlaps(row, regions):
    start = max(row["position"], 0)
    end = max(row["end_position"] or 0, start + 1)
    for region in regions:
        contig, _, places = region.partition(":")
        first, last = places.split("-") if places else (1, 1 << 40)
        if row["contig"] == contig and start < int(last) and end > int(first) - 1:
            return True
    return False


def meets(row, conditions):
    for condition in conditions:
        value = row[condition["column"]]
        fits = value is not None
        fits = fits and ("in" not in condition or value in condition["in"])
        fits = fits and ("not_in" not in condition or value not in condition["not_in"])
        fits = fits and ("at_least" not in condition or value >= condition["at_least"])
        if not fits:
            return False
    return True


def is_whole(rule, dataset):
    if any(field in rule for field in ["regions", "where", "show", "mask", "deny", "groups"]):
        return False
    return len(rule.get("samples", DATASETS[dataset][2])) == len(DATASETS[dataset][2])


def is_seen(rule, row):
    return ("regions" not in rule or overlaps(row, rule["regions"])) and meets(row, rule.get("where", []))


def groups_of(rule, rows):
    """How many rows each group has that a rule shows, and their mean."""
    groups = collections.defaultdict(list)
    for row in rows:
        if is_seen(rule, row):
            key = tuple(row[column] // 20 * 20 if column == "age" else row[column] for column in rule["groups"]["by"])
            groups[key].append(row)
    least = rule["groups"]["at_least"]
    large = {key: rows for key, rows in groups.items() if len({row["subject"] for row in rows}) >= least}
    return {key: (len(rows), round(sum(row["position"] for row in rows) / len(rows), 3)) for key, rows in large.items()}


def groups_in(rule, tables):
    """The same of tables that were fetched; in a group all rows are alike."""
    found = collections.defaultdict(collections.Counter)
    for row in pyarrow.concat_tables(tables).to_pylist():
        found[tuple(row[column] for column in rule["groups"]["by"])][round(row["position"], 3)] += 1
    assert all(len(means) == 1 for means in found.values()), found
    return {key: (count, mean) for key, means in found.items() for mean, count in means.items()}


def seen_of(rule, dataset, rows):
    """Marks of the cells that a rule shows as they are."""
    samples = DATASETS[dataset][2]
    wanted = rule.get("samples", samples)
    places = [at for at, sample in enumerate(samples) if sample in wanted]
    seen = set()
    for row in rows:
        if not is_seen(rule, row):
            continue
        for column, value in row.items():
            hidden = column in rule.get("mask", {}) or ("show" in rule and column not in rule["show"])
            hidden |= "groups" in rule and column not in rule["groups"]["by"]
            if hidden:
                continue
            if column.startswith("format_") and isinstance(value, list):
                value = [value[at] for at in places]
            seen |= marks_of(value)
    return seen


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
