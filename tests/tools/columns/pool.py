"""Asks a node of a pool as a client that nobody here wrote.

Arguments: a directory that is not used, the node's address HOST:PORT, what to do, and words for it.
"""

import json
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


if __name__ == "__main__":
    {"sees": sees, "fetched": fetched}[sys.argv[3]](sys.argv[2], *sys.argv[4:])
