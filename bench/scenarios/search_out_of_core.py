"""A search of a database of four times the memory, on a slow disk: godwit beside the program's modes of threads.

All processes of a competitor run in a control group whose memory, page cache included, is a part of the database, and whose reads of the disk
are throttled. Both need root, and version 1 or 2 of control groups with the controllers memory and blkio (version 1) or io (version 2). The
database consists of mutated copies of real proteins under new names. Before each run, its files are dropped from the page cache.

The output of godwit is compared with that of NCBI's application on the libraries of the worker (tests/tools/blast), which runs once without
limits. Then godwit is killed at random moments and resumed; time beyond that of an uninterrupted search was lost.
"""

import argparse
import filecmp
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from godwit_bench import harness

AMINO_ACIDS = b"ACDEFGHIKLMNPQRSTVWY"
SUBSTITUTION_TABLES = 1000
CGROUPS = Path("/sys/fs/cgroup")
TABLE_FIELDS = "6 std qseq sseq"


class LimitedGroup:
    """A control group with limits of memory and of the rate of reading; removed at the end of the block."""

    def __init__(self, memory_bytes: int, read_bytes_per_s: int, device: str) -> None:
        name = f"godwit-bench-{os.getpid()}"
        if (CGROUPS / "cgroup.controllers").exists():
            limits = [("", "memory.max", str(memory_bytes)), ("", "io.max", f"{device} rbps={read_bytes_per_s}")]
            (CGROUPS / "cgroup.subtree_control").write_text("+memory +io")
        else:
            rate = f"{device} {read_bytes_per_s}"
            limits = [("memory", "memory.limit_in_bytes", str(memory_bytes)), ("blkio", "blkio.throttle.read_bps_device", rate)]
        self.directories: list[Path] = []
        for controller, file, value in limits:
            directory = CGROUPS / controller / name
            if directory not in self.directories:
                directory.mkdir()
                self.directories.append(directory)
            (directory / file).write_text(value)

    def script(self, command: harness.Command) -> str:
        """Returns a script that runs a command in this group."""
        enter = [f"echo $$ > {directory / 'cgroup.procs'}" for directory in self.directories]
        return "; ".join([*enter, "exec " + shlex.join(map(str, command))])

    def __enter__(self) -> "LimitedGroup":
        return self

    def __exit__(self, *_: object) -> None:
        for directory in self.directories:
            directory.rmdir()


def fasta_sequences(path: Path) -> Iterator[bytes]:
    for record in path.read_bytes().removeprefix(b">").split(b"\n>"):
        yield b"".join(record.split(b"\n")[1:])


def substitution_tables(draw: random.Random) -> list[bytes]:
    """Returns tables that each replace up to 8 of the 20 amino acids, so that copies differ by about 0 to 40 percent."""
    tables = []
    for _ in range(SUBSTITUTION_TABLES):
        replaced = bytes(draw.sample(AMINO_ACIDS, draw.randrange(9)))
        tables.append(bytes.maketrans(replaced, bytes(draw.choices(AMINO_ACIDS, k=len(replaced)))))
    return tables


def make_database(options: argparse.Namespace, folder: Path) -> None:
    """Writes mutated copies of the proteins until the database has its size, and formats them."""
    draw = random.Random(48)
    proteins, tables = list(fasta_sequences(options.proteins)), substitution_tables(draw)
    fasta, letters, copy = folder / "big.fa", 0, 0
    with fasta.open("wb") as out:
        while letters < options.gigabytes * 1e9:
            for number, (protein, table) in enumerate(zip(proteins, draw.choices(tables, k=len(proteins)), strict=True)):
                out.write(b">c%d_%d\n%b\n" % (copy, number, protein.translate(table)))
                letters += len(protein)
                if letters >= options.gigabytes * 1e9:
                    break
            copy += 1
    harness.run_checked(["makeblastdb", "-in", fasta, "-dbtype", "prot", "-out", folder / "big", "-blastdb_version", "5"])
    fasta.unlink()


def disk_device(path: Path) -> str:
    """Returns the numbers of the disk of a file. A partition has the limits of its disk."""
    number = path.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if (device / "partition").exists():
        device = device.parent
    return (device / "dev").read_text().strip()


def drop_from_page_cache(database: Path) -> None:
    os.sync()
    for file in database.parent.glob(database.name + ".*"):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def measure_kills(options: argparse.Namespace, group: LimitedGroup, search: list[str | Path], whole: harness.Result, expected: Path) -> list[float]:
    """Kills searches at random moments and resumes them; returns the percentage of the time that each one lost.

    CPU time cannot be compared, because that of killed workers is not known.
    """
    lost: list[float] = []
    draw, out = random.Random(20), Path(search[-1])
    while len(lost) < options.kills:
        drop_from_page_cache(options.database)
        out.unlink(missing_ok=True)
        process = subprocess.Popen(["bash", "-c", group.script(search)], start_new_session=True)
        killed_after_s = draw.uniform(0.02, 0.98) * whole["wall_s"]
        time.sleep(killed_after_s)
        if process.poll() is not None:
            harness.report_progress(f"the search ended before it could be killed after {killed_after_s:.1f} s")
            continue
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        resumed = [*search[:2], "--resume", *search[2:]]
        started = time.monotonic()
        harness.run_checked(["bash", "-c", group.script(resumed)])
        used_s = time.monotonic() - started + killed_after_s
        if not filecmp.cmp(out, expected, shallow=False):
            harness.exit_with_error(f"a search that was killed after {killed_after_s:.1f} s and resumed wrote a different file")
        lost.append(max(0.0, 100 * (used_s / whole["wall_s"] - 1)))
        harness.report_progress(f"killed and resumed {len(lost)} of {options.kills}: {lost[-1]:.1f} % lost")
    return lost


def parse_arguments() -> argparse.Namespace:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--proteins", required=True, type=Path, help="FASTA of the proteins that are mutated and multiplied")
    parser.add_argument("--query", required=True, type=Path)
    parser.add_argument("--gigabytes", type=float, default=6, help="letters of the database, 10^9 (default: 6)")
    parser.add_argument("--memory-part", type=float, default=4, help="the memory is this part of the database (default: 4)")
    modes = "modes of threads of the installed program (default: 0,1); mode 1 is killed if it needs more memory than there is"
    parser.add_argument("--modes", default=[0, 1], type=harness.comma_separated(int), help=modes)
    parser.add_argument("--read-rate", type=int, default=150, help="limit of reading, MB/s (default: 150)")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--options", default="", help="further options of blastp")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    harness.require_tools("makeblastdb", "blastp")
    godwit = harness.godwit_binary(options)
    reference = harness.one_pass_program()
    scratch = harness.scratch_directory(options, "search-out-of-core")
    folder = harness.build_once(options.cache.resolve() / f"out-of-core-{options.gigabytes:g}", lambda folder: make_database(options, folder))
    options.database = folder / "big"
    bytes_on_disk = sum(file.stat().st_size for file in folder.glob("big*.psq"))
    args = ["blastp", "-db", options.database, "-query", options.query, "-outfmt", TABLE_FIELDS, *shlex.split(options.options)]
    expected = scratch / "expected.tsv"
    one_pass_cpu_s = harness.children_cpu_s()
    harness.run_checked([reference, *args, "-out", expected], env=dict(os.environ, BLAST_USAGE_REPORT="false"))
    one_pass_cpu_s = harness.children_cpu_s() - one_pass_cpu_s
    installed = [shutil.which("blastp"), *args[1:], "-num_threads", options.threads]
    search = [godwit, "search", "--quiet", "--workers", str(options.threads), "--", *args, "-out", scratch / "found.tsv"]
    commands = {f"installed, -mt_mode {mode}": [*installed, "-mt_mode", mode, "-out", scratch / f"mode{mode}.tsv"] for mode in options.modes}
    commands["godwit"] = search
    measured: harness.Rounds = {name: [] for name in commands}
    device = disk_device(next(folder.glob("big*.psq")))
    with LimitedGroup(int(bytes_on_disk / options.memory_part), options.read_rate * 1_000_000, device) as group:
        for _ in range(options.rounds):
            for name, command in commands.items():
                drop_from_page_cache(options.database)
                measured[name].append(harness.measure_script(group.script(command), scratch / "stderr.txt"))
                harness.report_progress(f"{name}: {measured[name][-1]['wall_s']:.1f} s")
        if not filecmp.cmp(scratch / "found.tsv", expected, shallow=False):
            harness.exit_with_error("godwit wrote a different file")
        whole: harness.Result = {"wall_s": harness.median_field(measured["godwit"], "wall_s")}
        lost = measure_kills(options, group, search, whole, expected)
    best = {name: rounds for name, rounds in measured.items() if name != "godwit"}
    best_name = min(best, key=lambda name: harness.median_field(best[name], "wall_s"))
    first_name = next(iter(best))
    promised = [
        harness.target(f"wall over {first_name}", harness.ratios(measured["godwit"], best[first_name], "wall_s"), at_most=0.1),
        harness.target(f"wall over {best_name}", harness.ratios(measured["godwit"], best[best_name], "wall_s"), at_most=1 / 3),
        harness.target("CPU time over one pass", [result["cpu_s"] / one_pass_cpu_s for result in measured["godwit"]], at_most=1.03),
    ]
    if lost:
        promised.append(harness.target("lost by a kill, worst", [max(lost)], at_most=5, unit="%"))
    around = harness.host_description(godwit)
    text = "\n".join(
        [
            "# Searching a database larger than the memory",
            "",
            f"blastp, {bytes_on_disk / 1e9:.1f} GB of letters, memory of 1/{options.memory_part:g} of it, reads limited to {options.read_rate} MB/s,"
            f" {options.threads} threads, {options.rounds} rounds; {harness.format_host(around)}. The output of godwit equals that of one pass.",
            "",
            harness.markdown_table(measured, first_name),
            "",
            f"Killed at {len(lost)} random moments and resumed: same bytes; lost time: median "
            f"{statistics.median(lost) if lost else 0:.1f} %, worst {max(lost, default=0):.1f} %.",
            "",
            *[f"- {harness.format_target(one)}" for one in promised],
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("search_out_of_core", options.results, text, around, promised, {"measured": measured, "lost_percent": lost})


if __name__ == "__main__":
    main()
