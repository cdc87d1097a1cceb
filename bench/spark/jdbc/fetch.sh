#!/bin/sh
# Puts PostgreSQL's JDBC driver into the cache and prints its directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../../../tests/tools/fetch-jars.sh" postgresql-jdbc-42.7.8 postgresql-42.7.8.jar <"$here/pom.xml"
