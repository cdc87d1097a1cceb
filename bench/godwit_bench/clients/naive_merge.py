"""A partitioned search with a naive merge: one search per range of the database, and one master that merges all results.

    naive_merge.py PROGRAM DB QUERY OUT FORMAT TARGETS WORKERS SECONDS

Alias files define the ranges, the searches run in parallel, and the master merges their rows by e-value and bit score. The output may
differ from that of one pass; only the time is measured. SECONDS is a JSON file that receives the time of the searches and of the master.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def count_sequences(db: str, kind: str) -> int:
    information = subprocess.run(["blastdbcmd", "-db", db, "-dbtype", kind, "-info"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"([\d,]+) sequences", information)
    if found is None:
        sys.exit(f"blastdbcmd reports no number of sequences of {db}")
    return int(found[1].replace(",", ""))


def search(program: str, db: str, query: str, targets: str, fields: str, place: str, first: int, last: int) -> str:
    kind = "pal" if program in ("blastp", "blastx") else "nal"
    Path(f"{place}.{kind}").write_text(f'TITLE range\nDBLIST "{Path(db).absolute()}"\nFIRST_OID {first}\nLAST_OID {last}\n')
    args = [program, "-db", place, "-query", query, "-outfmt", fields, "-max_target_seqs", targets, "-out", f"{place}.rows"]
    subprocess.run(args, check=True, env=dict(os.environ, BLAST_USAGE_REPORT="false"))
    return f"{place}.rows"


def merge_tables(tables: list[str], targets: str, out: str) -> None:
    """Merges the rows of all ranges, by query in the order of the first table that contains it."""
    queries: dict[str, dict[str, list[tuple[float, float, str]]]] = {}
    for table in tables:
        with Path(table).open() as rows:
            for row in rows:
                query, subject, *fields = row.split("\t")
                queries.setdefault(query, {}).setdefault(subject, []).append((float(fields[8]), -float(fields[9].split()[0]), row))
    with Path(out).open("w") as to:
        for subjects in queries.values():
            for hits in sorted(subjects.values(), key=lambda hits: hits[0][:2])[: int(targets)]:
                to.writelines(row for _, _, row in hits)


def main() -> None:
    program, db, query, out, fields, targets, count_of_workers, seconds = sys.argv[1:]
    count, workers = count_sequences(db, "prot" if program in ("blastp", "blastx") else "nucl"), int(count_of_workers)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(workers) as pool:
        cuts = [count * part // workers for part in range(workers + 1)]
        runs = [
            pool.submit(search, program, db, query, targets, fields, f"{scratch}/{part}", cuts[part] + 1, cuts[part + 1]) for part in range(workers)
        ]
        tables = [run.result() for run in runs]
        searched = time.monotonic()
        merge_tables(tables, targets, out)
    Path(seconds).write_text(json.dumps({"runs_s": searched - begun, "master_s": time.monotonic() - searched}))


if __name__ == "__main__":
    main()
