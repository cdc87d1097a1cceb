"""Speed and memory of packing and unpacking genomes.

In: the slices of GRCh38 from --data with a file of --individuals other individuals' haplotypes, and a simulated genome of --megabases with one
other individual. The greater part of the simulated genome is repeats: interspersed ones of 0.3 to 6 kb in 2 to 20 % divergent copies and
soft-masked, satellites of 171 bases over 2 % of each chromosome, and duplications of 20 to 200 kb that
differ in 1 % (proportions of the order of the human genome's: International Human Genome Sequencing Consortium 2001,
doi:10.1038/35057062). Individuals are those of `godwit mutate`. Three steps are measured, each as its own process with all input in
the page cache: index (the reference for the first time: FASTA, digests, k-mers, both cached files), encode and decode. Bases are
known ones, without N. bsdiff is not measured for a gigabase: it takes 17 bytes of memory per base (its manual), and hours as published.
"""

import argparse
import gzip
import random
from collections.abc import Callable
from pathlib import Path

from godwit_bench import harness

CHROMOSOMES = 10
TO_BASES = bytes(b"ACGT"[value & 3] for value in range(256))
OTHER_CASE = bytes.maketrans(b"ACGT", b"acgt")
# Length of a family's unit in bases, and the share of a genome that its copies cover.
FAMILIES = ((300, 0.11), (1200, 0.12), (6000, 0.17), (2500, 0.08))
VARIANTS = 200


def mutate(unit: bytes, rate: float, draw: random.Random) -> bytes:
    copy = bytearray(unit)
    for at in range(len(copy)):
        if draw.random() < rate:
            copy[at] = draw.choice(b"ACGT")
    return bytes(copy)


def simulate(folder: Path, megabases: int, seed: int) -> None:
    """Writes ref.fa: chromosomes of equal length, lines of 60 bases."""
    draw = random.Random(seed)
    families = []
    for bases, share in FAMILIES:
        unit = draw.randbytes(bases).translate(TO_BASES)
        variants = [mutate(unit, draw.uniform(0.02, 0.2), draw).translate(OTHER_CASE) for _ in range(VARIANTS)]
        families.append((bases, share, variants))
    monomer = draw.randbytes(171).translate(TO_BASES)
    bases = megabases * 1_000_000 // CHROMOSOMES
    with (folder / "ref.fa").open("wb") as fasta:
        for chromosome in range(CHROMOSOMES):
            sequence = bytearray(draw.randbytes(bases).translate(TO_BASES))
            for length, share, variants in families:
                for _ in range(int(bases * share / length)):
                    # Most copies lack their beginning, as those of LINEs do.
                    variant = draw.choice(variants)[draw.randrange(length // 2) :]
                    start = draw.randrange(bases - length)
                    sequence[start : start + len(variant)] = variant
            for _ in range(bases // 2_000_000):
                length, start, to = draw.randrange(20_000, 200_000), draw.randrange(bases - 200_000), draw.randrange(bases - 200_000)
                sequence[to : to + length] = sequence[start : start + length]
                for _ in range(length // 100):
                    sequence[to + draw.randrange(length)] = draw.choice(b"ACGT")
            middle = bases // 2
            for at in range(0, bases // 50, 171):
                sequence[middle + at : middle + at + 171] = mutate(monomer, 0.02, draw) if at % 1_000 < 171 else monomer
            fasta.write(b">chr%d\n" % (chromosome + 1))
            fasta.write(b"\n".join(sequence[start : start + 60] for start in range(0, bases, 60)) + b"\n")


def make_genome(options: argparse.Namespace, godwit: Path, name: str, build: Callable[[Path], object], individuals: int = 1) -> Path:
    """Makes a directory with ref.fa and new.fa."""

    def write_reference_and_new(folder: Path) -> None:
        build(folder)
        with (folder / "new.fa").open("wb") as all_of_them:
            for seed in range(options.seed, options.seed + individuals):
                harness.run_checked([godwit, "mutate", folder / "ref.fa", folder / "one.fa", "--seed", seed])
                all_of_them.write((folder / "one.fa").read_bytes().replace(b">", b">%d_" % seed))

    return harness.build_once(options.cache.resolve() / name, write_reference_and_new)


def sequence_slices(options: argparse.Namespace) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        with gzip.open(options.data / "human/grch38.chr20_and_21_10M.fa.gz") as text:
            (folder / "ref.fa").write_bytes(text.read())

    return build


def count_bases(path: Path) -> int:
    """Counts the known bases of a FASTA file."""
    count = 0
    with path.open("rb") as fasta:
        while lines := fasta.readlines(1 << 24):
            letters = b"".join(line for line in lines if not line.startswith(b">"))
            count += len(letters.translate(None, b"Nn\n"))
    return count


def step_scripts(godwit: Path, folder: Path, threads: int) -> dict[str, str]:
    """Returns a script for each step."""
    start = f"cd {folder}; "
    args = f"{godwit} {{}} --quiet --threads {threads} --reference ref.fa "
    return {
        "index": f"{start}rm -f ref.fa.gwp-*; printf '>x\\nA\\n' > one.fa; " + args.format("pack") + "one.fa one.gwp",
        "encode": start + args.format("pack") + "new.fa new.gwp",
        "decode": start + args.format("unpack") + "new.gwp back.fa",
    }


def measure(options: argparse.Namespace, godwit: Path, folder: Path, name: str) -> harness.Result:
    harness.load_into_page_cache(folder / "ref.fa")
    harness.load_into_page_cache(folder / "new.fa")
    rows = {}
    for threads in sorted({1, options.threads}):
        scripts = step_scripts(godwit, folder, threads)
        measured = harness.measure_competitors(scripts, dict.fromkeys(scripts, options.rounds), folder)
        harness.run_checked(["cmp", folder / "new.fa", folder / "back.fa"])
        rows[threads] = measured
    bases = {"index": count_bases(folder / "ref.fa"), "encode": count_bases(folder / "new.fa")}
    bases["decode"] = bases["encode"]
    sizes = {file: (folder / file).stat().st_size for file in ("new.fa", "new.gwp", "ref.fa.gwp-bases", "ref.fa.gwp-anchors")}
    (folder / "back.fa").unlink()
    return {"name": name, "bases": bases, "bytes": sizes, "measured": rows}


def speeds(one: harness.Result, threads: int, step: str, field: str = "wall_s") -> list[float]:
    """Returns the Mbase/s of each round."""
    return [one["bases"][step] / 1e6 / result[field] for result in one["measured"][threads][step]]


def table_rows(found: list[harness.Result]) -> str:
    lines = [
        "| genome | threads | step | bases | Mbase/s | Mbase per CPU s | wall s | CPU s | peak MiB | bytes of memory a base of the reference |",
        "|---" * 10 + "|",
    ]
    for one in found:
        for threads, measured in one["measured"].items():
            for step, rounds in measured.items():
                wall, cpu = harness.median_field(rounds, "wall_s"), harness.median_field(rounds, "cpu_s")
                peak = max(result["peak_bytes"] for result in rounds)
                bases = one["bases"][step]
                lines.append(
                    f"| {one['name']} | {threads} | {step} | {bases:,} | {bases / 1e6 / wall:.0f} | {bases / 1e6 / cpu:.0f}"
                    f" | {wall:.2f} | {cpu:.2f} | {peak / 2**20:.0f} | {peak / one['bases']['index']:.2f} |"
                )
    return "\n".join(lines)


def targets(slices_found: harness.Result, simulated: harness.Result, threads: int) -> list[harness.Result]:
    """Returns the targets for real sequence, and those of half the speed for the simulated sequence."""
    made = []
    for one, factor in ((slices_found, 1), (simulated, 0.5)):
        made.append(harness.target(f"{one['name']}, index", speeds(one, 1, "index", "cpu_s"), at_least=100 * factor, unit="Mbase/s a core"))
        made += [
            harness.target(f"{one['name']}, {step}", speeds(one, threads, step), at_least=500 * factor, unit=f"Mbase/s by {threads} threads")
            for step in ("encode", "decode")
        ]
    peaks = [max(result["peak_bytes"] for measured in simulated["measured"].values() for rounds in measured.values() for result in rounds)]
    made.append(
        harness.target(
            f"{simulated['name']}, memory of any step", [peak / simulated["bases"]["index"] for peak in peaks], at_most=4, unit="bytes a base"
        )
    )
    return made


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with human/")
    parser.add_argument("--megabases", type=int, default=1000, help="size of the simulated genome (default: 1000)")
    parser.add_argument("--individuals", type=int, default=16, help="haplotypes in the file that is packed against the slices (default: 16)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    around = harness.host_description(godwit)
    folder = make_genome(options, godwit, f"genome-grch38-{options.individuals}", sequence_slices(options), options.individuals)
    real = measure(options, godwit, folder, "GRCh38, slices")
    folder = make_genome(options, godwit, f"genome-{options.megabases}mb", lambda folder: simulate(folder, options.megabases, options.seed))
    simulated = measure(options, godwit, folder, f"simulated, {options.megabases} Mb")
    kept = targets(real, simulated, options.threads)
    text = "\n".join(
        [
            "# Speed of packing genomes",
            "",
            __doc__.split("\n", 1)[1].strip(),
            "",
            f"{options.rounds} rounds, medians; {harness.format_host(around)}.",
            "",
            table_rows([real, simulated]),
            "",
            *(f"- {harness.format_target(promise)}" for promise in kept),
            "",
            *(
                f"- {one['name']}: {one['bytes']['new.fa']:,} bytes of FASTA were packed into {one['bytes']['new.gwp']:,}; the cached files of "
                f"the reference have {one['bytes']['ref.fa.gwp-bases'] + one['bytes']['ref.fa.gwp-anchors']:,} bytes."
                for one in (real, simulated)
            ),
            "",
            f"Command: `{harness.command_line()}`",
            "",
        ]
    )
    harness.write_result("pack_speed", options.results, text, around, kept, {"genomes": [real, simulated]})


if __name__ == "__main__":
    main()
