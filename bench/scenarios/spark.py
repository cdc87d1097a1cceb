"""Sorting and duplicate marking in Spark: GATK MarkDuplicatesSpark and ADAM beside godwit and Picard.

In: SAM as bwa writes it, the same file for all. Out, beside time and memory: the bytes that Spark shuffled (its event log), and
the number of primary records whose mark differs from Picard's, the rule that all of them name.
"""

import argparse
import json
import shlex
import shutil
import subprocess
from pathlib import Path

from godwit_bench import harness

ADAM = harness.CACHE / "adam-1.0"
# Packages of Java 17 that Spark 3 accesses by reflection.
PACKAGES = ["lang", "lang.invoke", "io", "net", "nio", "util", "util.concurrent"]
ADD_OPENS_ARGS = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in PACKAGES]
ADD_OPENS_ARGS += [f"--add-opens=java.base/sun.{package}=ALL-UNNAMED" for package in ("nio.ch", "security.action", "util.calendar")]


def competitor_scripts(options: argparse.Namespace, godwit: Path, sam: Path, scratch: Path) -> dict[str, str]:
    """Returns one bash script per competitor; each writes NAME.bam."""
    reads, out, program = (shlex.quote(str(path)) for path in (sam, scratch, godwit))
    java = f"java -Xmx{options.heap} {' '.join(ADD_OPENS_ARGS)}"
    more = max(options.threads - 1, 0)
    return {
        "godwit markdup": f"{program} markdup {reads} --out {out}/godwit.bam --threads {options.threads} --temp {out} --quiet",
        "samtools sort, Picard": f"""
            samtools sort -@ {more} -l 1 -T {out}/t -o {out}/sorted.bam {reads}
            java -Xmx{options.heap} -cp '{harness.PICARD}/*' picard.cmdline.PicardCommandLine MarkDuplicates --VERBOSITY ERROR --QUIET true
              --COMPRESSION_LEVEL 1 --TMP_DIR {out} -I {out}/sorted.bam -O {out}/picard.bam -M {out}/picard.txt""".replace("\n              ", " "),
        "GATK MarkDuplicatesSpark": f"""
            rm -rf {out}/gatk-events {out}/gatk.bam*; mkdir {out}/gatk-events
            {java} -cp '{harness.GATK}/*' org.broadinstitute.hellbender.Main MarkDuplicatesSpark -I {reads} -O {out}/gatk.bam
              --spark-master 'local[{options.threads}]' --tmp-dir {out} --conf spark.eventLog.enabled=true
              --conf spark.eventLog.dir=file://{out}/gatk-events""".replace("\n              ", " "),
        "ADAM": f"""
            rm -rf {out}/adam-events {out}/adam.bam*; mkdir {out}/adam-events; cd {out}
            {java} -cp '{ADAM}/*' -Dspark.master='local[{options.threads}]' -Dspark.app.name=adam -Dspark.local.dir={out}
              -Dspark.serializer=org.apache.spark.serializer.KryoSerializer
              -Dspark.kryo.registrator=org.bdgenomics.adam.serialization.ADAMKryoRegistrator -Dspark.eventLog.enabled=true
              -Dspark.eventLog.dir=file://{out}/adam-events org.bdgenomics.adam.cli.ADAMMain transformAlignments
              {reads} {out}/adam.bam -single -mark_duplicate_reads -sort_by_reference_position""".replace("\n              ", " "),
    }


def shuffled_bytes(folder: Path) -> int:
    """Returns the shuffle bytes that all tasks of an event log wrote."""
    total = 0
    for log in folder.iterdir():
        with log.open() as lines:
            for line in lines:
                metrics = json.loads(line).get("Task Metrics") or {}
                total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total


def duplicate_records(bam: Path) -> set[tuple[bytes, int]]:
    """Returns the primary records with the duplicate flag, as name and read of pair."""
    listing = subprocess.run(["samtools", "view", "-f", "1024", "-F", "2304", bam], check=True, stdout=subprocess.PIPE)
    fields = (line.split(b"\t", 2) for line in listing.stdout.splitlines())
    return {(name, int(flag) & 192) for name, flag, _ in fields}


def main() -> None:
    parser = harness.base_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default: 3)")
    parser.add_argument("--spark-rounds", type=int, default=1, help="rounds of the Java programs (default: 1)")
    parser.add_argument("--heap", default="6g", help="heap of every JVM (default: 6g)")
    options = parser.parse_args()
    harness.require_tools("bwa", "samtools", "java")
    for folder in ("tests/tools/picard", "tests/tools/gatk", "bench/spark/adam"):
        harness.run_checked([harness.ROOT / folder / "fetch.sh"])
    godwit = harness.godwit_binary(options)
    sam = harness.aligned_sam(options, godwit)
    scratch = harness.scratch_directory(options, "spark")
    competitors = competitor_scripts(options, godwit, sam, scratch)
    rounds = {name: options.rounds if "godwit" in name else options.spark_rounds for name in competitors}
    measured = harness.measure_competitors(competitors, rounds, scratch)
    judge = duplicate_records(scratch / "picard.bam")
    remarks = [f"Picard marks {len(judge)} primary records."]
    promises = []
    for name in ("godwit", "gatk", "adam"):
        found = duplicate_records(scratch / f"{name}.bam")
        if name == "godwit":
            promises = [harness.target("records marked otherwise than by Picard", [len(found ^ judge)], at_most=0)]
        remarks.append(f"{name}: {len(found - judge)} primary records are marked by it only, {len(judge - found)} by Picard only.")
    remarks += [
        f"{name}: {shuffled_bytes(scratch / f'{name}-events') / 1e6:.0f} MB shuffled; {sam.stat().st_size / 1e6:.0f} MB of SAM."
        for name in ("gatk", "adam")
    ]
    remarks.append("godwit in one process shuffles nothing; nodes.md has the traffic between its workers.")
    harness.write_comparison(
        "spark", "Sort and mark duplicates, beside Spark", options, godwit, competitors, measured, "godwit markdup", promises, remarks
    )
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
