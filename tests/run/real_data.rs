//! Comparison with the reference pipeline on public genomes and reads. The tests are skipped if the shared data do not
//! exist.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::godwit;
use godwit_tests::reference_pipeline::{AlignOptions, Lane, run_reference_pipeline};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{metrics, needs, needs_picard, sam, scratch, skip};

use super::picard::shared_data_directory;

/// Writes the decompressed file, or its first lines, into a directory of its own.
pub(super) fn decompress(gzip: &Path, name: &str, lines: usize) -> PathBuf {
    let path = scratch::directory("real").join(name);
    let text = run_checked(Tool::require("gzip").command().arg("-cd").arg(gzip)).stdout;
    let text: Vec<u8> = text.split_inclusive(|byte| *byte == b'\n').take(lines).flatten().copied().collect();
    std::fs::write(&path, text).expect("the scratch directory can be written to");
    path
}

/// Returns the first 11.1 Mb of chromosome 20 with an index. They contain the interval of the reads of NA12878 and all
/// other intervals without N except one. The reference is decompressed and indexed once for all tests.
pub(super) fn chromosome_20(data: &Path) -> &'static Path {
    static REFERENCE: OnceLock<PathBuf> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let reference = decompress(&data.join("human/ucsc.hg19.chr20.unittest.fasta.gz"), "chr20.fa", 222_000);
        godwit().arg("index").arg(&reference).run_ok();
        reference
    })
}

/// Returns the files of the reads of NA12878.
pub(super) fn na12878_reads(data: &Path) -> [PathBuf; 2] {
    [1, 2].map(|mate| data.join(format!("human/NA12878.10_10p1mb_R{mate}.fastq.gz")))
}

/// Returns the output directory of the alignment of NA12878 to [`chromosome_20`], which runs once for all tests.
pub(super) fn aligned_na12878(data: &Path) -> &'static Path {
    static OUTPUT: OnceLock<PathBuf> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let out = scratch::directory("na12878-aligned");
        let align = godwit().arg("align").arg("--reference").arg(chromosome_20(data)).arg("--reads");
        let align = align.args(na12878_reads(data)).args(["--sample", "NA12878", "--metrics", "off", "--out"]);
        align.arg(&out).run_ok();
        out
    })
}

/// Aligns with godwit and the reference pipeline, and compares records and metrics.
fn assert_identical(reference: &Path, lanes: &[Lane], block_bases: u64) {
    let out = scratch::directory("real-out");
    let command = godwit().arg("align").arg("--reference").arg(reference);
    let command = lanes.iter().fold(command, |command, lane| {
        command.arg("--reads").args(&lane.reads).arg("--read-group").arg(&lane.read_group)
    });
    command.args(["--sample", "sample", "--block-bases", &block_bases.to_string(), "--out"]).arg(&out).run_ok();
    let expected = run_reference_pipeline(reference, lanes, &AlignOptions { block_bases, ..AlignOptions::default() });
    sam::assert_same(&expected.bam, &out.join("sample.bam"));
    let expected = expected.metrics.expect("marking writes metrics");
    metrics::assert_same(&expected, &out.join("sample.duplicates.txt"));
}

#[test]
fn na12878_on_chromosome_20_comes_out_as_the_reference_pipeline_has_it() {
    needs!("bwa", "gzip");
    needs_picard!();
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let lane = Lane {
        reads: na12878_reads(&data).to_vec(),
        read_group: "@RG\\tID:1\\tSM:NA12878\\tLB:one\\tPL:ILLUMINA".to_owned(),
    };
    assert_identical(chromosome_20(&data), &[lane], 1_000_000);
}

#[test]
fn reads_of_yeast_come_out_as_the_reference_pipeline_has_them() {
    needs!("bwa", "gzip");
    needs_picard!();
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    let packed = data.join("yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz");
    let reference = decompress(&packed, "yeast.fa", usize::MAX);
    godwit().arg("index").arg(&reference).run_ok();
    let prefix = scratch::directory("yeast").join("reads");
    let simulate = godwit().arg("simulate").arg("--reference").arg(&reference);
    simulate.args(["--pairs", "20000", "--lanes", "2", "--read-bases", "100", "--gzip", "--out"]).arg(&prefix).run_ok();
    let lane = |number: u32| Lane {
        reads: [1, 2].map(|mate| PathBuf::from(format!("{}_L00{number}_R{mate}.fastq.gz", prefix.display()))).to_vec(),
        read_group: format!("@RG\\tID:{number}\\tSM:yeast\\tLB:one"),
    };
    assert_identical(&reference, &[lane(1), lane(2)], 500_000);
}
