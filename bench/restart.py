#!/usr/bin/env python3
"""What losing the head of a run over nodes costs.

A run of local nodes is killed, head and all, when half of its blocks are aligned, and when all are; then it is gone on with. Told are what
was aligned again, how long going on took against an undisturbed run, how fast reads of aligned blocks are read past, and what
is kept for it on disk.
"""

import filecmp
import json
import os
import shutil
import signal
import subprocess
import time

import _measure as bench


def run(command, kill_after=None):
    """Runs to the end, or until so many blocks are aligned. Returns wall and CPU seconds."""
    before, started = os.times(), time.monotonic()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    aligned, said = 0, []
    for line in process.stderr:
        said.append(line)
        aligned += '"event":"aligned"' in line
        if kill_after is not None and aligned >= kill_after:
            process.send_signal(signal.SIGKILL)
            break
    process.stderr.read()
    process.wait()
    if kill_after is None and process.returncode != 0:
        bench.fail("".join(said[-5:]))
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - started, cpu


def bytes_below(folder):
    """Bytes of all files below a folder, by their names."""
    sizes = {}
    for path in folder.rglob("*"):
        if path.is_file():
            sizes[path.name] = sizes.get(path.name, 0) + path.stat().st_size
    return sizes


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=4, help="nodes, of one thread each (default: 4)")
    parser.add_argument("--block-bases", type=int, default=2_000_000, help="bwa's -K (default: 2,000,000)")
    options = parser.parse_args()
    bench.need("bwa")
    godwit = bench.godwit_binary(options)
    fasta = bench.reference(options, godwit)
    files = bench.reads(options, godwit, fasta, gzip=True)
    scratch = options.cache.resolve() / "scratch-restart"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)

    def command(out):
        words = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--out", out, "--json", "--threads", 1]
        words += ["--block-bases", options.block_bases, "--on", "local", "--nodes", options.nodes]
        return [str(word) for word in words]

    undisturbed = scratch / "undisturbed"
    wall, cpu = run(command(undisturbed))
    blocks = json.loads((undisturbed / "run.json").read_text())["exchange"]["blocks"]
    rows = [f"| undisturbed | {wall:.1f} | {cpu:.1f} | {blocks} | | | |"]
    kept_text, twice = "", []
    for name, kill_after in (("half aligned", blocks // 2), ("all aligned", blocks)):
        out = scratch / f"killed-{kill_after}"
        first, _ = run(command(out), kill_after)
        sizes = bytes_below(out / ".godwit")
        wall, cpu = run([*command(out), "--resume"])
        report = json.loads((out / "run.json").read_text())
        exchange = report["exchange"]
        if not filecmp.cmp(out / "bench.bam", undisturbed / "bench.bam", shallow=False):
            bench.fail("the two BAMs differ")
        twice.append(exchange["alignments"] - exchange["stragglers"] + exchange["kept_blocks"] - blocks)
        read = next(stage["seconds"] for stage in report["stages"] if stage["name"] == "read")
        rows.append(
            f"| killed when {name}, after {first:.1f} s | {wall:.1f} | {cpu:.1f} | {exchange['alignments']} | {exchange['kept_blocks']} | "
            f"{twice[-1]} | {read:.1f} |"
        )
        kept_text = (
            f"- kept when all was aligned, per pair: by the head {sizes.get('blocks', 0) / options.pairs:.0f} bytes of signatures and tables; by the "
            f"nodes {sizes.get('slices', 0) / options.pairs:.0f} bytes of slices, second copies included, and {sizes.get('journal', 0) / options.pairs:.1f} bytes of "
            f"all journals.\n- reads of aligned blocks are read past at {options.pairs / read / 1000:.0f} thousand pairs a second.\n"
        )
    around = bench.circumstances(options, godwit)
    text = "# Losing the head of a run over nodes\n\n"
    text += f"{options.pairs:,} pairs, reference {around['reference']}, {options.nodes} nodes of one thread; {bench.machine(around)}.\n\n"
    text += "| run | wall s | CPU s | alignments | blocks kept | aligned twice | reading s |\n|---|---|---|---|---|---|---|\n"
    text += "\n".join(rows) + "\n\n" + kept_text
    promises = [bench.promise("blocks aligned twice after the head of a run over nodes was killed", twice, at_most=0)]
    bench.write("restart", options.results, text, around, promises, {})
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
