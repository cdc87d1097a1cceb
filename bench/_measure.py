"""Shared code of the benchmarks: test data, measured commands, tables, and a description of the host.

CPU seconds are those that the kernel counts for a command and every process it waited for. Memory is the peak of the sum, over all
processes of a command, of their proportional set size (PSS), which counts a shared page once. PSS is sampled, so short peaks may be
missed. Wall times mean little on a busy machine: each result reports the load of the machine.
"""

import argparse
import datetime
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
SAMPLE_INTERVAL_S = 0.1
# Reading PSS walks page tables: the sampler uses at most one twentieth of one core.
SAMPLE_COST_LIMIT = 20


def base_parser(description):
    """Returns a parser with the options that every benchmark has."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--pairs", type=int, default=1_000_000, help="read pairs to simulate (default: 1,000,000)")
    result.add_argument("--reference", type=Path, help="FASTA to take reads from (default: 10 Mb, simulated)")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of every tool (default: all cores)")
    result.add_argument("--godwit", type=Path, help="binary to measure (default: built from this source tree with --release)")
    result.add_argument("--cache", type=Path, default=target_directory() / "bench", help="directory of test data and scratch files")
    result.add_argument("--results", type=Path, default=RESULTS, help="directory of the result tables (default: bench/results)")
    return result


def target_directory():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def exit_with_error(message):
    sys.exit(f"bench: error: {message}")


def report_progress(message):
    print(f"bench: {message}", file=sys.stderr)


def require_tools(*tools):
    """Ends the benchmark with advice if a tool is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        exit_with_error(f"missing: {' '.join(missing)}; run tools/install-dependencies.sh bench")


def godwit_binary(options):
    """Returns the binary to measure; builds it unless --godwit names one."""
    if options.godwit:
        return options.godwit.resolve()
    command = ["cargo", "build", "--release", "-p", "godwit", "-p", "godwit-bwa", "-p", "godwit-bwa-mem3"]
    subprocess.run(command, cwd=ROOT, check=True)
    return target_directory().resolve() / "release" / "godwit"


def cargo_tool(options, crate, version, program):
    """Returns the path of a program from the Rust registry; installs it once."""
    folder = options.cache.resolve() / f"{crate}-{version}"
    build_once(folder, lambda part: run_checked(["cargo", "install", "--locked", "--version", version, "--root", part, crate]))
    return folder / "bin" / program


def run_checked(command, **how):
    """Runs a preparation step; ends the benchmark if it fails."""
    print("bench:", " ".join(map(str, command)), file=sys.stderr)
    try:
        subprocess.run(list(map(str, command)), check=True, **how)
    except (OSError, subprocess.CalledProcessError) as error:
        exit_with_error(error)


def build_once(final, build):
    """Builds a directory under a temporary name and renames it to `final` when it is complete; does nothing if it exists."""
    if not final.exists():
        aside = final.with_name(final.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        build(aside)
        aside.rename(final)
    return final


def reference_fasta(options, godwit, megabases=10):
    """Returns the FASTA file with its bwa index; simulates it unless --reference names one."""
    if options.reference:
        fasta = options.reference.resolve()
    else:
        fasta = build_once(options.cache / f"reference-{megabases}mb", lambda folder: simulate_reference(folder, megabases)) / "ref.fa"
    run_checked([godwit, "index", fasta])
    return fasta


def genome_with_repeats(options, godwit, megabases):
    """Generates a genome with human-like repeats by `godwit-identity`, indexes it, and returns the path of its FASTA file."""
    def build(folder):
        args = ["--genome", megabases, "--seed", options.seed, "--genome-out", folder]
        run_checked(["cargo", "run", "--quiet", "--profile", "ci", "--package", "godwit-identity", "--", *args], cwd=ROOT)

    fasta = build_once(options.cache.resolve() / f"genome-{megabases}mb-{options.seed}", build) / "ref.fa"
    run_checked([godwit, "index", fasta])
    return fasta


def simulate_reference(folder, megabases):
    """Writes three contigs with the given total of megabases; a tenth of them is copies of four repeat families."""
    draw = random.Random(20261120)
    families = [(bytes(draw.choices(b"ACGT", k=bases)), keep) for bases, keep in ((300, 0.9), (1200, 0.97), (500, 0.99), (1500, 1))]
    with open(folder / "ref.fa", "wb") as fasta:
        for name, bases in (("chr1", 500_000 * megabases), ("chr2", 300_000 * megabases), ("chr3", 200_000 * megabases)):
            sequence = bytearray(draw.choices(b"ACGT", k=bases))
            covered = 0
            while covered < bases // 10:
                unit, keep = draw.choice(families)
                copy = bytes(base if draw.random() < keep else draw.choice(b"ACGT") for base in unit)
                start = draw.randrange(bases - len(copy))
                sequence[start : start + len(copy)] = copy
                covered += len(copy)
            fasta.write(b">%s\n" % name.encode())
            for start in range(0, bases, 60):
                fasta.write(sequence[start : start + 60] + b"\n")


def simulated_reads(options, godwit, fasta, gzip):
    """Simulates reads once and returns the FASTQ files of read 1 and read 2."""
    source = "given-" + fasta.name if options.reference else fasta.parent.name.removeprefix("reference-")
    name = f"reads-{source}-{options.pairs}-{options.seed}" + ("-gz" if gzip else "")

    def build(folder):
        command = [godwit, "simulate", "--reference", fasta, "--pairs", options.pairs, "--seed", options.seed, "--out", folder / "x"]
        run_checked(command + (["--gzip"] if gzip else []))

    folder = build_once(options.cache / name, build)
    extension = "fastq.gz" if gzip else "fastq"
    return [folder / f"x_L001_R{read}.{extension}" for read in (1, 2)]


def align_reads(options, godwit, fasta, files, folder):
    """Aligns reads and marks duplicates, into `bench.bam` in a directory."""
    command = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--metrics", "off", "--out", folder]
    run_checked(command + ["--threads", options.threads, "--quiet"])


def aligned_bam(options, godwit, fasta, files):
    """Returns the BAM of simulated reads; aligns them once."""
    folder = files[0].parent
    return build_once(folder.with_name(folder.name + "-called"), lambda new: align_reads(options, godwit, fasta, files, new)) / "bench.bam"


def read_contigs(fasta):
    """Yields the name and the length in bases of each contig of an indexed FASTA file."""
    for line in open(f"{fasta}.fai"):
        name, bases = line.split("\t")[:2]
        yield name, int(bases)


def scratch_directory(options, name):
    """Creates an empty scratch directory for a benchmark."""
    scratch = options.cache.resolve() / f"scratch-{name}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return scratch


def load_into_page_cache(path):
    """Reads a file, so that every competitor finds it in the page cache."""
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def measure_script(script, log):
    """Runs a bash script; returns its wall and CPU seconds and its peak memory in bytes."""
    with open(log, "wb") as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script], stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        sampler = MemorySampler(process.pid)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.stop()
    if process.returncode != 0:
        last_lines = Path(log).read_text(errors="replace").splitlines()[-20:]
        exit_with_error(f"`{script}` ended with {process.returncode}:\n" + "\n".join(last_lines))
    return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": sampler.peak_bytes}


class MemorySampler(threading.Thread):
    """A thread that samples the memory of all processes of a session."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session = session
        self.peak_bytes = 0
        self.ended = threading.Event()

    def run(self):
        pause = 0
        while not self.ended.wait(pause):
            started = time.monotonic()
            self.peak_bytes = max(self.peak_bytes, sum(map(process_pss_bytes, session_members(self.session))))
            pause = max(SAMPLE_INTERVAL_S, SAMPLE_COST_LIMIT * (time.monotonic() - started))

    def stop(self):
        self.ended.set()
        self.join()


def cpu_s(process, children):
    """Returns the CPU seconds of a process so far; with `children`, also those of children that were waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if children else 13]) / os.sysconf("SC_CLK_TCK")


def cpu_s_from_stage(stage, command, cwd=None, children=False):
    """Runs a command of godwit with --json; returns its CPU seconds from the start of a stage to its end."""
    running = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True, cwd=cwd)
    started, said = None, []
    for line in running.stderr:
        said.append(line)
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "stage" and event.get("name") == stage:
            started = cpu_s(running.pid, children)
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    ended = cpu_s(running.pid, children)
    if running.wait() != 0 or started is None:
        exit_with_error(f"{command[1]} failed: " + "".join(said[-3:]))
    return ended - started


def session_members(session):
    """Returns the process ids of a session."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                # The command in parentheses may contain any character; the fields after it are state, parent, group, session.
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # The process has ended.
            if int(fields[3]) == session:
                members.append(entry)
    return members


def process_pss_bytes(process):
    try:
        lines = Path("/proc", process, "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # The process has ended.
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure_competitors(scripts, rounds, scratch):
    """Measures each named script in interleaved rounds, so that a busy minute affects all of them.

    `rounds` gives the number of rounds of each script. Returns the measurements by name.
    """
    measured = {name: [] for name in scripts}
    for round_number in range(max(rounds[name] for name in scripts)):
        for name, script in scripts.items():
            if round_number < rounds[name]:
                result = measure_script(script, scratch / "stderr.txt")
                measured[name].append(result)
                print(f"bench: round {round_number + 1}: {name}: {result['wall_s']:.2f} s wall, {result['cpu_s']:.2f} s CPU,"
                      f" {result['peak_bytes'] / 2**20:.0f} MiB", file=sys.stderr)
    return measured


def target(what, values, at_most=None, at_least=None, unit=""):
    """Returns a target of godwit: its description, the value of every round, and the bound for their median."""
    median_value = statistics.median(values)
    asked = f"at most {at_most:g}" if at_least is None else f"at least {at_least:g}"
    kept = median_value <= at_most if at_least is None else median_value >= at_least
    return {"what": what, "asked": asked, "unit": unit, "values": list(values), "median": median_value, "kept": kept}


def ratios(rounds, others, field):
    """Returns the ratio of each round. Both values of a round were measured under the same load."""
    return [one[field] / max(other[field], 1e-9) for one, other in zip(rounds, others)]


def median_ratio(rounds, others, field):
    """Returns the median of the ratios."""
    return statistics.median(ratios(rounds, others, field))


def format_target(promised):
    """Formats a target as a line of a report."""
    unit = f" {promised['unit']}" if promised["unit"] else ""
    values = promised["values"]
    spread_words = f"{min(values):.3g} - {max(values):.3g} in {len(values)} rounds; " if len(values) > 1 else ""
    outcome = "met" if promised["kept"] else "MISSED"
    return f"{promised['what']}: {promised['median']:.3g}{unit} ({spread_words}target: {promised['asked']}): {outcome}."


def median_field(rounds, field):
    return statistics.median(result[field] for result in rounds)


def format_range(rounds, field):
    values = [result[field] for result in rounds]
    return f"{min(values):.2f} - {max(values):.2f}"


def markdown_table(measured, base):
    """Returns a Markdown table; ratios are to the tool named `base`."""
    lines = [
        f"| tool | rounds | CPU s, median | spread | x {base} | wall s, median | spread | x {base} | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rounds in measured.items():
        cpu, wall = median_field(rounds, "cpu_s"), median_field(rounds, "wall_s")
        cpu_ratio = cpu / max(median_field(measured[base], "cpu_s"), 1e-9)
        wall_ratio = wall / max(median_field(measured[base], "wall_s"), 1e-9)
        peak = max(result["peak_bytes"] for result in rounds) / 2**20
        lines.append(
            f"| {name} | {len(rounds)} | {cpu:.2f} | {format_range(rounds, 'cpu_s')} | {cpu_ratio:.2f}"
            f" | {wall:.2f} | {format_range(rounds, 'wall_s')} | {wall_ratio:.2f} | {peak:.0f} |"
        )
    return "\n".join(lines)


def first_output_line(command, wanted=""):
    """Returns the first output line of a command that contains `wanted`; empty if the command does not run."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    except OSError:
        return ""
    return next((line.strip() for line in done.stdout.splitlines() if wanted in line), "")


def host_description(godwit):
    """Describes the host, the date and the version of godwit, which every result has to state."""
    processor = first_output_line(["grep", "-m1", "model name", "/proc/cpuinfo"]).partition(":")[2].strip()
    memory_kib = int(first_output_line(["grep", "MemTotal", "/proc/meminfo"]).split()[1])
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": first_output_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "processor": processor or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "load_at_end": os.getloadavg()[0],
        "versions": {"godwit": first_output_line([str(godwit), "--version"])},
    }


def measurement_context(options, godwit):
    """Extends the description of the host by the test data and the versions of the competitors."""
    around = host_description(godwit)
    peers = {
        "bwa": first_output_line(["bwa"], "Version"),
        "samtools": first_output_line(["samtools", "--version"]),
        "samblaster": first_output_line(["samblaster", "--version"]),
        "java": first_output_line(["java", "-version"]),
    }
    return around | {
        "pairs": options.pairs,
        "reference": options.reference.name if options.reference else f"simulated, {getattr(options, 'genome', 10)} Mb",
        "seed": options.seed,
        "threads": options.threads,
        "versions": around["versions"] | peers,
    }


def join_script_lines(script):
    """Joins the lines of a script to one command line."""
    commands = "; ".join(" ".join(line.split()) for line in script.strip().splitlines())
    return commands.replace("|; ", "| ")


def format_host(around):
    """Formats the description of the host as one sentence."""
    return (
        f"{around['processor']}, {around['cores']} cores, {around['memory_gib']} GiB, Linux {around['kernel']}, load {around['load_at_end']:.1f};"
        f" {around['date']}, commit {around['commit']}"
    )


def write_comparison(name, title, options, godwit, scripts, measured, base, promises, remarks):
    """Prints the result of the competitors and writes it as Markdown and JSON."""
    around = measurement_context(options, godwit)
    versions = ", ".join(version for version in around["versions"].values() if version)
    text = "\n".join([
        f"# {title}",
        "",
        f"{around['pairs']:,} pairs, reference {around['reference']}, {around['threads']} threads; {format_host(around)}. {versions}.",
        "",
        markdown_table(measured, base),
        "",
        *[f"- {format_target(promised)}" for promised in promises],
        *[f"- {remark}" for remark in remarks],
        "",
        "Commands:",
        "",
        *[f"- {tool}: `{join_script_lines(script)}`" for tool, script in scripts.items()],
        "",
    ])
    places = {options.cache.resolve(): "CACHE", godwit: "godwit", Path.home(): "~"}
    if options.reference:
        places[options.reference.resolve()] = options.reference.name
    for path, shown in places.items():
        text = text.replace(str(path), shown)
    write_result(name, options.results, text, around, promises, {"remarks": remarks, "rounds": measured})


def write_result(name, results, text, around, promises, more):
    """Writes the result of a benchmark as Markdown and JSON, and prints the Markdown."""
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.md").write_text(text)
    details = {"circumstances": around, "command": command_line(), "promises": promises, **more}
    (results / f"{name}.json").write_text(json.dumps(details, indent=2) + "\n")
    print(text)


def command_line():
    """Returns the command line of this benchmark without the options that only name local paths."""
    args, skip = [], False
    for word in sys.argv[1:]:
        if not skip and word.partition("=")[0] not in ("--godwit", "--cache", "--results", "--python", "--hot-blocks"):
            args.append(Path(word).name if "/" in word else word)
        skip = not skip and word in ("--godwit", "--cache", "--results", "--python", "--hot-blocks")
    return " ".join(["cargo xtask bench", Path(sys.argv[0]).stem, *args])
