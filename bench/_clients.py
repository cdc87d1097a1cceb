"""What benchmarks of servers share: clients in processes of their own that stay warm, servers, and CPU time of whole trees of processes."""

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
TICKS = os.sysconf("SC_CLK_TCK")


def python(name):
    """The Python that has the programs of `clients/NAME.txt`."""
    done = subprocess.run([CLIENTS / "fetch.sh", name], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        bench.fail(f"the Python of {name}.txt could not be made; see above")
    return done.stdout.strip()


def versions(interpreter, *names):
    """Names of packages, each with itself and its version."""
    code = "import sys, importlib.metadata as m; [print(name, m.version(name)) for name in sys.argv[1:]]"
    done = subprocess.run([interpreter, "-c", code, *names], stdout=subprocess.PIPE, text=True)
    return dict(zip(names, done.stdout.splitlines()))


def version_words(around):
    """All versions in a row."""
    return ", ".join(version for version in around["versions"].values() if version)


def tree_cpu_s(root):
    """CPU seconds of a process, of those it waited for, and of all that come from it and still run."""
    parents, spent = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue  # It has ended.
            parents[int(entry)] = int(fields[1])
            spent[int(entry)] = sum(map(int, fields[11:15])) / TICKS
    total, waiting = 0.0, [root]
    while waiting:
        process = waiting.pop()
        total += spent.get(process, 0)
        waiting += [child for child, parent in parents.items() if parent == process]
    return total


class Client:
    """A program of `clients/` that is asked again and again; only what it says to be its own work is timed."""

    def __init__(self, interpreter, script, *words, server=None):
        self.server = server
        command = [str(interpreter), str(CLIENTS / script), *map(str, words)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CLIENTS)

    def ask(self, do, **what):
        """Wall and CPU seconds of one job and what came of it; with a server, its CPU seconds are added."""
        before = tree_cpu_s(self.server) if self.server else 0
        self.process.stdin.write(json.dumps({"do": do, "with": what}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            bench.fail(f"{self.process.args[1:3]} ended while it was to {do} {what}; see above")
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


class Served:
    """A `godwit serve` of a directory, for a `with`."""

    def __init__(self, godwit, root, *words):
        command = [godwit, "serve", "--root", root, "--listen", "127.0.0.1:0", *words]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if " at grpc" not in line:
            bench.fail("godwit serve did not start; see above")
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


class HotBlocks:
    """A server of a table, some blocks of which are rows (`examples/hot_blocks.rs` of godwit-flight), for a `with`."""

    def __init__(self, options, file):
        if not options.hot_blocks:
            bench.run(["cargo", "build", "--release", "-p", "godwit-flight", "--example", "hot_blocks"], cwd=bench.ROOT)
            options.hot_blocks = bench.target_directory() / "release" / "examples" / "hot_blocks"
        command = [options.hot_blocks.resolve(), file]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip().removeprefix("tcp:")
        if not self.address:
            bench.fail("hot_blocks did not start; see above")

    @property
    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def table_file(interpreter, options, name, rows, ending="parquet"):
    """A generated table as a file, made once."""
    def build(folder):
        bench.run([interpreter, CLIENTS / "tables.py", name, rows, folder / f"{name}.{ending}"])

    return (bench.make(options.cache.resolve() / f"table-{name}-{rows}-{ending}", build) / f"{name}.{ending}").resolve()


def process(command, **how):
    """Wall and CPU seconds of a command from its start to its end, and its last line of output."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(list(map(str, command)), **({"stdout": subprocess.PIPE} | how))
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        bench.fail(f"{command} ended with {done.returncode}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    last = (done.stdout or b"")[-200:].strip().rpartition(b"\n")[2]
    return {"wall_s": took, "cpu_s": cpu_s, "last": last.decode(errors="replace")}


def interleaved(rounds, asks, what=""):
    """Asks each competitor once in every round, each round in another order; its answers by name."""
    measured = {name: [] for name in asks}
    order = random.Random(20261122)
    for round_number in range(rounds):
        names = list(asks)
        order.shuffle(names)
        for name in names:
            answer = asks[name]()
            measured[name].append(answer)
            bench.progress(f"{what}: round {round_number + 1}: {name}: {1e3 * answer['wall_s']:.1f} ms, {1e3 * answer['cpu_s']:.1f} ms CPU")
    return measured


def table(measured, base, unit=1e3, called="ms"):
    """A Markdown table of competitors; ratios are medians of the rounds' own quotients over the one named `base`."""
    lines = [f"| tool | {called}, median | spread | x {base} | CPU {called} | of it the server's | CPU x {base} |", "|---|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        wall = [answer["wall_s"] * unit for answer in rounds]
        cpu, server = (statistics.median(answer.get(field, 0) * unit for answer in rounds) for field in ("cpu_s", "server_cpu_s"))
        lines.append(
            f"| {name} | {statistics.median(wall):.3g} | {min(wall):.3g} - {max(wall):.3g} | {bench.quotient(rounds, measured[base], 'wall_s'):.2f}"
            f" | {cpu:.3g} | {server:.3g} | {bench.quotient(rounds, measured[base], 'cpu_s'):.2f} |"
        )
    return lines


def plot(interpreter, result):
    """Draws the plots of a result beside it."""
    bench.run([interpreter, bench.ROOT / "bench" / "_plot.py", result])


def scratch_directory(name):
    """A directory that goes with the benchmark, where any user may look: daemons refuse to run as root."""
    directory = tempfile.TemporaryDirectory(prefix=f"godwit-bench-{name}-")
    Path(directory.name).chmod(0o755)
    return directory
