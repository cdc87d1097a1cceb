"""Faults during copies over an emulated path: killed ends, path outages, flipped bits, full disks, sources that change.

Each fault returns a dict with `right` (the received file equals the source, or no file was named) and the measurements of that fault. The resent data
are counted in packets that arrived at the near end, beyond those of a baseline copy. They include the data in flight when an end was killed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from godwit_bench import harness
from godwit_bench.network import cells
from godwit_bench.network import emulated_path as emulation

MEGABYTES = 256
FAULT_CELL = {**cells.BASE, "megabytes": MEGABYTES}
# Slow enough that a file is still in transfer when a fault is injected.
SLOW_RATE_LIMIT = "400M"
POLL_INTERVAL_S = 0.005


class CopyProcess:
    """A running copy process, and the events it has written so far."""

    def __init__(
        self, path: emulation.EmulatedPath, godwit: Path, server: emulation.PathServer, target: Path, *more: object, name: str = "f"
    ) -> None:
        args = emulation.copy_args(godwit, f"{server.url}/{name}", target, FAULT_CELL, "--json", *server.credential_args(), *more)
        self.path, self.journal = path, target.parent / f".{target.name}.godwit-journal"
        self.begun = time.monotonic()
        self.process = subprocess.Popen(path.command("a", *args), stderr=subprocess.PIPE, text=True)

    def journal_bytes(self) -> int:
        """Returns the size of the copy's journal in bytes; the journal has a record for each block."""
        try:
            return self.journal.stat().st_size
        except FileNotFoundError:
            return 0

    def wait_for_journal_growth(self, recorded: int, timeout_s: float = 30) -> float | None:
        """Waits until the journal has another block or the copy has ended; returns seconds, or None after the timeout."""
        begun = time.monotonic()
        while time.monotonic() < begun + timeout_s:
            if self.journal_bytes() > recorded or self.process.poll() is not None:
                return time.monotonic() - begun
            time.sleep(POLL_INTERVAL_S)
        return None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def wait(self) -> tuple[int, str, list[harness.Result]]:
        """Waits for the end of the copy; returns its exit code, its last line and its events."""
        try:
            lines = self.process.communicate(timeout=300)[1].splitlines()
        except subprocess.TimeoutExpired:
            self.kill()
            harness.exit_with_error("a copy did not end in time")
        events = [json.loads(line) for line in lines if line.startswith("{")]
        last = next((event["message"] for event in reversed(events) if event.get("event") == "error"), lines[-1] if lines else "")
        return self.process.returncode, last, events


def last_event_field(events: list[harness.Result], event: str, name: str) -> Any:
    """Returns a field of the last event of that name."""
    return next((one[name] for one in reversed(events) if one.get("event") == event), 0)


def measure_baseline(path: emulation.EmulatedPath, godwit: Path, server: emulation.PathServer, root: Path, mine: Path) -> tuple[int, float]:
    """Returns the bytes received by a copy without faults, and its seconds."""
    before, copy = path.received_bytes(), CopyProcess(path, godwit, server, mine / "f")
    code, last, _ = copy.wait()
    seconds = time.monotonic() - copy.begun
    if code or not harness.have_same_bytes(root / "f", mine / "f"):
        harness.exit_with_error(f"the baseline copy failed: {last}")
    return path.received_bytes() - before, seconds


def measure_kills(godwit: Path, directory: Path, seed: int, points: int) -> harness.Result:
    """Kills either end at random points of a copy, and starts it again."""
    draw = random.Random(seed)
    root, mine = emulation.prepare_directories(directory, MEGABYTES)
    found = []
    with emulation.EmulatedPath(FAULT_CELL) as path, emulation.PathServer(path, godwit, root, directory) as server:
        usual, seconds = measure_baseline(path, godwit, server, root, mine)
        for point in range(points):
            end = ("copy", "server")[point % 2]
            found.append({"end": end, **measure_one_kill(path, godwit, server, root, mine, end, draw.uniform(0.1, 0.95) * seconds, usual)})
    return {"points": found, "right": all(one["right"] for one in found)}


def measure_one_kill(
    path: emulation.EmulatedPath, godwit: Path, server: emulation.PathServer, root: Path, mine: Path, end: str, at_s: float, usual: int
) -> harness.Result:
    emulation.empty_directory(mine)
    before, copy = path.received_bytes(), CopyProcess(path, godwit, server, mine / "f")
    time.sleep(at_s)
    ended_before = copy.process.poll() is not None
    arrived = None
    if end == "copy":
        copy.kill()
        arrived = (path.received_bytes() - before) * MEGABYTES / usual
        recorded, copy = copy.journal_bytes(), CopyProcess(path, godwit, server, mine / "f")
    else:
        server.kill()
        time.sleep(0.3)
        recorded = copy.journal_bytes()
        server.restart()
    went_on = copy.wait_for_journal_growth(recorded)
    code, last, events = copy.wait()
    again = path.received_bytes() - before - usual
    kept = last_event_field(events, "started", "kept_bytes") / 2**20
    return {
        "at_s": round(at_s, 3),
        "ended_before": ended_before,
        "on_after_s": went_on and round(went_on, 3),
        "sent_again_mib": round(max(0, again) / 2**20, 1),
        "kept_mib": round(kept, 1),
        # The rest of the resent data was in flight when the end was killed, and was not received.
        "arrived_not_kept_mib": arrived and round(arrived - kept, 1),
        "exit": code,
        "said": last if code else "",
        "right": code == 0 and harness.have_same_bytes(root / "f", mine / "f"),
    }


def measure_outage(godwit: Path, directory: Path, seconds: int) -> harness.Result:
    """Interrupts the path in both directions for some seconds."""
    root, mine = emulation.prepare_directories(directory, MEGABYTES)
    with emulation.EmulatedPath(FAULT_CELL) as path, emulation.PathServer(path, godwit, root, directory) as server:
        usual, whole_s = measure_baseline(path, godwit, server, root, mine)
        emulation.empty_directory(mine)
        before, copy = path.received_bytes(), CopyProcess(path, godwit, server, mine / "f")
        time.sleep(whole_s / 2)
        path.set_options("down=1")
        time.sleep(seconds)
        recorded = copy.journal_bytes()
        path.set_options("down=0")
        went_on = copy.wait_for_journal_growth(recorded)
        code, last, _ = copy.wait()
        again = path.received_bytes() - before - usual
        right = code == 0 and harness.have_same_bytes(root / "f", mine / "f")
    return {
        "on_after_s": went_on and round(went_on, 3),
        "sent_again_mib": round(max(0, again) / 2**20, 1),
        "exit": code,
        "said": last if code else "",
        "right": right,
    }


def copy_through_bit_flips(
    path: emulation.EmulatedPath, godwit: Path, server: emulation.PathServer, root: Path, mine: Path, count: int, seed: int
) -> harness.Result:
    """Copies through a proxy that flips bits; returns the result of the copy and the number of damaged blocks."""
    emulation.empty_directory(mine)
    port = server.url.rstrip("/").rpartition(":")[2]
    script = Path(__file__).with_name("bit_flip_proxy.py")
    args = ["python3", script, path.b, port, count, seed, (MEGABYTES - 16) << 20]
    # Root runs the proxy, because the unprivileged user may be unable to read the source tree.
    passing = subprocess.Popen(["ip", "netns", "exec", path.namespaces["a"], *map(str, args)], stdout=subprocess.PIPE, text=True)
    near = harness.piped(passing.stdout).readline().strip()
    far_url, server.url = server.url, f"grpc+tcp://127.0.0.1:{near}"
    try:
        code, last, events = CopyProcess(path, godwit, server, mine / "f").wait()
    finally:
        server.url = far_url
        passing.terminate()
    counts = json.loads(passing.communicate()[0])
    damaged = max((event["damaged"] for event in events if event.get("event") == "copying"), default=0)
    return {
        **counts,
        "damaged": damaged,
        "exit": code,
        "said": last if code else "",
        "right": code == 0 and harness.have_same_bytes(root / "f", mine / "f"),
    }


def measure_bit_flips(godwit: Path, directory: Path, count: int, seed: int) -> harness.Result:
    """Flips bits in transit, without TLS."""
    root, mine = emulation.prepare_directories(directory, MEGABYTES)
    with emulation.EmulatedPath({**FAULT_CELL, "rate": 500}) as path, emulation.PathServer(path, godwit, root, directory, plain=True) as server:
        clean = copy_through_bit_flips(path, godwit, server, root, mine, 0, seed)
        bad = copy_through_bit_flips(path, godwit, server, root, mine, count, seed)
    more = bad["bytes"] - clean["bytes"]
    return {
        **bad,
        "more_mib": round(more / 2**20, 2),
        "mib_for_each_flip": round(more / 2**20 / max(1, bad["flipped"]), 3),
        "right": clean["right"] and bad["right"],
    }


def measure_full_disk(godwit: Path, directory: Path) -> harness.Result:
    """Copies to a file system with space for a third of the file, then enlarges the file system and copies again."""
    root, mine = emulation.prepare_directories(directory, MEGABYTES)
    small = emulation.empty_directory(mine / "small")
    options = f"uid={emulation.USER_ID},gid={emulation.USER_ID},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES // 3}m,{options}", "tmpfs", small], check=True)
    try:
        with emulation.EmulatedPath(FAULT_CELL) as path, emulation.PathServer(path, godwit, root, directory) as server:
            code, last, _ = CopyProcess(path, godwit, server, small / "f").wait()
            named = (small / "f").exists()
            subprocess.run(["mount", "-o", f"remount,size={MEGABYTES * 2}m,{options}", small], check=True)
            again, then, events = CopyProcess(path, godwit, server, small / "f").wait()
            right = again == 0 and harness.have_same_bytes(root / "f", small / "f")
    finally:
        subprocess.run(["umount", "-l", small])
    kept = last_event_field(events, "started", "kept_bytes") / 2**20
    return {"exit": code, "said": last, "kept_mib": round(kept, 1), "then": then if again else "", "right": right and code == 4 and not named}


def measure_changed_source(godwit: Path, directory: Path, how: str) -> harness.Result:
    """Truncates or rewrites the source while it is copied; then runs the same command again."""
    root, mine = emulation.prepare_directories(directory, MEGABYTES)
    source = root / "changing"
    shutil.copy(root / "f", source)
    emulation.give_to_user(source)
    with emulation.EmulatedPath(FAULT_CELL) as path, emulation.PathServer(path, godwit, root, directory) as server:
        copy = CopyProcess(path, godwit, server, mine / "f", "--rate", SLOW_RATE_LIMIT, name="changing")
        time.sleep(2)
        if how == "truncated":
            os.truncate(source, MEGABYTES << 19)
        else:
            emulation.write_random(source, MEGABYTES)
        code, last, _ = copy.wait()
        named = (mine / "f").exists()
        # The copy may have detected the change in time and copied the new file.
        right = harness.have_same_bytes(source, mine / "f") if code == 0 else not named
        again, then, _ = CopyProcess(path, godwit, server, mine / "f", name="changing").wait()
        right = right and again == 0 and harness.have_same_bytes(source, mine / "f")
    source.unlink()
    return {"exit": code, "said": last if code else "", "then": then if again else "", "right": right}


def measure_removed_destination(godwit: Path, directory: Path) -> harness.Result:
    """Removes the destination directory during the copy."""
    root, mine = emulation.prepare_directories(directory, MEGABYTES)
    deep = emulation.empty_directory(mine / "deep")
    with emulation.EmulatedPath(FAULT_CELL) as path, emulation.PathServer(path, godwit, root, directory) as server:
        copy = CopyProcess(path, godwit, server, deep / "f", "--rate", SLOW_RATE_LIMIT)
        time.sleep(2)
        shutil.rmtree(deep)
        code, last, _ = copy.wait()
    return {"exit": code, "said": last, "right": code == 4 and not (deep / "f").exists()}
