"""What samtools finds in the run that the tests look at, GODWIT_TEST_RUN."""

import os
import subprocess
from pathlib import Path

RUN = Path(os.environ["GODWIT_TEST_RUN"])


def samtools(*words):
    """Lines of `samtools view`."""
    return subprocess.run(["samtools", "view", *words], check=True, capture_output=True, text=True).stdout.splitlines()
