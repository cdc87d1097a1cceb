"""The command line of a benchmark: its common options, and its messages."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from godwit_bench.harness.repository import BENCH, RESULTS, target_directory


def program_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of benchmarks that need no reads."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--godwit", type=Path, help="binary to measure (default: built from this source tree with --release)")
    result.add_argument("--results", type=Path, default=RESULTS, help="directory of the result tables (default: bench/results)")
    return result


def base_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of most benchmarks."""
    result = program_parser(description)
    result.add_argument("--pairs", type=int, default=1_000_000, help="read pairs to simulate (default: 1,000,000)")
    result.add_argument("--reference", type=Path, help="FASTA to take reads from (default: 10 Mb, simulated)")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of every tool (default: all cores)")
    result.add_argument("--cache", type=Path, default=target_directory() / "bench", help="directory of test data and scratch files")
    return result


def comma_separated(convert: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Returns a converter of words that are separated by commas, as the `type` of an option."""
    return lambda text: [convert(word) for word in text.split(",")]


def scenario_command(name: str) -> list[str]:
    """Returns the command line that runs a benchmark of `scenarios/`, without its options."""
    return [sys.executable, str(BENCH), name]


def command_line() -> str:
    """Returns the command line of this benchmark without the options that only name local paths."""
    args, skip = [], False
    for word in sys.argv[1:]:
        if not skip and word.partition("=")[0] not in ("--godwit", "--cache", "--results", "--python", "--hot-blocks"):
            args.append(Path(word).name if "/" in word else word)
        skip = not skip and word in ("--godwit", "--cache", "--results", "--python", "--hot-blocks")
    return " ".join(["cargo xtask bench", Path(sys.argv[0]).stem, *args])


def exit_with_error(message: object) -> NoReturn:
    sys.exit(f"bench: error: {message}")


def report_progress(message: str) -> None:
    print(f"bench: {message}", file=sys.stderr)
