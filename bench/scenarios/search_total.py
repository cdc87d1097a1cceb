"""The total time of a search: godwit beside the program with threads, and beside naive merging through one master.

As the output grows (by -max_target_seqs), rounds interleaved: NCBI's application on the libraries of the worker (tests/tools/blast) and the
installed program, each with 1, 2, 4 threads, the latter with -mt_mode 0 and 1; one run for each range of an alias file, whose rows one
master merges (clients/naive_merge.py); and `godwit search`, whose output is compared with that of the application. The rows include the aligned
sequences, so that enough data are moved. Plots like pioBLAST's figures 3 and 4 (doi:10.1109/IPDPS.2005.190).
"""

import argparse
import filecmp
import json
import shlex
import shutil
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes
from godwit_bench.plots import draw_plots

TABLE_FIELDS = "6 std qseq sseq"


def competitors(options: argparse.Namespace, godwit: Path, scratch: Path, targets: int) -> tuple[dict[str, str], Path, dict[str, Path]]:
    """Returns scripts by name. Each writes its own output file."""
    args = [options.program, "-db", options.db, "-query", options.query, "-outfmt", TABLE_FIELDS, "-max_target_seqs", targets]
    args += options.options.split()
    scripts: dict[str, str] = {}

    def add(name: str, command: harness.Command) -> Path:
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
        naive = [shutil.which("python3"), client_processes.CLIENTS / "naive_merge.py", options.program, options.db, options.query]
        naive += [scratch / f"naive-{workers}.tsv", TABLE_FIELDS, targets, workers, scratch / f"naive-{workers}.json"]
        scripts[f"naive merging, {workers} workers"] = "BLAST_USAGE_REPORT=false " + shlex.join(map(str, naive))
    return scripts, expected, found


def measure(options: argparse.Namespace, godwit: Path, scratch: Path) -> dict[int, harness.Result]:
    """Returns, by targets, the bytes of the output, the measurements, and the master's share of naive merging."""
    growing = {}
    for targets in options.targets:
        scripts, expected, found = competitors(options, godwit, scratch, targets)
        measured = harness.measure_competitors(scripts, dict.fromkeys(scripts, options.rounds), scratch)
        for name, out in found.items():
            if not filecmp.cmp(out, expected, shallow=False):
                harness.exit_with_error(f"{name} wrote a file that differs from the application's, with {targets} targets")
        masters = {workers: json.loads((scratch / f"naive-{workers}.json").read_text()) for workers in options.workers}
        growing[targets] = {"bytes": expected.stat().st_size, "measured": measured, "masters": masters}
    return growing


def plots(name: str, growing: dict[int, harness.Result]) -> list[harness.Result]:
    names = next(iter(growing.values()))["measured"]
    lines = {name: [[found["bytes"] / 1e6, harness.median_field(found["measured"][name], "wall_s")] for found in growing.values()] for name in names}
    masters = next(iter(growing.values()))["masters"]
    share = {
        f"master of {workers}": [[found["bytes"] / 1e6, found["masters"][workers]["master_s"]] for found in growing.values()] for workers in masters
    }
    return [
        {
            "name": name.replace("_", "-"),
            "title": "Time of a search as its output grows",
            "x": "MB",
            "y": "s",
            "log": "x",
            "bold": [name for name in names if name.startswith("godwit")],
            "lines": lines,
        },
        {
            "name": name.replace("_", "-") + "-master",
            "title": "Time of the master in naive merging",
            "x": "MB",
            "y": "s",
            "log": "x",
            "bold": [],
            "lines": share,
        },
    ]


def parse_arguments() -> argparse.Namespace:
    parser = harness.search_parser(__doc__)
    parser.add_argument("--program-threads", default=[1, 2, 4], type=harness.comma_separated(int), help="-num_threads (default: 1,2,4)")
    parser.add_argument("--targets", default=[25, 250, 2500], type=harness.comma_separated(int), help="-max_target_seqs (default: 25,250,2500)")
    parser.add_argument("--name", default="search_total", help="name of the files in --results (default: search_total)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    harness.require_tools(options.program, "blastdbcmd")
    godwit = harness.godwit_binary(options)
    options.reference_program = harness.one_pass_program()
    scratch = harness.scratch_directory(options, "search-total")
    interpreter = client_processes.client_python("databases")
    growing = measure(options, godwit, scratch)
    around = harness.host_description(godwit)
    tables = []
    for targets, found in growing.items():
        tables += [
            f"## {found['bytes'] / 1e6:.1f} MB of output (-max_target_seqs {targets})",
            "",
            harness.markdown_table(found["measured"], "application, 1 thread"),
            "",
        ]
        tables += [
            f"- With naive merging and {workers} workers, the master took {one['master_s']:.2f} s, and the runs {one['runs_s']:.2f} s."
            for workers, one in found["masters"].items()
        ]
        tables.append("")
    text = "\n".join(
        [
            "# Total time of a search",
            "",
            f"{options.program}, {options.rounds} rounds; installed: {harness.first_output_line([options.program, '-version'], ':')}; "
            f"{harness.format_host(around)}.",
            "",
            *tables,
            f"![Time as the output grows]({options.name.replace('_', '-')}.svg)",
            f"![Time of the master]({options.name.replace('_', '-')}-master.svg)",
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result(options.name, options.results, text, around, [], {"growing": list(growing.items()), "plots": plots(options.name, growing)})
    draw_plots(interpreter, options.results / f"{options.name}.json")


if __name__ == "__main__":
    main()
