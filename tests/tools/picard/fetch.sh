#!/bin/sh
# Downloads Picard 3.4.0 into the cache and prints its directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../fetch-jars.sh" picard-3.4.0 picard-3.4.0.jar <"$here/pom.xml"
