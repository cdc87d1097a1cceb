"""Options and programs of the search benchmarks."""

import argparse
from pathlib import Path

from godwit_bench.harness.command_line import base_parser, comma_separated
from godwit_bench.harness.programs import first_output_line
from godwit_bench.harness.repository import ROOT


def search_parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of the search benchmarks."""
    parser = base_parser(description)
    parser.add_argument("--db", required=True, help="database, as for -db")
    parser.add_argument("--query", required=True, type=Path)
    parser.add_argument("--program", default="blastp")
    parser.add_argument("--options", default="", help="further options of the program")
    parser.add_argument("--workers", default=[1, 2, 4], type=comma_separated(int), help="workers (default: 1,2,4)")
    parser.add_argument("--rounds", type=int, default=1)
    return parser


def one_pass_program() -> str:
    """Returns NCBI's application on the libraries of the worker; builds it once."""
    return first_output_line([str(ROOT / "tests" / "tools" / "blast" / "build.sh")], "/")
