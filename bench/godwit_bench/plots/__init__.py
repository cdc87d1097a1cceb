"""Plots of results, in the style of the published figures."""

from pathlib import Path

from godwit_bench import harness


def draw_plots(interpreter: str, result: Path) -> None:
    """Draws the plots of a result into the directory of the result, by a Python with matplotlib."""
    harness.run_checked([interpreter, Path(__file__).with_name("figures.py"), result])
