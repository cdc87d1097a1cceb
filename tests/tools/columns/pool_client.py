"""Queries a pool member with third-party clients: pyarrow.flight and DNS.

Arguments: an unused directory, the address HOST:PORT of the member, a command, and its arguments.
"""

import json
import socket
import struct
import sys
import time

from pyarrow import flight


def wait_until_health_is(address, expected):
    """Waits until the member reports the expected health of each member, in the order of the pool: 1 healthy, 0 lost."""
    client = flight.connect(f"grpc+tcp://{address}")
    until = time.monotonic() + 150
    while True:
        (answer,) = client.do_action(flight.Action("Status", b""))
        members = json.loads(answer.body.to_pybytes())["pool"]["nodes"]
        health = "".join(str(int(member["healthy"])) for member in members)
        if health == expected:
            return
        assert time.monotonic() < until, health
        time.sleep(0.02)


def fetch_from_members(address, name):
    """Requests a dataset by six clients; prints the first location of each, and the rows at all locations."""
    for _ in range(6):
        client = flight.connect(f"grpc+tcp://{address}")
        info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
        (endpoint,) = info.endpoints
        locations = [location.uri.decode() for location in endpoint.locations]
        print("first", locations[0])
        tables = [flight.connect(location).do_get(endpoint.ticket).read_all() for location in locations]
        assert all(table.equals(tables[0]) for table in tables)
        print("rows", *[table.num_rows for table in tables])


def resolve_name(address, name, count):
    """Resolves a name repeatedly by a DNS responder, as resolvers do: queries for AAAA and A. Prints the addresses of each A response."""
    host, port = address.split(":")
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(60)
        for number in range(2 * int(count)):
            kind = 28 if number % 2 == 0 else 1
            question = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)
            client.sendto(question, (host, int(port)))
            answer = client.recv(512)
            identity, flags, _, answers, _, _ = struct.unpack(">6H", answer[:12])
            assert identity == number and flags & 0x8000, answer
            records = answer[len(question) :]
            if kind == 1:
                print(flags & 15, *[socket.inet_ntoa(records[16 * at + 12 : 16 * at + 16]) for at in range(answers)])
            else:
                assert not records, answer


if __name__ == "__main__":
    {"wait_until_health_is": wait_until_health_is, "fetch_from_members": fetch_from_members, "resolve_name": resolve_name}[sys.argv[3]](sys.argv[2], *sys.argv[4:])
