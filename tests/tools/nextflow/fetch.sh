#!/bin/sh
# Downloads Nextflow 24.10.5 and its dependencies into the cache (60 MB), and prints the directory. The program `nextflow` in it starts
# Nextflow without access to a network.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
jars=$("$here/../fetch-jars.sh" nextflow-24.10.5 nextflow-24.10.5.jar <"$here/pom.xml")
if [ ! -x "$jars/nextflow" ]; then
    aside=$(mktemp "$jars/.nextflow.XXXXXX")
    cat >"$aside" <<'LAUNCHER'
#!/bin/sh
jars=$(cd "$(dirname "$0")" && pwd)
export NXF_OFFLINE=true
exec java -cp "$jars/*" nextflow.cli.Launcher "$@"
LAUNCHER
    chmod 755 "$aside"
    mv "$aside" "$jars/nextflow"
fi
echo "$jars"
