#!/usr/bin/env bash
# Prints the path of a Python with the packages of a requirements file; installs them first if they are missing.
#
#   tools/python-packages.sh NAME REQUIREMENTS.txt
set -euo pipefail

name=${1:?usage: python-packages.sh NAME REQUIREMENTS.txt}
requirements=${2:?usage: python-packages.sh NAME REQUIREMENTS.txt}
version=$(sha256sum "$requirements" | cut -c 1-12)
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/$name-$version

if [ ! -x "$home/bin/python" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    python3 -m venv "$aside" >&2
    "$aside/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2
    # The first of two processes wins; both have made the same. Scripts in bin/ contain the old path and are not used.
    mv -T "$aside" "$home" 2>/dev/null || [ -x "$home/bin/python" ]
    trap - EXIT
    rm -rf "$aside"
fi
echo "$home/bin/python"
