#!/usr/bin/env python3
"""`godwit copy` over emulated long fat networks (bench/path), with iperf3, and aria2 and GridFTP where they are installed, in the same minute.

Two network namespaces are joined by a path of some round-trip time, rate, loss and jitter. In each cell a file is copied from disk to disk, by a user
without privileges, with TLS, tokens and BLAKE3, set-up included; percents are of the payload rate of TCP (1448 of 1500 bytes). The bound
beside it is what handshakes and slow start leave of that. Cells that are in the results already are not measured again.
Needs root and /dev/net/tun; without them it says that it is skipped.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from math import log2
from pathlib import Path

import _clients
import _measure as bench
import _path_peers as peers

PATH = bench.ROOT / "bench" / "path" / "path.sh"
NAME = "gwpath"
USER = 65534
RTT_MS = [10, 40, 60, 80, 100]
RATE_MBPS = [100, 250, 500, 750, 1000]
LOSS_PER_S = [0, 1, 2, 3, 4]
JITTER_OF_LATENCY = [0, 1 / 3, 1 / 2, 2 / 3, 1]
STREAMS = [1, 2, 4, 8, 16, 32, 64, 128, 200]
BASE = {"rate": 1000, "rtt": 40, "loss_per_s": 0, "loss": 0.0, "jitter": 0, "streams": "auto", "mode": "fast"}


def factors():
    """The cells that bars are set for, one factor at a time, the two real paths of the study, and a Latin square of 25 cells."""
    yield from ({**BASE, "rtt": rtt, "loss": loss} for rtt in (10, 40, 100) for loss in (0.0, 0.0001, 0.001))
    for name, values in [("rtt", RTT_MS), ("rate", RATE_MBPS), ("loss_per_s", LOSS_PER_S), ("jitter", JITTER_OF_LATENCY)]:
        yield from ({**BASE, name: value} for value in values)
    yield from ({**BASE, "streams": streams} for streams in STREAMS)
    yield from ({**BASE, "rtt": rtt} for rtt in (42, 92))
    for row in range(5):
        for column in range(5):
            yield {
                **BASE,
                "rtt": RTT_MS[row],
                "rate": RATE_MBPS[column],
                "loss_per_s": LOSS_PER_S[(row + column) % 5],
                "jitter": JITTER_OF_LATENCY[(2 * row + column) % 5],
            }


def full():
    for rtt in RTT_MS:
        for rate in RATE_MBPS:
            for loss in LOSS_PER_S:
                yield from ({**BASE, "rtt": rtt, "rate": rate, "loss_per_s": loss, "jitter": jitter} for jitter in JITTER_OF_LATENCY)


def bound_percent(cell, megabytes):
    """What is left of the link when four round trips have gone (TCP, TLS, what there is, the first request; other connections are made
    meanwhile), and slow start from 16 x 10 segments doubles each."""
    payload = cell["rate"] * 1e6 * 1448 / 1500 / 8
    trip = cell["rtt"] / 1e3
    doublings = max(0.0, log2(payload * trip / (160 * 1448)))
    ideal = megabytes * 1e6 / payload
    return 100 * ideal / (ideal + 4 * trip + doublings * trip * 0.5)


class EmulatedPath:
    """An emulated path while it is up."""

    def __init__(self, cell):
        self.cell = cell

    def __enter__(self):
        subprocess.run([PATH, "down", NAME], capture_output=True)
        keys = [f"rate={self.cell['rate']}", f"delay={self.cell['rtt'] / 2}", "queue=1bdp", "seed=7"]
        for direction in ("ab", "ba"):
            if self.cell["loss"]:
                keys.append(f"{direction}.loss={self.cell['loss']}")
            if self.cell["loss_per_s"]:
                keys.append(f"{direction}.losspps={self.cell['loss_per_s']}")
        if self.cell["jitter"]:
            keys.append(f"jitter={self.cell['jitter'] * self.cell['rtt'] / 2}")
        told = subprocess.run([PATH, "up", NAME, *keys], capture_output=True, text=True)
        found = re.search(r"([\d.]+) <-> ([\d.]+)", told.stdout)
        if not found:
            bench.fail(f"the path does not come up: {told.stdout}{told.stderr}")
        self.a, self.b = found.groups()
        return self

    def __exit__(self, *_):
        subprocess.run([PATH, "down", NAME], capture_output=True)

    def command(self, end, *words):
        return ["ip", "netns", "exec", f"{NAME}-{end}", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *map(str, words)]

    def stats(self):
        return json.loads(subprocess.run([PATH, "stats", NAME], capture_output=True, text=True).stdout or "{}")


def identity(directory, address):
    """A certificate and a token for a server."""
    pem, key = directory / "server.pem", directory / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=path",
         "-addext", f"subjectAltName=IP:{address}", "-addext", "basicConstraints=critical,CA:FALSE", "-out", pem, "-keyout", key], check=True, capture_output=True)
    return pem, key


class Server:
    """`godwit serve` at the far end."""

    def __init__(self, path, godwit, root, directory):
        self.pem, key = identity(directory, path.b)
        tokens, self.token = directory / "tokens", directory / "token"
        tokens.unlink(missing_ok=True)
        self.token.write_bytes(subprocess.run([godwit, "token", "bench", "--tokens", tokens], check=True, capture_output=True).stdout)
        subprocess.run(["chown", "-R", f"{USER}:{USER}", directory], check=True)
        words = [godwit, "serve", "--no-config", "--root", root, "--listen", f"{path.b}:0", "--tls-cert", self.pem, "--tls-key", key, "--tokens", tokens]
        self.child = subprocess.Popen(path.command("b", *words, "--writable"), stdout=subprocess.PIPE, text=True)
        self.url = self.child.stdout.readline().strip().rsplit(" ", 1)[-1]

    def words(self):
        return ["--ca", self.pem, "--token-file", self.token, "--no-config"]

    def end(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


def copied(path, godwit, server, name, target, cell, more=()):
    """Seconds of a copy, from the far end's disk to the near end's."""
    words = [godwit, "copy", f"{server.url}/{name}", target, "--mode", cell["mode"], "--streams", cell["streams"], "--quiet"]
    started = time.monotonic()
    done = subprocess.run(path.command("a", *words, *server.words(), *more), capture_output=True, text=True)
    seconds = time.monotonic() - started
    if done.returncode:
        bench.fail(done.stderr)
    return seconds


def iperf(path, streams, seconds=6):
    server = subprocess.Popen(path.command("b", "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL)
    time.sleep(0.4)
    done = subprocess.run(path.command("a", "iperf3", "-J", "-R", "-c", path.b, "-P", streams, "-t", seconds), capture_output=True, text=True)
    server.wait()
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6


def emptied(directory):
    """A directory, empty, of the user who copies."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    os.chown(directory, USER, USER)
    return directory


def both_ends(directory, megabytes):
    """The directory of a server with a file `f` that cannot be made smaller, and an empty one for who copies it."""
    root, mine = emptied(directory / "root"), emptied(directory / "mine")
    with open(root / "f", "wb") as out:
        for _ in range(megabytes >> 4):
            out.write(os.urandom(16 << 20))
    return root, mine


def measure(cell, godwit, directory, megabytes):
    """One cell: godwit, iperf3 and other programs in the same minute."""
    root, mine = both_ends(directory, megabytes)
    with EmulatedPath(cell) as path:
        server = Server(path, godwit, root, directory)
        try:
            seconds = copied(path, godwit, server, "f", mine / "f", cell)
        finally:
            server.end()
        late = path.stats()
        if subprocess.run(["cmp", root / "f", mine / "f"]).returncode:
            bench.fail("the copy is not the file")
        beside = iperf(path, 16)
        others = {}
        # Those that take the tenth part of the link's rate say nothing more by taking longer.
        patience_s = 10 * megabytes * 8 / cell["rate"] + 10
        for peer in peers.installed() if cell["streams"] == "auto" else []:
            emptied(mine)
            others[peer.name] = peers.seconds(peer, path, root, mine, directory, patience_s)
    size = (root / "f").stat().st_size
    payload = cell["rate"] * 1448 / 1500
    mbps = size * 8 / 1e6 / seconds
    return {
        **cell,
        "megabytes": megabytes,
        "seconds": round(seconds, 3),
        "mbit_per_s": round(mbps, 1),
        "percent": round(100 * mbps / payload, 1),
        "bound_percent": round(bound_percent(cell, size / 1e6), 1),
        "iperf3_x16_percent": round(100 * beside / payload, 1),
        "peers_percent": {name: took and round(100 * size * 8 / 1e6 / took / payload, 1) for name, took in others.items()},
        "emulator_late_us_p99": late.get("ba", {}).get("late_us_le", {}).get("p99"),
        "load": os.getloadavg()[0],
    }


def fairness(godwit, directory, mode, queue, seconds=20):
    """What one cubic flow keeps beside a copy, at 200 Mbit/s and 40 ms: its share of what it has alone, and its losses."""
    cell = {**BASE, "rate": 200, "mode": mode}
    root, mine = emptied(directory / "root"), emptied(directory / "mine")
    with open(root / "f", "wb") as out:
        out.write(os.urandom(1 << 20) * 1200)
    with EmulatedPath(cell) as path:
        subprocess.run([PATH, "set", NAME, f"queue={queue}"], check=True)
        time.sleep(0.2)
        server = Server(path, godwit, root, directory)

        def competitor():
            listener = subprocess.Popen(["ip", "netns", "exec", f"{NAME}-b", "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
            time.sleep(0.4)
            words = ["ip", "netns", "exec", f"{NAME}-a", "iperf3", "-J", "-R", "-c", path.b, "-C", "cubic", "-t", seconds, "-O", 2]
            told = json.loads(subprocess.run(list(map(str, words)), capture_output=True, text=True).stdout)["end"]
            listener.wait()
            return told["sum_received"]["bits_per_second"] / 1e6, told["sum_sent"]["retransmits"]

        try:
            alone, alone_lost = competitor()
            words = [godwit, "copy", f"{server.url}/f", mine / "f", "--mode", mode, "--json"]
            copy = subprocess.Popen(path.command("a", *words, *server.words()), stderr=subprocess.PIPE, text=True)
            time.sleep(3)
            beside, beside_lost = competitor()
            copy.send_signal(signal.SIGINT)
            events = [json.loads(line) for line in copy.communicate()[1].splitlines() if line.startswith("{")]
            emptied(mine)
            copy = subprocess.Popen(path.command("a", *words, *server.words()), stderr=subprocess.PIPE, text=True)
            time.sleep(seconds)
            copy.send_signal(signal.SIGINT)
            solo = [json.loads(line) for line in copy.communicate()[1].splitlines() if line.startswith("{")]
        finally:
            server.end()
    rates = [event["bytes_per_s"] * 8 / 1e6 for event in solo if event.get("event") == "copying"][8:]
    with_other = [event["bytes_per_s"] * 8 / 1e6 for event in events if event.get("event") == "copying"][12:]
    mean = lambda values: round(sum(values) / max(1, len(values)), 1)
    return {
        "mode": mode,
        "queue": queue,
        "cubic_alone_mbit_per_s": round(alone, 1),
        "cubic_beside_mbit_per_s": round(beside, 1),
        "cubic_keeps_percent": round(100 * beside / alone, 1),
        "cubic_retransmits_alone": alone_lost,
        "cubic_retransmits_beside": beside_lost,
        "copy_alone_mbit_per_s": mean(rates),
        "copy_beside_mbit_per_s": mean(with_other),
        "load": os.getloadavg()[0],
    }


def many_files(godwit, directory, count=2000, size=100_000):
    """Seconds for many small files at 1000 Mbit/s and 40 ms."""
    root, mine = emptied(directory / "root"), emptied(directory / "mine")
    (root / "d").mkdir()
    for number in range(count):
        (root / "d" / f"{number:05}").write_bytes(os.urandom(size))
    with EmulatedPath(BASE) as path:
        server = Server(path, godwit, root, directory)
        try:
            seconds = copied(path, godwit, server, "d", mine / "d", BASE)
        finally:
            server.end()
    if subprocess.run(["diff", "-rq", root / "d", mine / "d"]).returncode:
        bench.fail("the copies are not the files")
    return {"files": count, "bytes_each": size, "seconds": round(seconds, 2), "load": os.getloadavg()[0]}


def bar_percent(cell):
    """What is asked of a cell at 1000 Mbit/s; None where nothing is said."""
    if cell["rate"] != 1000 or cell["jitter"] or cell["loss_per_s"] or cell["streams"] != "auto":
        return None
    if cell["rtt"] > 40:
        return 86 if cell["loss"] <= 0.0001 else 85
    return 93 if cell["loss"] <= 0.0001 else 85


def title_of(cell):
    words = [f"{cell['rate']} Mbit/s", f"{cell['rtt']} ms"]
    words += [f"{cell['loss']:.2%} lost"] if cell["loss"] else []
    words += [f"{cell['loss_per_s']} losses/s"] if cell["loss_per_s"] else []
    words += [f"jitter {cell['jitter']:.2f} of the latency"] if cell["jitter"] else []
    return ", ".join(words + ([f"{cell['streams']} streams"] if cell["streams"] != "auto" else []))


def promises(results):
    for cell in results["cells"]:
        bar = bar_percent(cell)
        if bar:
            wanted = min(bar, cell["bound_percent"])
            yield bench.promise(f"{cell['megabytes']} MiB, {title_of(cell)}, of the payload rate (bound {cell['bound_percent']})", [cell["percent"]], at_least=wanted, unit="%")
        found = [percent for percent in cell.get("peers_percent", {}).values() if percent]
        if found:
            yield bench.promise(f"{cell['megabytes']} MiB, {title_of(cell)}, over the best peer", [cell["percent"] / max(found)], at_least=1)
    for found in results["files"]:
        yield bench.promise(f"{found['files']} files of {found['bytes_each']} bytes, 1000 Mbit/s, 40 ms", [found["seconds"]], at_most=2.0, unit="s")
    for found in results["fairness"]:
        if found["mode"] == "polite":
            asked = 90 if found["queue"] == "1bdp" else 60
            yield bench.promise(f"cubic flow beside polite, queue {found['queue']}, of its rate alone", [found["cubic_keeps_percent"]], at_least=asked, unit="%")
            if found["queue"] == "1bdp":
                yield bench.promise("polite alone, of the link", [found["copy_alone_mbit_per_s"] / 2], at_least=88, unit="%")
        if found["mode"] == "fair":
            # Beside two flows of its kind it would have a third.
            yield bench.promise(f"cubic flow beside fair, queue {found['queue']}, of its rate alone", [found["cubic_keeps_percent"]], at_least=33.3, unit="%")


def cell_table(cells):
    names = sorted({name for cell in cells for name in cell.get("peers_percent", {})})
    lines = ["| path | MiB | s | % | bound | iperf3 x16 | " + "".join(f"{name} | " for name in names) + "load |", "|---" * (7 + len(names)) + "|"]
    for cell in cells:
        others = "".join(f"{cell.get('peers_percent', {}).get(name) or '-'} | " for name in names)
        lines.append(f"| {title_of(cell)} | {cell['megabytes']} | {cell['seconds']:.2f} | {cell['percent']} | {cell['bound_percent']} | {cell['iperf3_x16_percent']} | {others}{cell['load']:.1f} |")
    return lines


def fairness_table(rows):
    lines = ["| mode | queue | cubic alone, Mbit/s | beside the copy | keeps | its losses alone | beside | copy alone, Mbit/s | beside cubic |", "|---" * 9 + "|"]
    for row in rows:
        keys = ("mode", "queue", "cubic_alone_mbit_per_s", "cubic_beside_mbit_per_s", "cubic_keeps_percent", "cubic_retransmits_alone",
                "cubic_retransmits_beside", "copy_alone_mbit_per_s", "copy_beside_mbit_per_s")
        lines.append("".join(f"| {row[key]} " for key in keys) + "|")
    return lines


def sweep_plot(cells, factor, label):
    """The cells in which only one factor is another than usual."""
    usual = [cell for cell in cells if all(cell[key] == value for key, value in BASE.items() if key != factor) and cell[factor] != "auto"]
    usual.sort(key=lambda cell: cell[factor])
    lines = {"godwit": [[cell[factor], cell["percent"]] for cell in usual], "iperf3 x16": [[cell[factor], cell["iperf3_x16_percent"]] for cell in usual]}
    for name in sorted({name for cell in usual for name in cell.get("peers_percent", {})}):
        lines[name] = [[cell[factor], cell["peers_percent"][name]] for cell in usual if cell.get("peers_percent", {}).get(name)]
    lines = {name: points for name, points in lines.items() if points}
    return {"name": f"transfer-{factor.replace('_', '-')}", "title": f"Share of the link by {label}", "x": label, "y": "% of the payload rate", "lines": lines}


SWEEPS = {"rtt": "round-trip time, ms", "rate": "rate, Mbit/s", "loss_per_s": "losses a second", "jitter": "jitter, share of the latency", "streams": "streams"}


def report(options, godwit, results):
    around, promised = bench.host(godwit), list(promises(results))
    drawn = [plot for plot in (sweep_plot(results["cells"], factor, label) for factor, label in SWEEPS.items()) if any(len(points) > 1 for points in plot["lines"].values())]
    versions = [bench.first_line(["aria2c", "--version"], "aria2"), bench.first_line(["globus-gridftp-server", "--version"])]
    text = "\n".join([
        "# Copies over emulated long fat networks",
        "",
        f"{bench.machine(around)}. {around['versions']['godwit']}, {bench.first_line(['iperf3', '--version'])}, {', '.join(filter(None, versions))};"
        f" congestion control that users may take: {Path('/proc/sys/net/ipv4/tcp_allowed_congestion_control').read_text().strip()}.",
        "",
        "From disk to disk by a user without privileges, TLS, tokens and BLAKE3, set-up included, `--mode fast` and no other option; percents are of the payload rate of TCP. The bound is"
        " what handshakes and slow start leave. Both ends and the emulator share the cores. Peers neither verify nor, but for aria2, encrypt; `-`: it failed, or was slower than a tenth of the link.",
        "",
        *[f"![{plot['title']}]({plot['name']}.svg)" for plot in drawn],
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        "## One file",
        "",
        *cell_table(results["cells"]),
        "",
        *(["## Beside a flow of CUBIC, 200 Mbit/s, 40 ms", "", *fairness_table(results["fairness"]), ""] if results["fairness"] else []),
        "Command: `cargo xtask bench transfer`, as root; `--only` and `--cells` do a part, and the next run goes on.",
        "",
    ])
    bench.write("transfer", options.results, text, around, promised, {**results, "plots": drawn})
    _clients.plot(_clients.python("databases"), options.results / "transfer.json")


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="all cells of the factorial")
    parser.add_argument("--megabytes", type=int, default=512, help="size of the file (default: 512)")
    parser.add_argument("--only", choices=["sweeps", "fairness", "files"], help="only a part")
    parser.add_argument("--cells", type=int, help="so many cells at most in this run")
    options = parser.parse_args()
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        print("bench path: skipped: it needs root and /dev/net/tun")
        return
    bench.need("iperf3", "ip", "setpriv", "openssl")
    godwit = bench.godwit_binary(options)
    os.environ["GODWIT"] = str(godwit)
    kept = options.results / "transfer.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    results = {part: before.get(part, []) for part in ("cells", "fairness", "files")}

    def keep():
        options.results.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(results, indent=1) + "\n")

    with tempfile.TemporaryDirectory(prefix="godwit-path-") as scratch:
        directory = Path(scratch)
        directory.chmod(0o755)
        # Where anybody may run it.
        program = directory / "godwit"
        shutil.copy(godwit, program)
        if options.only in (None, "files"):
            results["files"].append(many_files(program, directory))
            print(results["files"][-1], flush=True)
            keep()
        if options.only in (None, "fairness"):
            for mode in ("polite", "fair", "fast"):
                for queue in ("1bdp", "0.25bdp"):
                    results["fairness"] = [kept for kept in results["fairness"] if (kept["mode"], kept["queue"]) != (mode, queue)]
                    results["fairness"].append(fairness(program, directory, mode, queue))
                    print(results["fairness"][-1], flush=True)
                    keep()
        if options.only in (None, "sweeps"):
            known = [{key: cell[key] for key in BASE} for cell in results["cells"] if cell["megabytes"] == options.megabytes]
            left = []
            for cell in full() if options.full else factors():
                if cell not in known and cell not in left:
                    left.append(cell)
            for number, cell in enumerate(left[: options.cells]):
                results["cells"].append(measure(cell, program, directory, options.megabytes))
                print(number + 1, "of", len(left), results["cells"][-1], flush=True)
                keep()
    report(options, godwit, results)


if __name__ == "__main__":
    sys.exit(main())
