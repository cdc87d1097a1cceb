"""Asks a node of a pool as a client that nobody here wrote.

Arguments: a directory that is not used, the node's address HOST:PORT, what to do, and words for it.
"""

import json
import socket
import struct
import sys
import time

from pyarrow import flight


def sees(address, expected):
    """Waits until the node thinks of each node, in the order of the pool, that it is there (1) or not (0)."""
    client = flight.connect(f"grpc+tcp://{address}")
    until = time.monotonic() + 150
    while True:
        (answer,) = client.do_action(flight.Action("Status", b""))
        nodes = json.loads(answer.body.to_pybytes())["pool"]["nodes"]
        seen = "".join(str(int(node["healthy"])) for node in nodes)
        if seen == expected:
            return
        assert time.monotonic() < until, seen
        time.sleep(0.02)


def fetched(address, name):
    """Where six clients are told to fetch a dataset, and its rows at each of the places."""
    for _ in range(6):
        client = flight.connect(f"grpc+tcp://{address}")
        info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
        (endpoint,) = info.endpoints
        locations = [location.uri.decode() for location in endpoint.locations]
        print("first", locations[0])
        tables = [flight.connect(location).do_get(endpoint.ticket).read_all() for location in locations]
        assert all(table.equals(tables[0]) for table in tables)
        print("rows", *[table.num_rows for table in tables])


def named(address, name, count):
    """Addresses that a responder at an address says the name has, asked so often: those of each answer."""
    host, port = address.split(":")
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(60)
        for number in range(int(count)):
            question = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
            asking.sendto(question, (host, int(port)))
            answer = asking.recv(512)
            identity, flags, _, answers, _, _ = struct.unpack(">6H", answer[:12])
            assert identity == number and flags & 0x8000, answer
            records = answer[len(question) :]
            print(flags & 15, *[socket.inet_ntoa(records[16 * at + 12 : 16 * at + 16]) for at in range(answers)])


if __name__ == "__main__":
    {"sees": sees, "fetched": fetched, "named": named}[sys.argv[3]](sys.argv[2], *sys.argv[4:])
