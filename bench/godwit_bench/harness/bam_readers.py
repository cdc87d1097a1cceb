"""The columns and the regions with which readers of BAM files are compared."""

import random
from collections.abc import Iterator
from pathlib import Path

from godwit_bench.harness.result_types import Region
from godwit_bench.harness.test_data import read_contigs

# The columns that all readers support.
READ_COLUMNS = [
    "name",
    "flags",
    "contig",
    "position",
    "end_position",
    "mapping_quality",
    "cigar",
    "mate_contig",
    "mate_position",
    "template_length",
    "bases",
    "qualities",
]
# Python packages that read BAM as Arrow: the names of `clients/readers.py`.
BAM_READERS = ["pysam", "polars-bio", "oxbow"]


def random_regions(fasta: Path, length: int, count: int, draw: random.Random) -> Iterator[Region]:
    """Returns random regions within contigs: contig, start and end, 0-based and half-open."""
    contigs = [(name, bases) for name, bases in read_contigs(fasta) if bases > length]
    weights = [bases for _, bases in contigs]
    for name, bases in draw.choices(contigs, weights, k=count):
        start = draw.randrange(bases - length)
        yield name, start, start + length


def format_region(region: Region) -> str:
    contig, start, end = region
    return f"{contig}:{start + 1}-{end}"
