#!/bin/sh
# Regenerates expected.md5 with the real tool, bwa-mem2 2.2.1: MD5 sums of the output of `bwa-mem2 index` for each reference here.
set -eu
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for reference in *.fa; do
    cp "$reference" "$folder"
    (cd "$folder" && "${BWA_MEM2:-bwa-mem2}" index "$reference" >log 2>&1) || { cat "$folder/log" >&2; exit 1; }
done
(cd "$folder" && md5sum -- *.bwt.2bit.64) >expected.md5
