"""Shared code of the server benchmarks: warm client processes, servers, and the CPU time of process trees."""

import json
import os
import random
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import _measure as bench

CLIENTS = bench.ROOT / "bench" / "clients"
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def client_python(name):
    """Returns the Python interpreter that has the packages of `clients/NAME.txt`."""
    done = subprocess.run([CLIENTS / "fetch.sh", name], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        bench.exit_with_error(f"the Python environment of {name}.txt was not created; see above")
    return done.stdout.strip()


def package_versions(interpreter, *names):
    """Returns the version of each package by its name."""
    code = "import sys, importlib.metadata as m; [print(name, m.version(name)) for name in sys.argv[1:]]"
    done = subprocess.run([interpreter, "-c", code, *names], stdout=subprocess.PIPE, text=True)
    return dict(zip(names, done.stdout.splitlines()))


def format_versions(around):
    """Joins all versions with commas."""
    return ", ".join(version for version in around["versions"].values() if version)


def tree_cpu_s(root):
    """Returns the CPU seconds of a process, of its children that have ended, and of all its descendants that still run."""
    parents, spent = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # The process has ended.
            parents[int(entry)] = int(fields[1])
            spent[int(entry)] = sum(map(int, fields[11:15])) / CLOCK_TICKS_PER_S
    total, waiting = 0.0, [root]
    while waiting:
        process = waiting.pop()
        total += spent.get(process, 0)
        waiting += [child for child, parent in parents.items() if parent == process]
    return total


class Client:
    """A process that runs a program of `clients/` and executes jobs repeatedly; the program times its own work only."""

    def __init__(self, interpreter, script, *args, server=None):
        self.server = server
        command = [str(interpreter), str(CLIENTS / script), *map(str, args)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CLIENTS)

    def run_job(self, do, **what):
        """Returns the wall and CPU seconds and the result of one job; if the client has a server, its CPU seconds are added."""
        before = tree_cpu_s(self.server) if self.server else 0
        self.process.stdin.write(json.dumps({"do": do, "with": what}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            bench.exit_with_error(f"{self.process.args[1:3]} ended during the job {do} {what}; see above")
        answer = json.loads(line)
        answer["server_cpu_s"] = tree_cpu_s(self.server) - before if self.server else 0.0
        answer["cpu_s"] += answer["server_cpu_s"]
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class DataServer:
    """A `godwit serve` of a directory; a context manager."""

    def __init__(self, godwit, root, *args):
        command = [godwit, "serve", "--root", root, "--listen", "127.0.0.1:0", *args]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if " at grpc" not in line:
            bench.exit_with_error("godwit serve did not start; see above")
        self.address = line.rpartition("://")[2].strip()

    @property
    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def hot_blocks_option(parser):
    parser.add_argument("--hot-blocks", type=Path, help="the server of hot blocks (default: built from here with --release)")


class HotBlocksServer:
    """A server of a table in which some blocks are rows (`examples/hot_blocks.rs` of godwit-flight); a context manager."""

    def __init__(self, options, file):
        if not options.hot_blocks:
            bench.run_checked(["cargo", "build", "--release", "-p", "godwit-flight", "--example", "hot_blocks"], cwd=bench.ROOT)
            options.hot_blocks = bench.target_directory() / "release" / "examples" / "hot_blocks"
        command = [options.hot_blocks.resolve(), file]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip().removeprefix("tcp:")
        if not self.address:
            bench.exit_with_error("hot_blocks did not start; see above")

    @property
    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def table_file(interpreter, options, name, rows, ending="parquet"):
    """Writes a generated table to a file once and returns its path."""
    def build(folder):
        bench.run_checked([interpreter, CLIENTS / "tables.py", name, rows, folder / f"{name}.{ending}"])

    return (bench.build_once(options.cache.resolve() / f"table-{name}-{rows}-{ending}", build) / f"{name}.{ending}").resolve()


def time_process(command, **how):
    """Returns the wall and CPU seconds of a command from start to end, and its last line of output."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(list(map(str, command)), **({"stdout": subprocess.PIPE} | how))
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        bench.exit_with_error(f"{command} ended with {done.returncode}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    last = (done.stdout or b"")[-200:].strip().rpartition(b"\n")[2]
    return {"wall_s": took, "cpu_s": cpu_s, "last": last.decode(errors="replace")}


def run_interleaved(rounds, asks, what=""):
    """Runs each competitor once per round, in a different order in each round; returns the results by name."""
    measured = {name: [] for name in asks}
    order = random.Random(20261122)
    for round_number in range(rounds):
        names = list(asks)
        order.shuffle(names)
        for name in names:
            answer = asks[name]()
            measured[name].append(answer)
            bench.report_progress(f"{what}: round {round_number + 1}: {name}: {1e3 * answer['wall_s']:.1f} ms, {1e3 * answer['cpu_s']:.1f} ms CPU")
    return measured


def markdown_table(measured, base, unit=1e3, called="ms"):
    """Returns a Markdown table of competitors. A ratio is the median of the ratios of single rounds to the competitor `base`."""
    lines = [f"| tool | {called}, median | spread | x {base} | CPU {called} | of it the server's | CPU x {base} |", "|---|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        wall = [answer["wall_s"] * unit for answer in rounds]
        cpu, server = (statistics.median(answer.get(field, 0) * unit for answer in rounds) for field in ("cpu_s", "server_cpu_s"))
        lines.append(
            f"| {name} | {statistics.median(wall):.3g} | {min(wall):.3g} - {max(wall):.3g} | {bench.median_ratio(rounds, measured[base], 'wall_s'):.2f}"
            f" | {cpu:.3g} | {server:.3g} | {bench.median_ratio(rounds, measured[base], 'cpu_s'):.2f} |"
        )
    return lines


def draw_plots(interpreter, result):
    """Draws the plots of a result into the directory of the result."""
    bench.run_checked([interpreter, bench.ROOT / "bench" / "_plot.py", result])


def scratch_directory(name):
    """Creates a directory that is removed with the benchmark. Every user may read it, because database daemons refuse to run as root."""
    directory = tempfile.TemporaryDirectory(prefix=f"godwit-bench-{name}-")
    Path(directory.name).chmod(0o755)
    return directory
