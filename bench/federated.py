#!/usr/bin/env python3
"""Round trips of tensors between a training client and a server: the exchange of `godwit.federated` beside pickled tensors.

Two loads: a batch of 1,024 images of 28 x 28 and their labels, as in MNIST, and the parameters of a network of 784, 128 and 10 units. Each round
measures every transport for both loads, in another order. Times are of whole round trips, from arrays to arrays, between two processes on the loopback
device. The returned tensors must equal the sent ones. The server computes nothing: training adds the same time to each transport.
"""

import os
import random
import subprocess

import _client_processes
import _measure as bench

PACKAGE = bench.ROOT / "python" / "src"
EXCHANGE, JSON, HTTP, SOCKET = "godwit.federated", "pickled, base64 in JSON over HTTP", "pickled, over HTTP", "pickled, over a bare socket"
TRANSPORTS = {EXCHANGE: "exchange", JSON: "json", HTTP: "http", SOCKET: "socket"}


class EchoServer:
    """A server that returns what it receives; a context manager."""

    def __init__(self, interpreter, transport):
        command = [interpreter, "federated.py", "serve", transport]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_client_processes.CLIENTS)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            bench.exit_with_error(f"the server for {transport} did not start; see above")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def tensor_shapes(options):
    pictures = [[options.batch, 1, 28, 28], [options.batch]]
    return {
        f"a batch of {options.batch:,} pictures": pictures,
        "parameters of 784 x 128 x 10": [[784, 128], [128], [128, 10], [10]],
    }


def measure(options, clients):
    measured = {load: {transport: [] for transport in clients} for load in tensor_shapes(options)}
    order = random.Random(20261124)
    for round_number in range(options.rounds + 1):
        for load, shapes in tensor_shapes(options).items():
            ways = list(clients)
            order.shuffle(ways)
            for transport in ways:
                found = clients[transport].run_job("round_trip", shapes=shapes, times=options.times)
                # The first round is a warm-up.
                if round_number > 0:
                    measured[load][transport].append(found)
                    bench.report_progress(f"round {round_number}: {load}, {transport}: {found['median_ms']:.3f} ms")
    for load, ways in measured.items():
        if len({answer["digest"] for rounds in ways.values() for answer in rounds}) > 1:
            bench.exit_with_error(f"{load}: the returned tensors differ")
    return measured


def tables(measured, options):
    for load, ways in measured.items():
        number_bytes = ways[EXCHANGE][0]["bytes"]
        yield f"## {load}: {number_bytes / 1e6:.2f} MB each way, {options.times} times a round\n"
        yield "| way | ms there and back, median | spread | x godwit.federated | CPU ms, both ends | MB / s, both ways |\n|---|---|---|---|---|---|"
        for transport, rounds in ways.items():
            took, spread = bench.median_field(rounds, "median_ms"), bench.format_range(rounds, "median_ms")
            cpu = 1e3 * bench.median_field(rounds, "cpu_s") / options.times
            against = bench.median_ratio(rounds, ways[EXCHANGE], "median_ms")
            yield f"| {transport} | {took:.3f} | {spread} | {against:.2f} | {cpu:.2f} | {2 * number_bytes / 1e3 / took:,.0f} |"
        yield ""


def main():
    parser = bench.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--batch", type=int, default=1024, help="images of a batch (default: 1,024)")
    parser.add_argument("--times", type=int, default=50, help="round trips in a round (default: 50)")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(PACKAGE)
    interpreter = _client_processes.client_python("scoring")
    nodes = {transport: EchoServer(interpreter, word) for transport, word in TRANSPORTS.items()}
    clients = {
        transport: _client_processes.Client(interpreter, "federated.py", TRANSPORTS[transport], server.address, server=server.process.pid) for transport, server in nodes.items()
    }
    try:
        measured = measure(options, clients)
    finally:
        for one in (*clients.values(),):
            one.close()
        for server in nodes.values():
            server.stop()
    promised = []
    for load, ways in measured.items():
        quotients = bench.ratios(ways[JSON], ways[EXCHANGE], "median_ms")
        promised.append(bench.target(f"{load}, {JSON} over the exchange", quotients, at_least=5))
        for transport in (HTTP, SOCKET):
            quotients = bench.ratios(ways[transport], ways[EXCHANGE], "median_ms")
            promised.append(bench.target(f"{load}, {transport} over the exchange", quotients, at_least=5))
    around = bench.host_description(options.godwit or "godwit")
    around["versions"] |= _client_processes.package_versions(interpreter, "pyarrow", "numpy")
    text = "\n".join([
        "# Tensors of federated training: an exchange of Arrow batches beside pickles",
        "",
        f"{options.rounds} interleaved rounds; {bench.format_host(around)}. {_client_processes.format_versions(around)}.",
        "",
        *tables(measured, options),
        *[f"- {bench.format_target(one)}" for one in promised],
        "",
    ])
    bench.write_result("federated", options.results, text, around, promised, {"rounds": measured})


if __name__ == "__main__":
    main()
