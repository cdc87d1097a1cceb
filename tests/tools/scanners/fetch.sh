#!/usr/bin/env bash
# Prints the path of h2spec; builds it first where it is missing, with the Go on PATH.
set -euo pipefail

# The newest version that modules have: those after it carry no /v2 in their name, which Go asks for.
version=2.2.1+incompatible
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/h2spec-2.2.1

if [ ! -x "$home/h2spec" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    mkdir "$aside/module" "$aside/bin"
    # It names no versions of what it is built on, so it is built as part of a module that may.
    (
        cd "$aside/module"
        go mod init scanners
        go get "github.com/summerwind/h2spec@v$version"
        GOBIN=$aside/bin go install -mod=mod github.com/summerwind/h2spec/cmd/h2spec
    ) >&2
    # Whoever comes first wins; both have made the same.
    mv -T "$aside/bin" "$home" 2>/dev/null || [ -x "$home/h2spec" ]
fi
echo "$home/h2spec"
