"""Rows of a query as a data frame of Dask: each part that the server offers is a partition, fetched by whichever worker gets it.

::

    import godwit.dask

    frame = godwit.dask.frame(session.reads("S", columns=["contig", "position", "flags"], parts=32))
    frame.groupby("contig").position.mean().compute()

Workers ask the server themselves: of a session that `godwit.open` made, only those of this machine can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas
import pyarrow as pa

from ._parts import Parts
from ._query import Query

if TYPE_CHECKING:
    import dask.dataframe


def frame(query: Query) -> dask.dataframe.DataFrame:
    """The rows of a query as a data frame of Dask; nothing is read yet. As many partitions as ``parts=`` of the query said."""
    import dask.dataframe

    parts = Parts(query)
    meta = _pandas(parts.schema.empty_table())
    return dask.dataframe.from_map(_Fetch(parts), list(range(len(parts))), meta=meta, label="godwit")


class _Fetch:
    def __init__(self, parts: Parts):
        self._parts = parts

    def __call__(self, at: int) -> pandas.DataFrame:
        return _pandas(pa.Table.from_batches(self._parts.fetch(at), self._parts.schema))

    def __dask_tokenize__(self) -> Any:
        # Tickets say what was asked for, and of which state of the file.
        return self._parts._tickets


def _pandas(table: pa.Table) -> pandas.DataFrame:
    """With the types of Arrow, so that numbers with nulls stay numbers, and every partition has the same."""
    return table.replace_schema_metadata(None).to_pandas(types_mapper=pandas.ArrowDtype)
