"""FASTQ to a sorted, duplicate-marked BAM, beside the aligners alone and beside the fastest chain of streaming programs.

The genome has human-like repeats and 400 Mb, because a smaller one hides the cost of seeding. The reads include chimeras, because without
them no mate needs rescue. `godwit align` writes BAM, index, metrics, manifest and journal. "alone" is the aligner's process with the same
blocks of reads on its standard input; its output is discarded.
"""

import argparse
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from godwit_bench import harness

COMPETITORS = {"bwa-mem3-rs-cli": ("bwa-rs", "0.4.4"), "dupblaster": ("dupblaster", "0.3.0"), "fg-mako": ("mako", "0.1.8")}
READ_GROUP = r"'@RG\tID:bench\tSM:bench\tLB:bench'"


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--bwa-rounds", type=int, default=1, help="rounds of bwa itself, which takes minutes (default: 1)")
    parser.add_argument("--genome", type=int, default=400, metavar="MB", help="size of the simulated genome (default: 400)")
    parser.add_argument("--plain", action="store_true", help="read plain FASTQ instead of gzip")
    parser.add_argument("--block-bases", type=int, default=100_000_000, help="bwa's -K (default: 100,000,000)")
    parser.add_argument("--memory", help="godwit's --memory")
    parser.add_argument(
        "--skip", nargs="*", default=[], help="words; a competitor with one of them in its name does not run (bwa-rs: is not installed either)"
    )
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools")
    wanted = {} if "bwa-rs" in options.skip else COMPETITORS
    peers = {crate: harness.cargo_tool(options, crate, version, program) for crate, (program, version) in wanted.items()}
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit) if options.reference else harness.genome_with_repeats(options, godwit, options.genome)
    files = harness.simulated_reads(options, godwit, fasta, gzip=not options.plain)
    scratch = harness.scratch_directory(options, "align")

    scripts = competitors(options, godwit, peers, fasta, files, scratch)
    scripts = {name: script for name, script in scripts.items() if not any(word in name for word in options.skip)}
    rounds = {name: options.bwa_rounds if name.startswith("bwa mem") else options.rounds for name in scripts}
    measured = harness.measure_competitors(scripts, rounds, scratch)
    harness.write_comparison(
        "align", "FASTQ to marked BAM", options, godwit, scripts, measured, next(iter(scripts)), targets(options, measured), remarks(measured)
    )
    shutil.rmtree(scratch)


def competitors(
    options: argparse.Namespace, godwit: Path, peers: dict[str, Path], fasta: Path, files: Sequence[Path], scratch: Path
) -> dict[str, str]:
    """Returns the script of each competitor by its name."""
    reference, first, second, out = (shlex.quote(str(path)) for path in (fasta, *files, scratch / "out"))
    memory = f" --memory {shlex.quote(options.memory)}" if options.memory else ""
    blocks = capture_blocks(options, godwit, fasta, files, scratch)
    helper = shlex.quote(str(godwit.with_name("godwit-bwa-mem3")))
    bwa = f"bwa mem -K {options.block_bases} -t {options.threads} -R {READ_GROUP} {reference} {first} {second}"
    scripts = {
        "bwa mem > /dev/null": f"{bwa} > /dev/null",
        "godwit-bwa-mem3 alone": f"{helper} align --reference {reference} --threads {options.threads} < {blocks} > /dev/null",
        "godwit align": f"rm -rf {out}; " + align_command(options, godwit, fasta, files, scratch / "out") + memory,
    }
    if peers:
        bwa_rs, dupblaster, mako = (shlex.quote(str(peers[crate])) for crate in COMPETITORS)
        mem3 = f"{bwa_rs} mem {reference} {first} {second}"
        scripts["bwa-rs mem > /dev/null"] = f"{mem3} > /dev/null"
        scripts["bwa-rs mem, dupblaster, mako"] = f"""
            rm -rf {out}; mkdir {out}
            set -o pipefail; {mem3} | {dupblaster} --metrics-prefix {out}/x -o - |
            {mako} --order coordinate --threads {options.threads} --input - --output {out}/x.bam"""
    if shutil.which("bwa-mem2"):
        scripts["bwa-mem2 mem > /dev/null"] = scripts["bwa mem > /dev/null"].replace("bwa mem", "bwa-mem2 mem")
    return scripts


def align_command(options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path], out: Path) -> str:
    args = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--block-bases", options.block_bases]
    args += ["--threads", options.threads, "--aligner", "bwa-mem3", "--out", out, "--quiet"]
    return shlex.join(map(str, args)) + f" --read-group {READ_GROUP}"


def capture_blocks(options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path], scratch: Path) -> str:
    """Captures the blocks that `godwit align` writes to its aligner for these reads."""
    blocks, wrapper = scratch / "blocks.arrow", scratch / "capture"
    helper = shlex.quote(str(godwit.with_name("godwit-bwa-mem3")))
    wrapper.write_text(f'#!/bin/sh\nif [ "$1" = align ]; then tee {shlex.quote(str(blocks))} | {helper} "$@"; else exec {helper} "$@"; fi\n')
    wrapper.chmod(0o755)
    harness.report_progress("aligning once to capture the blocks of reads")
    command = align_command(options, godwit, fasta, files, scratch / "captured")
    subprocess.run(command, shell=True, check=True, env={**os.environ, "GODWIT_BWA_MEM3": str(wrapper)})
    shutil.rmtree(scratch / "captured")
    return shlex.quote(str(blocks))


def targets(options: argparse.Namespace, measured: harness.Rounds) -> list[harness.Result]:
    """Returns the targets of godwit for the competitors that ran."""
    own, alone = measured["godwit align"], measured["godwit-bwa-mem3 alone"]
    more_cpu = [(one["cpu_s"] - other["cpu_s"]) * 1e6 / options.pairs for one, other in zip(own, alone, strict=False)]
    result = [
        harness.target("wall over the aligner alone", harness.ratios(own, alone, "wall_s"), at_most=1.08),
        harness.target("CPU above the aligner alone, for a million pairs", more_cpu, at_most=8, unit="s"),
    ]
    for name, at_most in (("bwa mem > /dev/null", 1 / 6), ("bwa-mem2 mem > /dev/null", 1 / 3)):
        if name in measured:
            result.append(harness.target(f"CPU of the aligner alone over {name}", harness.ratios(alone, measured[name], "cpu_s"), at_most=at_most))
    if chain := measured.get("bwa-rs mem, dupblaster, mako"):
        result.append(harness.target("wall over bwa-rs mem, dupblaster, mako", harness.ratios(own, chain, "wall_s"), at_most=1))
    return result


def remarks(measured: harness.Rounds) -> list[str]:
    if "bwa mem > /dev/null" not in measured:
        return []
    base = measured["bwa mem > /dev/null"]
    cpu, wall = (1 / harness.median_ratio(measured["godwit align"], base, field) for field in ("cpu_s", "wall_s"))
    return [f"godwit align is {wall:.1f} x as fast as bwa alone and takes 1/{cpu:.1f} of its CPU time."]


if __name__ == "__main__":
    main()
