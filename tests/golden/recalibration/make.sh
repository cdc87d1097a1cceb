#!/bin/sh
# Regenerates the expected files with the real tool, GATK 4.6.2.0: the report of BaseRecalibrator, and the records of ApplyBQSR with
# three sets of options. GATK is a directory of its jars; tests/tools/gatk/fetch.sh prints it.
set -eu
cd "$(dirname "$0")"
jars=${GATK:-$(../../tools/gatk/fetch.sh)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
gatk() {
    java -Xmx1500m -XX:+UseSerialGC -cp "$jars/*" org.broadinstitute.hellbender.Main "$@" --verbosity ERROR >"$folder/log" 2>&1 ||
        { cat "$folder/log" >&2; exit 1; }
}
[ "${1:-}" != reads ] || python3 make_reads.py
cp reference.fa known.vcf "$folder"
samtools faidx "$folder/reference.fa"
samtools dict -o "$folder/reference.dict" "$folder/reference.fa"
bgzip "$folder/known.vcf"
tabix -p vcf "$folder/known.vcf.gz"
gatk BaseRecalibrator -R "$folder/reference.fa" -I reads.sam --known-sites "$folder/known.vcf.gz" -O expected.table
gatk BaseRecalibrator -R "$folder/reference.fa" -I reads.sam --known-sites "$folder/known.vcf.gz" -OQ -O "$folder/original.table"
apply() {
    out=$1
    shift
    gatk ApplyBQSR -R "$folder/reference.fa" -I reads.sam "$@" -O "$folder/out.sam"
    # The fields that change, and enough to name the record.
    grep -v '^@' "$folder/out.sam" | cut -f 1,2,11- | sed -E 's/^([^\t]*\t[^\t]*\t[^\t]*).*(\tOQ:Z:[^\t]*).*/\1\2/; t; s/^([^\t]*\t[^\t]*\t[^\t]*).*/\1/' >"$out"
}
apply expected.default.tsv -bqsr expected.table
apply expected.static.tsv -bqsr expected.table --static-quantized-quals 10 --static-quantized-quals 20 --static-quantized-quals 30 \
    --emit-original-quals
apply expected.quantized.tsv -bqsr expected.table --quantize-quals 6
apply expected.original.tsv -bqsr "$folder/original.table" -OQ
