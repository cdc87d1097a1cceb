"""A service for scoring by functions, for as long as stdin is open; prints where it is. Arguments: what the function does at the third batch
of many rows: nothing, or `end`, with the process.

`sum` adds a and ten times b; `unnamed` does not know what its columns are called; `pair` gives two scores.
"""

import os
import sys

import numpy as np

from godwit import scoring

seen = 0


def weighted(matrix):
    global seen
    seen += len(matrix) > 1_000
    if seen == 3 and "end" in sys.argv:
        os._exit(7)
    return matrix[:, 0] + 10 * matrix[:, 1]


unnamed = scoring.Function(weighted, ["f0", "f1"])
unnamed.by_position = True
models = {
    "sum": {"1": scoring.Function(lambda matrix: -weighted(matrix), ["a", "b"]), "2": scoring.Function(weighted, ["a", "b"])},
    "unnamed": unnamed,
    "pair": scoring.Function(lambda matrix: np.column_stack([weighted(matrix), matrix[:, 0]]), ["a", "b"], ["score", "first"]),
    "quality": scoring.Function(lambda matrix: matrix[:, 0] / 2, ["quality"]),
}
with scoring.serve(models, "127.0.0.1:0", token=os.environ.get("SCORING_TOKEN")) as service:
    print(service.url, flush=True)
    sys.stdin.read()
