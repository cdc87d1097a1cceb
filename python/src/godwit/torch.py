"""Rows of a query for PyTorch: iterable datasets, divided among workers and ranks, shuffled by blocks, prefetched.

::

    import godwit.torch

    dataset = godwit.torch.Dataset(session.table("features", parts=32), rows=1024, shuffle=True)
    for batch in dataset.loader(workers=4):
        loss = model(batch["depth"], batch["quality"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from . import _training
from ._query import Query
from ._query_parts import QueryParts
from .pileups import Pileups

Transform = Callable[[pa.RecordBatch], Any]


def tensors(batch: pa.RecordBatch) -> dict[str, torch.Tensor]:
    """Returns the columns of a batch by name: numbers, with NaN for a null, and fixed-size lists as rows of a matrix."""
    return {name: _tensor(array) for name, array in _training.to_arrays(batch).items()}


def _tensor(array: Any) -> torch.Tensor:
    # Some operations do not support unsigned integers of 16 and more bits.
    wider = {np.dtype("u2"): "i4", np.dtype("u4"): "i8", np.dtype("u8"): "i8"}.get(array.dtype)
    return torch.from_numpy(array.astype(wider) if wider else array)


class _ShardedDataset(IterableDataset[Any]):  # type: ignore[misc]
    """A dataset that is divided among the workers of a loader and the ranks of a process group."""

    def __init__(self, shuffle: bool, seed: int):
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch: with ``shuffle``, each epoch has another order. Workers of a loader use it after their next start."""
        self._epoch = epoch

    @property
    def _shuffle_seed(self) -> tuple[int, int] | None:
        return (self._seed, self._epoch) if self._shuffle else None

    @staticmethod
    def _worker_index() -> tuple[int, int]:
        """Returns the number of this worker and the number of workers, over all ranks."""
        rank, ranks = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        worker = get_worker_info()
        return (rank, ranks) if worker is None else (rank * worker.num_workers + worker.id, ranks * worker.num_workers)

    def loader(self, workers: int = 0, **options: Any) -> DataLoader[Any]:
        """Returns a loader whose workers can open connections (started by spawn); ``options`` are those of `DataLoader`."""
        if workers:
            options.setdefault("multiprocessing_context", "spawn")
        return DataLoader(self, batch_size=None, num_workers=workers, **options)


class Dataset(_ShardedDataset):
    """Batches of a query's rows as tensors by name.

    Each worker of a loader, on each rank, reads some of the parts of the query (``parts=`` sets their number); all workers together read each row
    once. Workers beyond the number of parts read nothing.

    Args:
        query: Rows and columns. Its parts are those at construction: if the dataset changes afterwards, the server rejects the read.
        rows: Rows of a batch.
        shuffle: Whether each epoch has another order of parts, and rows of several blocks are mixed.
        seed: Seed of the order.
        mixed_blocks: Number of consecutive blocks of rows that are mixed.
        prefetch: Number of parts that are fetched concurrently, each a few blocks ahead.
        transform: Converts a batch of pyarrow to the item of the dataset (default: `tensors`).
    """

    def __init__(
        self,
        query: Query,
        *,
        rows: int = 1024,
        shuffle: bool = False,
        seed: int = 0,
        mixed_blocks: int = 8,
        prefetch: int = 2,
        transform: Transform = tensors,
    ):
        super().__init__(shuffle, seed)
        self._parts = QueryParts(query)
        self._rows = rows
        self._mixed_blocks = mixed_blocks
        self._prefetch = prefetch
        self._transform = transform

    def __iter__(self) -> Iterator[Any]:
        which = _training.parts_of_worker(len(self._parts), *self._worker_index(), self._shuffle_seed)
        for batch in _training.batches(self._parts, which, self._rows, self._shuffle_seed, self._mixed_blocks, self._prefetch):
            yield self._transform(batch)


class PileupDataset(_ShardedDataset):
    """The blocks of `godwit.pileups.Pileups` as tensors; each worker reads some of the blocks."""

    def __init__(self, pileups: Pileups, *, shuffle: bool = False, seed: int = 0):
        super().__init__(shuffle, seed)
        self._pileups = pileups

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        which = _training.parts_of_worker(len(self._pileups), *self._worker_index(), self._shuffle_seed)
        for block in self._pileups.blocks(which):
            yield {name: _tensor(array) for name, array in block.items()}
