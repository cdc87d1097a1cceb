#!/usr/bin/env python3
"""A partitioned search beside one pass: the phases of pioBLAST's Table 1, by numbers of ranges and workers.

Every search writes the bytes of one pass, or the benchmark ends. One pass is NCBI's own application code on the same libraries
(tests/tools/blast). All times are CPU seconds: workers share the cores of this machine. What others do at the same time changes them
too, so each search is held against one pass right before it.
pioBLAST spent 95.5 % of its time in search and traceback, mpiBLAST 24.5 % (doi:10.1109/IPDPS.2005.190, Table 1).
"""

import filecmp
import json
import os
import resource
import statistics
import subprocess
from pathlib import Path

import _clients
import _measure as bench

# With 4 workers.
PROMISED_WORKERS = 4
STAGES = ("search", "traceback", "format", "other", "total")


def cpu_of(command):
    """CPU seconds of a command and what it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=dict(os.environ, BLAST_USAGE_REPORT="false"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def search(options, godwit, words, scratch, fragments, workers):
    """One pass, and one partitioned search, judged against its file."""
    one_pass = cpu_of([options.reference, *words, "-out", scratch / "expected"])
    out, summary = scratch / "found", scratch / "summary.json"
    command = [godwit, "search", "--quiet", "--fragments", str(fragments), "--workers", str(workers), "--summary", summary, "--"]
    subprocess.run([*command, *words, "-out", out], check=True)
    if not filecmp.cmp(out, scratch / "expected", shallow=False):
        bench.fail(f"{fragments} ranges and {workers} workers wrote another file")
    found = json.loads(summary.read_text()) | {"one_pass_cpu_seconds": one_pass}
    bench.progress(f"{fragments} ranges, {workers} workers: {found['cpu_seconds']['total']:.2f} s, one pass {one_pass:.2f} s")
    return found


def over_one_pass(found):
    return found["cpu_seconds"]["total"] / found["one_pass_cpu_seconds"]


def share(found):
    """Percent of the CPU time that is search and traceback."""
    cpu = found["cpu_seconds"]
    return 100 * (cpu["search"] + cpu["traceback"]) / cpu["total"]


def row(setting, found):
    cpu = found["cpu_seconds"]
    times = " | ".join(f"{cpu[stage]:.2f}" for stage in STAGES)
    start = found["range_start_milliseconds"]
    shown = "" if start is None else f"{start:.2f}"
    return (
        f"| {' | '.join(map(str, setting))} | {times} | {share(found):.1f} % | {found['imbalance']:.3f} | {shown} "
        f"| {found['one_pass_cpu_seconds']:.2f} | {over_one_pass(found):.3f} | {found['bytes'] / 1e6:.1f} |"
    )


def measure(options, godwit, scratch):
    """All searches of `(format, fragments, workers)`, a list of rounds each."""
    searches = {}
    settings = [(options.formats[0], fragments, workers) for fragments in options.fragments for workers in options.workers]
    settings += [(kind, max(options.fragments), promised_workers(options)) for kind in options.formats[1:]]
    for _ in range(options.rounds):
        for kind, *parts in settings:
            words = [options.program, "-db", options.db, "-query", options.query, "-outfmt", kind, *options.options.split()]
            searches.setdefault((kind, *parts), []).append(search(options, godwit, words, scratch, *parts))
    return searches


def middle(rounds):
    """The round of median CPU time."""
    ordered = sorted(rounds, key=lambda found: found["cpu_seconds"]["total"])
    return ordered[len(ordered) // 2]


def promised_workers(options):
    """Those that figures were promised for; more than there are cores only switch between each other."""
    return PROMISED_WORKERS if PROMISED_WORKERS in options.workers else max(options.workers)


def promises(options, searches):
    kind, most, workers = options.formats[0], max(options.fragments), promised_workers(options)
    rounds = searches[(kind, most, workers)]
    alone = searches[(kind, most, min(options.workers))]
    return [
        bench.promise(f"search and traceback, {workers} workers, {most} ranges", [share(found) for found in rounds], at_least=97, unit="%"),
        bench.promise(f"CPU time of {most} ranges over one pass, {min(options.workers)} worker", [over_one_pass(found) for found in alone], at_most=1.03),
        bench.promise(f"CPU time of {most} ranges over one pass, {workers} workers", [over_one_pass(found) for found in rounds], at_most=1.03),
        bench.promise(f"imbalance, {workers} workers", [found["imbalance"] for found in rounds], at_most=1.05),
        bench.promise("start of a range, warm", [found["range_start_milliseconds"] for found in rounds], at_most=10, unit="ms"),
    ]


def plots(options, searches):
    """As pioBLAST's figures 1 and 4: where the time goes by processes, and what more fragments cost."""
    kind, most = options.formats[0], max(options.fragments)
    by_workers = {workers: middle(searches[(kind, most, workers)])["cpu_seconds"] for workers in options.workers}
    stages = {stage: [[workers, cpu[stage]] for workers, cpu in by_workers.items()] for stage in STAGES}
    by_fragments = {
        f"{workers} workers": [[ranges, middle(searches[(kind, ranges, workers)])["cpu_seconds"]["total"]] for ranges in options.fragments]
        for workers in options.workers
    }
    passes = {ranges: [found["one_pass_cpu_seconds"] for workers in options.workers for found in searches[(kind, ranges, workers)]] for ranges in options.fragments}
    by_fragments["one pass"] = [[ranges, statistics.median(seconds)] for ranges, seconds in passes.items()]
    return [
        {"name": "search-stages", "title": f"CPU time by stage, {most} ranges", "x": "workers", "y": "CPU s", "log": "y", "bold": ["total"], "lines": stages},
        {"name": "search-fragments", "title": "CPU time by number of ranges", "x": "ranges", "y": "CPU s", "log": "x", "bold": ["one pass"], "lines": by_fragments},
    ]


NUMBERS = {"type": lambda text: [int(word) for word in text.split(",")]}


def parser_of(explained):
    """What benchmarks of searches have in common."""
    parser = bench.parser(explained)
    parser.add_argument("--db", required=True, help="database, as -db takes it")
    parser.add_argument("--query", required=True, type=Path)
    parser.add_argument("--program", default="blastp")
    parser.add_argument("--options", default="", help="further options of the program")
    parser.add_argument("--workers", default=[1, 2, 4], help="workers (default: 1,2,4)", **NUMBERS)
    parser.add_argument("--rounds", type=int, default=1)
    return parser


def options_of_line():
    parser = parser_of(__doc__)
    parser.add_argument("--fragments", default=[1, 4, 16, 64], help="ranges (default: 1,4,16,64)", **NUMBERS)
    parser.add_argument("--formats", default=["6", "0"], type=lambda text: text.split(","), help="formats; the first is that of all but one search (default: 6,0)")
    return parser.parse_args()


def main():
    options = options_of_line()
    bench.need("makeblastdb")
    godwit = bench.godwit_binary(options)
    options.reference = bench.first_line([str(bench.ROOT / "tests" / "tools" / "blast" / "build.sh")], "/")
    scratch = bench.scratch_directory(options, "search")
    interpreter = _clients.python("databases")
    searches = measure(options, godwit, scratch)
    kind = options.formats[0]
    promised, around = promises(options, searches), bench.host(godwit)
    first = middle(next(iter(searches.values())))
    head = "| format | ranges | workers | search | traceback | format | other | total | search + traceback | imbalance | range start, ms | one pass | x one pass | MB |"
    text = "\n".join([
        "# Searching in parts",
        "",
        f"{options.program}, {first['queries']} queries in {first['batches']} batches, {options.rounds} rounds, the one of median CPU time shown;"
        f" {first['engine']}; {bench.machine(around)}. CPU seconds of all processes.",
        "",
        head,
        "|" + "---|" * (head.count("|") - 1),
        *[row(setting, middle(rounds)) for setting, rounds in searches.items()],
        "",
        *[f"- {bench.in_words(one)}" for one in promised],
        "",
        f"![CPU time by stage and workers, format {kind}](search-stages.svg)",
        f"![CPU time by ranges, format {kind}](search-fragments.svg)",
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    found = [{"setting": setting, "rounds": rounds} for setting, rounds in searches.items()]
    bench.write("search", options.results, text, around, promised, {"searches": found, "plots": plots(options, searches)})
    _clients.plot(interpreter, options.results / "search.json")


if __name__ == "__main__":
    main()
