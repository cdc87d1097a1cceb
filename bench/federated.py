#!/usr/bin/env python3
"""Tensors between who trains and a node, there and back: the exchange of `godwit.federated` beside pickled tensors.

Two loads: a batch of 1,024 pictures of 28 x 28 and their labels, as MNIST has them, and the parameters of a network of 784, 128 and 10 units. Each round
asks every way for both, in another order. Times are of whole ways there and back, from arrays to arrays, between two processes on the loopback device.
What comes back has to be what was sent. The node computes nothing: training adds the same to each way.
"""

import os
import random
import subprocess

import _clients
import _measure as bench

PACKAGE = bench.ROOT / "python" / "src"
EXCHANGE, JSON, HTTP, SOCKET = "godwit.federated", "pickled, base64 in JSON over HTTP", "pickled, over HTTP", "pickled, over a bare socket"
WAYS = {EXCHANGE: "exchange", JSON: "json", HTTP: "http", SOCKET: "socket"}


class Node:
    """A node that gives back what it is sent, for a `with`."""

    def __init__(self, interpreter, way):
        command = [interpreter, "federated.py", "serve", way]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_clients.CLIENTS)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            bench.fail(f"the node for {way} did not start; see above")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def loads(options):
    pictures = [[options.batch, 1, 28, 28], [options.batch]]
    return {
        f"a batch of {options.batch:,} pictures": pictures,
        "parameters of 784 x 128 x 10": [[784, 128], [128], [128, 10], [10]],
    }


def measure(options, clients):
    measured = {load: {way: [] for way in clients} for load in loads(options)}
    order = random.Random(20261124)
    for round_number in range(options.rounds + 1):
        for load, shapes in loads(options).items():
            ways = list(clients)
            order.shuffle(ways)
            for way in ways:
                found = clients[way].ask("there_and_back", shapes=shapes, times=options.times)
                # The first round only warms.
                if round_number > 0:
                    measured[load][way].append(found)
                    bench.progress(f"round {round_number}: {load}, {way}: {found['median_ms']:.3f} ms")
    for load, ways in measured.items():
        if len({answer["digest"] for rounds in ways.values() for answer in rounds}) > 1:
            bench.fail(f"{load}: what came back differs")
    return measured


def tables(measured, options):
    for load, ways in measured.items():
        number_bytes = ways[EXCHANGE][0]["bytes"]
        yield f"## {load}: {number_bytes / 1e6:.2f} MB each way, {options.times} times a round\n"
        yield "| way | ms there and back, median | spread | x godwit.federated | CPU ms, both ends | MB / s, both ways |\n|---|---|---|---|---|---|"
        for way, rounds in ways.items():
            took, spread = bench.median(rounds, "median_ms"), bench.spread(rounds, "median_ms")
            cpu = 1e3 * bench.median(rounds, "cpu_s") / options.times
            against = bench.quotient(rounds, ways[EXCHANGE], "median_ms")
            yield f"| {way} | {took:.3f} | {spread} | {against:.2f} | {cpu:.2f} | {2 * number_bytes / 1e3 / took:,.0f} |"
        yield ""


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--batch", type=int, default=1024, help="pictures of a batch (default: 1,024)")
    parser.add_argument("--times", type=int, default=50, help="ways there and back in a round (default: 50)")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(PACKAGE)
    interpreter = _clients.python("scoring")
    nodes = {way: Node(interpreter, word) for way, word in WAYS.items()}
    clients = {
        way: _clients.Client(interpreter, "federated.py", WAYS[way], node.address, server=node.process.pid) for way, node in nodes.items()
    }
    try:
        measured = measure(options, clients)
    finally:
        for one in (*clients.values(),):
            one.close()
        for node in nodes.values():
            node.stop()
    promised = []
    for load, ways in measured.items():
        quotients = bench.quotients(ways[JSON], ways[EXCHANGE], "median_ms")
        promised.append(bench.promise(f"{load}, {JSON} over the exchange", quotients, at_least=5))
        for way in (HTTP, SOCKET):
            quotients = bench.quotients(ways[way], ways[EXCHANGE], "median_ms")
            promised.append(bench.promise(f"{load}, {way} over the exchange", quotients, at_least=5))
    around = bench.host(options.godwit or "godwit")
    around["versions"] |= _clients.versions(interpreter, "pyarrow", "numpy")
    text = "\n".join([
        "# Tensors of federated training: an exchange of Arrow batches beside pickles",
        "",
        f"{options.rounds} interleaved rounds; {bench.machine(around)}. {_clients.version_words(around)}.",
        "",
        *tables(measured, options),
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
    ])
    bench.write("federated", options.results, text, around, promised, {"rounds": measured})


if __name__ == "__main__":
    main()
