#!/usr/bin/env bash
# Installs the Python programs that benchmarks measure, and prints the Python that has those of databases.txt or readers.txt
# (what reads genomes, which wants an older pyarrow): fetch.sh [databases|readers]. Without a word it installs both.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for name in "${@:-databases readers}"; do
    for one in $name; do
        "$here/../../../tools/python-packages.sh" "bench-$one" "$here/$one.txt"
    done
done
