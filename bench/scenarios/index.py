"""The index of bwa-mem3, made from the index of bwa, beside `bwa-mem2 index` where that program is installed.

Both write the same file with one sample for every 8th row; the bytes are compared. The genome has human-like repeats and 400 Mb.
"""

import filecmp
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from godwit_bench import harness

OUTPUT = "bwt.2bit.64"
BWA_FILES = ("amb", "ann", "bwt", "pac", "sa")
PEER = "bwa-mem2 index"
# `bwa-mem2 index` 2.2.1 takes 183 s on two cores for a genome of 400 Mb; the target of godwit is at most a fifth.
MAX_WALL_S_PER_MB = 183 / 5 / 400
MAX_MEMORY_RATIO = 1.3


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of godwit (default: 3)")
    parser.add_argument("--genome", type=int, default=400, metavar="MB", help="size of the simulated genome (default: 400)")
    options = parser.parse_args()
    godwit = harness.godwit_binary(options)
    fasta = harness.reference_fasta(options, godwit) if options.reference else harness.genome_with_repeats(options, godwit, options.genome)
    scratch = harness.scratch_directory(options, "index")
    own, competitor = (scratch / name / "ref.fa" for name in ("godwit", "peer"))

    scripts = {"godwit index": fresh_directory(own, fasta, BWA_FILES) + f"{shlex.quote(str(godwit))} index {own} --threads {options.threads} --quiet"}
    if shutil.which("bwa-mem2"):
        scripts[PEER] = fresh_directory(competitor, fasta, ()) + f"bwa-mem2 index {competitor}"
    rounds = {name: 1 if name == PEER else options.rounds for name in scripts}
    measured = harness.measure_competitors(scripts, rounds, scratch)
    index, given = own.with_name(f"ref.fa.{OUTPUT}"), fasta.with_name(f"{fasta.name}.{OUTPUT}")
    index_bytes = index.stat().st_size
    megabases = sum(bases for _, bases in harness.read_contigs(fasta)) / 1e6
    for other in (given, competitor.with_name(index.name)):
        if other.exists() and not filecmp.cmp(index, other, shallow=False):
            harness.exit_with_error(f"{index} and {other} differ")

    promises = [
        harness.target("wall time", [one["wall_s"] for one in measured["godwit index"]], at_most=MAX_WALL_S_PER_MB * megabases, unit="s"),
        harness.target(
            "peak memory over the size of the index", [one["peak_bytes"] / index_bytes for one in measured["godwit index"]], at_most=MAX_MEMORY_RATIO
        ),
    ]
    around = harness.host_description(godwit)
    text = "\n".join(
        [
            "# The index of bwa-mem3 from bwa's index",
            "",
            f"A genome of {megabases:,.0f} Mb, an index of {index_bytes / 1e9:.2f} GB, {options.threads} threads; {harness.format_host(around)}.",
            "",
            harness.markdown_table(measured, "godwit index"),
            "",
            *[f"- {harness.format_target(promised)}" for promised in promises],
            "",
            "Commands:",
            "",
            *[
                f"- {name}: `{harness.join_script_lines(script.replace(str(scratch), 'SCRATCH').replace(str(godwit), 'godwit'))}`"
                for name, script in scripts.items()
            ],
            "",
        ]
    ).replace(str(fasta.parent), "CACHE")
    harness.write_result("index", options.results, text, around, promises, {"megabases": megabases, "index_bytes": index_bytes, "rounds": measured})
    shutil.rmtree(scratch)


def fresh_directory(copy: Path, fasta: Path, extensions: Sequence[str]) -> str:
    """Returns a script that makes a directory with links to the reference and to files of its index."""
    links = "".join(f" && ln -s {shlex.quote(f'{fasta}.{extension}')} {copy}.{extension}" for extension in extensions)
    return f"rm -rf {copy.parent} && mkdir {copy.parent} && ln -s {shlex.quote(str(fasta))} {copy}{links}\n"


if __name__ == "__main__":
    main()
