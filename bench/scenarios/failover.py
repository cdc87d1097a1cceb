"""Time until clients of a pool resume after the loss of a storage host, and time until a restored host receives new clients.

Three storage hosts export one directory; each has its own network, processes and name, and a limited network rate. A client is in the middle
of a copy (either direction), of the rows of a statement, or of rows by the Python client, when the host that serves it is lost in one of
three ways: its server is killed, so that its sockets are closed; all its processes hang; its network is cut and then its power. *Failover*
is the time from the loss to the first data from another host. Received data are compared with the sent data, byte by byte or by
the digest of all rows. Then the host is restored: *failback* is the time from when its server accepts connections, or its processes run again,
until another member of the pool grants it to a new client.

Measurements are added to those of the same program in CACHE, so that the benchmark can run in parts (`--rounds`); `--fresh` discards those
of the clients that are measured.
"""

import argparse
import filecmp
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from godwit_bench import harness
from godwit_bench.harness import client_processes
from godwit_bench.network import server_pool

MEMBER_HOSTS = ("gw1", "gw2", "gw3")
CLIENT_HOST = "gw4"
FAILURE_MODES = ("killed", "stopped", "cut")
CLIENTS = ("download", "upload", "statement", "python")
ROWS_PER_MEGABYTE = 30_000
LOST_MESSAGE = "is lost; continuing at another member"


class JournalGrowth(threading.Thread):
    """A thread that records when the journal of a copy grew."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path, self.ended = path, threading.Event()
        self.stamps: list[float] = []
        self.start()

    def run(self) -> None:
        before = None
        while not self.ended.wait(0.004):
            try:
                found = self.path.stat()
            except OSError:
                continue
            now = (found.st_ino, found.st_size)
            # A new journal alone is not progress.
            if before and now[0] == before[0] and now[1] > before[1]:
                self.stamps.append(time.monotonic())
            before = now


class TimedOutput(threading.Thread):
    """A thread that records the times of a program's output, and its digest."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self.stream, self.digest, self.ended = stream, hashlib.sha256(), threading.Event()
        self.stamps: list[float] = []
        self.start()

    def run(self) -> None:
        while piece := os.read(self.stream.fileno(), 1 << 20):
            self.stamps.append(time.monotonic())
            self.digest.update(piece)


class Fixture:
    """Files in the pool and on the client host."""

    def __init__(self, options: argparse.Namespace, godwit: Path, cluster: server_pool.SlurmCluster) -> None:
        self.scratch = harness.scratch_directory(options, "failover")
        self.root, self.client_directory = self.scratch / "root", self.scratch / "here"
        self.root.mkdir()
        self.client_directory.mkdir()
        self.godwit, self.cluster, self.options = godwit, cluster, options
        draw = random.Random(options.seed)
        with (self.client_directory / "source").open("wb") as file:
            for _ in range(options.megabytes):
                file.write(draw.randbytes(1 << 20))
        shutil.copy(self.client_directory / "source", self.root / "f")
        with (self.root / "rows.bed").open("w") as file:
            for at in range(options.megabytes * ROWS_PER_MEGABYTE):
                file.write(f"chr{at % 3}\t{at}\t{at + 5}\tname-of-{at % 977}-{at}\n")
        # The expected digests without a loss; that of the Python client is read after the pool has started.
        self.expected = {"statement": self.output_digest(self.command("statement", ["--data", self.root]))}

    @staticmethod
    def output_digest(command: harness.Command, **how: Any) -> str:
        return hashlib.sha256(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, **how).stdout).hexdigest()

    def read_expected_python_digest(self) -> None:
        if "python" in self.options.clients:
            self.expected["python"] = self.output_digest(self.command("python", []), env=environment())

    def command(self, name: str, access: harness.Command) -> harness.Command:
        url = "godwit+pool://storage"
        if name == "download":
            return [self.godwit, "copy", f"{url}/f", self.client_directory / "f", "--streams", 3, "--mode", "fast", *access]
        if name == "upload":
            return [self.godwit, "copy", self.client_directory / "source", f"{url}/up", "--streams", 3, "--mode", "fast", *access]
        if name == "statement":
            return [self.godwit, "query", 'SELECT * FROM "rows.bed"', "--format", "csv", *(access if "--data" in access else ["--at", url, *access])]
        return [sys.executable, client_processes.CLIENTS / "pool_rows.py", self.cluster.directory.parent / "pool.toml", "rows.bed"]

    def watch_progress(self, name: str, process: subprocess.Popen[bytes]) -> JournalGrowth | TimedOutput:
        if name == "download":
            return JournalGrowth(self.client_directory / ".f.godwit-journal")
        if name == "upload":
            return JournalGrowth(self.root / ".up.godwit-journal")
        return TimedOutput(harness.piped(process.stdout))


def environment() -> dict[str, str]:
    return dict(os.environ, PYTHONPATH=str(harness.PYTHON_PACKAGE))


def member_of_client(cluster: server_pool.SlurmCluster, pool: server_pool.ServerPool) -> str:
    """Returns the member that has most connections of the only client."""
    done = subprocess.run(cluster.command_on_host(CLIENT_HOST, ["ss", "-Htn", "state", "established"]), stdout=subprocess.PIPE, text=True, check=True)
    # gRPC reports IPv4 addresses as IPv4-mapped IPv6 addresses.
    ends = done.stdout.replace("[::ffff:", "").replace("]", "").split()
    counts = {host: ends.count(pool.member_address(host)) for host in pool.members}
    return max(counts, key=lambda host: counts[host])


def measure_loss(fixture: Fixture, pool: server_pool.ServerPool, name: str, failure_mode: str, draw: random.Random) -> tuple[str, harness.Result]:
    """Fails the member that serves a client; returns the measurements."""
    for left in (fixture.client_directory / "f", fixture.root / "up"):
        left.unlink(missing_ok=True)
    command = fixture.command(name, ["--pool", pool.file, "--wait", "60s"])
    piped = subprocess.PIPE if name in ("statement", "python") else subprocess.DEVNULL
    process = subprocess.Popen(fixture.cluster.command_on_host(CLIENT_HOST, command), stdout=piped, stderr=subprocess.PIPE, env=environment())
    said, watched = server_pool.TimedLines(harness.piped(process.stderr)), fixture.watch_progress(name, process)
    until = time.monotonic() + 60
    while len(watched.stamps) < 3 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(draw.uniform(0.1, 1.5))
    host = member_of_client(fixture.cluster, pool)
    lost_at = pool.fail_member(host, failure_mode)
    code = process.wait(timeout=45)
    watched.ended.set()
    watched.join()
    said.join()
    noticed = said.time_of_line(LOST_MESSAGE)
    if code != 0 or noticed is None:
        harness.exit_with_error(f"{name}, {failure_mode}: at {host}: ended with {code}, and said: {said.text()[-600:]}")
    after = [stamp for stamp in watched.stamps if stamp > noticed]
    if not after:
        harness.exit_with_error(f"{name}, {failure_mode}: no data arrived after the loss of the host; it was too late")
    if name in ("download", "upload"):
        other = fixture.client_directory / "f" if name == "download" else fixture.root / "up"
        same = filecmp.cmp(fixture.client_directory / "source", other, shallow=False)
    else:
        same = isinstance(watched, TimedOutput) and fixture.expected[name] == watched.digest.hexdigest()
    if not same:
        harness.exit_with_error(f"{name}, {failure_mode}: the received data differ from the sent data")
    return host, {"detected_s": noticed - lost_at, "failover_s": after[0] - lost_at}


def measure_failback(pool: server_pool.ServerPool, host: str, failure_mode: str) -> float:
    """Returns the seconds from when a member was available again until it is granted."""
    others = [other for other in pool.members if other != host]
    pool.wait_until_healthy(others)
    back_at = pool.restore_member(host, failure_mode)
    wanted = f"grpc+tcp://{pool.member_address(host)}"
    while True:
        request = json.dumps({"id": f"{random.getrandbits(64):016x}"}).encode()
        if pool.do_action(others[0], "PoolGrant", request)["locations"][0] == wanted:
            seconds = time.monotonic() - back_at
            pool.wait_until_healthy(pool.members)
            return seconds
        if time.monotonic() > back_at + 60:
            harness.exit_with_error(f"{host} receives no new clients")
        time.sleep(0.05)


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def report(options: argparse.Namespace, godwit: Path, found: list[harness.Result]) -> None:
    around = harness.host_description(godwit)
    lines = [
        "| client | node lost how | losses | found lost after s, median | failover s, median | longest | failback s, median | longest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in CLIENTS:
        for failure_mode in FAILURE_MODES:
            some = [one for one in found if (one["client"], one["way"]) == (name, failure_mode)]
            if some:
                detected, failover, failback = ([one[field] for one in some] for field in ("detected_s", "failover_s", "failback_s"))
                lines.append(
                    f"| {name} | {failure_mode} | {len(some)} | {percentile(detected, 50):.2f} | {percentile(failover, 50):.2f} | {max(failover):.2f}"
                    f" | {percentile(failback, 50):.2f} | {max(failback):.2f} |"
                )
    failovers, failbacks = [one["failover_s"] for one in found], [one["failback_s"] for one in found]
    promised = []
    for what, clients in (("copies and statements", CLIENTS[:3]), ("the Python client", CLIENTS[3:])):
        seconds = [one["failover_s"] for one in found if one["client"] in clients]
        if seconds:
            promised.append(harness.target(f"failover of {what}, p99 of {len(seconds)} losses", [percentile(seconds, 99)], at_most=3, unit="s"))
    promised.append(harness.target(f"failback, longest of {len(found)}", [max(failbacks)], at_most=5, unit="s"))
    text = "\n".join(
        [
            "# Loss of a storage host",
            "",
            __doc__.split("\n", 2)[2].rsplit("\n\n", 1)[0].strip(),
            "",
            f"{len(found)} losses; files of {options.megabytes} MiB and {options.megabytes * ROWS_PER_MEGABYTE:,} rows, network rate of a "
            f"storage host {options.rate}; {harness.format_host(around)}.",
            "",
            *lines,
            "",
            f"- all: failover p50 {percentile(failovers, 50):.2f} s, p90 {percentile(failovers, 90):.2f} s, p99 {percentile(failovers, 99):.2f} "
            f"s; failback p50 {percentile(failbacks, 50):.2f} s, p99 {percentile(failbacks, 99):.2f} s.",
            *(f"- {harness.format_target(one)}" for one in promised),
            "- After every loss the bytes, or the digest of all rows, equal those of a copy or a query without a loss.",
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("failover", options.results, text, around, promised, {"losses": found})


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="losses of each kind, of each client (default: 1)")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--ways", nargs="+", choices=FAILURE_MODES, default=list(FAILURE_MODES))
    parser.add_argument("--megabytes", type=int, default=120, help="size of the copied files (default: 120)")
    parser.add_argument("--rate", default="200mbit", help="network rate of a storage host (default: 200mbit)")
    parser.add_argument("--fresh", action="store_true", help="discard earlier measurements of these clients")
    options = parser.parse_args()
    server_pool.reexec_with_pyarrow()
    godwit = harness.godwit_binary(options)
    kept = options.cache.resolve() / "failover.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    program = harness.file_digest(godwit)
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found = before.get("losses", []) if before.get("program") == program else []
    if options.fresh:
        found = [loss for loss in found if loss["client"] not in options.clients]
    draw = random.Random(options.seed + len(found))
    with server_pool.SlurmCluster(4) as cluster:
        fixture = Fixture(options, godwit, cluster)
        with server_pool.ServerPool(cluster, godwit, MEMBER_HOSTS, fixture.root, rate=options.rate) as pool:
            fixture.read_expected_python_digest()
            for _ in range(options.rounds):
                for name in options.clients:
                    for failure_mode in options.ways:
                        host, loss = measure_loss(fixture, pool, name, failure_mode, draw)
                        loss |= {"client": name, "way": failure_mode, "node": host, "failback_s": measure_failback(pool, host, failure_mode)}
                        found.append(loss)
                        harness.report_progress(f"{name}, {host} {failure_mode}: {loss}")
                        kept.write_text(json.dumps({"program": program, "losses": found}))
        shutil.rmtree(fixture.scratch)
    report(options, godwit, found)


if __name__ == "__main__":
    main()
