"""Pileups of reads around candidates as tensors, from a server: the input of a network that classifies variants.

::

    pileups = godwit.pileups.Pileups(session, "S", candidates, width=101, depth=64)
    for block in pileups:
        block["pileup"]  # uint8, candidates x channels x depth x width
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._errors import UsageError
from ._flight_client import Connection, format_region, to_batch_reader

if TYPE_CHECKING:
    from ._session import Session

CHANNELS = ("base", "quality", "mapping_quality", "strand", "inserted")
# Codes of bases; 0 means that there is no read.
A, C, G, T, N, DELETED = range(1, 7)
FORWARD, REVERSE = 1, 2
# Unmapped, secondary, QC-failed, duplicate: the flags that `samtools mpileup` excludes.
LEFT_OUT = 0x4 | 0x100 | 0x200 | 0x400

_BASE_CODES = np.full(256, N, np.uint8)
for _letter, _code in zip(b"ACGTacgt", (A, C, G, T) * 2, strict=True):
    _BASE_CODES[_letter] = _code
_CIGAR_PATTERN = re.compile(r"(\d+)([MIDNSHP=X])")
_READ_COLUMNS = ["contig", "position", "end_position", "flags", "mapping_quality", "cigar", "bases", "qualities"]

Array = npt.NDArray[Any]


class Pileups:
    """Pileups of the reads that overlap a window around each candidate, in blocks of candidates.

    A block is a dictionary of arrays. ``pileup``, of unsigned bytes, has the channels of `CHANNELS` for each candidate; a channel has a row for
    each read and a column for each position of the reference, with the candidate in the middle. Reads are in the order of the dataset; of more than
    ``depth`` reads, ``depth`` evenly spaced ones are selected. The other arrays are the numeric columns of the candidates.

    - ``base``: 1 to 4 for A, C, G, T, 5 for other bases, 6 for a deletion; 0 if there is no read, or it skips the position.
    - ``quality``: quality of the base, 0 for a deletion.
    - ``mapping_quality``: that of the read, if it has a base or a deletion there.
    - ``strand``: 1 forward, 2 reverse.
    - ``inserted``: number of bases that the read has between this position and the next, at most 255.

    Holds no connection, so it can be sent to other processes.

    Args:
        session: Session of the server that has the reads.
        reads: Path or name of the dataset of reads.
        candidates: Table with ``contig`` and ``position`` (0-based), and numeric columns such as labels, which are returned; any object with the
            Arrow stream interface.
        width: Number of columns of a pileup, odd.
        depth: Number of rows of a pileup.
        block: Number of candidates of a block, whose reads are requested together.
        left_out: Reads with one of these flags are excluded.
    """

    def __init__(
        self, session: Session, reads: str, candidates: Any, *, width: int = 101, depth: int = 64, block: int = 64, left_out: int = LEFT_OUT
    ):
        if width % 2 == 0 or width < 1 or depth < 1 or block < 1:
            raise UsageError(f"width is an odd number, and depth and block are at least 1, not {width}, {depth} and {block}")
        table = to_batch_reader(candidates).read_all().combine_chunks()
        if missing := {"contig", "position"} - set(table.schema.names):
            raise UsageError(f"the candidates have no column {' and '.join(sorted(missing))}")
        connection = session._connection
        self._credentials = (connection.url, connection.token, connection.ca)
        # Resolved once, because a listing opens every file.
        self._reads = session._find_dataset("reads", reads).name
        self._contigs = table["contig"].to_pylist()
        self._positions = table["position"].to_numpy().astype(np.int64)
        is_number = [pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_boolean(field.type) for field in table.schema]
        self._others = {name: np.array(table[name].to_numpy()) for name, kept in zip(table.schema.names, is_number, strict=True) if kept}
        self.width, self.depth = width, depth
        self._block, self._left_out = block, left_out

    def __len__(self) -> int:
        """Returns the number of blocks."""
        return -(-len(self._contigs) // self._block)

    @property
    def kinds(self) -> dict[str, np.dtype[Any]]:
        """Types of the arrays other than ``pileup``, by name."""
        return {name: values.dtype for name, values in self._others.items()}

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return self.blocks(range(len(self)))

    def blocks(self, which: Sequence[int]) -> Iterator[dict[str, Array]]:
        """Yields blocks by number."""
        from ._session import Session

        with Session(Connection(*self._credentials)) as session:
            for block in which:
                yield self._fill_block(session, slice(block * self._block, (block + 1) * self._block))

    def _fill_block(self, session: Session, rows: slice) -> dict[str, Array]:
        contigs, positions = self._contigs[rows], self._positions[rows]
        half = self.width // 2
        # Regions are 1-based and closed, and start within the contig.
        centers = zip(contigs, positions, strict=True)
        regions = [format_region(contig, max(0, position - half) + 1, position + half + 1) for contig, position in centers]
        reads = _ReadLayout(session.reads(self._reads, region=regions, columns=_READ_COLUMNS, parts=1).to_arrow(), self._left_out)
        pileup = np.zeros((len(contigs), len(CHANNELS), self.depth, self.width), np.uint8)
        for at, (contig, position) in enumerate(zip(contigs, positions, strict=True)):
            reads.fill_pileup(pileup[at], contig, int(position) - half)
        return {"pileup": pileup} | {name: values[rows] for name, values in self._others.items()}


class _ReadLayout:
    """Reads of some regions, in their order. Each read is aligned to the reference when it is first used."""

    def __init__(self, table: pa.Table, left_out: int):
        flags = table["flags"].to_numpy()
        table = table.filter(pa.array((flags & left_out) == 0))
        self._contigs = np.array(table["contig"].to_pylist(), object)
        self._starts = table["position"].to_numpy()
        self._ends = table["end_position"].to_numpy()
        self._reverse = (table["flags"].to_numpy() & 0x10) != 0
        self._mapping_qualities = table["mapping_quality"].to_numpy()
        self._cigars, self._bases, self._qualities = (table[name].combine_chunks() for name in ("cigar", "bases", "qualities"))
        self._aligned: dict[int, tuple[Array, Array, Array]] = {}

    def fill_pileup(self, pileup: Array, contig: str, start: int) -> None:
        """Fills a pileup that starts at ``start``, 0-based. Positions before the contig stay 0."""
        depth, width = pileup.shape[1:]
        inside = np.flatnonzero((self._contigs == contig) & (self._starts < start + width) & (self._ends > start))
        if len(inside) > depth:
            inside = inside[np.linspace(0, len(inside) - 1, depth).round().astype(int)]
        for row, at in enumerate(inside.tolist()):
            aligned = self._aligned.get(at)
            if aligned is None:
                aligned = self._aligned[at] = self._align_to_reference(at)
            bases, qualities, inserted = aligned
            first = int(self._starts[at])
            begin, end = max(first, start), min(first + len(bases), start + width)
            if begin >= end:
                continue
            there, here = slice(begin - first, end - first), slice(begin - start, end - start)
            is_there = bases[there] != 0
            pileup[0, row, here] = bases[there]
            pileup[1, row, here] = qualities[there]
            pileup[2, row, here] = is_there * self._mapping_qualities[at]
            pileup[3, row, here] = is_there * (REVERSE if self._reverse[at] else FORWARD)
            pileup[4, row, here] = inserted[there]

    def _align_to_reference(self, at: int) -> tuple[Array, Array, Array]:
        """Returns base codes, qualities and numbers of inserted bases of a read, for each position of the reference from its start."""
        cigar, bases, qualities = self._cigars[at].as_py(), self._bases[at].as_py(), self._qualities[at].as_py()
        steps = [(int(count), kind) for count, kind in _CIGAR_PATTERN.findall(cigar or "")]
        length = sum(count for count, kind in steps if kind in "MDN=X")
        codes, scores, inserted = np.zeros(length, np.uint8), np.zeros(length, np.uint8), np.zeros(length, np.uint8)
        read = _BASE_CODES[np.frombuffer(bases.encode(), np.uint8)] if bases else None
        scored = np.frombuffer(qualities, np.uint8) if qualities else None
        of_read = of_reference = 0
        for count, kind in steps:
            if kind in "M=X":
                here = slice(of_reference, of_reference + count)
                codes[here] = N if read is None else read[of_read : of_read + count]
                if scored is not None:
                    scores[here] = scored[of_read : of_read + count]
            elif kind == "D":
                codes[of_reference : of_reference + count] = DELETED
            elif kind == "I" and of_reference:
                inserted[of_reference - 1] = min(count, 255)
            of_read += count if kind in "MIS=X" else 0
            of_reference += count if kind in "MDN=X" else 0
        return codes, scores, inserted
