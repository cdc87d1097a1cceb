"""Which paths are measured, what is asked of each, and what a path leaves at most: nothing here runs anything.

A cell is one path, the file that goes over it, and how it is copied. Cells of a group belong to one question; `named` puts groups together.
"""

from math import log, log2

RTT_MS = [10, 40, 60, 80, 100]
RATE_MBPS = [100, 250, 500, 750, 1000]
LOSS_PER_S = [0, 1, 2, 3, 4]
JITTER_OF_LATENCY = [0, 1 / 3, 1 / 2, 2 / 3, 1]
STREAMS = [1, 2, 4, 8, 16, 32, 64, 128, 200]
# The two real paths of the study: 9 hops and 15 hops.
REAL_RTT_MS = [42, 92]
LONG_MEGABYTES = 4096
BASE = {
    "rate": 1000, "rtt": 40, "loss_per_s": 0, "loss": 0.0, "jitter": 0, "streams": "auto", "mode": "fast", "medium": "disk", "megabytes": 512,
}
MEDIA = ("disk", "memory")
SWEEPS = {"rtt": RTT_MS, "rate": RATE_MBPS, "loss_per_s": LOSS_PER_S, "jitter": JITTER_OF_LATENCY}
# Copies that take less than this are made three times: one alone says too little.
SHORT_S = 6
# Bytes of the payload of a full packet over all of it: 40 are headers, 12 time stamps.
PAYLOAD = 1448 / 1500


def bars():
    """The cells that bars are set for."""
    for rtt in (10, 40, 100):
        yield from ({**BASE, "rtt": rtt, "loss": loss} for loss in (0.0, 0.0001, 0.001))


def sweeps():
    """One factor at a time."""
    for factor, values in SWEEPS.items():
        yield from ({**BASE, factor: value} for value in values)


def streams():
    yield from ({**BASE, "streams": count} for count in STREAMS)


def real():
    yield from ({**BASE, "rtt": rtt} for rtt in REAL_RTT_MS)


def slow():
    """Paths that hold less than many connections have under way."""
    yield {**BASE, "rate": 10, "megabytes": 16}
    yield {**BASE, "rate": 20, "rtt": 100, "megabytes": 32}


def long():
    yield from ({**cell, "megabytes": LONG_MEGABYTES} for cell in bars())


def square():
    """25 cells in which every two values of two factors meet once: a Latin square of losses, and another of jitter, over round trips and rates."""
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


def full():
    """All of the factorial."""
    for rtt in RTT_MS:
        for rate in RATE_MBPS:
            for loss in LOSS_PER_S:
                for jitter in JITTER_OF_LATENCY:
                    yield {**BASE, "rtt": rtt, "rate": rate, "loss_per_s": loss, "jitter": jitter, "megabytes": scaled_megabytes(rate)}


GROUPS = {"bars": bars, "sweeps": sweeps, "streams": streams, "real": real, "slow": slow, "square": square, "long": long, "full": full}
# Whatever else is asked for, these are done from disk to disk only.
DISK_ONLY = ("bars", "streams", "slow", "long")


def named(groups, media):
    """The cells of groups, each once, those from disk to disk first."""
    found = []
    for medium in media:
        for group in groups:
            if medium == "disk" or group not in DISK_ONLY:
                found += [{**cell, "medium": medium} for cell in GROUPS[group]()]
    return list({key_of(cell): cell for cell in found}.values())


def scaled_megabytes(rate):
    """Some four seconds of a link, in pieces of 16 MiB: what setting up costs is then the same share at all rates."""
    return max(16, 512 * rate // 1000 // 16 * 16)


def key_of(cell):
    """What tells one cell from others; cells of before it was a factor are from disk to disk."""
    return tuple(cell.get(factor, usual) for factor, usual in BASE.items())


def payload_mbps(cell):
    return cell["rate"] * PAYLOAD


def ideal_s(cell):
    """Seconds in which the path carries the file, full from the first moment on."""
    return cell["megabytes"] * (1 << 20) * 8 / 1e6 / payload_mbps(cell)


def percent_of(cell, seconds):
    """Share of what the path carries of payload."""
    return 100 * ideal_s(cell) / seconds


def bound_percent(cell):
    """What is left of the link when three round trips have gone (TCP, TLS, the first request, beside which it is asked what there is; other
    connections are made meanwhile), and slow start, in which 16 connections have 20 segments under way at first (10 of each were acknowledged with the
    handshake), and twice as many after each round trip."""
    trip = cell["rtt"] / 1e3
    doublings = max(0.0, log2(payload_mbps(cell) * 1e6 / 8 * trip / (320 * 1448)))
    # It carries what is under way in each of them: all of them together what 1 / ln 2 would, as soon as there are some.
    lost_trips = doublings - (1 - 2**-doublings) / log(2)
    return percent_of(cell, ideal_s(cell) + (3 + lost_trips) * trip)


def bar_percent(cell):
    """What is asked of a cell at 1000 Mbit/s; None where nothing is said."""
    if cell["rate"] != 1000 or cell["jitter"] or cell["loss_per_s"] or cell["streams"] != "auto" or cell["medium"] != "disk":
        return None
    easy = cell["rtt"] <= 40 and cell["loss"] <= 0.0001
    if cell["megabytes"] >= LONG_MEGABYTES:
        return 96 if easy else 95
    if easy:
        return 93
    return 86 if cell["loss"] <= 0.0001 else 85


def runs_of(cell):
    return 3 if ideal_s(cell) < SHORT_S else 1


def patience_s(cell):
    """How long another program may take. One that is much slower says nothing more by taking longer, and where it would take minutes, less of that will do."""
    return (5 if ideal_s(cell) < SHORT_S else 2) * ideal_s(cell) + 5


def estimate_s(cell, peers, runs):
    """About how long a cell takes to measure, with so many other programs."""
    each = ideal_s(cell) * 1.2 + 1.5
    return 6 + cell["megabytes"] / 300 + runs * each + 8 + peers * each * 1.8


def title_of(cell):
    words = [f"{cell['rate']} Mbit/s", f"{cell['rtt']} ms"]
    words += [f"{cell['loss']:.2%} lost"] if cell["loss"] else []
    words += [f"{cell['loss_per_s']} losses/s"] if cell["loss_per_s"] else []
    words += [f"jitter {cell['jitter']:.2f} of the latency"] if cell["jitter"] else []
    words += [f"{cell['streams']} streams"] if cell["streams"] != "auto" else []
    return ", ".join(words + (["from memory to memory"] if cell["medium"] == "memory" else []))
