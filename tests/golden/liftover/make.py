"""Writes a random chain file, random intervals, and the intervals as pyliftover and CrossMap lift them."""

import os
import random
import tempfile

from cmmodule.utils import map_coordinates, read_chain_file
from pyliftover import LiftOver

OLD = {"chr1": 60_000, "chr2": 30_000, "chrUn_1": 5000}
NEW = {"chr1": 62_000, "chr3": 29_000, "chrX": 9000}
MIN_MATCH = 0.95
random.seed(1046)


def chain_blocks(length, new_length):
    """Blocks of a chain that fits into both contigs, as size and gaps."""
    blocks, old, new = [], 0, 0
    limit = random.randint(200, 6000)
    while True:
        size, gap, new_gap = random.randint(1, 400), random.choice([0, random.randint(0, 40)]), random.choice([0, random.randint(0, 40)])
        if old + size > min(limit, length) or new + size > new_length:
            return blocks, old, new
        blocks.append((size, gap, new_gap))
        old, new = old + size + gap, new + size + new_gap


def write_chains(path):
    """Chains from left to right on each contig, of which some overlap; returns the text of each."""
    chains = []
    for contig, length in OLD.items():
        at = random.randrange(100)
        while at < length - 100:
            target, target_length = random.choice(list(NEW.items()))
            blocks, _, _ = chain_blocks(length - at, target_length)
            if not blocks:
                at += 50
                continue
            span = sum(size + gap for size, gap, _ in blocks[:-1]) + blocks[-1][0]
            new_span = sum(size + gap for size, _, gap in blocks[:-1]) + blocks[-1][0]
            start = random.randint(0, target_length - new_span)
            strand = random.choice("+++-")
            lines = [
                f"chain {random.randint(1000, 99999)} {contig} {length} + {at} {at + span} "
                f"{target} {target_length} {strand} {start} {start + new_span} {len(chains) + 1}"
            ]
            lines += [f"{size}\t{gap}\t{new_gap}" for size, gap, new_gap in blocks[:-1]] + [str(blocks[-1][0])]
            chains.append("\n".join(lines) + "\n\n")
            # Some chains overlap the one before, and some follow at a distance.
            at += random.choice([span, span + random.randint(0, 300), max(1, span - random.randint(0, 300))])
    with open(path, "w") as out:
        out.write("# random chains\n" + "".join(chains))
    return chains


def lifted_by_one_chain(mapping, contig, start, end):
    """The interval as CrossMap lifts it with the chains of `mapping`, if these align enough of its bases."""
    found = map_coordinates(mapping, contig, start, end, chrom_style="n")
    if not found:
        return None
    bases = sum(end - start for _, start, end, _ in found[::2])
    if bases < MIN_MATCH * (end - start):
        return None
    new = found[1::2]
    return new[0][0], min(start for _, start, _, _ in new), max(end for _, _, end, _ in new), new[0][3]


chains = write_chains("old-to-new.chain")
mappings = []
for text in chains:
    with tempfile.NamedTemporaryFile("w", suffix=".chain", delete=False) as one:
        one.write(text)
    mappings.append(read_chain_file(one.name)[0])
    os.unlink(one.name)
positions = LiftOver("old-to-new.chain")
with open("expected.tsv", "w") as out:
    for number in range(1500):
        contig, length = random.choice(list(OLD.items()))
        if number % 3 == 0:
            # A position: pyliftover returns a result for each chain. If there is not exactly one, it is not lifted.
            start = random.randrange(length)
            found = positions.convert_coordinate(contig, start) or []
            end, lifted = start + 1, [(new, at, at + 1, strand) for new, at, strand, *_ in found]
        else:
            start = random.randrange(length - 1)
            end = min(length, start + random.choice([random.randint(1, 300), random.randint(1, 5000)]))
            lifted = [lifted_by_one_chain(mapping, contig, start, end) for mapping in mappings]
            lifted = [found for found in lifted if found]
        fields = lifted[0] if len(lifted) == 1 else (".", -1, -1, ".")
        print(contig, start, end, *fields, sep="\t", file=out)
