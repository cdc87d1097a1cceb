#!/bin/sh
# Downloads the Arrow Flight SQL JDBC driver into the cache and prints its directory.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../fetch-jars.sh" flight-sql-jdbc-18.3.0 flight-sql-jdbc-driver-18.3.0.jar <"$here/pom.xml"
