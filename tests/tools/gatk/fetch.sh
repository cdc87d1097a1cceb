#!/bin/sh
# Puts GATK 4.6.2.0 and the jars that its short-variant tools need into the cache (420 MB), and prints the directory. Does
# nothing when they are there. Needs mvn and a way to a Maven repository, once. The directory appears only when it is whole.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/godwit"
final="$cache/gatk-4.6.2.0"

if [ -f "$final/gatk-4.6.2.0.jar" ]; then
    echo "$final"
    exit 0
fi
command -v mvn >/dev/null || { echo "fetch.sh: mvn is not installed; install Maven and run this again" >&2; exit 4; }

mkdir -p "$cache"
aside=$(mktemp -d "$cache/.gatk-4.6.2.0.XXXXXX")
trap 'rm -rf "$aside"' EXIT INT TERM
mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$aside/jars" >&2
[ -f "$aside/jars/gatk-4.6.2.0.jar" ] || { echo "fetch.sh: Maven finished without gatk-4.6.2.0.jar" >&2; exit 5; }
# It has classes of the same names as kryo-shaded, which GATK means.
rm -f "$aside/jars/kryo-5.0.0-RC9.jar"
# Somebody else may have been quicker; -T makes the rename fail instead of moving into their directory.
mv -T "$aside/jars" "$final" 2>/dev/null || [ -f "$final/gatk-4.6.2.0.jar" ]
echo "$final"
