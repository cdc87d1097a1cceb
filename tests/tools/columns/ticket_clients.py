"""Sends tickets that the server did not issue to the client; the server must reject all of them.

Arguments: an unused directory, the address of a server, that of another server with the same data, a JSON file with the tokens of alice and
bob, a seed, and the number of tickets. Prints the number of rejected tickets, and the numbers by kind.
"""

import collections
import json
import random
import sys

import pyarrow
from pyarrow import flight

DATASET = "cohort/people.csv"


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def protobuf_field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def statement_command(sql):
    """Returns the descriptor of a Flight SQL statement."""
    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return flight.FlightDescriptor.for_command(protobuf_field(1, url) + protobuf_field(2, protobuf_field(1, sql.encode())))


class FlightClient:
    def __init__(self, address, token):
        self.client = flight.connect(f"grpc+tcp://{address}")
        self.options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])

    def info(self, descriptor):
        return self.client.get_flight_info(descriptor, self.options)

    def rows(self, ticket):
        return self.client.do_get(flight.Ticket(ticket), self.options).read_all()

    def tickets(self):
        """Returns infos and tickets of a dataset, of one column of a dataset, and of a statement."""
        command = json.dumps({"dataset": DATASET, "columns": ["subject"]}).encode()
        asked = [flight.FlightDescriptor.for_path(DATASET), flight.FlightDescriptor.for_command(command)]
        infos = [self.info(descriptor) for descriptor in asked + [statement_command("SELECT subject FROM people")]]
        return infos, [info.endpoints[0].ticket.ticket for info in infos]


def flip_bit(draw, ticket):
    changed = bytearray(ticket)
    for _ in range(draw.choice([1, 1, 2, 5])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed) if changed != ticket else flip_bit(draw, ticket)


def forge_ticket(draw, ticket):
    """Returns a ticket with a changed body and the old signature: a later expiry, another client, another dataset."""
    head, body = ticket[:36], ticket[36:]
    other = draw.choice(["../people.csv", "/etc/passwd.csv", "cohort/../secret.csv", "cohort/people.csv/", "secret.csv"])
    changes = [
        (b"bob", b"alice"),
        (DATASET.encode(), other.encode()),
        (bytes([len(DATASET)]) + DATASET.encode(), bytes([len(other)]) + other.encode()),
        (b"SELECT subject", b"SELECT       *"),
        (body[:1], b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x08"),
    ]
    fitting = [(old, new) for old, new in changes if old in body]
    old, new = draw.choice(fitting)
    head = draw.choice([head, b"gw1." + bytes(32), b"gw1." + draw.randbytes(32), head[:4]])
    return head + body.replace(old, new, 1)


def random_bytes(draw):
    """Returns bytes that were never a ticket: requests for files, whose tickets are not signed, and random bytes."""
    paths = ["cohort/people.csv", "../policy.toml", "cohort/../../policy.toml", "/etc/passwd", "secret.csv", "./secret.csv", "tokens.txt"]
    state = draw.choice([{"version": draw.getrandbits(63)}, {"written": {"size_bytes": 9, "modified_s": 1, "modified_ns": 0}}])
    span = {"file": 0, "path": draw.choice(paths), "state": state, "start": 0, "end": 1}
    manner = {"mode": "fast", "bytes_per_s": None, "compress": False}
    request = json.dumps({"spans": [span], "manner": manner}).encode()
    words = [
        b"godwit.files.read" + request,
        b"godwit.files.read" + flip_bit(draw, request),
        b"gw1." + draw.randbytes(draw.randrange(200)),
        draw.randbytes(draw.randrange(100)),
        statement_command("SELECT * FROM people").command,
        json.dumps({"dataset": DATASET}).encode(),
    ]
    return draw.choice(words)


def main(address, other, tokens, seed, count):
    tokens = json.load(open(tokens, encoding="utf8"))
    draw = random.Random(int(seed))
    alice, bob = FlightClient(address, tokens["alice"]), FlightClient(address, tokens["bob"])
    _, of_alice = alice.tickets()
    # Valid tickets are accepted; otherwise the rejections below would prove nothing.
    assert [alice.rows(ticket).num_rows for ticket in of_alice] == [4, 4, 4]
    _, of_bob = bob.tickets()
    assert [bob.rows(ticket).num_rows for ticket in of_bob] == [2, 2, 2]
    _, elsewhere = FlightClient(other, tokens["bob"]).tickets()
    cancelled, ended = bob.tickets()
    for info in cancelled:
        list(bob.client.do_action(flight.Action("CancelFlightInfo", protobuf_field(1, info.serialize())), bob.options))
    kinds = {
        "flipped": lambda: flip_bit(draw, draw.choice(of_bob)),
        "cut": lambda: (ticket := draw.choice(of_bob))[: draw.randrange(len(ticket))],
        "longer": lambda: draw.choice(of_bob) + draw.randbytes(draw.randrange(1, 9)),
        "spliced": lambda: draw.choice(of_bob)[:36] + draw.choice(of_alice)[36:],
        "forged": lambda: forge_ticket(draw, draw.choice(of_bob)),
        "another's": lambda: draw.choice(of_alice),
        "another server's": lambda: draw.choice(elsewhere),
        "ended": lambda: draw.choice(ended),
        "no ticket": lambda: random_bytes(draw),
    }
    refused = collections.Counter()
    while sum(refused.values()) < int(count):
        kind = draw.choice(list(kinds))
        ticket = kinds[kind]()
        if ticket in of_bob:
            continue
        try:
            rows = bob.rows(ticket)
        except (flight.FlightError, pyarrow.ArrowException, OSError, ValueError):
            refused[kind] += 1
        else:
            raise AssertionError((kind, ticket, rows))
    # The server still works, and its own tickets are still valid.
    assert [bob.rows(ticket).num_rows for ticket in of_bob] == [2, 2, 2]
    print(sum(refused.values()), dict(refused))


if __name__ == "__main__":
    main(*sys.argv[2:])
