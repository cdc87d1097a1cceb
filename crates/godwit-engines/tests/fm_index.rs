//! Compares the index of bwa-mem3, converted from that of the real `bwa index`, with that of the real `bwa-mem2 index`.
#![allow(clippy::unwrap_used)] // A test may panic.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_engines::aligner::bwa::fm_index::{self, SampleStride};
use godwit_engines::aligner::bwa::{IndexKind, IndexState, StaleReason, index_files_state};
use godwit_tests::skip::report_skip;
use md5::{Digest, Md5};
use tempfile::TempDir;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/bwa_mem2_index");
const STRIDES: [SampleStride; 3] = [SampleStride::EVERY_2, SampleStride::EVERY_8, SampleStride::EVERY_32];

/// Returns a reference of the golden case with the index of bwa; without bwa, prints a note and returns `None`.
fn reference_with_index(name: &str) -> Option<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::copy(Path::new(GOLDEN).join(name), &path).unwrap();
    build_bwa_index(&path).then_some((folder, path))
}

fn build_bwa_index(path: &Path) -> bool {
    let indexed = Command::new("bwa").arg("index").arg(path).output().is_ok_and(|output| output.status.success());
    if !indexed {
        report_skip("missing-tool", "bwa is not installed");
    }
    indexed
}

fn convert_to_bytes(path: &Path, stride: SampleStride, threads: usize) -> Result<Vec<u8>, StaleReason> {
    let mut bytes = Vec::new();
    fm_index::convert_bwa_index(path, stride, threads, &mut bytes).unwrap().map(|()| bytes)
}

/// Writes the index file and returns the result of the check.
fn write_and_check(path: &Path, table: &[u8]) -> Result<(), StaleReason> {
    fs::write(fm_index::index_path(path), table).unwrap();
    match index_files_state(path, IndexKind::BwaMem3).unwrap() {
        IndexState::Current { .. } => Ok(()),
        IndexState::Stale { reason } => Err(reason),
        IndexState::Missing { files } => panic!("{files:?}"),
    }
}

fn problem(result: Result<(), StaleReason>) -> (String, &'static str) {
    match result.unwrap_err() {
        StaleReason::File { file, problem } => (file.extension().unwrap().to_str().unwrap().to_owned(), problem),
        other => panic!("{other}"),
    }
}

#[test]
fn the_file_is_that_of_bwa_mem2_index() {
    let expected = fs::read_to_string(Path::new(GOLDEN).join("expected.md5")).unwrap();
    for line in expected.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let Some((_folder, path)) = reference_with_index(name.strip_suffix(".bwt.2bit.64").unwrap()) else { return };
        let bytes = convert_to_bytes(&path, SampleStride::EVERY_8, 2).unwrap();
        let found: String = Md5::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{name}");
    }
    assert_eq!(expected.lines().count(), 17);
}

#[test]
fn a_file_of_any_stride_is_of_the_predicted_size_and_current() {
    let Some((_folder, path)) = reference_with_index("contigs.fa") else { return };
    for stride in STRIDES {
        let one = convert_to_bytes(&path, stride, 1).unwrap();
        assert!(one == convert_to_bytes(&path, stride, 3).unwrap(), "threads change nothing");
        write_and_check(&path, &one).unwrap();
        assert_eq!(fm_index::sample_stride(&path).unwrap(), Some(stride));
        let IndexState::Current { genome } = index_files_state(&path, IndexKind::BwaMem3).unwrap() else { panic!() };
        let bases = genome.contigs().iter().map(|contig| u64::from(contig.length)).sum();
        assert_eq!(fm_index::converted_file_bytes(bases, stride), one.len() as u64);
        // The size of the part that bwa-mem3 loads: the file without its header and the numbers at its end.
        let tail = if stride == SampleStride::EVERY_8 { 8 } else { 16 };
        let packed = fs::metadata(path.with_added_extension("pac")).unwrap().len();
        let loaded = one.len() as u64 - 48 - tail + packed;
        assert!(fm_index::resident_bytes(bases, stride).abs_diff(loaded) <= 16);
    }
}

/// Returns the text of an index: both strands, codes 0 to 3.
fn text(path: &Path) -> Vec<u8> {
    let packed = fs::read(path.with_added_extension("pac")).unwrap();
    // Change the last byte, which is the number of bases in the byte before it.
    let bases = 4 * (packed.len() - 2) + usize::from(packed[packed.len() - 1]);
    let forward: Vec<u8> = (0..bases).map(|base| packed[base / 4] >> (6 - 2 * (base % 4)) & 3).collect();
    let reverse: Vec<u8> = forward.iter().rev().map(|base| 3 - base).collect();
    [forward, reverse].concat()
}

#[test]
fn positions_are_those_of_the_sorted_suffixes() {
    for name in ["contigs.fa", "repeats.fa", "all_a.fa", "length_33.fa"] {
        let Some((_folder, path)) = reference_with_index(name) else { return };
        let text = text(&path);
        let mut suffixes: Vec<usize> = (0..=text.len()).collect();
        suffixes.sort_unstable_by_key(|start| &text[*start..]);
        for stride in STRIDES {
            let bytes = convert_to_bytes(&path, stride, 1).unwrap();
            let sampled: Vec<usize> = suffixes.iter().copied().step_by(stride.rows() as usize).collect();
            let start = 48 + 64 * (suffixes.len() / 64 + 1);
            let (high, low) = bytes[start..start + 5 * sampled.len()].split_at(sampled.len());
            assert!(high.iter().all(|byte| *byte == 0));
            let found = low.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes) as usize);
            assert!(found.eq(sampled), "{name}, {stride}");
        }
    }
}

#[test]
fn the_file_of_bwa_mem3_itself_is_current() {
    let Some((_folder, path)) = reference_with_index("contigs.fa") else { return };
    // The expected file is that of bwa-mem2 followed by the stride (bwa-mem3 0.4.4 fm_index_writer.cpp).
    let own = convert_to_bytes(&path, SampleStride::EVERY_8, 1).unwrap();
    write_and_check(&path, &[&own[..], &3_u64.to_le_bytes()].concat()).unwrap();
    assert_eq!(fm_index::sample_stride(&path).unwrap(), Some(SampleStride::EVERY_8));
    // Remove the files of bwa: the remaining files are an index of bwa-mem2 or bwa-mem3.
    fs::remove_file(path.with_added_extension("bwt")).unwrap();
    fs::remove_file(path.with_added_extension("sa")).unwrap();
    write_and_check(&path, &own).unwrap();
}

#[test]
fn files_that_are_cut_off_or_of_no_stride_are_refused_by_name() {
    let Some((_folder, path)) = reference_with_index("contigs.fa") else { return };
    for stride in STRIDES {
        let whole = convert_to_bytes(&path, stride, 1).unwrap();
        for bytes in [1, 5, 8, 16, whole.len() / 2, whole.len() - 60] {
            let (file, problem) = problem(write_and_check(&path, &whole[..whole.len() - bytes]));
            assert!(file == "64" && problem.contains("size"), "{stride}, {bytes}: {problem}");
        }
        assert!(problem(write_and_check(&path, &[&whole[..], b"x"].concat())).1.contains("size"));
    }
    assert!(problem(write_and_check(&path, b"")).1.contains("number of bases"));
}

#[test]
fn the_file_of_another_reference_is_refused_by_name() {
    let Some((_folder, path)) = reference_with_index("contigs.fa") else { return };
    let Some((_other_folder, other)) = reference_with_index("repeats.fa") else { return };
    assert!(
        problem(write_and_check(&path, &convert_to_bytes(&other, SampleStride::EVERY_8, 1).unwrap()))
            .1
            .contains("number of bases")
    );
    // Change one base of the reference, and keep its length.
    let mut changed = fs::read(&path).unwrap();
    let base = changed.iter().rposition(|letter| *letter == b'A').unwrap();
    changed[base] = b'T';
    fs::copy(&path, &other).unwrap();
    fs::write(&other, changed).unwrap();
    assert!(build_bwa_index(&other));
    let table = convert_to_bytes(&other, SampleStride::EVERY_8, 1).unwrap();
    assert!(problem(write_and_check(&path, &table)).1.contains("another genome"));
    // Without bwa's files, the check compares samples from the whole genome with the bases.
    let Some((_folder, path)) = reference_with_index("length_128.fa") else { return };
    let Some((_other_folder, other)) = reference_with_index("length_129.fa") else { return };
    let shorter: String = fs::read_to_string(&other).unwrap().trim_end().chars().rev().skip(1).collect();
    fs::write(&other, shorter.chars().rev().collect::<String>() + "\n").unwrap();
    assert!(build_bwa_index(&other));
    let table = convert_to_bytes(&other, SampleStride::EVERY_8, 1).unwrap();
    fs::remove_file(path.with_added_extension("bwt")).unwrap();
    assert!(problem(write_and_check(&path, &table)).1.contains(".pac file"));
}

#[test]
fn no_changed_byte_of_bwas_index_is_converted() {
    let Some((_folder, path)) = reference_with_index("length_129.fa") else { return };
    let expected = convert_to_bytes(&path, SampleStride::EVERY_8, 1).unwrap();
    for extension in ["bwt", "sa", "pac"] {
        let file = path.with_added_extension(extension);
        let whole = fs::read(&file).unwrap();
        for byte in 0..whole.len() {
            for bit in [0, 3, 7] {
                let mut changed = whole.clone();
                changed[byte] ^= 1 << bit;
                fs::write(&file, changed).unwrap();
                match convert_to_bytes(&path, SampleStride::EVERY_8, 1) {
                    Err(StaleReason::File { .. }) => {}
                    Err(other) => panic!("{extension} {byte}: {other}"),
                    // Set the bits after the last base, which are unused.
                    Ok(bytes) => assert!(bytes == expected, "{extension} {byte} {bit}"),
                }
            }
        }
        fs::write(&file, whole).unwrap();
    }
}
