"""Makes a table of numbers and a model trained on similar data: make_scoring_data.py ROWS FEATURES TABLE.parquet MODEL.ubj."""

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost

SEED = 20261123
TRAINING_ROWS = 50_000


def random_rows(draw: np.random.Generator, rows: int, features: int) -> tuple[Any, Any]:
    """Returns random numbers, and labels by a rule that the trees have to learn."""
    matrix = draw.normal(size=(rows, features))
    holds = matrix[:, 0] * matrix[:, 1] + np.sin(3 * matrix[:, 2]) + matrix[:, 3:8].sum(axis=1) / 2 + draw.normal(size=rows) / 2 > 0
    return matrix, holds


if __name__ == "__main__":
    rows, features, table, model = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    rng = np.random.default_rng(SEED)
    names = [f"feature_{at}" for at in range(features)]
    matrix, labels = random_rows(rng, TRAINING_ROWS, features)
    training = xgboost.DMatrix(matrix, labels, feature_names=names)
    booster = xgboost.train({"objective": "binary:logistic", "max_depth": 6, "eta": 0.1, "seed": SEED}, training, num_boost_round=100)
    booster.save_model(model)
    matrix, _ = random_rows(rng, rows, features)
    pq.write_table(pa.table({name: matrix[:, at] for at, name in enumerate(names)}), table)
