"""Clients that occupy a server and request little: crowd.py ADDRESS IDLE SLOW DATASET PAGE.

IDLE sockets stay open: a third of them sends nothing, a third sends the HTTP/2 preface, a third sends one HTTP/1.1 request. Sockets that the
server closes are reopened each second. Of the SLOW readers, half fetch rows of DATASET over Flight and half fetch PAGE over HTTP/1.1. Each minute,
the former read a batch and the latter 4 KiB. Prints a line when all clients are connected, and ends when stdin is closed.
"""

import contextlib
import itertools
import json
import resource
import selectors
import socket
import sys
import threading
import time
from typing import Any

from pyarrow import flight

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
STREAMS_PER_CLIENT = 25
READ_INTERVAL_S = 60
READ_BYTES = 4096


def first_bytes(kind: int) -> bytes:
    return (b"", HTTP2_PREFACE, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")[kind % 3]


def connect(host: str, port: int, args: bytes, receive_bytes: int | None = None) -> socket.socket:
    made = socket.socket()
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.connect((host, port))
    made.sendall(args)
    made.setblocking(False)
    return made


class IdleSockets:
    """Open sockets that send no further requests."""

    def __init__(self, host: str, port: int, count: int) -> None:
        self.where, self.watch = (host, port), selectors.DefaultSelector()
        for kind in range(count):
            self.open(kind)

    def open(self, kind: int) -> None:
        # An error: the server accepts no more sockets.
        with contextlib.suppress(OSError):
            self.watch.register(connect(*self.where, first_bytes(kind)), selectors.EVENT_READ, kind)

    def reopen_closed(self) -> None:
        """Reads the answers, and reopens the sockets that the server has closed."""
        for key, _ in self.watch.select(0):
            idle = key.fileobj
            assert isinstance(idle, socket.socket)
            with contextlib.suppress(OSError):
                if idle.recv(65536):
                    continue
            self.watch.unregister(idle)
            idle.close()
            self.open(key.data)

    def open_sockets(self) -> int:
        return len(self.watch.get_map())


def open_slow_streams(address: str, count: int, dataset: str) -> list[Any]:
    """Opens Flight streams and reads one batch of each."""
    streams = []
    clients = [
        flight.connect(f"grpc+tcp://{address}", generic_options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(0, count, STREAMS_PER_CLIENT)
    ]
    for client in itertools.islice(itertools.cycle(clients), count):
        info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps({"dataset": dataset}).encode()))
        stream = client.do_get(info.endpoints[0].ticket)
        stream.read_chunk()
        streams.append(stream)
    return streams


def read_slowly(streams: list[Any], sockets: list[socket.socket]) -> None:
    while True:
        started = time.monotonic()
        for stream in streams:
            with contextlib.suppress(StopIteration):
                stream.read_chunk()
        for slow in sockets:
            with contextlib.suppress(BlockingIOError):
                slow.recv(READ_BYTES)
        time.sleep(max(0, READ_INTERVAL_S - (time.monotonic() - started)))


def main() -> None:
    address, idle, slow, dataset, page = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    host, port = address.split(":")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    sockets = IdleSockets(host, int(port), idle)
    asked = f"GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    readers = [connect(host, int(port), asked, READ_BYTES) for _ in range(slow // 2)]
    streams = open_slow_streams(address, slow - len(readers), dataset)
    threading.Thread(target=read_slowly, args=(streams, readers), daemon=True).start()
    print(json.dumps({"idle": sockets.open_sockets(), "pages": len(readers), "streams": len(streams)}), flush=True)
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    while not ended.wait(1):
        sockets.reopen_closed()
    print(json.dumps({"idle": sockets.open_sockets()}), flush=True)


if __name__ == "__main__":
    main()
