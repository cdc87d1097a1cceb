"""Reads around candidates as tensors, straight from a server: what a network that judges variants looks at.

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
from ._flight import Connection, as_reader, region_text

if TYPE_CHECKING:
    from ._session import Session

CHANNELS = ("base", "quality", "mapping_quality", "strand", "inserted")
# Codes of bases; 0 is no read.
A, C, G, T, N, DELETED = range(1, 7)
FORWARD, REVERSE = 1, 2
# Unmapped, secondary, failed, duplicate: what `samtools mpileup` leaves out.
LEFT_OUT = 0x4 | 0x100 | 0x200 | 0x400

_CODES = np.full(256, N, np.uint8)
for _letter, _code in zip(b"ACGTacgt", (A, C, G, T) * 2, strict=True):
    _CODES[_letter] = _code
_CIGAR = re.compile(r"(\d+)([MIDNSHP=X])")
_COLUMNS = ["contig", "position", "end_position", "flags", "mapping_quality", "cigar", "bases", "qualities"]

Array = npt.NDArray[Any]


class Pileups:
    """Pileups of the reads that overlap a window around each candidate, in blocks of candidates.

    A block is a dictionary of arrays: ``pileup``, of unsigned bytes, has for each candidate the channels of `CHANNELS`, each a row for each
    read and a column for each position of the reference, the candidate's own in the middle. Reads stand in their order; where there are more than
    ``depth``, as many are taken, evenly. The other arrays are the columns of numbers of the candidates.

    - ``base``: A, C, G, T, another are 1 to 5, a deleted one 6; 0 where there is no read, or it skips the position.
    - ``quality``: that of the base, 0 where it is deleted.
    - ``mapping_quality``: that of the read, where it has a base or a deletion.
    - ``strand``: 1 forward, 2 reverse.
    - ``inserted``: bases that the read has between this position and the next, at most 255.

    Holds no connection: it can be sent to other processes.

    Args:
        session: Whose server is asked.
        reads: The dataset of reads, by its path or name.
        candidates: A table with ``contig`` and ``position`` (0-based), and numbers such as labels, which are given back; anything with the Arrow
            stream interface.
        width: Columns of a pileup, an odd number.
        depth: Rows of a pileup.
        block: Candidates of a block, whose reads are asked for together.
        left_out: Reads with one of these flags are left out.
    """

    def __init__(
        self, session: Session, reads: str, candidates: Any, *, width: int = 101, depth: int = 64, block: int = 64, left_out: int = LEFT_OUT
    ):
        if width % 2 == 0 or width < 1 or depth < 1 or block < 1:
            raise UsageError(f"width is an odd number, and depth and block are at least 1; not {width}, {depth} and {block}")
        table = as_reader(candidates).read_all().combine_chunks()
        if lacking := {"contig", "position"} - set(table.schema.names):
            raise UsageError(f"the candidates have no column {' and '.join(sorted(lacking))}")
        connection = session._connection
        self._access = (connection.url, connection.token, connection.ca)
        # Looked for once: a listing looks into every file.
        self._reads = session._named("reads", reads).name
        self._contigs = table["contig"].to_pylist()
        self._positions = table["position"].to_numpy().astype(np.int64)
        is_number = [pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_boolean(field.type) for field in table.schema]
        self._others = {name: np.array(table[name].to_numpy()) for name, kept in zip(table.schema.names, is_number, strict=True) if kept}
        self.width, self.depth = width, depth
        self._block, self._left_out = block, left_out

    def __len__(self) -> int:
        """Blocks."""
        return -(-len(self._contigs) // self._block)

    @property
    def kinds(self) -> dict[str, np.dtype[Any]]:
        """Types of the arrays beside the pileups."""
        return {name: values.dtype for name, values in self._others.items()}

    def __iter__(self) -> Iterator[dict[str, Array]]:
        return self.blocks(range(len(self)))

    def blocks(self, which: Sequence[int]) -> Iterator[dict[str, Array]]:
        """Some of the blocks, by their numbers."""
        from ._session import Session

        with Session(Connection(*self._access)) as session:
            for block in which:
                yield self._filled(session, slice(block * self._block, (block + 1) * self._block))

    def _filled(self, session: Session, rows: slice) -> dict[str, Array]:
        contigs, positions = self._contigs[rows], self._positions[rows]
        half = self.width // 2
        # Regions are 1-based and closed, and begin within the contig.
        places = zip(contigs, positions, strict=True)
        regions = [region_text(contig, max(0, position - half) + 1, position + half + 1) for contig, position in places]
        reads = _Reads(session.reads(self._reads, region=regions, columns=_COLUMNS, parts=1).to_arrow(), self._left_out)
        pileup = np.zeros((len(contigs), len(CHANNELS), self.depth, self.width), np.uint8)
        for at, (contig, position) in enumerate(zip(contigs, positions, strict=True)):
            reads.fill(pileup[at], contig, int(position) - half)
        return {"pileup": pileup} | {name: values[rows] for name, values in self._others.items()}


class _Reads:
    """Reads of some regions, in their order, each laid out on the reference when it is first needed."""

    def __init__(self, table: pa.Table, left_out: int):
        flags = table["flags"].to_numpy()
        table = table.filter(pa.array((flags & left_out) == 0))
        self._contigs = np.array(table["contig"].to_pylist(), object)
        self._starts = table["position"].to_numpy()
        self._ends = table["end_position"].to_numpy()
        self._reverse = (table["flags"].to_numpy() & 0x10) != 0
        self._mapping_qualities = table["mapping_quality"].to_numpy()
        self._cigars, self._bases, self._qualities = (table[name].combine_chunks() for name in ("cigar", "bases", "qualities"))
        self._laid: dict[int, tuple[Array, Array, Array]] = {}

    def fill(self, pileup: Array, contig: str, start: int) -> None:
        """A pileup that begins at ``start``, 0-based; before the contig there is nothing."""
        depth, width = pileup.shape[1:]
        inside = np.flatnonzero((self._contigs == contig) & (self._starts < start + width) & (self._ends > start))
        if len(inside) > depth:
            inside = inside[np.linspace(0, len(inside) - 1, depth).round().astype(int)]
        for row, at in enumerate(inside.tolist()):
            laid = self._laid.get(at)
            if laid is None:
                laid = self._laid[at] = self._lay(at)
            bases, qualities, inserted = laid
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

    def _lay(self, at: int) -> tuple[Array, Array, Array]:
        """Codes of bases, qualities and inserted bases of a read, for each position of the reference from its first on."""
        cigar, bases, qualities = self._cigars[at].as_py(), self._bases[at].as_py(), self._qualities[at].as_py()
        steps = [(int(count), kind) for count, kind in _CIGAR.findall(cigar or "")]
        length = sum(count for count, kind in steps if kind in "MDN=X")
        codes, scores, inserted = np.zeros(length, np.uint8), np.zeros(length, np.uint8), np.zeros(length, np.uint8)
        read = _CODES[np.frombuffer(bases.encode(), np.uint8)] if bases else None
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
