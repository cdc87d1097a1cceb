"""Uploads datasets with third-party clients, pyarrow.flight and ADBC; looks up regions; cancels a statement.

Arguments: an unused directory, the address HOST:PORT, a command, and its arguments. Prints the results, one per line.
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


def path_descriptor(name):
    return flight.FlightDescriptor.for_path(*name.split("/"))


def command_descriptor(name, **options):
    return flight.FlightDescriptor.for_command(json.dumps({"dataset": name, **options}).encode())


def upload_table(client, descriptor, table, rows_per_batch=1000):
    """Uploads a table; returns the response of the server."""
    writer, answers = client.do_put(descriptor, table.schema)
    with writer:
        writer.write_table(table, max_chunksize=rows_per_batch)
        writer.done_writing()
        response = answers.read()
        return json.loads(response.to_pybytes())


def fetch(client, name):
    info = client.get_flight_info(path_descriptor(name))
    return pyarrow.concat_tables([info.schema.empty_table()] + [client.do_get(one.ticket).read_all() for one in info.endpoints])


def result_or_error(operation):
    """Returns the value of an operation, or the type and first line of its error, without the text that the client adds."""
    try:
        return operation()
    except (flight.FlightError, pyarrow.ArrowException) as error:
        return f"{type(error).__name__} {str(error).split('. gRPC')[0].splitlines()[0]}"


def dataset_names(client):
    return [b"/".join(info.descriptor.path).decode() for info in client.list_flights()]


def table_of_many_types(rows):
    """Returns a table with a column of every type that Parquet stores, and nulls in all columns."""
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


def check_round_trip(address):
    """Checks that every type is fetched as it was uploaded, and can be queried with SQL."""
    import adbc_driver_flightsql.dbapi

    client, table = connect(address), table_of_many_types(5000).replace_schema_metadata({"made by": "a test"})
    print(upload_table(client, path_descriptor("some/types"), table))
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
    print(upload_table(client, path_descriptor("empty"), table.slice(0, 0)), fetch(client, "empty").num_rows, fetch(client, "empty").schema.equals(table.schema))
    print(dataset_names(client))
    print(list(client.do_action(flight.Action("DropDataset", b"some/types"))), dataset_names(client))
    print(result_or_error(lambda: list(client.do_action(flight.Action("DropDataset", b"some/types")))))


def upload_twice(address):
    """Checks that an upload that is repeated with the same ID is stored once, in every mode."""
    client, table = connect(address), pyarrow.table({"n": [1, 2]})
    for existing, upload in [("create", "aa" * 8), ("create", "aa" * 8), ("append", "bb" * 8), ("append", "bb" * 8), ("append", "cc" * 8), ("append", "aa" * 8)]:
        response = result_or_error(lambda: upload_table(client, command_descriptor("t", put=existing, upload=upload), table))
        print(response, fetch(client, "t")["n"].to_pylist())
    print(result_or_error(lambda: upload_table(client, command_descriptor("t", put="create", upload="dd" * 8), table)))
    for wrong in ["short", "../" * 4, "AA" * 8, "a" * 65]:
        print(result_or_error(lambda: upload_table(client, command_descriptor("t", put="append", upload=wrong), table)))


def upload_over_existing(address):
    """Uploads over an existing dataset, in every mode."""
    client = connect(address)
    table = lambda value, rows=3: pyarrow.table({"n": pyarrow.array([value] * rows, pyarrow.int64())})
    numbers = lambda: fetch(client, "t")["n"].to_pylist()
    print(upload_table(client, path_descriptor("t"), table(1)), numbers())
    print(result_or_error(lambda: upload_table(client, path_descriptor("t"), table(2))), numbers())
    print(upload_table(client, command_descriptor("t", put="append"), table(2, 2)), numbers())
    print(upload_table(client, command_descriptor("t", put="replace"), table(3, 2)), numbers())
    other = pyarrow.table({"n": ["text"]})
    print(result_or_error(lambda: upload_table(client, command_descriptor("t", put="append"), other)), numbers())
    print(upload_table(client, command_descriptor("t", put="replace"), other), numbers())
    print(upload_table(client, command_descriptor("new", put="append"), table(9)), fetch(client, "new").num_rows)
    print(result_or_error(lambda: upload_table(client, command_descriptor("t", put="upsert"), table(2))))
    print(result_or_error(lambda: upload_table(client, command_descriptor("t", put="replace", parts=3), table(2))))
    print(result_or_error(lambda: client.get_flight_info(command_descriptor("t", put="replace"))))


def upload_under_names(address, *wanted):
    """Uploads datasets under the given names, and tables with unusual columns."""
    client = connect(address)
    table = pyarrow.table({"n": [1]})
    for name in wanted:
        print(result_or_error(lambda: upload_table(client, command_descriptor(name), table)))
    for columns in [pyarrow.table({}), pyarrow.table([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])]:
        print(result_or_error(lambda: upload_table(client, command_descriptor("columns"), columns)))
    print(dataset_names(client))


def drop_datasets(address, *wanted):
    client = connect(address)
    for name in wanted:
        print(result_or_error(lambda: list(client.do_action(flight.Action("DropDataset", name.encode())))))


def ingest_by_adbc(address):
    """Runs the bulk ingestion of ADBC in all its modes."""
    import adbc_driver_flightsql.dbapi as dbapi

    table = pyarrow.table({"n": [1, 2, 3]})
    with dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:

        def ingest(mode, **options):
            try:
                return cursor.adbc_ingest("adbc", table, mode=mode, **options)
            except dbapi.Error as error:
                return type(error).__name__

        def count(name="adbc"):
            cursor.execute(f'SELECT count(*) FROM "{name}"')
            return cursor.fetchone()[0]

        print(ingest("append"), ingest("create"), count(), ingest("create"), ingest("append"), count())
        print(ingest("replace"), count(), ingest("create_append"), count())
        print(ingest("create", temporary=True), count("temporary/adbc.parquet"))
        print(ingest("create", catalog_name="other"), ingest("create", db_schema_name="other"))


def read_while_replaced(address, rounds):
    """Replaces a dataset while another client reads it: each read returns one state."""
    writer, reader, over = connect(address), connect(address), threading.Event()
    table = lambda value: pyarrow.table({"n": pyarrow.array([value] * (100 + value), pyarrow.int64())})
    upload_table(writer, path_descriptor("moving"), table(0))

    def write():
        for value in range(1, int(rounds)):
            upload_table(writer, command_descriptor("moving", put="replace"), table(value), rows_per_batch=50)
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
    """Runs a prepared statement before and after its table is replaced by one with more columns."""
    import adbc_driver_flightsql.dbapi

    client = connect(address)
    upload_table(client, path_descriptor("t"), pyarrow.table({"a": [1, 2]}))
    statement = "SELECT * FROM t"
    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:

        def columns():
            cursor.execute(statement)
            try:
                return cursor.fetch_arrow_table().column_names
            except connection.Error:
                return []

        print(columns(), columns())
        upload_table(client, command_descriptor("t", put="replace"), pyarrow.table({"a": [1], "b": ["x"]}))
        # The columns of the prepared statement may be cached for a short time.
        while (found := columns()) != ["a", "b"]:
            assert found in (["a"], []), found
            time.sleep(0.02)
        cursor.execute("SELECT b, a FROM t")
        print(found, cursor.fetch_arrow_table().column_names)


def upload_half(address, name):
    """Uploads a part of a dataset, prints a line, and waits to be killed."""
    client = connect(address)
    table = pyarrow.table({"n": pyarrow.array(range(200_000), pyarrow.int64())})
    writer, _ = client.do_put(path_descriptor(name), table.schema)
    for _ in range(20):
        writer.write_table(table)
    print("begun", flush=True)
    time.sleep(600)


def upload_large_message(address, megabytes):
    """Uploads and fetches one message of the given size."""
    client = connect(address)
    column = pyarrow.array(range(int(megabytes) * 125_000), pyarrow.int64())
    table = pyarrow.table({"n": column})
    response = result_or_error(lambda: upload_table(client, path_descriptor("large"), table, rows_per_batch=len(column)))
    print(response, dataset_names(client))
    if isinstance(response, dict):
        print(fetch(client, "large")["n"].combine_chunks().equals(column))


def upload_temporary(address, rows):
    """Uploads a temporary dataset, appends to it, and reads it by Flight and SQL."""
    import adbc_driver_flightsql.dbapi as dbapi

    client = connect(address)
    table = pyarrow.table({"n": pyarrow.array(range(int(rows)), pyarrow.int64())})
    print(upload_table(client, command_descriptor("mine", temporary=True), table))
    print(upload_table(client, command_descriptor("temporary/mine", put="append"), table))
    print(dataset_names(client), fetch(client, "temporary/mine")["n"].to_pylist() == 2 * table["n"].to_pylist())
    with dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT sum(n) FROM mine")
        print(cursor.fetchone()[0] == int(rows) * (int(rows) - 1))


def look_up_regions(address, dataset, *regions):
    """Prints the number of rows for each request of an exchange. Regions are CONTIG:START-END, 0-based; commas separate those of one request."""
    client = connect(address)
    descriptor = command_descriptor(dataset, columns=["name", "contig", "position", "end_position"])
    schema = pyarrow.schema({"contig": pyarrow.string(), "start": pyarrow.int64(), "end": pyarrow.int64()})
    writer, reader = client.do_exchange(descriptor)
    with writer:
        writer.begin(schema)
        for question, request in enumerate(regions):
            rows = [region.replace("-", ":").split(":") for region in request.split(",")]
            columns = [[row[0] for row in rows], [int(row[1]) for row in rows], [int(row[2]) for row in rows]]
            writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            found = 0
            while True:
                chunk = reader.read_chunk()
                response = json.loads(chunk.app_metadata.to_pybytes())
                assert response["question"] == question, response
                found += chunk.data.num_rows
                if response["last"]:
                    break
            print(found)
        writer.done_writing()


def protobuf_field(number, value):
    """Returns a length-delimited field of protobuf."""
    length, out = len(value), bytearray([number << 3 | 2])
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(out) + bytes([length]) + value


def cancel_statement(address, table):
    """Cancels a long statement from another connection."""
    client, other = connect(address), connect(address)
    # A CommandStatementQuery of Flight SQL in an Any of protobuf.
    statement = f'SELECT a.name, b.name FROM "{table}" a, "{table}" b, "{table}" c'.encode()
    kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    message = protobuf_field(1, kind) + protobuf_field(2, protobuf_field(1, statement))
    info = client.get_flight_info(flight.FlightDescriptor.for_command(message))
    reader = client.do_get(info.endpoints[0].ticket)
    first = reader.read_chunk().data.num_rows
    status = lambda: json.loads(next(iter(other.do_action(flight.Action("Status", b"")))).body.to_pybytes())
    during = status()
    # CancelFlightInfoRequest: info = 1; its result: status = 1, CANCELLED = 1.
    result = next(iter(other.do_action(flight.Action("CancelFlightInfo", protobuf_field(1, info.serialize()))))).body.to_pybytes()

    def drain():
        while True:
            reader.read_chunk()

    print(first > 0, during["open_streams"], during["writable"], result == b"\x08\x01", result_or_error(drain).split()[0])
    print(result_or_error(lambda: client.do_get(info.endpoints[0].ticket).read_all()).split()[0], status()["open_streams"])


def adbc_partitions(address, table):
    """Reads the partitions of a statement over connections of their own, and cancels a statement by the ADBC driver."""
    import adbc_driver_flightsql.dbapi as dbapi

    uri, client = f"grpc://{address}", connect(address)
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        partitions, _ = cursor.adbc_execute_partitions(f'SELECT name FROM "{table}"')
        rows = 0
        for partition in partitions:
            with dbapi.connect(uri) as other, other.cursor() as reader:
                reader.adbc_read_partition(partition)
                rows += reader.fetch_arrow_table().num_rows
        cursor.execute(f'SELECT count(*) FROM "{table}"')
        print(rows == cursor.fetchone()[0])
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        threading.Timer(1.0, cursor.adbc_cancel).start()
        try:
            cursor.execute("SELECT sum(a.value * b.value) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b")
            cursor.fetchone()
            print("not cancelled")
        except (dbapi.Error, OSError):
            print("cancelled")
    status = lambda: json.loads(next(iter(client.do_action(flight.Action("Status", b"")))).body.to_pybytes())
    deadline = time.monotonic() + 20
    while status()["open_streams"] > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    print(status()["open_streams"])


def adbc_progress(address, rows):
    """Reads the only partition of a statement, and prints whether the ADBC driver shows its progress in the meantime."""
    import adbc_driver_flightsql.dbapi as dbapi

    uri, names = f"grpc://{address}", pyarrow.table({"name": [f"{number:010}" for number in range(int(rows))]})
    upload_table(connect(address), command_descriptor("names", put="create"), names, 10_000)
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        statement, found = cursor.adbc_statement, []
        statement.set_options(**{"adbc.statement.exec.incremental": "true"})
        statement.set_sql_query("SELECT sum(length(replace(repeat(name, 60), '0', '00'))) AS total FROM names")
        (partition,), _, _ = statement.execute_partitions()

        def read():
            with dbapi.connect(uri) as other, other.cursor() as reader:
                reader.adbc_read_partition(partition)
                found.append(reader.fetch_arrow_table()["total"].to_pylist())

        # Polls until the statement is done.
        poll = lambda: found.append(len(statement.execute_partitions()[0]))
        threads = [threading.Thread(target=work, daemon=True) for work in (read, poll)]
        for thread in threads:
            thread.start()
        seen = [0.0]
        while threads[1].is_alive():
            time.sleep(0.01)
            progress = statement.get_option_float("adbc.statement.exec.progress")
            if progress not in seen:
                seen.append(progress)
        threads[0].join()
        during = [progress for progress in seen if 0 < progress < 1]
        total = 60 * sum(10 + name.count("0") for name in names["name"].to_pylist())
        print(len(during) > 0, during == sorted(during), [total] in found, 0 in found)


COMMANDS = [adbc_partitions, adbc_progress, check_round_trip, upload_twice, upload_over_existing, upload_under_names, drop_datasets, ingest_by_adbc, read_while_replaced, prepared_while_columns_change, upload_half, upload_large_message, upload_temporary, look_up_regions, cancel_statement]
{operation.__name__: operation for operation in COMMANDS}[sys.argv[3]](sys.argv[2], *sys.argv[4:])
