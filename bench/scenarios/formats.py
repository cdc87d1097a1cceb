"""The cost of each output format beside BAM: size, and CPU seconds of the writing stage.

In: the BAM of `godwit markdup`. Each round marks it again into every set of formats, one after the other, with one thread; CPU is that
of godwit between its event "writing" and its end, user and system.
"""

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

from godwit_bench import harness

FORMAT_SETS = [["bam"], ["bam", "parquet"], ["bam", "arrow"], ["bam", "parquet", "arrow"], ["bam", "cram"], ["cram"], ["parquet"], ["arrow"]]


def measure_writing(godwit: Path, source: Path, fasta: Path, scratch: Path, formats: Sequence[str]) -> float:
    """Writes the formats once; returns the CPU seconds of writing."""
    harness.empty_directory(scratch)
    command = [godwit, "markdup", source, "--out", scratch / f"out.{formats[0]}", "--threads", "1", "--json", "--reference", fasta]
    if formats[1:]:
        command += ["--format", ",".join(formats[1:])]
    return harness.cpu_s_from_stage("writing", command)


def size_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    options = parser.parse_args()
    harness.require_tools("bwa")
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    source = harness.aligned_sam(options, godwit)
    scratch = options.cache.resolve() / "scratch-formats"
    measured: dict[str, list[float]] = {",".join(formats): [] for formats in FORMAT_SETS}
    sizes: dict[str, int] = {}
    for _ in range(options.rounds):
        for formats in FORMAT_SETS:
            measured[",".join(formats)].append(measure_writing(godwit, source, fasta, scratch, formats))
            sizes |= {name: size_bytes(scratch / f"out.{name}") for name in formats}
    records = 2 * options.pairs
    base = statistics.median(measured["bam"])
    lines = ["# Formats", "", f"{options.pairs:,} pairs, one thread, {options.rounds} interleaved rounds; `cargo xtask bench formats`.", ""]
    lines += ["| formats | CPU s, median (range) | against BAM | records per CPU s |", "|---|---|---|---|"]
    for name, values in measured.items():
        median = statistics.median(values)
        spread = f"{median:.2f} ({min(values):.2f}-{max(values):.2f})"
        lines.append(f"| {name} | {spread} | {median / base:.2f} | {records / median:,.0f} |")
    lines += ["", "| format | MB | against BAM |", "|---|---|---|"]
    lines += [f"| {name} | {bytes_ / 1e6:.1f} | {bytes_ / sizes['bam']:.2f} |" for name, bytes_ in sizes.items()]
    more = [100 * (both / bam - 1) for both, bam in zip(measured["bam,parquet"], measured["bam"], strict=False)]
    promises = [harness.target("Parquet beside BAM, more CPU of writing", more, at_most=45, unit="%")]
    around = harness.measurement_context(options, godwit)
    lines += ["", *[f"- {harness.format_target(promised)}" for promised in promises]]
    text = "\n".join([*lines, "", f"{harness.format_host(around)}; reference {around['reference']}.", ""])
    harness.write_result("formats", options.results, text, around, promises, {"cpu_s": measured, "bytes": sizes})
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
