"""Tables of BAM and VCF files by Python packages: genome_tables.py polars-bio|oxbow BAM SITES.vcf.gz COHORT.vcf.gz THREADS.

Each job returns the number of rows of its table, and with `verify` the sums of some columns of it, beginning with the number of rows. The job
`region` takes contig, start and end, 0-based and half-open. The tables are those of Polars, whose columns are Arrow.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

os.environ["TQDM_DISABLE"] = "1"

import polars as pl

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs

DUPLICATE = 1024
# The function that makes a table, and the expressions that are added up to verify it.
Workload: TypeAlias = tuple[Callable[..., pl.DataFrame], list[pl.Expr]]


def to_jobs(workloads: dict[str, Workload]) -> Jobs:
    def job(make: Callable[..., pl.DataFrame], checked: list[pl.Expr]) -> Callable[..., dict[str, Any]]:
        def run(verify: bool = False, **arguments: Any) -> dict[str, Any]:
            table = make(**arguments)
            found: dict[str, Any] = {"rows": table.height}
            if verify:
                sums = [table.select(expression.cast(pl.Float64).sum()).item() for expression in checked]
                found["sums"] = [float(table.height), *sums]
            return found

        return run

    return {name: job(*workload) for name, workload in workloads.items()}


def carriers(genotypes: pl.LazyFrame, carries: pl.Expr) -> pl.DataFrame:
    """Counts the genotypes of each sample with an alternate allele, as `carries` selects them. The columns are the samples."""
    counts = genotypes.select(carries.sum().name.keep()).collect()
    return counts.transpose(include_header=True, header_name="sample", column_names=["carried"])


def polars_bio_workloads(bam: str, sites: str, cohort: str, threads: str) -> dict[str, Workload]:
    import polars_bio as pb

    pb.set_option("datafusion.execution.target_partitions", threads)
    names = pb.get_metadata(pb.scan_vcf(cohort))["header"]["sample_names"]

    def reads() -> pl.LazyFrame:
        frame: pl.LazyFrame = pb.scan_bam(bam, use_zero_based=True)
        return frame

    def region(contig: str, start: int, end: int) -> pl.DataFrame:
        return reads().filter((pl.col("chrom") == contig) & (pl.col("start") < end) & (pl.col("end") > start)).collect()

    def variants() -> pl.LazyFrame:
        frame: pl.LazyFrame = pb.scan_vcf(sites, info_fields=["DP", "MQ"], format_fields=[], use_zero_based=True)
        return frame

    def genotypes(*fields: str) -> pl.LazyFrame:
        frame: pl.LazyFrame = pb.scan_vcf(cohort, info_fields=[], format_fields=list(fields), use_zero_based=True)
        return frame

    def value(name: str) -> pl.Expr:
        return pl.col("genotypes").struct.field(name)

    def of_sample(at: int) -> pl.Expr:
        return value("GT").list.get(at).alias(names[at])

    def genotypes_by_sample() -> pl.LazyFrame:
        return genotypes("GT").select(map(of_sample, range(len(names))))

    numbers = [pl.col("flags"), pl.col("mapping_quality"), pl.col("start")]
    used = (pl.col("mapping_quality") >= 30) & (pl.col("flags") & DUPLICATE == 0)
    good = (pl.col("qual") > 30) & (pl.col("DP") > 10)
    site = ["chrom", "start", "ref", "alt"]
    return {
        "reads": (lambda: reads().collect(), numbers),
        "region": (region, numbers),
        "filtered_reads": (lambda: reads().filter(used).select("name", "chrom", "start").collect(), [pl.col("start")]),
        "reads_by_flags": (lambda: reads().group_by("flags").agg(pl.len()).collect(), [pl.col("flags"), pl.col("len")]),
        "variants": (lambda: variants().collect(), [pl.col("start"), pl.col("DP"), pl.col("MQ")]),
        "filtered_variants": (lambda: variants().filter(good).select(site).collect(), [pl.col("start")]),
        "genotypes": (
            lambda: genotypes("GT", "DP", "GQ").select("chrom", "start", "genotypes").collect(),
            [value("GT").list.len(), value("DP").list.sum(), value("GQ").list.sum()],
        ),
        "carriers": (lambda: carriers(genotypes_by_sample(), pl.all().str.contains("1", literal=True)), [pl.col("carried")]),
    }


def oxbow_workloads(bam: str, sites: str, cohort: str, _threads: str) -> dict[str, Workload]:
    import oxbow

    def table(source: Any) -> pl.DataFrame:
        found: pl.DataFrame = source.to_polars()
        return found

    def reads(*fields: str, **how: Any) -> Any:
        return oxbow.from_bam(bam, fields=list(fields) or "*", coords="01", **how)

    def region(contig: str, start: int, end: int) -> pl.DataFrame:
        return table(reads(regions=f"{contig}:{start + 1}-{end}"))

    def variants() -> Any:
        return oxbow.from_vcf(sites, info_fields=["DP", "MQ"], samples=None, coords="01")

    def genotypes(*fields: str) -> Any:
        how: dict[str, Any] = {"info_fields": None, "genotype_fields": list(fields), "genotype_by": "field", "samples": "*"}
        return oxbow.from_vcf(cohort, fields=["chrom", "pos"], coords="01", **how)

    def filtered_reads() -> pl.DataFrame:
        used = (pl.col("mapq") >= 30) & (pl.col("flag") & DUPLICATE == 0)
        return table(reads("qname", "flag", "rname", "pos", "mapq")).lazy().filter(used).select("qname", "rname", "pos").collect()

    def filtered_variants() -> pl.DataFrame:
        good = (pl.col("qual") > 30) & (pl.col("info").struct.field("DP") > 10)
        return table(variants()).lazy().filter(good).select("chrom", "pos", "ref", "alt").collect()

    def values(name: str) -> pl.Expr:
        return pl.concat_list(pl.col(name).struct.unnest())

    def genotypes_by_sample() -> pl.LazyFrame:
        return table(genotypes("GT")).lazy().select(pl.col("GT").struct.unnest())

    carries = pl.all().struct.field("allele").list.max() > 0
    numbers = [pl.col("flag"), pl.col("mapq"), pl.col("pos")]
    info = pl.col("info").struct
    return {
        "reads": (lambda: table(reads()), numbers),
        "region": (region, numbers),
        "filtered_reads": (filtered_reads, [pl.col("pos")]),
        "reads_by_flags": (lambda: table(reads("flag")).group_by("flag").agg(pl.len()), [pl.col("flag"), pl.col("len")]),
        "variants": (lambda: table(variants()), [pl.col("pos"), info.field("DP"), info.field("MQ")]),
        "filtered_variants": (filtered_variants, [pl.col("pos")]),
        "genotypes": (lambda: table(genotypes("GT", "DP", "GQ")), [values("GT").list.len(), values("DP").list.sum(), values("GQ").list.sum()]),
        "carriers": (lambda: carriers(genotypes_by_sample(), carries), [pl.col("carried")]),
    }


if __name__ == "__main__":
    workloads = {"polars-bio": polars_bio_workloads, "oxbow": oxbow_workloads}[sys.argv[1]]
    job_loop.run_jobs(to_jobs(workloads(*sys.argv[2:])))
