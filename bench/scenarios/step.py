"""The cost of a step: CPU of deciding and writing, with functions that do almost nothing, beside the same without a step.

bwa aligns the reads once; each round replays its output, without a step and with each function, one after the other. CPU is that of godwit
and of the Python it started, user and system, from its event "deciding duplicates" to its end, on one thread. It includes the start of
Python, although Python starts before the alignment; this time, which does not grow with the reads, is also measured separately. --python
names a Python with pyarrow.
"""

import argparse
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

from godwit_bench import harness

# Name in the table, function, what is measured.
FUNCTIONS = [
    ("none", None, "no step"),
    ("same", "same", "all columns, returned as they are"),
    ("same_of_two", "same_of_two", "two columns, returned as they are"),
    ("mask_of_two", "mask_of_two", "two columns, a mask that keeps most records"),
    ("rebuilt", "rebuilt", "all columns, a table that is made records again"),
]
STEP_MODULE_CODE = """
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
"""


# An aligner that writes its answers after it has received all reads.
REPLAY_SCRIPT = """#!/bin/sh
cat "$1" > /dev/null
cat "$2"
"""
READ_GROUP = "@RG\\tID:bench\\tSM:bench\\tLB:bench"


def bwa_sam(options: argparse.Namespace, fasta: Path, files: Sequence[Path]) -> Path:
    """Aligns the reads by bwa once and returns the SAM file."""

    def build(folder: Path) -> None:
        with (folder / "bench.sam").open("w") as sam:
            command = ["bwa", "mem", "-t", options.threads, "-K", "100000000", "-R", READ_GROUP, fasta, *files]
            harness.run_checked(command, stdout=sam, stderr=subprocess.DEVNULL)
        (folder / "replay.sh").write_text(REPLAY_SCRIPT)

    folder = files[0].parent
    return harness.build_once(folder.with_name(folder.name + "-said"), build)


def start_cpu_s(python: str) -> float:
    """Returns the CPU seconds of starting Python with the imports of a step."""
    before = harness.children_cpu_s()
    subprocess.run([python, "-c", "import dataclasses, hashlib, inspect, json, mmap, traceback, typing, pyarrow.ipc, pyarrow.compute"], check=True)
    return harness.children_cpu_s() - before


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument("--python", default="python3", help="a python with pyarrow (default: python3)")
    options = parser.parse_args()
    harness.require_tools("bwa")
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    files = [file.resolve() for file in harness.simulated_reads(options, godwit, fasta, gzip=False)]
    scratch = harness.scratch_directory(options, "step")
    (scratch / "steps.py").write_text(STEP_MODULE_CODE)
    said = bwa_sam(options, fasta, files).resolve()
    command = [godwit, "align", "--reference", fasta.resolve(), "--reads", *files, "--sample", "bench", "--threads", "1", "--json"]
    command += ["--read-group", READ_GROUP, "--aligner", f"sh {said / 'replay.sh'} {{reads}} {said / 'bench.sam'}"]
    measured: dict[str, list[float]] = {name: [] for name, _, _ in FUNCTIONS}
    for _ in range(options.rounds):
        for name, function, _ in FUNCTIONS:
            step = ["--step", f"steps:{function}", "--python", options.python] if function else []
            measured[name].append(
                harness.cpu_s_from_stage("deciding duplicates", [*command, "--out", scratch / "out", *step], scratch, children=True)
            )
            harness.report_progress(f"{name}: {measured[name][-1]:.2f} s")
    starts = [start_cpu_s(options.python) for _ in range(options.rounds)]
    records = 2 * options.pairs
    lines = ["# Steps", "", f"{options.pairs:,} pairs, one thread, {options.rounds} interleaved rounds; `cargo xtask bench step`.", ""]
    lines += ["| step | CPU s of deciding and writing, median (range) | against none | microseconds a record |", "|---|---|---|---|"]
    base = statistics.median(measured["none"])
    for name, _, what in FUNCTIONS:
        values = measured[name]
        median = statistics.median(values)
        each = f"{1e6 * (median - base) / records:.2f}" if name != "none" else ""
        lines.append(f"| {what} | {median:.2f} ({min(values):.2f}-{max(values):.2f}) | {median / base:.2f} | {each} |")
    more = {name: [100 * (step / none - 1) for step, none in zip(measured[name], measured["none"], strict=False)] for name in measured}
    promises = [
        harness.target("identity step on all columns, more CPU of deciding and writing", more["same"], at_most=10, unit="%"),
        harness.target("identity step on two columns, more CPU of deciding and writing", more["same_of_two"], at_most=10, unit="%"),
    ]
    start = statistics.median(starts)
    without = {
        name: 100 * statistics.median((step - start) / none - 1 for step, none in zip(measured[name], measured["none"], strict=False))
        for name in measured
    }
    around = harness.measurement_context(options, godwit)
    lines += ["", *[f"- {harness.format_target(promised)}" for promised in promises]]
    lines += [
        f"- Starting Python takes {start:.2f} s of CPU, once for each writing thread. Without it, the cost is {without['same']:.1f} % on all columns"
        f" and {without['same_of_two']:.1f} % on two."
    ]
    text = "\n".join([*lines, "", f"{harness.format_host(around)}; reference {around['reference']}.", ""])
    harness.write_result("step", options.results, text, around, promises, {"cpu_s": measured, "start_cpu_s": starts})


if __name__ == "__main__":
    main()
