"""The version of the package."""

import importlib.metadata
import re
from pathlib import Path


def find_version() -> str:
    """Returns the version of the checkout that contains the package, or of the installed package."""
    manifest = Path(__file__).resolve().parents[3] / "Cargo.toml"
    found = re.search(r'^version = "(.+)"$', manifest.read_text(), re.MULTILINE) if manifest.is_file() else None
    return found[1] if found else importlib.metadata.version("godwit")
