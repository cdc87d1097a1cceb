#!/bin/sh
# Regenerates expected/ with the real tool, Picard 3.4.0. Charts are not needed: an Rscript that draws nothing precedes that of the system.
set -eu
cd "$(dirname "$0")"
jars=$(../../tools/picard/fetch.sh)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '#!/bin/sh\nexit 0\n' >"$folder/Rscript"
chmod +x "$folder/Rscript"
cp ref.fa "$folder/ref.fa"
samtools faidx "$folder/ref.fa"
picard() {
    tool=$1
    shift
    PATH="$folder:$PATH" java -Dpicard.useLegacyParser=false -cp "$jars/*" picard.cmdline.PicardCommandLine "$tool" --QUIET true --VERBOSITY ERROR "$@" >&2
}
picard CreateSequenceDictionary --REFERENCE "$folder/ref.fa" --OUTPUT "$folder/ref.dict"
collect() {
    tool=$1
    suffix=$2
    shift 2
    picard "$tool" --INPUT reads.bam --OUTPUT "expected/reads.$suffix" --REFERENCE_SEQUENCE "$folder/ref.fa" "$@"
}
mkdir -p expected
chart="$folder/chart.pdf"
collect CollectAlignmentSummaryMetrics alignment_summary_metrics
collect CollectInsertSizeMetrics insert_size_metrics --Histogram_FILE "$chart"
collect MeanQualityByCycle quality_by_cycle_metrics --CHART_OUTPUT "$chart"
collect QualityScoreDistribution quality_distribution_metrics --CHART_OUTPUT "$chart"
collect CollectBaseDistributionByCycle base_distribution_by_cycle_metrics --CHART_OUTPUT "$chart"
collect CollectGcBiasMetrics gc_bias.detail_metrics --SUMMARY_OUTPUT expected/reads.gc_bias.summary_metrics --CHART_OUTPUT "$chart"
collect CollectWgsMetrics wgs_metrics
collect CollectOxoGMetrics oxog_metrics
collect CollectHsMetrics hs_metrics --TARGET_INTERVALS targets.interval_list --BAIT_INTERVALS baits.interval_list
collect CollectTargetedPcrMetrics targeted_pcr_metrics --TARGET_INTERVALS targets.interval_list --AMPLICON_INTERVALS amplicons.interval_list
# The header lines have paths and times; tests do not compare them.
for file in expected/*; do
    grep -v -e '^## htsjdk.samtools.metrics' -e '^# ' "$file" >"$folder/text"
    cp "$folder/text" "$file"
done
