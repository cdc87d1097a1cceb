"""The targets in one table: aligning, marking, formats, nodes, the data plane, calling, comparison, the data server and its clients.

Runs the benchmarks that have targets, each with its competitors, and collects their `results/`: the target, the measurement, and the range
over the rounds. Then it runs the long tests, which show what no measurement shows. A missed target must have a reason in this file.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from godwit_bench import harness

# In the order of the table: script, arguments. Results are named like the scripts.
BENCHMARKS = {
    "index": [],
    "align": [],
    "markdup": [],
    "markdup_scale": [],
    "memory": [],
    "formats": [],
    "nodes": [],
    "restart": ["--pairs", "200000"],
    "flight": [],
    "shuffle": [],
    "call": ["--pairs", "300000"],
    "align_and_call": ["--pairs", "300000"],
    "accuracy": [],
    "compare": [],
    "spark": ["--pairs", "250000"],
    "query": ["--pairs", "300000"],
    "scan": ["--pairs", "300000"],
    "aggregate": [],
    "export": [],
    "order_line": [],
    "records": [],
    "genome_tables": ["--sites", "2000"],
    "quack": [],
    "reads": [],
    "spark_read": [],
    "rules": ["--pairs", "250000"],
    "crowd": ["--pairs", "300000"],
    "score": [],
    "step": ["--pairs", "500000"],
    "federated": [],
    "mount": [],
}

E2E_COMMAND = ["cargo", "test", "--quiet", "--locked", "--profile", "ci", "-p", "godwit-tests", "--test", "e2e", "--"]
# Properties without a measurement: name, command, what the command shows.
TEST_SUITES = {
    "identity-1": (
        [*E2E_COMMAND, "--ignored", "run::bwa_identity::blocks_of_1_mb"],
        "records equal to bwa, samtools sort and Picard, blocks of 1 Mb, over threads and partitions and memory",
    ),
    "identity-10": (
        [*E2E_COMMAND, "--ignored", "run::bwa_identity::blocks_of_10_mb"],
        "records equal to bwa, samtools sort and Picard, blocks of 10 Mb, over threads and partitions",
    ),
    "identity-100": (
        [*E2E_COMMAND, "--ignored", "run::bwa_identity::blocks_of_100_mb"],
        "records equal to bwa, samtools sort and Picard, blocks of 100 Mb, over threads and partitions",
    ),
    "picard": (["env", "GODWIT_FUZZ_FILES=10000", *E2E_COMMAND, "run::picard"], "10,000 SAM files from a seed: flags and metrics equal to Picard's"),
    "stops": ([*E2E_COMMAND, "--ignored", "run::resume"], "killed, EIO and ENOSPC at every change to a file: the resumed run writes the same bytes"),
    "simulator": (["cargo", "xtask", "sim", "--seeds", "10000"], "the ledger in 10,000 worlds with faults"),
    "chaos": (
        ["cargo", "xtask", "chaos", "50"],
        "50 faults at hosts of real SLURM clusters and 50 losses of local workers: the same bytes, or one clear error",
    ),
    "gatk": (
        [*E2E_COMMAND, "--ignored", "run::align_and_call", "run::somatic_calling", "run::recalibrate", "run::workflow::", "run::variant_filter::"],
        "recalibration, filtering, somatic calling and the workflow equal to the separate GATK commands",
    ),
}

# The reason of each missed target, by the beginning of its name. A missed target without a reason is an error.
MISSED_TARGET_REASONS = {
    "aligned reads to marked BAM, CPU per million pairs": "every tool takes 1.2 times the CPU time that it took on another machine with this "
    "processor: 5.6 s there, and 6.5 s of samblaster and samtools sort, which take 7.9 s here.",
    "aligned reads to marked BAM, CPU over samtools fixmate": "`samtools view -1` of these records alone takes nearly half of the competitor's "
    "CPU time: nothing remains for the work.",
    "calling with bcftools": "the one run is two concurrent processes and takes 1.27 cores; the same regions by xargs, whose "
    "outputs are not joined, are 1.74 times as fast.",
    "Parquet beside BAM": "each column has its own writer; no remaining part is large (zstd 12 %, memory 3 %, all else less).",
    "4 nodes, CPU over one process": "the workers add 8.7 CPU s a million pairs. With the aligner of the time when the target was set they added "
    "22 s, which were 6 % of its 364 s; now a process takes 75 s.",
    "DoGet, TCP, 16,384 rows of 32 bytes, over pyarrow": "single rounds are 1.5 to 2.1; not profiled.",
    "DoGet, TCP, 262,144 rows of 32 bytes, over pyarrow": "single rounds are 1.5 to 2.5; not profiled.",
    "DoGet, TCP": "iperf3 sends one buffer that stays in the cache; a bare socket with the same distinct bytes is slower than iperf3 by the "
    "same factor.",
    "DoPut, TCP": "as DoGet.",
    "DoPut from pyarrow": "the client, which is pyarrow's at both, takes most of the time. It copies each batch into memory that it allocates "
    "from the system each time: with batches of 32 MB, by a profile, clearing pages and copying are 36 % of its time with godwit's server and "
    "51 % with its own, and measured side by side both reached 0.6 to 0.7 GB/s on a busy machine.",
    "DoGet, Unix socket, 65,536 rows of 32 bytes, over iperf3": "a bare Unix socket is not that fast either.",
    "DoGet, TLS, 65,536 rows of 32 bytes, over bare rustls": "1.25 times the CPU s per GB of the bare stream: by a profile a seventh of all "
    "time is copying, between frames of HTTP/2 and records of TLS.",
    "DoGet, TLS, 65,536 rows of 32 bytes, over pyarrow": "the bare rustls stream is about 2 x pyarrow with TLS.",
    "DoPut, TLS, 65,536 rows of 32 bytes, over pyarrow": "as DoGet.",
    "rows of a region of": "`query --at` starts a process and connects for each region; a client that stays connected is well below the bound.",
    "count of a region of": "as rows of a region: a client that stays connected is below the bound.",
    "BAM to Arrow, CPU of polars-bio over godwit serve": "`godwit query` has the cost of decoding only, and meets the target; a third of the "
    "CPU time is sending and receiving the rows over TCP, which readers within one process do not need.",
    "count(*) of": "the server answers from the metadata of the dataset in 0.2 ms; ADBC makes four calls for a statement, 1.8 ms for the calls "
    "alone, and a call within Python makes none. Including the start of the process, godwit is faster.",
    "7 groups of": "DataFusion within one process takes 1.3 x DuckDB's time of 10 million rows, with batches of 8,192 rows or a million; of "
    "small tables ADBC's four calls are 1.8 ms, plans 1 ms. A row's group is 27 % of its time, reading dictionaries of Parquet 15 %.",
    "70,000 groups of": "with 10 million rows single rounds are 1.02 to 1.77; not profiled. With smaller tables DataFusion within one process is "
    "about as fast as DuckDB (8 and 28 ms compared with 8 and 25 ms for 0.1 and 1 million); ADBC's calls, two plans and "
    "sending the groups between the processes and to the client add to this time.",
    "100,000 rows, adbc-postgresql over": "as pyodbc.",
    "100,000 rows, pyodbc over": "both take a tenth of what they take for a million rows; that is 23 ms here, including a few ms for the "
    "calls. From a million rows on the target is met.",
    "CPU above the aligner alone": "the difference of two large numbers on a busy machine: the rounds are 1.6 and 22 s.",
    "1,000,000 rows, godwit": "the table is one row group, which one thread of the server decodes.",
    "5,000,000 rows, godwit": "server and client use both cores: decoding Parquet at one side, copying batches at the other.",
    "20,000,000 rows, godwit": "as 5,000,000 rows.",
    "identity step": "starting Python takes 0.26 s a thread, 10 % at this size; the rest is making the columns.",
    "a batch of 1,024 pictures, pickled": "a pickle of an array is a copy of its bytes, and the exchange sends the same bytes.",
    "parameters of 784 x 128 x 10, pickled": "as a batch of pictures, pickled; the parameters are small, and a call takes longer than a message.",
    "whole file, warm, speed over the local file": "the local file is copied once, at 20 GB/s; here every byte is copied six times between "
    "server, kernel, mount and reader, and hashed by the mount, on two cores.",
    "whole file, warm, speed over rclone": "by a profile more than half of the CPU time is copying and waiting in the kernel; hashing, which rclone "
    "does not do, is 7 %, copying in the mount 4 %.",
    "whole file, cold": "server, mount and reader need more CPU time on two cores than this disk needs to read the file.",
}


def parse_arguments() -> argparse.Namespace:
    parser = harness.program_parser(__doc__)
    names = [*BENCHMARKS, *TEST_SUITES]
    parser.add_argument("--only", help=f"some of {','.join(names)}; the table shows earlier results of the others (default: all)")
    parser.add_argument("--collect", action="store_true", help="run nothing; make the table from existing results")
    parser.add_argument("--python", default=sys.executable, help="a python with pyarrow")
    options = parser.parse_args()
    options.names = [] if options.collect else options.only.split(",") if options.only else names
    if unknown := set(options.names) - set(names):
        parser.error(f"no {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def run_benchmark(name: str, options: argparse.Namespace, godwit: Path | None) -> None:
    command = [*harness.scenario_command(name), *BENCHMARKS[name], "--godwit", godwit, "--results", options.results]
    if name == "flight":
        command += ["--python", options.python]
    harness.run_checked(command)


def run_suite(name: str) -> harness.Result:
    """Runs a test suite; returns its outcome."""
    command, _ = TEST_SUITES[name]
    print("bench:", *command, file=sys.stderr)
    started = time.monotonic()
    done = subprocess.run(command, cwd=harness.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    passed = sum(map(int, re.findall(r"(\d+) passed", done.stdout)))
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
    return {
        "passed": done.returncode == 0,
        "tests": passed,
        "seconds": time.monotonic() - started,
        "circumstances": harness.host_description("godwit"),
    }


def missed_target_reason(promised: harness.Result) -> str | None:
    """Returns the reason of a missed target; empty if the target is met."""
    if promised["kept"]:
        return ""
    return next((text for start, text in MISSED_TARGET_REASONS.items() if promised["what"].startswith(start)), None)


def target_rows(name: str, results: Path) -> tuple[list[str], list[str]]:
    """Returns the targets of a benchmark as table rows, and those missed without a reason."""
    path = results / f"{name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if "promises" not in found:
        return [f"| {name} | not measured | | | | | | `cargo xtask bench {name}` |"], []
    around = found["circumstances"]
    rows, unexplained = [], []
    for promised in found["promises"]:
        values, unit = promised["values"], f" {promised['unit']}" if promised["unit"] else ""
        why = missed_target_reason(promised)
        if why is None:
            unexplained.append(promised["what"])
        outcome = "kept" if promised["kept"] else f"**missed**: {why or 'unexplained'}"
        rows.append(
            f"| {promised['what']} | {promised['asked']}{unit} | {promised['median']:.3g} | {min(values):.3g} - {max(values):.3g} ({len(values)}) |"
            f" {outcome} | {around['load_at_end']:.1f} | {around['commit']} | `{found['command']}` |"
        )
    return rows, unexplained


def suite_rows(outcomes: harness.Result) -> list[str]:
    lines = ["| suite | shows | outcome | tests | minutes | commit | command |", "|---|---|---|---|---|---|---|"]
    for name, (command, shows) in TEST_SUITES.items():
        outcome = outcomes.get(name)
        cells = ["not run", "", "", ""]
        if outcome:
            cells = [
                "passed" if outcome["passed"] else "**failed**",
                outcome["tests"],
                f"{outcome['seconds'] / 60:.0f}",
                outcome["circumstances"]["commit"],
            ]
        lines.append("| " + " | ".join(map(str, [name, shows, *cells, f"`{' '.join(command)}`"])) + " |")
    return lines


def main() -> None:
    options = parse_arguments()
    kept = options.results / "core.json"
    outcomes = json.loads(kept.read_text())["suites"] if kept.exists() else {}
    godwit = harness.godwit_binary(options) if set(options.names) & set(BENCHMARKS) else None
    for name in options.names:
        if name in BENCHMARKS:
            run_benchmark(name, options, godwit)
        else:
            outcomes[name] = run_suite(name)
    lines, unexplained = [], []
    for name in BENCHMARKS:
        rows, without = target_rows(name, options.results)
        lines += rows
        unexplained += without
    text = "\n".join(
        [
            "# Targets and measurements",
            "",
            "Medians of interleaved rounds, competitors in the same rounds; the spread is that of single rounds, followed by their number. "
            "Details and machine: the",
            "page of each benchmark, in the same directory.",
            "",
            "| figure | promised | measured | spread | outcome | load | commit | command |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            "## Properties that tests show",
            "",
            *suite_rows(outcomes),
            "",
        ]
    )
    (options.results / "core.md").write_text(text)
    kept.write_text(json.dumps({"suites": outcomes}, indent=2) + "\n")
    print(text)
    if unexplained:
        harness.exit_with_error(f"missed without a reason: {'; '.join(unexplained)}")


if __name__ == "__main__":
    main()
