"""Shared code of the server benchmarks: warm client processes, servers, and the CPU time of process trees."""

import argparse
import json
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from godwit_bench import harness

CLIENTS = harness.BENCH / "godwit_bench" / "clients"


def client_python(name: str) -> str:
    """Returns the Python interpreter that has the packages of `clients/NAME.txt`."""
    done = subprocess.run([CLIENTS / "fetch.sh", name], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        harness.exit_with_error(f"the Python environment of {name}.txt was not created; see above")
    return done.stdout.strip()


def package_versions(interpreter: str, *names: str) -> dict[str, str]:
    """Returns the version of each package by its name."""
    code = "import sys, importlib.metadata as m; [print(name, m.version(name)) for name in sys.argv[1:]]"
    done = subprocess.run([interpreter, "-c", code, *names], stdout=subprocess.PIPE, text=True)
    return dict(zip(names, done.stdout.splitlines(), strict=False))


def format_versions(around: harness.Result) -> str:
    """Joins all versions with commas."""
    return ", ".join(version for version in around["versions"].values() if version)


def tree_cpu_s(root: int) -> float:
    """Returns the CPU seconds of a process, of its children that have ended, and of all its descendants that still run."""
    parents, spent = {}, {}
    for process in harness.process_ids():
        fields = harness.process_stat(process)
        # A process that has ended has no fields.
        if fields:
            parents[process] = int(fields[1])
            spent[process] = sum(map(int, fields[11:15])) / harness.CLOCK_TICKS_PER_S
    total, waiting = 0.0, [root]
    while waiting:
        process = waiting.pop()
        total += spent.get(process, 0)
        waiting += [child for child, parent in parents.items() if parent == process]
    return total


def client_command(interpreter: str, program: str, *args: object) -> list[str]:
    """Returns the command line that runs a program of `clients/` in the directory `harness.BENCH`."""
    return [str(interpreter), "-m", f"godwit_bench.clients.{program}", *map(str, args)]


class Client:
    """A process that runs a program of `clients/` and executes jobs repeatedly; the program times its own work only."""

    def __init__(self, interpreter: str, program: str, *args: object, server: int | None = None) -> None:
        self.server = server
        self.command = client_command(interpreter, program, *args)
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=harness.BENCH)

    def run_job(self, do: str, **what: object) -> harness.Result:
        """Returns the wall and CPU seconds and the result of one job; if the client has a server, its CPU seconds are added."""
        before = tree_cpu_s(self.server) if self.server else 0
        harness.piped(self.process.stdin).write(json.dumps({"do": do, "with": what}) + "\n")
        harness.piped(self.process.stdin).flush()
        line = harness.piped(self.process.stdout).readline()
        if not line:
            harness.exit_with_error(f"{self.command[1:3]} ended during the job {do} {what}; see above")
        answer: harness.Result = json.loads(line)
        answer["server_cpu_s"] = tree_cpu_s(self.server) - before if self.server else 0.0
        answer["cpu_s"] += answer["server_cpu_s"]
        return answer

    def close(self) -> None:
        harness.piped(self.process.stdin).close()
        self.process.wait()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AddressServer:
    """A server in Python whose first line of output ends with its address; a context manager."""

    def __init__(self, command: list[str]) -> None:
        # Some of these servers run until their standard input is closed.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=harness.BENCH)
        words = harness.piped(self.process.stdout).readline().split()
        if not words:
            harness.exit_with_error(f"{command[1:]} did not start; see above")
        self.address = words[-1]

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> "AddressServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


class DataServer:
    """A `godwit serve` of a directory; a context manager."""

    def __init__(self, godwit: Path, root: Path, *args: object) -> None:
        command = [godwit, "serve", "--root", root, "--listen", "127.0.0.1:0", *args]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        line = harness.piped(self.process.stdout).readline()
        if " at grpc" not in line:
            harness.exit_with_error("godwit serve did not start; see above")
        self.address = line.rpartition("://")[2].strip()

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> "DataServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()


def add_hot_blocks_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hot-blocks", type=Path, help="the server of hot blocks (default: built from here with --release)")


class HotBlocksServer:
    """A server of a table in which some blocks are rows (`examples/hot_blocks.rs` of godwit-flight); a context manager."""

    def __init__(self, options: argparse.Namespace, file: Path) -> None:
        if not options.hot_blocks:
            harness.run_checked(["cargo", "build", "--release", "-p", "godwit-flight", "--example", "hot_blocks"], cwd=harness.ROOT)
            options.hot_blocks = harness.target_directory() / "release" / "examples" / "hot_blocks"
        command = [options.hot_blocks.resolve(), file]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = harness.piped(self.process.stdout).readline().strip().removeprefix("tcp:")
        if not self.address:
            harness.exit_with_error("hot_blocks did not start; see above")

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> "HotBlocksServer":
        return self

    def __exit__(self, *_: object) -> None:
        harness.piped(self.process.stdin).close()
        self.process.wait()


def table_file(interpreter: str, options: argparse.Namespace, name: str, rows: int, ending: str = "parquet") -> Path:
    """Writes a generated table to a file once and returns its path."""

    def build(folder: Path) -> None:
        harness.run_checked([interpreter, CLIENTS / "tables.py", name, rows, folder / f"{name}.{ending}"])

    return (harness.build_once(options.cache.resolve() / f"table-{name}-{rows}-{ending}", build) / f"{name}.{ending}").resolve()


def time_process(command: harness.Command, **how: Any) -> harness.Result:
    """Returns the wall and CPU seconds of a command from start to end, and its last line of output."""
    before, started = harness.children_cpu_s(), time.perf_counter()
    done = subprocess.run(list(map(str, command)), **{"stdout": subprocess.PIPE, **how})
    took, cpu_s = time.perf_counter() - started, harness.children_cpu_s() - before
    if done.returncode != 0:
        harness.exit_with_error(f"{command} ended with {done.returncode}")
    output: bytes = done.stdout or b""
    last = output[-200:].strip().rpartition(b"\n")[2]
    return {"wall_s": took, "cpu_s": cpu_s, "last": last.decode(errors="replace")}


def run_interleaved(rounds: int, asks: Mapping[str, Callable[[], harness.Result]], what: str = "") -> harness.Rounds:
    """Runs each competitor once per round, in a different order in each round; returns the results by name."""
    measured: harness.Rounds = {name: [] for name in asks}
    order = random.Random(20261122)
    for round_number in range(rounds):
        names = list(asks)
        order.shuffle(names)
        for name in names:
            answer = asks[name]()
            measured[name].append(answer)
            harness.report_progress(f"{what}: round {round_number + 1}: {name}: {1e3 * answer['wall_s']:.1f} ms, {1e3 * answer['cpu_s']:.1f} ms CPU")
    return measured


def markdown_table(measured: harness.Rounds, base: str, unit: float = 1e3, called: str = "ms") -> list[str]:
    """Returns a Markdown table of competitors. A ratio is the median of the ratios of single rounds to the competitor `base`."""
    lines = [f"| tool | {called}, median | spread | x {base} | CPU {called} | of it the server's | CPU x {base} |", "|---|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        wall = [answer["wall_s"] * unit for answer in rounds]
        cpu, server = (statistics.median(answer.get(field, 0) * unit for answer in rounds) for field in ("cpu_s", "server_cpu_s"))
        lines.append(
            f"| {name} | {statistics.median(wall):.3g} | {min(wall):.3g} - {max(wall):.3g} | "
            f"{harness.median_ratio(rounds, measured[base], 'wall_s'):.2f} | {cpu:.3g} | {server:.3g} | "
            f"{harness.median_ratio(rounds, measured[base], 'cpu_s'):.2f} |"
        )
    return lines


def scratch_directory(name: str) -> tempfile.TemporaryDirectory[str]:
    """Creates a directory that is removed with the benchmark. Every user may read it, because database daemons refuse to run as root."""
    directory = tempfile.TemporaryDirectory(prefix=f"godwit-bench-{name}-")
    Path(directory.name).chmod(0o755)
    return directory
