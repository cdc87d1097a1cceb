"""Rows of a query for PyTorch: iterable datasets, shared among workers and ranks, shuffled by blocks, fetched ahead.

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
from ._parts import Parts
from ._query import Query
from .pileups import Pileups

Transform = Callable[[pa.RecordBatch], Any]


def tensors(batch: pa.RecordBatch) -> dict[str, torch.Tensor]:
    """The columns of a batch by name: numbers, where a null is NaN, and lists of one length as rows of a matrix."""
    return {name: _tensor(array) for name, array in _training.numbers(batch).items()}


def _tensor(array: Any) -> torch.Tensor:
    # Some operations have no numbers of 16 and more bits without a sign.
    wider = {np.dtype("u2"): "i4", np.dtype("u4"): "i8", np.dtype("u8"): "i8"}.get(array.dtype)
    return torch.from_numpy(array.astype(wider) if wider else array)


class _Shared(IterableDataset[Any]):  # type: ignore[misc]
    """What is shared among the workers of a loader and the ranks of a group."""

    def __init__(self, shuffle: bool, seed: int):
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch: with ``shuffle``, each has another order. A loader's workers learn of it when they are started anew."""
        self._epoch = epoch

    @property
    def _drawn_by(self) -> tuple[int, int] | None:
        return (self._seed, self._epoch) if self._shuffle else None

    @staticmethod
    def _place() -> tuple[int, int]:
        """Which worker this is, and of how many, over all ranks."""
        rank, ranks = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        worker = get_worker_info()
        return (rank, ranks) if worker is None else (rank * worker.num_workers + worker.id, ranks * worker.num_workers)

    def loader(self, workers: int = 0, **options: Any) -> DataLoader[Any]:
        """A loader whose workers are started so that they can have connections of their own; ``options`` are those of `DataLoader`."""
        if workers:
            options.setdefault("multiprocessing_context", "spawn")
        return DataLoader(self, batch_size=None, num_workers=workers, **options)


class Dataset(_Shared):
    """Batches of a query's rows as tensors by name.

    Each worker of a loader, on each rank, has some of the parts of the query (``parts=`` says how many there are), all of them together each row
    once. Those that are more than there are parts have nothing.

    Args:
        query: Which rows and columns. Its parts are those of now: a dataset that changes meanwhile is refused by the server.
        rows: Of a batch.
        shuffle: Whether parts come in another order each epoch, and rows of several blocks are mixed.
        seed: Of the order.
        mixed_blocks: How many blocks of rows, as they come over the network, are mixed.
        prefetch: Parts that are fetched at a time, each a few blocks ahead.
        transform: Makes what is given of a batch of pyarrow; `tensors` where nothing is said.
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
        self._parts = Parts(query)
        self._rows = rows
        self._mixed_blocks = mixed_blocks
        self._prefetch = prefetch
        self._transform = transform

    def __iter__(self) -> Iterator[Any]:
        which = _training.share(len(self._parts), *self._place(), self._drawn_by)
        for batch in _training.batches(self._parts, which, self._rows, self._drawn_by, self._mixed_blocks, self._prefetch):
            yield self._transform(batch)


class PileupDataset(_Shared):
    """Pileups of reads around candidates, as `godwit.pileups.Pileups` gives them, with tensors; each worker has some of the blocks."""

    def __init__(self, pileups: Pileups, *, shuffle: bool = False, seed: int = 0):
        super().__init__(shuffle, seed)
        self._pileups = pileups

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        which = _training.share(len(self._pileups), *self._place(), self._drawn_by)
        for block in self._pileups.blocks(which):
            yield {name: _tensor(array) for name, array in block.items()}
