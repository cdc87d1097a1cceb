"""Faults of copies over an emulated path: ends that are killed, paths that are gone, flipped bits, full disks, sources that change.

Each fault gives a dict with `right` (what arrived is the file, or nothing got its name) and what is asked of that fault. What is sent again is counted
in packets that came to the near end, beyond those of a copy that nothing happens to: it includes what was under way when an end was killed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import _measure as bench
import _path_cells as cells
import _path_lab as lab

MEGABYTES = 256
CELL = {**cells.BASE, "megabytes": MEGABYTES}
# A file is still on its way after the seconds that faults wait.
SLOW_RATE = "400M"
POLL_S = 0.005


class Copy:
    """A copy that is running, and what it has written so far."""

    def __init__(self, path, godwit, server, target, *more, name="f"):
        words = lab.copy_words(godwit, f"{server.url}/{name}", target, CELL, "--json", *server.words(), *more)
        self.path, self.journal = path, target.parent / f".{target.name}.godwit-journal"
        self.begun = time.monotonic()
        self.child = subprocess.Popen(path.command("a", *words), stderr=subprocess.PIPE, text=True)

    def recorded(self):
        """Bytes of its journal, which has a record for each block."""
        try:
            return self.journal.stat().st_size
        except FileNotFoundError:
            return 0

    def await_more_than(self, recorded, patience_s=30):
        """Until another block is there, or all of them; seconds, or None where nothing comes."""
        begun = time.monotonic()
        while time.monotonic() < begun + patience_s:
            if self.recorded() > recorded or self.child.poll() is not None:
                return time.monotonic() - begun
            time.sleep(POLL_S)
        return None

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        self.child.communicate()

    def finish(self):
        """Its exit code, its last words and its events, when it has ended."""
        try:
            told = self.child.communicate(timeout=300)[1].splitlines()
        except subprocess.TimeoutExpired:
            self.kill()
            bench.fail("a copy does not end")
        events = [json.loads(line) for line in told if line.startswith("{")]
        last = next((event["message"] for event in reversed(events) if event.get("event") == "error"), told[-1] if told else "")
        return self.child.returncode, last, events


def field(events, event, name):
    """The last that events said of something."""
    return next((one[name] for one in reversed(events) if one.get("event") == event), 0)


def undisturbed(path, godwit, server, root, mine):
    """Bytes that come for a copy to which nothing happens, and its seconds."""
    before, copy = path.received_bytes(), Copy(path, godwit, server, mine / "f")
    code, last, _ = copy.finish()
    seconds = time.monotonic() - copy.begun
    if code or not lab.are_same(root / "f", mine / "f"):
        bench.fail(f"a copy failed to which nothing was done: {last}")
    return path.received_bytes() - before, seconds


def kills(godwit, directory, seed, points):
    """Either end is killed at random points of a copy, and started again."""
    draw = random.Random(seed)
    root, mine = lab.both_ends(directory, MEGABYTES)
    found = []
    with lab.EmulatedPath(CELL) as path, lab.Server(path, godwit, root, directory) as server:
        usual, seconds = undisturbed(path, godwit, server, root, mine)
        for point in range(points):
            end = ("copy", "server")[point % 2]
            found.append({"end": end, **killed(path, godwit, server, root, mine, end, draw.uniform(0.1, 0.95) * seconds, usual)})
    return {"points": found, "right": all(one["right"] for one in found)}


def killed(path, godwit, server, root, mine, end, at_s, usual):
    lab.emptied(mine)
    before, copy = path.received_bytes(), Copy(path, godwit, server, mine / "f")
    time.sleep(at_s)
    ended_before = copy.child.poll() is not None
    arrived = None
    if end == "copy":
        copy.kill()
        arrived = (path.received_bytes() - before) * MEGABYTES / usual
        recorded, copy = copy.recorded(), Copy(path, godwit, server, mine / "f")
    else:
        server.end()
        time.sleep(0.3)
        recorded = copy.recorded()
        server.start_again()
    went_on = copy.await_more_than(recorded)
    code, last, events = copy.finish()
    again = path.received_bytes() - before - usual
    kept = field(events, "started", "kept_bytes") / 2**20
    return {
        "at_s": round(at_s, 3),
        "ended_before": ended_before,
        "on_after_s": went_on and round(went_on, 3),
        "sent_again_mib": round(max(0, again) / 2**20, 1),
        "kept_mib": round(kept, 1),
        # The rest of what is sent again was under way, and came to nobody.
        "arrived_not_kept_mib": arrived and round(arrived - kept, 1),
        "exit": code,
        "said": last if code else "",
        "right": code == 0 and lab.are_same(root / "f", mine / "f"),
    }


def outage(godwit, directory, seconds):
    """The path is gone for a while, both ways."""
    root, mine = lab.both_ends(directory, MEGABYTES)
    with lab.EmulatedPath(CELL) as path, lab.Server(path, godwit, root, directory) as server:
        usual, whole_s = undisturbed(path, godwit, server, root, mine)
        lab.emptied(mine)
        before, copy = path.received_bytes(), Copy(path, godwit, server, mine / "f")
        time.sleep(whole_s / 2)
        path.set("down=1")
        time.sleep(seconds)
        recorded = copy.recorded()
        path.set("down=0")
        went_on = copy.await_more_than(recorded)
        code, last, _ = copy.finish()
        again = path.received_bytes() - before - usual
        right = code == 0 and lab.are_same(root / "f", mine / "f")
    return {
        "on_after_s": went_on and round(went_on, 3),
        "sent_again_mib": round(max(0, again) / 2**20, 1),
        "exit": code,
        "said": last if code else "",
        "right": right,
    }


def through_flips(path, godwit, server, root, mine, count, seed):
    """What came through a program that flips bits, and how often blocks were damaged."""
    lab.emptied(mine)
    port = server.url.rstrip("/").rpartition(":")[2]
    script = bench.ROOT / "bench" / "path" / "flipping.py"
    words = ["python3", script, path.b, port, count, seed, (MEGABYTES - 16) << 20]
    # Where a user may not look into the source tree, root may.
    passing = subprocess.Popen(["ip", "netns", "exec", path.namespaces["a"], *map(str, words)], stdout=subprocess.PIPE, text=True)
    near = passing.stdout.readline().strip()
    far_url, server.url = server.url, f"grpc+tcp://127.0.0.1:{near}"
    try:
        code, last, events = Copy(path, godwit, server, mine / "f").finish()
    finally:
        server.url = far_url
        passing.terminate()
    told = json.loads(passing.communicate()[0])
    damaged = max((event["damaged"] for event in events if event.get("event") == "copying"), default=0)
    return {**told, "damaged": damaged, "exit": code, "said": last if code else "", "right": code == 0 and lab.are_same(root / "f", mine / "f")}


def flips(godwit, directory, count, seed):
    """Bits are flipped on the way, without TLS."""
    root, mine = lab.both_ends(directory, MEGABYTES)
    with lab.EmulatedPath({**CELL, "rate": 500}) as path, lab.Server(path, godwit, root, directory, plain=True) as server:
        clean = through_flips(path, godwit, server, root, mine, 0, seed)
        bad = through_flips(path, godwit, server, root, mine, count, seed)
    more = bad["bytes"] - clean["bytes"]
    return {**bad, "more_mib": round(more / 2**20, 2), "mib_for_each_flip": round(more / 2**20 / max(1, bad["flipped"]), 3), "right": clean["right"] and bad["right"]}


def full_disk(godwit, directory):
    """The file system has room for a third of the file, and then for all of it."""
    root, mine = lab.both_ends(directory, MEGABYTES)
    small = lab.emptied(mine / "small")
    options = f"uid={lab.USER},gid={lab.USER},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES // 3}m,{options}", "tmpfs", small], check=True)
    try:
        with lab.EmulatedPath(CELL) as path, lab.Server(path, godwit, root, directory) as server:
            code, last, _ = Copy(path, godwit, server, small / "f").finish()
            named = (small / "f").exists()
            subprocess.run(["mount", "-o", f"remount,size={MEGABYTES * 2}m,{options}", small], check=True)
            again, then, events = Copy(path, godwit, server, small / "f").finish()
            right = again == 0 and lab.are_same(root / "f", small / "f")
    finally:
        subprocess.run(["umount", "-l", small])
    kept = field(events, "started", "kept_bytes") / 2**20
    return {"exit": code, "said": last, "kept_mib": round(kept, 1), "then": then if again else "", "right": right and code == 4 and not named}


def changed_source(godwit, directory, how):
    """The source is truncated, or written anew, while it is copied; then the same command is run again."""
    root, mine = lab.both_ends(directory, MEGABYTES)
    source = root / "changing"
    shutil.copy(root / "f", source)
    os.chown(source, lab.USER, lab.USER)
    with lab.EmulatedPath(CELL) as path, lab.Server(path, godwit, root, directory) as server:
        copy = Copy(path, godwit, server, mine / "f", "--rate", SLOW_RATE, name="changing")
        time.sleep(2)
        if how == "truncated":
            os.truncate(source, MEGABYTES << 19)
        else:
            lab.write_random(source, MEGABYTES)
        code, last, _ = copy.finish()
        named = (mine / "f").exists()
        # It may be that the change was seen in time, and the new file copied.
        right = lab.are_same(source, mine / "f") if code == 0 else not named
        again, then, _ = Copy(path, godwit, server, mine / "f", name="changing").finish()
        right = right and again == 0 and lab.are_same(source, mine / "f")
    source.unlink()
    return {"exit": code, "said": last if code else "", "then": then if again else "", "right": right}


def gone_destination(godwit, directory):
    """The directory that is copied to is removed."""
    root, mine = lab.both_ends(directory, MEGABYTES)
    deep = lab.emptied(mine / "deep")
    with lab.EmulatedPath(CELL) as path, lab.Server(path, godwit, root, directory) as server:
        copy = Copy(path, godwit, server, deep / "f", "--rate", SLOW_RATE)
        time.sleep(2)
        shutil.rmtree(deep)
        code, last, _ = copy.finish()
    return {"exit": code, "said": last, "right": code == 4 and not (deep / "f").exists()}
