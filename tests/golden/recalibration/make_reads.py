#!/usr/bin/env python3
"""Writes reference.fa, known.vcf and reads.sam: simulated reads with the cases that recalibration distinguishes."""
import random

random.seed(47)
LETTERS = "ACGT"
LENGTHS = {"chr1": 7000, "chr2": 3000}
GROUPS = ["a", "b", "c"]
PAIRED, PROPER, UNMAPPED, MATE_UNMAPPED, REVERSE, MATE_REVERSE, FIRST, LAST = 1, 2, 4, 8, 16, 32, 64, 128
SECONDARY, FAILED, DUPLICATE, SUPPLEMENTARY = 256, 512, 1024, 2048


def make_reference():
    bases = {name: [random.choice(LETTERS) for _ in range(length)] for name, length in LENGTHS.items()}
    bases["chr1"][3000:3060] = "N" * 60
    bases["chr1"][3500:3700] = [base.lower() for base in bases["chr1"][3500:3700]]
    bases["chr1"][4000], bases["chr1"][4010] = "R", "Y"
    return {name: "".join(letters) for name, letters in bases.items()}


def make_sites(reference):
    sites = []
    for name, length in LENGTHS.items():
        for position in random.sample(range(50, length - 400), length // 60):
            kind = random.choice(["snp"] * 6 + ["deletion", "insertion", "long", "mnp"])
            first = reference[name][position].upper()
            if first not in LETTERS:
                continue
            other = random.choice([letter for letter in LETTERS if letter != first])
            if kind == "deletion":
                sites.append((name, position, reference[name][position : position + random.randint(2, 9)].upper(), first, "."))
            elif kind == "insertion":
                sites.append((name, position, first, first + "ACG"[: random.randint(1, 3)], "."))
            elif kind == "mnp":
                sites.append((name, position, reference[name][position : position + 2].upper(), other + other, "."))
            elif kind == "long" and len([site for site in sites if "END" in site[4]]) < 4:
                sites.append((name, position, first, "<DEL>", f"SVTYPE=DEL;END={position + random.randint(20, 330)}"))
            else:
                sites.append((name, position, first, other, "."))
    return [site for site in sorted(sites) if set(site[2]) <= set(LETTERS)]


def make_qualities(length):
    kind = random.random()
    if kind < 0.02:
        return [2] * length
    qualities = [random.choice([6, 12, 23, 30, 37, 37, 37, 37, 40]) for _ in range(length)]
    if kind < 0.3:
        tail = random.randint(1, length // 3)
        qualities[length - tail :] = [2] * tail
    if kind < 0.15:
        head = random.randint(1, 4)
        qualities[:head] = [random.choice([0, 1, 2])] * head
    if kind > 0.97:
        qualities[length // 2] = 93
    return qualities


def parse(cigar):
    operations, number = [], ""
    for letter in cigar:
        if letter.isdigit():
            number += letter
        else:
            operations.append((int(number), letter))
            number = ""
    return operations


def random_cigar(length):
    kind = random.random()
    middle = random.randint(8, length - 12)
    if kind < 0.5:
        return f"{length}M"
    if kind < 0.6:
        clip = random.randint(1, length // 3)
        return f"{clip}S{length - clip}M" if random.random() < 0.5 else f"{length - clip}M{clip}S"
    if kind < 0.7:
        gap = random.randint(1, 8)
        return f"{middle}M{gap}D{length - middle}M"
    if kind < 0.8:
        gap = random.randint(1, 4)
        return f"{middle}M{gap}I{length - middle - gap}M"
    return random.choice(
        [
            f"5H3S{length - 7}M4S",
            f"{middle}M2I3D{length - middle - 2}M",
            f"{middle}M3D2I{length - middle - 2}M",
            f"{middle}M1D1I1D{length - middle - 1}M",
            f"2D{length}M",
            f"{length}M2D",
            f"3S2D{length - 3}M",
            f"3I{length - 3}M",
            f"{length - 3}M3I",
            f"2S2I{length - 4}M",
            f"{middle}={1}X{length - middle - 1}=",
            f"{middle}M1P{length - middle}M",
            f"{middle}M0D{length - middle}M",
            f"{length - 4}M4S3H",
        ]
    )


def make_bases(reference, position, cigar, qualities):
    """Returns the bases of a read that is aligned at a 0-based position, with errors as the qualities state."""
    bases = []
    for length, operation in parse(cigar):
        if operation in "M=X":
            bases += [letter if letter in LETTERS else "A" for letter in reference[position : position + length].upper()]
        elif operation in "IS":
            bases += [random.choice(LETTERS) for _ in range(length)]
        if operation in "MDN=X":
            position += length
    for at, quality in enumerate(qualities):
        if random.random() < 10 ** (-quality / 10) + 0.004:
            bases[at] = random.choice(LETTERS)
        elif random.random() < 0.003:
            bases[at] = random.choice("NNNRM=")
    return "".join(bases)


def covered(cigar):
    return sum(length for length, operation in parse(cigar) if operation in "MDN=X")


def make_pair(reference, number):
    """Returns the lines of a pair, some with another flag or field than usual."""
    name = random.choice(list(LENGTHS))
    length = random.choice([36, 36, 50, 101, 101, 101, 150, 150, 250, 300])
    fragment = random.choice([length - random.randint(1, 15), length + random.randint(0, 300), length + 200])
    start = random.randint(20, LENGTHS[name] - max(fragment, length) - 40)
    first_is_forward = random.random() < 0.5
    cigars = [random_cigar(length), random_cigar(length)]
    positions = [start, max(1, start + fragment - covered(cigars[1]))]
    group = random.choice(GROUPS)
    lines = []
    for mate in range(2):
        reverse = mate == 1
        flag = PAIRED | PROPER | (REVERSE if reverse else MATE_REVERSE)
        flag |= FIRST if reverse != first_is_forward else LAST
        quality, mapping = make_qualities(length), 60
        cigar, template = cigars[mate], fragment if mate == 0 else -fragment
        bases = make_bases(reference[name], positions[mate], cigar, quality)
        text = "".join(chr(33 + value) for value in quality)
        tags = [f"RG:Z:{group}", f"NM:i:{mate}"]
        kind = random.random()
        if kind < 0.03:
            flag |= DUPLICATE
        elif kind < 0.05:
            flag |= SECONDARY
        elif kind < 0.07:
            flag |= SUPPLEMENTARY
        elif kind < 0.09:
            flag |= FAILED
        elif kind < 0.11:
            mapping = 0
        elif kind < 0.12:
            mapping = 255
        elif kind < 0.13:
            text = "*"
        elif kind < 0.14:
            tags = tags[1:]
        elif kind < 0.15 and "I" not in cigar and "D" not in cigar:
            cigar = cigar.replace("M", "M50N", 1) + "1M"
            bases, text = bases + "A", text + "I"
        elif kind < 0.17:
            flag = flag & ~(PROPER | MATE_REVERSE) | MATE_UNMAPPED
        elif kind < 0.19:
            flag ^= MATE_REVERSE
        elif kind < 0.21:
            flag &= REVERSE
        elif kind < 0.24:
            tags.append("OQ:Z:" + "".join(chr(33 + random.choice([10, 20, 30])) for _ in bases))
        other = positions[1 - mate]
        fields = [f"r{number}", flag, name, positions[mate] + 1, mapping, cigar, "=", other + 1, template, bases, text]
        lines.append((name, positions[mate], [str(field) for field in fields] + tags))
        if kind > 0.985:
            fields = [f"u{number}", PAIRED | UNMAPPED | MATE_UNMAPPED | FIRST, "*", 0, 0, "*", "*", 0, 0, bases, text]
            lines.append(("~", 0, [str(field) for field in fields] + tags))
    return lines


def main():
    reference = make_reference()
    with open("reference.fa", "w") as out:
        for name, bases in reference.items():
            out.write(f">{name}\n" + "".join(bases[at : at + 70] + "\n" for at in range(0, len(bases), 70)))
    with open("known.vcf", "w") as out:
        out.write("##fileformat=VCFv4.2\n")
        out.write('##INFO=<ID=END,Number=1,Type=Integer,Description="End">\n')
        out.write('##INFO=<ID=SVTYPE,Number=1,Type=String,Description="Type">\n')
        out.writelines(f"##contig=<ID={name},length={length}>\n" for name, length in LENGTHS.items())
        out.write("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")
        for name, position, before, after, info in make_sites(reference):
            out.write(f"{name}\t{position + 1}\t.\t{before}\t{after}\t.\t.\t{info}\n")
    lines = [line for number in range(200) for line in make_pair(reference, number)]
    lines.sort(key=lambda line: line[:2])
    with open("reads.sam", "w") as out:
        out.write("@HD\tVN:1.6\tSO:coordinate\n")
        out.writelines(f"@SQ\tSN:{name}\tLN:{length}\n" for name, length in LENGTHS.items())
        out.write("@RG\tID:a\tSM:s\tPL:ILLUMINA\tPU:FC1.1\n@RG\tID:b\tSM:s\tPL:ILLUMINA\n")
        out.write("@RG\tID:c\tSM:s\tPL:ILLUMINA\tPU:FC1.1\n")
        out.writelines("\t".join(fields) + "\n" for _, _, fields in lines)


main()
