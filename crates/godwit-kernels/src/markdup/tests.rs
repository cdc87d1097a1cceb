//! Tests of duplicate marking, one test for each rule. The end-to-end tests compare whole files with the output of
//! Picard.

use std::collections::BTreeSet;
use std::sync::Arc;

use godwit_model::{BlockId, RawRecord, flags};

use super::*;
use crate::sort::tests::MemorySpill;

/// A test read on contig 0 or 1, with 50 bases of equal quality.
#[derive(Clone)]
struct Read {
    name: String,
    contig: i32,
    position: i32,
    flag: u16,
    mate_contig: i32,
    quality: u8,
    clip: u32,
    library: u16,
}

fn read(name: &str, position: i32, flag: u16) -> Read {
    Read { name: name.into(), contig: 0, position, flag, mate_contig: 0, quality: 30, clip: 0, library: 0 }
}

impl Read {
    fn quality(mut self, quality: u8) -> Self {
        self.quality = quality;
        self
    }

    fn clipped(mut self, bases: u32) -> Self {
        self.clip = bases;
        self
    }

    fn packed(&self) -> Vec<u8> {
        let cigar = [self.clip << 4 | 4, (50 - self.clip) << 4];
        let cigar = if self.clip == 0 { &cigar[1..] } else { &cigar[..] };
        let mut bytes = Vec::new();
        bytes.extend(self.contig.to_le_bytes());
        bytes.extend(self.position.to_le_bytes());
        bytes.extend([self.name.len() as u8 + 1, 60, 0, 0]);
        bytes.extend((cigar.len() as u16).to_le_bytes());
        bytes.extend(self.flag.to_le_bytes());
        bytes.extend(50u32.to_le_bytes());
        bytes.extend(self.mate_contig.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(self.name.as_bytes());
        bytes.push(0);
        cigar.iter().for_each(|op| bytes.extend(op.to_le_bytes()));
        bytes.extend([0x11; 25]);
        bytes.extend([self.quality; 50]);
        bytes
    }
}

/// Returns a forward-reverse pair with the 5' positions `start` and `end`.
fn pair(name: &str, start: i32, end: i32) -> [Read; 2] {
    let forward = read(name, start, flags::PAIRED | flags::FIRST | flags::MATE_REVERSE);
    [forward, read(name, end - 49, flags::PAIRED | flags::LAST | flags::REVERSE)]
}

mod optional_features;
mod threads;

struct MarkedReads {
    duplicates: BTreeSet<usize>,
    metrics: DuplicationMetrics,
}

fn options(optical_distance: i32) -> DuplicateMarkerOptions {
    DuplicateMarkerOptions {
        libraries: vec!["lib".into(), UNKNOWN_LIBRARY.into()],
        header_libraries: 1,
        optical_distance,
        mode: DuplicateMode::Coordinate,
        uses_barcodes: false,
        report_optical: false,
        report_sets: false,
        memory_bytes: 0,
        threads: 1,
    }
}

fn block_id(ordinal: usize) -> BlockId {
    BlockId { lane: 0, ordinal: ordinal as u32 }
}

/// Marks duplicates in blocks of reads and returns the result.
fn run_marker(blocks: &[Vec<Read>], options: DuplicateMarkerOptions) -> Result<DuplicateMarks, MarkDuplicatesError> {
    let mut marker = DuplicateMarker::new(options, Arc::new(MemorySpill::default()));
    for (ordinal, block) in blocks.iter().enumerate() {
        let id = block_id(ordinal);
        let mut builder = SignatureBuilder::new();
        let mut details = BlockDetails::default();
        for (index, read) in block.iter().enumerate() {
            let packed = read.packed();
            let record = RawRecord::from_bytes(&packed, 2).unwrap();
            let read_group: &[u8] = if read.library == 0 { b"rg" } else { b"rg1" };
            builder.push(id.record(index as u32), record, read.library, read.library, read_group);
            details.templates.push(record);
        }
        marker.add_block(id, &builder.finish_block(), details).unwrap();
    }
    marker.finish()
}

/// Returns the numbers of the reads that a record set contains; reads are numbered over all blocks.
fn numbers(blocks: &[Vec<Read>], verdicts: &RecordSet) -> Vec<usize> {
    let named = blocks.iter().enumerate().flat_map(|(ordinal, block)| {
        (0..block.len()).map(move |index| verdicts.contains(block_id(ordinal).record(index as u32)))
    });
    named.enumerate().filter(|(_, named)| *named).map(|(number, _)| number).collect()
}

fn mark(blocks: &[Vec<Read>], optical_distance: i32) -> Result<MarkedReads, MarkDuplicatesError> {
    let DuplicateMarks { duplicates, metrics, .. } = run_marker(blocks, options(optical_distance))?;
    Ok(MarkedReads { duplicates: numbers(blocks, &duplicates).into_iter().collect(), metrics })
}

fn duplicates(blocks: &[Vec<Read>]) -> Vec<usize> {
    mark(blocks, 100).unwrap().duplicates.into_iter().collect()
}

#[test]
fn of_two_equal_pairs_the_one_with_better_qualities_stays() {
    let [a1, a2] = pair("a", 100, 400);
    let [b1, b2] = pair("b", 100, 400);
    assert_eq!(duplicates(&[vec![a1.clone(), a2.clone(), b1.clone(), b2.clone().quality(31)]]), [0, 1]);
    assert_eq!(duplicates(&[vec![a1.quality(31), a2, b1, b2]]), [2, 3]);
}

#[test]
fn of_two_pairs_with_equal_scores_the_first_in_the_file_stays() {
    let [a1, a2] = pair("a", 100, 400);
    let [b1, b2] = pair("b", 100, 400);
    assert_eq!(duplicates(&[vec![b1, b2], vec![a1, a2]]), [2, 3]);
}

#[test]
fn clipped_bases_count_for_the_five_prime_end() {
    let [a1, a2] = pair("a", 100, 400);
    let [b1, b2] = pair("b", 105, 400);
    assert_eq!(duplicates(&[vec![a1.clone(), a2.clone(), b1.clone(), b2.clone()]]), [] as [usize; 0]);
    assert_eq!(duplicates(&[vec![a1, a2, b1.clipped(5), b2]]), [2, 3]);
}

#[test]
fn a_fragment_beside_a_pair_is_a_duplicate_even_of_the_trailing_end() {
    let [a1, a2] = pair("a", 100, 400);
    let leading = read("f", 100, 0).quality(40);
    let trailing = read("g", 351, flags::REVERSE).quality(40);
    assert_eq!(duplicates(&[vec![leading, trailing], vec![a1, a2]]), [0, 1]);
}

#[test]
fn the_best_of_several_fragments_stays() {
    let reads =
        vec![read("a", 100, 0), read("b", 100, 0).quality(31), read("c", 100, 0), read("d", 100, flags::REVERSE)];
    assert_eq!(duplicates(&[reads]), [0, 2]);
}

#[test]
fn secondary_supplementary_and_unmapped_records_are_never_marked() {
    let reads = vec![
        read("a", 100, 0).quality(40),
        read("b", 100, flags::SECONDARY),
        read("c", 100, flags::SUPPLEMENTARY),
        read("d", 100, flags::UNMAPPED),
        read("e", 100, 0),
    ];
    let outcome = mark(&[reads], 100).unwrap();
    assert_eq!(outcome.duplicates, BTreeSet::from([4]));
    let counts = outcome.metrics.libraries[0].counts;
    assert_eq!((counts.unpaired_reads, counts.not_primary, counts.unmapped), (2, 2, 1));
}

#[test]
fn mates_in_different_blocks_are_joined() {
    let [a1, a2] = pair("a", 100, 400);
    let [b1, b2] = pair("b", 100, 400);
    assert_eq!(duplicates(&[vec![a1, b1.quality(20)], vec![a2, b2]]), [1, 3]);
}

#[test]
fn names_used_twice_are_joined_in_the_order_of_the_file() {
    // Positions in coordinate order: 100 (block 1), 200 (block 0), 400, 500. Picard joins the reads at 100 and 200,
    // then those at 400 and 500.
    let [a1, a2] = pair("same", 200, 500);
    let [b1, b2] = pair("same", 100, 400);
    let [c1, c2] = [read("c", 100, b1.flag), read("c", 200, a1.flag)].map(|read| read.quality(20));
    let outcome = mark(&[vec![a1, a2], vec![b1, b2], vec![c1, c2]], 100).unwrap();
    assert_eq!(outcome.duplicates, BTreeSet::from([4, 5]));
}

#[test]
fn each_end_of_mates_from_two_libraries_is_compared_with_fragments_of_its_own_library() {
    // The read groups and names rg and 1x, rg1 and x, are the same text.
    let [first, mut second] = pair("1x", 100, 400);
    second.name = "x".into();
    second.library = 1;
    let fragment = |library| Read { library, flag: flags::REVERSE, name: format!("f{library}"), ..second.clone() };
    let blocks = [vec![first], vec![second.clone()], vec![fragment(0), fragment(1)]];
    assert_eq!(duplicates(&blocks), [3]);
}

#[test]
fn a_name_whose_mates_cannot_be_told_apart_is_refused() {
    let lone = |position| Read { mate_contig: 1, ..read("same", position, flags::PAIRED | flags::FIRST) };
    let elsewhere = Read { contig: 1, mate_contig: 0, ..read("other", 5, flags::PAIRED | flags::FIRST) };
    assert!(matches!(mark(&[vec![lone(100), lone(200), elsewhere]], 100), Err(MarkDuplicatesError::RepeatedName(_))));
    // No read on contig 1 has a mapped mate, so Picard never looks up the mates of the two reads there.
    assert!(mark(&[vec![lone(100), lone(200)]], 100).is_ok());
}

#[test]
fn chains_of_neighbours_are_one_optical_cluster() {
    let at = |x: i32| pair(&format!("R:1:1101:{x}:1000"), 100, 400);
    let reads: Vec<Read> = [1000, 1090, 1180, 1270, 5000].into_iter().flat_map(at).collect();
    let metrics = mark(std::slice::from_ref(&reads), 100).unwrap().metrics;
    assert_eq!(metrics.libraries[0].optical_pairs, 3);
    assert_eq!(metrics.libraries[0].pair_duplicates(), 4);
    assert_eq!(mark(&[reads], 80).unwrap().metrics.libraries[0].optical_pairs, 0);
}

#[test]
fn libraries_of_the_header_are_reported_without_records() {
    let metrics = mark(&[], 100).unwrap().metrics;
    assert_eq!(metrics.libraries.iter().map(|library| library.library.as_str()).collect::<Vec<_>>(), ["lib"]);
}
