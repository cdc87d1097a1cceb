"""Writes random variants as VCF text to stdout, sorted, from a fixed seed: random_variants.py SAMPLES SITES. Each sample has GT, DP and GQ."""

import sys
from collections.abc import Iterator

import numpy as np

SEED = 20261128
# Sites that are generated together.
SITES = 1000
# Mean distance of two sites, bases.
MEAN_DISTANCE = 30
HEADER = [
    '##FILTER=<ID=q10,Description="Quality below 10">',
    '##INFO=<ID=DP,Number=1,Type=Integer,Description="Depth">',
    '##INFO=<ID=MQ,Number=1,Type=Float,Description="Mapping quality">',
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
    '##FORMAT=<ID=DP,Number=1,Type=Integer,Description="Depth">',
    '##FORMAT=<ID=GQ,Number=1,Type=Integer,Description="Genotype quality">',
]


def sample_texts(draw: np.random.Generator) -> list[str]:
    """Returns genotypes with depth and quality. Those at the start are homozygous for the reference."""
    genotypes = ["0/0"] * 512 + ["0/1"] * 384 + ["1/1"] * 120
    known = [f"{genotype}:{draw.integers(1, 60)}:{draw.integers(1, 100)}" for genotype in genotypes]
    return [*known, *["./.:.:."] * 8]


def lines(samples: int, sites: int) -> Iterator[str]:
    draw = np.random.default_rng(SEED)
    texts = sample_texts(draw)
    position = 0
    for first in range(0, sites, SITES):
        count = min(SITES, sites - first)
        positions = position + np.cumsum(draw.integers(1, 2 * MEAN_DISTANCE, count))
        position = int(positions[-1])
        references = draw.integers(0, 4, count)
        alternates = (references + draw.integers(1, 4, count)) % 4
        qualities, depths, mapping = draw.integers(1, 6000, count) / 10, draw.integers(1, 60, count), draw.integers(0, 600, count) / 10
        # A large exponent makes most samples homozygous for the reference.
        chosen = (draw.random((count, samples)) ** draw.integers(1, 12, (count, 1)) * len(texts)).astype(int)
        for at in range(count):
            filters = "PASS" if qualities[at] >= 10 else "q10"
            alleles = f"{'ACGT'[references[at]]}\t{'ACGT'[alternates[at]]}"
            site = f"chr1\t{positions[at]}\t.\t{alleles}\t{qualities[at]}\t{filters}\tDP={depths[at]};MQ={mapping[at]}"
            yield "\t".join([site, *(["GT:DP:GQ"] if samples else []), *map(texts.__getitem__, chosen[at].tolist())])


if __name__ == "__main__":
    samples, sites = int(sys.argv[1]), int(sys.argv[2])
    names = ["FORMAT", *(f"S{number:04}" for number in range(samples))] if samples else []
    contig = f"##contig=<ID=chr1,length={2 * MEAN_DISTANCE * sites}>"
    columns = "\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", *names])
    print("\n".join(["##fileformat=VCFv4.2", contig, *HEADER, columns]))
    for line in lines(samples, sites):
        print(line)
