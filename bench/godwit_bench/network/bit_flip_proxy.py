"""Forwards TCP connections to a server, and flips single bits of the server's data: bit_flip_proxy.py HOST PORT FLIPS SEED BYTES.

Flips FLIPS bits at offsets that SEED selects within the first BYTES. The first line of output is the port on which the proxy listens. On SIGTERM
the proxy prints as JSON how many bytes the server has sent and how many bits were flipped.
"""

import contextlib
import json
import random
import signal
import socket
import sys
import threading
from collections.abc import Iterable


class BitFlips:
    """The bytes to flip, as offsets into all data of the server."""

    def __init__(self, places: Iterable[int]) -> None:
        self.offsets, self.bytes, self.flipped, self.lock = sorted(places, reverse=True), 0, 0, threading.Lock()

    def flip_bits(self, piece: bytearray) -> None:
        with self.lock:
            begin, self.bytes = self.bytes, self.bytes + len(piece)
            while self.offsets and self.offsets[-1] < self.bytes:
                at = self.offsets.pop() - begin
                piece[at] ^= 1 << at % 8
                self.flipped += 1


def forward(source: socket.socket, sink: socket.socket, flips: BitFlips | None) -> None:
    # An error: either side has closed it.
    with contextlib.suppress(OSError):
        while piece := bytearray(source.recv(1 << 18)):
            if flips:
                flips.flip_bits(piece)
            sink.sendall(piece)
    for one in (source, sink):
        # An error: it was closed already.
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def main() -> None:
    host, port, count, seed, within = sys.argv[1], *map(int, sys.argv[2:])
    draw = random.Random(seed)
    # Not in the first bytes, which are the handshake of each connection.
    flips = BitFlips(draw.randrange(1 << 20, within) for _ in range(count))

    def print_counts(*_: object) -> None:
        print(json.dumps({"bytes": flips.bytes, "flipped": flips.flipped}), flush=True)
        sys.exit()

    signal.signal(signal.SIGTERM, print_counts)
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listening.getsockname()[1], flush=True)
    while True:
        near, _ = listening.accept()
        far = socket.create_connection((host, port))
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for args in ((near, far, None), (far, near, flips)):
            threading.Thread(target=forward, args=args, daemon=True).start()


if __name__ == "__main__":
    main()
