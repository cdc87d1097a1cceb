"""Test data, generated once and kept in the cache directory: references, reads and alignments."""

import argparse
import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from godwit_bench.harness.programs import build_once, run_checked
from godwit_bench.harness.repository import ROOT


def reference_fasta(options: argparse.Namespace, godwit: Path, megabases: int = 10) -> Path:
    """Returns the FASTA file with its bwa index; simulates it unless --reference names one."""
    if options.reference:
        fasta = Path(options.reference).resolve()
    else:
        fasta = build_once(options.cache / f"reference-{megabases}mb", lambda folder: simulate_reference(folder, megabases)) / "ref.fa"
    run_checked([godwit, "index", fasta])
    return fasta


def genome_with_repeats(options: argparse.Namespace, godwit: Path, megabases: int) -> Path:
    """Generates a genome with human-like repeats by `godwit-identity`, indexes it, and returns the path of its FASTA file."""

    def build(folder: Path) -> None:
        args = ["--genome", megabases, "--seed", options.seed, "--genome-out", folder]
        run_checked(["cargo", "run", "--quiet", "--profile", "ci", "--package", "godwit-identity", "--", *args], cwd=ROOT)

    fasta = build_once(options.cache.resolve() / f"genome-{megabases}mb-{options.seed}", build) / "ref.fa"
    run_checked([godwit, "index", fasta])
    return fasta


def simulate_reference(folder: Path, megabases: int) -> None:
    """Writes three contigs with the given total of megabases; a tenth of them is copies of four repeat families."""
    draw = random.Random(20261120)
    families = [(bytes(draw.choices(b"ACGT", k=bases)), keep) for bases, keep in ((300, 0.9), (1200, 0.97), (500, 0.99), (1500, 1))]
    with (folder / "ref.fa").open("wb") as fasta:
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


def simulated_reads(options: argparse.Namespace, godwit: Path, fasta: Path, gzip: bool) -> list[Path]:
    """Simulates reads once and returns the FASTQ files of read 1 and read 2."""
    source = "given-" + fasta.name if options.reference else fasta.parent.name.removeprefix("reference-")
    name = f"reads-{source}-{options.pairs}-{options.seed}" + ("-gz" if gzip else "")

    def build(folder: Path) -> None:
        command = [godwit, "simulate", "--reference", fasta, "--pairs", options.pairs, "--seed", options.seed, "--out", folder / "x"]
        run_checked(command + (["--gzip"] if gzip else []))

    folder = build_once(options.cache / name, build)
    extension = "fastq.gz" if gzip else "fastq"
    return [folder / f"x_L001_R{read}.{extension}" for read in (1, 2)]


def align_reads(options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path], folder: Path) -> None:
    """Aligns reads and marks duplicates, into `bench.bam` in a directory."""
    command = [godwit, "align", "--reference", fasta, "--reads", *files, "--sample", "bench", "--metrics", "off", "--out", folder]
    run_checked([*command, "--threads", options.threads, "--quiet"])


def aligned_bam(options: argparse.Namespace, godwit: Path, fasta: Path, files: Sequence[Path]) -> Path:
    """Returns the BAM of simulated reads; aligns them once."""
    folder = files[0].parent
    return build_once(folder.with_name(folder.name + "-called"), lambda new: align_reads(options, godwit, fasta, files, new)) / "bench.bam"


def simulated_bam(options: argparse.Namespace, godwit: Path) -> tuple[Path, Path]:
    """Returns the reference and the BAM of simulated reads, which is then in the page cache."""
    fasta = reference_fasta(options, godwit)
    bam = aligned_bam(options, godwit, fasta, simulated_reads(options, godwit, fasta, gzip=True)).resolve()
    load_into_page_cache(bam)
    return fasta, bam


def known_sites(files: Sequence[Path]) -> Path:
    """Returns the variants of simulated reads as a VCF file with an index; sorts them once."""
    folder = files[0].parent

    def build(new: Path) -> None:
        run_checked(["bcftools", "sort", "-Oz", "-o", new / "known.vcf.gz", folder / "x.truth.vcf"])
        run_checked(["bcftools", "index", "-t", new / "known.vcf.gz"])

    return build_once(folder.with_name(folder.name + "-known"), build) / "known.vcf.gz"


def reference_with_dictionary(fasta: Path, folder: Path) -> Path:
    """Returns a link to the FASTA file, in a folder where its indexes and its dictionary are beside it, as GATK and Picard require."""
    for file in fasta.parent.glob(fasta.name + "*"):
        (folder / file.name).symlink_to(file)
    linked = folder / fasta.name
    run_checked(["samtools", "dict", "-o", linked.with_suffix(".dict"), linked])
    return linked


def aligned_sam(options: argparse.Namespace, godwit: Path) -> Path:
    """Aligns the simulated reads by bwa once and returns the SAM file."""
    fasta = reference_fasta(options, godwit)
    first, second = simulated_reads(options, godwit, fasta, gzip=False)

    def build(folder: Path) -> None:
        group = r"@RG\tID:bench\tSM:bench\tLB:bench"
        command = ["bwa", "mem", "-K", "100000000", "-t", options.threads, "-R", group, "-o", folder / "in.sam", fasta, first, second]
        run_checked(command)

    return build_once(first.parent.with_name(first.parent.name + "-sam"), build) / "in.sam"


def read_contigs(fasta: Path) -> Iterator[tuple[str, int]]:
    """Yields the name and the length in bases of each contig of an indexed FASTA file."""
    for line in Path(f"{fasta}.fai").read_text().splitlines():
        name, bases = line.split("\t")[:2]
        yield name, int(bases)


def empty_directory(directory: Path) -> Path:
    """Creates an empty directory; removes what it contains."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def scratch_directory(options: argparse.Namespace, name: str) -> Path:
    """Creates an empty scratch directory for a benchmark."""
    return empty_directory(options.cache.resolve() / f"scratch-{name}")


def load_into_page_cache(path: Path) -> None:
    """Reads a file, so that every competitor finds it in the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def write_random(file: Path, megabytes: int) -> None:
    """Writes an incompressible file of whole pieces of 16 MiB."""
    with file.open("wb") as out:
        for _ in range(megabytes >> 4):
            out.write(os.urandom(16 << 20))


def have_same_bytes(one: Path, other: Path) -> bool:
    return subprocess.run(["cmp", "-s", one, other], check=False).returncode == 0


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
