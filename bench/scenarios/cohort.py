"""Many samples and many readers on a SLURM cluster whose storage is one host, or a pool of three.

A cluster of namespaces on this machine: compute hosts `gw1` to `gw4`, and storage hosts `gw5` to `gw7`, which have limited network rates
and serve one directory. The parts (`--parts`) can be measured separately; earlier results of the other parts stay, with the program that
they were measured with:

- readers: 12 copies at once, each of its own file, by four hosts: all from one storage host, and from the pool by each policy.
- burst: 120 clients that start at once and stay connected, counted by the storage hosts.
- shares: 120 new grants, ten a second, while one storage host has a busy processor (`cpu`), or half of the network rate of the others (`throughput`).
- loss: 24 samples as jobs of SLURM, with reads from and results to the pool, while one storage host loses network and power and is restored.
- samples: 120 samples, FASTQ to VCF, with all clients at one storage host, and balanced.
- gatk: the same for 3 samples by the workflow of GATK.
"""

import argparse
import filecmp
import functools
import gzip
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from godwit_bench import harness
from godwit_bench.network import server_pool

COMPUTE_HOSTS = ("gw1", "gw2", "gw3", "gw4")
STORAGE_HOSTS = ("gw5", "gw6", "gw7")
POLICIES = ("round-robin", "connections", "cpu", "throughput")
PARTS = ("readers", "burst", "shares", "loss", "samples", "gatk")
READERS = 12
CLIENTS = 120


class Fixture:
    """The cluster and its directories."""

    def __init__(self, options: argparse.Namespace, godwit: Path, cluster: server_pool.SlurmCluster) -> None:
        self.options, self.godwit, self.cluster = options, godwit, cluster
        self.scratch = harness.scratch_directory(options, "cohort")
        self.root = self.scratch / "root"
        self.root.mkdir()
        self.environment = dict(os.environ, SLURM_CONF=str(cluster.configuration), PATH=f"{godwit.parent}:{os.environ['PATH']}:/usr/sbin")

    def pool(self, policy: str = "connections", rate: str | None = None, **how: Any) -> server_pool.ServerPool:
        rate = rate or self.options.rate
        how.setdefault("more", rate)
        return server_pool.ServerPool(self.cluster, self.godwit, STORAGE_HOSTS, self.root, policy, rate=rate, **how)

    def start_on_host(self, host: str, *args: object, **how: Any) -> subprocess.Popen[bytes]:
        how.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.cluster.command_on_host(host, [self.godwit, *args]), stdout=subprocess.DEVNULL, **how)


def wait_for_processes(processes: list[subprocess.Popen[bytes]], what: str) -> None:
    for process in processes:
        said = process.communicate()[1]
        if process.returncode != 0:
            harness.exit_with_error(f"{what}: a client ended with {process.returncode}: {said.decode()[-500:] if said else ''}")


def measure_readers(fixture: Fixture) -> harness.Result:
    """Measures the seconds of 12 readers, all from one storage host and by each policy, in interleaved rounds."""
    options, draw = fixture.options, random.Random(fixture.options.seed)
    contents = draw.randbytes(options.megabytes << 20)
    for number in range(READERS):
        (fixture.root / f"r{number}").write_bytes(contents[number:] + contents[:number])
    target = fixture.scratch / "read"
    seconds: dict[str, list[float]] = {name: [] for name in ("one node", *POLICIES)}

    def read(pool: server_pool.ServerPool, url: str, more: harness.Command) -> float:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        started = time.monotonic()
        copies = []
        for number in range(READERS):
            args = ("copy", f"{url}/r{number}", target / f"r{number}", "--mode", "fast", "--streams", 1, *more)
            copies.append(fixture.start_on_host(COMPUTE_HOSTS[number % len(COMPUTE_HOSTS)], *args))
        wait_for_processes(copies, url)
        took = time.monotonic() - started
        if not all(filecmp.cmp(fixture.root / f"r{number}", target / f"r{number}", shallow=False) for number in range(READERS)):
            harness.exit_with_error("the copied files differ from the source files")
        return took

    for round_number in range(options.rounds):
        for policy in POLICIES:
            with fixture.pool(policy) as pool:
                if policy == POLICIES[0]:
                    seconds["one node"].append(read(pool, f"grpc+tcp://{pool.member_address(STORAGE_HOSTS[0])}", ()))
                seconds[policy].append(read(pool, "godwit+pool://storage", ("--pool", pool.file)))
        harness.report_progress(f"round {round_number + 1}: { {name: round(values[-1], 2) for name, values in seconds.items()} }")
    return {"seconds": seconds, "megabytes": options.megabytes}


def measure_burst(fixture: Fixture) -> dict[str, list[int]]:
    """Counts the connections of each storage host after 120 clients that started at once have connected."""
    with (fixture.root / "f").open("wb") as file:
        file.truncate(200 << 20)
    counts = {}
    for policy in ("round-robin", "connections"):
        with fixture.pool(policy) as pool:
            clients = []
            for number in range(CLIENTS):
                target = fixture.scratch / f"burst-{number}"
                args = ("copy", "godwit+pool://storage/f", target, "--pool", pool.file, "--mode", "fast", "--streams", 1, "--rate", "200K")
                clients.append(fixture.start_on_host(COMPUTE_HOSTS[number % len(COMPUTE_HOSTS)], *args, stderr=subprocess.DEVNULL))
            until = time.monotonic() + 120
            while True:
                found = [state["connections"] for state in pool.member_states(STORAGE_HOSTS[0]).values()]
                if sum(found) >= CLIENTS or time.monotonic() > until:
                    break
                time.sleep(0.3)
            for client in clients:
                for child in Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split():
                    subprocess.run(["kill", "-KILL", child], check=False)
            for client in clients:
                client.wait()
            # A client that learned its member late may briefly have connections to two members.
            if sum(found) < CLIENTS:
                harness.exit_with_error(f"{policy}: of {CLIENTS} clients {sum(found)} came: {found}")
            counts[policy] = found
            harness.report_progress(f"burst, {policy}: {found}")
        for left in fixture.scratch.glob("*burst-*"):
            left.unlink()
    return counts


def count_grants(pool: server_pool.ServerPool, count: int = CLIENTS, interval: float = 0.1) -> list[int]:
    """Counts the grants of each member among `count` new grants."""
    from pyarrow import flight

    each = dict.fromkeys(pool.members, 0)
    by_place = {f"grpc+tcp://{pool.member_address(host)}": host for host in pool.members}
    with flight.connect(f"grpc+tcp://{pool.member_address(pool.members[-1])}") as client:
        for _ in range(count):
            body = json.dumps({"id": f"{random.getrandbits(64):016x}"}).encode()
            (answer,) = client.do_action(flight.Action("PoolGrant", body))
            each[by_place[json.loads(answer.body.to_pybytes())["locations"][0]]] += 1
            time.sleep(interval)
    return list(each.values())


def measure_grant_shares(fixture: Fixture) -> dict[str, list[int]]:
    """Measures the share of grants of the first storage host while its processor is busy, or its network rate is half."""
    found = {}
    first = STORAGE_HOSTS[0]
    # Each server runs on its own processor, as far as there are enough; the processor of the first server is kept busy.
    with fixture.pool("cpu", on_processor=lambda host: 0 if host == first else 1) as pool:
        os.sched_setaffinity(0, {1})
        found["cpu, idle"] = count_grants(pool, 60)
        busy = subprocess.Popen(
            fixture.cluster.command_on_host(first, ["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]), start_new_session=True
        )
        time.sleep(3)
        found["cpu, the first one's processor busy"] = count_grants(pool)
        subprocess.run(["kill", "-KILL", *Path(f"/proc/{busy.pid}/task/{busy.pid}/children").read_text().split()], check=False)
        busy.wait()
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    amount, unit = fixture.options.rate.removesuffix("mbit"), "mbit"
    half = f"{int(amount) // 2}{unit}"
    with fixture.pool("throughput", more={host: half if host == first else fixture.options.rate for host in STORAGE_HOSTS}) as pool:
        pool.limit_rate(first, half)
        found["throughput, the first one's network half"] = count_grants(pool)
    harness.report_progress(f"shares: {found}")
    return found


def make_samples(fixture: Fixture, count: int, pairs: int) -> tuple[Path, list[str]]:
    """Writes a small indexed reference, and reads of each sample below the root; returns their names."""
    reference = harness.build_once(fixture.options.cache / "reference-1mb", lambda folder: harness.simulate_reference(folder, 1)) / "ref.fa"
    harness.run_checked([fixture.godwit, "index", reference])
    names = []

    def simulate(folder: Path, seed: int) -> None:
        args = ["simulate", "--reference", reference, "--pairs", pairs, "--seed", seed, "--out", folder / "x", "--gzip"]
        subprocess.run(list(map(str, [fixture.godwit, *args])), check=True, stdout=subprocess.DEVNULL)

    for number in range(count):
        name = f"s{number:03}"
        made = harness.build_once(fixture.options.cache / f"cohort-{pairs}" / name, functools.partial(simulate, seed=number + 1))
        for mate in (1, 2):
            shutil.copy(made / f"x_L001_R{mate}.fastq.gz", fixture.root / f"{name}_{mate}.fastq.gz")
        names.append(name)
    return reference, names


def run_on_slurm(
    fixture: Fixture,
    reference: Path,
    names: Sequence[str],
    url: str,
    out: str,
    more: harness.Command,
    per_node: int = 2,
    watch: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> harness.Result:
    """Runs `godwit run` on these samples, with reads from and results to the URL; returns its report."""
    sheet = fixture.scratch / f"{out}.csv"
    lines = [f"{name},{url}/{name}_1.fastq.gz,{url}/{name}_2.fastq.gz\n" for name in names]
    sheet.write_text("sample,fastq_1,fastq_2\n" + "".join(lines))
    args = [fixture.godwit, "run", "--reference", reference, "--samples", sheet, "--out", fixture.scratch / out, "--metrics", "off", "--threads", 1]
    args += ["--on", "slurm", "--nodes", len(COMPUTE_HOSTS), "--per-node", per_node, "--store", f"{url}/{out}", "--wait", "120s", *more]
    (fixture.root / out).mkdir()
    log = fixture.scratch / f"{out}.log"
    started = time.monotonic()
    with log.open("wb") as output:
        running = subprocess.Popen(list(map(str, args)), env=fixture.environment, stdout=output, stderr=output)
    if watch:
        watch(running)
    code = running.wait()
    if code != 0:
        harness.report_progress(log.read_text()[-1500:])
        harness.exit_with_error(f"godwit run ended with {code}")
    report: harness.Result = json.loads((fixture.scratch / out / "run.json").read_text())
    report["measured_s"] = time.monotonic() - started
    return report


def vcf_records(path: Path) -> list[str]:
    return [line for line in gzip.decompress(path.read_bytes()).decode().splitlines() if not line.startswith("#")]


def assert_same_results(fixture: Fixture, names: Sequence[str], one: str, other: str | None) -> None:
    """Fails unless two runs have the same variants and the stored files equal the written ones."""
    for name in names:
        written, stored = fixture.scratch / one / name, fixture.root / one / name
        for file in (f"{name}.bam", f"{name}.vcf.gz"):
            if not filecmp.cmp(written / file, stored / file, shallow=False):
                harness.exit_with_error(f"the stored {file} of {name} differs from the written one")
        if other and vcf_records(written / f"{name}.vcf.gz") != vcf_records(fixture.scratch / other / name / f"{name}.vcf.gz"):
            harness.exit_with_error(f"{name} has other variants in the run in which a storage host was lost")


def count_failures(report: harness.Result) -> tuple[int, int]:
    """Counts the failed samples and the failed attempts."""
    return sum(1 for sample in report["samples"] if sample.get("error")), sum(len(sample.get("tries", [])) for sample in report["samples"])


def measure_member_loss(fixture: Fixture) -> harness.Result:
    """Runs 24 samples while a storage host is lost and restored, and the same without a loss."""
    reference, names = make_samples(fixture, fixture.options.loss_samples, fixture.options.loss_pairs)
    with fixture.pool("connections", rate=fixture.options.loss_rate) as pool:
        more = ("--pool", pool.file)
        progress = []

        def watch(running: subprocess.Popen[bytes]) -> None:
            def done() -> int:
                return sum(1 for name in names if (fixture.scratch / "lossy" / name / f"{name}.bam").exists())

            while running.poll() is None and done() < len(names) // 4:
                time.sleep(0.1)
            pool.fail_member(STORAGE_HOSTS[1], "cut")
            progress.append({"done when it was lost": done()})
            time.sleep(10)
            pool.restore_member(STORAGE_HOSTS[1], "cut")
            progress.append({"done when it was back": done()})

        lossy = run_on_slurm(fixture, reference, names, "godwit+pool://storage", "lossy", more, watch=watch)
        pool.wait_until_healthy(STORAGE_HOSTS)
        whole = run_on_slurm(fixture, reference, names, "godwit+pool://storage", "whole", more)
    assert_same_results(fixture, names, "lossy", "whole")
    assert_same_results(fixture, names, "whole", None)
    logs = [
        log.read_text(errors="replace")
        for log in (fixture.scratch / "lossy").rglob("*")
        if log.is_file() and log.suffix in (".log", "") and log.stat().st_size < 1 << 20
    ]
    moved = sum(text.count("is lost; continuing at another member") for text in logs)
    outcome = {
        "samples": len(names),
        "failed": count_failures(lossy),
        "wall_s": [lossy["wall_seconds"], whole["wall_seconds"]],
        "moved": moved,
        "told": progress,
    }
    harness.report_progress(f"loss: {outcome}")
    return outcome


def compare_balanced(fixture: Fixture, names: Sequence[str], reference: Path, out: str, more: harness.Command) -> dict[str, harness.Result]:
    """Returns the reports of a run with all clients at one storage host, and of a balanced run."""
    reports = {}
    for name in ("unbalanced", "balanced"):
        with fixture.pool("connections", rate=fixture.options.loss_rate) as pool:
            url = "godwit+pool://storage" if name == "balanced" else f"grpc+tcp://{pool.member_address(STORAGE_HOSTS[0])}"
            pooled = ("--pool", pool.file) if name == "balanced" else ()
            report = run_on_slurm(fixture, reference, names, url, f"{out}-{name}", (*pooled, *more))
        reports[name] = {key: report[key] for key in ("hours", "wall_seconds", "genomes_per_day", "genomes_per_day_is")} | {
            "failed": count_failures(report)
        }
        harness.report_progress(f"{out}, {name}: {report['wall_seconds']:.1f} s, {report['genomes_per_day']:.0f} genomes per day")
    return reports


def measure_samples(fixture: Fixture) -> dict[str, harness.Result]:
    reference, names = make_samples(fixture, fixture.options.samples, fixture.options.sample_pairs)
    return compare_balanced(fixture, names, reference, "samples", ())


def measure_gatk(fixture: Fixture) -> dict[str, harness.Result]:
    fetched = subprocess.run([harness.ROOT / "tests/tools/gatk/fetch.sh"], stdout=subprocess.PIPE, text=True, check=True)
    # SLURM jobs inherit the environment of the submitting process.
    fixture.environment["GODWIT_GATK"] = fetched.stdout.strip()
    reference, names = make_samples(fixture, 3, fixture.options.sample_pairs)
    return compare_balanced(fixture, names, reference, "gatk", ("--workflow", "gatk", "--caller-memory", "1G"))


def step_table(title: str, reports: dict[str, harness.Result]) -> list[str]:
    """Returns the duration of each step in seconds, where the published experiment reports hours; the samples are small."""
    steps = [step["step"] for step in reports["unbalanced"]["hours"]]
    lines = [f"### {title}", "", "| step, seconds over all samples | unbalanced | balanced |", "|---|---|---|"]

    def seconds(name: str, step: str) -> float:
        return next((one["hours"] * 3600 for one in reports[name]["hours"] if one["step"] == step), float("nan"))

    lines += [f"| {step} | {seconds('unbalanced', step):.1f} | {seconds('balanced', step):.1f} |" for step in steps]
    lines.append(f"| from start to end | {reports['unbalanced']['wall_seconds']:.1f} | {reports['balanced']['wall_seconds']:.1f} |")
    lines.append(f"| genomes per day | {reports['unbalanced']['genomes_per_day']:.0f} | {reports['balanced']['genomes_per_day']:.0f} |")
    lines.append(f"| samples failed, starts failed | {reports['unbalanced']['failed']} | {reports['balanced']['failed']} |")
    return [*lines, "", f"Genomes per day: {reports['unbalanced']['genomes_per_day_is']}.", ""]


def format_results(found: harness.Result) -> tuple[list[str], list[harness.Result]]:
    """Returns the tables and targets of the measured parts."""
    lines, promised = [], []
    if "readers" in found:
        seconds = found["readers"]["seconds"]
        base = seconds["one node"]
        lines += ["### 12 readers", "", "| clients go to | seconds of each round | times as fast |", "|---|---|---|"]
        for name, values in seconds.items():
            times = [one / other for one, other in zip(base, values, strict=False)]
            lines.append(f"| {name} | {', '.join(f'{value:.2f}' for value in values)} | {sorted(times)[len(times) // 2]:.2f} |")
            if name != "one node":
                promised.append(harness.target(f"12 storage-bound readers, {name} over one node", times, at_least=2.3, unit="x"))
        lines.append("")
    if "burst" in found:
        lines += ["### 120 clients at once", "", "| policy | connections of each node |", "|---|---|"]
        for policy, counts in found["burst"].items():
            lines.append(f"| {policy} | {counts} |")
            most = max(abs(count - sum(counts) / len(counts)) for count in counts)
            promised.append(harness.target(f"burst of {sum(counts)} clients, {policy}: most that a node is off an even share", [most], at_most=1))
        lines.append("")
    if "shares" in found:
        lines += ["### New grants", "", "| | grants of each node |", "|---|---|"]
        for name, counts in found["shares"].items():
            lines.append(f"| {name} | {counts} |")
            if "idle" not in name:
                promised.append(harness.target(f"{name}: its share of new grants", [100 * counts[0] / sum(counts)], at_most=25, unit="%"))
        lines.append("")
    if "loss" in found:
        one = found["loss"]
        lines += [
            "### Loss of a storage host",
            "",
            f"{one['samples']} samples: {one['failed'][0]} failed, {one['failed'][1]} starts failed; {one['wall_s'][0]:.1f} s, compared with "
            f"{one['wall_s'][1]:.1f} s without a loss. Clients reported {one['moved']} times that they resumed at another member. The stored "
            "BAM and VCF equal the written ones, and the variants equal those of the run without a loss.",
            "",
        ]
        promised.append(harness.target("samples that failed while a storage node was lost and came back", [one["failed"][0]], at_most=0))
    if "samples" in found:
        lines += step_table("120 samples, bcftools" if found["samples"].get("count", 120) == 120 else "Samples", found["samples"])
    if "gatk" in found:
        lines += step_table("3 samples, the workflow of GATK", found["gatk"])
    return lines, promised


def write_page(options: argparse.Namespace, godwit: Path, found: harness.Result, when: dict[str, str]) -> None:
    """Writes the page of all parts with results, and the program that measured each part."""
    lines, promised = format_results(found)
    around = harness.host_description(godwit)
    text = "\n".join(
        [
            "# Many samples and many readers, on one storage host and on a pool",
            "",
            __doc__.split("\n", 2)[2].strip(),
            "",
            f"Network rate of a storage host: {options.rate} for readers and clients, {options.loss_rate} for samples; all hosts share the "
            "cores of one machine:",
            "",
            *(f"- {part}: {when[part]}" for part in PARTS if part in found),
            "",
            *lines,
            *(f"- {harness.format_target(one)}" for one in promised),
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("cohort", options.results, text, around, promised, {"found": found, "when": when})


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the readers (default: 3)")
    parser.add_argument("--megabytes", type=int, default=16, help="size of each reader's file (default: 16)")
    parser.add_argument("--rate", default="160mbit", help="network rate of a storage host, for readers and clients (default: 160mbit)")
    parser.add_argument("--loss-rate", default="40mbit", help="the same, for samples (default: 40mbit)")
    parser.add_argument("--loss-samples", type=int, default=24)
    parser.add_argument("--loss-pairs", type=int, default=20_000)
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--sample-pairs", type=int, default=5_000)
    options = parser.parse_args()
    server_pool.reexec_with_pyarrow()
    godwit = harness.godwit_binary(options)
    kept = options.results / "cohort.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    found, when = before.get("found", {}), before.get("when", {})
    with server_pool.SlurmCluster(len(COMPUTE_HOSTS) + len(STORAGE_HOSTS)) as cluster:
        for host in STORAGE_HOSTS:
            subprocess.run(
                ["scontrol", "update", f"nodename={host}", "state=drain", "reason=storage"],
                env=dict(os.environ, SLURM_CONF=str(cluster.configuration)),
                check=True,
            )
        measurements = {
            "readers": measure_readers,
            "burst": measure_burst,
            "shares": measure_grant_shares,
            "loss": measure_member_loss,
            "samples": measure_samples,
            "gatk": measure_gatk,
        }
        for part in options.parts:
            fixture = Fixture(options, godwit, cluster)
            found[part] = measurements[part](fixture)
            when[part] = harness.format_host(harness.host_description(godwit))
            # Written after each part, so that a later failure does not lose the results of earlier parts.
            write_page(options, godwit, found, when)
            shutil.rmtree(fixture.scratch)


if __name__ == "__main__":
    main()
