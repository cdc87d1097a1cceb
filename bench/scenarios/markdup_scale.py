"""Time and memory of `godwit markdup` from one million pairs to many millions.

In: the aligned pairs of a simulated genome of 10 Mb, sent again and again through a pipe, each time with other read names and on contigs of
another name. So the largest input is a genome of 1 Gb at 30x. The program that writes the pipe uses the same cores; its CPU time is not counted.
Every count in the metrics file of N million pairs must be N times that of one million.
"""

import argparse
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from godwit_bench import harness

MIB = 1 << 20
RENAME_FIELDS = r"""/^@/ { next } { $1 = copy "." $1; if ($3 != "*") $3 = copy "_" $3; if ($7 != "=" && $7 != "*") $7 = copy "_" $7; print }"""


def write_header(sam: Path, copies: int, out: Path) -> None:
    """Writes the header of the input, with contigs `COPY_NAME` in the order of the copies."""
    lines = []
    with sam.open() as text:
        for line in text:
            if not line.startswith("@"):
                break
            lines.append(line)
    contigs = [line for line in lines if line.startswith("@SQ")]
    renamed = [line.replace("\tSN:", f"\tSN:{copy}_", 1) for copy in range(1, copies + 1) for line in contigs]
    out.write_text("".join([*renamed, *(line for line in lines if not line.startswith("@SQ"))]))


def duplicate_counts(metrics: Path) -> list[int]:
    """Returns the counts of the only library in a metrics file of MarkDuplicates."""
    lines = metrics.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("LIBRARY\t"))
    return [int(count) for count in lines[first + 1].split("\t")[1:8]]


def mark_copies(options: argparse.Namespace, godwit: Path, sam: Path, copies: int, scratch: Path) -> harness.Result:
    """Marks the duplicates of so many copies of the input; returns the measurement and the counts of the metrics file."""
    header, pipe, out = scratch / "header.sam", scratch / "pipe.sam", scratch / "marked.bam"
    write_header(sam, copies, header)
    os.mkfifo(pipe)
    rename = f"awk -F '\\t' -v OFS='\\t' -v copy=$copy {shlex.quote(RENAME_FIELDS)} {shlex.quote(str(sam))}"
    script = f"(cat {shlex.quote(str(header))}; for copy in $(seq {copies}); do {rename}; done) > {shlex.quote(str(pipe))}"
    source = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script])
    limits = ["--memory", options.memory, "--threads", options.threads, "--temp", scratch, "--quiet"]
    found = harness.measure_script(shlex.join(map(str, [godwit, "markdup", pipe, "--out", out, *limits])), scratch / "stderr.txt")
    if source.wait() != 0:
        harness.exit_with_error(f"the input of {copies} copies could not be written")
    found["counts"] = duplicate_counts(out.with_name("marked.duplicates.txt"))
    found["bam_bytes"] = out.stat().st_size
    pipe.unlink()
    out.unlink()
    return found


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--copies", type=harness.comma_separated(int), default=[1, 10, 100], help="copies of the pairs (default: 1,10,100)")
    parser.add_argument("--memory", default="4G", help="godwit's --memory (default: 4G)")
    options = parser.parse_args()
    harness.require_tools("bwa", "awk")
    godwit = harness.godwit_binary(options)
    sam = harness.aligned_sam(options, godwit)
    scratch = harness.scratch_directory(options, "markdup-scale")
    harness.load_into_page_cache(sam)
    measured: dict[int, harness.Result] = {}
    for copies in options.copies:
        measured[copies] = mark_copies(options, godwit, sam, copies, scratch)
        harness.report_progress(f"{copies} copies: {measured[copies]['wall_s']:.0f} s")
    first, last = measured[options.copies[0]], measured[options.copies[-1]]
    for copies, found in measured.items():
        if [count * options.copies[0] for count in found["counts"]] != [count * copies for count in first["counts"]]:
            harness.exit_with_error(f"the counts of {copies} copies are {found['counts']}, those of the first input {first['counts']}")

    def per_million(found: harness.Result, copies: int) -> float:
        return float(found["cpu_s"] / (copies * options.pairs) * 1e6)

    growth = per_million(last, options.copies[-1]) / per_million(measured[options.copies[-2]], options.copies[-2])
    promised = [harness.target("CPU per million pairs, largest input over the one before", [growth], at_most=1.1)]
    rows = [
        [
            f"{copies * options.pairs:,}",
            f"{found['wall_s']:.0f}",
            f"{found['cpu_s']:.0f}",
            f"{per_million(found, copies):.2f}",
            f"{found['peak_bytes'] / MIB:.0f}",
            f"{found['bam_bytes'] / 1e9:.2f}",
        ]
        for copies, found in measured.items()
    ]
    around = harness.measurement_context(options, godwit)
    heads = ["pairs", "wall s", "CPU s", "CPU s a million pairs", "peak MiB", "BAM, GB"]
    text = "\n".join(
        [
            "# Marking many millions of pairs",
            "",
            f"`--memory {options.memory}`, {options.threads} threads, one round; {harness.format_host(around)}. The wall time includes waiting",
            "for the program that writes the pipe. The counts of the metrics files are exact multiples of each other.",
            "",
            *harness.plain_table(heads, rows),
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("markdup_scale", options.results, text, around, promised, {"measured": measured})
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
