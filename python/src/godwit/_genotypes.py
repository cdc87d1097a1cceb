"""Genotypes of variants, as rows and as a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ._errors import UsageError
from ._flight_client import Connection
from ._query import Query

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Values of a matrix that are not alleles, as in VCF Zarr.
MISSING_ALLELE = -1
ABSENT_ALLELE = -2
# Number of columns of a VCF file before those of the samples.
COLUMNS_BEFORE_SAMPLES = 9


class Genotypes(Query):
    """A row for each sample of each variant. `to_numpy` returns the same genotypes as a matrix."""

    def __init__(self, connection: Connection, command: bytes, text: str, lists: Query | None, variants: pa.Schema, samples: Sequence[str] | None):
        """``lists``: the column ``genotype_alleles`` of the variants, of which ``variants`` is the schema."""
        super().__init__(connection, command, text, statement=text)
        self._lists = lists
        self._variants = variants
        self._selected = samples

    @property
    def samples(self) -> list[str]:
        """The names of the samples, in the order of the second axis of a matrix.

        Raises:
            UsageError: A sample does not exist, or the names are hidden by the access rules of the server.
        """
        names = self._all_samples()
        if self._selected is None:
            return names
        missing = [sample for sample in self._selected if sample not in names]
        if missing:
            raise UsageError(f"there is no sample {missing[0]!r}; there are {', '.join(names[:20])}")
        return [name for name in names if name in self._selected]

    def to_numpy(self) -> npt.NDArray[np.integer[Any]]:
        """Returns the alleles as an array of shape (variants, samples, ploidy).

        Variants are in the order of the dataset, samples in the order of `samples`. 0 is the reference allele, 1 the first alternate allele; -1 is
        a missing allele, also that of a missing genotype, and -2 fills up genotypes with fewer alleles than the largest one. The type is int8, or
        int16 or int32 if the number of an allele needs it.

        Raises:
            UsageError: The query has `columns` or `where`, or the names of the samples are not known.
        """
        import numpy as np

        if self._lists is None:
            raise UsageError("a matrix has all variants of its regions; leave out columns and where")
        names = self._all_samples()
        indexes = {name: index for index, name in enumerate(names)}
        chosen = [indexes[name] for name in self.samples]
        blocks = [_allele_block(batch.column(0), len(names)) for batch in self._lists.to_batches()]
        if len(chosen) < len(names):
            blocks = [block[:, chosen] for block in blocks]
        ploidy = max((block.shape[2] for block in blocks), default=1)
        blocks = [np.pad(block, ((0, 0), (0, 0), (0, ploidy - block.shape[2])), constant_values=ABSENT_ALLELE) for block in blocks]
        return np.concatenate(blocks) if blocks else np.empty((0, len(chosen), ploidy), dtype=np.int8)

    def _all_samples(self) -> list[str]:
        header = (self._variants.metadata or {}).get(b"vcf.header")
        if header is None:
            raise UsageError("the names of the samples are unknown or hidden; read the rows, with to_arrow()")
        names: list[str] = header.decode().splitlines()[-1].split("\t")[COLUMNS_BEFORE_SAMPLES:]
        return names


def _allele_block(lists: pa.ListArray, samples: int) -> npt.NDArray[np.integer[Any]]:
    """Returns the alleles of a batch, of shape (variants, samples, ploidy); ``lists`` has a list of alleles for each sample of each variant."""
    import numpy as np

    block: npt.NDArray[np.integer[Any]]
    genotypes = lists.flatten()
    counts = pc.fill_null(pc.list_value_length(genotypes), 0).to_numpy(zero_copy_only=False)
    alleles = pc.fill_null(genotypes.flatten(), MISSING_ALLELE).to_numpy(zero_copy_only=False)
    smallest = np.promote_types(np.int8, np.min_scalar_type(-int(alleles.max(initial=1))))
    alleles = alleles.astype(smallest, copy=False)
    ploidy = max(1, int(counts.max(initial=1)))
    if genotypes.null_count == 0 and (counts == ploidy).all():
        block = alleles.reshape(-1, samples, ploidy)
    else:
        flat = np.full((len(counts), ploidy), ABSENT_ALLELE, dtype=smallest)
        flat[np.arange(ploidy) < counts[:, None]] = alleles
        flat[counts == 0, 0] = MISSING_ALLELE
        block = flat.reshape(-1, samples, ploidy)
    if lists.null_count == 0:
        return block
    # Variants without the field GT.
    whole = np.full((len(lists), samples, ploidy), ABSENT_ALLELE, dtype=smallest)
    whole[:, :, 0] = MISSING_ALLELE
    whole[lists.is_valid().to_numpy(zero_copy_only=False)] = block
    return whole
