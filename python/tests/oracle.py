"""What samtools finds in the run that the tests look at, GODWIT_TEST_RUN."""

import os
import subprocess
from pathlib import Path

RUN = Path(os.environ["GODWIT_TEST_RUN"])


def samtools(*words, verb="view"):
    """Lines of `samtools view`, or of another verb."""
    return subprocess.run(["samtools", verb, *words], check=True, capture_output=True, text=True).stdout.splitlines()
