"""The types of command lines and of measured values."""

from collections.abc import Sequence
from typing import Any, TypeAlias

# A command line; its words are converted to text when it is started.
Command: TypeAlias = Sequence[object]
# The values of one measurement by their names, as they are in the JSON files of `bench/results`. Each benchmark has its own.
Result: TypeAlias = dict[str, Any]
# The measurements of each competitor, one of each round.
Rounds: TypeAlias = dict[str, list[Result]]
# A region of a genome: contig, start and end, 0-based and half-open.
Region: TypeAlias = tuple[str, int, int]
