"""Writes the bigWig and bigBed files with pyBigWig and pybigtools, and the expected rows as pyBigWig (libBigWig) reads them."""

import random

import pyBigWig
import pybigtools

CONTIGS = {"chr1": 40_000, "chr10": 20_000, "chr2": 10_000, "chrEmpty": 1000}
random.seed(46)


def write_signal(path):
    """Sections of all three forms, in turn, so that the index has several levels."""
    file = pyBigWig.open(path, "w")
    file.addHeader(list(CONTIGS.items()), maxZooms=3)
    for contig, length in list(CONTIGS.items())[:3]:
        at = random.randrange(50)
        while at < length - 800:
            count = random.randint(1, 12)
            values = [random.choice([0.0, 1.5, random.gauss(0, 100), random.random()]) for _ in range(count)]
            form = random.randrange(3)
            if form == 0:
                starts, ends = [], []
                for _ in range(count):
                    starts.append(at)
                    at += random.randint(1, 12)
                    ends.append(at)
                    at += random.choice([0, 0, random.randint(0, 9)])
                file.addEntries([contig] * count, starts, ends=ends, values=values)
            elif form == 1:
                span, starts = random.randint(1, 10), []
                for _ in range(count):
                    starts.append(at)
                    at += span + random.choice([0, random.randint(0, 9)])
                file.addEntries(contig, starts, values=values, span=span)
            else:
                span = random.randint(1, 10)
                step = span + random.randint(0, 5)
                file.addEntries(contig, at, values=values, span=span, step=step)
                at += count * step
            at += random.choice([0, random.randint(0, 400)])
    file.close()


def write_features(path):
    rows = []
    for contig, length in list(CONTIGS.items())[:3]:
        for number in range(300):
            start = random.randrange(length - 2000)
            end = start + random.choice([1, random.randint(1, 50), random.randint(1, 2000)])
            name = random.choice([".", f"f{number}", "a name"])
            rows.append((contig, start, end, f"{name}\t{random.randint(0, 1000)}\t{random.choice('+-.')}\t{start}\tx,y"))
    rows.sort(key=lambda row: (row[0], row[1], row[2]))
    pybigtools.open(path, "w").write(CONTIGS, iter(rows))


def write_expected(path, contigs, rows_of):
    with open(path + ".expected.tsv", "w") as out:
        for contig, length in contigs.items():
            for row in rows_of(contig, 0, length):
                print(contig, *row, sep="\t", file=out)
    # Random regions, each followed by the number of rows that overlap it, and the first and the last of them.
    with open(path + ".regions.tsv", "w") as out:
        for _ in range(200):
            contig, length = random.choice(list(contigs.items()))
            start = random.randrange(length - 1)
            end = min(length, start + random.choice([1, random.randint(1, 100), random.randint(1, length)]))
            rows = rows_of(contig, start, end)
            ends = [f"{rows[0][0]}-{rows[0][1]}", f"{rows[-1][0]}-{rows[-1][1]}"] if rows else ["", ""]
            print(contig, start, end, len(rows), *ends, sep="\t", file=out)


write_signal("signal.bw")
write_features("features.bb")
signal = pyBigWig.open("signal.bw")
write_expected(
    "signal.bw",
    CONTIGS,
    lambda *region: [(start, end, f"{value:.9g}") for start, end, value in signal.intervals(*region) or []],
)
features = pyBigWig.open("features.bb")
write_expected("features.bb", features.chroms(), lambda *region: features.entries(*region) or [])
# A file with contigs and without rows.
empty = pyBigWig.open("empty.bw", "w")
empty.addHeader([("chr1", 1000)], maxZooms=0)
empty.close()
