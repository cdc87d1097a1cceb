#!/bin/sh
# fetch-jars.sh NAME-VERSION MAIN.jar [DROPPED.jar ...] < pom.xml
# Downloads the jars of a pom.xml and their dependencies into the cache as NAME-VERSION, without the dropped ones, and prints
# the directory. Downloads nothing if it exists. Needs mvn and access to a Maven repository, once. The directory appears only
# when it is complete.
set -eu

name=$1
main=$2
shift 2
cache="${XDG_CACHE_HOME:-$HOME/.cache}/godwit"
final="$cache/$name"

if [ -f "$final/$main" ]; then
    echo "$final"
    exit 0
fi
command -v mvn >/dev/null || { echo "fetch-jars.sh: mvn is not installed; install Maven and run this again" >&2; exit 4; }

mkdir -p "$cache"
aside=$(mktemp -d "$cache/.$name.XXXXXX")
trap 'rm -rf "$aside"' EXIT INT TERM
cat >"$aside/pom.xml"
mvn -q -B -f "$aside/pom.xml" dependency:copy-dependencies -DoutputDirectory="$aside/jars" >&2
[ -f "$aside/jars/$main" ] || { echo "fetch-jars.sh: Maven finished without $main" >&2; exit 5; }
for dropped in "$@"; do
    rm -f "$aside/jars/$dropped"
done
# Another process may have been faster; -T makes the rename fail instead of moving into its directory.
mv -T "$aside/jars" "$final" 2>/dev/null || [ -f "$final/$main" ]
echo "$final"
