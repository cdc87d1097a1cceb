#!/usr/bin/env python3
"""A partitioned search beside one pass: the phases of pioBLAST's Table 1, by numbers of ranges and workers.

    bench/search.py --db DB --query QUERIES.fa [--program blastp] [--fragments 1,4,16,64] [--workers 1,2,4] [--reference PROGRAM]

Prints a row for each: CPU seconds by phase, their shares, imbalance, and the CPU time over that of the reference (the program that
tests/tools/blast/build.sh prints, or any blastp of the same version). Output is compared, byte by byte. pioBLAST spent 95.5 % of
its time in search and traceback, mpiBLAST 24.5 % (doi:10.1109/IPDPS.2005.190, Table 1).
"""

import argparse
import filecmp
import json
import os
import resource
import subprocess
import sys
import tempfile


def cpu_of(command: list[str]) -> float:
    """CPU seconds of a command and what it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=dict(os.environ, BLAST_USAGE_REPORT="false"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(options: argparse.Namespace, words: list[str], scratch: str, fragments: str, workers: str) -> dict:
    """One partitioned search, judged against the file of the reference."""
    out, summary = os.path.join(scratch, "found"), os.path.join(scratch, "summary.json")
    godwit = [options.godwit, "search", "--quiet", "--fragments", fragments, "--workers", workers, "--summary", summary, "--"]
    subprocess.run([*godwit, *words, "-out", out], check=True)
    if not filecmp.cmp(out, os.path.join(scratch, "expected"), shallow=False):
        sys.exit(f"bench/search.py: {fragments} ranges and {workers} workers wrote another file")
    with open(summary, encoding="utf-8") as file:
        return json.load(file)


def main() -> None:
    """Runs every pair of numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--db", required=True)
    parser.add_argument("--query", required=True)
    parser.add_argument("--program", default="blastp")
    parser.add_argument("--fragments", default="1,4,16,64")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--reference", required=True, help="runs: REFERENCE PROGRAM OPTIONS")
    parser.add_argument("--godwit", default="godwit")
    parser.add_argument("--options", default="", help="further options of the program")
    options = parser.parse_args()
    words = [options.program, "-db", options.db, "-query", options.query, "-outfmt", "6", *options.options.split()]
    with tempfile.TemporaryDirectory() as scratch:
        expected = cpu_of([options.reference, *words, "-out", os.path.join(scratch, "expected")])
        print(f"one pass: {expected:.2f} s of CPU")
        print("| ranges | workers | search | traceback | format | other | total | search + traceback | imbalance | over one pass |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for fragments in options.fragments.split(","):
            for workers in options.workers.split(","):
                found = row(options, words, scratch, fragments, workers)
                cpu = found["cpu_seconds"]
                share = 100 * (cpu["search"] + cpu["traceback"]) / cpu["total"]
                times = " | ".join(f"{cpu[phase]:.2f}" for phase in ("search", "traceback", "format", "other", "total"))
                print(
                    f"| {fragments} | {workers} | {times} | {share:.1f} % | {found['imbalance']:.2f} "
                    f"| {cpu['total'] / expected:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
