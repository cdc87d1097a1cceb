#!/usr/bin/env python3
"""Arrow Flight over loopback: godwit's both ends, pyarrow's both ends, each with the other, and iperf3 as the yardstick.

One stream, distinct batches of 1 GB made before the clock starts, rounds interleaved. pyarrow is C++ below a thin layer of Python.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import _measure as bench

SERVE_PYARROW = r"""
import sys
import pyarrow as pa, pyarrow.flight as fl, numpy as np
rows, columns, count = map(int, sys.argv[1:4])
schema = pa.schema([(f"column{i}", pa.int64()) for i in range(columns)])
rng = np.random.default_rng(1)
made = []
def batches():
    if not made:
        make = lambda: pa.record_batch([pa.array(rng.integers(0, 2**62, rows)) for _ in range(columns)], schema=schema)
        made.extend(make() for _ in range(count))
    return made
class Server(fl.FlightServerBase):
    def do_get(self, context, ticket):
        return fl.RecordBatchStream(pa.RecordBatchReader.from_batches(schema, batches()))
    def do_put(self, context, descriptor, reader, writer):
        for _ in reader: pass
server = Server("grpc://127.0.0.1:0")
batches()
print(server.port, flush=True)
server.serve()
"""

ASK_PYARROW = r"""
import sys, time, json, os
import pyarrow as pa, pyarrow.flight as fl, numpy as np
method, port, ticket, rows, columns, count = sys.argv[1:4] + [int(word) for word in sys.argv[4:7]]
client = fl.connect(f"grpc://127.0.0.1:{port}")
if method == "get":
    started = time.perf_counter()
    total = sum(chunk.data.nbytes for chunk in client.do_get(fl.Ticket(ticket.encode())))
else:
    schema = pa.schema([(f"column{i}", pa.int64()) for i in range(columns)])
    rng = np.random.default_rng(1)
    make = lambda: pa.record_batch([pa.array(rng.integers(0, 2**62, rows)) for _ in range(columns)], schema=schema)
    batches = [make() for _ in range(count)]
    started = time.perf_counter()
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("bench"), schema)
    for batch in batches: writer.write_batch(batch)
    writer.close()
    total = sum(batch.nbytes for batch in batches)
print(json.dumps({"mb_per_s": total / 1e6 / (time.perf_counter() - started)}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--godwit", type=Path, help="binary to measure (default: built from here with --release)")
    parser.add_argument("--python", default=sys.executable, help="a python with pyarrow and numpy")
    parser.add_argument("--rows", type=int, default=65536, help="rows per batch (default: 65,536)")
    parser.add_argument("--columns", type=int, default=4, help="columns of eight bytes (default: 4)")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=bench.RESULTS)
    options = parser.parse_args()
    bench.need("iperf3")
    godwit = bench.godwit_binary(options)
    count = -(-options.bytes // (options.rows * options.columns * 8))
    shape = [str(options.rows), str(options.columns), str(count)]
    ticket = f"fixed/{options.columns}/{options.rows}/{options.bytes}/0/1"

    iperf = subprocess.Popen(["iperf3", "-s", "-p", "18201"], stdout=subprocess.DEVNULL)
    peer = subprocess.Popen([options.python, "-c", SERVE_PYARROW, *shape], stdout=subprocess.PIPE, text=True)
    own = subprocess.Popen(
        [godwit, "bench", "flight", "--until-stdin-closes", "--listen", "127.0.0.1:0"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    peer_port = peer.stdout.readline().strip()
    own_port = own.stdout.readline().strip().rpartition(":")[2]

    def rate(command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode != 0:
            bench.fail(f"{command} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def ours(method, *words):
        command = [godwit, "bench", "flight", "--method", method, "--rounds", 1, "--rows", options.rows, "--bytes", options.bytes]
        return rate([*command, "--row-bytes", 8 * options.columns, "--format", "json", *words])[0]["mb_per_s"]

    def pyarrow(method, port):
        return rate([options.python, "-c", ASK_PYARROW, method, port, ticket, *shape])["mb_per_s"]

    def iperf3():
        found = rate(["iperf3", "-c", "127.0.0.1", "-p", 18201, "-n", options.bytes, "-l", "1M", "-J"])
        return found["end"]["sum_received"]["bits_per_second"] / 8e6

    competitors = {
        "iperf3": iperf3,
        "pyarrow both ends, DoGet": lambda: pyarrow("get", peer_port),
        "pyarrow both ends, DoPut": lambda: pyarrow("put", peer_port),
        "godwit both ends, DoGet": lambda: ours("get", "--at", f"127.0.0.1:{own_port}"),
        "godwit both ends, DoPut": lambda: ours("put", "--at", f"127.0.0.1:{own_port}"),
        "godwit server, pyarrow client, DoGet": lambda: pyarrow("get", own_port),
        "godwit server, pyarrow client, DoPut": lambda: pyarrow("put", own_port),
        "godwit both ends, Unix socket, DoGet": lambda: ours("get", "--socket", "unix"),
        "godwit both ends, Unix socket, DoPut": lambda: ours("put", "--socket", "unix"),
    }
    measured = {name: [] for name in competitors}
    try:
        for round_number in range(options.rounds):
            for name, measure in competitors.items():
                measured[name].append(measure())
                print(f"bench: round {round_number + 1}: {name}: {measured[name][-1]:.0f} MB/s", file=sys.stderr)
    finally:
        for process in (iperf, peer, own):
            process.kill()
    base = statistics.median(measured["iperf3"])
    lines = ["| pair | MB/s, median | spread | x iperf3 |", "|---|---|---|---|"]
    for name, rates in measured.items():
        middle = statistics.median(rates)
        lines.append(f"| {name} | {middle:.0f} | {min(rates):.0f} - {max(rates):.0f} | {middle / base:.2f} |")
    processor = bench.first_line(["grep", "-m1", "model name", "/proc/cpuinfo"]).partition(":")[2].strip()
    pyarrow_version = bench.first_line([options.python, "-c", "import pyarrow; print(pyarrow.__version__)"])
    text = "\n".join([
        "# Arrow Flight over loopback",
        "",
        f"{options.rows:,} rows of {8 * options.columns} bytes a batch, {count} distinct batches, one stream, {options.rounds} interleaved rounds;"
        f" {processor}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d')}, commit"
        f" {bench.first_line(['git', '-C', str(bench.ROOT), 'describe', '--always', '--dirty'])}. pyarrow {pyarrow_version},"
        f" {bench.first_line(['iperf3', '--version'])}.",
        "",
        *lines,
        "",
    ])
    (options.results / "flight.md").write_text(text)
    (options.results / "flight.json").write_text(json.dumps({"mb_per_s": measured}, indent=2) + "\n")
    print(text)


if __name__ == "__main__":
    main()
