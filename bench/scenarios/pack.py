"""Packing genomes beside bsdiff and zstd: bytes and CPU seconds, for each chromosome.

In: yeast (R64-1-1) and slices of GRCh38 from --data. The other individual is that of `godwit mutate` (rates of two human haplotypes, from a
seed). bsdiff and zstd --patch-from get the same two files. The rows named "assembly" are a second assembly of such an individual: the
sequence is broken where it is unknown and elsewhere every 100 kb to 1 Mb. Half a percent is missing at the breaks, and half of the pieces are from
the other strand. The pieces have another order, other names and lines of 80 bases. With --reads also a BAM: the size of its columns, each by its
kind, beside CRAM 3.1. AGC is not in Debian; its value is an earlier measurement
on an input of the same shape (13.6 Mb of GRCh38, another individual): 112,700 bytes more in the archive.
"""

import argparse
import gzip
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from godwit_bench import harness

AGC_INCREMENT_BYTES = 112_700
COMPLEMENT = bytes.maketrans(b"ACGTacgt", b"TGCAtgca")


def records(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Returns the name and the lines of each sequence."""
    name = ""
    lines: list[bytes] = []
    with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
        for line in file:
            if line.startswith(b">"):
                if name:
                    yield name, lines
                name, lines = line[1:].split()[0].decode(), []
            else:
                lines.append(line)
    yield name, lines


def time_command(command: harness.Command, folder: Path) -> float:
    """Returns the CPU seconds of a command."""
    process = subprocess.Popen([str(word) for word in command], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        harness.exit_with_error(f"{command} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure_godwit(godwit: Path, folder: Path, old: str, new: str, threads: int) -> harness.Result:
    """Measures bytes and CPU seconds of packing (with the cached reference) and unpacking; compares the unpacked file."""
    time_command([godwit, "pack", "--threads", threads, "--reference", old, new, "x.gwp"], folder)
    pack = time_command([godwit, "pack", "--threads", threads, "--reference", old, new, "x.gwp"], folder)
    unpack = time_command([godwit, "unpack", "--threads", threads, "--reference", old, "x.gwp", "x.back"], folder)
    harness.run_checked(["cmp", folder / new, folder / "x.back"])
    return {"bytes": (folder / "x.gwp").stat().st_size, "pack": pack, "unpack": unpack}


def output_size(command: harness.Command, folder: Path, out: str) -> harness.Result:
    cpu = time_command(command, folder)
    return {"bytes": (folder / out).stat().st_size, "pack": cpu}


def write_second_assembly(path: Path, seed: int) -> None:
    """Overwrites a FASTA file with its sequence in pieces, as an independent assembly would have them."""
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
    with path.open("wb") as fasta:
        for number, piece in enumerate(pieces, 1):
            if draw.random() < 0.5:
                piece = piece.translate(COMPLEMENT)[::-1]
            lines = [piece[start : start + 80] for start in range(0, len(piece), 80)]
            fasta.write(b">ctg%06d len=%d\n" % (number, len(piece)) + b"\n".join(lines) + b"\n")


def bare_sequence(path: Path) -> bytes:
    """Returns all known bases of a FASTA file."""
    return b"".join(line.strip() for line in path.read_bytes().splitlines() if not line.startswith(b">")).replace(b"N", b"")


def compare(godwit: Path, folder: Path, name: str, lines: list[bytes], options: argparse.Namespace, assembly: bool = False) -> harness.Result:
    """Measures all programs on one chromosome."""
    (folder / "old.fa").write_bytes(b">" + name.encode() + b"\n" + b"".join(lines))
    time_command([godwit, "mutate", "old.fa", "new.fa", "--seed", options.seed], folder)
    if assembly:
        write_second_assembly(folder / "new.fa", options.seed)
    for which in ("old", "new"):
        bare = bare_sequence(folder / f"{which}.fa")
        (folder / f"{which}.bare").write_bytes(bare)
        (folder / f"{which}.bare.fa").write_bytes(b">x\n" + bare + b"\n")
    row = {
        "name": f"{name}, assembly" if assembly else name,
        "bases": (folder / "old.bare").stat().st_size,
        "raw": (folder / "new.fa").stat().st_size,
    }
    row["godwit"] = measure_godwit(godwit, folder, "old.fa", "new.fa", options.threads)
    row["godwit, bare"] = measure_godwit(godwit, folder, "old.bare.fa", "new.bare.fa", options.threads)
    row["bsdiff"] = output_size(["bsdiff", "old.fa", "new.fa", "x"], folder, "x")
    row["bsdiff, bare"] = output_size(["bsdiff", "old.bare", "new.bare", "x"], folder, "x")
    row["zstd -3"] = output_size(["zstd", "-qf", "-3", "new.fa", "-o", "x"], folder, "x")
    row["zstd -3 --patch-from"] = output_size(["zstd", "-qf", "-3", "--long=27", "--patch-from=old.fa", "new.fa", "-o", "x"], folder, "x")
    if options.slow:
        row["zstd -19"] = output_size(["zstd", "-qf", "-19", "new.fa", "-o", "x"], folder, "x")
        row["zstd -19 --patch-from"] = output_size(["zstd", "-qf", "-19", "--long=27", "--patch-from=old.fa", "new.fa", "-o", "x"], folder, "x")
    return row


def measure_reads(bam: Path, folder: Path) -> harness.Result:
    """Returns the bytes of a BAM as CRAM 3.1, and as columns, each by zstd -19."""
    for name, kind in (("x.31.cram", "version=3.1"), ("x.archive.cram", "version=3.1,archive")):
        args = [word for option in kind.split(",") for word in ("--output-fmt-option", option)]
        harness.run_checked(["samtools", "view", "-C", "-o", folder / name, *args, "--output-fmt-option", "no_ref=1", bam])
    text = subprocess.run(["samtools", "view", str(bam)], check=True, capture_output=True).stdout
    fields = [line.split(b"\t", 11) for line in text.splitlines()]
    columns = {
        "names": 0,
        "flags": 1,
        "contigs": 2,
        "positions": 3,
        "mapping qualities": 4,
        "CIGAR": 5,
        "mates' contigs": 6,
        "mates' positions": 7,
        "template lengths": 8,
        "bases": 9,
        "qualities": 10,
        "tags": 11,
    }
    taken = {}
    for column, at in columns.items():
        (folder / "x").write_bytes(b"\n".join(line[at] if at < len(line) else b"" for line in fields))
        time_command(["zstd", "-qf", "-19", "x", "-o", "x.zst"], folder)
        taken[column] = (folder / "x.zst").stat().st_size
    return {
        "BAM": bam.stat().st_size,
        "CRAM 3.1": (folder / "x.31.cram").stat().st_size,
        "CRAM 3.1, archive": (folder / "x.archive.cram").stat().st_size,
        "columns by zstd -19": sum(taken.values()),
        "columns": taken,
    }


def size_rows(rows: list[harness.Result]) -> str:
    names = [name for name in rows[0] if isinstance(rows[0][name], dict)]
    lines = ["| sequence | bases | FASTA | " + " | ".join(names) + " | bare ÷ bsdiff | wrapped ÷ bsdiff |", "|---" * (len(names) + 5) + "|"]
    for row in rows:
        bytes_ = [f"{row[name]['bytes']:,}" if name in row else "" for name in names]
        bare = row["godwit, bare"]["bytes"] / row["bsdiff, bare"]["bytes"]
        wrapped = row["godwit"]["bytes"] / row["bsdiff"]["bytes"]
        lines.append(f"| {row['name']} | {row['bases']:,} | {row['raw']:,} | " + " | ".join(bytes_) + f" | {bare:.3f} | {wrapped:.3f} |")
    return "\n".join(lines)


def cost_rows(row: harness.Result) -> str:
    lines = ["| program | pack, CPU s | unpack, CPU s |", "|---|---|---|"]
    for name, cost in row.items():
        if isinstance(cost, dict):
            unpack = f"{cost['unpack']:.2f}" if "unpack" in cost else ""
            lines.append(f"| {name} | {cost['pack']:.2f} | {unpack} |")
    return "\n".join(lines)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with human/ and yeast/")
    parser.add_argument("--reads", type=Path, help="a BAM to compare columns with CRAM 3.1")
    parser.add_argument("--sequences", default="", help="names of the sequences to pack, separated by commas (default: all)")
    parser.add_argument("--slow", action="store_true", help="zstd -19 too")
    options = parser.parse_args()
    harness.require_tools("bsdiff", "zstd", "samtools")
    godwit = harness.godwit_binary(options)
    folder = harness.scratch_directory(options, "pack")
    human = options.data / "human/grch38.chr20_and_21_10M.fa.gz"
    yeast = next((options.data / "yeast").glob("*.fa.gz"))
    chosen = {name for name in options.sequences.split(",") if name}
    sequences = [record for path in (human, yeast) for record in records(path) if not chosen or record[0] in chosen]
    rows = [compare(godwit, folder, name, lines, options) for name, lines in sequences]
    rows += [compare(godwit, folder, name, lines, options, assembly=True) for name, lines in sequences if name.startswith("chr")]
    report: harness.Result = {"circumstances": harness.host_description(godwit), "rows": rows}
    parts = ["# Packing genomes\n", __doc__.split("\n", 1)[1].strip(), "", size_rows(rows), "", f"Cost of {rows[0]['name']}:\n", cost_rows(rows[0])]
    grch38 = [row for row in rows if row["name"] in ("chr20", "chr21")]
    together = {name: sum(row[name]["bytes"] for row in grch38) for name in ("godwit", "godwit, bare", "bsdiff", "bsdiff, bare")}
    promises = [
        harness.target("GRCh38, bare, of bsdiff", [together["godwit, bare"] / together["bsdiff, bare"]], at_most=0.65),
        harness.target("GRCh38, wrapped, of bsdiff", [together["godwit"] / together["bsdiff"]], at_most=0.035),
        harness.target("GRCh38, of AGC's increment", [together["godwit"] / AGC_INCREMENT_BYTES], at_most=0.5),
    ]
    report["promises"] = promises
    parts += ["", *(f"- {harness.format_target(promise)}" for promise in promises)]
    if options.reads:
        report["reads"] = measure_reads(options.reads, folder)
        parts += ["", "Reads, bytes:\n", "```", json.dumps(report["reads"], indent=1), "```"]
    parts += ["", "```", json.dumps(report["circumstances"], indent=1), "```", ""]
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "pack.md").write_text("\n".join(parts))
    (options.results / "pack.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
