"""Queries a server with third-party clients: pyarrow.flight, ADBC, polars and DuckDB through ADBC.

Arguments: an unused directory, the address HOST:PORT, a command, and its arguments. Prints the results, one per line.
"""

import base64
import os
import sys
import time

import pyarrow
from pyarrow import flight


def connect(address):
    return flight.connect(f"grpc+tcp://{address}")


def descriptor_for(command):
    """Returns the descriptor of a JSON command, or else of a statement (FlightSql.proto, CommandStatementQuery)."""
    if command.startswith("{"):
        return flight.FlightDescriptor.for_command(command.encode())

    def protobuf_field(number, content):
        length, varint = len(content), b""
        while length > 127:
            varint, length = varint + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + varint + bytes([length]) + content

    name = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return flight.FlightDescriptor.for_command(protobuf_field(1, name) + protobuf_field(2, protobuf_field(1, command.encode())))


def rows(client, info):
    tables = [client.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    return pyarrow.concat_tables(tables)


def list_datasets(address):
    """Prints names, numbers of rows and numbers of columns of all datasets."""
    for info in connect(address).list_flights():
        print(b"/".join(info.descriptor.path).decode(), info.total_records, len(info.schema))


def fetch_dataset(address, command):
    """Fetches a dataset by a JSON command; prints the numbers of rows and of parts, and the columns."""
    client = connect(address)
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command.encode()))
    schema = client.get_schema(flight.FlightDescriptor.for_command(command.encode())).schema
    table = rows(client, info)
    assert table.schema.equals(schema), (table.schema, schema)
    print(table.num_rows, len(info.endpoints), ",".join(table.column_names))


def assert_same_on_servers(address, other, command):
    """Asserts that two servers return the same rows of a dataset."""
    tables = []
    for client in [connect(address), connect(other)]:
        info = client.get_flight_info(flight.FlightDescriptor.for_command(command.encode()))
        tables.append(rows(client, info))
    assert tables[0].equals(tables[1], check_metadata=True), command
    print(tables[0].num_rows)


def assert_same_rows(address, command, other):
    """Asserts that two JSON commands to one server return the same rows."""
    client = connect(address)
    tables = []
    for one in (command, other):
        info = client.get_flight_info(flight.FlightDescriptor.for_command(one.encode()))
        tables.append(rows(client, info).combine_chunks())
    assert tables[0].equals(tables[1]), (command, tables)
    print(tables[0].num_rows)


def assert_same_columns(address, *statements):
    """Asserts that both statements of each pair have the same columns, in the advertised schemas and in the rows."""
    client = connect(address)
    for pair in zip(statements[::2], statements[1::2], strict=True):
        schemas = []
        for statement in pair:
            info = client.get_flight_info(descriptor_for(statement))
            schemas += [info.schema, client.get_schema(descriptor_for(statement)).schema, rows(client, info).schema]
        for schema in schemas:
            assert schema.equals(schemas[0], check_metadata=True), (pair, schema, schemas[0])


def fetch_error(address, command):
    """Prints the error of a dataset whose rows cannot be read."""
    client = connect(address)
    try:
        rows(client, client.get_flight_info(flight.FlightDescriptor.for_command(command.encode())))
    except (flight.FlightError, OSError, ValueError, KeyError) as error:
        print(error)


def fetch_before_and_after_change(address, command, asked, changed):
    """Fetches a dataset by a ticket, and after a change of the dataset by the same ticket and by a new one."""
    client = connect(address)
    descriptor = descriptor_for(command)
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


def copy_in_ranges(address, command, target, *others):
    """Copies a file in ranges, each from another location of its endpoint."""
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


def check_forged_tickets(address, *tickets):
    """Prints the errors of the server for tickets that it did not issue."""
    client = connect(address)
    for ticket in tickets:
        try:
            client.do_get(flight.Ticket(ticket.encode())).read_all()
            print("taken")
        except flight.FlightError as error:
            print(type(error).__name__, str(error).split(".")[0])
        except pyarrow.ArrowException as error:
            print(type(error).__name__, str(error).split(".")[0])


def query_adbc(address, *statements):
    import adbc_driver_flightsql.dbapi

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            for row in cursor.fetchall():
                print(*row)


def query_prepared(address, statement, *values):
    """Prepares one statement and runs it with each value."""
    import adbc_driver_flightsql.dbapi

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        for value in values:
            cursor.execute(statement, parameters=(int(value),))
            print(*cursor.fetchone())


def adbc_objects(address):
    """Prints the catalogs, tables and columns that ADBC lists."""
    import adbc_driver_flightsql.dbapi

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection:
        info = connection.adbc_get_info()
        print(info["vendor_name"], *connection.adbc_get_table_types())
        for catalog in connection.adbc_get_objects(depth="all").read_all().to_pylist():
            for schema in catalog["catalog_db_schemas"]:
                for table in schema["db_schema_tables"]:
                    print(catalog["catalog_name"], schema["db_schema_name"], table["table_name"], len(table["table_columns"]))


def query_polars(address, statement):
    import adbc_driver_flightsql.dbapi
    import polars

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection:
        for row in polars.read_database(statement, connection).rows():
            print(*row)


def query_duckdb(address, statement):
    """Queries by DuckDB the rows that ADBC fetched."""
    import adbc_driver_flightsql.dbapi
    import duckdb

    with adbc_driver_flightsql.dbapi.connect(f"grpc://{address}") as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        fetched = cursor.fetch_arrow_table()
        for row in duckdb.sql("SELECT count(*), sum(position) FROM fetched").fetchall():
            print(*row)


def query_authenticated(address, certificate, header):
    """Lists and fetches the datasets of a server that requires a token, with or without TLS."""
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


def authenticate_by_handshake(address, *credentials):
    """Authenticates by a handshake with each NAME:PASSWORD. Asserts that the result is a bearer token that differs from the password; prints the
    datasets for this token, and for the token as the password of another user. The first argument is the file for the tokens."""
    tokens_path, *credentials = credentials
    for credential in credentials:
        name, password = credential.split(":", 1)
        client = connect(address)
        try:
            key, token = client.authenticate_basic_token(name, password)
        except flight.FlightError as error:
            print(name, type(error).__name__)
            continue
        assert key == b"authorization" and token.startswith(b"Bearer ") and password.encode() not in token, (key, token)
        with open(tokens_path, "a", encoding="utf8") as out:
            print(token.decode(), file=out)
        print(name, *list_flights(client, token))
        basic = base64.b64encode(b"somebody:" + token.removeprefix(b"Bearer "))
        print(name, *list_flights(client, b"Basic " + basic))


def list_flights(client, header):
    """Returns the names of all datasets, and the number of their rows."""
    call = flight.FlightCallOptions(headers=[(b"authorization", header)])
    try:
        infos = list(client.list_flights(options=call))
        rows = sum(client.do_get(endpoint.ticket, call).read_all().num_rows for info in infos for endpoint in info.endpoints)
        return [b"/".join(info.descriptor.path).decode() for info in infos] + [rows]
    except flight.FlightError as error:
        return [type(error).__name__]


COMMANDS = {work.__name__: work for work in [authenticate_by_handshake, assert_same_rows, assert_same_columns, fetch_error, query_authenticated, list_datasets, fetch_dataset, copy_in_ranges, assert_same_on_servers, fetch_before_and_after_change, check_forged_tickets, query_adbc, query_prepared, adbc_objects, query_polars, query_duckdb]}
COMMANDS[sys.argv[3]](sys.argv[2], *sys.argv[4:])
