"""The Python package as a notebook has it: package.py WHERE DATASET [TOKEN CA.pem]. WHERE is a directory, or the address of a server.

Jobs: `rows`, those of the dataset or of a region (contig, start and end, 0-based and half-open), with the columns given, as an Arrow table; `process`,
that of the server which the session started; `close`, which ends it: this program ends without cleaning up.
"""

import sys

import _loop

import godwit


def jobs(where, name, token=None, authority=None):
    session = godwit.connect(where, token=token, ca=authority) if "://" in where else godwit.open(where)

    def rows(columns, region=None):
        text = None if region is None else f"{region[0]}:{region[1] + 1}-{region[2]}"
        # One stream for a region: it is small.
        table = session.reads(name, region=text, columns=columns, parts=None if region is None else 1).to_arrow()
        return {"rows": table.num_rows}

    def close():
        session.close()
        return {}

    return {"rows": rows, "process": lambda: {"process": session._server and session._server._child.pid}, "close": close}


if __name__ == "__main__":
    _loop.serve(jobs(*sys.argv[1:]))
