#!/usr/bin/env bash
# Prints the directory of NCBI's C++ toolkit, headers and shared libraries; installs them first if they are missing.
#
# They are part of the Python package pyncbitk-runtime (190 MB when unpacked), pinned by its version. godwit's build finds
# them there and builds the program godwit-blast, which `godwit search` needs. GODWIT_NCBI_PREFIX selects another toolkit:
# the directory that has its include/ and lib/.
set -euo pipefail

# crates/godwit-search/build.rs has the same version.
version=30.6.0.0
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/ncbi-$version
toolkit=$home/pyncbitk_runtime/ncbi-cxx-toolkit-public

if [ ! -e "$toolkit/lib/libxblast.so" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    python3 -m venv "$aside/venv" >&2
    "$aside/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$aside/runtime" \
        "pyncbitk-runtime==$version" >&2
    rm -rf "$aside/venv"
    # The first of two processes wins; both have downloaded the same.
    mv -T "$aside/runtime" "$home" 2>/dev/null || [ -e "$toolkit/lib/libxblast.so" ]
fi
echo "$toolkit"
