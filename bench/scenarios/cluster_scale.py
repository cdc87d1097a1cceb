"""How long `godwit align` takes over 1 to 1,000 workers: predicted by the real scheduler in simulated time.

Sizes and costs are measured on this machine, in a run of one process and in one over two workers; the second run is also predicted, as a
check. Costs of the aligner are those on a genome of 400 Mb (`bench align`). The simulation has no faults, and networks without contention
between hosts other than at their own network cards.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from godwit_bench import harness
from godwit_bench.harness import client_processes
from godwit_bench.plots import draw_plots

HUMAN_BASES = 3.1e9
READ_BASES = 150
# CPU seconds of bwa-mem3 for a million pairs on 400 Mb, from align.md.
ALIGN_SECONDS = 120.0
# CPU seconds of `godwit align` above the aligner for a million pairs, from align.md, without those of writing.
SORT_SECONDS = 5.0
# Seconds in which a head with eight threads or more reads a million pairs of gzipped FASTQ.
READ_SECONDS = 0.6
# Size of the bits of duplicates that the head sends, relative to one bit for each record: zstd at level 1, with a tenth of the pairs marked
# and a supplementary record for every 50 pairs.
MARK_COMPRESSION = 0.36
# Hosts of the prediction: 32 threads, 10 Gbit/s, 0.2 ms; 10 GB/s of shared storage.
HOST = {"threads": 32, "network_rate": 1.1e9, "storage_rate": 10e9, "latency": 0.0002}


def align(options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path], out: Path, workers: int) -> dict[str, Any]:
    """Aligns the reads on one thread for each worker; returns the report of the run."""
    command = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--metrics", "off", "--out", out]
    command += ["--aligner", "bwa-mem3", "--block-bases", options.block_bases // 20, "--threads", 1, "--quiet"]
    harness.run_checked(command + (["--on", "local", "--nodes", workers] if workers > 1 else []))
    report: dict[str, Any] = json.loads((out / "run.json").read_text())
    report["bam_bytes"] = (out / "bench.bam").stat().st_size
    return report


def stage_seconds(report: dict[str, Any], name: str) -> float:
    return float(next(stage["seconds"] for stage in report["stages"] if stage["name"] == name))


def measure_costs(pairs: int, alone: dict[str, Any], shared: dict[str, Any]) -> dict[str, float]:
    """Returns costs for a million pairs and sizes of a pair, from a run of one process and one over two workers."""
    per_million = 1e6 / pairs
    exchange = shared["exchange"]
    return {
        "read_seconds": READ_SECONDS,
        "align_seconds": stage_seconds(alone, "align and sort") * per_million,
        # On one thread; the head of the prediction decides on all its threads.
        "decide_seconds": stage_seconds(alone, "decide duplicates") * per_million,
        "write_seconds": stage_seconds(alone, "write") * per_million,
        # The names, bases and qualities of both reads, uncompressed, as the head sends them.
        "read_bytes": 2.0 * (2 * READ_BASES + 40),
        "signature_bytes": exchange["head_bytes"] / pairs,
        "slice_bytes": exchange["fetched_bytes"] / pairs,
        # A bit for each record: whether it is a duplicate.
        "mark_bytes": 2 / 8 * MARK_COMPRESSION,
        "output_bytes": alone["bam_bytes"] / pairs,
    }


def predict(costs: dict[str, float]) -> dict[str, float]:
    """Returns the prediction of the simulation."""
    command = ["cargo", "run", "--quiet", "--profile", "ci", "--package", "godwit-sim", "--", "--time"]
    answer = subprocess.run(command, cwd=harness.ROOT, input=json.dumps(costs), stdout=subprocess.PIPE, text=True, check=True)
    prediction: dict[str, float] = json.loads(answer.stdout)
    return prediction


def bottleneck(found: dict[str, float], blocks: float, workers: int) -> str:
    """Returns the resource that is in use for the largest part of the run."""
    total = found["total_seconds"]
    shares = {
        "aligners": found["mean_align_seconds"] / total,
        "the head reads": found["head_read_seconds"] / total,
        "the head sends": found["head_send_seconds"] / total,
        "the head receives": found["head_receive_seconds"] / total,
        "scheduler": found["scheduler_seconds"] / total,
        "storage": found["storage_seconds"] / total,
    }
    name, share = max(shares.items(), key=lambda item: item[1])
    few = f"; {blocks:.0f} blocks for {workers} workers" if blocks < 3 * workers else ""
    return f"{name} ({100 * share:.0f} %){few}"


def table(coverage: int, found: dict[int, dict[str, float]], blocks: float) -> list[str]:
    first = next(iter(found))
    rows = []
    for workers, run in found.items():
        speedup = found[first]["total_seconds"] / run["total_seconds"] * first
        rows.append(
            [
                f"{workers:,}",
                f"{run['aligned_seconds'] / 60:.1f}",
                f"{(run['decided_seconds'] - run['aligned_seconds']) / 60:.1f}",
                f"{(run['total_seconds'] - run['decided_seconds']) / 60:.1f}",
                f"{run['total_seconds'] / 60:.1f}",
                f"{100 * speedup / workers:.0f} %",
                f"{run['shuffled_bytes'] / 1e9:.0f}",
                f"{run['head_signature_bytes'] / 1e9:.1f}",
                f"{run['scheduler_seconds']:.1f}",
                bottleneck(run, blocks, workers),
            ]
        )
    heads = ["workers", "align, min", "decide, min", "write, min", "total, min", "efficiency", "shuffled, GB", "signatures, GB", "scheduler, s"]
    return [f"## {coverage}x, {blocks:,.0f} blocks", "", *harness.plain_table([*heads, "in use most"], rows), ""]


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--workers", type=harness.comma_separated(int), default=[1, 3, 10, 30, 100, 300, 1000], help="numbers of workers")
    parser.add_argument("--coverage", type=harness.comma_separated(int), default=[30, 300], help="coverages (default: 30,300)")
    parser.add_argument("--block-bases", type=int, default=100_000_000, help="bases of a block (default: 100,000,000)")
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit)
    files = harness.simulated_reads(options, godwit, fasta, gzip=True)
    scratch = harness.scratch_directory(options, "cluster_scale")
    alone = align(options, godwit, fasta, files, scratch / "one", 1)
    shared = align(options, godwit, fasta, files, scratch / "two", 2)
    costs = measure_costs(options.pairs, alone, shared)
    # Both workers and the head share this machine: the loopback network is as fast as two of its workers fetched in `bench shuffle`.
    here = {"workers": 2, "threads": 1, "network_rate": 0.8e9, "storage_rate": 2e9, "latency": 0.0001, "sort_seconds": 0}
    pairs_per_block = options.block_bases / (2 * READ_BASES)
    checked = predict({**costs, **here, "pairs": options.pairs, "pairs_per_block": pairs_per_block / 20})
    measured = sum(stage_seconds(shared, name) for name in ("align and sort", "decide duplicates", "write"))
    large = {**costs, **HOST, "align_seconds": ALIGN_SECONDS, "sort_seconds": SORT_SECONDS, "pairs_per_block": pairs_per_block}
    found: dict[int, dict[int, dict[str, float]]] = {}
    for coverage in options.coverage:
        pairs = HUMAN_BASES * coverage / (2 * READ_BASES)
        found[coverage] = {}
        for workers in options.workers:
            harness.report_progress(f"{coverage}x, {workers} workers")
            found[coverage][workers] = predict({**large, "workers": workers, "pairs": pairs})
    around = harness.measurement_context(options, godwit)
    lines = {f"{coverage}x": [[workers, run["total_seconds"] / 60] for workers, run in runs.items()] for coverage, runs in found.items()}
    plot = {"name": "cluster_scale", "title": "godwit align, human genome (simulated)", "x": "workers of 32 threads", "y": "minutes", "log": "xy"}
    text = "\n".join(
        [
            "# Alignment over many workers, simulated",
            "",
            f"Hosts of 32 threads and 10 Gbit/s, 10 GB/s of shared storage; blocks of {options.block_bases:,} bases.",
            f"Costs measured on {harness.format_host(around)}.",
            "",
            "The scheduler is that of `godwit align`; times of its actions are computed. A cluster of this size was not available: these are",
            "predictions. Efficiency is relative to the smallest number of workers. The head holds signatures in its memory up to --memory, and",
            "beyond it on its disk. It is assumed that N threads of the head decide duplicates N times as fast as one.",
            "",
            "![minutes by workers](cluster_scale.svg)",
            "",
            *[line for coverage, runs in found.items() for line in table(coverage, runs, HUMAN_BASES * coverage / options.block_bases)],
            f"Check: two workers of one thread on this machine, {options.pairs:,} pairs: {measured:.1f} s measured,"
            f" {checked['total_seconds']:.1f} s predicted.",
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    more = {
        "costs": large,
        "found": found,
        "check": {"measured_s": measured, "predicted_s": checked["total_seconds"]},
        "plots": [plot | {"lines": lines}],
    }
    harness.write_result("cluster_scale", options.results, text, around, [], more)
    draw_plots(client_processes.client_python("databases"), options.results / "cluster_scale.json")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
