#!/usr/bin/env bash
# Prints the path of h2spec; builds it first if it is missing, with the Go on PATH.
set -euo pipefail

# The newest version that is usable as a module: later ones lack the /v2 in their name that Go requires.
version=2.2.1+incompatible
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/h2spec-2.2.1

if [ ! -x "$home/h2spec" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    mkdir "$aside/module" "$aside/bin"
    # It does not pin its dependencies, so it is built as a dependency of a module that does.
    (
        cd "$aside/module"
        go mod init scanners
        go get "github.com/summerwind/h2spec@v$version"
        GOBIN=$aside/bin go install -mod=mod github.com/summerwind/h2spec/cmd/h2spec
    ) >&2
    # The first of two processes wins; both have made the same.
    mv -T "$aside/bin" "$home" 2>/dev/null || [ -x "$home/h2spec" ]
fi
echo "$home/h2spec"
