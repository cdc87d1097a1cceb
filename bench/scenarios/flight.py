"""Arrow Flight between two processes: godwit at both ends, pyarrow at both ends, each with the other, and the bare sockets.

One stream, distinct batches of 1 GB made before the clock starts, rounds interleaved. pyarrow is C++ below a thin layer of Python; it
serves and sends the same batches that godwit makes. Yardsticks: iperf3 with default settings, iperf3 writing 1 MiB at a time (both send one
cached buffer again and again), and the same distinct bytes over the bare socket (`godwit bench flight --method stream`). CPU seconds are those
of both processes.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from godwit_bench import harness

IPERF_PORT = 18201
# The targets from the published figures: name, measured, yardstick, ratio.
TARGETS = [
    ("DoGet, TCP", "godwit both ends, DoGet", "iperf3 as it comes", 1.0),
    ("DoGet, TCP", "godwit both ends, DoGet", "iperf3, 1 MiB writes", 1.0),
    ("DoGet, TCP", "godwit both ends, DoGet", "bare TCP socket", 1.0),
    ("DoGet, TCP", "godwit both ends, DoGet", "pyarrow both ends, DoGet", 2.0),
    ("DoPut, TCP", "godwit both ends, DoPut", "iperf3 as it comes", 0.9),
    ("DoPut, TCP", "godwit both ends, DoPut", "bare TCP socket", 0.9),
    ("DoPut from pyarrow", "godwit server, pyarrow client, DoPut", "pyarrow both ends, DoPut", 1.9),
    ("DoGet, Unix socket", "godwit both ends, Unix socket, DoGet", "iperf3 as it comes", 1.7),
    ("DoGet, Unix socket", "godwit both ends, Unix socket, DoGet", "bare Unix socket", 1.0),
    ("DoGet, TLS", "godwit both ends, TLS, DoGet", "pyarrow both ends, TLS, DoGet", 2.0),
    ("DoGet, TLS", "godwit both ends, TLS, DoGet", "bare rustls stream", 0.9),
    ("DoPut, TLS", "godwit both ends, TLS, DoPut", "pyarrow both ends, TLS, DoPut", 2.0),
]

# Fetches a workload from godwit's server and restores the requested batch size, because that server splits large batches.
MAKE_BATCHES_CODE = r"""
import os, sys, json, time
import pyarrow as pa, pyarrow.flight as fl
def batches_of(port, workload, rows):
    whole, kept, count = [], [], 0
    for chunk in fl.connect(f"grpc://127.0.0.1:{port}").do_get(fl.Ticket(f"{workload}/0/1".encode())):
        kept.append(chunk.data)
        count += chunk.data.num_rows
        if count >= rows:
            whole.append(pa.concat_batches(kept))
            kept, count = [], 0
    assert not kept and all(batch.num_rows == rows for batch in whole)
    return whole
"""

PYARROW_SERVER_CODE = (
    MAKE_BATCHES_CODE
    + r"""
port, workload, rows, identity = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
batches = batches_of(port, workload, rows)
class Server(fl.FlightServerBase):
    def do_get(self, context, ticket):
        return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    def do_put(self, context, descriptor, reader, writer):
        for _ in reader: pass
read = lambda name: open(f"{identity}/{name}", "rb").read()
if identity: server = Server("grpc+tls://127.0.0.1:0", tls_certificates=[(read("localhost.pem"), read("localhost.key"))])
else: server = Server("grpc://127.0.0.1:0")
print(server.port, flush=True)
server.serve()
"""
)

PYARROW_CLIENT_CODE = (
    MAKE_BATCHES_CODE
    + r"""
method, port, workload, rows, identity, source = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6]
if identity:
    roots = open(f"{identity}/localhost.pem", "rb").read()
    client = fl.connect(f"grpc+tls://127.0.0.1:{port}", tls_root_certs=roots, override_hostname="localhost")
else:
    client = fl.connect(f"grpc://127.0.0.1:{port}")
batches = batches_of(source, workload, rows) if method == "put" else []
cpu, started = time.process_time(), time.perf_counter()
if method == "get":
    total = sum(chunk.data.nbytes for chunk in client.do_get(fl.Ticket(f"{workload}/0/1".encode())))
else:
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("bench"), batches[0].schema)
    for batch in batches: writer.write_batch(batch)
    writer.close()
    total = sum(batch.nbytes for batch in batches)
took = time.perf_counter() - started
print(json.dumps({"bytes": total, "mb_per_s": total / 1e6 / took, "cpu_s": time.process_time() - cpu}))
"""
)


# MB/s and CPU seconds a GB of each round, by competitor.
Rates: TypeAlias = dict[str, list[tuple[float, float]]]


class Servers:
    """The servers of one workload."""

    def __init__(self, options: argparse.Namespace, godwit: Path, shape: str, rows: int, identity: str) -> None:
        self.options, self.godwit, self.rows, self.identity = options, godwit, rows, identity
        self.shape = shape
        self.workload = f"{'fixed/4' if shape == 'fixed' else 'alignments/0'}/{rows}/{options.bytes}"
        self.running: list[subprocess.Popen[str]] = []
        self.godwit_server, self.godwit_port = self.start([godwit, "bench", "flight", "--until-stdin-closes", "--listen", "127.0.0.1:0"])
        serve = [options.python, "-c", PYARROW_SERVER_CODE, self.godwit_port, self.workload, str(rows)]
        self.pyarrow_server, self.pyarrow_port = self.start([*serve, ""])
        if identity:
            self.pyarrow_tls_server, self.pyarrow_tls_port = self.start([*serve, identity])

    def start(self, command: list[object]) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        port = harness.piped(process.stdout).readline().strip().rpartition(":")[2]
        if not port:
            harness.exit_with_error(f"{command[0]} did not start")
        return process, port

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()

    def measure_godwit(self, method: str, *args: object) -> tuple[float, float]:
        """Measures godwit at both ends, in separate processes; the CPU seconds are of both."""
        command = [self.godwit, "bench", "flight", "--method", method, "--rounds", 1, "--rows", self.rows, "--shape", self.shape]
        found = harness.run_json([*command, "--bytes", self.options.bytes, "--format", "json", *args])[0]
        return found["mb_per_s"], found["cpu_s_per_gb"]

    def measure_pyarrow_client(self, method: str, server: subprocess.Popen[str], port: str, identity: str = "") -> tuple[float, float]:
        before = harness.cpu_s(server.pid, children=False)
        # An uploading client first fetches its batches, which costs CPU time of the server that has them.
        command = [self.options.python, "-c", PYARROW_CLIENT_CODE, method, port, self.workload, self.rows, identity, self.godwit_port]
        if method == "put" and server is self.godwit_server:
            return self.measure_pyarrow_upload(command)
        found = harness.run_json(command)
        return found["mb_per_s"], (found["cpu_s"] + harness.cpu_s(server.pid, children=False) - before) / (found["bytes"] / 1e9)

    def measure_pyarrow_upload(self, command: list[object]) -> tuple[float, float]:
        """Measures an upload to a separate server, so that its CPU time is that of the upload."""
        process, port = self.start([self.godwit, "bench", "flight", "--until-stdin-closes", "--listen", "127.0.0.1:0"])
        command[4] = port
        found = harness.run_json(command)
        cost = (found["cpu_s"] + harness.cpu_s(process.pid, children=False)) / (found["bytes"] / 1e9)
        process.kill()
        process.wait()
        self.running.remove(process)
        return found["mb_per_s"], cost


def measure_iperf3(server: subprocess.Popen[bytes], count: int, *args: object) -> tuple[float, float]:
    before = harness.cpu_s(server.pid, children=False) + harness.children_cpu_s()
    found = harness.run_json(["iperf3", "-c", "127.0.0.1", "-p", IPERF_PORT, "-n", count, "-J", *args])["end"]["sum_received"]
    cost = harness.cpu_s(server.pid, children=False) + harness.children_cpu_s() - before
    return found["bits_per_second"] / 8e6, cost / (found["bytes"] / 1e9)


def competitors(
    servers: Servers, options: argparse.Namespace, iperf: subprocess.Popen[bytes], everything: bool
) -> dict[str, Callable[[], tuple[float, float]]]:
    """Maps the name of each competitor to a function that returns MB/s and CPU s/GB."""
    own, competitor = (servers.godwit_server, servers.godwit_port), (servers.pyarrow_server, servers.pyarrow_port)
    result = {
        "iperf3 as it comes": lambda: measure_iperf3(iperf, options.bytes),
        "iperf3, 1 MiB writes": lambda: measure_iperf3(iperf, options.bytes, "-l", "1M"),
        "bare TCP socket": lambda: servers.measure_godwit("stream"),
        "godwit both ends, DoGet": lambda: servers.measure_godwit("get"),
        "godwit both ends, DoPut": lambda: servers.measure_godwit("put"),
        "pyarrow both ends, DoGet": lambda: servers.measure_pyarrow_client("get", *competitor),
        "pyarrow both ends, DoPut": lambda: servers.measure_pyarrow_client("put", *competitor),
        "godwit server, pyarrow client, DoPut": lambda: servers.measure_pyarrow_client("put", *own),
    }
    if everything:
        tls = (servers.pyarrow_tls_server, servers.pyarrow_tls_port, servers.identity)
        result |= {
            "godwit server, pyarrow client, DoGet": lambda: servers.measure_pyarrow_client("get", *own),
            "godwit both ends, DoExchange (each way)": lambda: servers.measure_godwit("exchange"),
            "bare Unix socket": lambda: servers.measure_godwit("stream", "--socket", "unix"),
            "godwit both ends, Unix socket, DoGet": lambda: servers.measure_godwit("get", "--socket", "unix"),
            "godwit both ends, Unix socket, DoPut": lambda: servers.measure_godwit("put", "--socket", "unix"),
            "bare rustls stream": lambda: servers.measure_godwit("stream", "--tls"),
            "godwit both ends, TLS, DoGet": lambda: servers.measure_godwit("get", "--tls"),
            "godwit both ends, TLS, DoPut": lambda: servers.measure_godwit("put", "--tls"),
            "pyarrow both ends, TLS, DoGet": lambda: servers.measure_pyarrow_client("get", *tls),
            "pyarrow both ends, TLS, DoPut": lambda: servers.measure_pyarrow_client("put", *tls),
        }
    return result


def measure(
    title: str, options: argparse.Namespace, godwit: Path, iperf: subprocess.Popen[bytes], shape: str, rows: int, identity: str = ""
) -> Rates:
    servers = Servers(options, godwit, shape, rows, identity)
    try:
        measuring = competitors(servers, options, iperf, bool(identity))
        measured: Rates = {name: [] for name in measuring}
        for round_number in range(options.rounds):
            for name, ask in measuring.items():
                measured[name].append(ask())
                print(f"bench: {title}: round {round_number + 1}: {name}: {measured[name][-1][0]:.0f} MB/s", file=sys.stderr)
        return measured
    finally:
        servers.stop()


def rates(results: list[tuple[float, float]]) -> list[float]:
    return [rate for rate, _ in results]


def ratios(measured: Rates, name: str, base: str) -> list[float]:
    """Returns the ratio of each round. Both values of a round were measured under the same load."""
    return [one / other for one, other in zip(rates(measured[name]), rates(measured[base]), strict=False)]


def median_ratio(measured: Rates, name: str, base: str) -> float:
    return statistics.median(ratios(measured, name, base))


def table(title: str, measured: Rates) -> list[str]:
    lines = [f"## {title}", "", "| pair | MB/s, median | spread | x iperf3 | x bare TCP | CPU s/GB |", "|---|---|---|---|---|---|"]
    for name, results in measured.items():
        found = rates(results)
        lines.append(
            f"| {name} | {statistics.median(found):.0f} | {min(found):.0f} - {max(found):.0f} | "
            f"{median_ratio(measured, name, 'iperf3 as it comes'):.2f} | {median_ratio(measured, name, 'bare TCP socket'):.2f} | "
            f"{statistics.median(cost for _, cost in results):.2f} |"
        )
    return [*lines, ""]


def targets(sections: dict[str, Rates]) -> list[harness.Result]:
    """Returns the targets of each kind of batch; godwit's own yardsticks have no targets."""
    return [
        harness.target(f"{what}, {title}, over {base}", ratios(measured, name, base), at_least=wanted)
        for title, measured in sections.items()
        for what, name, base, wanted in TARGETS
        if name in measured and base not in ("iperf3, 1 MiB writes", "bare TCP socket", "bare Unix socket")
    ]


def target_table(sections: dict[str, Rates]) -> list[str]:
    lines = ["## Targets", "", "Medians of the ratios of single rounds.", ""]
    lines += ["| what | over | asked | " + " | ".join(sections) + " |", "|---|---|---|" + "---|" * len(sections)]
    for what, name, base, wanted in TARGETS:
        found = [f"{median_ratio(measured, name, base):.2f}" if name in measured else "" for measured in sections.values()]
        lines.append(f"| {what} | {base} | {wanted:.1f} | " + " | ".join(found) + " |")
    return [*lines, ""]


def main() -> None:
    parser = harness.program_parser(__doc__)
    parser.add_argument("--python", default=sys.executable, help="a python with pyarrow")
    parser.add_argument("--rows", default="65536,16384,262144,1048576", help="rows per batch, a table each; the first has all pairs")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    harness.require_tools("iperf3", "openssl")
    godwit = harness.godwit_binary(options)
    load = os.getloadavg()[0]
    iperf = subprocess.Popen(["iperf3", "-s", "-p", str(IPERF_PORT)], stdout=subprocess.DEVNULL)
    sections = {}
    try:
        with tempfile.TemporaryDirectory() as identity:
            harness.write_certificate(Path(identity), "localhost", "DNS:localhost")
            for index, rows in enumerate(map(int, options.rows.split(","))):
                title = f"{rows:,} rows of 32 bytes"
                sections[title] = measure(title, options, godwit, iperf, "fixed", rows, "" if index else identity)
            title = "8,192 aligned reads"
            sections[title] = measure(title, options, godwit, iperf, "alignments", 8192)
    finally:
        iperf.kill()
        iperf.wait()
    around = harness.host_description(godwit) | {"load_at_start": load}
    pyarrow_version = harness.first_output_line([options.python, "-c", "import pyarrow; print(pyarrow.__version__)"])
    text = "\n".join(
        [
            "# Arrow Flight over loopback",
            "",
            f"{options.bytes / 1e9:.2f} GB of distinct batches, one stream, {options.rounds} interleaved rounds; {harness.format_host(around)}, "
            f"at the start {load:.1f}. pyarrow {pyarrow_version}, {harness.first_output_line(['iperf3', '--version'])}.",
            "",
            "iperf3 sends one buffer again and again; the bare sockets send the same distinct bytes as Flight, from memory that is in no cache, into"
            " one buffer of 1 MiB: they are the upper bound of Flight. Aligned reads have numbers, names with nulls and packed records. CPU"
            " seconds are those of both ends.",
            "",
            *target_table(sections),
            *(line for title, measured in sections.items() for line in table(title, measured)),
        ]
    )
    raw = {
        title: {name: [{"mb_per_s": rate, "cpu_s_per_gb": cost} for rate, cost in results] for name, results in measured.items()}
        for title, measured in sections.items()
    }
    harness.write_result("flight", options.results, text, around, targets(sections), {"measured": raw})


if __name__ == "__main__":
    main()
