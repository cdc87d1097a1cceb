"""Clients that occupy a server and request little: crowd.py ADDRESS IDLE SLOW DATASET PAGE.

IDLE sockets stay open: a third of them sends nothing, a third sends the HTTP/2 preface, a third sends one HTTP/1.1 request. Sockets that the
server closes are reopened each second. Of the SLOW readers, half fetch rows of DATASET over Flight and half fetch PAGE over HTTP/1.1. Each minute,
the former read a batch and the latter 4 KiB. Prints a line when all clients are connected, and ends when stdin is closed.
"""

import itertools
import json
import resource
import selectors
import socket
import sys
import threading
import time

from pyarrow import flight

HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
STREAMS_PER_CLIENT = 25
READ_INTERVAL_S = 60
READ_BYTES = 4096


def first_bytes(kind):
    return (b"", HTTP2_PREFACE, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")[kind % 3]


def connect(host, port, args, receive_bytes=None):
    made = socket.socket()
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.connect((host, port))
    made.sendall(args)
    made.setblocking(False)
    return made


class IdleSockets:
    """Open sockets that send no further requests."""

    def __init__(self, host, port, count):
        self.where, self.watch = (host, port), selectors.DefaultSelector()
        for kind in range(count):
            self.open(kind)

    def open(self, kind):
        try:
            self.watch.register(connect(*self.where, first_bytes(kind)), selectors.EVENT_READ, kind)
        except OSError:
            pass  # The server accepts no more sockets.

    def reopen_closed(self):
        """Reads the answers, and reopens the sockets that the server has closed."""
        for key, _ in self.watch.select(0):
            try:
                if key.fileobj.recv(65536):
                    continue
            except OSError:
                pass
            self.watch.unregister(key.fileobj)
            key.fileobj.close()
            self.open(key.data)

    def open_sockets(self):
        return len(self.watch.get_map())


def open_slow_streams(address, count, dataset):
    """Opens Flight streams and reads one batch of each."""
    streams = []
    clients = [flight.connect(f"grpc+tcp://{address}", generic_options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(0, count, STREAMS_PER_CLIENT)]
    for client in itertools.islice(itertools.cycle(clients), count):
        info = client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps({"dataset": dataset}).encode()))
        stream = client.do_get(info.endpoints[0].ticket)
        stream.read_chunk()
        streams.append(stream)
    return streams


def read_slowly(streams, sockets):
    while True:
        started = time.monotonic()
        for stream in streams:
            try:
                stream.read_chunk()
            except StopIteration:
                pass
        for slow in sockets:
            try:
                slow.recv(READ_BYTES)
            except BlockingIOError:
                pass
        time.sleep(max(0, READ_INTERVAL_S - (time.monotonic() - started)))


def main():
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
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(1):
        sockets.reopen_closed()
    print(json.dumps({"idle": sockets.open_sockets()}), flush=True)


if __name__ == "__main__":
    main()
