"""Rows of a query for TensorFlow: a `tf.data.Dataset` of batches, shared among workers, shuffled by blocks, fetched ahead.

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
from ._parts import Parts
from ._query import Query
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
    """Batches of a query's rows as tensors by name; numbers, where a null is NaN, and lists of one length as rows of a matrix.

    Each time it is gone through, with ``shuffle``, is an epoch with an order of its own.

    Args:
        query: Which rows and columns; its ``parts=`` are what workers share.
        rows: Of a batch; the last may be smaller.
        shuffle: Whether parts come in another order each epoch, and rows of several blocks are mixed.
        seed: Of the order.
        mixed_blocks: How many blocks of rows, as they come over the network, are mixed.
        prefetch: Parts that are fetched at a time, and batches that are ready.
        worker: Which this is, and of how many.
    """
    parts = Parts(query)
    epochs = itertools.count()

    def batches() -> Iterator[dict[str, Any]]:
        drawn_by = (seed, next(epochs)) if shuffle else None
        which = _training.share(len(parts), *worker, drawn_by)
        for batch in _training.batches(parts, which, rows, drawn_by, mixed_blocks, prefetch):
            yield _training.numbers(batch)

    # A batch without rows has the types; what is not a number is refused here.
    empty = _training.numbers(_training.empty(parts.schema))
    signature = {name: tf.TensorSpec((None, *array.shape[1:]), tf.as_dtype(array.dtype)) for name, array in empty.items()}
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(max(1, prefetch))


def pileups(of: Pileups, *, worker: tuple[int, int] = (0, 1), prefetch: int = 2) -> tf.data.Dataset:
    """Pileups of reads around candidates, as `godwit.pileups.Pileups` gives them, with tensors."""

    def blocks() -> Iterator[dict[str, Any]]:
        yield from of.blocks(_training.share(len(of), *worker, None))

    signature = {"pileup": tf.TensorSpec((None, len(CHANNELS), of.depth, of.width), tf.uint8)}
    signature |= {name: tf.TensorSpec((None,), tf.as_dtype(kind)) for name, kind in of.kinds.items()}
    return tf.data.Dataset.from_generator(blocks, output_signature=signature).prefetch(max(1, prefetch))
