#!/usr/bin/env python3
"""The promises of the core in one table: aligning, marking, formats, nodes, the data plane, calling, the data node.

Runs the benchmarks whose figures were promised, each with its peers, and gathers what they wrote to `results/`: what was promised, what
was measured, how far rounds were apart. Then it runs the long tests that show what no figure does. What falls short has to have a reason here.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import _measure as bench

# In the order of the table: script, arguments. Results are named like the scripts.
BENCHMARKS = {
    "index": [],
    "align": [],
    "markdup": [],
    "memory": [],
    "formats": [],
    "nodes": [],
    "restart": ["--pairs", "200000"],
    "flight": [],
    "shuffle": [],
    "call": ["--pairs", "300000"],
    "align_and_call": ["--pairs", "300000"],
    "accuracy": [],
    "spark": ["--pairs", "250000"],
    "query": ["--pairs", "300000"],
    "scan": ["--pairs", "300000"],
    "aggregate": [],
    "export": [],
    "order_line": [],
    "records": [],
}

E2E = ["cargo", "test", "--quiet", "--locked", "--profile", "ci", "-p", "godwit-tests", "--test", "e2e", "--"]
# What no figure shows: name, command, what it shows.
SUITES = {
    "identity-1": (
        [*E2E, "--ignored", "run::identity::blocks_of_1_mb"],
        "records equal to bwa, samtools sort and Picard, blocks of 1 Mb, over threads and partitions and memory",
    ),
    "identity-10": (
        [*E2E, "--ignored", "run::identity::blocks_of_10_mb"],
        "records equal to bwa, samtools sort and Picard, blocks of 10 Mb, over threads and partitions",
    ),
    "identity-100": (
        [*E2E, "--ignored", "run::identity::blocks_of_100_mb"],
        "records equal to bwa, samtools sort and Picard, blocks of 100 Mb, over threads and partitions",
    ),
    "picard": (["env", "GODWIT_FUZZ_FILES=10000", *E2E, "run::picard"], "10,000 SAM files from a seed: flags and metrics equal to Picard's"),
    "stops": ([*E2E, "--ignored", "run::resume"], "killed, EIO and ENOSPC at every change to a file: going on gives the same bytes"),
    "simulator": (["cargo", "xtask", "sim", "--seeds", "10000"], "the ledger in 10,000 worlds with faults"),
    "chaos": (["cargo", "xtask", "chaos", "50"], "50 strikes at nodes of real SLURM clusters and 50 losses of local nodes: the same bytes, or one clear error"),
    "gatk": (
        [*E2E, "--ignored", "run::align_and_call", "run::somatic", "run::recalibrate", "run::workflow::", "run::filter::"],
        "recalibration, filtering, somatic calling and the workflow equal to GATK by hand",
    ),
}

# Why a figure is missed, by how its name begins. A miss without a reason ends with an error.
REASONS = {
    "aligned reads to marked BAM, CPU per million pairs":
        "every tool takes 1.3 to 1.4 times the CPU time here that it took on the machine of markdup-epyc.md, where this was 5.6 s.",
    "aligned reads to marked BAM, CPU over samtools fixmate":
        "`samtools view -1` of these records alone takes nearly half of what the peer takes: nothing is left for the work.",
    "calling with bcftools":
        "the one run is two processes beside each other and takes 1.15 cores; the same regions by xargs take as long as godwit.",
    "Parquet beside BAM": "columns have writers of their own; what is left is spread thin (zstd 12 %, memory 3 %, all else less).",
    "DoGet, TCP": "iperf3 sends one buffer that stays in the cache; a bare socket with the same distinct bytes is as much slower than that.",
    "DoPut, TCP": "as DoGet.",
    "DoPut from pyarrow":
        "the client, which is pyarrow's at both, takes most of the time. It copies each batch into memory that it asks the system for anew: where batches have 32 MB, by a"
        " profile, clearing pages and copying are 36 % of its time with godwit's server and 51 % with its own, and side by side both took 0.6 to 0.7 GB/s on a busy machine.",
    "DoGet, Unix socket, 65,536 rows of 32 bytes, over iperf3": "a bare Unix socket is not that fast either.",
    "DoGet, TLS, 65,536 rows of 32 bytes, over bare rustls":
        "1.25 times the CPU s per GB of the bare stream: by a profile a seventh of all time is copying, between frames of HTTP/2 and records of TLS.",
    "DoGet, TLS, 65,536 rows of 32 bytes, over pyarrow": "the bare rustls stream is about 2 x pyarrow with TLS.",
    "DoPut, TLS, 65,536 rows of 32 bytes, over pyarrow": "as DoGet.",
    "rows of a region of": "`query --at` starts a process and connects for each region; a client that stays connected is well below the bound.",
    "count of a region of": "as rows of a region: a client that stays connected is below the bound.",
    "BAM to Arrow, CPU of polars-bio over godwit serve":
        "decoding is what `godwit query` takes, which keeps it; a third of the CPU time is sending the rows over TCP and taking them, which readers within one process do not do.",
    "count(*) of":
        "the server answers in 0.2 ms what the dataset knows of itself; ADBC makes four calls for a statement, 1.8 ms where it does nothing else, and a call within Python makes none."
        " From a start, godwit is faster.",
    "7 groups of":
        "DataFusion within one process takes 1.3 x DuckDB's time of 10 million rows, with batches of 8,192 rows or a million; of small tables ADBC's four calls are 1.8 ms, plans 1 ms."
        " A row's group is 27 % of its time, reading dictionaries of Parquet 15 %.",
    "70,000 groups of":
        "of 10 million rows it is kept since groups are found by batches of 65,536 rows (1.52 before). Of smaller tables DataFusion within one process finds them about as fast as DuckDB (8 and 28 ms beside 8 and 25 ms for 0.1 and 1 million);"
        " ADBC's calls, two plans and sending the groups from process to process to client come on top.",
    "100,000 rows, pyodbc over": "both take a tenth of what they take for a million rows; that is 23 ms here, of which asking is a few. From a million rows on it is kept.",
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*BENCHMARKS, *SUITES]
    parser.add_argument("--only", help=f"some of {','.join(names)}, the others are shown as they were (default: all)")
    parser.add_argument("--collect", action="store_true", help="run nothing, make the table of what is there")
    parser.add_argument("--godwit", type=Path, help="binary to measure (default: built from here with --release)")
    parser.add_argument("--python", default=sys.executable, help="a python with pyarrow")
    parser.add_argument("--results", type=Path, default=bench.RESULTS)
    options = parser.parse_args()
    options.names = [] if options.collect else options.only.split(",") if options.only else names
    if unknown := set(options.names) - set(names):
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def measure(name, options, godwit):
    command = [sys.executable, Path(__file__).with_name(f"{name}.py"), *BENCHMARKS[name], "--godwit", godwit, "--results", options.results]
    if name == "flight":
        command += ["--python", options.python]
    bench.run(command)


def test(name):
    """Runs a suite; returns how it ended."""
    command, _ = SUITES[name]
    print("bench:", *command, file=sys.stderr)
    started = time.monotonic()
    done = subprocess.run(command, cwd=bench.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    passed = sum(map(int, re.findall(r"(\d+) passed", done.stdout)))
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
    return {"passed": done.returncode == 0, "tests": passed, "seconds": time.monotonic() - started, "circumstances": bench.host("godwit")}


def reason(promised):
    """Why a figure is missed; nothing where it is kept."""
    if promised["kept"]:
        return ""
    return next((text for start, text in REASONS.items() if promised["what"].startswith(start)), None)


def rows_of(name, results):
    """The promises of a benchmark as rows of the table, and those missed without a reason."""
    path = results / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if "promises" not in found:
        return [f"| {name} | not measured | | | | | | `cargo xtask bench {name}` |"], []
    around = found["circumstances"]
    rows, unexplained = [], []
    for promised in found["promises"]:
        values, unit = promised["values"], f" {promised['unit']}" if promised["unit"] else ""
        why = reason(promised)
        if why is None:
            unexplained.append(promised["what"])
        outcome = "kept" if promised["kept"] else f"**missed**: {why or 'unexplained'}"
        rows.append(
            f"| {promised['what']} | {promised['asked']}{unit} | {promised['median']:.3g} | {min(values):.3g} - {max(values):.3g} ({len(values)}) |"
            f" {outcome} | {around['load_at_end']:.1f} | {around['commit']} | `{found['command']}` |"
        )
    return rows, unexplained


def suite_rows(outcomes):
    lines = ["| suite | shows | outcome | tests | minutes | commit | command |", "|---|---|---|---|---|---|---|"]
    for name, (command, shows) in SUITES.items():
        outcome = outcomes.get(name)
        cells = ["not run", "", "", ""]
        if outcome:
            cells = ["passed" if outcome["passed"] else "**failed**", outcome["tests"], f"{outcome['seconds'] / 60:.0f}", outcome["circumstances"]["commit"]]
        lines.append("| " + " | ".join(map(str, [name, shows, *cells, f"`{' '.join(command)}`"])) + " |")
    return lines


def main():
    options = parse()
    kept = options.results / "core.json"
    outcomes = json.loads(kept.read_text())["suites"] if kept.exists() else {}
    godwit = bench.godwit_binary(options) if set(options.names) & set(BENCHMARKS) else None
    for name in options.names:
        if name in BENCHMARKS:
            measure(name, options, godwit)
        else:
            outcomes[name] = test(name)
    lines, unexplained = [], []
    for name in BENCHMARKS:
        rows, without = rows_of(name, options.results)
        lines += rows
        unexplained += without
    text = "\n".join([
        "# What was promised, and what was measured",
        "",
        "Medians of interleaved rounds, peers in the same rounds; the spread is that of single rounds, their number behind it. Details and machine: the",
        "page of each benchmark, beside this one.",
        "",
        "| figure | promised | measured | spread | outcome | load | commit | command |",
        "|---|---|---|---|---|---|---|---|",
        *lines,
        "",
        "## What tests show",
        "",
        *suite_rows(outcomes),
        "",
    ])
    (options.results / "core.md").write_text(text)
    kept.write_text(json.dumps({"suites": outcomes}, indent=2) + "\n")
    print(text)
    if unexplained:
        bench.fail(f"missed without a reason: {'; '.join(unexplained)}")


if __name__ == "__main__":
    main()
