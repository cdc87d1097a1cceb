"""Reads a dataset of a pool by the Python client, batch by batch: pool_rows.py POOL.toml DATASET.

Writes the digest of each batch's rows on its own line.
"""

import hashlib
import logging
import sys

import godwit

logging.basicConfig(format="%(message)s")
with godwit.connect("godwit+pool://storage", pool=sys.argv[1], wait=60) as session:
    for batch in session.table(sys.argv[2]):
        text = repr([column.to_pylist() for column in batch.slice(0, 200).columns])
        print(batch.num_rows, hashlib.sha256(text.encode()).hexdigest(), flush=True)
