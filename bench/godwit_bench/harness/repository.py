"""Directories of the source tree, and cargo's target directory."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench"
RESULTS = BENCH / "results"
# The Python package of godwit, which some benchmarks measure.
PYTHON_PACKAGE = ROOT / "python" / "src"


def target_directory() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
