"""What is measured of a copy beside the speed of one file over one path: what it leaves others, small files, several sources, third parties.

Each case gives a dict of what it found; what it is about is in its arguments.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import time

import _measure as bench
import _path_cells as cells
import _path_lab as lab
import _path_peers as peers

FAIRNESS = {**cells.BASE, "rate": 200}


def measure_cell(cell, godwit, directory, runs, with_peers):
    """One cell: godwit, iperf3 and other programs in the same minutes."""
    root, mine = lab.both_ends(directory, cell["megabytes"])
    seconds, late, others, reasons = [], [], {}, {}
    with lab.EmulatedPath(cell) as path:
        with lab.Server(path, godwit, root, directory) as server:
            for _ in range(runs):
                lab.emptied(mine)
                seconds.append(lab.copied(path, godwit, server, "f", mine / "f", cell))
                late.append(path.late_us() or 0)
                if not lab.are_same(root / "f", mine / "f"):
                    bench.fail("the copy is not the file")
        streams = 16 if cell["streams"] == "auto" else min(cell["streams"], 128)
        beside, _ = lab.iperf(path, streams)
        for peer in peers.of_cell(cell, cell["megabytes"] >= cells.LONG_MEGABYTES) if with_peers else []:
            lab.emptied(mine)
            took, reason = peers.timed(peer, path, root, mine, directory, cells.patience_s(cell))
            others[peer.name] = took and round(cells.percent_of(cell, took), 1)
            reasons |= {peer.name: reason} if reason else {}
    lab.emptied(mine)
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


def competitor(path, seconds):
    """Mbit/s and losses of one flow of CUBIC, its first two seconds apart."""
    return lab.iperf_between(path, seconds, "-C", "cubic", "-O", 2)


def rates(copy, skip):
    """Mbit/s that a copy told until it is stopped now, but for the first ones."""
    copy.send_signal(signal.SIGINT)
    told = (json.loads(line) for line in copy.communicate()[1].splitlines() if line.startswith("{"))
    found = [event["bytes_per_s"] * 8 / 1e6 for event in told if event.get("event") == "copying"][skip:]
    return round(sum(found) / max(1, len(found)), 1)


def fairness(godwit, directory, mode, queue, seconds=20):
    """What one cubic flow keeps beside a copy, at 200 Mbit/s and 40 ms: its share of what it has alone, and its losses."""
    root, mine = lab.both_ends(directory, 1200)
    with lab.EmulatedPath({**FAIRNESS, "queue": queue}) as path, lab.Server(path, godwit, root, directory) as server:
        words = [godwit, "copy", f"{server.url}/f", mine / "f", "--mode", mode, "--json", *server.words()]
        start = lambda: subprocess.Popen(path.command("a", *words), stderr=subprocess.PIPE, text=True)
        alone, alone_lost = competitor(path, seconds)
        copy = start()
        time.sleep(3)
        beside, beside_lost = competitor(path, seconds)
        with_other = rates(copy, 12)
        lab.emptied(mine)
        copy = start()
        time.sleep(seconds)
        solo = rates(copy, 8)
    return {
        "cubic_alone_mbit_per_s": round(alone, 1),
        "cubic_beside_mbit_per_s": round(beside, 1),
        "cubic_keeps_percent": round(100 * beside / alone, 1),
        "cubic_retransmits_alone": alone_lost,
        "cubic_retransmits_beside": beside_lost,
        "copy_alone_mbit_per_s": solo,
        "copy_beside_mbit_per_s": with_other,
    }


def many_files(godwit, directory, count, size, runs):
    """Seconds for many small files at 1000 Mbit/s and 40 ms, beside other programs. Each run writes into a directory of its own, and nothing is removed
    meanwhile: ext4 looks for a minute whether an inode was free before, which took a fifth of both cores after 2,000 files had been removed."""
    root = lab.emptied(directory / "many")
    lab.emptied(root / "d")
    for number in range(count):
        (root / "d" / f"{number:05}").write_bytes(os.urandom(size))
        os.chown(root / "d" / f"{number:05}", lab.USER, lab.USER)
    os.sync()
    used, seconds, others, reasons = [root], [], {}, {}

    def fresh():
        used.append(lab.emptied(directory / f"many-{len(used)}"))
        return used[-1]

    with lab.EmulatedPath(cells.BASE) as path:
        with lab.Server(path, godwit, root, directory) as server:
            for _ in range(runs):
                mine = fresh()
                seconds.append(lab.copied(path, godwit, server, "d", mine / "d", cells.BASE))
                if subprocess.run(["diff", "-rq", root / "d", mine / "d"]).returncode:
                    bench.fail("the copies are not the files")
        for peer in peers.of_many_files():
            took, reason = peers.timed(peer, path, root, fresh(), directory, 60, "d")
            others[peer.name] = took and round(took, 2)
            reasons |= {peer.name: reason} if reason else {}
    for one in used:
        shutil.rmtree(one)
    return {"seconds": round(statistics.median(seconds), 2), "runs": [round(one, 3) for one in seconds], "peers_s": others, "peers_why_not": reasons}


class Sources:
    """One machine, and servers of the same files, each at the end of a path of its own."""

    def __init__(self, cell, godwit, root, directory, count):
        self.cell, self.godwit, self.root, self.directory, self.count = cell, godwit, root, directory, count
        self.near = f"{lab.NAME}-near"

    def __enter__(self):
        self.opened = []
        subprocess.run(["ip", "netns", "add", self.near], check=True)
        subprocess.run(["ip", "-n", self.near, "link", "set", "lo", "up"], check=True)
        for number in range(self.count):
            path = lab.EmulatedPath(self.cell, f"{lab.NAME}-{number}", (self.near, f"wan{number}"), number + 1)
            self.opened.append(path.__enter__())
            first = self.opened[1] if number else None
            self.opened.append(lab.Server(path, self.godwit, self.root, self.directory, name=f"server{number}", like=first))
        self.paths, self.servers = self.opened[::2], self.opened[1::2]
        # One list of certificates for all of them.
        trusted = self.directory / "all.pem"
        trusted.write_text("".join(server.pem.read_text() for server in self.servers))
        return self

    def __exit__(self, *how):
        for one in reversed(self.opened):
            one.__exit__(*how)
        subprocess.run(["ip", "netns", "del", self.near])

    def copied(self, target, count):
        """Seconds of a copy from so many of them."""
        more = [word for server in self.servers[1:count] for word in ("--also-from", f"{server.url}/f")]
        for path in self.paths:
            path.forget()
        words = lab.copy_words(self.godwit, f"{self.servers[0].url}/f", target, self.cell, "--quiet", "--no-config", *more)
        words += ["--ca", self.directory / "all.pem", "--token-file", self.servers[0].token]
        return lab.run_copy(self.paths[0], words)


def several_sources(godwit, directory, count, rate, megabytes, runs):
    """A file from several servers with a part of the rate each, and from one of them alone."""
    cell = {**cells.BASE, "rate": rate, "megabytes": megabytes}
    root, mine = lab.both_ends(directory, megabytes)
    together, alone = [], []
    with Sources(cell, godwit, root, directory, count) as sources:
        for _ in range(runs):
            lab.emptied(mine)
            together.append(sources.copied(mine / "f", count))
            if not lab.are_same(root / "f", mine / "f"):
                bench.fail("the copy is not the file")
        lab.emptied(mine)
        alone.append(sources.copied(mine / "f", 1))
        late = max(path.late_us() or 0 for path in sources.paths)
    lab.emptied(mine)
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


def third_party(godwit, directory, megabytes, runs):
    """A copy from one server to another that a third machine asks for, beside the same copy by the receiving machine itself."""
    cell = {**cells.BASE, "megabytes": megabytes}
    root, mine = lab.both_ends(directory, megabytes)
    direct, third = [], []
    with lab.EmulatedPath(cell) as path, lab.Server(path, godwit, root, directory) as far:
        with lab.Server(path, godwit, mine, directory, end="a", name="near", more=["--ca", far.pem], like=far) as near:
            # One list of certificates for both.
            (directory / "all.pem").write_text(far.pem.read_text() + near.pem.read_text())
            words = lab.copy_words(godwit, f"{far.url}/f", f"{near.url}/third", cell, "--quiet", "--no-config", "--ca", directory / "all.pem", "--token-file", far.token)
            for _ in range(runs):
                for made in ("direct", "third"):
                    (mine / made).unlink(missing_ok=True)
                direct.append(lab.copied(path, godwit, far, "f", mine / "direct", cell))
                path.forget()
                third.append(lab.run_copy(path, words))
                if not lab.are_same(root / "f", mine / "third"):
                    bench.fail("the copy between servers is not the file")
    lab.emptied(mine)
    return {
        "direct_runs": [round(one, 3) for one in direct],
        "third_runs": [round(one, 3) for one in third],
        "percent_of_direct": round(100 * statistics.median(direct) / statistics.median(third), 1),
    }
