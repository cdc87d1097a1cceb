#!/usr/bin/env python3
"""`godwit copy` over emulated long fat networks (bench/path), beside iperf3 and the programs that people use for it, in the same minutes.

Two network namespaces are joined by a path of some round-trip time, rate, loss and jitter. In each cell a file is copied, from disk to disk or
from memory to memory, by a user without privileges, with TLS, tokens and BLAKE3, set-up included. Without --only, this measures what bars are set
for, all sweeps of one factor, streams from 1 to 200, the round trips of two real paths, a Latin square of 25 cells, long files, small files,
several sources, third parties, what is left to others, faults, and loopback. --full goes on with the rest of the factorial.

What is in the results already is not measured again, so that all of it can be done in parts (--cells, --minutes), and stopped at any time. With
--again, what another program than this one was measured for is measured anew; --list tells what is left.
Needs root and /dev/net/tun; without them it says that it is skipped.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import _measure as bench
import _path_cases as cases
import _path_cells as cells
import _path_faults as faults
import _path_lab as lab
import _path_local as local
import _path_page as page
import _path_peers as peers

GROUPS = ["bars", "sweeps", "streams", "real", "slow", "square", "long"]
CASES = ["files", "sources", "third", "fairness", "faults", "loopback", "cpu"]
KILLS, POINTS_AT_ONCE = 50, 10


class Unit:
    """Something that is measured as a whole: which part of the results it is in, what tells it from others, about how long it takes."""

    def __init__(self, part, key, estimate_s, measure):
        self.part, self.key, self.estimate_s, self.measure = part, key, estimate_s, measure

    def is_of(self, found):
        if self.part == "cells":
            return cells.key_of(found) == cells.key_of(self.key)
        return all(found.get(name) == value for name, value in self.key.items())

    def title(self):
        return cells.title_of(self.key) + f", {self.key['megabytes']} MiB" if self.part == "cells" else f"{self.part}: {self.key}"


def cell_units(options, program, places):
    media = cells.MEDIA if options.medium == "both" else [options.medium]
    groups = [group for group in GROUPS if group in options.only]
    several = [cells.key_of(cell) for cell in cells.named(groups, media)]
    for cell in cells.named(groups + (["full"] if options.full else []), media):
        # Of the whole factorial, each cell once: there are many that are much alike.
        usual = cells.runs_of(cell) if cells.key_of(cell) in several else 1
        cell = {**cell, **({"megabytes": options.megabytes} if options.megabytes else {})}
        runs, count = options.runs or usual, 0
        if options.peers == "all":
            count = len(peers.of_cell(cell, cell["megabytes"] >= cells.LONG_MEGABYTES))
        measure = lambda cell=cell, runs=runs: cases.measure_cell(cell, program, places[cell["medium"]], runs, options.peers == "all")
        yield Unit("cells", cell, cells.estimate_s(cell, count, runs), measure)


def case_units(options, program, places):
    disk, runs = places["disk"], options.runs or 3
    size = lambda usual: options.megabytes or usual
    yield Unit("files", {"count": 2000, "size": 100_000}, 90, lambda: cases.many_files(program, disk, 2000, 100_000, runs))
    key = {"count": 3, "rate": 333, "megabytes": size(1024)}
    yield Unit("sources", key, 25 + 14 * runs + 27, lambda key=key: cases.several_sources(program, disk, runs=runs, **key))
    for megabytes, times in ((size(512), runs), (size(cells.LONG_MEGABYTES), 1)):
        key = {"megabytes": megabytes}
        yield Unit("third", key, 10 + megabytes / 45 * times, lambda key=key, times=times: cases.third_party(program, disk, runs=times, **key))
    for mode in ("polite", "fair", "fast"):
        for queue in ("1bdp", "0.25bdp"):
            key = {"mode": mode, "queue": queue}
            yield Unit("fairness", key, 85, lambda key=key: cases.fairness(program, disk, **key))
    yield from fault_units(program, disk)
    for medium, place in places.items():
        key = {"medium": medium, "megabytes": size(3824)}
        yield Unit("loopback", key, 150, lambda place=place, key=key: local.pipe(program, place, key["megabytes"], runs))
    key = {"megabytes": size(1024)}
    yield Unit("cpu", key, 90, lambda key=key: local.cpu(program, places["memory"], key["megabytes"], runs))


def fault_units(program, disk):
    for seed in range(KILLS // POINTS_AT_ONCE):
        yield Unit("faults", {"fault": "killed", "seed": seed}, 15 + 5 * POINTS_AT_ONCE, lambda seed=seed: faults.kills(program, disk, seed, POINTS_AT_ONCE))
    yield Unit("faults", {"fault": "outage", "for_s": 60}, 90, lambda: faults.outage(program, disk, 60))
    yield Unit("faults", {"fault": "flipped bits", "bits": 20}, 40, lambda: faults.flips(program, disk, 20, 1))
    yield Unit("faults", {"fault": "full disk"}, 20, lambda: faults.full_disk(program, disk))
    for how in ("truncated", "rewritten"):
        yield Unit("faults", {"fault": f"source {how}"}, 30, lambda how=how: faults.changed_source(program, disk, how))
    yield Unit("faults", {"fault": "destination gone"}, 15, lambda: faults.gone_destination(program, disk))


def upgraded(results):
    """Cells that were measured before media, runs and streams of iperf3 were told."""
    for cell in results["cells"]:
        cell.setdefault("medium", "disk")
        cell.setdefault("runs", [cell["seconds"]])
        cell.setdefault("iperf3_streams", 16)
        cell.setdefault("peers_percent", {})
        if "iperf3_x16_percent" in cell:
            cell["iperf3_percent"] = cell.pop("iperf3_x16_percent")
    for found in results["files"]:
        found.setdefault("count", found.get("files"))
        found.setdefault("size", found.get("bytes_each"))
        found.setdefault("runs", [found["seconds"]])
        found.setdefault("peers_s", {})
    return results


def left(units, results, name, again):
    """What has no result, or with `again` none of the program of that name; each once."""
    keys = []
    for unit in units:
        known = [found for found in results[unit.part] if unit.is_of(found)]
        done = any(found.get("program") == name for found in known) if again else bool(known)
        if not done and (unit.part, unit.key) not in keys:
            keys.append((unit.part, unit.key))
            yield unit


def measure(unit, results, name):
    """Measures, and puts what was found in the place of what was known."""
    around = {"program": name, "commit": bench.first_line(["git", "-C", str(bench.ROOT), "describe", "--always"]), "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
    found = {**unit.key, **unit.measure(), "load": round(os.getloadavg()[0], 2), **around}
    at = next((at for at, known in enumerate(results[unit.part]) if unit.is_of(known)), len(results[unit.part]))
    results[unit.part][at : at + 1] = [found]
    return found


def arguments():
    parser = bench.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="also all other cells of the factorial: a night or two")
    parser.add_argument("--only", action="append", choices=GROUPS + CASES + ["full"], help="only this; may be given again")
    parser.add_argument("--medium", choices=[*cells.MEDIA, "both"], default="both", help="where files of cells are (default: both)")
    parser.add_argument("--megabytes", type=int, help="another size of files than usual, a multiple of 16, to try things out")
    parser.add_argument("--runs", type=int, help="copies in each cell (default: 3, of long files and slow paths 1)")
    parser.add_argument("--peers", choices=["all", "none"], default="all", help="whether other programs are measured beside the copy (default: all)")
    parser.add_argument("--cells", type=int, help="so many cells and cases at most in this run")
    parser.add_argument("--minutes", type=float, help="begin nothing that is not over in that time, by a guess")
    parser.add_argument("--again", action="store_true", help="measure anew what another program was measured for")
    parser.add_argument("--list", action="store_true", help="tell what is left, and measure nothing")
    parser.add_argument("--page", action="store_true", help="write the page anew, and measure nothing")
    options = parser.parse_args()
    options.full = options.full or "full" in (options.only or [])
    options.only = options.only or GROUPS + CASES
    return options


def main():
    options = arguments()
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        print("bench path: skipped: it needs root and /dev/net/tun")
        return
    bench.need("iperf3", "ip", "setpriv", "openssl")
    # What is up is taken down, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    godwit = bench.godwit_binary(options)
    os.environ["GODWIT"] = str(godwit)
    kept = options.results / "transfer.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    results = upgraded({part: before.get(part, []) for part in ("cells", *CASES)})
    with tempfile.TemporaryDirectory(prefix="godwit-path-") as scratch, tempfile.TemporaryDirectory(prefix="godwit-path-", dir="/dev/shm") as memory:
        places = {"disk": Path(scratch), "memory": Path(memory)}
        for place in places.values():
            place.chmod(0o755)
            os.chown(place, lab.USER, lab.USER)
        # Where anybody may run it.
        program = shutil.copy(godwit, scratch)
        name = lab.program_name(program)
        units = [*cell_units(options, program, places), *(unit for unit in case_units(options, program, places) if unit.part in options.only)]
        waiting = list(left(units, results, name, options.again))
        if options.list:
            print("\n".join([*(f"{unit.estimate_s:5.0f} s  {unit.title()}" for unit in waiting), f"{len(waiting)} left, {sum(unit.estimate_s for unit in waiting) / 60:.0f} minutes"]))
            return
        begun, failed = time.monotonic(), 0
        for number, unit in enumerate([] if options.page else waiting[: options.cells]):
            if options.minutes and number and time.monotonic() - begun + unit.estimate_s > 60 * options.minutes:
                break
            started = time.monotonic()
            try:
                found = measure(unit, results, name)
            except SystemExit as stop:
                # Who failed has said why; what is stopped by somebody says a number.
                if not isinstance(stop.code, str):
                    raise
                failed += 1
                print(f"{number + 1} of {len(waiting)}: {unit.title()}: {stop.code}", flush=True)
                continue
            print(f"{number + 1} of {len(waiting)}, {time.monotonic() - started:.0f} s ({unit.estimate_s:.0f} guessed): {unit.title()}: {found}", flush=True)
            options.results.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({**before, **results}, indent=1) + "\n")
    page.write(options, godwit, results)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
