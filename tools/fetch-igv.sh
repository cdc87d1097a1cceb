#!/usr/bin/env bash
# Prints the path of igv.js, the genome browser of the page of `godwit serve`; downloads it first if it is missing.
#
# It is part of the npm package igv (MIT licence), pinned by version and checksum. godwit's build includes it in the program if it
# exists; without it the page has no genome browser.
set -euo pipefail

# crates/godwit-serve/build.rs has the same version.
version=3.8.10
sum=87b991ae2a720978172e269dd5127c495e56df5af31144dff19c83124e2f5744
home=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/igv-$version
registry=${npm_config_registry:-https://registry.npmjs.org}

if [ ! -e "$home/igv.min.js" ]; then
    mkdir -p "$(dirname "$home")"
    aside=$(mktemp -d "$home.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
        "${registry%/}/igv/-/igv-$version.tgz" "$aside/igv.tgz"
    tar -xzf "$aside/igv.tgz" -C "$aside" package/dist/igv.min.js package/LICENSE
    echo "$sum  $aside/package/dist/igv.min.js" | sha256sum --check --quiet >&2
    mv "$aside/package/dist/igv.min.js" "$aside/package/LICENSE" "$aside"
    rm -rf "$aside/package" "$aside/igv.tgz"
    # The first of two processes wins; both have downloaded the same.
    mv -T "$aside" "$home" 2>/dev/null || [ -e "$home/igv.min.js" ]
fi
echo "$home/igv.min.js"
