"""Runs statements with parameters through a pool: pool_parameters.py POOL.toml VARIANTS.vcf.gz, the file to write.

Runs them again after it has read a line from standard input.
"""

import sys

import godwit

with godwit.connect("godwit+pool://storage", pool=sys.argv[1], wait=120) as session:
    for _ in range(2):
        named = session.sql("SELECT name FROM genes WHERE contig = $contig AND name <> $hidden", {"hidden": "C", "contig": "chr2"})
        print(*named.to_arrow()["name"].to_pylist())
        numbered = session.sql("SELECT name FROM genes ORDER BY name LIMIT $1 OFFSET $2", [2, 1])
        print(*(name for batch in numbered for name in batch["name"].to_pylist()))
        variants = session.sql("SELECT * FROM variants('v.vcf') WHERE position >= $1 ORDER BY position", [15])
        variants.write_vcf(sys.argv[2])
        print("in the middle", flush=True)
        sys.stdin.readline()
