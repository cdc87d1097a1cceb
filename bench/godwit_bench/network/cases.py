"""Path measurements beside the speed of one file: fairness to other flows, small files, several sources, third-party copies.

Each function returns a dict of its results; its arguments describe the case.
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

from godwit_bench import harness
from godwit_bench.network import cells, competitors
from godwit_bench.network import emulated_path as emulation

FAIRNESS_CELL = {**cells.BASE, "rate": 200}


def measure_cell(cell: cells.Cell, godwit: Path, directory: Path, runs: int, with_peers: bool) -> harness.Result:
    """Measures one cell: godwit, iperf3 and the competitors in the same minutes."""
    root, mine = emulation.prepare_directories(directory, cell["megabytes"])
    seconds: list[float] = []
    late: list[float] = []
    others: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    with emulation.EmulatedPath(cell) as path:
        with emulation.PathServer(path, godwit, root, directory) as server:
            for _ in range(runs):
                emulation.empty_directory(mine)
                seconds.append(emulation.time_copy(path, godwit, server, "f", mine / "f", cell))
                late.append(path.lateness_p99_us() or 0)
                if not harness.have_same_bytes(root / "f", mine / "f"):
                    harness.exit_with_error("the copy differs from the file")
        streams = 16 if cell["streams"] == "auto" else min(cell["streams"], 128)
        beside, _ = emulation.measure_iperf(path, streams)
        for competitor in competitors.competitors_for_cell(cell, cell["megabytes"] >= cells.LONG_MEGABYTES) if with_peers else []:
            emulation.empty_directory(mine)
            took, reason = competitors.time_competitor(competitor, path, root, mine, directory, cells.timeout_s(cell))
            others[competitor.name] = took and round(cells.percent_of(cell, took), 1)
            reasons |= {competitor.name: reason} if reason else {}
    emulation.empty_directory(mine)
    return {
        "seconds": round(statistics.median(seconds), 3),
        "runs": [round(one, 3) for one in seconds],
        "percent": round(cells.percent_of(cell, statistics.median(seconds)), 1),
        "bound_percent": round(cells.bound_percent(cell), 1),
        "iperf3_streams": streams,
        "iperf3_percent": round(100 * beside / cells.payload_mbps(cell), 1),
        "peers_percent": others,
        "peers_why_not": reasons,
        "emulator_late_us_p99": max(late),
    }


def measure_cubic_flow(path: emulation.EmulatedPath, seconds: float) -> tuple[float, int]:
    """Returns Mbit/s and losses of one CUBIC flow without its first two seconds."""
    return emulation.measure_iperf_with(path, seconds, "-C", "cubic", "-O", 2)


def copy_rates(copy: subprocess.Popen[str], skip: int) -> float:
    """Stops a copy and returns the mean of the Mbit/s that it reported, without the first `skip` reports."""
    copy.send_signal(signal.SIGINT)
    events = (json.loads(line) for line in copy.communicate()[1].splitlines() if line.startswith("{"))
    found: list[float] = [event["bytes_per_s"] * 8 / 1e6 for event in events if event.get("event") == "copying"][skip:]
    return round(sum(found) / max(1, len(found)), 1)


def measure_fairness(godwit: Path, directory: Path, mode: str, queue: str, seconds: float = 20) -> harness.Result:
    """Measures one CUBIC flow beside a copy at 200 Mbit/s and 40 ms: its share of the rate it has alone, and its losses."""
    root, mine = emulation.prepare_directories(directory, 1200)
    with emulation.EmulatedPath({**FAIRNESS_CELL, "queue": queue}) as path, emulation.PathServer(path, godwit, root, directory) as server:
        args = [godwit, "copy", f"{server.url}/f", mine / "f", "--mode", mode, "--json", *server.credential_args()]

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(path.command("a", *args), stderr=subprocess.PIPE, text=True)

        alone, alone_lost = measure_cubic_flow(path, seconds)
        copy = start()
        time.sleep(3)
        beside, beside_lost = measure_cubic_flow(path, seconds)
        with_other = copy_rates(copy, 12)
        emulation.empty_directory(mine)
        copy = start()
        time.sleep(seconds)
        solo = copy_rates(copy, 8)
    return {
        "cubic_alone_mbit_per_s": round(alone, 1),
        "cubic_beside_mbit_per_s": round(beside, 1),
        "cubic_keeps_percent": round(100 * beside / alone, 1),
        "cubic_retransmits_alone": alone_lost,
        "cubic_retransmits_beside": beside_lost,
        "copy_alone_mbit_per_s": solo,
        "copy_beside_mbit_per_s": with_other,
    }


def measure_many_files(godwit: Path, directory: Path, count: int, size: int, runs: int) -> harness.Result:
    """Returns the seconds for many small files at 1000 Mbit/s and 40 ms, for godwit and its competitors. Each run writes into its own directory,
    and nothing is removed during the measurement: for a minute, ext4 checks whether an inode was free before. After 2,000 files were removed,
    this check took a fifth of both cores.
    """
    root = emulation.empty_directory(directory / "many")
    emulation.empty_directory(root / "d")
    for number in range(count):
        (root / "d" / f"{number:05}").write_bytes(os.urandom(size))
        emulation.give_to_user(root / "d" / f"{number:05}")
    os.sync()
    used = [root]
    seconds: list[float] = []
    others: dict[str, float | None] = {}
    reasons: dict[str, str] = {}

    def empty_target() -> Path:
        used.append(emulation.empty_directory(directory / f"many-{len(used)}"))
        return used[-1]

    with emulation.EmulatedPath(cells.BASE) as path:
        with emulation.PathServer(path, godwit, root, directory) as server:
            for _ in range(runs):
                mine = empty_target()
                seconds.append(emulation.time_copy(path, godwit, server, "d", mine / "d", cells.BASE))
                if subprocess.run(["diff", "-rq", root / "d", mine / "d"]).returncode:
                    harness.exit_with_error("the copies differ from the files")
        for competitor in competitors.competitors_for_many_files():
            took, reason = competitors.time_competitor(competitor, path, root, empty_target(), directory, 60, "d")
            others[competitor.name] = took and round(took, 2)
            reasons |= {competitor.name: reason} if reason else {}
    for one in used:
        shutil.rmtree(one)
    return {"seconds": round(statistics.median(seconds), 2), "runs": [round(one, 3) for one in seconds], "peers_s": others, "peers_why_not": reasons}


class SourceServers:
    """One host, and servers of the same files, each at the end of its own path."""

    def __init__(self, cell: cells.Cell, godwit: Path, root: Path, directory: Path, count: int) -> None:
        self.cell, self.godwit, self.root, self.directory, self.count = cell, godwit, root, directory, count
        self.near = f"{emulation.NAMESPACE_PREFIX}-near"

    def __enter__(self) -> "SourceServers":
        self.paths: list[emulation.EmulatedPath] = []
        self.servers: list[emulation.PathServer] = []
        with contextlib.ExitStack() as running:
            subprocess.run(["ip", "netns", "add", self.near], check=True)
            running.callback(subprocess.run, ["ip", "netns", "del", self.near])
            subprocess.run(["ip", "-n", self.near, "link", "set", "lo", "up"], check=True)
            for number in range(self.count):
                path = emulation.EmulatedPath(self.cell, f"{emulation.NAMESPACE_PREFIX}-{number}", (self.near, f"wan{number}"), number + 1)
                self.paths.append(running.enter_context(path))
                first = self.servers[0] if self.servers else None
                server = emulation.PathServer(path, self.godwit, self.root, self.directory, name=f"server{number}", like=first)
                self.servers.append(running.enter_context(server))
            # One list of certificates for all servers.
            (self.directory / "all.pem").write_text("".join(server.pem.read_text() for server in self.servers))
            self.running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.close()

    def time_copy(self, target: Path, count: int) -> float:
        """Returns the seconds of a copy from `count` servers."""
        more = [word for server in self.servers[1:count] for word in ("--also-from", f"{server.url}/f")]
        for path in self.paths:
            path.flush_tcp_metrics()
        access = ["--ca", self.directory / "all.pem", "--token-file", self.servers[0].token]
        args = emulation.copy_args(self.godwit, f"{self.servers[0].url}/f", target, self.cell, "--quiet", "--no-config", *more, *access)
        return emulation.time_command(self.paths[0], args)


def measure_several_sources(godwit: Path, directory: Path, count: int, rate: int, megabytes: int, runs: int) -> harness.Result:
    """Measures a file from several servers that each have a part of the rate, and from one of them alone."""
    cell = {**cells.BASE, "rate": rate, "megabytes": megabytes}
    root, mine = emulation.prepare_directories(directory, megabytes)
    together, alone = [], []
    with SourceServers(cell, godwit, root, directory, count) as sources:
        for _ in range(runs):
            emulation.empty_directory(mine)
            together.append(sources.time_copy(mine / "f", count))
            if not harness.have_same_bytes(root / "f", mine / "f"):
                harness.exit_with_error("the copy differs from the file")
        emulation.empty_directory(mine)
        alone.append(sources.time_copy(mine / "f", 1))
        late = max(path.lateness_p99_us() or 0 for path in sources.paths)
    emulation.empty_directory(mine)
    whole = {**cell, "rate": count * rate}
    seconds = statistics.median(together)
    return {
        "seconds": round(seconds, 2),
        "runs": [round(one, 2) for one in together],
        "one_source_s": round(alone[0], 2),
        "percent_of_sum": round(cells.percent_of(whole, seconds), 1),
        "bound_percent": round(cells.bound_percent(whole), 1),
        "percent_of_one_source_alone_times_all": round(100 * alone[0] / count / seconds, 1),
        "emulator_late_us_p99": late,
    }


def measure_third_party_copy(godwit: Path, directory: Path, megabytes: int, runs: int) -> harness.Result:
    """Measures a server-to-server copy that a third host requests, and the same copy by the receiving host itself."""
    cell = {**cells.BASE, "megabytes": megabytes}
    root, mine = emulation.prepare_directories(directory, megabytes)
    direct, third = [], []
    with (
        emulation.EmulatedPath(cell) as path,
        emulation.PathServer(path, godwit, root, directory) as far,
        emulation.PathServer(path, godwit, mine, directory, end="a", name="near", more=["--ca", far.pem], like=far) as near,
    ):
        # One list of certificates for both servers.
        (directory / "all.pem").write_text(far.pem.read_text() + near.pem.read_text())
        args = emulation.copy_args(
            godwit, f"{far.url}/f", f"{near.url}/third", cell, "--quiet", "--no-config", "--ca", directory / "all.pem", "--token-file", far.token
        )
        for _ in range(runs):
            for made in ("direct", "third"):
                (mine / made).unlink(missing_ok=True)
            direct.append(emulation.time_copy(path, godwit, far, "f", mine / "direct", cell))
            path.flush_tcp_metrics()
            third.append(emulation.time_command(path, args))
            if not harness.have_same_bytes(root / "f", mine / "third"):
                harness.exit_with_error("the copy between servers differs from the file")
    emulation.empty_directory(mine)
    return {
        "direct_runs": [round(one, 3) for one in direct],
        "third_runs": [round(one, 3) for one in third],
        "percent_of_direct": round(100 * statistics.median(direct) / statistics.median(third), 1),
    }
