"""`godwit copy` over emulated long fat networks, beside iperf3 and the usual programs for such copies, in the same minutes.

Two network namespaces are joined by a path with a round-trip time, rate, loss and jitter. In each cell a file is copied, from disk to disk or
from memory to memory, by a user without privileges, with TLS, tokens and BLAKE3, set-up included. Without --only, this measures the cells with
targets, all sweeps of one factor, streams from 1 to 200, the round trips of two real paths, a Latin square of 25 cells, long files, small files,
several sources, third-party copies, fairness, faults, and loopback. --full continues with the rest of the factorial.

Existing results are not measured again, so that the benchmark can run in parts (--cells, --minutes), and be stopped at any time. With
--again, results of other builds of the program are measured again; --list prints the remaining measurements.
Needs root and /dev/net/tun; without them the benchmark reports that it is skipped.
"""

import argparse
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from godwit_bench import harness
from godwit_bench.network import cases, cells, competitors, faults, path_report
from godwit_bench.network import emulated_path as emulation
from godwit_bench.network import local_measurements as local

GROUPS = ["bars", "sweeps", "streams", "real", "slow", "square", "long"]
CASES = ["files", "sources", "third", "fairness", "faults", "loopback", "cpu"]
TOTAL_KILLS, KILLS_PER_MEASUREMENT = 50, 10


class Measurement:
    """One measurement: its part of the results, the key that identifies it, and the estimated seconds."""

    def __init__(self, part: str, key: harness.Result, estimate_s: float, measure: Callable[[], harness.Result]) -> None:
        self.part, self.key, self.estimate_s, self.measure = part, key, estimate_s, measure

    def is_result_of(self, found: harness.Result) -> bool:
        if self.part == "cells":
            return cells.cell_key(found) == cells.cell_key(self.key)
        return all(found.get(name) == value for name, value in self.key.items())

    def title(self) -> str:
        return cells.cell_title(self.key) + f", {self.key['megabytes']} MiB" if self.part == "cells" else f"{self.part}: {self.key}"


def cell_measurements(options: argparse.Namespace, program: Path, places: dict[str, Path]) -> Iterator[Measurement]:
    media = cells.STORAGE_MEDIA if options.medium == "both" else [options.medium]
    groups = [group for group in GROUPS if group in options.only]
    several = [cells.cell_key(cell) for cell in cells.cells_of_groups(groups, media)]
    for cell in cells.cells_of_groups(groups + (["full"] if options.full else []), media):
        # Each cell of the whole factorial runs once: many of its cells are similar.
        usual = cells.runs_per_cell(cell) if cells.cell_key(cell) in several else 1
        cell = {**cell, **({"megabytes": options.megabytes} if options.megabytes else {})}
        runs, count = options.runs or usual, 0
        if options.peers == "all":
            count = len(competitors.competitors_for_cell(cell, cell["megabytes"] >= cells.LONG_MEGABYTES))
        measure = functools.partial(cases.measure_cell, cell, program, places[cell["medium"]], runs, options.peers == "all")
        yield Measurement("cells", cell, cells.estimate_s(cell, count, runs), measure)


def case_measurements(options: argparse.Namespace, program: Path, places: dict[str, Path]) -> Iterator[Measurement]:
    disk, runs = places["disk"], options.runs or 3

    def size(usual: int) -> int:
        return options.megabytes or usual

    files = {"count": 2000, "size": 100_000}
    yield Measurement("files", files, 90, functools.partial(cases.measure_many_files, program, disk, runs=runs, **files))
    sources = {"count": 3, "rate": 333, "megabytes": size(1024)}
    yield Measurement("sources", sources, 25 + 14 * runs + 27, functools.partial(cases.measure_several_sources, program, disk, runs=runs, **sources))
    for megabytes, times in ((size(512), runs), (size(cells.LONG_MEGABYTES), 1)):
        measure = functools.partial(cases.measure_third_party_copy, program, disk, megabytes, times)
        yield Measurement("third", {"megabytes": megabytes}, 10 + megabytes / 45 * times, measure)
    for mode in ("polite", "fair", "fast"):
        for queue in ("1bdp", "0.25bdp"):
            yield Measurement("fairness", {"mode": mode, "queue": queue}, 85, functools.partial(cases.measure_fairness, program, disk, mode, queue))
    yield from fault_measurements(program, disk)
    for medium, place in places.items():
        measure = functools.partial(local.measure_pipe, program, place, size(3824), runs)
        yield Measurement("loopback", {"medium": medium, "megabytes": size(3824)}, 150, measure)
    measure = functools.partial(local.measure_cpu, program, places["memory"], size(1024), runs)
    yield Measurement("cpu", {"megabytes": size(1024)}, 90, measure)


def fault_measurements(program: Path, disk: Path) -> Iterator[Measurement]:
    def unit(key: harness.Result, estimate_s: float, measure: Callable[..., harness.Result], *args: object) -> Measurement:
        return Measurement("faults", key, estimate_s, functools.partial(measure, program, disk, *args))

    for seed in range(TOTAL_KILLS // KILLS_PER_MEASUREMENT):
        key = {"fault": "killed", "seed": seed}
        yield unit(key, 15 + 5 * KILLS_PER_MEASUREMENT, faults.measure_kills, seed, KILLS_PER_MEASUREMENT)
    yield unit({"fault": "outage", "for_s": 60}, 90, faults.measure_outage, 60)
    yield unit({"fault": "flipped bits", "bits": 20}, 40, faults.measure_bit_flips, 20, 1)
    yield unit({"fault": "full disk"}, 20, faults.measure_full_disk)
    for how in ("truncated", "rewritten"):
        yield unit({"fault": f"source {how}"}, 30, faults.measure_changed_source, how)
    yield unit({"fault": "destination gone"}, 15, faults.measure_removed_destination)


def upgrade_results(results: dict[str, list[harness.Result]]) -> dict[str, list[harness.Result]]:
    """Upgrades results from before the fields medium, runs and streams of iperf3 were added."""
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


def remaining_measurements(units: Iterable[Measurement], results: dict[str, list[harness.Result]], name: str, again: bool) -> Iterator[Measurement]:
    """Yields each measurement without a result once; with `again`, each without a result of this program."""
    keys = []
    for unit in units:
        known = [found for found in results[unit.part] if unit.is_result_of(found)]
        done = any(found.get("program") == name for found in known) if again else bool(known)
        if not done and (unit.part, unit.key) not in keys:
            keys.append((unit.part, unit.key))
            yield unit


def run_measurement(unit: Measurement, results: dict[str, list[harness.Result]], name: str) -> harness.Result:
    """Runs a measurement and replaces the previous result."""
    around = {
        "program": name,
        "commit": harness.first_output_line(["git", "-C", str(harness.ROOT), "describe", "--always"]),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }
    found = {**unit.key, **unit.measure(), "load": round(os.getloadavg()[0], 2), **around}
    at = next((at for at, known in enumerate(results[unit.part]) if unit.is_result_of(known)), len(results[unit.part]))
    results[unit.part][at : at + 1] = [found]
    return found


def arguments() -> argparse.Namespace:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--full", action="store_true", help="also all other cells of the factorial: takes a night or two")
    parser.add_argument("--only", action="append", choices=GROUPS + CASES + ["full"], help="measure only this group; may be repeated")
    parser.add_argument("--medium", choices=[*cells.STORAGE_MEDIA, "both"], default="both", help="storage of the files of cells (default: both)")
    parser.add_argument("--megabytes", type=int, help="size of the files, a multiple of 16, for trials (default: as in the cell)")
    parser.add_argument("--runs", type=int, help="copies in each cell (default: 3, of long files and slow paths 1)")
    parser.add_argument("--peers", choices=["all", "none"], default="all", help="competitors to measure beside the copy (default: all)")
    parser.add_argument("--cells", type=int, help="maximum number of cells and cases in this run")
    parser.add_argument("--minutes", type=float, help="start no measurement whose estimated end is after this time")
    parser.add_argument("--again", action="store_true", help="measure again what was measured with another build of godwit")
    parser.add_argument("--list", action="store_true", help="list the remaining measurements, and measure nothing")
    parser.add_argument("--page", action="store_true", help="write the page again, and measure nothing")
    options = parser.parse_args()
    options.full = options.full or "full" in (options.only or [])
    options.only = options.only or GROUPS + CASES
    return options


def main() -> int:
    options = arguments()
    if not emulation.may_emulate():
        print("bench path: skipped: needs root and /dev/net/tun")
        return 0
    harness.require_tools("iperf3", "ip", "setpriv", "openssl")
    # Ending by SIGTERM also removes the namespaces.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    godwit = harness.godwit_binary(options)
    os.environ["GODWIT"] = str(godwit)
    kept = options.results / "transfer.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    results = upgrade_results({part: before.get(part, []) for part in ("cells", *CASES)})
    with tempfile.TemporaryDirectory(prefix="godwit-path-") as scratch, tempfile.TemporaryDirectory(prefix="godwit-path-", dir="/dev/shm") as memory:
        places = {"disk": Path(scratch), "memory": Path(memory)}
        for place in places.values():
            place.chmod(0o755)
            emulation.give_to_user(place)
        # In a directory in which every user may run it.
        program = Path(shutil.copy(godwit, scratch))
        name = emulation.program_digest(program)
        units = [
            *cell_measurements(options, program, places),
            *(unit for unit in case_measurements(options, program, places) if unit.part in options.only),
        ]
        waiting = list(remaining_measurements(units, results, name, options.again))
        if options.list:
            print(
                "\n".join(
                    [
                        *(f"{unit.estimate_s:5.0f} s  {unit.title()}" for unit in waiting),
                        f"{len(waiting)} remaining, {sum(unit.estimate_s for unit in waiting) / 60:.0f} minutes",
                    ]
                )
            )
            return 0
        begun, failed = time.monotonic(), 0
        for number, unit in enumerate([] if options.page else waiting[: options.cells]):
            if options.minutes and number and time.monotonic() - begun + unit.estimate_s > 60 * options.minutes:
                break
            started = time.monotonic()
            try:
                found = run_measurement(unit, results, name)
            except SystemExit as stop:
                # A failed benchmark exits with a message that was printed already; an exit by a signal has a number.
                if not isinstance(stop.code, str):
                    raise
                failed += 1
                print(f"{number + 1} of {len(waiting)}: {unit.title()}: {stop.code}", flush=True)
                continue
            print(
                f"{number + 1} of {len(waiting)}, {time.monotonic() - started:.0f} s ({unit.estimate_s:.0f} s estimated): {unit.title()}: {found}",
                flush=True,
            )
            options.results.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps({**before, **results}, indent=1) + "\n")
    path_report.write_report(options, godwit, results)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
