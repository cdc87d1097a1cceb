"""Emulated network paths, and the programs at their ends: servers, copies, iperf3, and the files that are copied."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Protocol

from godwit_bench import harness
from godwit_bench.network.cells import Cell

PATH_SCRIPT = Path(__file__).with_name("path.sh")
# The process id allows several benchmarks to run at the same time.
NAMESPACE_PREFIX = f"gwp{os.getpid()}"
USER_ID = 65534
# `ip netns exec` mounts the files of this directory over those in /etc.
NETNS_ETC = Path("/etc/netns")
# Servers and clients run as one user without privileges.
SETPRIV_ARGS = ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"]


class NetworkPath(Protocol):
    """A path between two ends, which starts programs at either of them."""

    a: str
    b: str

    def command(self, end: str, *args: object) -> list[str]: ...


class EmulatedPath:
    """An emulated path; a context manager. `near` is (namespace, device) of an existing namespace that becomes the near end."""

    def __init__(self, cell: Cell, name: str = NAMESPACE_PREFIX, near: tuple[str, str] | None = None, subnet: int | None = None) -> None:
        self.cell, self.name, self.near = cell, name, near
        self.environment = {**os.environ, **({"SUBNET": str(subnet)} if subnet else {})}
        self.namespaces = {"a": near[0] if near else f"{name}-a", "b": f"{name}-b"}
        if near:
            self.environment |= {"NEAR": near[0], "NEAR_DEVICE": near[1]}

    def __enter__(self) -> "EmulatedPath":
        self.script("down")
        keys = [f"rate={self.cell['rate']}", f"delay={self.cell['rtt'] / 2}", f"queue={self.cell.get('queue', '1bdp')}", "seed=7"]
        for direction in ("ab", "ba"):
            if self.cell["loss"]:
                keys.append(f"{direction}.loss={self.cell['loss']}")
            if self.cell["loss_per_s"]:
                keys.append(f"{direction}.losspps={self.cell['loss_per_s']}")
        if self.cell["jitter"]:
            keys.append(f"jitter={self.cell['jitter'] * self.cell['rtt'] / 2}")
        created = self.script("up", *keys)
        found = re.search(r"([\d.]+) <-> ([\d.]+)", created.stdout)
        if not found:
            harness.exit_with_error(f"the path was not created: {created.stdout}{created.stderr}")
        self.a, self.b = found.groups()
        self.write_hosts_files()
        return self

    def __exit__(self, *_: object) -> None:
        self.script("down")
        for namespace in self.namespaces.values():
            shutil.rmtree(NETNS_ETC / namespace, ignore_errors=True)

    def write_hosts_files(self) -> None:
        """Writes /etc/hosts files: Globus' programs resolve addresses to names, and the name of this machine to an address."""
        for end, namespace in self.namespaces.items():
            own = self.a if end == "a" else self.b
            (NETNS_ETC / namespace).mkdir(parents=True, exist_ok=True)
            (NETNS_ETC / namespace / "hosts").write_text(f"127.0.0.1 localhost\n{own} {socket.gethostname()}\n{self.a} near\n{self.b} far\n")

    def script(self, operation: str, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([PATH_SCRIPT, operation, self.name, *args], capture_output=True, text=True, env=self.environment)

    def command(self, end: str, *args: object) -> list[str]:
        return ["ip", "netns", "exec", self.namespaces[end], *SETPRIV_ARGS, *map(str, args)]

    def set_options(self, *args: str) -> None:
        self.script("set", *args)

    def emulator_stats(self) -> harness.Result:
        stats: harness.Result = json.loads(self.script("stats").stdout or "{}")
        return stats

    def received_bytes(self) -> int:
        """Returns the bytes of the packets that the near end has received."""
        device = self.near[1] if self.near else "wan0"
        shown = subprocess.run(["ip", "-n", self.namespaces["a"], "-s", "-j", "link", "show", device], capture_output=True, text=True, check=True)
        return int(json.loads(shown.stdout)[0]["stats64"]["rx"]["bytes"])

    def flush_tcp_metrics(self) -> None:
        """Deletes the TCP metrics that the kernels cache from earlier connections, so that they do not change the next measurement."""
        for namespace in self.namespaces.values():
            subprocess.run(["ip", "-n", namespace, "tcp_metrics", "flush"], capture_output=True)

    def lateness_p99_us(self) -> float | None:
        """Returns the 99th percentile of the emulator's lateness in microseconds."""
        late_us: float | None = self.emulator_stats().get("ba", {}).get("late_us_le", {}).get("p99")
        return late_us


def may_emulate() -> bool:
    """Reports whether this process may make emulated paths: only root may, with /dev/net/tun."""
    return os.geteuid() == 0 and Path("/dev/net/tun").exists()


class PathServer:
    """`godwit serve` at one end of a path, with TLS and a token unless it is `plain`. `like` is a server with the same token."""

    def __init__(
        self,
        path: NetworkPath,
        godwit: Path,
        root: Path,
        directory: Path,
        end: str = "b",
        name: str = "server",
        more: harness.Command = (),
        plain: bool = False,
        like: "PathServer | None" = None,
    ) -> None:
        self.path, self.path_end = path, end
        address = path.b if end == "b" else path.a
        args: list[object] = [godwit, "serve", "--no-config", "--root", root, "--writable"]
        self.credentials: list[object] = ["--no-config"]
        self.tokens, self.token = Path(), Path()
        if not plain:
            self.pem, key = harness.write_certificate(directory, name, f"IP:{address}")
            give_to_user(self.pem, key)
            self.tokens, self.token = (like.tokens, like.token) if like else self.make_token(godwit, directory, name)
            args += ["--tls-cert", self.pem, "--tls-key", key, "--tokens", self.tokens]
            self.credentials += ["--ca", self.pem, "--token-file", self.token]
        else:
            args.append("--insecure")
        self.command = [*args, *more]
        self.start(f"{address}:0")

    @staticmethod
    def make_token(godwit: Path, directory: Path, name: str) -> tuple[Path, Path]:
        tokens, token = directory / f"{name}.tokens", directory / f"{name}.token"
        tokens.unlink(missing_ok=True)
        token.write_text(harness.create_token(godwit, "bench", tokens) + "\n")
        give_to_user(tokens, token)
        return tokens, token

    def start(self, listen: str) -> None:
        self.process = subprocess.Popen(self.path.command(self.path_end, *self.command, "--listen", listen), stdout=subprocess.PIPE, text=True)
        self.url = harness.piped(self.process.stdout).readline().strip().rsplit(" ", 1)[-1]
        if not self.url.startswith("grpc"):
            harness.exit_with_error("the server did not start; see above")

    def restart(self) -> None:
        """Starts the server again with the same arguments and address."""
        self.start(self.url.split("://")[1].rstrip("/"))

    def credential_args(self) -> harness.Command:
        return self.credentials

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> "PathServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def copy_args(godwit: Path, source: object, target: object, cell: Cell, *more: object) -> harness.Command:
    return [godwit, "copy", source, target, "--mode", cell["mode"], "--streams", cell["streams"], *more]


def time_copy(path: EmulatedPath, godwit: Path, server: PathServer, name: str, target: Path, cell: Cell, more: harness.Command = ()) -> float:
    """Returns the seconds of a copy from the far end's disk to the near end's."""
    path.flush_tcp_metrics()
    return time_command(path, copy_args(godwit, f"{server.url}/{name}", target, cell, "--quiet", *server.credential_args(), *more))


def time_command(path: EmulatedPath, args: harness.Command) -> float:
    """Returns the seconds of a copy command at the near end."""
    started = time.monotonic()
    try:
        done = subprocess.run(path.command("a", *args), capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        harness.exit_with_error("a copy did not end in time")
    if done.returncode:
        harness.exit_with_error(f"a copy failed: {done.stderr}")
    return time.monotonic() - started


def measure_iperf(path: EmulatedPath, streams: int, seconds: float = 6) -> tuple[float, int]:
    """Returns Mbit/s from the far end to the near end, start-up included, and the retransmissions."""
    path.flush_tcp_metrics()
    return measure_iperf_with(path, seconds, "-P", streams)


def measure_iperf_with(path: EmulatedPath, seconds: float, *args: object) -> tuple[float, int]:
    # The server sends, and the kernel may allow CUBIC to root only.
    def by(command: list[str]) -> list[str]:
        return [word for word in command if word not in SETPRIV_ARGS] if "cubic" in args else command

    server = subprocess.Popen(by(path.command("b", "iperf3", "-s", "-1")), stdout=subprocess.DEVNULL)
    time.sleep(0.4)
    command = by(path.command("a", "iperf3", "-J", "-R", "-c", path.b, "-t", seconds, *args))
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        server.wait(10)
        end = json.loads(done.stdout)["end"]
        return end["sum_received"]["bits_per_second"] / 1e6, end["sum_sent"]["retransmits"]
    except (KeyError, ValueError, subprocess.TimeoutExpired):
        server.kill()
        server.wait()
        harness.exit_with_error(f"iperf3 failed: {done.stdout[-200:]}{done.stderr[-200:]}")


def give_to_user(*paths: Path) -> None:
    """Gives files to the copying user."""
    for path in paths:
        os.chown(path, USER_ID, USER_ID)


def empty_directory(directory: Path) -> Path:
    """Creates an empty directory that belongs to the copying user."""
    give_to_user(harness.empty_directory(directory))
    return directory


def write_random(file: Path, megabytes: int) -> None:
    """Writes an incompressible file that belongs to the copying user."""
    harness.write_random(file, megabytes)
    give_to_user(file)


def prepare_directories(directory: Path, megabytes: int) -> tuple[Path, Path]:
    """Prepares the directory of a server with a file `f`, which is kept if it has the right size, and an empty target directory."""
    root, mine = directory / "root", empty_directory(directory / "mine")
    if not (root / "f").exists() or (root / "f").stat().st_size >> 20 != megabytes:
        write_random(empty_directory(root) / "f", megabytes)
    return root, mine


def program_digest(godwit: Path) -> str:
    """Returns a digest of the program, so that results name the build that they were measured with."""
    return harness.file_digest(Path(godwit))[:12]
