//! Tests for every program with bwa's records, named by `PROGRAM`, `PROGRAM_NAME`, `ENGINE_NAME`, `ENGINE_VERSION`.

use std::process::Command;

use crate::aligner_runner::{self, Lane, Tools, bwa_lines, godwit_lines};
use crate::test_reads::{self, Layout, Reads};
use crate::{ENGINE_NAME, ENGINE_VERSION, PROGRAM, PROGRAM_NAME};

/// Small blocks, so that a test has twenty of them.
pub const BLOCK_BASES: usize = 20_000;

/// Compares one lane of reads under some options of `bwa mem`.
pub fn assert_same_records(tools: &Tools, reads: &Reads, block_bases: usize, options: &str) {
    let lane = Lane { reads, read_group: None, block_bases };
    let expected = bwa_lines(tools, &lane, options);
    let (found, _) = godwit_lines(tools, &[lane], options, false).unwrap();
    aligner_runner::assert_equal(&expected, &found, options);
}

#[test]
fn every_lane_is_a_run_of_its_own_with_its_read_group() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = [17, 19].map(|seed| test_reads::reads(&tools.genome, 700, Layout::Paired, seed));
    let lane = |index: usize| Lane {
        reads: &reads[index],
        read_group: Some(["first", "second lane"][index]),
        block_bases: BLOCK_BASES,
    };
    let expected = [bwa_lines(&tools, &lane(0), ""), bwa_lines(&tools, &lane(1), "")].concat();
    assert!(expected.contains("RG:Z:second lane"));
    let (found, _) = godwit_lines(&tools, &[lane(0), lane(1)], "", false).unwrap();
    aligner_runner::assert_equal(&expected, &found, "two lanes");
}

#[test]
fn an_empty_input_has_an_empty_answer() {
    let Some(tools) = Tools::find_or_skip() else { return };
    assert_eq!(godwit_lines(&tools, &[], "", false).unwrap().0, "");
    let none = Reads { all: Vec::new(), layout: Layout::Paired };
    let block = aligner_runner::align_one_block(&tools, &none, 0).unwrap();
    assert_eq!((block.reads, block.records, block.batches.len()), (0, 0, 0));
}

#[test]
fn ordinals_decide_ties() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = test_reads::reads(&tools.genome, 1000, Layout::Single, 31);
    let text = |ordinal| {
        aligner_runner::block_sam_lines(&tools, aligner_runner::align_one_block(&tools, &reads, ordinal).unwrap())
    };
    assert_eq!(text(0), text(0));
    assert_ne!(text(0), text(1_000_000), "the reference has no repeats to tie");
}

#[test]
fn signatures_and_counts_cover_every_record() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = test_reads::reads(&tools.genome, 1000, Layout::Paired, 37);
    let block = aligner_runner::align_one_block(&tools, &reads, 0).unwrap();
    let counts = block.counts;
    let all = counts.unpaired_reads + counts.paired_reads + counts.not_primary + counts.unmapped;
    assert_eq!((block.reads, all), (2000, block.records));
    assert_eq!(block.pairs.len() as u64 * 2, counts.paired_reads);
    assert_eq!(block.ends.len() as u64, counts.unpaired_reads);
    assert!(!block.pairs.is_empty() && !block.ends.is_empty());
}

#[test]
fn a_killed_aligner_is_reported_with_its_signal_and_does_not_hang() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = test_reads::reads(&tools.genome, 2000, Layout::Paired, 47);
    let error = aligner_runner::error_of_killed_aligner(&tools, &reads);
    let godwit_engines::EngineError::Exited { exit_description, version, .. } = &error else { panic!("{error}") };
    assert_eq!((*exit_description, version.as_str()), (godwit_engines::ExitCause::Signal(9), ENGINE_VERSION));
}

#[test]
fn the_version_names_both_programs() {
    let output = Command::new(PROGRAM).arg("--version").output().unwrap();
    let expected = format!("{PROGRAM_NAME} {} ({ENGINE_NAME} {ENGINE_VERSION})\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
