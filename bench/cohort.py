#!/usr/bin/env python3
"""Many samples and many readers on a SLURM cluster whose storage is one node, or a pool of three.

A cluster of namespaces on this machine: compute nodes `gw1` to `gw4`, and `gw5` to `gw7` whose networks are capped and that serve one directory.
The parts (`--parts`), of which each can be done by itself; what was found of others before stays, with the program that it was found with:

- readers: 12 copies at once, each of a file of its own, by four nodes: all from one storage node, and from the pool by each policy.
- burst: 120 clients that begin at once and stay, counted by the storage nodes.
- shares: 120 new grants, ten a second, of which one storage node's processor is busy (`cpu`), or its network is half of the others' (`throughput`).
- loss: 24 samples as jobs of SLURM, with reads from and results to the pool, while one storage node loses network and power and comes back.
- samples: 120 samples, FASTQ to VCF, with all clients at one storage node, and balanced.
- gatk: the same for 3 samples by the workflow of GATK.
"""

import filecmp
import gzip
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import _measure as bench
import _pool

COMPUTE = ("gw1", "gw2", "gw3", "gw4")
STORAGE = ("gw5", "gw6", "gw7")
POLICIES = ("round-robin", "connections", "cpu", "throughput")
PARTS = ("readers", "burst", "shares", "loss", "samples", "gatk")
READERS = 12
CLIENTS = 120


class Fixture:
    """The cluster, and where things lie."""

    def __init__(self, options, godwit, cluster):
        self.options, self.godwit, self.cluster = options, godwit, cluster
        self.scratch = bench.scratch_directory(options, "cohort")
        self.root = self.scratch / "root"
        self.root.mkdir()
        self.environment = dict(os.environ, SLURM_CONF=str(cluster.configuration), PATH=f"{godwit.parent}:{os.environ['PATH']}:/usr/sbin")

    def pool(self, policy="connections", rate=None, **how):
        rate = rate or self.options.rate
        how.setdefault("more", rate)
        return _pool.Pool(self.cluster, self.godwit, STORAGE, self.root, policy, rate=rate, **how)

    def on(self, node, *words, **how):
        how.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.cluster.inside(node, [self.godwit, *words]), stdout=subprocess.DEVNULL, **how)


def finished(processes, what):
    for process in processes:
        said = process.communicate()[1]
        if process.returncode != 0:
            bench.fail(f"{what}: a client ended with {process.returncode}: {said.decode()[-500:] if said else ''}")


def readers(fixture):
    """Seconds that 12 readers take, all from one storage node and by each policy, in interleaved rounds."""
    options, draw = fixture.options, random.Random(fixture.options.seed)
    contents = draw.randbytes(options.megabytes << 20)
    for number in range(READERS):
        (fixture.root / f"r{number}").write_bytes(contents[number:] + contents[:number])
    target = fixture.scratch / "read"
    seconds = {name: [] for name in ("one node", *POLICIES)}

    def read(pool, url, more):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        started = time.monotonic()
        words = lambda number: ("copy", f"{url}/r{number}", target / f"r{number}", "--mode", "fast", "--streams", 1, *more)
        finished([fixture.on(COMPUTE[number % len(COMPUTE)], *words(number)) for number in range(READERS)], url)
        took = time.monotonic() - started
        if not all(filecmp.cmp(fixture.root / f"r{number}", target / f"r{number}", shallow=False) for number in range(READERS)):
            bench.fail("what was read is not what there is")
        return took

    for round_number in range(options.rounds):
        for policy in POLICIES:
            with fixture.pool(policy) as pool:
                if policy == POLICIES[0]:
                    seconds["one node"].append(read(pool, f"grpc+tcp://{pool.location(STORAGE[0])}", ()))
                seconds[policy].append(read(pool, "godwit+pool://storage", ("--pool", pool.file)))
        bench.progress(f"round {round_number + 1}: { {name: round(values[-1], 2) for name, values in seconds.items()} }")
    return {"seconds": seconds, "megabytes": options.megabytes}


def burst(fixture):
    """Connections of each storage node once 120 clients that began at once are all there."""
    with open(fixture.root / "f", "wb") as file:
        file.truncate(200 << 20)
    counts = {}
    for policy in ("round-robin", "connections"):
        with fixture.pool(policy) as pool:
            clients = []
            for number in range(CLIENTS):
                target = fixture.scratch / f"burst-{number}"
                words = ("copy", "godwit+pool://storage/f", target, "--pool", pool.file, "--mode", "fast", "--streams", 1, "--rate", "200K")
                clients.append(fixture.on(COMPUTE[number % len(COMPUTE)], *words, stderr=subprocess.DEVNULL))
            until = time.monotonic() + 120
            while True:
                found = [state["connections"] for state in pool.seen_by(STORAGE[0]).values()]
                if sum(found) >= CLIENTS or time.monotonic() > until:
                    break
                time.sleep(0.3)
            for client in clients:
                for child in Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split():
                    subprocess.run(["kill", "-KILL", child], check=False)
            for client in clients:
                client.wait()
            # A client that found its node too late may have a connection to two for a moment.
            if sum(found) < CLIENTS:
                bench.fail(f"{policy}: of {CLIENTS} clients {sum(found)} came: {found}")
            counts[policy] = found
            bench.progress(f"burst, {policy}: {found}")
        for left in fixture.scratch.glob("*burst-*"):
            left.unlink()
    return counts


def granted(pool, count=CLIENTS, interval=0.1):
    """How many of so many new grants each node gets."""
    from pyarrow import flight

    each = dict.fromkeys(pool.nodes, 0)
    by_place = {f"grpc+tcp://{pool.location(node)}": node for node in pool.nodes}
    with flight.connect(f"grpc+tcp://{pool.location(pool.nodes[-1])}") as client:
        for _ in range(count):
            body = json.dumps({"id": f"{random.getrandbits(64):016x}"}).encode()
            (answer,) = client.do_action(flight.Action("PoolGrant", body))
            each[by_place[json.loads(answer.body.to_pybytes())["locations"][0]]] += 1
            time.sleep(interval)
    return list(each.values())


def shares(fixture):
    """Grants of the first storage node where its processor is busy, or its network is half."""
    found = {}
    first = STORAGE[0]
    # Each server is on a processor of its own, as far as there are some; the first one's is kept busy.
    with fixture.pool("cpu", on_processor=lambda node: 0 if node == first else 1) as pool:
        os.sched_setaffinity(0, {1})
        found["cpu, idle"] = granted(pool, 60)
        busy = subprocess.Popen(fixture.cluster.inside(first, ["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]), start_new_session=True)
        time.sleep(3)
        found["cpu, the first one's processor busy"] = granted(pool)
        subprocess.run(["kill", "-KILL", *Path(f"/proc/{busy.pid}/task/{busy.pid}/children").read_text().split()], check=False)
        busy.wait()
        os.sched_setaffinity(0, range(os.cpu_count()))
    amount, unit = fixture.options.rate.removesuffix("mbit"), "mbit"
    half = f"{int(amount) // 2}{unit}"
    with fixture.pool("throughput", more={node: half if node == first else fixture.options.rate for node in STORAGE}) as pool:
        pool.cap(first, half)
        found["throughput, the first one's network half"] = granted(pool)
    bench.progress(f"shares: {found}")
    return found


def made_samples(fixture, count, pairs):
    """A small reference with its index, and reads of so many samples below the root: their names."""
    reference = bench.make(fixture.options.cache / "reference-1mb", lambda folder: bench.simulate_reference(folder, 1)) / "ref.fa"
    bench.run([fixture.godwit, "index", reference])
    names = []
    for number in range(count):
        name = f"s{number:03}"
        made = bench.make(
            fixture.options.cache / f"cohort-{pairs}" / name,
            lambda folder: subprocess.run(
                [fixture.godwit, "simulate", "--reference", reference, "--pairs", str(pairs), "--seed", str(number + 1), "--out", folder / "x", "--gzip"],
                check=True,
                stdout=subprocess.DEVNULL,
            ),
        )
        for mate in (1, 2):
            shutil.copy(made / f"x_L001_R{mate}.fastq.gz", fixture.root / f"{name}_{mate}.fastq.gz")
        names.append(name)
    return reference, names


def run_on_slurm(fixture, reference, names, url, out, more, per_node=2, watch=None):
    """`godwit run` of these samples, whose reads are at the URL and whose results go there; its report."""
    sheet = fixture.scratch / f"{out}.csv"
    lines = [f"{name},{url}/{name}_1.fastq.gz,{url}/{name}_2.fastq.gz\n" for name in names]
    sheet.write_text("sample,fastq_1,fastq_2\n" + "".join(lines))
    words = [fixture.godwit, "run", "--reference", reference, "--samples", sheet, "--out", fixture.scratch / out, "--metrics", "off", "--threads", 1]
    words += ["--on", "slurm", "--nodes", len(COMPUTE), "--per-node", per_node, "--store", f"{url}/{out}", "--wait", "120s", *more]
    (fixture.root / out).mkdir()
    log = open(fixture.scratch / f"{out}.log", "wb")
    started = time.monotonic()
    running = subprocess.Popen(list(map(str, words)), env=fixture.environment, stdout=log, stderr=log)
    if watch:
        watch(running)
    code = running.wait()
    if code != 0:
        bench.progress(Path(log.name).read_text()[-1500:])
        bench.fail(f"godwit run ended with {code}")
    report = json.loads((fixture.scratch / out / "run.json").read_text())
    report["measured_s"] = time.monotonic() - started
    return report


def records_of(path):
    return [line for line in gzip.open(path, "rt") if not line.startswith("#")]


def same_results(fixture, names, one, other):
    """Whether two runs have the same variants, and what was stored is what was written."""
    for name in names:
        written, stored = fixture.scratch / one / name, fixture.root / one / name
        for file in (f"{name}.bam", f"{name}.vcf.gz"):
            if not filecmp.cmp(written / file, stored / file, shallow=False):
                bench.fail(f"what was stored of {name}, {file}, is not what was written")
        if other and records_of(written / f"{name}.vcf.gz") != records_of(fixture.scratch / other / name / f"{name}.vcf.gz"):
            bench.fail(f"{name} has other variants where a storage node was lost")


def failures(report):
    """Samples that failed, and starts that did."""
    return sum(1 for sample in report["samples"] if sample.get("error")), sum(len(sample.get("tries", [])) for sample in report["samples"])


def loss(fixture):
    """24 samples while a storage node is lost and comes back, and the same without."""
    reference, names = made_samples(fixture, fixture.options.loss_samples, fixture.options.loss_pairs)
    with fixture.pool("connections", rate=fixture.options.loss_rate) as pool:
        more = ("--pool", pool.file)
        told = []

        def watch(running):
            done = lambda: sum(1 for name in names if (fixture.scratch / "lossy" / name / f"{name}.bam").exists())
            while running.poll() is None and done() < len(names) // 4:
                time.sleep(0.1)
            pool.lose(STORAGE[1], "cut")
            told.append({"done when it was lost": done()})
            time.sleep(10)
            pool.bring_back(STORAGE[1], "cut")
            told.append({"done when it was back": done()})

        lossy = run_on_slurm(fixture, reference, names, "godwit+pool://storage", "lossy", more, watch=watch)
        pool.wait_until_seen(STORAGE)
        whole = run_on_slurm(fixture, reference, names, "godwit+pool://storage", "whole", more)
    same_results(fixture, names, "lossy", "whole")
    same_results(fixture, names, "whole", None)
    logs = [log.read_text(errors="replace") for log in (fixture.scratch / "lossy").rglob("*") if log.is_file() and log.suffix in (".log", "") and log.stat().st_size < 1 << 20]
    moved = sum(text.count("is lost; going on at another node") for text in logs)
    outcome = {"samples": len(names), "failed": failures(lossy), "wall_s": [lossy["wall_seconds"], whole["wall_seconds"]], "moved": moved, "told": told}
    bench.progress(f"loss: {outcome}")
    return outcome


def compared(fixture, names, reference, out, more):
    """A run with all clients at one storage node, and one that is balanced: their reports."""
    reports = {}
    for name in ("unbalanced", "balanced"):
        with fixture.pool("connections", rate=fixture.options.loss_rate) as pool:
            url = "godwit+pool://storage" if name == "balanced" else f"grpc+tcp://{pool.location(STORAGE[0])}"
            pooled = ("--pool", pool.file) if name == "balanced" else ()
            report = run_on_slurm(fixture, reference, names, url, f"{out}-{name}", (*pooled, *more))
        reports[name] = {key: report[key] for key in ("hours", "wall_seconds", "genomes_per_day", "genomes_per_day_is")} | {"failed": failures(report)}
        bench.progress(f"{out}, {name}: {report['wall_seconds']:.1f} s, {report['genomes_per_day']:.0f} genomes a day")
    return reports


def samples(fixture):
    reference, names = made_samples(fixture, fixture.options.samples, fixture.options.sample_pairs)
    return compared(fixture, names, reference, "samples", ())


def gatk(fixture):
    fetched = subprocess.run([bench.ROOT / "tests/tools/gatk/fetch.sh"], stdout=subprocess.PIPE, text=True, check=True)
    # Jobs of SLURM have the environment of what submits them.
    fixture.environment["GODWIT_GATK"] = fetched.stdout.strip()
    reference, names = made_samples(fixture, 3, fixture.options.sample_pairs)
    return compared(fixture, names, reference, "gatk", ("--workflow", "gatk", "--caller-memory", "1G"))


def step_table(title, reports):
    """Hours of each step, as the published experiment has them, in seconds for samples that are so small."""
    steps = [step["step"] for step in reports["unbalanced"]["hours"]]
    lines = [f"### {title}", "", "| step, seconds over all samples | unbalanced | balanced |", "|---|---|---|"]
    seconds = lambda name, step: next((one["hours"] * 3600 for one in reports[name]["hours"] if one["step"] == step), float("nan"))
    lines += [f"| {step} | {seconds('unbalanced', step):.1f} | {seconds('balanced', step):.1f} |" for step in steps]
    lines.append(f"| from start to end | {reports['unbalanced']['wall_seconds']:.1f} | {reports['balanced']['wall_seconds']:.1f} |")
    lines.append(f"| genomes a day | {reports['unbalanced']['genomes_per_day']:.0f} | {reports['balanced']['genomes_per_day']:.0f} |")
    lines.append(f"| samples failed, starts failed | {reports['unbalanced']['failed']} | {reports['balanced']['failed']} |")
    return [*lines, "", f"Genomes a day: {reports['unbalanced']['genomes_per_day_is']}.", ""]


def told(found):
    """Tables and promises of the parts that there are."""
    lines, promised = [], []
    if "readers" in found:
        seconds = found["readers"]["seconds"]
        base = seconds["one node"]
        lines += ["### 12 readers", "", "| clients go to | seconds of each round | times as fast |", "|---|---|---|"]
        for name, values in seconds.items():
            times = [one / other for one, other in zip(base, values)]
            lines.append(f"| {name} | {', '.join(f'{value:.2f}' for value in values)} | {sorted(times)[len(times) // 2]:.2f} |")
            if name != "one node":
                promised.append(bench.promise(f"12 storage-bound readers, {name} over one node", times, at_least=2.3, unit="x"))
        lines.append("")
    if "burst" in found:
        lines += ["### 120 clients at once", "", "| policy | connections of each node |", "|---|---|"]
        for policy, counts in found["burst"].items():
            lines.append(f"| {policy} | {counts} |")
            most = max(abs(count - sum(counts) / len(counts)) for count in counts)
            promised.append(bench.promise(f"burst of {sum(counts)} clients, {policy}: most that a node is off an even share", [most], at_most=1))
        lines.append("")
    if "shares" in found:
        lines += ["### New grants", "", "| | grants of each node |", "|---|---|"]
        for name, counts in found["shares"].items():
            lines.append(f"| {name} | {counts} |")
            if "idle" not in name:
                promised.append(bench.promise(f"{name}: its share of new grants", [100 * counts[0] / sum(counts)], at_most=25, unit="%"))
        lines.append("")
    if "loss" in found:
        one = found["loss"]
        lines += [
            "### A storage node is lost on the way",
            "",
            f"{one['samples']} samples: {one['failed'][0]} failed, {one['failed'][1]} starts failed; {one['wall_s'][0]:.1f} s, and {one['wall_s'][1]:.1f} s where none was lost."
            f" {one['moved']} times a client said that it went on at another node. BAM and VCF that were stored are those that were written, and the variants those of the run"
            " without a loss.",
            "",
        ]
        promised.append(bench.promise("samples that failed while a storage node was lost and came back", [one["failed"][0]], at_most=0))
    if "samples" in found:
        lines += step_table("120 samples, bcftools" if found["samples"].get("count", 120) == 120 else "Samples", found["samples"])
    if "gatk" in found:
        lines += step_table("3 samples, the workflow of GATK", found["gatk"])
    return lines, promised


def write(options, godwit, found, when):
    """The page of all parts that were ever measured, and with which program each of them was."""
    lines, promised = told(found)
    around = bench.host(godwit)
    text = "\n".join([
        "# Many samples and many readers, on one storage node and on a pool",
        "",
        __doc__.split("\n", 2)[2].strip(),
        "",
        f"Networks of storage nodes: {options.rate} for readers and clients, {options.loss_rate} for samples; all nodes share the cores of one machine:",
        "",
        *(f"- {part}: {when[part]}" for part in PARTS if part in found),
        "",
        *lines,
        *(f"- {bench.in_words(one)}" for one in promised),
        "",
        f"Command: `{bench.shown_command()}`",
        "",
    ])
    bench.write("cohort", options.results, text, around, promised, {"found": found, "when": when})


def main():
    parser = bench.parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3, help="of the readers (default: 3)")
    parser.add_argument("--megabytes", type=int, default=16, help="of each reader's file (default: 16)")
    parser.add_argument("--rate", default="160mbit", help="of a storage node's network, for readers and clients (default: 160mbit)")
    parser.add_argument("--loss-rate", default="40mbit", help="the same, for samples (default: 40mbit)")
    parser.add_argument("--loss-samples", type=int, default=24)
    parser.add_argument("--loss-pairs", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--sample-pairs", type=int, default=5_000)
    options = parser.parse_args()
    _pool.need_pyarrow()
    godwit = bench.godwit_binary(options)
    kept = options.results / "cohort.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found, when = before.get("found", {}), before.get("when", {})
    with _pool.Cluster(len(COMPUTE) + len(STORAGE)) as cluster:
        for node in STORAGE:
            subprocess.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=storage"], env=dict(os.environ, SLURM_CONF=str(cluster.configuration)), check=True)
        for part in options.parts:
            fixture = Fixture(options, godwit, cluster)
            found[part] = globals()[part](fixture)
            when[part] = bench.machine(bench.host(godwit))
            # At once: a part that fails later takes none of those before with it.
            write(options, godwit, found, when)
            shutil.rmtree(fixture.scratch)


if __name__ == "__main__":
    main()
