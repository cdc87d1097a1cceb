"""Programs that benchmarks start as separate processes, in the Python environments of the files *.txt."""
