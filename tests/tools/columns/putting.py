"""Puts datasets at a server, with clients of others: pyarrow.flight and ADBC; looks regions up; ends what it asked for.

Arguments: a directory that is not used, the address HOST:PORT, what to do, and words for it. Prints what was found, a line each.
"""

import datetime
import decimal
import json
import random
import sys
import threading
import time

import pyarrow
from pyarrow import flight


def connect(address):
    return flight.connect(f"grpc+tcp://{address}")


def path(name):
    return flight.FlightDescriptor.for_path(*name.split("/"))


def command(name, **words):
    return flight.FlightDescriptor.for_command(json.dumps({"dataset": name, **words}).encode())


def put(client, descriptor, table, rows_per_batch=1000):
    """What the server says of it."""
    writer, answers = client.do_put(descriptor, table.schema)
    with writer:
        writer.write_table(table, max_chunksize=rows_per_batch)
        writer.done_writing()
        said = answers.read()
        return json.loads(said.to_pybytes())


def fetch(client, name):
    info = client.get_flight_info(path(name))
    return pyarrow.concat_tables([info.schema.empty_table()] + [client.do_get(one.ticket).read_all() for one in info.endpoints])


def outcome(work):
    """How it ended: its value, or what kind of error, and its first line without the client's own words."""
    try:
        return work()
    except (flight.FlightError, pyarrow.ArrowException) as error:
        return f"{type(error).__name__} {str(error).split('. gRPC')[0].splitlines()[0]}"


def names(client):
    return [b"/".join(info.descriptor.path).decode() for info in client.list_flights()]


def of_many_types(rows):
    """A table with a column of every type that Parquet keeps, and nulls in all of them."""
    draw = random.Random(5)

    def column(make, kind):
        return pyarrow.array([None if draw.random() < 0.1 else make() for _ in range(rows)], kind)

    text = lambda: "".join(draw.choice("ACGTñ🧬") for _ in range(draw.randrange(9)))
    moment = lambda: datetime.datetime(2026, 1, 1) + datetime.timedelta(microseconds=draw.randrange(10**13))
    return pyarrow.table(
        {
            "flag": column(lambda: draw.random() < 0.5, pyarrow.bool_()),
            "tiny": column(lambda: draw.randrange(-128, 128), pyarrow.int8()),
            "wide": column(lambda: draw.randrange(2**64), pyarrow.uint64()),
            "real": column(draw.random, pyarrow.float64()),
            "half": column(lambda: float(draw.randrange(100)), pyarrow.float32()),
            "text": column(text, pyarrow.string()),
            "large text": column(text, pyarrow.large_string()),
            "bytes": column(lambda: draw.randbytes(5), pyarrow.binary()),
            "fixed": column(lambda: draw.randbytes(4), pyarrow.binary(4)),
            "day": column(lambda: datetime.date(2026, 1, draw.randrange(1, 29)), pyarrow.date32()),
            "moment": column(moment, pyarrow.timestamp("us", tz="UTC")),
            "price": column(lambda: decimal.Decimal(draw.randrange(10**6)) / 100, pyarrow.decimal128(12, 2)),
            "list": column(lambda: [draw.randrange(9) for _ in range(draw.randrange(4))], pyarrow.list_(pyarrow.int32())),
            "struct": column(lambda: {"a": draw.randrange(9), "b": text()}, pyarrow.struct({"a": pyarrow.int64(), "b": pyarrow.string()})),
            "word": column(text, pyarrow.string()).dictionary_encode(),
        }
    )


def round_trip(address):
    """Every type comes back as it was put, and is asked with SQL."""
    import adbc_driver_flightsql.dbapi

    client, table = connect(address), of_many_types(5000).replace_schema_metadata({"made by": "a test"})
    print(put(client, path("some/types"), table))
    back = fetch(client, "some/types.parquet")
    assert back.schema.equals(table.schema), (back.schema, table.schema)
    assert back.schema.metadata[b"made by"] == b"a test"
    for name in table.column_names:
        assert back[name].to_pylist() == table[name].to_pylist(), name
    assert fetch(client, "some/types").equals(back)
    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(real), sum(tiny) FROM types")
        print(*cursor.fetchone())
    numbers = [value for value in table["tiny"].to_pylist() if value is not None]
    print(table.num_rows, table.num_rows - table["real"].null_count, sum(numbers))
    print(put(client, path("empty"), table.slice(0, 0)), fetch(client, "empty").num_rows, fetch(client, "empty").schema.equals(table.schema))
    print(names(client))
    print(list(client.do_action(flight.Action("DropDataset", b"some/types"))), names(client))
    print(outcome(lambda: list(client.do_action(flight.Action("DropDataset", b"some/types")))))


def again(address):
    """What is put once more under the same name is kept once, whatever is to become of what is there."""
    client, table = connect(address), pyarrow.table({"n": [1, 2]})
    for existing, upload in [("create", "aa" * 8), ("create", "aa" * 8), ("append", "bb" * 8), ("append", "bb" * 8), ("append", "cc" * 8), ("append", "aa" * 8)]:
        said = outcome(lambda: put(client, command("t", put=existing, upload=upload), table))
        print(said, fetch(client, "t")["n"].to_pylist())
    print(outcome(lambda: put(client, command("t", put="create", upload="dd" * 8), table)))
    for wrong in ["short", "../" * 4, "AA" * 8, "a" * 65]:
        print(outcome(lambda: put(client, command("t", put="append", upload=wrong), table)))


def existing(address):
    """What becomes of a dataset that is there."""
    client = connect(address)
    table = lambda value, rows=3: pyarrow.table({"n": pyarrow.array([value] * rows, pyarrow.int64())})
    numbers = lambda: fetch(client, "t")["n"].to_pylist()
    print(put(client, path("t"), table(1)), numbers())
    print(outcome(lambda: put(client, path("t"), table(2))), numbers())
    print(put(client, command("t", put="append"), table(2, 2)), numbers())
    print(put(client, command("t", put="replace"), table(3, 2)), numbers())
    other = pyarrow.table({"n": ["text"]})
    print(outcome(lambda: put(client, command("t", put="append"), other)), numbers())
    print(put(client, command("t", put="replace"), other), numbers())
    print(put(client, command("new", put="append"), table(9)), fetch(client, "new").num_rows)
    print(outcome(lambda: put(client, command("t", put="upsert"), table(2))))
    print(outcome(lambda: put(client, command("t", put="replace", parts=3), table(2))))
    print(outcome(lambda: client.get_flight_info(command("t", put="replace"))))


def named(address, *wanted):
    """How datasets of these names are taken."""
    client = connect(address)
    table = pyarrow.table({"n": [1]})
    for name in wanted:
        print(outcome(lambda: put(client, command(name), table)))
    for columns in [pyarrow.table({}), pyarrow.table([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])]:
        print(outcome(lambda: put(client, command("columns"), columns)))
    print(names(client))


def dropped(address, *wanted):
    client = connect(address)
    for name in wanted:
        print(outcome(lambda: list(client.do_action(flight.Action("DropDataset", name.encode())))))


def ingested(address):
    """ADBC's bulk ingestion, in all its modes."""
    import adbc_driver_flightsql.dbapi as dbapi

    table = pyarrow.table({"n": [1, 2, 3]})
    with dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:

        def ingest(mode, **words):
            try:
                return cursor.adbc_ingest("adbc", table, mode=mode, **words)
            except dbapi.Error as error:
                return type(error).__name__

        def count(name="adbc"):
            cursor.execute(f'SELECT count(*) FROM "{name}"')
            return cursor.fetchone()[0]

        print(ingest("append"), ingest("create"), count(), ingest("create"), ingest("append"), count())
        print(ingest("replace"), count(), ingest("create_append"), count())
        print(ingest("create", temporary=True), count("temporary/adbc.parquet"))
        print(ingest("create", catalog_name="other"), ingest("create", db_schema_name="other"))


def replaced_while_read(address, rounds):
    """A dataset is replaced and appended to while others read it: each reading is of one state."""
    writer, reader, over = connect(address), connect(address), threading.Event()
    table = lambda value: pyarrow.table({"n": pyarrow.array([value] * (100 + value), pyarrow.int64())})
    put(writer, path("moving"), table(0))

    def write():
        for value in range(1, int(rounds)):
            put(writer, command("moving", put="replace"), table(value), rows_per_batch=50)
        over.set()

    thread = threading.Thread(target=write)
    thread.start()
    read = 0
    while not over.is_set():
        try:
            numbers = fetch(reader, "moving")["n"].to_pylist()
        except (flight.FlightError, pyarrow.ArrowException) as error:
            assert "has changed" in str(error), error
            continue
        assert len(set(numbers)) == 1 and len(numbers) == 100 + numbers[0], (len(numbers), set(numbers))
        read += 1
    thread.join()
    print(fetch(reader, "moving")["n"].to_pylist() == [int(rounds) - 1] * (99 + int(rounds)), read > 0)


def prepared_while_columns_change(address):
    """A statement that is prepared once: its columns before and after its table was replaced by one with more of them."""
    import adbc_driver_flightsql.dbapi

    client = connect(address)
    put(client, path("t"), pyarrow.table({"a": [1, 2]}))
    statement = "SELECT * FROM t"
    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:

        def columns():
            cursor.execute(statement)
            try:
                return cursor.fetch_arrow_table().column_names
            except connection.Error:
                return []

        print(columns(), columns())
        put(client, command("t", put="replace"), pyarrow.table({"a": [1], "b": ["x"]}))
        # What a statement was told of its columns when it was prepared may be remembered for a moment, not for ever.
        while (found := columns()) != ["a", "b"]:
            assert found in (["a"], []), found
            time.sleep(0.02)
        cursor.execute("SELECT b, a FROM t")
        print(found, cursor.fetch_arrow_table().column_names)


def half(address, name):
    """Begins to put a dataset, says so, and waits to be ended."""
    client = connect(address)
    table = pyarrow.table({"n": pyarrow.array(range(200_000), pyarrow.int64())})
    writer, _ = client.do_put(path(name), table.schema)
    for _ in range(20):
        writer.write_table(table)
    print("begun", flush=True)
    time.sleep(600)


def large(address, megabytes):
    """One message of that size, there and back."""
    client = connect(address)
    column = pyarrow.array(range(int(megabytes) * 125_000), pyarrow.int64())
    table = pyarrow.table({"n": column})
    said = outcome(lambda: put(client, path("large"), table, rows_per_batch=len(column)))
    print(said, names(client))
    if isinstance(said, dict):
        print(fetch(client, "large")["n"].combine_chunks().equals(column))


def temporary(address, rows):
    """A temporary dataset: what it has, in Flight and SQL, appended to and removed."""
    import adbc_driver_flightsql.dbapi as dbapi

    client = connect(address)
    table = pyarrow.table({"n": pyarrow.array(range(int(rows)), pyarrow.int64())})
    print(put(client, command("mine", temporary=True), table))
    print(put(client, command("temporary/mine", put="append"), table))
    print(names(client), fetch(client, "temporary/mine")["n"].to_pylist() == 2 * table["n"].to_pylist())
    with dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT sum(n) FROM mine")
        print(cursor.fetchone()[0] == int(rows) * (int(rows) - 1))


def looked_up(address, dataset, *regions):
    """Rows of each question of an exchange, as numbers of rows: regions are CONTIG:START-END, 0-based; a comma joins those of one question."""
    client = connect(address)
    descriptor = command(dataset, columns=["name", "contig", "position", "end_position"])
    schema = pyarrow.schema({"contig": pyarrow.string(), "start": pyarrow.int64(), "end": pyarrow.int64()})
    writer, reader = client.do_exchange(descriptor)
    with writer:
        writer.begin(schema)
        for question, words in enumerate(regions):
            rows = [word.replace("-", ":").split(":") for word in words.split(",")]
            columns = [[row[0] for row in rows], [int(row[1]) for row in rows], [int(row[2]) for row in rows]]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            found = 0
            while True:
                chunk = reader.read_chunk()
                said = json.loads(chunk.app_metadata.to_pybytes())
                assert said["question"] == question, said
                found += chunk.data.num_rows
                if said["last"]:
                    break
            print(found)
        writer.done_writing()


def long_field(number, value):
    """A field of protobuf: its tag, its length, its bytes."""
    length, out = len(value), bytearray([number << 3 | 2])
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(out) + bytes([length]) + value


def ended(address, table):
    """A statement that takes long, ended from another connection."""
    client, other = connect(address), connect(address)
    # A CommandStatementQuery of Flight SQL in an Any of protobuf.
    statement = f'SELECT a.name, b.name FROM "{table}" a, "{table}" b, "{table}" c'.encode()
    kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    message = long_field(1, kind) + long_field(2, long_field(1, statement))
    info = client.get_flight_info(flight.FlightDescriptor.for_command(message))
    reader = client.do_get(info.endpoints[0].ticket)
    first = reader.read_chunk().data.num_rows
    status = lambda: json.loads(next(iter(other.do_action(flight.Action("Status", b"")))).body.to_pybytes())
    during = status()
    # CancelFlightInfoRequest: info = 1; its result: status = 1, CANCELLED = 1.
    result = next(iter(other.do_action(flight.Action("CancelFlightInfo", long_field(1, info.serialize()))))).body.to_pybytes()

    def drain():
        while True:
            reader.read_chunk()

    print(first > 0, during["open_streams"], during["writable"], result == b"\x08\x01", outcome(drain).split()[0])
    print(outcome(lambda: client.do_get(info.endpoints[0].ticket).read_all()).split()[0], status()["open_streams"])


WORK = [round_trip, again, existing, named, dropped, ingested, replaced_while_read, prepared_while_columns_change, half, large, temporary, looked_up, ended]
{work.__name__: work for work in WORK}[sys.argv[3]](sys.argv[2], *sys.argv[4:])
