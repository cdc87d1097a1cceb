#!/usr/bin/env bash
# Installs the Python programs that benchmarks measure, and prints the Python that has those of databases.txt or readers.txt
# (what reads genomes, which wants an older pyarrow): fetch.sh [databases|readers]. Without a word it installs both.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

install() {
    local requirements=$here/$1.txt version home aside
    version=$(sha256sum "$requirements" | cut -c 1-12)
    home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/bench-$1-$version
    if [ ! -x "$home/bin/python" ]; then
        mkdir -p "$(dirname "$home")"
        aside=$(mktemp -d "$home.XXXXXX")
        python3 -m venv "$aside" >&2
        "$aside/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2 || {
            rm -rf "$aside"
            return 1
        }
        # Whoever comes first wins; both have made the same. Scripts in bin/ name the old place and are not used.
        mv -T "$aside" "$home" 2>/dev/null || rm -rf "$aside"
    fi
    echo "$home/bin/python"
}

for name in "${@:-databases readers}"; do
    for one in $name; do
        install "$one"
    done
done
