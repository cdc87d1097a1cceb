#!/usr/bin/env python3
"""What a step costs: CPU of deciding and writing, with functions that do next to nothing, beside the same without one.

Reads are aligned once, by bwa; each round replays what it said, without a step and with each function, one after the other. CPU is that of godwit and of the
Python it started, user and system, from its event "deciding duplicates" to its end, on one thread. Starting Python is part of it, though it is started before
anything is aligned; what that takes, which does not grow with the reads, is also measured by itself. --python names a Python with pyarrow.
"""

import resource
import statistics
import subprocess

import _measure as bench

# Name in the table, function, what is measured.
FUNCTIONS = [
    ("none", None, "no step"),
    ("same", "same", "all columns, returned as they are"),
    ("same_of_two", "same_of_two", "two columns, returned as they are"),
    ("mask_of_two", "mask_of_two", "two columns, a mask that keeps most"),
    ("rebuilt", "rebuilt", "all columns, a table that is made records again"),
]
MODULE = '''
import pyarrow as pa
import pyarrow.compute as pc


def same(table):
    return table


def same_of_two(table):
    return table


def mask_of_two(table):
    return pc.greater_equal(table["mapping_quality"], 10)


same_of_two.__godwit_step__ = mask_of_two.__godwit_step__ = {"columns": ["flags", "mapping_quality"]}


def rebuilt(table):
    return pa.table(table.columns, schema=table.schema)
'''


# Answers for an aligner once all reads have come.
REPLAY = """#!/bin/sh
cat "$1" > /dev/null
cat "$2"
"""
READ_GROUP = "@RG\\tID:bench\\tSM:bench\\tLB:bench"


def said_by_bwa(options, fasta, files):
    """What bwa makes of the reads, made once."""

    def build(folder):
        with (folder / "bench.sam").open("w") as sam:
            command = ["bwa", "mem", "-t", options.threads, "-K", "100000000", "-R", READ_GROUP, fasta, *files]
            bench.run(command, stdout=sam, stderr=subprocess.DEVNULL)
        (folder / "replay.sh").write_text(REPLAY)

    folder = files[0].parent
    return bench.make(folder.with_name(folder.name + "-said"), build)


def start_cpu_s(python):
    """CPU seconds of starting Python with what a step imports."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", "import dataclasses, hashlib, inspect, json, mmap, traceback, typing, pyarrow.ipc, pyarrow.compute"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--python", default="python3", help="a python with pyarrow (default: python3)")
    options = parser.parse_args()
    bench.need("bwa")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    files = [file.resolve() for file in bench.reads(options, godwit, fasta, gzip=False)]
    scratch = bench.scratch_directory(options, "step")
    (scratch / "steps.py").write_text(MODULE)
    said = said_by_bwa(options, fasta, files).resolve()
    command = [godwit, "align", "--reference", fasta.resolve(), "--reads", *files, "--sample", "bench", "--threads", "1", "--json"]
    command += ["--read-group", READ_GROUP, "--aligner", f"sh {said / 'replay.sh'} {{reads}} {said / 'bench.sam'}"]
    measured = {name: [] for name, _, _ in FUNCTIONS}
    for _ in range(options.rounds):
        for name, function, _ in FUNCTIONS:
            step = ["--step", f"steps:{function}", "--python", options.python] if function else []
            measured[name].append(bench.cpu_s_from("deciding duplicates", [*command, "--out", scratch / "out", *step], scratch, children=True))
            bench.progress(f"{name}: {measured[name][-1]:.2f} s")
    starts = [start_cpu_s(options.python) for _ in range(options.rounds)]
    records = 2 * options.pairs
    lines = ["# Steps", "", f"{options.pairs:,} pairs, one thread, {options.rounds} interleaved rounds; `bench/step.py`.", ""]
    lines += ["| step | CPU s of deciding and writing, median (range) | against none | microseconds a record |", "|---|---|---|---|"]
    base = statistics.median(measured["none"])
    for name, _, what in FUNCTIONS:
        values = measured[name]
        median = statistics.median(values)
        more = f"{1e6 * (median - base) / records:.2f}" if name != "none" else ""
        lines.append(f"| {what} | {median:.2f} ({min(values):.2f}-{max(values):.2f}) | {median / base:.2f} | {more} |")
    more = {name: [100 * (step / none - 1) for step, none in zip(measured[name], measured["none"])] for name in measured}
    promises = [
        bench.promise("identity step on all columns, more CPU of deciding and writing", more["same"], at_most=10, unit="%"),
        bench.promise("identity step on two columns, more CPU of deciding and writing", more["same_of_two"], at_most=10, unit="%"),
    ]
    start = statistics.median(starts)
    without = {name: 100 * statistics.median((step - start) / none - 1 for step, none in zip(measured[name], measured["none"])) for name in measured}
    around = bench.circumstances(options, godwit)
    lines += ["", *[f"- {bench.in_words(promised)}" for promised in promises]]
    lines += [f"- Starting Python takes {start:.2f} s of CPU, once for each thread that writes. Without it, it is {without['same']:.1f} % on all columns"
              f" and {without['same_of_two']:.1f} % on two."]
    text = "\n".join([*lines, "", f"{bench.machine(around)}; reference {around['reference']}.", ""])
    bench.write("step", options.results, text, around, promises, {"cpu_s": measured, "start_cpu_s": starts})


if __name__ == "__main__":
    main()
