#!/bin/sh
# Puts ADAM 1.0 and its Spark into the cache and prints the directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../../../tests/tools/fetch-jars.sh" adam-1.0 adam-cli-spark3_2.12-1.0.jar <"$here/pom.xml"
