"""What benchmarks of fleets share: a SLURM cluster of namespaces on this machine, storage nodes among them whose networks are capped, and a pool
of `godwit serve` on these."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import _clients
import _measure as bench

SCRIPT = bench.ROOT / "tests" / "harness" / "slurm" / "cluster.sh"
PATIENCE_S = 60


def need_pyarrow():
    """Goes on in a Python that has pyarrow, where this one has not."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError:
        python = _clients.python("databases")
        os.execv(python, [python, *sys.argv])


class Cluster:
    """Nodes `gw1` to `gwN`, each with a network, processes and a host name of its own, for a `with`."""

    def __init__(self, nodes, cpus=8):
        if shutil.which("slurmctld") is None and not Path("/usr/sbin/slurmctld").exists():
            bench.fail("missing: SLURM and munge; run tools/install-dependencies.sh")
        self.directory = Path(tempfile.mkdtemp(prefix="godwit-bench-", dir="/tmp")) / "c"
        self.guard = subprocess.Popen([SCRIPT, "guard", "--dir", self.directory], stdin=subprocess.PIPE, start_new_session=True)
        self.script("up", nodes, "--mode", "netns", "--cpus", cpus)
        self.configuration = self.directory / "etc" / "slurm.conf"
        self.subnet = re.search(r"subnet='([\d.]+)'", (self.directory / "etc" / "cluster.env").read_text())[1]

    def script(self, verb, *words):
        done = subprocess.run([SCRIPT, verb, "--dir", self.directory, *map(str, words)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            bench.fail(f"cluster.sh {verb} {' '.join(map(str, words))} failed; see above")
        return done.stdout

    def inside(self, node, command):
        """A command as it is run inside a node."""
        return [str(SCRIPT), "exec", "--dir", str(self.directory), node, "--", *map(str, command)]

    def address(self, node):
        return f"{self.subnet}.{node.removeprefix('gw')}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.guard.stdin.close()
        self.guard.wait()
        shutil.rmtree(self.directory.parent, ignore_errors=True)


class Pool:
    """`godwit serve` on some nodes of a cluster, which export one directory, for a `with`."""

    PORT = 8815

    def __init__(self, cluster, godwit, nodes, root, policy="connections", rate=None, more="", on_processor=None):
        """``rate``: of each node's network; ``more``: the capacity that the pool's file names, of all or by node."""
        self.cluster, self.godwit, self.nodes, self.root, self.rate, self.on_processor = cluster, godwit, nodes, root, rate, on_processor
        self.file = cluster.directory.parent / "pool.toml"
        self.servers, self.ready_at = {}, {}
        self.describe(policy, more)
        for node in nodes:
            self.cap(node, rate)
            self.start(node)
        self.wait_until_seen(nodes)

    def describe(self, policy, more=""):
        places = "".join(f'\n[[node]]\nurl = "grpc+tcp://{self.location(node)}"\n{self.capacity(more, node)}' for node in self.nodes)
        self.file.write_text(f'name = "storage"\npolicy = "{policy}"\n{places}')

    @staticmethod
    def capacity(more, node):
        named = more.get(node) if isinstance(more, dict) else more
        return f'capacity = "{named}"\n' if named else ""

    def cap(self, node, rate):
        if rate:
            self.cluster.script("rate", node, rate)

    def location(self, node):
        return f"{self.cluster.address(node)}:{self.PORT}"

    def start(self, node, *more):
        """Starts the server of a node, and waits until it takes connections."""
        pinned = ["taskset", "-c", self.on_processor(node)] if self.on_processor else []
        words = [*pinned, self.godwit, "serve", "--root", self.root, "--listen", self.location(node), "--pool", self.file, "--insecure", "--writable", *more]
        log = open(self.cluster.directory.parent / f"{node}.log", "ab")
        server = subprocess.Popen(self.cluster.inside(node, words), stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        if b"://" not in server.stdout.readline():
            bench.fail(f"the server on {node} did not start: {Path(log.name).read_text()[-500:]}")
        self.servers[node], self.ready_at[node] = server, time.monotonic()

    def server_pid(self, node):
        """The server's process: who entered the namespaces has it as its child."""
        entered = self.servers[node].pid
        children = Path(f"/proc/{entered}/task/{entered}/children").read_text().split()
        return int(children[0])

    def lose(self, node, how):
        """`killed`: its sockets are closed; `stopped`: all of the node's processes hang; `cut`: it loses its network, then its power."""
        if how == "killed":
            subprocess.run(["kill", "-KILL", str(self.server_pid(node))], check=True)
            at = time.monotonic()
        elif how == "stopped":
            at = time.monotonic()
            self.cluster.script("pause", node)
        else:
            at = time.monotonic()
            self.cluster.script("cut", node)
            self.cluster.script("kill", node)
        return at

    def bring_back(self, node, how):
        """The opposite; when the node was there again."""
        if how == "stopped":
            self.cluster.script("cont", node)
            at = time.monotonic()
            # Who entered the namespaces for a server stops when it does, and waits for a signal of its own.
            self.servers[node].send_signal(signal.SIGCONT)
            return at
        self.servers[node].stdout.close()
        self.servers[node].wait()
        if how == "cut":
            self.cluster.script("start", node)
            self.cap(node, self.rate)
        self.start(node)
        return self.ready_at[node]

    def asked(self, node, action, body=b""):
        """What a node answers to an action, as JSON."""
        from pyarrow import flight

        with flight.connect(f"grpc+tcp://{self.location(node)}") as client:
            (answer,) = client.do_action(flight.Action(action, body), flight.FlightCallOptions(timeout=5))
        return json.loads(answer.body.to_pybytes())

    def seen_by(self, node):
        """The pool as a node sees it: what each of all nodes is like, by name."""
        return dict(zip(self.nodes, self.asked(node, "Status")["pool"]["nodes"]))

    def wait_until_seen(self, nodes):
        """Until each of these sees that these, and no others, are there."""
        until = time.monotonic() + PATIENCE_S
        for node in nodes:
            while {name for name, state in self.seen_by(node).items() if state["healthy"]} != set(nodes):
                if time.monotonic() > until:
                    bench.fail(f"{node} does not see the pool as it is")
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node, server in self.servers.items():
            if server.poll() is None:
                self.cluster.script("cont", node)
                server.send_signal(signal.SIGCONT)
                try:
                    subprocess.run(["kill", "-KILL", str(self.server_pid(node))], check=False)
                except (OSError, IndexError):
                    pass  # It has ended.
                server.send_signal(signal.SIGKILL)
            server.wait()


class Said(threading.Thread):
    """Lines that a program writes, with the time of each."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.lines = stream, []
        self.start()

    def run(self):
        for line in self.stream:
            self.lines.append((time.monotonic(), line if isinstance(line, str) else line.decode(errors="replace")))

    def when(self, words):
        """When a line with these words came; `None`: none has."""
        return next((at for at, line in list(self.lines) if words in line), None)

    def text(self):
        return "".join(line for _, line in self.lines)


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
