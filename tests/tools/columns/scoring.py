"""Runs a scoring service with functions until stdin is closed; prints its address. Argument: `end`, to exit the process at the third batch of
many rows, or nothing.

`sum` adds a and ten times b; `unnamed` has no feature names; `pair` returns two scores.
"""

import os
import sys

import numpy as np

from godwit import scoring

batches_scored = 0


def weighted_sum(matrix):
    global batches_scored
    batches_scored += len(matrix) > 1_000
    if batches_scored == 3 and "end" in sys.argv:
        os._exit(7)
    return matrix[:, 0] + 10 * matrix[:, 1]


positional_model = scoring.Function(weighted_sum, ["f0", "f1"])
positional_model.by_position = True
models = {
    "sum": {"1": scoring.Function(lambda matrix: -weighted_sum(matrix), ["a", "b"]), "2": scoring.Function(weighted_sum, ["a", "b"])},
    "unnamed": positional_model,
    "pair": scoring.Function(lambda matrix: np.column_stack([weighted_sum(matrix), matrix[:, 0]]), ["a", "b"], ["score", "first"]),
    "quality": scoring.Function(lambda matrix: matrix[:, 0] / 2, ["quality"]),
}
with scoring.serve(models, "127.0.0.1:0", token=os.environ.get("SCORING_TOKEN")) as service:
    print(service.url, flush=True)
    sys.stdin.read()
