"""A partitioned search beside one pass: the phases of pioBLAST's Table 1, by numbers of ranges and workers.

Every search must write the bytes of one pass, or the benchmark fails. One pass is NCBI's own application code on the same libraries
(tests/tools/blast). All times are CPU seconds, because the workers share the cores of this machine. Other processes on the machine also change
CPU seconds, so each search is compared with a pass right before it.
pioBLAST spent 95.5 % of its time in search and traceback, mpiBLAST 24.5 % (doi:10.1109/IPDPS.2005.190, Table 1).
"""

import argparse
import filecmp
import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import TypeAlias

from godwit_bench import harness
from godwit_bench.harness import client_processes
from godwit_bench.plots import draw_plots

# The targets are for 4 workers.
TARGET_WORKERS = 4
STAGES = ("search", "traceback", "format", "other", "total")


# The rounds of each search: format, ranges and workers.
Searches: TypeAlias = dict[tuple[str, int, int], list[harness.Result]]


def command_cpu_s(command: list[str | Path]) -> float:
    """Returns the CPU seconds of a command and of its descendants."""
    before = harness.children_cpu_s()
    subprocess.run(command, check=True, env=dict(os.environ, BLAST_USAGE_REPORT="false"))
    return harness.children_cpu_s() - before


def measure_search(options: argparse.Namespace, godwit: Path, args: list[str], scratch: Path, fragments: int, workers: int) -> harness.Result:
    """Measures one pass and one partitioned search, and compares their output."""
    one_pass = command_cpu_s([options.reference, *args, "-out", scratch / "expected"])
    out, summary = scratch / "found", scratch / "summary.json"
    command: list[str | Path] = [godwit, "search", "--quiet", "--fragments", str(fragments), "--workers", str(workers), "--summary", summary, "--"]
    subprocess.run([*command, *args, "-out", out], check=True)
    if not filecmp.cmp(out, scratch / "expected", shallow=False):
        harness.exit_with_error(f"{fragments} ranges and {workers} workers wrote a different file")
    found: harness.Result = json.loads(summary.read_text()) | {"one_pass_cpu_seconds": one_pass}
    harness.report_progress(f"{fragments} ranges, {workers} workers: {found['cpu_seconds']['total']:.2f} s, one pass {one_pass:.2f} s")
    return found


def ratio_to_one_pass(found: harness.Result) -> float:
    return float(found["cpu_seconds"]["total"]) / float(found["one_pass_cpu_seconds"])


def worker_cpu_percent(found: harness.Result) -> float:
    """Returns the percentage of CPU time in search and traceback."""
    cpu = found["cpu_seconds"]
    return 100 * float(cpu["search"] + cpu["traceback"]) / float(cpu["total"])


def row(setting: tuple[str, int, int], found: harness.Result) -> list[object]:
    cpu, start = found["cpu_seconds"], found["range_start_milliseconds"]
    return [
        *setting,
        *(f"{cpu[stage]:.2f}" for stage in STAGES),
        f"{worker_cpu_percent(found):.1f} %",
        f"{found['imbalance']:.3f}",
        "" if start is None else f"{start:.2f}",
        f"{found['one_pass_cpu_seconds']:.2f}",
        f"{ratio_to_one_pass(found):.3f}",
        f"{found['bytes'] / 1e6:.1f}",
    ]


def measure(options: argparse.Namespace, godwit: Path, scratch: Path) -> Searches:
    """Measures all searches of `(format, fragments, workers)`; returns a list of rounds for each."""
    searches: Searches = {}
    settings = [(options.formats[0], fragments, workers) for fragments in options.fragments for workers in options.workers]
    settings += [(kind, max(options.fragments), target_workers(options)) for kind in options.formats[1:]]
    for _ in range(options.rounds):
        for kind, *parts in settings:
            args = [options.program, "-db", options.db, "-query", options.query, "-outfmt", kind, *options.options.split()]
            searches.setdefault((kind, *parts), []).append(measure_search(options, godwit, args, scratch, *parts))
    return searches


def median_round(rounds: list[harness.Result]) -> harness.Result:
    """Returns the round of median CPU time."""
    ordered = sorted(rounds, key=lambda found: found["cpu_seconds"]["total"])
    return ordered[len(ordered) // 2]


def target_workers(options: argparse.Namespace) -> int:
    """Returns the numbers of workers that have a target; more workers than cores only add context switches."""
    return TARGET_WORKERS if TARGET_WORKERS in options.workers else max(options.workers)


def targets(options: argparse.Namespace, searches: Searches) -> list[harness.Result]:
    kind, most, workers = options.formats[0], max(options.fragments), target_workers(options)
    rounds = searches[(kind, most, workers)]
    alone = searches[(kind, most, min(options.workers))]
    return [
        harness.target(
            f"search and traceback, {workers} workers, {most} ranges", [worker_cpu_percent(found) for found in rounds], at_least=97, unit="%"
        ),
        harness.target(
            f"CPU time of {most} ranges over one pass, {min(options.workers)} worker", [ratio_to_one_pass(found) for found in alone], at_most=1.03
        ),
        harness.target(f"CPU time of {most} ranges over one pass, {workers} workers", [ratio_to_one_pass(found) for found in rounds], at_most=1.03),
        harness.target(f"imbalance, {workers} workers", [found["imbalance"] for found in rounds], at_most=1.05),
        harness.target("start of a range, warm", [found["range_start_milliseconds"] for found in rounds], at_most=10, unit="ms"),
    ]


def plots(options: argparse.Namespace, searches: Searches) -> list[harness.Result]:
    """Returns plots like pioBLAST's figures 1 and 4: the phases by number of processes, and the cost of more fragments."""
    kind, most = options.formats[0], max(options.fragments)
    by_workers = {workers: median_round(searches[(kind, most, workers)])["cpu_seconds"] for workers in options.workers}
    stages = {stage: [[workers, cpu[stage]] for workers, cpu in by_workers.items()] for stage in STAGES}
    by_fragments = {
        f"{workers} workers": [[ranges, median_round(searches[(kind, ranges, workers)])["cpu_seconds"]["total"]] for ranges in options.fragments]
        for workers in options.workers
    }
    passes = {
        ranges: [found["one_pass_cpu_seconds"] for workers in options.workers for found in searches[(kind, ranges, workers)]]
        for ranges in options.fragments
    }
    by_fragments["one pass"] = [[ranges, statistics.median(seconds)] for ranges, seconds in passes.items()]
    return [
        {
            "name": "search-stages",
            "title": f"CPU time by stage, {most} ranges",
            "x": "workers",
            "y": "CPU s",
            "log": "y",
            "bold": ["total"],
            "lines": stages,
        },
        {
            "name": "search-fragments",
            "title": "CPU time by number of ranges",
            "x": "ranges",
            "y": "CPU s",
            "log": "x",
            "bold": ["one pass"],
            "lines": by_fragments,
        },
    ]


def parse_arguments() -> argparse.Namespace:
    parser = harness.search_parser(__doc__)
    parser.add_argument("--fragments", default=[1, 4, 16, 64], type=harness.comma_separated(int), help="ranges (default: 1,4,16,64)")
    parser.add_argument(
        "--formats", default=["6", "0"], type=harness.comma_separated(str), help="formats; all searches but one use the first (default: 6,0)"
    )
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    harness.require_tools("makeblastdb")
    godwit = harness.godwit_binary(options)
    options.reference = harness.one_pass_program()
    scratch = harness.scratch_directory(options, "search")
    interpreter = client_processes.client_python("databases")
    searches = measure(options, godwit, scratch)
    kind = options.formats[0]
    promised, around = targets(options, searches), harness.host_description(godwit)
    first = median_round(next(iter(searches.values())))
    heads = ["format", "ranges", "workers", *STAGES, "search + traceback", "imbalance", "range start, ms", "one pass", "x one pass", "MB"]
    text = "\n".join(
        [
            "# Partitioned search",
            "",
            f"{options.program}, {first['queries']} queries in {first['batches']} batches, {options.rounds} rounds; the table shows the one of "
            f"median CPU time; {first['engine']}; {harness.format_host(around)}. CPU seconds of all processes.",
            "",
            *harness.plain_table(heads, [row(setting, median_round(rounds)) for setting, rounds in searches.items()]),
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            f"![CPU time by stage and workers, format {kind}](search-stages.svg)",
            f"![CPU time by ranges, format {kind}](search-fragments.svg)",
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    found = [{"setting": setting, "rounds": rounds} for setting, rounds in searches.items()]
    harness.write_result("search", options.results, text, around, promised, {"searches": found, "plots": plots(options, searches)})
    draw_plots(interpreter, options.results / "search.json")


if __name__ == "__main__":
    main()
