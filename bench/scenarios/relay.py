"""Effect of a relay on `godwit copy`: several receivers of one file, with and without the relay's cache, and one long path split into two halves.

One to many: a far server behind a long path, and four receivers at its near end that copy one file at once: each directly, through a relay
at the near end, and through a relay with an empty cache. The emulator counts the bytes that crossed the path. Halves: one file over a path
with a round-trip time, and over two paths of half of it with a relay between them, both ways. From disk to disk, with TLS, tokens and
BLAKE3, set-up included. Rounds are interleaved. Needs root and /dev/net/tun; without them the benchmark reports that it is skipped.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from godwit_bench import harness
from godwit_bench.network.cells import Cell, percent_of
from godwit_bench.network.emulated_path import may_emulate

FAR, MID, NEAR = "gwrelay-far", "gwrelay-mid", "gwrelay-near"
RECEIVERS = 4
SHARED_PATH = {"rate": 200, "rtt": 80}
SPLIT_PATH = {"rate": 1000, "rtt": 100}
ROUTES = ("directly", "relay", "caching relay")


def ip(*args: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *map(str, args)], check=check, capture_output=True, text=True)


class NamespaceChain:
    """A chain of namespaces, each joined to the next by an emulated path."""

    def __init__(self, names: Sequence[str], links: list[Cell], directory: Path) -> None:
        self.names, self.links, self.directory = names, links, directory
        self.emulators: list[tuple[subprocess.Popen[bytes], Path, Path]] = []
        self.address: dict[tuple[str, int], str] = {}

    def __enter__(self) -> "NamespaceChain":
        for name in self.names:
            ip("netns", "del", name, check=False)
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for number, (one, other, link) in enumerate(zip(self.names, self.names[1:], self.links, strict=False)):
            stats, control = self.directory / f"stats{number}", self.directory / f"control{number}"
            ends = [(one, f"to{number}r", 1, 2), (other, f"to{number}l", 2, 1)]
            args = [f"nsa={one}", f"nsb={other}", f"deva={ends[0][1]}", f"devb={ends[1][1]}", f"ctl={control}", f"stats={stats}", "seed=7"]
            args += [f"rate={link['rate']}", f"delay={link['rtt'] / 2}", "queue=1bdp"] + ([f"loss={link['loss']}"] if link.get("loss") else [])
            child = subprocess.Popen([os.environ["GODWIT"], "bench", "path-emulator", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.emulators.append((child, stats, control))
            for name, device, mine, theirs in ends:
                for _ in range(100):
                    if not ip("-n", name, "link", "show", device, check=False).returncode:
                        break
                    time.sleep(0.05)
                ip("-n", name, "link", "set", device, "mtu", 1500, "txqueuelen", 20000, "up")
                ip("-n", name, "addr", "add", f"10.217.{number}.{mine}", "peer", f"10.217.{number}.{theirs}", "dev", device)
                self.address[(name, number)] = f"10.217.{number}.{mine}"
        return self

    def __exit__(self, *_: object) -> None:
        for emulator, _stats, _control in self.emulators:
            emulator.terminate()
            emulator.wait()
        for name in self.names:
            ip("netns", "del", name, check=False)

    def stats(self, number: int = 0) -> harness.Result:
        _, stats, control = self.emulators[number]
        stats.unlink(missing_ok=True)
        control.write_text("stats\n")
        for _ in range(100):
            if stats.exists() and stats.stat().st_size:
                break
            time.sleep(0.05)
        found: harness.Result = json.loads(stats.read_text())
        return found


def command_in_namespace(name: str, *args: object) -> list[str]:
    return ["ip", "netns", "exec", name, *map(str, args)]


class Server:
    """`godwit serve` at one of the addresses of a namespace; it listens on all of them."""

    def __init__(self, godwit: Path, name: str, addresses: Sequence[str], directory: Path, root: Path, args: harness.Command = ()) -> None:
        pem, key = harness.write_certificate(directory, name, *(f"IP:{address}" for address in addresses))
        self.pem = pem
        listen = [godwit, "serve", "--no-config", "--root", root, "--listen", "0.0.0.0:0"]
        listen += ["--tls-cert", pem, "--tls-key", key, "--tokens", directory / "tokens", *args]
        self.child = subprocess.Popen(command_in_namespace(name, *listen), stdout=subprocess.PIPE, text=True)
        line = harness.piped(self.child.stdout).readline().strip()
        self.port = line.rpartition(":")[2]
        if not self.port.isdigit():
            harness.exit_with_error(f"the server in {name} did not start; see above")

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


def start_copy(
    godwit: Path, name: str, directory: Path, authority: Path, source: object, target: object, relay: str | None = None
) -> subprocess.Popen[str]:
    args = [godwit, "copy", source, target, "--mode", "fast", "--quiet", "--no-config", "--ca", authority, "--token-file", directory / "token"]
    return subprocess.Popen(command_in_namespace(name, *args, *(["--relay", relay] if relay else [])), stderr=subprocess.PIPE, text=True)


def wait_for_copies(copies: list[subprocess.Popen[str]]) -> None:
    for copy in copies:
        said = copy.communicate()[1]
        if copy.returncode:
            harness.exit_with_error(said)


def check_same_bytes(one: Path, other: Path) -> None:
    if not harness.have_same_bytes(one, other):
        harness.exit_with_error(f"{other} is not {one}")


def authorities(directory: Path, *servers: Server) -> Path:
    both = directory / "authorities.pem"
    both.write_bytes(b"".join(server.pem.read_bytes() for server in servers))
    return both


def measure_receivers(godwit: Path, directory: Path, how: str, megabytes: int) -> harness.Result:
    """Returns the seconds until every receiver has the file, and the bytes that crossed the long path, in sizes of the file."""
    root, mine, empty = directory / "root", harness.empty_directory(directory / "mine"), harness.empty_directory(directory / "empty")
    size = (root / "f").stat().st_size
    with NamespaceChain([NEAR, FAR], [SHARED_PATH], directory) as path:
        at = path.address[(FAR, 0)]
        far = Server(godwit, FAR, [at], directory, root)
        args = ["--relay", "--ca", far.pem]
        args += ["--relay-cache", harness.empty_directory(directory / "cache"), "--relay-cache-size", "1G"] if how == "caching relay" else []
        between = Server(godwit, NEAR, ["127.0.0.1"], directory, empty, args)
        try:
            authority = authorities(directory, far, between)
            relay = None if how == "directly" else f"grpc+tls://127.0.0.1:{between.port}"
            before = path.stats()["ba"]["bytes"]
            started = time.monotonic()
            wait_for_copies(
                [
                    start_copy(godwit, NEAR, directory, authority, f"grpc+tls://{at}:{far.port}/f", mine / f"f{number}", relay)
                    for number in range(RECEIVERS)
                ]
            )
            seconds = time.monotonic() - started
            crossed = path.stats()["ba"]
        finally:
            far.kill()
            between.kill()
    for number in range(RECEIVERS):
        check_same_bytes(root / "f", mine / f"f{number}")
    late = crossed["late_us_le"]["p99"]
    return {
        "how": how,
        "megabytes": megabytes,
        "seconds": round(seconds, 2),
        "crossed": round((crossed["bytes"] - before) / size, 2),
        "emulator_late_us_p99": late,
        "load": os.getloadavg()[0],
    }


def measure_split_path(godwit: Path, directory: Path, upload: bool, split: bool, loss: float, megabytes: int) -> harness.Result:
    """Returns the seconds for one file over a path, or over two of half of its round-trip time with a relay between them."""
    root, mine, empty = (
        harness.empty_directory(directory / "taken"),
        harness.empty_directory(directory / "mine"),
        harness.empty_directory(directory / "empty"),
    )
    given = directory / "root" / "f"
    whole = {**SPLIT_PATH, "loss": loss}
    half = {**whole, "rtt": SPLIT_PATH["rtt"] / 2, "loss": loss / 2}
    names, links = ([NEAR, MID, FAR], [half, half]) if split else ([NEAR, FAR], [whole])
    with NamespaceChain(names, links, directory) as path:
        last = len(links) - 1
        at = path.address[(FAR, last)]
        if split:
            # Listing and authentication do not use the relay; they cross both halves.
            ip("netns", "exec", MID, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            ip("-n", NEAR, "route", "add", "10.217.1.0/24", "via", path.address[(MID, 0)])
            ip("-n", FAR, "route", "add", "10.217.0.0/24", "via", path.address[(MID, 1)])
        if not upload:
            os.link(given, root / "f")
        far = Server(godwit, FAR, [at], directory, root, ["--writable"])
        between = Server(godwit, MID, [path.address[(MID, 0)]], directory, empty, ["--relay", "--ca", far.pem]) if split else None
        try:
            authority = authorities(directory, *filter(None, (far, between)))
            relay = f"grpc+tls://{path.address[(MID, 0)]}:{between.port}" if between else None
            there, here = f"grpc+tls://{at}:{far.port}/f", mine / "f"
            started = time.monotonic()
            source, target = (given, there) if upload else (there, here)
            wait_for_copies([start_copy(godwit, NEAR, directory, authority, source, target, relay)])
            seconds = time.monotonic() - started
            late = max(path.stats(number)["ab" if upload else "ba"]["late_us_le"]["p99"] for number in range(len(links)))
        finally:
            for server in filter(None, (far, between)):
                server.kill()
    check_same_bytes(given, root / "f" if upload else mine / "f")
    percent = percent_of({**SPLIT_PATH, "megabytes": megabytes}, seconds)
    return {
        "upload": upload,
        "split": split,
        "loss": loss,
        "megabytes": megabytes,
        "seconds": round(seconds, 2),
        "percent": round(percent, 1),
        "emulator_late_us_p99": late,
        "load": os.getloadavg()[0],
    }


def medians(
    rows: list[harness.Result], keys: list[str], fields: list[str]
) -> Iterator[tuple[tuple[Any, ...], dict[str, tuple[float, float, float]], int]]:
    groups: dict[tuple[Any, ...], list[harness.Result]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    for group, rounds in groups.items():
        yield (
            group,
            {
                field: (statistics.median(row[field] for row in rounds), min(row[field] for row in rounds), max(row[field] for row in rounds))
                for field in fields
            },
            len(rounds),
        )


def format_values(values: tuple[float, float, float]) -> str:
    return f"{values[0]:.2f} ({values[1]:.2f} - {values[2]:.2f})"


def report(options: argparse.Namespace, godwit: Path, results: dict[str, list[harness.Result]]) -> None:
    around = harness.host_description(godwit)
    cached = [row for row in results["many"] if row["how"] == "caching relay"]
    promised = (
        [
            harness.target(
                f"{RECEIVERS} receivers through a caching relay, crossings of the long path", [row["crossed"] for row in cached], at_most=1.15
            )
        ]
        if cached
        else []
    )
    many = ["| receivers | seconds until all have it | crossings of the path | rounds |", "|---" * 4 + "|"]
    for (how,), found, rounds in medians(results["many"], ["how"], ["seconds", "crossed"]):
        many.append(f"| {RECEIVERS}, {how} | {format_values(found['seconds'])} | {format_values(found['crossed'])} | {rounds} |")
    two = ["| direction | lost | path | seconds | % of the payload rate | rounds |", "|---" * 6 + "|"]
    for (upload, loss, split), found, rounds in medians(results["halves"], ["upload", "loss", "split"], ["seconds", "percent"]):
        name = f"two halves of {SPLIT_PATH['rtt'] // 2} ms" if split else f"{SPLIT_PATH['rtt']} ms"
        two.append(
            f"| {'to' if upload else 'from'} the far server | {loss:.2%} | {name} | {format_values(found['seconds'])} | "
            f"{format_values(found['percent'])} | {rounds} |"
        )
    sizes = sorted({row["megabytes"] for row in results["many"]}), sorted({row["megabytes"] for row in results["halves"]})
    text = "\n".join(
        [
            "# Copies through a relay",
            "",
            f"{harness.format_host(around)}. {around['versions']['godwit']}.",
            "",
            "From disk to disk, TLS, tokens and BLAKE3, set-up included, `--mode fast`; medians and spread of interleaved rounds. Servers, "
            "relay, receivers and emulators share the cores.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            f"## One file for {RECEIVERS} receivers at once, {SHARED_PATH['rate']} Mbit/s, {SHARED_PATH['rtt']} ms",
            "",
            f"A file of {', '.join(map(str, sizes[0]))} MiB; the relay is at the near end. Crossings are the bytes that the emulator carried "
            "towards the receivers, headers included, in sizes of the file.",
            "",
            *many,
            "",
            f"## One path as two halves, {SPLIT_PATH['rate']} Mbit/s",
            "",
            f"A file of {', '.join(map(str, sizes[1]))} MiB. Each half has half of the loss rate.",
            "",
            *two,
            "",
            "Command: `cargo xtask bench relay`, as root; `--only` measures a part.",
            "",
        ]
    )
    harness.write_result("relay", options.results, text, around, promised, results)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--megabytes", type=int, help="size of the file (default: 128 for several receivers, 512 for halves)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["many", "halves"], help="only a part")
    options = parser.parse_args()
    if not may_emulate():
        print("bench relay: skipped: needs root and /dev/net/tun")
        return
    harness.require_tools("ip", "openssl", "cmp", "sysctl")
    godwit = harness.godwit_binary(options)
    os.environ["GODWIT"] = str(godwit)
    kept = options.results / "relay.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    results = {part: before.get(part, []) for part in ("many", "halves")}
    with tempfile.TemporaryDirectory(prefix="godwit-relay-") as scratch:
        directory = Path(scratch)
        (directory / "token").write_text(harness.create_token(godwit, "bench", directory / "tokens") + "\n")
        for part in [part for part in results if options.only in (None, part)]:
            megabytes = options.megabytes or (128 if part == "many" else 512)
            harness.write_random(harness.empty_directory(directory / "root") / "f", megabytes)
            results[part] = []
            for _ in range(options.rounds):
                if part == "many":
                    found = [measure_receivers(godwit, directory, how, megabytes) for how in ROUTES]
                else:
                    found = [
                        measure_split_path(godwit, directory, upload, split, loss, megabytes)
                        for loss in (0.0, 0.001)
                        for upload in (False, True)
                        for split in (False, True)
                    ]
                for row in found:
                    print(row, flush=True)
                results[part] += found
        report(options, godwit, results)


if __name__ == "__main__":
    main()
