"""The cells of the path benchmark, their targets, and the upper bound of each path. Nothing in this module runs a program.

A cell is one path, the file that is copied over it, and the options of the copy. A group of cells answers one question;
`cells_of_groups` combines groups.
"""

from collections.abc import Iterator, Sequence
from math import log, log2
from typing import Any, TypeAlias

# A path, the file, and the options of the copy, by name.
Cell: TypeAlias = dict[str, Any]

RTT_MS = [10, 40, 60, 80, 100]
RATE_MBPS = [100, 250, 500, 750, 1000]
LOSS_PER_S = [0, 1, 2, 3, 4]
JITTER_OF_LATENCY = [0, 1 / 3, 1 / 2, 2 / 3, 1]
STREAMS = [1, 2, 4, 8, 16, 32, 64, 128, 200]
# The two real paths of the study: 9 hops and 15 hops.
REAL_RTT_MS = [42, 92]
LONG_MEGABYTES = 4096
BASE: Cell = {
    "rate": 1000,
    "rtt": 40,
    "loss_per_s": 0,
    "loss": 0.0,
    "jitter": 0,
    "streams": "auto",
    "mode": "fast",
    "medium": "disk",
    "megabytes": 512,
}
STORAGE_MEDIA = ("disk", "memory")
SWEEPS: dict[str, list[Any]] = {"rtt": RTT_MS, "rate": RATE_MBPS, "loss_per_s": LOSS_PER_S, "jitter": JITTER_OF_LATENCY}
# Copies that take less than this are measured three times, because a single short run is not representative.
SHORT_RUN_S = 6
# Payload bytes of a full packet over all its bytes: 40 bytes are headers, 12 are time stamps.
PAYLOAD_FRACTION = 1448 / 1500


def target_cells() -> Iterator[Cell]:
    """Returns the cells that have a target."""
    for rtt in (10, 40, 100):
        yield from ({**BASE, "rtt": rtt, "loss": loss} for loss in (0.0, 0.0001, 0.001))


def sweep_cells() -> Iterator[Cell]:
    """Returns the cells that vary one factor at a time."""
    for factor, values in SWEEPS.items():
        yield from ({**BASE, factor: value} for value in values)


def stream_cells() -> Iterator[Cell]:
    yield from ({**BASE, "streams": count} for count in STREAMS)


def measured_path_cells() -> Iterator[Cell]:
    yield from ({**BASE, "rtt": rtt} for rtt in REAL_RTT_MS)


def slow_path_cells() -> Iterator[Cell]:
    """Returns cells of paths whose capacity is smaller than what many connections have in flight."""
    yield {**BASE, "rate": 10, "megabytes": 16}
    yield {**BASE, "rate": 20, "rtt": 100, "megabytes": 32}


def long_file_cells() -> Iterator[Cell]:
    yield from ({**cell, "megabytes": LONG_MEGABYTES} for cell in target_cells())


def latin_square_cells() -> Iterator[Cell]:
    """Returns 25 cells in which every two values of two factors meet once: a Latin square of losses, and another of jitter, over round trips
    and rates.
    """
    for row, rtt in enumerate(RTT_MS):
        for column, rate in enumerate(RATE_MBPS):
            yield {
                **BASE,
                "rtt": rtt,
                "rate": rate,
                "loss_per_s": LOSS_PER_S[(row + column) % 5],
                "jitter": JITTER_OF_LATENCY[(2 * row + column) % 5],
                "megabytes": scaled_megabytes(rate),
            }


def factorial_cells() -> Iterator[Cell]:
    """Returns all cells of the factorial."""
    for rtt in RTT_MS:
        for rate in RATE_MBPS:
            for loss in LOSS_PER_S:
                for jitter in JITTER_OF_LATENCY:
                    yield {**BASE, "rtt": rtt, "rate": rate, "loss_per_s": loss, "jitter": jitter, "megabytes": scaled_megabytes(rate)}


GROUPS = {
    "bars": target_cells,
    "sweeps": sweep_cells,
    "streams": stream_cells,
    "real": measured_path_cells,
    "slow": slow_path_cells,
    "square": latin_square_cells,
    "long": long_file_cells,
    "full": factorial_cells,
}
# These groups are measured from disk to disk only, whatever media are requested.
DISK_ONLY = ("bars", "streams", "slow", "long")


def cells_of_groups(groups: Sequence[str], media: Sequence[str]) -> list[Cell]:
    """Returns the cells of the groups, each once, those from disk to disk first."""
    found = []
    for medium in media:
        for group in groups:
            if medium == "disk" or group not in DISK_ONLY:
                found += [{**cell, "medium": medium} for cell in GROUPS[group]()]
    return list({cell_key(cell): cell for cell in found}.values())


def scaled_megabytes(rate: int) -> int:
    """Returns the size for about four seconds of the link, in pieces of 16 MiB: the set-up then takes the same share at all rates."""
    return max(16, 512 * rate // 1000 // 16 * 16)


def cell_key(cell: Cell) -> tuple[object, ...]:
    """Returns the key that identifies a cell. Old results without a medium are from disk to disk."""
    return tuple(cell.get(factor, usual) for factor, usual in BASE.items())


def payload_mbps(cell: Cell) -> float:
    return float(cell["rate"]) * PAYLOAD_FRACTION


def ideal_s(cell: Cell) -> float:
    """Returns the seconds in which the path carries the file at the full rate from the start."""
    return float(cell["megabytes"]) * (1 << 20) * 8 / 1e6 / payload_mbps(cell)


def percent_of(cell: Cell, seconds: float) -> float:
    """Returns the percentage of the payload rate of the path."""
    return 100 * ideal_s(cell) / seconds


def bound_percent(cell: Cell) -> float:
    """Returns the percentage that remains after three round trips (TCP, TLS, the first request; the listing is requested with the latter, and
    other connections are made meanwhile) and slow start. In slow start, 16 connections have 20 segments in flight at first (10 of each were
    acknowledged with the handshake), and twice as many after each round trip.
    """
    trip = float(cell["rtt"]) / 1e3
    doublings = max(0.0, log2(payload_mbps(cell) * 1e6 / 8 * trip / (320 * 1448)))
    # Each of these round trips carries what is in flight: together as much as 1 / ln 2 full ones, as soon as there are some.
    lost_trips = doublings - (1 - 2**-doublings) / log(2)
    return percent_of(cell, ideal_s(cell) + (3 + lost_trips) * trip)


def target_percent(cell: Cell) -> float | None:
    """Returns the target of a cell at 1000 Mbit/s, in percent; None if the cell has no target."""
    if cell["rate"] != 1000 or cell["jitter"] or cell["loss_per_s"] or cell["streams"] != "auto" or cell["medium"] != "disk":
        return None
    easy = cell["rtt"] <= 40 and cell["loss"] <= 0.0001
    if cell["megabytes"] >= LONG_MEGABYTES:
        return 96 if easy else 95
    if easy:
        return 93
    return 86 if cell["loss"] <= 0.0001 else 85


def runs_per_cell(cell: Cell) -> int:
    return 3 if ideal_s(cell) < SHORT_RUN_S else 1


def timeout_s(cell: Cell) -> float:
    """Returns the time limit of a competitor. A much slower program needs no exact time, and a limit of less than minutes is enough for it."""
    return (5 if ideal_s(cell) < SHORT_RUN_S else 2) * ideal_s(cell) + 5


def estimate_s(cell: Cell, peers: int, runs: int) -> float:
    """Returns an estimate of the seconds that a cell takes with that number of competitors."""
    each = ideal_s(cell) * 1.2 + 1.5
    return 6 + float(cell["megabytes"]) / 300 + runs * each + 8 + peers * each * 1.8


def cell_title(cell: Cell) -> str:
    args = [f"{cell['rate']} Mbit/s", f"{cell['rtt']} ms"]
    args += [f"{cell['loss']:.2%} lost"] if cell["loss"] else []
    args += [f"{cell['loss_per_s']} losses/s"] if cell["loss_per_s"] else []
    args += [f"jitter {cell['jitter']:.2f} of the latency"] if cell["jitter"] else []
    args += [f"{cell['streams']} streams"] if cell["streams"] != "auto" else []
    return ", ".join(args + (["from memory to memory"] if cell["medium"] == "memory" else []))
