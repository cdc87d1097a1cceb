"""Emulated paths while they are up, and what runs at their ends: servers, copies, iperf3, and the files that are copied."""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import _measure as bench

PATH = bench.ROOT / "bench" / "path" / "path.sh"
# Several of these may run at a time.
NAME = f"gwp{os.getpid()}"
USER = 65534
# Files here take the place of those in /etc for what `ip netns exec` starts.
HOSTS = Path("/etc/netns")
# Their servers and clients are of one user, who has no privileges.
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


class EmulatedPath:
    """An emulated path while it is up. `near` is (namespace, device): the near end is then in a namespace that is there already."""

    def __init__(self, cell, name=NAME, near=None, subnet=None):
        self.cell, self.name, self.near = cell, name, near
        self.environment = {**os.environ, **({"SUBNET": str(subnet)} if subnet else {})}
        self.namespaces = {"a": near[0] if near else f"{name}-a", "b": f"{name}-b"}
        if near:
            self.environment |= {"NEAR": near[0], "NEAR_DEVICE": near[1]}

    def __enter__(self):
        self.script("down")
        keys = [f"rate={self.cell['rate']}", f"delay={self.cell['rtt'] / 2}", f"queue={self.cell.get('queue', '1bdp')}", "seed=7"]
        for direction in ("ab", "ba"):
            if self.cell["loss"]:
                keys.append(f"{direction}.loss={self.cell['loss']}")
            if self.cell["loss_per_s"]:
                keys.append(f"{direction}.losspps={self.cell['loss_per_s']}")
        if self.cell["jitter"]:
            keys.append(f"jitter={self.cell['jitter'] * self.cell['rtt'] / 2}")
        told = self.script("up", *keys)
        found = re.search(r"([\d.]+) <-> ([\d.]+)", told.stdout)
        if not found:
            bench.fail(f"the path does not come up: {told.stdout}{told.stderr}")
        self.a, self.b = found.groups()
        self.name_ends()
        return self

    def __exit__(self, *_):
        self.script("down")
        for namespace in self.namespaces.values():
            shutil.rmtree(HOSTS / namespace, ignore_errors=True)

    def name_ends(self):
        """Globus' programs want names of addresses, and the address of this machine's name."""
        for end, namespace in self.namespaces.items():
            own = self.a if end == "a" else self.b
            (HOSTS / namespace).mkdir(parents=True, exist_ok=True)
            (HOSTS / namespace / "hosts").write_text(f"127.0.0.1 localhost\n{own} {socket.gethostname()}\n{self.a} near\n{self.b} far\n")

    def script(self, operation, *words):
        return subprocess.run([PATH, operation, self.name, *words], capture_output=True, text=True, env=self.environment)

    def command(self, end, *words):
        return ["ip", "netns", "exec", self.namespaces[end], *AS_USER, *map(str, words)]

    def set(self, *words):
        self.script("set", *words)

    def stats(self):
        return json.loads(self.script("stats").stdout or "{}")

    def received_bytes(self):
        """Bytes of packets that have come to the near end."""
        device = self.near[1] if self.near else "wan0"
        told = subprocess.run(["ip", "-n", self.namespaces["a"], "-s", "-j", "link", "show", device], capture_output=True, text=True, check=True)
        return json.loads(told.stdout)[0]["stats64"]["rx"]["bytes"]

    def forget(self):
        """What the kernels remember of earlier connections is none of the next one's business."""
        for namespace in self.namespaces.values():
            subprocess.run(["ip", "-n", namespace, "tcp_metrics", "flush"], capture_output=True)

    def late_us(self):
        """How late the emulator wrote packets, all but a hundredth of them."""
        return self.stats().get("ba", {}).get("late_us_le", {}).get("p99")


def identity(directory, address, name="server"):
    """A certificate of an address, and its key."""
    pem, key = directory / f"{name}.pem", directory / f"{name}.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=path",
         "-addext", f"subjectAltName=IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE", "-out", pem, "-keyout", key], check=True, capture_output=True)
    for made in (pem, key):
        os.chown(made, USER, USER)
    return pem, key


class Server:
    """`godwit serve` at one end of a path, with TLS and a token (that of another server, if it is `like` one) unless it is `plain`."""

    def __init__(self, path, godwit, root, directory, end="b", name="server", more=(), plain=False, like=None):
        self.path, self.end_of_path = path, end
        address = path.b if end == "b" else path.a
        words = [godwit, "serve", "--no-config", "--root", root, "--writable"]
        self.credentials = ["--no-config"]
        if not plain:
            self.pem, key = identity(directory, address, name)
            self.tokens, self.token = (like.tokens, like.token) if like else self.make_token(godwit, directory, name)
            words += ["--tls-cert", self.pem, "--tls-key", key, "--tokens", self.tokens]
            self.credentials += ["--ca", self.pem, "--token-file", self.token]
        else:
            words.append("--insecure")
        self.command = [*words, *more]
        self.start(f"{address}:0")

    @staticmethod
    def make_token(godwit, directory, name):
        tokens, token = directory / f"{name}.tokens", directory / f"{name}.token"
        tokens.unlink(missing_ok=True)
        token.write_bytes(subprocess.run([godwit, "token", "bench", "--tokens", tokens], check=True, capture_output=True).stdout)
        for made in (tokens, token):
            os.chown(made, USER, USER)
        return tokens, token

    def start(self, listen):
        self.child = subprocess.Popen(self.path.command(self.end_of_path, *self.command, "--listen", listen), stdout=subprocess.PIPE, text=True)
        self.url = self.child.stdout.readline().strip().rsplit(" ", 1)[-1]
        if not self.url.startswith("grpc"):
            bench.fail("the server did not start; see above")

    def start_again(self):
        """As it was, at the same place."""
        self.start(self.url.split("://")[1].rstrip("/"))

    def words(self):
        return self.credentials

    def end(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def copy_words(godwit, source, target, cell, *more):
    return [godwit, "copy", source, target, "--mode", cell["mode"], "--streams", cell["streams"], *more]


def copied(path, godwit, server, name, target, cell, more=()):
    """Seconds of a copy, from the far end's disk to the near end's."""
    path.forget()
    return run_copy(path, copy_words(godwit, f"{server.url}/{name}", target, cell, "--quiet", *server.words(), *more))


def run_copy(path, words):
    """Seconds of a command of copying at the near end."""
    started = time.monotonic()
    try:
        done = subprocess.run(path.command("a", *words), capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        bench.fail("a copy does not end")
    if done.returncode:
        bench.fail(f"a copy failed: {done.stderr}")
    return time.monotonic() - started


def iperf(path, streams, seconds=6):
    """Mbit/s from the far end to the near one, start-up included, and what had to be sent again."""
    path.forget()
    return iperf_between(path, seconds, "-P", streams)


def iperf_between(path, seconds, *words):
    # CUBIC may be for root alone, and it is the server that sends.
    by = lambda command: [word for word in command if word not in AS_USER] if "cubic" in words else command  # noqa: E731
    server = subprocess.Popen(by(path.command("b", "iperf3", "-s", "-1")), stdout=subprocess.DEVNULL)
    time.sleep(0.4)
    command = by(path.command("a", "iperf3", "-J", "-R", "-c", path.b, "-t", seconds, *words))
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        server.wait(10)
        told = json.loads(done.stdout)["end"]
        return told["sum_received"]["bits_per_second"] / 1e6, told["sum_sent"]["retransmits"]
    except (KeyError, ValueError, subprocess.TimeoutExpired):
        server.kill()
        server.wait()
        bench.fail(f"iperf3 failed: {done.stdout[-200:]}{done.stderr[-200:]}")


def emptied(directory):
    """A directory, empty, of the user who copies."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    os.chown(directory, USER, USER)
    return directory


def write_random(file, megabytes):
    """A file that cannot be made smaller, of whole pieces of 16 MiB."""
    with open(file, "wb") as out:
        for _ in range(megabytes >> 4):
            out.write(os.urandom(16 << 20))
    os.chown(file, USER, USER)


def both_ends(directory, megabytes):
    """The directory of a server with a file `f`, which is kept if it has that size, and an empty one for who copies it."""
    root, mine = directory / "root", emptied(directory / "mine")
    if not (root / "f").exists() or (root / "f").stat().st_size >> 20 != megabytes:
        write_random(emptied(root) / "f", megabytes)
    return root, mine


def are_same(one, other):
    return subprocess.run(["cmp", "-s", one, other]).returncode == 0


def program_name(godwit):
    """Names a program by what it is, so that results tell which one they are of."""
    return hashlib.sha256(Path(godwit).read_bytes()).hexdigest()[:12]
