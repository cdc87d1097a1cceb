#!/usr/bin/env bash
# Prints the Python that has the readers of columns in requirements.txt; installs them first where they are missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(sha256sum "$here/requirements.txt" | cut -c 1-12)
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/columns-$version

if [ ! -x "$home/bin/python" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    python3 -m venv "$aside" >&2
    "$aside/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
    # Whoever comes first wins; both have made the same. Scripts in bin/ name the old place and are not used.
    mv -T "$aside" "$home" 2>/dev/null || [ -x "$home/bin/python" ]
    trap - EXIT
    rm -rf "$aside"
fi
echo "$home/bin/python"
