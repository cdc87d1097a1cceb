"""Tensors that go to a server and back, over several transports.

`federated.py serve TRANSPORT` prints the address of a server; `federated.py TRANSPORT ADDRESS` is a client.

The server returns every tensor unchanged: the measurement includes everything between two numpy arrays in two processes. Transports:
`exchange`, that of `godwit.federated`; `socket`, pickled, with a length prefix, over a persistent socket; `http`, pickled, as the body of a
request over a persistent connection; `json`, pickled, in base64 and in JSON over HTTP, as PyGrid sends the models and data of its workers.
"""

import base64
import hashlib
import http.client
import http.server
import io
import json
import pickle
import socket
import socketserver
import statistics
import struct
import sys
import time
from collections.abc import Callable
from typing import IO, Any, Protocol, TypeAlias

import numpy as np

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs

Tensors: TypeAlias = list[Any]


class Transport(Protocol):
    """A client of a server that returns its tensors."""

    def round_trip(self, arrays: Tensors) -> Tensors: ...


def to_pickle(arrays: Tensors) -> bytes:
    return pickle.dumps(arrays, protocol=pickle.HIGHEST_PROTOCOL)


def from_pickle(body: bytes) -> Tensors:
    tensors: Tensors = pickle.loads(body)
    return tensors


def to_json(arrays: Tensors) -> bytes:
    return json.dumps({"tensors": base64.b64encode(to_pickle(arrays)).decode()}).encode()


def from_json(body: bytes) -> Tensors:
    return from_pickle(base64.b64decode(json.loads(body)["tensors"]))


# Path -> encoder of tensors to a body, and decoder of a body to tensors.
BODIES: dict[str, tuple[Callable[[Tensors], bytes], Callable[[bytes], Tensors]]] = {"/http": (to_pickle, from_pickle), "/json": (to_json, from_json)}


def receive_frame(stream: IO[bytes] | io.BufferedIOBase) -> Tensors:
    (length,) = struct.unpack("<Q", stream.read(8))
    return from_pickle(stream.read(length))


class Socket:
    def __init__(self, where: str) -> None:
        host, port = where.rsplit(":", 1)
        self.connection = socket.create_connection((host, int(port)))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.connection.makefile("rb")

    def round_trip(self, arrays: Tensors) -> Tensors:
        body = to_pickle(arrays)
        self.connection.sendall(struct.pack("<Q", len(body)))
        self.connection.sendall(body)
        return receive_frame(self.stream)


class Http:
    def __init__(self, where: str, path: str) -> None:
        self.path = path
        self.pack, self.unpack = BODIES[path]
        self.connection = http.client.HTTPConnection(where)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def round_trip(self, arrays: Tensors) -> Tensors:
        self.connection.request("POST", self.path, self.pack(arrays))
        return self.unpack(self.connection.getresponse().read())


class Exchange:
    """One exchange for all tensors of one shape, as `godwit.federated.average` uses with each server."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.open: dict[tuple[Any, ...], Any] = {}

    def round_trip(self, arrays: Tensors) -> Tensors:
        from godwit import federated
        from godwit._flight_client import Connection

        shapes = tuple(array.shape for array in arrays)
        if shapes not in self.open:
            self.open[shapes] = federated._TrainingExchange(Connection(self.where, None, None))
        schema, batch = federated._pack_parameters(arrays)
        flat, _ = self.open[shapes].train_round(schema, batch)
        ends = np.cumsum([array.size for array in arrays])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=False)]


TRANSPORTS: dict[str, Callable[[str], Transport]] = {
    "exchange": Exchange,
    "socket": Socket,
    "http": lambda where: Http(where, "/http"),
    "json": lambda where: Http(where, "/json"),
}


class SocketServer(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        assert isinstance(self.rfile, io.BufferedReader)
        while self.rfile.peek(1):
            body = to_pickle(receive_frame(self.rfile))
            self.connection.sendall(struct.pack("<Q", len(body)))
            self.connection.sendall(body)


class HttpServer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        pack, unpack = BODIES[self.path]
        body = pack(unpack(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


def serve(transport: str) -> None:
    if transport == "exchange":
        from godwit import federated

        node = federated.serve(lambda arrays: (arrays, 1), "127.0.0.1:0")
        print(node.url, flush=True)
        sys.stdin.read()
        node.stop()
        return
    kind, handler = (socketserver.ThreadingTCPServer, SocketServer) if transport == "socket" else (http.server.ThreadingHTTPServer, HttpServer)
    with kind(("127.0.0.1", 0), handler) as server:
        print(f"127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


def random_tensors(shapes: list[list[int]]) -> Tensors:
    """Returns random numbers from a fixed seed in the type of images and parameters: 32-bit floats."""
    draw = np.random.default_rng(20261124)
    return [draw.random(shape, np.float32) for shape in shapes]


def jobs(transport: Transport) -> Jobs:
    def round_trip(shapes: list[list[int]], times: int) -> dict[str, Any]:
        sent, took = random_tensors(shapes), []
        for _ in range(times):
            started = time.perf_counter()
            found = transport.round_trip(sent)
            took.append(time.perf_counter() - started)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in found)).hexdigest()
        return {"median_ms": 1e3 * statistics.median(took), "digest": digest, "bytes": sum(array.nbytes for array in sent)}

    return {"round_trip": round_trip}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        job_loop.run_jobs(jobs(TRANSPORTS[sys.argv[1]](sys.argv[2])))
