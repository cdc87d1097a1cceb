"""The cost of a head failure in a cluster run.

A cluster run with local workers is killed, including its head, when half of its blocks are aligned, and again when all are; then it is
resumed. The report states the number of blocks that were aligned again, the time of the resumed run compared with a baseline run, and the
bytes of the checkpoint on disk. Then a run in one process is killed before its last blocks are aligned, on reads of random bases, which
need little alignment time. The report states the time of reading after the resume, from the start of a block and, without the stored gzip
windows that this needs, from the start of the files.
"""

import argparse
import filecmp
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

from godwit_bench import harness


def run_until(command: list[str], kill_after: int | None = None) -> tuple[float, float]:
    """Runs a command to the end, or until `kill_after` blocks are aligned. Returns wall and CPU seconds."""
    before, started = harness.children_cpu_s(), time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    aligned, said = 0, []
    for line in harness.piped(process.stderr):
        said.append(line)
        aligned += '"event":"aligned"' in line
        if kill_after is not None and aligned >= kill_after:
            process.send_signal(signal.SIGKILL)
            break
    harness.piped(process.stderr).read()
    process.wait()
    if kill_after is None and process.returncode != 0:
        harness.exit_with_error("".join(said[-5:]))
    return time.monotonic() - started, harness.children_cpu_s() - before


def bytes_below(folder: Path) -> dict[str, int]:
    """Returns the bytes of all files below a directory, by their names."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            sizes[path.name] = sizes.get(path.name, 0) + path.stat().st_size
    return sizes


def random_reads(options: argparse.Namespace) -> list[Path]:
    """Writes two files of reads of random bases, compressed by gzip -6 as sequencing centres do."""

    def build(folder: Path) -> None:
        draw = random.Random(options.seed)
        bases, qualities = (bytes(letters[byte % len(letters)] for byte in range(256)) for letters in (b"ACGT", b"FFFFFFFFFFFF:,#F"))
        for mate in (1, 2):
            with (folder / f"R{mate}.fastq.gz").open("wb") as file:
                gzip = subprocess.Popen(["gzip", "-6", "-c"], stdin=subprocess.PIPE, stdout=file)
                for pair in range(options.reading_pairs):
                    read, quality = draw.randbytes(148).translate(bases), draw.randbytes(148).translate(qualities)
                    name = b"@A00100:55:HXXXXDSXX:1:%d:%d:%d %d:N:0:ACGTACGT" % (1101 + pair // 4000, pair * 7919 % 32768, pair % 36000, mate)
                    harness.piped(gzip.stdin).write(b"%s\n%s\n+\n%s\n" % (name, read, quality))
                harness.piped(gzip.stdin).close()
                if gzip.wait() != 0:
                    harness.exit_with_error("gzip failed")

    folder = harness.build_once(options.cache / f"random-{options.reading_pairs}-{options.seed}", build)
    return [folder / f"R{mate}.fastq.gz" for mate in (1, 2)]


def measure_resumed_input(options: argparse.Namespace, godwit: Path, fasta: Path, scratch: Path) -> str:
    """Returns a text about resuming the input in one process."""
    files, out = random_reads(options), scratch / "reading"
    blocks = -(-options.reading_pairs * 296 // 20_000_000)
    args = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--out", out, "--json"]
    command = [str(word) for word in [*args, "--threads", options.threads, "--block-bases", 20_000_000]]
    run_until(command, blocks - 2)
    kept = out.with_name("reading-kept")
    out.rename(kept)
    rows = []
    for name, keeps_windows in (("where a block starts", True), ("the start of the files", False)):
        seconds, cpus = [], []
        for _ in range(options.rounds):
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(kept, out)
            if not keeps_windows:
                os.truncate(out / ".godwit" / "windows", 0)
            _, cpu = run_until([*command, "--resume"])
            report = json.loads((out / "run.json").read_text())
            if any(("read_from" in file) != keeps_windows for file in report["inputs"][1:]):
                harness.exit_with_error("reading did not start at the expected position")
            seconds.append(next(stage["seconds"] for stage in report["stages"] if stage["name"] == "read"))
            cpus.append(cpu)
        spread = f"{min(seconds):.2f} - {max(seconds):.2f}"
        rows.append(f"| {name} | {statistics.median(seconds):.2f} ({spread}) | {statistics.median(cpus):.1f} |\n")
    text = (
        f"\n## Resuming the input\n\n{options.reading_pairs:,} pairs of 2x148 random bases by gzip -6, one process killed when {blocks - 2} of "
        f"{blocks} blocks were aligned, and resumed; median of {options.rounds}, spread.\n\n| reading begins at | reading s | CPU s of the "
        "whole run |\n|---|---|---|\n"
    )
    return text + "".join(rows)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--reading-pairs", type=int, default=1_000_000, help="pairs of random bases for the resumed input (default: 1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the resumed input (default: 3)")
    parser.add_argument("--nodes", type=int, default=4, help="workers, of one thread each (default: 4)")
    parser.add_argument("--block-bases", type=int, default=2_000_000, help="bwa's -K (default: 2,000,000)")
    options = parser.parse_args()
    harness.require_tools("bwa")
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    files = harness.simulated_reads(options, godwit, fasta, gzip=True)
    scratch = harness.scratch_directory(options, "restart")

    def command(out: Path) -> list[str]:
        args = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--out", out, "--json", "--threads", 1]
        args += ["--block-bases", options.block_bases, "--on", "local", "--nodes", options.nodes]
        return [str(word) for word in args]

    undisturbed = scratch / "undisturbed"
    wall, cpu = run_until(command(undisturbed))
    blocks = json.loads((undisturbed / "run.json").read_text())["exchange"]["blocks"]
    rows = [f"| undisturbed | {wall:.1f} | {cpu:.1f} | {blocks} | | | |"]
    kept_text, twice = "", []
    for name, kill_after in (("half aligned", blocks // 2), ("all aligned", blocks)):
        out = scratch / f"killed-{kill_after}"
        first, _ = run_until(command(out), kill_after)
        sizes = bytes_below(out / ".godwit")
        wall, cpu = run_until([*command(out), "--resume"])
        report = json.loads((out / "run.json").read_text())
        exchange = report["exchange"]
        if not filecmp.cmp(out / "bench.bam", undisturbed / "bench.bam", shallow=False):
            harness.exit_with_error("the two BAMs differ")
        twice.append(exchange["alignments"] - exchange["stragglers"] + exchange["kept_blocks"] - blocks)
        read = next(stage["seconds"] for stage in report["stages"] if stage["name"] == "read")
        rows.append(
            f"| killed when {name}, after {first:.1f} s | {wall:.1f} | {cpu:.1f} | {exchange['alignments']} | {exchange['kept_blocks']} | "
            f"{twice[-1]} | {read:.1f} |"
        )
        kept_text = (
            f"- checkpoint after all blocks were aligned, per pair: on the head {sizes.get('blocks', 0) / options.pairs:.0f} bytes of "
            f"signatures and tables; on the workers {sizes.get('slices', 0) / options.pairs:.0f} bytes of slices, second copies included, and "
            f"{sizes.get('journal', 0) / options.pairs:.1f} bytes of all journals.\n"
        )
    around = harness.measurement_context(options, godwit)
    text = "# Head failure in a cluster run\n\n"
    text += f"{options.pairs:,} pairs, reference {around['reference']}, {options.nodes} workers of one thread; {harness.format_host(around)}.\n\n"
    text += "| run | wall s | CPU s | alignments | blocks kept | aligned twice | reading s |\n|---|---|---|---|---|---|---|\n"
    text += "\n".join(rows) + "\n\n" + kept_text + measure_resumed_input(options, godwit, fasta, scratch)
    promises = [harness.target("blocks aligned twice after the head of a run over nodes was killed", twice, at_most=0)]
    harness.write_result("restart", options.results, text, around, promises, {})
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
