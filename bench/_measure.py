"""What the benchmarks share: test data, measured commands, tables, and a note of the machine.

CPU seconds are what the kernel counts for a command and every process it waited for. Memory is the peak of the sum over all its
processes of their proportional share (PSS), so that what two of them map is counted once; it is sampled, so short peaks may be
missed. Wall times mean little on a busy machine: each result says how loaded it was.
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
# Reading PSS walks page tables: at most a twentieth of one core may go into it.
SAMPLE_COST_LIMIT = 20


def parser(description):
    """The options every benchmark has."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--pairs", type=int, default=1_000_000, help="read pairs to simulate (default: 1,000,000)")
    result.add_argument("--reference", type=Path, help="FASTA to take reads from (default: 10 Mb, simulated)")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of every tool (default: all cores)")
    result.add_argument("--godwit", type=Path, help="binary to measure (default: built from here with --release)")
    result.add_argument("--cache", type=Path, default=target_directory() / "bench", help="where data is kept and scratch made")
    result.add_argument("--results", type=Path, default=RESULTS, help="where the tables go (default: bench/results)")
    return result


def target_directory():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def fail(message):
    sys.exit(f"bench: error: {message}")


def progress(message):
    print(f"bench: {message}", file=sys.stderr)


def need(*tools):
    """Stops with advice if a tool is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        fail(f"missing: {' '.join(missing)}; run tools/install-dependencies.sh bench")


def godwit_binary(options):
    """The binary to measure, built first unless one was given."""
    if options.godwit:
        return options.godwit.resolve()
    command = ["cargo", "build", "--release", "-p", "godwit", "-p", "godwit-bwa", "-p", "godwit-bwa-mem3"]
    subprocess.run(command, cwd=ROOT, check=True)
    return target_directory().resolve() / "release" / "godwit"


def cargo_tool(options, crate, version, program):
    """A program from the Rust registry, built once."""
    folder = options.cache.resolve() / f"{crate}-{version}"
    make(folder, lambda part: run(["cargo", "install", "--locked", "--version", version, "--root", part, crate]))
    return folder / "bin" / program


def run(command, **how):
    """Runs a preparation step; its failure ends the benchmark."""
    print("bench:", " ".join(map(str, command)), file=sys.stderr)
    try:
        subprocess.run(list(map(str, command)), check=True, **how)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(error)


def make(final, build):
    """Builds a directory aside and names it `final` when it is whole; does nothing when it is there."""
    if not final.exists():
        aside = final.with_name(final.name + ".part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        build(aside)
        aside.rename(final)
    return final


def reference(options, godwit, megabases=10):
    """The FASTA file with its bwa index, simulated unless one was given."""
    if options.reference:
        fasta = options.reference.resolve()
    else:
        fasta = make(options.cache / f"reference-{megabases}mb", lambda folder: simulate_reference(folder, megabases)) / "ref.fa"
    run([godwit, "index", fasta])
    return fasta


def genome_with_repeats(options, godwit, megabases):
    """Generates a genome with human-like repeats by `godwit-identity`, indexes it, and returns the path of its FASTA file."""
    def build(folder):
        words = ["--genome", megabases, "--seed", options.seed, "--genome-out", folder]
        run(["cargo", "run", "--quiet", "--profile", "ci", "--package", "godwit-identity", "--", *words], cwd=ROOT)

    fasta = make(options.cache.resolve() / f"genome-{megabases}mb-{options.seed}", build) / "ref.fa"
    run([godwit, "index", fasta])
    return fasta


def simulate_reference(folder, megabases):
    """Three contigs, so many Mb together, a tenth of it copies of four repeat families."""
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


def reads(options, godwit, fasta, gzip):
    """Read 1 and read 2 as FASTQ files."""
    source = "given-" + fasta.name if options.reference else fasta.parent.name.removeprefix("reference-")
    name = f"reads-{source}-{options.pairs}-{options.seed}" + ("-gz" if gzip else "")

    def build(folder):
        command = [godwit, "simulate", "--reference", fasta, "--pairs", options.pairs, "--seed", options.seed, "--out", folder / "x"]
        run(command + (["--gzip"] if gzip else []))

    folder = make(options.cache / name, build)
    extension = "fastq.gz" if gzip else "fastq"
    return [folder / f"x_L001_R{read}.{extension}" for read in (1, 2)]


def align(options, godwit, fasta, files, folder):
    """Aligns and marks reads, into `bench.bam` of a folder."""
    command = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--metrics", "off", "--out", folder]
    run(command + ["--threads", options.threads, "--quiet"])


def aligned(options, godwit, fasta, files):
    """The BAM of simulated reads, made once."""
    folder = files[0].parent
    return make(folder.with_name(folder.name + "-called"), lambda new: align(options, godwit, fasta, files, new)) / "bench.bam"


def contigs(fasta):
    """Name and bases of each contig of a FASTA file with its index."""
    for line in open(f"{fasta}.fai"):
        name, bases = line.split("\t")[:2]
        yield name, int(bases)


def scratch_directory(options, name):
    """An empty directory of a benchmark."""
    scratch = options.cache.resolve() / f"scratch-{name}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return scratch


def into_page_cache(path):
    """Reads a file, so that all competitors find it in memory."""
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def measure(script, log):
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
        fail(f"`{script}` ended with {process.returncode}:\n" + "\n".join(last_lines))
    return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": sampler.peak_bytes}


class MemorySampler(threading.Thread):
    """Watches all processes of a session."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session = session
        self.peak_bytes = 0
        self.ended = threading.Event()

    def run(self):
        pause = 0
        while not self.ended.wait(pause):
            started = time.monotonic()
            self.peak_bytes = max(self.peak_bytes, sum(map(pss_bytes, session_members(self.session))))
            pause = max(SAMPLE_INTERVAL_S, SAMPLE_COST_LIMIT * (time.monotonic() - started))

    def stop(self):
        self.ended.set()
        self.join()


def cpu_s(process, children):
    """CPU seconds of a process so far, perhaps with those of children that were waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if children else 13]) / os.sysconf("SC_CLK_TCK")


def cpu_s_from(stage, command, cwd=None, children=False):
    """Runs a command of godwit with --json; returns its CPU seconds from the beginning of a stage to its end."""
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
        fail(f"{command[1]} failed: " + "".join(said[-3:]))
    return ended - started


def session_members(session):
    """Process ids of a session."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                # The command in parentheses may hold anything; the fields after it are state, parent, group, session.
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has ended.
            if int(fields[3]) == session:
                members.append(entry)
    return members


def pss_bytes(process):
    try:
        lines = Path("/proc", process, "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0  # It has ended.
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def compete(scripts, rounds, scratch):
    """Measures each named script in interleaved rounds, so that a busy minute hurts all alike.

    `rounds` gives the number of rounds of each. Returns the measurements by name.
    """
    measured = {name: [] for name in scripts}
    for round_number in range(max(rounds[name] for name in scripts)):
        for name, script in scripts.items():
            if round_number < rounds[name]:
                result = measure(script, scratch / "stderr.txt")
                measured[name].append(result)
                print(f"bench: round {round_number + 1}: {name}: {result['wall_s']:.2f} s wall, {result['cpu_s']:.2f} s CPU,"
                      f" {result['peak_bytes'] / 2**20:.0f} MiB", file=sys.stderr)
    return measured


def promise(what, values, at_most=None, at_least=None, unit=""):
    """A figure that godwit is to reach: what it is, its value in every round, and the bound that their median is held against."""
    median_value = statistics.median(values)
    asked = f"at most {at_most:g}" if at_least is None else f"at least {at_least:g}"
    kept = median_value <= at_most if at_least is None else median_value >= at_least
    return {"what": what, "asked": asked, "unit": unit, "values": list(values), "median": median_value, "kept": kept}


def quotients(rounds, others, field):
    """The quotient of each round: what a round had to share, both had."""
    return [one[field] / max(other[field], 1e-9) for one, other in zip(rounds, others)]


def quotient(rounds, others, field):
    """The median of the quotients."""
    return statistics.median(quotients(rounds, others, field))


def in_words(promised):
    """A promise as a line of a report."""
    unit = f" {promised['unit']}" if promised["unit"] else ""
    values = promised["values"]
    spread_words = f"{min(values):.3g} - {max(values):.3g} in {len(values)} rounds; " if len(values) > 1 else ""
    outcome = "kept" if promised["kept"] else "MISSED"
    return f"{promised['what']}: {promised['median']:.3g}{unit} ({spread_words}asked: {promised['asked']}): {outcome}."


def median(rounds, field):
    return statistics.median(result[field] for result in rounds)


def spread(rounds, field):
    values = [result[field] for result in rounds]
    return f"{min(values):.2f} - {max(values):.2f}"


def table(measured, base):
    """A Markdown table; ratios are to the tool named `base`."""
    lines = [
        f"| tool | rounds | CPU s, median | spread | x {base} | wall s, median | spread | x {base} | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rounds in measured.items():
        cpu, wall = median(rounds, "cpu_s"), median(rounds, "wall_s")
        cpu_ratio = cpu / max(median(measured[base], "cpu_s"), 1e-9)
        wall_ratio = wall / max(median(measured[base], "wall_s"), 1e-9)
        peak = max(result["peak_bytes"] for result in rounds) / 2**20
        lines.append(
            f"| {name} | {len(rounds)} | {cpu:.2f} | {spread(rounds, 'cpu_s')} | {cpu_ratio:.2f}"
            f" | {wall:.2f} | {spread(rounds, 'wall_s')} | {wall_ratio:.2f} | {peak:.0f} |"
        )
    return "\n".join(lines)


def first_line(command, wanted=""):
    """The first line with `wanted` in what a command prints; empty if it does not run."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    except OSError:
        return ""
    return next((line.strip() for line in done.stdout.splitlines() if wanted in line), "")


def host(godwit):
    """Machine, date and version: what a number means nothing without."""
    processor = first_line(["grep", "-m1", "model name", "/proc/cpuinfo"]).partition(":")[2].strip()
    memory_kib = int(first_line(["grep", "MemTotal", "/proc/meminfo"]).split()[1])
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "processor": processor or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "load_at_end": os.getloadavg()[0],
        "versions": {"godwit": first_line([str(godwit), "--version"])},
    }


def circumstances(options, godwit):
    """That, and what it was measured on and with."""
    around = host(godwit)
    peers = {
        "bwa": first_line(["bwa"], "Version"),
        "samtools": first_line(["samtools", "--version"]),
        "samblaster": first_line(["samblaster", "--version"]),
        "java": first_line(["java", "-version"]),
    }
    return around | {
        "pairs": options.pairs,
        "reference": options.reference.name if options.reference else f"simulated, {getattr(options, 'genome', 10)} Mb",
        "seed": options.seed,
        "threads": options.threads,
        "versions": around["versions"] | peers,
    }


def on_one_line(script):
    """A script as one would type it."""
    commands = "; ".join(" ".join(line.split()) for line in script.strip().splitlines())
    return commands.replace("|; ", "| ")


def machine(around):
    """The circumstances as one sentence."""
    return (
        f"{around['processor']}, {around['cores']} cores, {around['memory_gib']} GiB, Linux {around['kernel']}, load {around['load_at_end']:.1f};"
        f" {around['date']}, commit {around['commit']}"
    )


def report(name, title, options, godwit, scripts, measured, base, promises, remarks):
    """Prints the result of competitors and writes it as Markdown and JSON."""
    around = circumstances(options, godwit)
    versions = ", ".join(version for version in around["versions"].values() if version)
    text = "\n".join([
        f"# {title}",
        "",
        f"{around['pairs']:,} pairs, reference {around['reference']}, {around['threads']} threads; {machine(around)}. {versions}.",
        "",
        table(measured, base),
        "",
        *[f"- {in_words(promised)}" for promised in promises],
        *[f"- {remark}" for remark in remarks],
        "",
        "Commands:",
        "",
        *[f"- {tool}: `{on_one_line(script)}`" for tool, script in scripts.items()],
        "",
    ])
    places = {options.cache.resolve(): "CACHE", godwit: "godwit", Path.home(): "~"}
    if options.reference:
        places[options.reference.resolve()] = options.reference.name
    for path, shown in places.items():
        text = text.replace(str(path), shown)
    write(name, options.results, text, around, promises, {"remarks": remarks, "rounds": measured})


def write(name, results, text, around, promises, more):
    """Writes what a benchmark found as Markdown and JSON, and prints the former."""
    results.mkdir(parents=True, exist_ok=True)
    (results / f"{name}.md").write_text(text)
    details = {"circumstances": around, "command": shown_command(), "promises": promises, **more}
    (results / f"{name}.json").write_text(json.dumps(details, indent=2) + "\n")
    print(text)


def shown_command():
    """How this benchmark was started, without what only says where things lie on this machine."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if not skip and word.partition("=")[0] not in ("--godwit", "--cache", "--results", "--python", "--hot-blocks"):
            words.append(Path(word).name if "/" in word else word)
        skip = not skip and word in ("--godwit", "--cache", "--results", "--python", "--hot-blocks")
    return " ".join(["cargo xtask bench", Path(sys.argv[0]).stem, *words])
