//! States of an index made by the real `bwa index`.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_engines::aligner::bwa::{IndexError, IndexKind, IndexState, StaleReason, index_files_state, index_state};
use godwit_formats::fasta::FastaError;
use godwit_tests::skip::report_skip;
use tempfile::TempDir;

/// Returns bases from a multiplicative generator, with a run of N and other letters.
fn contig(seed: u64, bases: usize) -> Vec<u8> {
    let mut state = seed;
    let mut letters = (0..bases).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"ACGTacgt"[(state >> 61) as usize]
    });
    let mut contig: Vec<u8> = letters.by_ref().collect();
    if bases > 400 {
        contig[100..220].fill(b'N');
        contig[333] = b'R';
        contig[334] = b'n';
    }
    contig
}

fn fasta(contigs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, bases) in contigs {
        writeln!(text, ">{name}").unwrap();
        for line in bases.chunks(61) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
    }
    text
}

fn contigs() -> Vec<(&'static str, Vec<u8>)> {
    vec![("chr1 first one", contig(1, 5003)), ("tiny", contig(2, 7)), ("chr2\tsecond", contig(3, 4000))]
}

/// Returns an indexed reference; without bwa, prints a note and returns `None`.
fn reference_with_index() -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ref.fa");
    fs::write(&path, fasta(&contigs())).unwrap();
    match Command::new("bwa").arg("index").arg(&path).output() {
        Ok(output) if output.status.success() => Some((folder, path)),
        _ => {
            report_skip("missing-tool", "bwa is not installed");
            None
        }
    }
}

fn stale_reason(path: &Path) -> StaleReason {
    match index_state(path, IndexKind::Bwa).unwrap() {
        IndexState::Stale { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_index_made_from_the_reference_is_current() {
    let Some((_folder, path)) = reference_with_index() else { return };
    let IndexState::Current { genome } = index_state(&path, IndexKind::Bwa).unwrap() else { panic!() };
    let names: Vec<_> = genome.contigs().iter().map(|contig| (contig.name.as_str(), contig.length)).collect();
    assert_eq!(names, [("chr1", 5003), ("tiny", 7), ("chr2", 4000)]);
    assert!(matches!(index_files_state(&path, IndexKind::Bwa).unwrap(), IndexState::Current { .. }));
}

#[test]
fn line_ends_case_and_compression_do_not_matter() {
    let Some((_folder, path)) = reference_with_index() else { return };
    let text = fs::read(&path).unwrap();
    let dos: Vec<u8> =
        text.iter().flat_map(|byte| if *byte == b'\n' { vec![b'\r', b'\n'] } else { vec![*byte] }).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text[..3000]).unwrap();
    let first = gzip.finish().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(first, flate2::Compression::fast());
    gzip.write_all(&text[3000..]).unwrap();
    let upper = fasta(&contigs().map_bases(|base| base.to_ascii_uppercase()));
    let unwrapped = fasta(&contigs()).split(|byte| *byte == b'>').skip(1).fold(Vec::new(), |mut all, contig| {
        let end = contig.iter().position(|byte| *byte == b'\n').unwrap();
        all.push(b'>');
        all.extend_from_slice(&contig[..=end]);
        all.extend(contig[end..].iter().filter(|byte| **byte != b'\n'));
        all.push(b'\n');
        all
    });
    for (form, text) in [("dos", dos), ("gzip", gzip.finish().unwrap()), ("upper", upper), ("unwrapped", unwrapped)] {
        fs::write(&path, text).unwrap();
        assert!(matches!(index_state(&path, IndexKind::Bwa).unwrap(), IndexState::Current { .. }), "{form}");
    }
}

trait MapBases {
    fn map_bases(self, change: impl Fn(u8) -> u8) -> Self;
}

impl MapBases for Vec<(&'static str, Vec<u8>)> {
    fn map_bases(mut self, change: impl Fn(u8) -> u8) -> Self {
        self.iter_mut().flat_map(|(_, bases)| bases).for_each(|base| *base = change(*base));
        self
    }
}

#[test]
fn missing_files_are_listed() {
    let Some((_folder, path)) = reference_with_index() else { return };
    fs::remove_file(path.with_extension("fa.sa")).unwrap();
    let IndexState::Missing { files } = index_state(&path, IndexKind::Bwa).unwrap() else { panic!() };
    assert_eq!(files, [path.with_extension("fa.sa")]);
}

#[test]
fn the_first_base_that_differs_is_named() {
    let Some((_folder, path)) = reference_with_index() else { return };
    // Change a base, replace an N by a base, replace a base by N, and change the last base.
    for (place, letter) in [(1234, b'?'), (150, b'A'), (2000, b'N'), (3999, b'?')] {
        let mut changed = contigs();
        let base = &mut changed[2].1[place];
        *base = if letter == b'?' { if base.eq_ignore_ascii_case(&b'A') { b'C' } else { b'A' } } else { letter };
        fs::write(&path, fasta(&changed)).unwrap();
        assert_eq!(stale_reason(&path), StaleReason::Base { contig: "chr2".into(), position_1based: place as u64 + 1 });
    }
}

#[test]
fn contigs_that_differ_are_named() {
    let Some((_folder, path)) = reference_with_index() else { return };
    let mut longer = contigs();
    longer[0].1.extend_from_slice(b"ACGTN");
    fs::write(&path, fasta(&longer)).unwrap();
    assert_eq!(stale_reason(&path), StaleReason::Length { contig: "chr1".into(), reference: 5008, indexed: 5003 });
    let mut shorter = contigs();
    shorter[2].1.truncate(3990);
    fs::write(&path, fasta(&shorter)).unwrap();
    assert_eq!(stale_reason(&path), StaleReason::Length { contig: "chr2".into(), reference: 3990, indexed: 4000 });
    let mut renamed = contigs();
    renamed[1].0 = "small";
    fs::write(&path, fasta(&renamed)).unwrap();
    let (reference, indexed) = (Some("small".into()), Some("tiny".into()));
    assert_eq!(stale_reason(&path), StaleReason::Contig { index: 1, reference, indexed });
    fs::write(&path, fasta(&contigs()[..2])).unwrap();
    assert_eq!(stale_reason(&path), StaleReason::Contig { index: 2, reference: None, indexed: Some("chr2".into()) });
    let mut more = contigs();
    more.push(("chr3", contig(4, 10)));
    fs::write(&path, fasta(&more)).unwrap();
    assert_eq!(stale_reason(&path), StaleReason::Contig { index: 3, reference: Some("chr3".into()), indexed: None });
}

#[test]
fn files_of_another_index_are_noticed() {
    let Some((_folder, path)) = reference_with_index() else { return };
    let Some((_other_folder, other)) = reference_with_index() else { return };
    fs::write(&other, fasta(&contigs()[..2])).unwrap();
    assert!(Command::new("bwa").arg("index").arg(&other).output().unwrap().status.success());
    for extension in ["fa.amb", "fa.bwt", "fa.pac", "fa.sa"] {
        let file = path.with_extension(extension);
        let own = fs::read(&file).unwrap();
        fs::copy(other.with_extension(extension), &file).unwrap();
        assert!(matches!(stale_reason(&path), StaleReason::File { .. }), "{extension}");
        fs::write(&file, &own[..own.len() / 2]).unwrap();
        assert!(matches!(stale_reason(&path), StaleReason::File { .. }), "half of {extension}");
        fs::write(&file, own).unwrap();
    }
    assert!(matches!(index_state(&path, IndexKind::Bwa).unwrap(), IndexState::Current { .. }));
}

#[test]
fn alternates_come_from_the_alt_file() {
    let Some((_folder, path)) = reference_with_index() else { return };
    fs::write(path.with_extension("fa.alt"), "tiny\t0\tchr1\n").unwrap();
    let IndexState::Current { genome } = index_state(&path, IndexKind::Bwa).unwrap() else { panic!() };
    let alternates: Vec<bool> = genome.contigs().iter().map(|contig| contig.alternate).collect();
    assert_eq!(alternates, [false, true, false]);
}

#[test]
fn references_that_cannot_be_used_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere.fa");
    assert!(matches!(index_state(&nowhere, IndexKind::Bwa).unwrap_err(), IndexError::Read { .. }));
    let Some((_folder, path)) = reference_with_index() else { return };
    for text in ["", "ACGT\n", "@r\nACGT\n+\nIIII\n"] {
        fs::write(&path, text).unwrap();
        assert!(matches!(index_state(&path, IndexKind::Bwa).unwrap_err(), IndexError::Fasta { .. }), "{text:?}");
    }
    // bwa indexes a contig without bases, but SAM requires a length of at least 1.
    fs::write(&path, format!(">none\n{}", String::from_utf8(fasta(&contigs())).unwrap())).unwrap();
    assert!(Command::new("bwa").arg("index").arg(&path).output().unwrap().status.success());
    let error = index_state(&path, IndexKind::Bwa).unwrap_err();
    assert!(matches!(&error, IndexError::Fasta(FastaError::EmptyContig { name, .. }) if name == "none"), "{error}");
    let twice = [contigs()[1].clone(), contigs()[1].clone()];
    fs::write(&path, fasta(&twice)).unwrap();
    assert!(Command::new("bwa").arg("index").arg(&path).output().unwrap().status.success());
    assert!(matches!(index_state(&path, IndexKind::Bwa).unwrap_err(), IndexError::Genome { .. }));
}
