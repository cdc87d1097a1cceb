"""Rows of a query as a data frame of Dask: each part that the server offers is a partition, which a worker of Dask fetches.

::

    import godwit.dask

    frame = godwit.dask.frame(session.reads("S", columns=["contig", "position", "flags"], parts=32))
    frame.groupby("contig").position.mean().compute()

Workers connect to the server themselves: only workers on this machine reach the server of a session that `godwit.open` started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas
import pyarrow as pa

from ._query import Query
from ._query_parts import QueryParts

if TYPE_CHECKING:
    import dask.dataframe


def frame(query: Query) -> dask.dataframe.DataFrame:
    """Returns the rows of a query as a data frame of Dask, without reading them yet. The number of partitions is ``parts=`` of the query."""
    import dask.dataframe

    parts = QueryParts(query)
    meta = _to_pandas(parts.schema.empty_table())
    return dask.dataframe.from_map(_PartFetcher(parts), list(range(len(parts))), meta=meta, label="godwit")


class _PartFetcher:
    def __init__(self, parts: QueryParts):
        self._parts = parts

    def __call__(self, at: int) -> pandas.DataFrame:
        return _to_pandas(pa.Table.from_batches(self._parts.read_part(at), self._parts.schema))

    def __dask_tokenize__(self) -> Any:
        # Tickets identify the query and the state of the file.
        return self._parts._tickets


def _to_pandas(table: pa.Table) -> pandas.DataFrame:
    """Converts to pandas with the types of Arrow: columns with nulls keep their type, and all partitions have the same types."""
    return table.replace_schema_metadata(None).to_pandas(types_mapper=pandas.ArrowDtype)
