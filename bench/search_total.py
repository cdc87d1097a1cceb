#!/usr/bin/env python3
"""The total time of a search: godwit beside the program with threads, and beside naive merging through one master.

As the output grows (by -max_target_seqs), rounds interleaved: NCBI's application on the libraries of the worker (tests/tools/blast) and the
installed program, each with 1, 2, 4 threads, the latter with -mt_mode 0 and 1; one run for each range of an alias file, whose rows one
master merges (_naive_merge.py); and `godwit search`, whose output is compared with that of the application. The rows include the aligned
sequences, so that enough data are moved. Plots like pioBLAST's figures 3 and 4 (doi:10.1109/IPDPS.2005.190).
"""

import filecmp
import json
import shlex
import shutil

import _client_processes
import _measure as bench
from search import INTEGER_LIST_OPTION, base_parser

TABLE_FIELDS = "6 std qseq sseq"


def competitors(options, godwit, scratch, targets):
    """Returns scripts by name. Each writes its own output file."""
    args = [options.program, "-db", options.db, "-query", options.query, "-outfmt", TABLE_FIELDS, "-max_target_seqs", targets, *options.options.split()]
    scripts = {}

    def add(name, command):
        out = scratch / f"{len(scripts)}.tsv"
        scripts[name] = shlex.join(map(str, [*command, "-out", out]))
        return out

    expected = add("application, 1 thread", [options.reference_program, *args])
    for threads in options.program_threads:
        if threads > 1:
            add(f"application, {threads} threads", [options.reference_program, *args, "-num_threads", threads])
        for mode in (0, 1) if threads > 1 else (0,):
            add(f"installed, {threads} threads, -mt_mode {mode}", [*args, "-num_threads", threads, "-mt_mode", mode])
    found = {}
    for workers in options.workers:
        name = f"godwit, {workers} workers"
        found[name] = add(name, [godwit, "search", "--quiet", "--workers", workers, "--", *args])
        naive = [shutil.which("python3"), bench.ROOT / "bench" / "_naive_merge.py", options.program, options.db, options.query]
        naive += [scratch / f"naive-{workers}.tsv", TABLE_FIELDS, targets, workers, scratch / f"naive-{workers}.json"]
        scripts[f"naive merging, {workers} workers"] = "BLAST_USAGE_REPORT=false " + shlex.join(map(str, naive))
    return scripts, expected, found


def measure(options, godwit, scratch):
    """Returns, by targets, the bytes of the output, the measurements, and the master's share of naive merging."""
    growing = {}
    for targets in options.targets:
        scripts, expected, found = competitors(options, godwit, scratch, targets)
        measured = bench.measure_competitors(scripts, {name: options.rounds for name in scripts}, scratch)
        for name, out in found.items():
            if not filecmp.cmp(out, expected, shallow=False):
                bench.exit_with_error(f"{name} wrote a file that differs from the application's, with {targets} targets")
        masters = {workers: json.loads((scratch / f"naive-{workers}.json").read_text()) for workers in options.workers}
        growing[targets] = {"bytes": expected.stat().st_size, "measured": measured, "masters": masters}
    return growing


def plots(name, growing):
    names = next(iter(growing.values()))["measured"]
    lines = {name: [[found["bytes"] / 1e6, bench.median_field(found["measured"][name], "wall_s")] for found in growing.values()] for name in names}
    masters = next(iter(growing.values()))["masters"]
    share = {f"master of {workers}": [[found["bytes"] / 1e6, found["masters"][workers]["master_s"]] for found in growing.values()] for workers in masters}
    return [
        {"name": name.replace("_", "-"), "title": "Time of a search as its output grows", "x": "MB", "y": "s", "log": "x", "bold": [name for name in names if name.startswith("godwit")], "lines": lines},
        {"name": name.replace("_", "-") + "-master", "title": "Time of the master in naive merging", "x": "MB", "y": "s", "log": "x", "bold": [], "lines": share},
    ]


def parse_arguments():
    parser = base_parser(__doc__)
    parser.add_argument("--program-threads", default=[1, 2, 4], help="-num_threads (default: 1,2,4)", **INTEGER_LIST_OPTION)
    parser.add_argument("--targets", default=[25, 250, 2500], help="-max_target_seqs (default: 25,250,2500)", **INTEGER_LIST_OPTION)
    parser.add_argument("--name", default="search_total", help="name of the files in --results (default: search_total)")
    return parser.parse_args()


def main():
    options = parse_arguments()
    bench.require_tools(options.program, "blastdbcmd")
    godwit = bench.godwit_binary(options)
    options.reference_program = bench.first_output_line([str(bench.ROOT / "tests" / "tools" / "blast" / "build.sh")], "/")
    scratch = bench.scratch_directory(options, "search-total")
    interpreter = _client_processes.client_python("databases")
    growing = measure(options, godwit, scratch)
    around = bench.host_description(godwit)
    tables = []
    for targets, found in growing.items():
        tables += [f"## {found['bytes'] / 1e6:.1f} MB of output (-max_target_seqs {targets})", "", bench.markdown_table(found["measured"], "application, 1 thread"), ""]
        tables += [f"- With naive merging and {workers} workers, the master took {one['master_s']:.2f} s, and the runs {one['runs_s']:.2f} s." for workers, one in found["masters"].items()]
        tables.append("")
    text = "\n".join([
        "# Total time of a search",
        "",
        f"{options.program}, {options.rounds} rounds; installed: {bench.first_output_line([options.program, '-version'], ':')}; {bench.format_host(around)}.",
        "",
        *tables,
        f"![Time as the output grows]({options.name.replace('_', '-')}.svg)",
        f"![Time of the master]({options.name.replace('_', '-')}-master.svg)",
        "",
        f"Command: `{bench.command_line()}`",
        "",
    ])
    bench.write_result(options.name, options.results, text, around, [], {"growing": list(growing.items()), "plots": plots(options.name, growing)})
    _client_processes.draw_plots(interpreter, options.results / f"{options.name}.json")


if __name__ == "__main__":
    main()
