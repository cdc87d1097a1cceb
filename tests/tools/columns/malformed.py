"""Uploads malformed Arrow messages, as gRPC messages.

Arguments: an unused directory, the address HOST:PORT, a seed, and the number of uploads. Prints the numbers of rejected, accepted and fetched
datasets; accepted ones are fetched again.
"""

import collections
import io
import random
import sys

import grpc
import pyarrow
from pyarrow import flight


def protobuf_field(number, value):
    """Returns a length-delimited field of protobuf."""

    def varint(value):
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return bytes(out)

    return varint(number << 3 | 2) + varint(len(value)) + value


def flight_messages(packed):
    """Returns the schema and batches of a table as pairs of header and body."""
    text = pyarrow.array([None if row % 7 == 0 else "ACGT" * (row % 5) for row in range(300)])
    table = pyarrow.table(
        {"n": pyarrow.array(range(300), pyarrow.int64()), "text": text, "word": text.dictionary_encode(), "list": pyarrow.array([[row] * (row % 3) for row in range(300)])}
    )
    out = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd" if packed else None)
    with pyarrow.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=100)
    out.seek(0)
    reader = pyarrow.ipc.MessageReader.open_stream(out)
    return [(message.metadata.to_pybytes(), (message.body or pyarrow.py_buffer(b"")).to_pybytes()) for message in reader]


def mutate_messages(draw, whole):
    """Returns the messages with random changes."""
    parts = [list(message) for message in whole]
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        part = draw.choice(parts)
        at = draw.choice([0, 0, 1])
        data = bytearray(part[at])
        kind = draw.randrange(6)
        if kind == 0 and data:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        elif kind == 1 and len(data) >= 8:
            start = draw.randrange(len(data) - 7)
            data[start : start + 8] = draw.choice([2**63 - 1, 2**40, 2**31, 0, 2**64 - 1]).to_bytes(8, "little")
        elif kind == 2:
            del data[draw.randrange(len(data) + 1) :]
        elif kind == 3:
            data += draw.randbytes(draw.randrange(64))
        elif kind == 4:
            draw.shuffle(parts)
        else:
            parts.append([b"", draw.randbytes(draw.randrange(100))])
        part[at] = bytes(data)
    return parts


def main(_, address, seed, uploads):
    draw, counts = random.Random(int(seed)), collections.Counter()
    channel = grpc.insecure_channel(address)
    upload = channel.stream_stream("/arrow.flight.protocol.FlightService/DoPut")
    whole = [flight_messages(False), flight_messages(True)]
    for number in range(int(uploads)):
        # FlightDescriptor: type = 1 (PATH), path = 3; FlightData: descriptor = 1, header = 2, body = 1000.
        descriptor = b"\x08\x01" + protobuf_field(3, f"m{number}".encode())
        wire = []
        for at, (header, body) in enumerate(mutate_messages(draw, whole[number % 2])):
            wire.append((protobuf_field(1, descriptor) if at == 0 else b"") + protobuf_field(2, header) + protobuf_field(1000, body))
        if draw.random() < 0.1:
            wire[-1] = draw.randbytes(50)
        try:
            list(upload(iter(wire), timeout=30))
            counts["taken"] += 1
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED), (error.code(), error.details())
            counts["refused"] += 1
    client = flight.connect(f"grpc+tcp://{address}")
    fetched = 0
    for info in client.list_flights():
        for endpoint in info.endpoints:
            client.do_get(endpoint.ticket).read_all().validate(full=True)
        fetched += 1
    print(counts["refused"], counts["taken"], fetched)


main(*sys.argv[1:])
