#!/usr/bin/env python3
"""Passes TCP connections on to a server, and flips single bits of what the server sends: flipping.py HOST PORT FLIPS SEED BYTES.

As many bits as FLIPS, at places that SEED names within the first BYTES. The first line of output is the port that it listens on; when it is
told to end (SIGTERM), it says in JSON how many bytes came from the server and how many bits were flipped.
"""

import json
import random
import signal
import socket
import sys
import threading


class Flips:
    """Which bytes of all that come are to be flipped."""

    def __init__(self, places):
        self.places, self.bytes, self.flipped, self.lock = sorted(places, reverse=True), 0, 0, threading.Lock()

    def passed(self, piece):
        with self.lock:
            begin, self.bytes = self.bytes, self.bytes + len(piece)
            while self.places and self.places[-1] < self.bytes:
                at = self.places.pop() - begin
                piece[at] ^= 1 << at % 8
                self.flipped += 1


def pump(source, sink, flips):
    try:
        while piece := bytearray(source.recv(1 << 18)):
            if flips:
                flips.passed(piece)
            sink.sendall(piece)
    except OSError:
        pass  # Either side has closed it.
    for one in (source, sink):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # It was closed already.


def main():
    host, port, count, seed, within = sys.argv[1], *map(int, sys.argv[2:])
    draw = random.Random(seed)
    # Not in the first bytes, which are the handshake of each connection.
    flips = Flips(draw.randrange(1 << 20, within) for _ in range(count))

    def tell(*_):
        print(json.dumps({"bytes": flips.bytes, "flipped": flips.flipped}), flush=True)
        sys.exit()

    signal.signal(signal.SIGTERM, tell)
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listening.getsockname()[1], flush=True)
    while True:
        near, _ = listening.accept()
        far = socket.create_connection((host, port))
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for words in ((near, far, None), (far, near, flips)):
            threading.Thread(target=pump, args=words, daemon=True).start()


if __name__ == "__main__":
    main()
