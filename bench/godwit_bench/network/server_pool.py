"""Shared code of the pool benchmarks: a SLURM cluster of namespaces on this machine, storage hosts with limited network rates, and a pool
of `godwit serve` on these hosts.
"""

import contextlib
import importlib.util
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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from godwit_bench import harness
from godwit_bench.harness import client_processes

CLUSTER_SCRIPT = harness.ROOT / "tests" / "harness" / "slurm" / "cluster.sh"
HEALTH_TIMEOUT_S = 60


def reexec_with_pyarrow() -> None:
    """Restarts the script in a Python that has pyarrow, if the current one does not have it."""
    if importlib.util.find_spec("pyarrow") is None:
        python = client_processes.client_python("databases")
        os.execv(python, [python, *harness.scenario_command(Path(sys.argv[0]).stem)[1:], *sys.argv[1:]])


class SlurmCluster:
    """A SLURM cluster of hosts `gw1` to `gwN`, each with its own network, processes and host name; a context manager."""

    def __init__(self, hosts: int, cpus: int = 8) -> None:
        if shutil.which("slurmctld") is None and not Path("/usr/sbin/slurmctld").exists():
            harness.exit_with_error("missing: SLURM and munge; run tools/install-dependencies.sh")
        self.directory = Path(tempfile.mkdtemp(prefix="godwit-bench-", dir="/tmp")) / "c"
        self.guard = subprocess.Popen([CLUSTER_SCRIPT, "guard", "--dir", self.directory], stdin=subprocess.PIPE, start_new_session=True)
        self.run_script("up", hosts, "--mode", "netns", "--cpus", cpus)
        self.configuration = self.directory / "etc" / "slurm.conf"
        subnet = re.search(r"subnet='([\d.]+)'", (self.directory / "etc" / "cluster.env").read_text())
        if subnet is None:
            harness.exit_with_error("cluster.sh names no subnet")
        self.subnet = subnet[1]

    def run_script(self, verb: str, *args: object) -> str:
        done = subprocess.run([CLUSTER_SCRIPT, verb, "--dir", self.directory, *map(str, args)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            harness.exit_with_error(f"cluster.sh {verb} {' '.join(map(str, args))} failed; see above")
        return done.stdout

    def command_on_host(self, host: str, command: harness.Command) -> list[str]:
        """Returns the command line that runs a command on a host."""
        return [str(CLUSTER_SCRIPT), "exec", "--dir", str(self.directory), host, "--", *map(str, command)]

    def host_address(self, host: str) -> str:
        return f"{self.subnet}.{host.removeprefix('gw')}"

    def __enter__(self) -> "SlurmCluster":
        return self

    def __exit__(self, *_: object) -> None:
        harness.piped(self.guard.stdin).close()
        self.guard.wait()
        shutil.rmtree(self.directory.parent, ignore_errors=True)


class ServerPool:
    """`godwit serve` on some hosts of a cluster, all exporting one directory; a context manager."""

    PORT = 8815

    def __init__(
        self,
        cluster: SlurmCluster,
        godwit: Path,
        hosts: Sequence[str],
        root: Path,
        policy: str = "connections",
        rate: str | None = None,
        more: str | dict[str, str] = "",
        on_processor: Callable[[str], int] | None = None,
    ) -> None:
        """``rate``: network rate of each host; ``more``: the capacity in the pool file, for all members or by host."""
        self.cluster, self.godwit, self.members, self.root, self.rate, self.on_processor = cluster, godwit, hosts, root, rate, on_processor
        self.file = cluster.directory.parent / "pool.toml"
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.ready_at: dict[str, float] = {}
        self.write_description(policy, more)
        for host in hosts:
            self.limit_rate(host, rate)
            self.start_member(host)
        self.wait_until_healthy(hosts)

    def write_description(self, policy: str, more: str | dict[str, str] = "") -> None:
        places = "".join(f'\n[[node]]\nurl = "grpc+tcp://{self.member_address(host)}"\n{self.capacity(more, host)}' for host in self.members)
        self.file.write_text(f'name = "storage"\npolicy = "{policy}"\n{places}')

    @staticmethod
    def capacity(more: str | dict[str, str], host: str) -> str:
        named = more.get(host) if isinstance(more, dict) else more
        return f'capacity = "{named}"\n' if named else ""

    def limit_rate(self, host: str, rate: str | None) -> None:
        if rate:
            self.cluster.run_script("rate", host, rate)

    def member_address(self, host: str) -> str:
        return f"{self.cluster.host_address(host)}:{self.PORT}"

    def start_member(self, host: str, *more: str) -> None:
        """Starts the server of a host, and waits until it accepts connections."""
        pinned = ["taskset", "-c", self.on_processor(host)] if self.on_processor else []
        args = [*pinned, self.godwit, "serve", "--root", self.root, "--listen", self.member_address(host), "--pool", self.file]
        args += ["--insecure", "--writable", *more]
        log = self.cluster.directory.parent / f"{host}.log"
        server = subprocess.Popen(
            self.cluster.command_on_host(host, args), stdout=subprocess.PIPE, stderr=log.open("ab"), stdin=subprocess.DEVNULL, start_new_session=True
        )
        if b"://" not in harness.piped(server.stdout).readline():
            harness.exit_with_error(f"the server on {host} did not start: {log.read_text()[-500:]}")
        self.servers[host], self.ready_at[host] = server, time.monotonic()

    def server_pid(self, host: str) -> int:
        """Returns the process id of the server, which is the child of the process that entered the namespaces."""
        entered = self.servers[host].pid
        children = Path(f"/proc/{entered}/task/{entered}/children").read_text().split()
        return int(children[0])

    def fail_member(self, host: str, how: str) -> float:
        """`killed`: the server's sockets are closed; `stopped`: all processes of the host hang; `cut`: the host loses its network, then its power."""
        if how == "killed":
            subprocess.run(["kill", "-KILL", str(self.server_pid(host))], check=True)
            at = time.monotonic()
        elif how == "stopped":
            at = time.monotonic()
            self.cluster.run_script("pause", host)
        else:
            at = time.monotonic()
            self.cluster.run_script("cut", host)
            self.cluster.run_script("kill", host)
        return at

    def restore_member(self, host: str, how: str) -> float:
        """Undoes `fail_member`; returns the time at which the member was available again."""
        if how == "stopped":
            self.cluster.run_script("cont", host)
            at = time.monotonic()
            # The process that entered the namespaces stops together with the server, and needs its own signal.
            self.servers[host].send_signal(signal.SIGCONT)
            return at
        harness.piped(self.servers[host].stdout).close()
        self.servers[host].wait()
        if how == "cut":
            self.cluster.run_script("start", host)
            self.limit_rate(host, self.rate)
        self.start_member(host)
        return self.ready_at[host]

    def do_action(self, host: str, action: str, body: bytes = b"") -> Any:
        """Returns the JSON answer of a member to a Flight action."""
        from pyarrow import flight

        with flight.connect(f"grpc+tcp://{self.member_address(host)}") as client:
            (answer,) = client.do_action(flight.Action(action, body), flight.FlightCallOptions(timeout=5))
        return json.loads(answer.body.to_pybytes())

    def member_states(self, host: str) -> dict[str, Any]:
        """Returns the state of every member by host, as one member reports it."""
        return dict(zip(self.members, self.do_action(host, "Status")["pool"]["nodes"], strict=False))

    def wait_until_healthy(self, hosts: Sequence[str]) -> None:
        """Waits until each of these members reports exactly these members as healthy."""
        until = time.monotonic() + HEALTH_TIMEOUT_S
        for host in hosts:
            while {name for name, state in self.member_states(host).items() if state["healthy"]} != set(hosts):
                if time.monotonic() > until:
                    harness.exit_with_error(f"{host} does not report the expected members as healthy")
                time.sleep(0.05)

    def __enter__(self) -> "ServerPool":
        return self

    def __exit__(self, *_: object) -> None:
        for host, server in self.servers.items():
            if server.poll() is None:
                self.cluster.run_script("cont", host)
                server.send_signal(signal.SIGCONT)
                # An error: the process has ended.
                with contextlib.suppress(OSError, IndexError):
                    subprocess.run(["kill", "-KILL", str(self.server_pid(host))], check=False)
                server.send_signal(signal.SIGKILL)
            server.wait()


class TimedLines(threading.Thread):
    """A thread that collects the lines of a stream with the time of each."""

    def __init__(self, stream: Iterable[str] | Iterable[bytes]) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.lines: list[tuple[float, str]] = []
        self.start()

    def run(self) -> None:
        for line in self.stream:
            self.lines.append((time.monotonic(), line if isinstance(line, str) else line.decode(errors="replace")))

    def time_of_line(self, args: str) -> float | None:
        """Returns the time of the first line that contains the words; None if there is no such line."""
        return next((at for at, line in list(self.lines) if args in line), None)

    def text(self) -> str:
        return "".join(line for _, line in self.lines)
