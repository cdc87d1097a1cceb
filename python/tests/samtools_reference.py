"""Expected results by samtools for the run in GODWIT_TEST_RUN."""

import os
import subprocess
from pathlib import Path

RUN = Path(os.environ["GODWIT_TEST_RUN"])


def samtools(*args, verb="view"):
    """Returns the lines of `samtools view`, or of another command."""
    return subprocess.run(["samtools", verb, *args], check=True, capture_output=True, text=True).stdout.splitlines()
