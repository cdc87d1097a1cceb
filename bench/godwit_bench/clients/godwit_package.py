"""The Python package as a notebook uses it: godwit_package.py WHERE DATASET [TOKEN CA.pem]. WHERE is a directory, or the address of a server.

Jobs: `rows` reads the dataset or a region (contig, start and end, 0-based and half-open), with the given columns, as an Arrow table; `table` reads
all rows of a dataset of any kind over this number of streams; `process`
returns the process id of the server that the session started; `close` ends the session, because this program exits without cleaning up.
"""

import sys
from typing import Any

import godwit

from godwit_bench.clients import job_loop
from godwit_bench.clients.job_loop import Jobs


def jobs(where: str, name: str, token: str | None = None, authority: str | None = None) -> Jobs:
    session = godwit.connect(where, token=token, ca=authority) if "://" in where else godwit.open(where)

    def rows(columns: list[str] | None, region: list[Any] | None = None) -> dict[str, Any]:
        text = None if region is None else f"{region[0]}:{region[1] + 1}-{region[2]}"
        # A region is small, so one stream is enough.
        table = session.reads(name, region=text, columns=columns, parts=None if region is None else 1).to_arrow()
        return {"rows": table.num_rows}

    def table_rows(parts: int) -> dict[str, Any]:
        return {"rows": session.table(name, parts=parts).to_arrow().num_rows}

    def close() -> dict[str, Any]:
        session.close()
        return {}

    return {"rows": rows, "table": table_rows, "process": lambda: {"process": session._server and session._server._child.pid}, "close": close}


if __name__ == "__main__":
    job_loop.run_jobs(jobs(*sys.argv[1:]))
