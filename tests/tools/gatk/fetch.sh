#!/bin/sh
# Puts GATK 4.6.2.0 and what its short-variant tools need into the cache (420 MB), and prints the directory. kryo-5 has classes
# of the same names as kryo-shaded, which GATK means.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../fetch-jars.sh" gatk-4.6.2.0 gatk-4.6.2.0.jar kryo-5.0.0-RC9.jar <"$here/pom.xml"
