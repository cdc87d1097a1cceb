"""Reading files of a server through a mount: `godwit mount`, `rclone mount` of `rclone serve webdav`, and the local file.

Server, mount and reader are on this machine, connected by loopback without TLS. *Warm* means that the server's page cache has the file and the
mount and its kernel cache have none of it; *cold* that neither has; *again* that a program has read the file at this place before. Regions are
read by samtools through the index of a BAM file. Only root can empty the page cache.
"""

import argparse
import os
import random
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from godwit_bench import harness
from godwit_bench.harness import client_processes

LOCAL, GODWIT, RCLONE = "local file", "godwit mount", "rclone mount"
REGION_BASES = 1000
MOUNT_TIMEOUT_S = 30


def empty_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


@contextmanager
def mounted(command: Sequence[object], directory: Path) -> Iterator[int]:
    """Runs a program that mounts at `directory` until it is terminated; gives its process id."""
    directory.mkdir()
    process = subprocess.Popen([str(word) for word in command])
    try:
        deadline = time.monotonic() + MOUNT_TIMEOUT_S
        while not directory.is_mount():
            if process.poll() is not None or time.monotonic() > deadline:
                harness.exit_with_error(f"{command[0]} {command[1]} did not mount {directory}; see above")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def served_by_rclone(root: Path) -> Iterator[tuple[int, str]]:
    """Runs `rclone serve webdav`; gives its process id and its URL."""
    url = f"http://127.0.0.1:{harness.free_port()}"
    process = subprocess.Popen(["rclone", "serve", "webdav", str(root), "--addr", url.removeprefix("http://"), "--read-only", "--log-level", "ERROR"])
    try:
        yield process.pid, url
    finally:
        process.terminate()
        process.wait()


def measure(job: str, directory: Path, daemons: Sequence[int], scratch: Path) -> harness.Result:
    """Runs a script in a directory. Adds the CPU seconds of server and mount."""
    before = sum(client_processes.tree_cpu_s(daemon) for daemon in daemons)
    result = harness.measure_script(f"cd {shlex.quote(str(directory))}; {job}", scratch / "stderr.txt")
    result["cpu_s"] += sum(client_processes.tree_cpu_s(daemon) for daemon in daemons) - before
    return result


def measure_rounds(
    options: argparse.Namespace, root: Path, places: dict[str, tuple[Path, list[int]]], jobs: dict[str, str]
) -> dict[str, harness.Rounds]:
    """Returns the rounds of each job, by place."""
    found: dict[str, harness.Rounds] = {job: {place: [] for place in places} for job in jobs}
    for round_number in range(options.rounds):
        for job, script in jobs.items():
            for place, (directory, daemons) in places.items():
                empty_page_cache()
                if job.endswith("warm"):
                    for file in root.iterdir():
                        harness.load_into_page_cache(file)
                elif job.endswith("again"):
                    measure(script, directory, daemons, options.scratch)
                result = measure(script, directory, daemons, options.scratch)
                harness.report_progress(f"round {round_number + 1}: {job}, {place}: {result['wall_s']:.2f} s, {result['cpu_s']:.2f} s CPU")
                found[job][place].append(result)
    return found


def targets(found: dict[str, harness.Rounds]) -> Iterator[harness.Result]:
    for job, measured in found.items():
        if job.startswith("whole"):
            yield harness.target(f"{job}, speed over the local file", harness.ratios(measured[LOCAL], measured[GODWIT], "wall_s"), at_least=0.8)
            if not job.endswith("again"):
                yield harness.target(f"{job}, speed over rclone", harness.ratios(measured[RCLONE], measured[GODWIT], "wall_s"), at_least=2)
        else:
            yield harness.target(f"{job}, time over the local file", harness.ratios(measured[GODWIT], measured[LOCAL], "wall_s"), at_most=1.5)


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=2048, help="size of the file that is read whole (default: 2048)")
    parser.add_argument("--regions", type=int, default=2000, help="regions of the BAM file (default: 2000)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    options = parser.parse_args()
    harness.require_tools("samtools", "rclone")
    godwit = harness.godwit_binary(options)
    options.scratch = harness.scratch_directory(options, "mount")
    fasta, bam = harness.simulated_bam(options, godwit)
    root = options.scratch / "root"
    root.mkdir()
    harness.write_random(root / "large", options.megabytes)
    shutil.copy(bam, root / "reads.bam")
    harness.run_checked(["samtools", "index", root / "reads.bam"])
    regions = harness.random_regions(fasta, REGION_BASES, options.regions, random.Random(options.seed))
    bed = options.scratch / "regions.bed"
    bed.write_text("".join(f"{contig}\t{start}\t{end}\n" for contig, start, end in regions))
    read_whole, read_regions = "cat large > /dev/null", f"samtools view -c -M -L {shlex.quote(str(bed))} reads.bam"
    jobs = {f"whole file, {state}": read_whole for state in ("warm", "cold", "again")}
    jobs |= {f"regions, {state}": read_regions for state in ("warm", "cold")}
    with ExitStack() as running:
        server = running.enter_context(client_processes.DataServer(godwit, root))
        at = options.scratch / "godwit"
        mount = running.enter_context(mounted([godwit, "mount", f"grpc+tcp://{server.address}", at, "--foreground"], at))
        rclone_server, url = running.enter_context(served_by_rclone(root))
        rclone_at = options.scratch / "rclone"
        rclone_command = ["rclone", "mount", ":webdav:", rclone_at, "--webdav-url", url, "--webdav-vendor", "other", "--read-only"]
        rclone_mount = running.enter_context(mounted(rclone_command, rclone_at))
        places = {LOCAL: (root, []), GODWIT: (at, [server.pid, mount]), RCLONE: (rclone_at, [rclone_server, rclone_mount])}
        found = measure_rounds(options, root, places, jobs)
    around = harness.host_description(godwit)
    kept = list(targets(found))
    versions = harness.first_output_line(["rclone", "version"])
    text = "\n".join(
        [
            "# Reading through a mount",
            "",
            f"A file of {options.megabytes:,} MiB of random bytes, read by `cat`, and {options.regions:,} regions of {REGION_BASES:,} bases of a BAM",
            f"file of {bam.stat().st_size:,} bytes, read by samtools. {versions}. CPU seconds are those of server, mount and reader.",
            f"{options.rounds} interleaved rounds; {harness.format_host(around)}.",
            "",
            *(f"- {harness.format_target(one)}" for one in kept),
            "",
            *(line for job, measured in found.items() for line in (f"## {job}", "", harness.markdown_table(measured, LOCAL), "")),
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("mount", options.results, text, around, kept, {"found": found})
    shutil.rmtree(options.scratch)


if __name__ == "__main__":
    main()
