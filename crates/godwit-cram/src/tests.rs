use std::io::{Seek, Write};

use godwit_formats::sam::{Header, LineEncoder};
use godwit_model::RawRecord;
use proptest::prelude::*;

use super::*;
use crate::htslib_layout::{pack_record, to_htslib_layout};

const HEADER_TEXT: &str = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:a\tLN:400\n@RG\tID:g\tSM:s\n";

/// Writes a FASTA file with one contig of 400 bases; returns the bases and the path.
fn write_reference(directory: &std::path::Path) -> (String, std::path::PathBuf) {
    let bases: String = (0..400u32).map(|at| char::from(b"ACGT"[(at * at / 7 + at / 3) as usize % 4])).collect();
    let path = directory.join("a.fa");
    std::fs::write(&path, format!(">a\n{}\n{}\n", &bases[..200], &bases[200..])).unwrap();
    (bases, path)
}

fn encode_line(header: &Header, line: &str) -> Vec<u8> {
    let mut record = Vec::new();
    LineEncoder::new(&header.genome().unwrap()).encode(line.as_bytes(), &mut record).unwrap();
    record
}

proptest! {
    #[test]
    fn records_come_back_from_htslibs_layout(
        name in "[!-?A-~]{1,254}",
        ops in prop_oneof![0usize..6, Just(65_535), Just(65_536), Just(70_000)],
        tags in "(\tXX:Z:[ -~]{0,9})?(\tYY:i:-?[0-9]{1,8})?",
    ) {
        let header = Header::parse(b"@SQ\tSN:a\tLN:1000000\n").unwrap();
        let cigar = if ops == 0 { "*".to_owned() } else { "1M1I".repeat(ops / 2) + if ops % 2 == 1 { "1M" } else { "" } };
        let bases = if ops == 0 { "ACGTN".to_owned() } else { "A".repeat(ops) };
        let record = encode_line(&header, &format!("{name}\t0\ta\t7\t60\t{cigar}\t*\t0\t0\t{bases}\t*{tags}"));
        let mut data = Vec::new();
        let flag = RawRecord::from_trusted_bytes(&record).flag();
        let core = to_htslib_layout(RawRecord::from_trusted_bytes(&record), flag, &mut data);
        prop_assert_eq!(core.cigar_ops as usize, ops);
        let mut again = Vec::new();
        prop_assert!(pack_record(&core, &data, &mut again).is_some());
        prop_assert_eq!(again, record);
    }
}

#[test]
fn parts_behind_one_header_are_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (bases, fasta) = write_reference(directory.path());
    let header = Header::parse(HEADER_TEXT.as_bytes()).unwrap();
    let opened = Reference::open(&fasta, directory.path()).unwrap();
    let encoder = Encoder::new(&header, &opened, directory.path()).unwrap();
    let path = directory.path().join("a.cram");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(encoder.header_bytes()).unwrap();
    let without_records = directory.path().join("empty.cram");
    std::fs::write(&without_records, [encoder.header_bytes(), &EOF_CONTAINER].concat()).unwrap();
    let empty = std::fs::File::open(&without_records).unwrap();
    assert_eq!(find_index_mismatch(&empty, &[], 1).unwrap(), None);
    std::fs::remove_file(without_records).unwrap();
    let (mut expected, mut entries) = (Vec::new(), Vec::new());
    for part in 0..3usize {
        let offset = file.stream_position().unwrap();
        let mut encoder = encoder.start_part().unwrap();
        for at in (part * 100)..(part * 100 + 90) {
            let line = format!(
                "r{at}\t0\ta\t{}\t9\t10M\t*\t0\t0\t{}\tABCDEFGHIJ\tXY:i:{at}\tRG:Z:g",
                at + 1,
                &bases[at..at + 10]
            );
            let record = encode_line(&header, &line);
            encoder.write(RawRecord::from_trusted_bytes(&record), 0).unwrap();
            expected.push(record);
        }
        let index = encoder.finish(&mut file).unwrap();
        assert_eq!((index[0].contig, index[0].start_1based, index[0].container_offset), (0, part as i64 * 100 + 1, 0));
        entries.extend(index.into_iter().map(|entry| IndexEntry { container_offset: offset, ..entry }));
    }
    file.write_all(&EOF_CONTAINER).unwrap();
    check_index_mismatch(&path, &entries);
    let mut reader = Decoder::open(&path, Some(&opened), 2).unwrap();
    assert!(reader.header().text().ends_with(b"@RG\tID:g\tSM:s\n"));
    let (mut found, mut record) = (Vec::new(), Vec::new());
    while reader.append_record(&mut record).unwrap() {
        found.push(std::mem::take(&mut record));
    }
    assert_eq!(found.len(), 270);
    for (found, expected) in found.iter().zip(&expected) {
        let (found, expected) = (RawRecord::from_trusted_bytes(found), RawRecord::from_trusted_bytes(expected));
        assert_eq!(
            found.bytes()[..found.bytes().len() - found.tag_bytes().len()],
            expected.bytes()[..expected.bytes().len() - expected.tag_bytes().len()]
        );
        assert_eq!(found.tag(*b"XY"), expected.tag(*b"XY"));
        assert_eq!(found.tag(*b"MD"), Some((b'Z', &b"10"[..])));
    }
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "the reference and the CRAM");
}

/// Checks that the entries of the index match the file, and that changed entries do not.
fn check_index_mismatch(path: &std::path::Path, entries: &[IndexEntry]) {
    let file = std::fs::File::open(path).unwrap();
    let first_mismatch = |entries: &[IndexEntry], most| find_index_mismatch(&file, entries, most).unwrap();
    for most in [1, 2, usize::MAX] {
        assert_eq!(first_mismatch(entries, most), None);
    }
    let last = entries[entries.len() - 1];
    for wrong in [
        IndexEntry { container_offset: last.container_offset - 1, ..last },
        IndexEntry { container_offset: u64::MAX, ..last },
        IndexEntry { contig: 1, ..last },
    ] {
        let other = [&entries[..entries.len() - 1], &[wrong]].concat();
        assert_eq!(first_mismatch(&other, 1), Some(IndexMismatch::NoContainer(wrong)));
    }
    // The index lacks the first container, or all.
    let not_indexed = IndexMismatch::NotIndexed { container_offset: entries[0].container_offset };
    for fewer in [&entries[1..], &[]] {
        assert_eq!(first_mismatch(fewer, 1).as_ref(), Some(&not_indexed));
    }
}

#[test]
fn a_dropped_part_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let (bases, fasta) = write_reference(directory.path());
    let header = Header::parse(HEADER_TEXT.as_bytes()).unwrap();
    let encoder = Encoder::new(&header, &Reference::open(&fasta, directory.path()).unwrap(), directory.path()).unwrap();
    let mut part = encoder.start_part().unwrap();
    let record = encode_line(&header, &format!("r\t0\ta\t1\t9\t10M\t*\t0\t0\t{}\t*", &bases[..10]));
    part.write(RawRecord::from_trusted_bytes(&record), 0).unwrap();
    drop(part);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn checksums_are_those_of_the_standard() {
    let directory = tempfile::tempdir().unwrap();
    let fasta = directory.path().join("a.fa");
    std::fs::write(&fasta, ">a\nacgtAC\n").unwrap();
    let header = Header::parse(b"@SQ\tSN:a\tLN:6\tM5:0123456789abcdef0123456789abcdef\n").unwrap();
    let reference = Reference::open(&fasta, directory.path()).unwrap();
    let refused = Encoder::new(&header, &reference, directory.path()).err().unwrap();
    // SAMv1 §1.3.2 requires upper case. The expected value is the output of `printf ACGTAC | md5sum`.
    assert!(refused.to_string().contains("M5 is 1617b7d879d437fa4c87da5875264b14"), "{refused}");
}
