#!/usr/bin/env python3
"""Packing genomes beside bsdiff and zstd: bytes and CPU seconds, for each chromosome.

In: yeast (R64-1-1) and slices of GRCh38 from --data. The other individual is that of `godwit mutate` (rates of two human haplotypes, from a
seed). bsdiff and zstd --patch-from get the same two files. The rows named "assembly" are a second assembly of such an individual: the
sequence broken where it is unknown and elsewhere every 100 kb to 1 Mb, half a percent lacking at the breaks, half of the pieces from the other
strand, in another order, with other names and lines of 80 bases. With --reads also a BAM: what its columns take, each by its kind, beside
CRAM 3.1. AGC is not in Debian; its figure is an earlier measurement
on an input of the same shape (13.6 Mb of GRCh38, another individual): 112,700 bytes more in the archive.
"""

import gzip
import json
import os
import random
import re
import subprocess

import _measure as bench

AGC_BYTES = 112_700
COMPLEMENT = bytes.maketrans(b"ACGTacgt", b"TGCAtgca")


def records(path):
    """Name and lines of each sequence."""
    name, lines = None, []
    with (gzip.open if path.name.endswith(".gz") else open)(path, "rb") as file:
        for line in file:
            if line.startswith(b">"):
                if name:
                    yield name, lines
                name, lines = line[1:].split()[0].decode(), []
            else:
                lines.append(line)
    yield name, lines


def timed(command, folder):
    """CPU seconds of a command."""
    process = subprocess.Popen([str(word) for word in command], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        bench.fail(f"{command} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def packed(godwit, folder, old, new, threads):
    """Bytes and CPU of packing (reference read from what is kept) and unpacking; what comes back is compared."""
    timed([godwit, "pack", "--threads", threads, "--reference", old, new, "x.gwp"], folder)
    pack = timed([godwit, "pack", "--threads", threads, "--reference", old, new, "x.gwp"], folder)
    unpack = timed([godwit, "unpack", "--threads", threads, "--reference", old, "x.gwp", "x.back"], folder)
    bench.run(["cmp", folder / new, folder / "x.back"])
    return {"bytes": (folder / "x.gwp").stat().st_size, "pack": pack, "unpack": unpack}


def size_of(command, folder, out):
    cpu = timed(command, folder)
    return {"bytes": (folder / out).stat().st_size, "pack": cpu}


def second_assembly(path, seed):
    """The sequence of a FASTA file in pieces, as if somebody else had assembled it; written over the file."""
    draw = random.Random(seed)
    sequence = path.read_bytes().split(b"\n", 1)[1].replace(b"\n", b"")
    pieces = []
    for known in re.findall(rb"[^N]+", sequence):
        start = 0
        while start < len(known):
            end = start + draw.randrange(100_000, 1_000_000)
            pieces.append(known[start:end])
            start = end + draw.randrange(5_000)
    draw.shuffle(pieces)
    with open(path, "wb") as fasta:
        for number, piece in enumerate(pieces, 1):
            if draw.random() < 0.5:
                piece = piece.translate(COMPLEMENT)[::-1]
            lines = [piece[start : start + 80] for start in range(0, len(piece), 80)]
            fasta.write(b">ctg%06d len=%d\n" % (number, len(piece)) + b"\n".join(lines) + b"\n")


def bare_sequence(path):
    """All known bases of a FASTA file."""
    return b"".join(line.strip() for line in path.read_bytes().splitlines() if not line.startswith(b">")).replace(b"N", b"")


def compare(godwit, folder, name, lines, options, assembly=False):
    """All programs on one chromosome."""
    (folder / "old.fa").write_bytes(b">" + name.encode() + b"\n" + b"".join(lines))
    timed([godwit, "mutate", "old.fa", "new.fa", "--seed", options.seed], folder)
    if assembly:
        second_assembly(folder / "new.fa", options.seed)
    for which in ("old", "new"):
        bare = bare_sequence(folder / f"{which}.fa")
        (folder / f"{which}.bare").write_bytes(bare)
        (folder / f"{which}.bare.fa").write_bytes(b">x\n" + bare + b"\n")
    row = {"name": f"{name}, assembly" if assembly else name, "bases": (folder / "old.bare").stat().st_size, "raw": (folder / "new.fa").stat().st_size}
    row["godwit"] = packed(godwit, folder, "old.fa", "new.fa", options.threads)
    row["godwit, bare"] = packed(godwit, folder, "old.bare.fa", "new.bare.fa", options.threads)
    row["bsdiff"] = size_of(["bsdiff", "old.fa", "new.fa", "x"], folder, "x")
    row["bsdiff, bare"] = size_of(["bsdiff", "old.bare", "new.bare", "x"], folder, "x")
    row["zstd -3"] = size_of(["zstd", "-qf", "-3", "new.fa", "-o", "x"], folder, "x")
    row["zstd -3 --patch-from"] = size_of(["zstd", "-qf", "-3", "--long=27", "--patch-from=old.fa", "new.fa", "-o", "x"], folder, "x")
    if options.slow:
        row["zstd -19"] = size_of(["zstd", "-qf", "-19", "new.fa", "-o", "x"], folder, "x")
        row["zstd -19 --patch-from"] = size_of(["zstd", "-qf", "-19", "--long=27", "--patch-from=old.fa", "new.fa", "-o", "x"], folder, "x")
    return row


def of_reads(bam, folder):
    """Bytes of a BAM as CRAM 3.1, and as columns, each by zstd -19."""
    for name, kind in (("x.31.cram", "version=3.1"), ("x.archive.cram", "version=3.1,archive")):
        words = [word for option in kind.split(",") for word in ("--output-fmt-option", option)]
        bench.run(["samtools", "view", "-C", "-o", folder / name, *words, "--output-fmt-option", "no_ref=1", bam])
    text = subprocess.run(["samtools", "view", str(bam)], check=True, capture_output=True).stdout
    fields = [line.split(b"\t", 11) for line in text.splitlines()]
    columns = {"names": 0, "flags": 1, "contigs": 2, "positions": 3, "mapping qualities": 4, "CIGAR": 5, "mates' contigs": 6,
               "mates' positions": 7, "template lengths": 8, "bases": 9, "qualities": 10, "tags": 11}
    taken = {}
    for column, at in columns.items():
        (folder / "x").write_bytes(b"\n".join(line[at] if at < len(line) else b"" for line in fields))
        timed(["zstd", "-qf", "-19", "x", "-o", "x.zst"], folder)
        taken[column] = (folder / "x.zst").stat().st_size
    size = lambda name: (folder / name).stat().st_size
    return {"BAM": bam.stat().st_size, "CRAM 3.1": size("x.31.cram"), "CRAM 3.1, archive": size("x.archive.cram"),
            "columns by zstd -19": sum(taken.values()), "columns": taken}


def in_table(rows):
    names = [name for name in rows[0] if isinstance(rows[0][name], dict)]
    lines = ["| sequence | bases | FASTA | " + " | ".join(names) + " | bare ÷ bsdiff | wrapped ÷ bsdiff |", "|---" * (len(names) + 5) + "|"]
    for row in rows:
        bytes_ = [f"{row[name]['bytes']:,}" if name in row else "" for name in names]
        bare = row["godwit, bare"]["bytes"] / row["bsdiff, bare"]["bytes"]
        wrapped = row["godwit"]["bytes"] / row["bsdiff"]["bytes"]
        lines.append(f"| {row['name']} | {row['bases']:,} | {row['raw']:,} | " + " | ".join(bytes_) + f" | {bare:.3f} | {wrapped:.3f} |")
    return "\n".join(lines)


def in_cost_table(row):
    lines = ["| program | pack, CPU s | unpack, CPU s |", "|---|---|---|"]
    for name, cost in row.items():
        if isinstance(cost, dict):
            unpack = f"{cost['unpack']:.2f}" if "unpack" in cost else ""
            lines.append(f"| {name} | {cost['pack']:.2f} | {unpack} |")
    return "\n".join(lines)


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--data", type=bench.Path, required=True, help="directory with human/ and yeast/")
    parser.add_argument("--reads", type=bench.Path, help="a BAM to compare columns with CRAM 3.1")
    parser.add_argument("--sequences", default="", help="names of those to take, separated by commas (default: all)")
    parser.add_argument("--slow", action="store_true", help="zstd -19 too")
    options = parser.parse_args()
    bench.need("bsdiff", "zstd", "samtools")
    godwit = bench.godwit_binary(options)
    folder = bench.scratch_directory(options, "pack")
    human = options.data / "human/grch38.chr20_and_21_10M.fa.gz"
    yeast = next((options.data / "yeast").glob("*.fa.gz"))
    chosen = {name for name in options.sequences.split(",") if name}
    sequences = [record for path in (human, yeast) for record in records(path) if not chosen or record[0] in chosen]
    rows = [compare(godwit, folder, name, lines, options) for name, lines in sequences]
    rows += [compare(godwit, folder, name, lines, options, assembly=True) for name, lines in sequences if name.startswith("chr")]
    report = {"circumstances": bench.host(godwit), "rows": rows}
    parts = ["# Packing genomes\n", __doc__.split("\n", 1)[1].strip(), "", in_table(rows), "", f"Cost of {rows[0]['name']}:\n", in_cost_table(rows[0])]
    grch38 = [row for row in rows if row["name"] in ("chr20", "chr21")]
    together = {name: sum(row[name]["bytes"] for row in grch38) for name in ("godwit", "godwit, bare", "bsdiff", "bsdiff, bare")}
    report["promises"] = [
        bench.promise("GRCh38, bare, of bsdiff", [together["godwit, bare"] / together["bsdiff, bare"]], at_most=0.65),
        bench.promise("GRCh38, wrapped, of bsdiff", [together["godwit"] / together["bsdiff"]], at_most=0.035),
        bench.promise("GRCh38, of AGC's increment", [together["godwit"] / AGC_BYTES], at_most=0.5),
    ]
    parts += ["", *(f"- {bench.in_words(promise)}" for promise in report["promises"])]
    if options.reads:
        report["reads"] = of_reads(options.reads, folder)
        parts += ["", "Reads, bytes:\n", "```", json.dumps(report["reads"], indent=1), "```"]
    parts += ["", "```", json.dumps(report["circumstances"], indent=1), "```", ""]
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "pack.md").write_text("\n".join(parts))
    (options.results / "pack.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
