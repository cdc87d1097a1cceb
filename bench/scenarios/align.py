"""FASTQ to a sorted, duplicate-marked BAM, beside the aligners alone and beside the fastest chain of streaming programs.

The genome has human-like repeats and 400 Mb, because a smaller one hides the cost of seeding. The reads include chimeras, because without
them no mate needs rescue. `godwit align` writes BAM, index, metrics, manifest and journal. "alone" is the aligner's process with the same
blocks of reads on its standard input; its output is discarded. bwa-mem2 is measured if it is on the PATH; its index is made once, in the
cache. The memory of two aligner processes on one machine is measured too, with an index each and with one index that both map.
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
BWA_MEM2_FILES = ("0123", "amb", "ann", "bwt.2bit.64", "pac")
# Enough reads to touch most of the index; their own memory is small beside it.
MEMORY_PAIRS = 20_000


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--bwa-rounds", type=int, default=1, help="rounds of bwa and of bwa-mem2, which take minutes (default: 1)")
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

    def is_selected(name: str) -> bool:
        return not any(word in name for word in options.skip)

    scripts = {name: script for name, script in competitors(options, godwit, peers, fasta, files, scratch).items() if is_selected(name)}
    rounds = {name: options.bwa_rounds if name.startswith(("bwa mem", "bwa-mem2")) else options.rounds for name in scripts}
    pairs = {name: script for name, script in process_pairs(options, godwit, fasta, scratch).items() if is_selected(name)}
    measured = harness.measure_competitors(scripts, rounds, scratch)
    measured_pairs = harness.measure_competitors(pairs, dict.fromkeys(pairs, 1), scratch)
    remarks = [*ratio_to_bwa(measured), *memory_of_pairs(measured_pairs)]
    harness.write_comparison(
        "align", "FASTQ to marked BAM", options, godwit, scripts | pairs, measured, next(iter(scripts)), targets(options, measured), remarks
    )
    shutil.rmtree(scratch)


def competitors(
    options: argparse.Namespace, godwit: Path, peers: dict[str, Path], fasta: Path, files: Sequence[Path], scratch: Path
) -> dict[str, str]:
    """Returns the script of each competitor by its name."""
    reference, first, second, out = (shlex.quote(str(path)) for path in (fasta, *files, scratch / "out"))
    memory = f" --memory {shlex.quote(options.memory)}" if options.memory else ""
    blocks = capture_blocks(options, godwit, fasta, files, scratch / "blocks.arrow")
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
    if not shutil.which("bwa-mem2"):
        harness.report_progress("bwa-mem2 is not on the PATH, and is not measured")
    elif "bwa-mem2" not in options.skip:
        index = shlex.quote(str(bwa_mem2_index(options, fasta)))
        scripts["bwa-mem2 mem > /dev/null"] = f"{bwa.replace('bwa mem', 'bwa-mem2 mem').replace(reference, index)} > /dev/null"
    return scripts


def bwa_mem2_index(options: argparse.Namespace, fasta: Path) -> Path:
    """Returns the prefix of an index of bwa-mem2: the files beside the reference, or files in the cache, which are made once."""
    if all(Path(f"{fasta}.{extension}").exists() for extension in BWA_MEM2_FILES):
        return fasta

    def build(folder: Path) -> None:
        harness.run_checked(["bwa-mem2", "index", "-p", folder / "ref.fa", fasta])
        if Path(f"{fasta}.alt").exists():
            shutil.copy(f"{fasta}.alt", folder / "ref.fa.alt")

    return harness.build_once(options.cache.resolve() / f"bwa-mem2-index-{harness.file_digest(fasta)[:12]}", build) / "ref.fa"


def process_pairs(options: argparse.Namespace, godwit: Path, fasta: Path, scratch: Path) -> dict[str, str]:
    """Returns scripts that run two aligner processes at the same time: each with an index of its own, or both with one mapped index.

    The library of bwa-mem3 cannot map an index.
    """
    few = argparse.Namespace(**vars(options) | {"pairs": MEMORY_PAIRS})
    files = harness.simulated_reads(few, godwit, fasta, gzip=not options.plain)
    blocks = capture_blocks(few, godwit, fasta, files, scratch / "few_blocks.arrow")
    scripts = {}
    for words in ("godwit-bwa", "godwit-bwa --share-index", "godwit-bwa-mem3"):
        program, *option = words.split()
        helper = [godwit.with_name(program), "align", "--reference", fasta, "--threads", 1, *option]
        align = f"{shlex.join(map(str, helper))} < {blocks} > /dev/null"
        scripts[f"two {words}"] = f"{align} & first=$!; {align}; wait $first"
    return scripts


def align_command(options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path], out: Path) -> str:
    args = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--block-bases", options.block_bases]
    args += ["--threads", options.threads, "--aligner", "bwa-mem3", "--out", out, "--quiet"]
    return shlex.join(map(str, args)) + f" --read-group {READ_GROUP}"


def capture_blocks(options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path], blocks: Path) -> str:
    """Captures the blocks that `godwit align` writes to its aligner for these reads; returns their path for a shell."""
    wrapper, out = blocks.with_name("capture"), blocks.with_name("captured")
    helper = shlex.quote(str(godwit.with_name("godwit-bwa-mem3")))
    wrapper.write_text(f'#!/bin/sh\nif [ "$1" = align ]; then tee {shlex.quote(str(blocks))} | {helper} "$@"; else exec {helper} "$@"; fi\n')
    wrapper.chmod(0o755)
    harness.report_progress("aligning once to capture the blocks of reads")
    command = align_command(options, godwit, fasta, files, out)
    subprocess.run(command, shell=True, check=True, env={**os.environ, "GODWIT_BWA_MEM3": str(wrapper)})
    shutil.rmtree(out)
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


def ratio_to_bwa(measured: harness.Rounds) -> list[str]:
    if "bwa mem > /dev/null" not in measured:
        return []
    base = measured["bwa mem > /dev/null"]
    cpu, wall = (1 / harness.median_ratio(measured["godwit align"], base, field) for field in ("cpu_s", "wall_s"))
    return [f"godwit align is {wall:.1f} x as fast as bwa alone and takes 1/{cpu:.1f} of its CPU time."]


def memory_of_pairs(measured: harness.Rounds) -> list[str]:
    """Returns the memory of each pair of processes, as two sums."""
    lines = []
    for name, rounds in measured.items():
        pss, rss = (rounds[0][field] / 2**20 for field in ("peak_bytes", "peak_rss_bytes"))
        lines.append(f"{name}: {pss:.0f} MiB if a shared page counts once (PSS), {rss:.0f} MiB if it counts for each process (RSS).")
    return lines


if __name__ == "__main__":
    main()
