#!/bin/sh
# Downloads GATK 4.6.2.0 and the dependencies of its short-variant tools into the cache (420 MB), and prints the directory. kryo-5
# is dropped: it has classes of the same names as kryo-shaded, which GATK uses.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../fetch-jars.sh" gatk-4.6.2.0 gatk-4.6.2.0.jar kryo-5.0.0-RC9.jar <"$here/pom.xml"
