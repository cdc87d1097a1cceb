"""Rows of a query for TensorFlow: a `tf.data.Dataset` of batches, divided among workers, shuffled by blocks, prefetched.

::

    import godwit.tensorflow

    dataset = godwit.tensorflow.dataset(session.table("features", parts=32), rows=1024, shuffle=True)
    model.fit(dataset.map(lambda batch: (batch["depth"], batch["label"])))
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from . import _training
from ._query import Query
from ._query_parts import QueryParts
from .pileups import CHANNELS, Pileups


def dataset(
    query: Query,
    *,
    rows: int = 1024,
    shuffle: bool = False,
    seed: int = 0,
    mixed_blocks: int = 8,
    prefetch: int = 2,
    worker: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Returns batches of a query's rows as tensors by name: numbers, with NaN for a null, and fixed-size lists as rows of a matrix.

    With ``shuffle``, each iteration is an epoch with its own order.

    Args:
        query: Rows and columns; its ``parts=`` are divided among the workers.
        rows: Rows of a batch; the last may be smaller.
        shuffle: Whether each epoch has another order of parts, and rows of several blocks are mixed.
        seed: Seed of the order.
        mixed_blocks: Number of consecutive blocks of rows that are mixed.
        prefetch: Number of parts that are fetched concurrently, and of prefetched batches.
        worker: Number of this worker, from 0, and number of workers.
    """
    parts = QueryParts(query)
    epochs = itertools.count()

    def batches() -> Iterator[dict[str, Any]]:
        shuffle_seed = (seed, next(epochs)) if shuffle else None
        which = _training.parts_of_worker(len(parts), *worker, shuffle_seed)
        for batch in _training.batches(parts, which, rows, shuffle_seed, mixed_blocks, prefetch):
            yield _training.to_arrays(batch)

    # An empty batch determines the types; columns that are not numeric are rejected here.
    empty = _training.to_arrays(_training.empty_batch(parts.schema))
    signature = {name: tf.TensorSpec((None, *array.shape[1:]), tf.as_dtype(array.dtype)) for name, array in empty.items()}
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(max(1, prefetch))


def pileups(of: Pileups, *, worker: tuple[int, int] = (0, 1), prefetch: int = 2) -> tf.data.Dataset:
    """Returns the blocks of `godwit.pileups.Pileups` as tensors."""

    def blocks() -> Iterator[dict[str, Any]]:
        yield from of.blocks(_training.parts_of_worker(len(of), *worker, None))

    signature = {"pileup": tf.TensorSpec((None, len(CHANNELS), of.depth, of.width), tf.uint8)}
    signature |= {name: tf.TensorSpec((None,), tf.as_dtype(kind)) for name, kind in of.kinds.items()}
    return tf.data.Dataset.from_generator(blocks, output_signature=signature).prefetch(max(1, prefetch))
