"""Rows for training: parts of each worker, shuffled blocks, batches of equal size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._errors import UsageError
from ._query_parts import QueryParts


def parts_of_worker(count: int, worker: int, workers: int, shuffle: tuple[int, int] | None) -> list[int]:
    """Returns the numbers of the parts of a worker, in order. Workers with the same seed and epoch have each part exactly once together."""
    order = np.arange(count) if shuffle is None else np.random.default_rng(shuffle).permutation(count)
    return [int(at) for at in order[worker::workers]]


def batches(
    parts: QueryParts, which: Sequence[int], rows: int, shuffle: tuple[int, int] | None, mixed_blocks: int, prefetch: int
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of parts in batches of equal size; the last batch may be smaller.

    With ``shuffle``, the rows of ``mixed_blocks`` consecutive blocks are mixed. Rows of one block are close to each other in the dataset;
    the order of the parts decides which blocks are mixed.
    """
    generator = np.random.default_rng((*shuffle, *which[:1])) if shuffle is not None else None
    pending: list[pa.RecordBatch] = []
    blocks = 0

    def emit_batches(flush: bool) -> Iterator[pa.RecordBatch]:
        nonlocal pending, blocks
        table = pa.Table.from_batches(pending, parts.schema)
        if generator is not None:
            table = table.take(generator.permutation(table.num_rows))
        whole = table.num_rows if flush else table.num_rows - table.num_rows % rows
        for at in range(0, whole, rows):
            yield _single_batch(table.slice(at, rows))
        rest = table.slice(whole)
        pending, blocks = ([_single_batch(rest)] if rest.num_rows else []), 0

    for batch in parts.read_parts(which, max(1, prefetch)):
        if batch.num_rows:
            pending.append(batch)
            blocks += 1
        if blocks >= (mixed_blocks if generator is not None else 1):
            yield from emit_batches(flush=False)
    if pending:
        yield from emit_batches(flush=True)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Returns a batch without rows."""
    return pa.record_batch([pa.array([], field.type) for field in schema], schema=schema)


def _single_batch(table: pa.Table) -> pa.RecordBatch:
    result: pa.RecordBatch = table.combine_chunks().to_batches()[0]
    return result


def to_arrays(batch: pa.RecordBatch) -> dict[str, npt.NDArray[np.generic]]:
    """Returns the columns as arrays: numbers, and fixed-size lists as rows of a matrix.

    A null becomes NaN; integers of a nullable column become floats, in every batch.
    """
    return {field.name: _to_array(field.name, column, field.nullable) for field, column in zip(batch.schema, batch.columns, strict=True)}


def _to_array(name: str, column: pa.Array, nullable: bool) -> npt.NDArray[np.generic]:
    kind = column.type
    if pa.types.is_fixed_size_list(kind) and not column.null_count:
        flat = _to_array(name, column.flatten(), kind.value_field.nullable)
        return flat.reshape(len(column), kind.list_size)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.float32() if nullable else pa.uint8())
    elif pa.types.is_integer(kind) and nullable:
        column = column.cast(pa.float32() if kind.bit_width <= 16 else pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise UsageError(f"column {name} is {kind}, which is not numeric; omit it with columns=, or convert it with transform=")
    result: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    # Arrays of Arrow are read-only, and frameworks warn about that.
    return result if result.flags.writeable else result.copy()
