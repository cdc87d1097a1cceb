#!/usr/bin/env bash
# Prints the path of the oracle of the search tests (reference.cpp); compiles it first if it is missing or its source has changed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
worker=$root/crates/godwit-search/worker
toolkit=$("$root/tools/fetch-ncbi.sh")
version=$(cat "$here/reference.cpp" "$worker/app_util.hpp" "${BASH_SOURCE[0]}" | sha256sum | cut -c 1-12)
program=${XDG_CACHE_HOME:-$HOME/.cache}/godwit/blast-reference-$version

if [ ! -x "$program" ]; then
    libraries=(xblastformat blast_app_util blastinput xblast seqdb xobjmgr xobjutil xnetblast scoremat seqset seq generalasn xser xutil xncbi)
    aside=$(mktemp "$program.XXXXXX")
    trap 'rm -f "$aside"' EXIT
    c++ -std=gnu++20 -O1 -w -DNDEBUG -D_REENTRANT -isystem "$toolkit/include" -I "$worker" "$here/reference.cpp" -o "$aside" \
        -L "$toolkit/lib" -Wl,-rpath,"$toolkit/lib" -Wl,-rpath-link,"$toolkit/lib" "${libraries[@]/#/-l}" >&2
    mv "$aside" "$program"
    trap - EXIT
fi
echo "$program"
