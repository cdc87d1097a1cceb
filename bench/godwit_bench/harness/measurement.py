"""Wall time, CPU seconds and memory of commands.

CPU seconds are those that the kernel counts for a command and every process it waited for. Memory is the peak of the sum, over all
processes of a command, of their proportional set size (PSS), which counts a shared page once. The peak of the sum of their resident set
size (RSS), which counts a shared page for each process, is measured beside it. Both are sampled, so short peaks may be missed. Wall
times mean little on a busy machine: each result reports the load of the machine.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

from godwit_bench.harness.command_line import exit_with_error
from godwit_bench.harness.programs import piped
from godwit_bench.harness.result_types import Command, Result, Rounds

SAMPLE_INTERVAL_S = 0.1
# Reading PSS walks page tables: the sampler uses at most one twentieth of one core.
SAMPLE_COST_LIMIT = 20
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def measure_script(script: str, log: Path) -> Result:
    """Runs a bash script; returns its wall and CPU seconds and its peak memory in bytes."""
    with log.open("wb") as errors:
        started = time.monotonic()
        process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
        sampler = MemorySampler(process.pid)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.stop()
    if process.returncode != 0:
        last_lines = log.read_text(errors="replace").splitlines()[-20:]
        exit_with_error(f"`{script}` ended with {process.returncode}:\n" + "\n".join(last_lines))
    return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": sampler.peak_bytes, "peak_rss_bytes": sampler.peak_rss_bytes}


class MemorySampler(threading.Thread):
    """A thread that samples the memory of all processes of a session."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.session = session
        self.peak_bytes = 0
        self.peak_rss_bytes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        pause = 0.0
        while not self.ended.wait(pause):
            started = time.monotonic()
            sizes = [process_set_sizes(process) for process in session_members(self.session)]
            self.peak_bytes = max(self.peak_bytes, sum(pss for pss, _ in sizes))
            self.peak_rss_bytes = max(self.peak_rss_bytes, sum(rss for _, rss in sizes))
            pause = max(SAMPLE_INTERVAL_S, SAMPLE_COST_LIMIT * (time.monotonic() - started))

    def stop(self) -> None:
        self.ended.set()
        self.join()


def children_cpu_s() -> float:
    """Returns the CPU seconds of all child processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def process_ids() -> list[int]:
    """Returns the ids of all processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def process_stat(process: int) -> list[str]:
    """Returns the fields of a process in /proc that follow its command; empty if the process has ended."""
    try:
        # The command in parentheses may contain any character; the fields after it are state, parent, group, session.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s(process: int, children: bool) -> float:
    """Returns the CPU seconds of a process so far; with `children`, also those of children that were waited for."""
    fields = process_stat(process)
    if not fields:
        exit_with_error(f"the process {process} has ended, so that its CPU seconds are unknown")
    return sum(map(int, fields[11 : 15 if children else 13])) / CLOCK_TICKS_PER_S


def cpu_s_from_stage(stage: str, command: Command, cwd: Path | None = None, children: bool = False) -> float:
    """Runs a command of godwit with --json; returns its CPU seconds from the start of a stage to its end."""
    running = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True, cwd=cwd)
    started, said = None, []
    for line in piped(running.stderr):
        said.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "stage" and event.get("name") == stage:
            started = cpu_s(running.pid, children)
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    ended = cpu_s(running.pid, children)
    if running.wait() != 0 or started is None:
        exit_with_error(f"{command[1]} failed: " + "".join(said[-3:]))
    return ended - started


def session_members(session: int) -> list[int]:
    """Returns the process ids of a session."""
    return [process for process in process_ids() if process_stat(process)[3:4] == [str(session)]]


def process_set_sizes(process: int) -> tuple[int, int]:
    """Returns the proportional and the resident set size of a process in bytes."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0  # The process has ended.
    kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines[1:])}
    return kib.get("Pss", 0) * 1024, kib.get("Rss", 0) * 1024


def measure_competitors(scripts: dict[str, str], rounds: dict[str, int], scratch: Path) -> Rounds:
    """Measures each named script in interleaved rounds, so that a busy minute affects all of them.

    `rounds` gives the number of rounds of each script. Returns the measurements by name.
    """
    measured: Rounds = {name: [] for name in scripts}
    for round_number in range(max(rounds[name] for name in scripts)):
        for name, script in scripts.items():
            if round_number < rounds[name]:
                result = measure_script(script, scratch / "stderr.txt")
                measured[name].append(result)
                print(
                    f"bench: round {round_number + 1}: {name}: {result['wall_s']:.2f} s wall, {result['cpu_s']:.2f} s CPU,"
                    f" {result['peak_bytes'] / 2**20:.0f} MiB",
                    file=sys.stderr,
                )
    return measured
