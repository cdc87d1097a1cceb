#!/usr/bin/env python3
"""What cutting a genome costs in variants: one run over everything, the same cut in ten, and `godwit call`, against the truth.

Cut in ten is what is published of chromosomes in parallel: the reads of each tenth of a contig go into a file of their own, which is
called by itself, and the calls are put together. Reads over a border go into both files, or, as a shuffle by position has it, into the one in
which they start. `godwit call` cuts about as fine. `godwit compare --baseline` judges all of it.
HaplotypeCaller takes its time: it is measured by `--callers gatk`, into results of its own.
"""

import collections
import gzip
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import _measure as bench
from spark import GATK

CALLERS = "bcftools,freebayes"
PARTS = 10
MEGABASES = 3
# Lines of 50 bases of chr20, which reach beyond the stretch of the human reads.
HUMAN_LINES = 222_000
HUMAN_STRETCH = ("chr20", 10_000_000, 10_100_000)
HUMAN_NAME = "NA12878, 100 kb of chr20"
WHOLE, CUT, CUT_BY_START, GODWIT = RUNS = ("one run", "cut in ten", "cut in ten, each read once", "godwit call")
COUNTS = ("truth", "found", "missed", "false", "recall", "precision", "F1", "true lost", "true gained", "false gained", "false lost")

# What is called: reads with their reference and truth; stretches are (contig, start, end), 0-based, half-open.
Sample = collections.namedtuple("Sample", "name fasta bam truth confident stretches grid")


def simulated(options, godwit):
    """Reads of a genome whose variants are known because they were drawn."""
    fasta = bench.reference(options, godwit, MEGABASES)
    reads = bench.reads(options, godwit, fasta, gzip=True)
    bam = bench.aligned(options, godwit, fasta, reads)
    stretches = [(name, 0, bases) for name, bases in bench.contigs(fasta)]
    coverage = options.pairs * 2 * 148 / sum(end for _, _, end in stretches)
    name = f"simulated, {MEGABASES} Mb at {coverage:.0f}x" if not options.reference else f"{options.reference.name} at {coverage:.0f}x"
    return Sample(name, fasta, bam, reads[0].parent / "x.truth.vcf", None, stretches, f"{1000 // options.parts}K")


def human(options, godwit):
    """The stretch of NA12878 whose variants are known, from FASTQ; `None` where it is not on this machine."""
    given = options.human
    if not given.is_dir():
        return None

    def build(folder):
        with gzip.open(given / "ucsc.hg19.chr20.unittest.fasta.gz", "rt") as whole, open(folder / "chr20.fa", "w") as fasta:
            fasta.writelines(line for _, line in zip(range(HUMAN_LINES), whole))
        with gzip.open(given / "test_nist.b37_chr20_100kbp_at_10mb.vcf.gz", "rt") as lines, open(folder / "truth.vcf", "w") as truth:
            for line in lines:
                truth.write("chr" + line if line.startswith("20\t") else line.replace("##contig=<ID=20,", "##contig=<ID=chr20,"))
        bench.run([godwit, "index", folder / "chr20.fa"])
        reads = [given / f"NA12878.10_10p1mb_R{mate}.fastq.gz" for mate in (1, 2)]
        bench.align(options, godwit, folder / "chr20.fa", reads, folder / "out")

    folder = bench.make(options.cache / "accuracy-human", build)
    confident = given / "test_nist.b37_chr20_100kbp_at_10mb.bed"
    return Sample(HUMAN_NAME, folder / "chr20.fa", folder / "out/bench.bam", folder / "truth.vcf", confident, [HUMAN_STRETCH], f"{100 // options.parts}K")


def plain(caller, fasta, bam, out):
    """The plain command over a file of reads, as a bash script."""
    fasta, bam, out = (shlex.quote(str(path)) for path in (fasta, bam, out))
    return {
        "bcftools": f"bcftools mpileup -Ou -f {fasta} {bam} | bcftools call -mv -Oz -o {out}",
        "freebayes": f"freebayes -f {fasta} {bam} | bgzip > {out}",
        "gatk": f"java -Xmx2g -XX:+UseSerialGC -cp '{GATK}/*' org.broadinstitute.hellbender.Main HaplotypeCaller --verbosity ERROR"
        f" -R {fasta} -I {bam} -O {out}",
    }[caller]


def parts_of(stretches, parts):
    """Equal parts of each stretch, as contig, first and last position, 1-based."""
    for contig, start, end in stretches:
        edges = [start + (end - start) * part // parts for part in range(parts + 1)]
        yield from ((contig, first + 1, last) for first, last in zip(edges, edges[1:]))


def script(run, caller, sample, options, godwit, scratch, out):
    """How one call set comes to be, as a bash script."""
    if run == WHOLE:
        return plain(caller, sample.fasta, sample.bam, out)
    if run == GODWIT:
        words = [godwit, "call", "--reference", sample.fasta, "--reads", sample.bam, "--out", out, "--caller", caller]
        words += ["--grid-size", sample.grid, "--threads", options.threads, "--quiet"]
        if sample.confident:
            # A grid that fine over what has no reads would start callers on nothing.
            bed = scratch / "stretches.bed"
            bed.write_text("".join(f"{contig}\t{start}\t{end}\n" for contig, start, end in sample.stretches))
            words += ["--regions", bed]
        return shlex.join(map(str, words))
    pieces, lines = [], []
    for number, (contig, first, last) in enumerate(parts_of(sample.stretches, options.parts)):
        piece = scratch / f"{number}.bam"
        which = f"-e 'pos >= {first}' " if run == CUT_BY_START else ""
        cut = f"samtools view -b -o {piece} {which}{sample.bam} {contig}:{first}-{last}; samtools index {piece}"
        lines.append(f"{cut}; {plain(caller, sample.fasta, piece, f'{piece}.vcf.gz')}; bcftools index -f -t {piece}.vcf.gz\n")
        pieces.append(f"{piece}.vcf.gz")
    (scratch / "parts.sh").write_text("".join(lines))
    # Where two pieces have the same variant at their border, one of them counts.
    return f"""
        tr '\\n' '\\0' < {scratch}/parts.sh | xargs -0 -P {options.threads} -n 1 bash -euo pipefail -c
        bcftools concat -a -D -Oz -o {out} {' '.join(pieces)}"""


def records(vcf, stretches):
    """Lines of records that start in the stretches, whole, and as site and genotype."""
    def inside(fields):
        return any(fields[0] == contig and start < int(fields[1]) <= end for contig, start, end in stretches)

    with gzip.open(vcf, "rt") as lines:
        split = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
    whole = [fields for fields in split if inside(fields)]
    genotypes = [(*fields[:2], *fields[3:5], fields[9].split(":")[0]) for fields in whole]
    return collections.Counter(map(tuple, whole)), collections.Counter(genotypes)


def differences(one, other):
    """Records of either that the other does not have."""
    return sum((one - other).values()) + sum((other - one).values())


def judged(godwit, sample, calls, baseline):
    """What `godwit compare` says of calls beside those of one run."""
    command = [godwit, "compare", calls, sample.truth, "--reference", sample.fasta, "--baseline", baseline, "--json"]
    command += ["--confident", sample.confident] if sample.confident else []
    return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout)


def counts(accuracy, changes):
    """The columns of a table; a genotype that is not the truth's is missed there and false here, as others count it."""
    false = accuracy["false"] + accuracy["other_genotype"]
    rates = [accuracy[rate] for rate in ("recall", "precision", "f1")]
    changed = [changes[name] for name in ("true_lost", "true_gained", "false_gained", "false_lost")] if changes else [None] * 4
    return dict(zip(COUNTS, [accuracy["truth"], accuracy["found"], accuracy["truth"] - accuracy["found"], false, *rates, *changed]))


def measure(caller, sample, options, godwit, scratch):
    """All call sets of a caller: counts of each kind of variant, and how far they are from those of one run."""
    outs = {run: scratch / f"run-{number}.vcf.gz" for number, run in enumerate(RUNS)}
    found = {}
    for run, out in outs.items():
        print(f"bench: {sample.name}, {caller}: {run}", flush=True)
        seconds = bench.measure(script(run, caller, sample, options, godwit, scratch, out), scratch / "stderr.txt")["wall_s"]
        (whole, genotypes), (base, base_genotypes) = (records(path, sample.stretches) for path in (out, outs[WHOLE]))
        comparison = judged(godwit, sample, out, outs[WHOLE])
        of_kind = {
            kind: counts(comparison["calls"][kind], None if run == WHOLE else comparison["changes"][kind]) for kind in ("snps", "indels")
        }
        found[run] = {
            "records": sum(whole.values()),
            "other_records": differences(whole, base),
            "other_genotypes": differences(genotypes, base_genotypes),
            "wall_s": seconds,
            **of_kind,
        }
    return found


def cell(value):
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(map(cell, line)) + " |" for line in lines] + [""]


def tables(callers):
    """What is right and wrong of each run, and how far it is from one run."""
    kinds = (("snps", "SNPs"), ("indels", "indels"))
    each = [(caller, run, found[run]) for caller, found in callers.items() for run in RUNS]
    accuracy = [[caller, name, run, *one[kind].values()] for kind, name in kinds for caller, run, one in each]
    apart = [[caller, run, *(one[field] for field in ("records", "other_records", "other_genotypes"))] for caller, run, one in each if run != WHOLE]
    return [
        *table(["caller", "variants", "run", *COUNTS], accuracy),
        *table(["caller", "run", "records", "other records", "other sites or genotypes"], apart),
    ]


def main():
    parser = bench.parser(__doc__)
    parser.set_defaults(pairs=300_000)
    parser.add_argument("--callers", default=CALLERS, help=f"some of bcftools,freebayes,gatk (default: {CALLERS})")
    parser.add_argument("--parts", type=int, choices=range(2, 101), default=PARTS, metavar="N", help=f"parts of each contig, 2 to 100 (default: {PARTS})")
    beside = bench.ROOT / "../shared/data/human"
    parser.add_argument("--human", type=Path, default=beside, help="directory with the reads and the truth of NA12878 (default: beside the repository)")
    options = parser.parse_args()
    callers = options.callers.split(",")
    bench.need("bwa", "samtools", "bcftools", "bgzip", *("java" if caller == "gatk" else caller for caller in callers))
    if "gatk" in callers:
        bench.run([bench.ROOT / "tests/tools/gatk/fetch.sh"])
        os.environ["GODWIT_GATK"] = str(GATK)
    godwit = bench.godwit_binary(options)
    samples = [sample for sample in (simulated(options, godwit), human(options, godwit)) if sample]
    results, promises = {}, []
    for sample in samples:
        results[sample.name] = {}
        if "gatk" in callers and not sample.fasta.with_suffix(".dict").exists():
            bench.run(["samtools", "dict", sample.fasta, "-o", sample.fasta.with_suffix(".dict")])
        for caller in callers:
            scratch = bench.scratch_directory(options, f"accuracy-{caller}")
            found = results[sample.name][caller] = measure(caller, sample, options, godwit, scratch)
            what, field = ("records", "other_records") if caller == "bcftools" else ("sites and genotypes", "other_genotypes")
            other = [found[GODWIT][field]]
            promises.append(bench.promise(f"{what} by {caller} in regions other than in one run, {sample.name}", other, at_most=0))
            shutil.rmtree(scratch)
    around = bench.host(godwit)
    around["versions"] |= {name: bench.first_line([name, "--version"]) for name in ("samtools", "bcftools")}
    around["versions"]["freebayes"] = f"freebayes {bench.first_line(['freebayes', '--version'])}"
    around["versions"] |= {"gatk": GATK.name} if "gatk" in callers else {}
    sections = [line for name, of_callers in results.items() for line in [f"## {name}", "", *tables(of_callers)]]
    grids = ", ".join(f"{sample.grid} for {sample.name}" for sample in samples)
    text = "\n".join([
        "# What cutting a genome costs in variants",
        "",
        "One run of the caller over everything; the same cut in ten (reads of each part of a contig in a file of their own, which is called by itself, and of",
        "calls that two of them have one is kept); that with each read only in the file where it starts, as a shuffle by position has it; and `godwit call`, cut",
        f"about as fine (`--grid-size`: {grids}).",
        "",
        "Counted by `godwit compare --baseline` against the truth; an allele with another genotype than the truth's is missed and false, as hap.py counts it. Lost and",
        "gained are against the one run. Other records are those of either run that the other does not have: to the last digit, and by site, alleles and genotype.",
        "",
        f"{options.pairs:,} simulated pairs, seed {options.seed}; {bench.machine(around)}. {', '.join(filter(None, around['versions'].values()))}.",
        "",
        *sections,
        *[f"- {bench.in_words(promised)}" for promised in promises],
        "",
    ])
    name = "accuracy" if options.callers == CALLERS else f"accuracy-{'-'.join(callers)}"
    if options.parts != PARTS:
        name, text = f"{name}-{options.parts}", text.replace(CUT, f"cut in {options.parts}")
    bench.write(name, options.results, text, around, promises, {"pairs": options.pairs, "seed": options.seed, "results": results})


if __name__ == "__main__":
    main()
