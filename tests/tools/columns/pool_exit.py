"""Reads rows from a pool and exits while the health check runs: pool_exit.py POOL.toml [close]. Without "close", the session stays open."""

import sys

import godwit
from godwit import _pool

# The thread of the health check is in a call at every moment of the shutdown.
_pool.HEALTH_CHECK_INTERVAL_S = 0

session = godwit.connect("godwit+pool://storage", pool=sys.argv[1], wait=120)
print(session.table("a.bed").to_arrow().num_rows, "rows")
if sys.argv[2:] == ["close"]:
    session.close()
