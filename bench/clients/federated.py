"""Tensors that go to a node and come back, in several ways: federated.py serve WAY, which prints where it is, and federated.py WAY WHERE.

The node gives every tensor back as it came: what is measured is all that lies between two arrays of numpy in two processes. Ways: `exchange`, that of
`godwit.federated`; `socket`, pickled, behind their length, over a socket that stays open; `http`, pickled, as the body of a request over a connection that is
kept; `json`, pickled, in base64 and in JSON over HTTP, which is how PyGrid sends what its workers train on.
"""

import base64
import hashlib
import http.client
import http.server
import json
import pickle
import socket
import socketserver
import statistics
import struct
import sys
import time

import _loop
import numpy as np


def pickled(arrays):
    return pickle.dumps(arrays, protocol=pickle.HIGHEST_PROTOCOL)


def in_json(arrays):
    return json.dumps({"tensors": base64.b64encode(pickled(arrays)).decode()}).encode()


def out_of_json(body):
    return pickle.loads(base64.b64decode(json.loads(body)["tensors"]))


# Path -> how tensors become a body, and a body tensors.
BODIES = {"/http": (pickled, pickle.loads), "/json": (in_json, out_of_json)}


def received(stream):
    (length,) = struct.unpack("<Q", stream.read(8))
    return pickle.loads(stream.read(length))


class Socket:
    def __init__(self, where):
        host, port = where.rsplit(":", 1)
        self.connection = socket.create_connection((host, int(port)))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = self.connection.makefile("rb")

    def there_and_back(self, arrays):
        body = pickled(arrays)
        self.connection.sendall(struct.pack("<Q", len(body)))
        self.connection.sendall(body)
        return received(self.stream)


class Http:
    def __init__(self, where, path):
        self.path = path
        self.pack, self.unpack = BODIES[path]
        self.connection = http.client.HTTPConnection(where)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def there_and_back(self, arrays):
        self.connection.request("POST", self.path, self.pack(arrays))
        return self.unpack(self.connection.getresponse().read())


class Exchange:
    """One exchange for all tensors of one shape, as `godwit.federated.average` has with each node."""

    def __init__(self, where):
        self.where, self.open = where, {}

    def there_and_back(self, arrays):
        from godwit import federated
        from godwit._flight import Connection

        shapes = tuple(array.shape for array in arrays)
        if shapes not in self.open:
            self.open[shapes] = federated._Exchange(Connection(self.where, None, None))
        schema, batch = federated._packed(arrays)
        flat, _ = self.open[shapes].trained(schema, batch)
        ends = np.cumsum([array.size for array in arrays])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes)]


WAYS = {"exchange": Exchange, "socket": Socket, "http": lambda where: Http(where, "/http"), "json": lambda where: Http(where, "/json")}


class SocketNode(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while self.rfile.peek(1):
            body = pickled(received(self.rfile))
            self.connection.sendall(struct.pack("<Q", len(body)))
            self.connection.sendall(body)


class HttpNode(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self):
        pack, unpack = BODIES[self.path]
        body = pack(unpack(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_):
        pass


def serve(way):
    if way == "exchange":
        from godwit import federated

        node = federated.serve(lambda arrays: (arrays, 1), "127.0.0.1:0")
        print(node.url, flush=True)
        sys.stdin.read()
        node.stop()
        return
    kind, handler = (socketserver.ThreadingTCPServer, SocketNode) if way == "socket" else (http.server.ThreadingHTTPServer, HttpNode)
    with kind(("127.0.0.1", 0), handler) as server:
        print(f"127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


def tensors(shapes):
    """Numbers of a seed, as pictures and parameters have them: floats of 32 bits."""
    draw = np.random.default_rng(20261124)
    return [draw.random(shape, np.float32) for shape in shapes]


def jobs(way):
    def there_and_back(shapes, times):
        sent, took = tensors(shapes), []
        for _ in range(times):
            started = time.perf_counter()
            found = way.there_and_back(sent)
            took.append(time.perf_counter() - started)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in found)).hexdigest()
        return {"median_ms": 1e3 * statistics.median(took), "digest": digest, "bytes": sum(array.nbytes for array in sent)}

    return {"there_and_back": there_and_back}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        _loop.serve(jobs(WAYS[sys.argv[1]](sys.argv[2])))
