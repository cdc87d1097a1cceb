"""Asks a server with clients of others: pyarrow.flight, ADBC, polars and DuckDB through ADBC.

Arguments: a directory that is not used, the address HOST:PORT, what to do, and words for it. Prints what was found, a line each.
"""

import base64
import os
import sys
import time

import pyarrow
from pyarrow import flight


def connect(address):
    return flight.connect(f"grpc+tcp://{address}")


def described(command):
    """The descriptor of a dataset by the JSON of a command, or else of a statement (FlightSql.proto, CommandStatementQuery)."""
    if command.startswith("{"):
        return flight.FlightDescriptor.for_command(command.encode())

    def field(number, content):
        length, varint = len(content), b""
        while length > 127:
            varint, length = varint + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + varint + bytes([length]) + content

    name = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return flight.FlightDescriptor.for_command(field(1, name) + field(2, field(1, command.encode())))


def rows(client, info):
    tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    return pyarrow.concat_tables(tables)


def listed(address):
    """Names, kinds and numbers of rows of all datasets."""
    for info in connect(address).list_flights():
        print(b"/".join(info.descriptor.path).decode(), info.total_records, len(info.schema))


def fetched(address, command):
    """Rows of a dataset by the JSON of a command: their number, that of their parts, their columns."""
    client = connect(address)
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command.encode()))
    schema = client.get_schema(flight.FlightDescriptor.for_command(command.encode())).schema
    table = rows(client, info)
    assert table.schema.equals(schema), (table.schema, schema)
    print(table.num_rows, len(info.endpoints), ",".join(table.column_names))


def alike(address, other, command):
    """Rows of a dataset of two servers, which are the same."""
    tables = []
    for client in [connect(address), connect(other)]:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command.encode()))
        tables.append(rows(client, info))
    assert tables[0].equals(tables[1], check_metadata=True), command
    print(tables[0].num_rows)


def same_rows(address, command, other):
    """Rows of two datasets of a server by the JSON of two commands, which are the same."""
    client = connect(address)
    tables = []
    for one in (command, other):
        info = client.get_flight_info(flight.FlightDescriptor.for_command(one.encode()))
        tables.append(rows(client, info).combine_chunks())
    assert tables[0].equals(tables[1]), (command, tables)
    print(tables[0].num_rows)


def same_columns(address, *statements):
    """Statements whose columns are the same, as they are told and as they come."""
    client = connect(address)
    schemas = []
    for statement in statements:
        info = client.get_flight_info(described(statement))
        schemas += [info.schema, client.get_schema(described(statement)).schema, rows(client, info).schema]
    for schema in schemas:
        assert schema.equals(schemas[0], check_metadata=True), (statements, schema, schemas[0])


def unreadable(address, command):
    """What is said of a dataset whose rows cannot be read."""
    client = connect(address)
    try:
        rows(client, client.get_flight_info(flight.FlightDescriptor.for_command(command.encode())))
    except (flight.FlightError, OSError, ValueError, KeyError) as error:
        print(error)


def before_and_after(address, command, asked, changed):
    """Rows of a dataset by a ticket, and by the same and a new one after the dataset has changed."""
    client = connect(address)
    descriptor = described(command)
    info = client.get_flight_info(descriptor)
    print(rows(client, info).num_rows)
    open(asked, "w").close()
    while not os.path.exists(changed):
        time.sleep(0.005)
    try:
        print("taken", rows(client, info).num_rows)
    except (flight.FlightError, pyarrow.ArrowException) as error:
        print(str(error).replace("\n", " "))
    print(rows(client, client.get_flight_info(descriptor)).num_rows)


def pieces(address, command, target, *others):
    """A file as it is, written to a target piece by piece, each from another of the locations that its endpoint names."""
    info = connect(address).get_flight_info(flight.FlightDescriptor.for_command(command.encode()))
    asked = 0
    with open(target, "wb") as out:
        for number, endpoint in enumerate(info.endpoints):
            places = [location.uri.decode() for location in endpoint.locations]
            own = [place for place in places if place.startswith("arrow-flight-reuse-connection:")]
            away = [place for place in places if place not in own]
            assert sorted(away) == sorted(f"grpc+tcp://{other}" for other in others) and len(own) == bool(others), places
            where = ([f"grpc+tcp://{address}"] + away)[number % (1 + len(away))]
            asked += where != f"grpc+tcp://{address}"
            for block in flight.connect(where).do_get(endpoint.ticket).read_all()["data"].to_pylist():
                out.write(block)
    print(len(info.endpoints), asked, info.total_bytes)


def refused(address, *tickets):
    """What the server says of tickets that it did not make."""
    client = connect(address)
    for ticket in tickets:
        try:
            client.do_get(flight.Ticket(ticket.encode())).read_all()
            print("taken")
        except flight.FlightError as error:
            print(type(error).__name__, str(error).split(".")[0])
        except pyarrow.ArrowException as error:
            print(type(error).__name__, str(error).split(".")[0])


def by_adbc(address, *statements):
    import adbc_driver_flightsql.dbapi

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            for row in cursor.fetchall():
                print(*row)


def with_parameters(address, statement, *values):
    """One statement, prepared once and run with each value."""
    import adbc_driver_flightsql.dbapi

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        for value in values:
            cursor.execute(statement, parameters=(int(value),))
            print(*cursor.fetchone())


def objects(address):
    """What ADBC finds of catalogs, tables and columns."""
    import adbc_driver_flightsql.dbapi

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection:
        info = connection.adbc_get_info()
        print(info["vendor_name"], *connection.adbc_get_table_types())
        for catalog in connection.adbc_get_objects(depth="all").read_all().to_pylist():
            for schema in catalog["catalog_db_schemas"]:
                for table in schema["db_schema_tables"]:
                    print(catalog["catalog_name"], schema["db_schema_name"], table["table_name"], len(table["table_columns"]))


def by_polars(address, statement):
    import adbc_driver_flightsql.dbapi
    import polars

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection:
        for row in polars.read_database(statement, connection).rows():
            print(*row)


def by_duckdb(address, statement):
    """DuckDB asks what ADBC fetched."""
    import adbc_driver_flightsql.dbapi
    import duckdb

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        fetched = cursor.fetch_arrow_table()
        for row in duckdb.sql("SELECT count(*), sum(position) FROM fetched").fetchall():
            print(*row)


def guarded(address, certificate, header):
    """What a server that asks for a token, and may be encrypted, has."""
    options, where = {}, f"grpc+tcp://{address}"
    if certificate != "-":
        options["tls_root_certs"], where = open(certificate, "rb").read(), f"grpc+tls://{address}"
    client = flight.connect(where, **options)
    call = flight.FlightCallOptions(headers=[(b"authorization", header.encode())] if header != "-" else [])
    try:
        for info in client.list_flights(options=call):
            print(b"/".join(info.descriptor.path).decode())
            print(sum(client.do_get(endpoint.ticket, call).read_all().num_rows for endpoint in info.endpoints))
    except flight.FlightError as error:
        print(type(error).__name__)


def by_handshake(address, *callers):
    """For each NAME:PASSWORD, what a handshake of basic authentication gives: whether it is a bearer's token and another one than the password,
    what is seen with it, and with it as somebody else. The tokens go to a file named by the first word."""
    kept, *callers = callers
    for caller in callers:
        name, password = caller.split(":", 1)
        client = connect(address)
        try:
            key, shown = client.authenticate_basic_token(name, password)
        except flight.FlightError as error:
            print(name, type(error).__name__)
            continue
        assert key == b"authorization" and shown.startswith(b"Bearer ") and password.encode() not in shown, (key, shown)
        with open(kept, "a", encoding="utf8") as out:
            print(shown.decode(), file=out)
        print(name, *seen(client, shown))
        basic = base64.b64encode(b"somebody:" + shown.removeprefix(b"Bearer "))
        print(name, *seen(client, b"Basic " + basic))


def seen(client, header):
    """Names and rows of all that is listed."""
    call = flight.FlightCallOptions(headers=[(b"authorization", header)])
    try:
        infos = list(client.list_flights(options=call))
        rows = sum(client.do_get(endpoint.ticket, call).read_all().num_rows for info in infos for endpoint in info.endpoints)
        return [b"/".join(info.descriptor.path).decode() for info in infos] + [rows]
    except flight.FlightError as error:
        return [type(error).__name__]


WORK = {work.__name__: work for work in [by_handshake, same_rows, same_columns, unreadable, guarded, listed, fetched, pieces, alike, before_and_after, refused, by_adbc, with_parameters, objects, by_polars, by_duckdb]}
WORK[sys.argv[3]](sys.argv[2], *sys.argv[4:])
