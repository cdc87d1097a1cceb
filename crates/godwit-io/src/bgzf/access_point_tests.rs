//! Tests of access points: reading from an access point gives the same text as reading from the start.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

use super::access_point::{AccessPointKind, AccessPointMode, AccessPointSpacing, ResumePoint};
use super::peek_reader::Input;
use super::read_ahead::{ExpectedFormat, ReadAhead};
use super::{BlockCompressor, EOF_BLOCK, InputError};

/// A spacing that records an access point at every possible position.
const DENSE_SPACING: AccessPointSpacing = AccessPointSpacing { min_bytes: 1, max_bytes: 1 };
/// Maximum number of resume points that a test tries; they are evenly spaced over all recorded resume points.
const MAX_RESUME_POINTS: usize = 12;
const EXPECTED_FORMAT: ExpectedFormat = ExpectedFormat::Any { lenient: false };

fn open(path: &Path, start: Option<&ResumePoint>) -> ReadAhead {
    ReadAhead::open(path, 2, EXPECTED_FORMAT, AccessPointMode::Enabled(DENSE_SPACING, start)).expect("the file opens")
}

/// Returns the text of a file, and a resume point within each text buffer.
fn read_with_resume_points(
    path: &Path,
    start: Option<&ResumePoint>,
) -> Result<(Vec<u8>, Vec<ResumePoint>), InputError> {
    let (mut ahead, mut text, mut starts) = (open(path, start), Vec::new(), Vec::new());
    while let Some(chunk) = ahead.next_text()? {
        starts.extend(ahead.resume_point_at(text.len() as u64 + chunk.len() as u64 / 2));
        text.extend_from_slice(&chunk);
        ahead.recycle(chunk);
    }
    Ok((text, starts))
}

/// Reads from the resume points of a file and compares the text with `text`. Returns the kinds of the access points.
fn check_resume_points(path: &Path, text: &[u8]) -> Vec<AccessPointKind> {
    let (whole, starts) = read_with_resume_points(path, None).expect("the file is whole");
    assert!(whole == text, "read as a whole");
    for start in starts.iter().step_by(starts.len().div_ceil(MAX_RESUME_POINTS).max(1)) {
        assert!(start.is_valid());
        let at = (start.access_point.text_bytes + start.skip_bytes) as usize;
        let (rest, later) =
            read_with_resume_points(path, Some(start)).unwrap_or_else(|error| panic!("from {start:?}: {error:?}"));
        assert!(rest == text[at..], "from {start:?}");
        // Resume points that were recorded after resuming must work as well.
        if let Some(last) = later.last() {
            let at = (last.access_point.text_bytes + last.skip_bytes) as usize;
            assert!(
                read_with_resume_points(path, Some(last)).expect("the file is whole").0 == text[at..],
                "from {last:?}"
            );
        }
    }
    starts.into_iter().map(|start| start.access_point.kind).collect()
}

/// Returns FASTQ text with random reads, which deflate compresses to about a quarter.
fn reads_text(records: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    };
    let mut text = Vec::new();
    for record in 0..records {
        let bases: Vec<u8> = (0..100).map(|_| b"ACGT"[step() as usize % 4]).collect();
        let quality: Vec<u8> = (0..100).map(|_| b"FFFFFF:,#"[step() as usize % 9]).collect();
        text.extend(format!("@read.{record} {}\n", step() % 1000).bytes());
        text.extend([&bases[..], b"\n+\n", &quality, b"\n"].concat());
    }
    text
}

fn gzip(text: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(text).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

fn gzip_with_libdeflate(text: &[u8], level: i32) -> Vec<u8> {
    let level = libdeflater::CompressionLvl::new(level).expect("there is such a level");
    let mut compressor = libdeflater::Compressor::new(level);
    let mut bytes = vec![0; compressor.gzip_compress_bound(text.len())];
    let count = compressor.gzip_compress(text, &mut bytes).expect("the bound is enough");
    bytes.truncate(count);
    bytes
}

fn bgzf(text: &[u8]) -> Vec<u8> {
    let (mut compressor, mut bytes) = (BlockCompressor::new(1), Vec::new());
    text.chunks(50_000).for_each(|data| compressor.compress(data, &mut bytes));
    bytes
}

/// Returns a gzip member whose header has all optional fields (RFC 1952 §2.3).
fn gzip_with_full_header(text: &[u8]) -> Vec<u8> {
    let plain = gzip(text, 6);
    let mut header = vec![0x1f, 0x8b, 8, 0x1e, 1, 2, 3, 4, 0, 3, 5, 0];
    header.extend(b"extraname\0comment\0");
    header.extend((libdeflater::crc32(&header) as u16).to_le_bytes());
    [&header[..], &plain[10..]].concat()
}

fn run_compressor(program: &str, words: &[&str], text: &[u8]) -> Option<Vec<u8>> {
    let (input, output) = (Stdio::piped(), Stdio::piped());
    let mut child = Command::new(program).args(words).stdin(input).stdout(output).spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    let text = text.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&text));
    let out = child.wait_with_output().ok()?;
    writer.join().expect("no panic").expect("the program reads all");
    assert!(out.status.success(), "{program} {words:?}");
    Some(out.stdout)
}

struct TestDirectory(tempfile::TempDir);

impl TestDirectory {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("a");
        fs::write(&path, bytes).expect("a file is written");
        path
    }
}

#[test]
fn the_text_from_every_access_point_is_the_same_for_every_compressor() {
    let (scratch, text) = (TestDirectory::new(), reads_text(16_000, 7));
    let mut shapes = vec![("zlib-rs -2".to_owned(), gzip(&text, 2)), ("zlib-rs -6".to_owned(), gzip(&text, 6))];
    shapes.extend([1, 6, 12].map(|level| (format!("libdeflate -{level}"), gzip_with_libdeflate(&text, level))));
    shapes.push(("a whole header".to_owned(), gzip_with_full_header(&text)));
    let tools: [(&str, &[&str]); 5] =
        [("gzip", &["-1"]), ("gzip", &["-6"]), ("gzip", &["-9"]), ("pigz", &["-p2"]), ("pigz", &["-p2", "-b32", "-i"])];
    for (program, words) in tools {
        match run_compressor(program, words, &text) {
            Some(bytes) => shapes.push((format!("{program} {words:?}"), bytes)),
            // Skip a compressor that is not installed, and compare the outputs of the others.
            None => eprintln!("{program} cannot be run"),
        }
    }
    for (shape, bytes) in shapes {
        let codings = check_resume_points(&scratch.write(&bytes), &text);
        let within = |coding: &AccessPointKind| matches!(coding, AccessPointKind::DeflateBlock(_));
        assert!(codings.iter().filter(|coding| within(coding)).count() >= 3, "{shape}: {codings:?}");
    }
}

#[test]
fn a_member_of_one_block_has_no_access_points_but_is_read() {
    let (scratch, text) = (TestDirectory::new(), reads_text(8_000, 23));
    // At level 1, zlib-rs creates a single deflate block, as zlib-ng does.
    assert!(check_resume_points(&scratch.write(&gzip(&text, 1)), &text).is_empty());
}

#[test]
fn access_points_are_found_at_every_bit() {
    let (scratch, text) = (TestDirectory::new(), reads_text(40_000, 3));
    let codings = check_resume_points(&scratch.write(&gzip(&text, 6)), &text);
    let bits: std::collections::BTreeSet<u8> = codings
        .iter()
        .filter_map(|coding| match coding {
            AccessPointKind::DeflateBlock(within) => Some(within.pending_bits),
            _ => None,
        })
        .collect();
    assert_eq!(bits, (0..8).collect(), "{codings:?}");
}

#[test]
fn plain_text_blocks_and_members_have_access_points_of_their_own() {
    let (scratch, text) = (TestDirectory::new(), reads_text(40_000, 5));
    let (head, tail) = text.split_at(text.len() / 2);
    let members: Vec<u8> = text.chunks(30_000).flat_map(|part| gzip(part, 6)).collect();
    let shapes = [
        (text.clone(), AccessPointKind::Plain),
        (members, AccessPointKind::GzipMember),
        ([bgzf(&text), EOF_BLOCK.to_vec()].concat(), AccessPointKind::BgzfBlock),
        ([bgzf(head), EOF_BLOCK.to_vec(), bgzf(tail), EOF_BLOCK.to_vec()].concat(), AccessPointKind::BgzfBlock),
        ([bgzf(head), gzip(tail, 6)].concat(), AccessPointKind::BgzfBlock),
        ([gzip(head, 6), vec![0; 100]].concat(), AccessPointKind::Plain),
    ];
    for (bytes, coding) in &shapes[..5] {
        let codings = check_resume_points(&scratch.write(bytes), &text);
        assert!(codings.iter().filter(|found| *found == coding).count() >= 2, "{coding:?}: {codings:?}");
    }
    check_resume_points(&scratch.write(&shapes[5].0), head);
}

#[test]
fn stored_blocks_are_entered_where_that_is_certain() {
    let scratch = TestDirectory::new();
    let text = reads_text(16_000, 11);
    check_resume_points(&scratch.write(&gzip(&text, 0)), &text);
    check_resume_points(&scratch.write(&gzip_with_libdeflate(&text, 0)), &text);
    let codings = check_resume_points(&scratch.write(&gzip(&text, 0)), &text);
    assert!(codings.iter().any(|coding| matches!(coding, AccessPointKind::DeflateBlock(_))), "{codings:?}");
}

#[test]
fn damage_behind_an_access_point_is_found_as_from_the_start() {
    let (scratch, text) = (TestDirectory::new(), reads_text(60_000, 13));
    let member = gzip(&text, 6);
    let blocks = [bgzf(&text), EOF_BLOCK.to_vec()].concat();
    for whole in [member.clone(), [&member[..], &member].concat(), blocks] {
        let (_, starts) = read_with_resume_points(&scratch.write(&whole), None).expect("the file is whole");
        let end = whole.len();
        let mut damaged: Vec<Vec<u8>> = [1, 4, 8, 9, 30, 2000].map(|cut| whole[..end - cut].to_vec()).into();
        for at in [end - 1, end - 5, end - 100, end - 3000] {
            damaged.push(whole.clone());
            damaged.last_mut().expect("it was added")[at] ^= 0x10;
        }
        damaged.push([&whole[..], b"more"].concat());
        let (mut compared, mut noticed) = (0, 0);
        for bytes in &damaged {
            let path = scratch.write(bytes);
            let expected =
                read_with_resume_points(&path, None).map(|(text, _)| text.len()).map_err(|error| format!("{error:?}"));
            let before = starts.iter().filter(|start| start.hashed_bytes <= end as u64 - 3000);
            for start in before.step_by(starts.len().div_ceil(5)) {
                let at = (start.access_point.text_bytes + start.skip_bytes) as usize;
                let found = read_with_resume_points(&path, Some(start)).map(|(text, _)| text.len() + at);
                assert_eq!(found.map_err(|error| format!("{error:?}")), expected, "from {start:?}");
                compared += 1;
                noticed += usize::from(expected.is_err());
            }
        }
        assert!(compared >= 3 * damaged.len() && 2 * noticed > compared, "{noticed} of {compared}");
    }
}

#[test]
fn a_file_that_changed_before_a_resume_point_is_not_resumed() {
    let (scratch, text) = (TestDirectory::new(), reads_text(8_000, 17));
    for whole in [text.clone(), gzip(&text, 6), [bgzf(&text), EOF_BLOCK.to_vec()].concat()] {
        let (_, starts) = read_with_resume_points(&scratch.write(&whole), None).expect("the file is whole");
        let start = starts.last().expect("it has starts");
        for at in [0, 100, start.access_point.offset as usize - 1, start.hashed_bytes as usize - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let mut ahead = open(&scratch.write(&changed), Some(start));
            assert!(matches!(ahead.next_text(), Err(InputError::Changed)), "changed at {at}");
            assert!(ahead.next_text().is_err(), "an error is never followed by text, nor by an end");
        }
        let mut ahead = open(&scratch.write(&whole[..start.hashed_bytes as usize - 1]), Some(start));
        assert!(matches!(ahead.next_text(), Err(InputError::Changed)), "cut short");
        // A resume point after the end of the text: reading must fail instead of returning no text.
        let beyond = ResumePoint { skip_bytes: text.len() as u64, ..start.clone() };
        assert!(matches!(open(&scratch.write(&whole), Some(&beyond)).next_text(), Err(InputError::Changed)));
    }
}

#[test]
fn pipes_have_no_access_points_and_the_checksum_from_one_is_that_of_the_file() {
    let (scratch, text) = (TestDirectory::new(), reads_text(8_000, 19));
    let bytes = gzip(&text, 6);
    let path = scratch.write(&bytes);
    let (_, starts) = read_with_resume_points(&path, None).expect("the file is whole");
    let mut ahead = open(&path, starts.get(starts.len() / 2));
    while ahead.next_text().expect("the file is whole").is_some() {}
    assert_eq!(ahead.checksum(), Some(blake3::hash(&bytes).to_hex().to_string()));
    assert_eq!(ahead.compressed_bytes_read(), bytes.len() as u64);
    let (pipe, mut writer) = std::io::pipe().expect("a pipe");
    let writer = std::thread::spawn(move || writer.write_all(&bytes));
    let pipe = fs::File::from(std::os::fd::OwnedFd::from(pipe));
    let mut ahead =
        ReadAhead::from_input(Input::File(pipe), 1, EXPECTED_FORMAT, AccessPointMode::Enabled(DENSE_SPACING, None))
            .expect("it starts");
    while ahead.next_text().expect("the pipe is whole").is_some() {}
    assert_eq!(ahead.resume_point_at(text.len() as u64), None);
    writer.join().expect("no panic").expect("the pipe takes all");
}

/// Returns a gzip member whose deflate blocks are ended by different flush modes of zlib.
fn gzip_with_flushes(text: &[u8], level: u32, flushes: &[(usize, u8)]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::new(level), false);
    let mut data = Vec::with_capacity(2 * text.len() + 10_000 + 100 * flushes.len());
    let mut at = 0;
    for (bytes, how) in flushes {
        let end = text.len().min(at + bytes);
        let how = [FlushCompress::Partial, FlushCompress::Sync, FlushCompress::Full][usize::from(how % 3)];
        compress.compress_vec(&text[at..end], &mut data, how).expect("there is room");
        at = end;
    }
    compress.compress_vec(&text[at..], &mut data, FlushCompress::Finish).expect("there is room");
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let (crc, bytes) = (libdeflater::crc32(text), text.len() as u32);
    [&header[..], &data, &crc.to_le_bytes(), &bytes.to_le_bytes()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn blocks_that_end_anywhere_are_entered_right(
        seed: u64,
        records in 1usize..3_000,
        level in 0u32..10,
        flushes in proptest::collection::vec((0usize..100_000, any::<u8>()), 0..30),
        members in 1usize..4,
    ) {
        let text = reads_text(records, seed);
        let bytes = gzip_with_flushes(&text, level, &flushes);
        check_resume_points(&TestDirectory::new().write(&bytes.repeat(members)), &text.repeat(members));
    }
}
