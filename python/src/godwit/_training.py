"""Rows for training: shares of workers, shuffled blocks, batches of one size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._errors import UsageError
from ._parts import Parts


def share(count: int, worker: int, workers: int, shuffle: tuple[int, int] | None) -> list[int]:
    """Which of so many parts a worker has, in which order. Workers that agree on seed and epoch have each part once between them."""
    order = np.arange(count) if shuffle is None else np.random.default_rng(shuffle).permutation(count)
    return [int(at) for at in order[worker::workers]]


def batches(
    parts: Parts, which: Sequence[int], rows: int, shuffle: tuple[int, int] | None, mixed_blocks: int, prefetch: int
) -> Iterator[pa.RecordBatch]:
    """Rows of parts in batches of one size, the last one smaller.

    Shuffled rows are those of so many blocks, as they come over the network, mixed; the rows of a block that is read are near each other,
    and which blocks meet hangs on the order of the parts.
    """
    draw = np.random.default_rng((*shuffle, *which[:1])) if shuffle is not None else None
    waiting: list[pa.RecordBatch] = []
    blocks = 0

    def cut(everything: bool) -> Iterator[pa.RecordBatch]:
        nonlocal waiting, blocks
        table = pa.Table.from_batches(waiting, parts.schema)
        if draw is not None:
            table = table.take(draw.permutation(table.num_rows))
        whole = table.num_rows if everything else table.num_rows - table.num_rows % rows
        for at in range(0, whole, rows):
            yield _one(table.slice(at, rows))
        rest = table.slice(whole)
        waiting, blocks = ([_one(rest)] if rest.num_rows else []), 0

    for batch in parts.fetch_all(which, max(1, prefetch)):
        if batch.num_rows:
            waiting.append(batch)
            blocks += 1
        if blocks >= (mixed_blocks if draw is not None else 1):
            yield from cut(everything=False)
    if waiting:
        yield from cut(everything=True)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def _one(table: pa.Table) -> pa.RecordBatch:
    found: pa.RecordBatch = table.combine_chunks().to_batches()[0]
    return found


def numbers(batch: pa.RecordBatch) -> dict[str, npt.NDArray[np.generic]]:
    """The columns as arrays: numbers, and lists of one length as rows of a matrix.

    A null is NaN; whole numbers of a column that may have nulls are floats, in every batch.
    """
    return {field.name: _array(field.name, column, field.nullable) for field, column in zip(batch.schema, batch.columns, strict=True)}


def _array(name: str, column: pa.Array, nullable: bool) -> npt.NDArray[np.generic]:
    kind = column.type
    if pa.types.is_fixed_size_list(kind) and not column.null_count:
        flat = _array(name, column.flatten(), kind.value_field.nullable)
        return flat.reshape(len(column), kind.list_size)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.float32() if nullable else pa.uint8())
    elif pa.types.is_integer(kind) and nullable:
        column = column.cast(pa.float32() if kind.bit_width <= 16 else pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise UsageError(f"column {name} is {kind}, and not a number; leave it out with columns=, or make numbers of it with transform=")
    found: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    # Arrays of Arrow are not to be written to, which frameworks warn of.
    return found if found.flags.writeable else found.copy()
