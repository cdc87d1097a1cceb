"""Round trips of tensors between a training client and a server: the exchange of `godwit.federated` beside pickled tensors.

Two loads: a batch of 1,024 images of 28 x 28 and their labels, as in MNIST, and the parameters of a network of 784, 128 and 10 units. Each
round measures every transport for both loads, in another order. Times are of whole round trips, from arrays to arrays, between two
processes on the loopback device. The returned tensors must equal the sent ones. The server computes nothing: training adds the same time to
each transport.
"""

import argparse
import contextlib
import os
import random
from collections.abc import Iterator

from godwit_bench import harness
from godwit_bench.harness import client_processes

EXCHANGE, JSON, HTTP, SOCKET = "godwit.federated", "pickled, base64 in JSON over HTTP", "pickled, over HTTP", "pickled, over a bare socket"
TRANSPORTS = {EXCHANGE: "exchange", JSON: "json", HTTP: "http", SOCKET: "socket"}


def tensor_shapes(options: argparse.Namespace) -> dict[str, list[list[int]]]:
    pictures = [[options.batch, 1, 28, 28], [options.batch]]
    return {
        f"a batch of {options.batch:,} pictures": pictures,
        "parameters of 784 x 128 x 10": [[784, 128], [128], [128, 10], [10]],
    }


def measure(options: argparse.Namespace, clients: dict[str, client_processes.Client]) -> dict[str, harness.Rounds]:
    measured: dict[str, harness.Rounds] = {load: {transport: [] for transport in clients} for load in tensor_shapes(options)}
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
                    harness.report_progress(f"round {round_number}: {load}, {transport}: {found['median_ms']:.3f} ms")
    for load, by_transport in measured.items():
        if len({answer["digest"] for rounds in by_transport.values() for answer in rounds}) > 1:
            harness.exit_with_error(f"{load}: the returned tensors differ")
    return measured


def tables(measured: dict[str, harness.Rounds], options: argparse.Namespace) -> Iterator[str]:
    for load, ways in measured.items():
        number_bytes = ways[EXCHANGE][0]["bytes"]
        yield f"## {load}: {number_bytes / 1e6:.2f} MB each way, {options.times} times a round\n"
        yield "| way | ms there and back, median | spread | x godwit.federated | CPU ms, both ends | MB / s, both ways |\n|---|---|---|---|---|---|"
        for transport, rounds in ways.items():
            took, spread = harness.median_field(rounds, "median_ms"), harness.format_range(rounds, "median_ms")
            cpu = 1e3 * harness.median_field(rounds, "cpu_s") / options.times
            against = harness.median_ratio(rounds, ways[EXCHANGE], "median_ms")
            yield f"| {transport} | {took:.3f} | {spread} | {against:.2f} | {cpu:.2f} | {2 * number_bytes / 1e3 / took:,.0f} |"
        yield ""


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument("--batch", type=int, default=1024, help="images of a batch (default: 1,024)")
    parser.add_argument("--times", type=int, default=50, help="round trips in a round (default: 50)")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(harness.PYTHON_PACKAGE)
    interpreter = client_processes.client_python("scoring")
    with contextlib.ExitStack() as running:
        clients = {}
        for transport, word in TRANSPORTS.items():
            server = running.enter_context(client_processes.AddressServer(client_processes.client_command(interpreter, "federated", "serve", word)))
            clients[transport] = running.enter_context(client_processes.Client(interpreter, "federated", word, server.address, server=server.pid))
        measured = measure(options, clients)
    promised = []
    for load, ways in measured.items():
        quotients = harness.ratios(ways[JSON], ways[EXCHANGE], "median_ms")
        promised.append(harness.target(f"{load}, {JSON} over the exchange", quotients, at_least=5))
        for transport in (HTTP, SOCKET):
            quotients = harness.ratios(ways[transport], ways[EXCHANGE], "median_ms")
            promised.append(harness.target(f"{load}, {transport} over the exchange", quotients, at_least=5))
    around = harness.host_description(options.godwit or "godwit")
    around["versions"] |= client_processes.package_versions(interpreter, "pyarrow", "numpy")
    text = "\n".join(
        [
            "# Tensors of federated training: an exchange of Arrow batches beside pickles",
            "",
            f"{options.rounds} interleaved rounds; {harness.format_host(around)}. {client_processes.format_versions(around)}.",
            "",
            *tables(measured, options),
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
        ]
    )
    harness.write_result("federated", options.results, text, around, promised, {"rounds": measured})


if __name__ == "__main__":
    main()
