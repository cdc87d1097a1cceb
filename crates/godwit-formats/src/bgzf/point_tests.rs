//! Points: from every one of them the text is what it was.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

use super::point::{Coding, Points, Spacing, Start};
use super::read_ahead::{Accept, ReadAhead};
use super::source::Input;
use super::{BlockCompressor, EOF_BLOCK, Fault};

/// A point wherever there can be one.
const EVERYWHERE: Spacing = Spacing { least: 1, most: 1 };
/// Starts of a file that are tried, evenly taken from all.
const STARTS_TRIED: usize = 12;
const ACCEPT: Accept = Accept::Any { lenient: false };

fn open(path: &Path, start: Option<&Start>) -> ReadAhead {
    ReadAhead::open(path, 2, ACCEPT, Points::Noted(EVERYWHERE, start)).expect("the file opens")
}

/// The text, and where reading could begin at each chunk of it.
fn read(path: &Path, start: Option<&Start>) -> Result<(Vec<u8>, Vec<Start>), Fault> {
    let (mut ahead, mut text, mut starts) = (open(path, start), Vec::new(), Vec::new());
    while let Some(chunk) = ahead.next()? {
        starts.extend(ahead.start_after(text.len() as u64 + chunk.len() as u64 / 2));
        text.extend_from_slice(&chunk);
        ahead.recycle(chunk);
    }
    Ok((text, starts))
}

/// Reads from every start and compares; returns the points that the starts are at.
fn check(path: &Path, text: &[u8]) -> Vec<Coding> {
    let (whole, starts) = read(path, None).expect("the file is whole");
    assert!(whole == text, "read as a whole");
    for start in starts.iter().step_by(starts.len().div_ceil(STARTS_TRIED).max(1)) {
        assert!(start.is_sound());
        let at = (start.point.text_bytes + start.skip_bytes) as usize;
        let (rest, later) = read(path, Some(start)).unwrap_or_else(|fault| panic!("from {start:?}: {fault:?}"));
        assert!(rest == text[at..], "from {start:?}");
        // What is noted on the way from there does as well.
        if let Some(last) = later.last() {
            let at = (last.point.text_bytes + last.skip_bytes) as usize;
            assert!(read(path, Some(last)).expect("the file is whole").0 == text[at..], "from {last:?}");
        }
    }
    starts.into_iter().map(|start| start.point.coding).collect()
}

/// Text like that of reads, which deflate takes to a quarter.
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

fn libdeflate(text: &[u8], level: i32) -> Vec<u8> {
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

/// A member whose header has all that it can have (RFC 1952 §2.3).
fn with_whole_header(text: &[u8]) -> Vec<u8> {
    let plain = gzip(text, 6);
    let mut header = vec![0x1f, 0x8b, 8, 0x1e, 1, 2, 3, 4, 0, 3, 5, 0];
    header.extend(b"extraname\0comment\0");
    header.extend((libdeflater::crc32(&header) as u16).to_le_bytes());
    [&header[..], &plain[10..]].concat()
}

fn piped(program: &str, words: &[&str], text: &[u8]) -> Option<Vec<u8>> {
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

struct Scratch(tempfile::TempDir);

impl Scratch {
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
fn the_text_from_every_point_is_what_it_was_whoever_compressed_it() {
    let (scratch, text) = (Scratch::new(), reads_text(16_000, 7));
    let mut shapes = vec![("zlib-rs -2".to_owned(), gzip(&text, 2)), ("zlib-rs -6".to_owned(), gzip(&text, 6))];
    shapes.extend([1, 6, 12].map(|level| (format!("libdeflate -{level}"), libdeflate(&text, level))));
    shapes.push(("a whole header".to_owned(), with_whole_header(&text)));
    let tools: [(&str, &[&str]); 5] =
        [("gzip", &["-1"]), ("gzip", &["-6"]), ("gzip", &["-9"]), ("pigz", &["-p2"]), ("pigz", &["-p2", "-b32", "-i"])];
    for (program, words) in tools {
        match piped(program, words, &text) {
            Some(bytes) => shapes.push((format!("{program} {words:?}"), bytes)),
            None => eprintln!("skipped: {program} cannot be run"),
        }
    }
    for (shape, bytes) in shapes {
        let codings = check(&scratch.write(&bytes), &text);
        let within = |coding: &Coding| matches!(coding, Coding::Deflate(_));
        assert!(codings.iter().filter(|coding| within(coding)).count() >= 3, "{shape}: {codings:?}");
    }
}

#[test]
fn a_member_of_one_block_has_no_points_but_is_read() {
    let (scratch, text) = (Scratch::new(), reads_text(8_000, 23));
    // As zlib-ng does, zlib-rs makes one block of all at its first level.
    assert!(check(&scratch.write(&gzip(&text, 1)), &text).is_empty());
}

#[test]
fn points_are_found_at_every_bit() {
    let (scratch, text) = (Scratch::new(), reads_text(40_000, 3));
    let codings = check(&scratch.write(&gzip(&text, 6)), &text);
    let bits: std::collections::BTreeSet<u8> = codings
        .iter()
        .filter_map(|coding| match coding {
            Coding::Deflate(within) => Some(within.bits),
            _ => None,
        })
        .collect();
    assert_eq!(bits, (0..8).collect(), "{codings:?}");
}

#[test]
fn plain_text_blocks_and_members_have_points_of_their_own() {
    let (scratch, text) = (Scratch::new(), reads_text(40_000, 5));
    let (head, tail) = text.split_at(text.len() / 2);
    let members: Vec<u8> = text.chunks(30_000).flat_map(|part| gzip(part, 6)).collect();
    let shapes = [
        (text.clone(), Coding::Plain),
        (members, Coding::Member),
        ([bgzf(&text), EOF_BLOCK.to_vec()].concat(), Coding::Block),
        ([bgzf(head), EOF_BLOCK.to_vec(), bgzf(tail), EOF_BLOCK.to_vec()].concat(), Coding::Block),
        ([bgzf(head), gzip(tail, 6)].concat(), Coding::Block),
        ([gzip(head, 6), vec![0; 100]].concat(), Coding::Plain),
    ];
    for (bytes, coding) in &shapes[..5] {
        let codings = check(&scratch.write(bytes), &text);
        assert!(codings.iter().filter(|found| *found == coding).count() >= 2, "{coding:?}: {codings:?}");
    }
    check(&scratch.write(&shapes[5].0), head);
}

#[test]
fn stored_blocks_are_entered_where_that_is_certain() {
    let scratch = Scratch::new();
    let text = reads_text(16_000, 11);
    check(&scratch.write(&gzip(&text, 0)), &text);
    check(&scratch.write(&libdeflate(&text, 0)), &text);
    let codings = check(&scratch.write(&gzip(&text, 0)), &text);
    assert!(codings.iter().any(|coding| matches!(coding, Coding::Deflate(_))), "{codings:?}");
}

#[test]
fn damage_behind_a_point_is_found_as_from_the_start() {
    let (scratch, text) = (Scratch::new(), reads_text(60_000, 13));
    let member = gzip(&text, 6);
    let blocks = [bgzf(&text), EOF_BLOCK.to_vec()].concat();
    for whole in [member.clone(), [&member[..], &member].concat(), blocks] {
        let (_, starts) = read(&scratch.write(&whole), None).expect("the file is whole");
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
            let expected = read(&path, None).map(|(text, _)| text.len()).map_err(|fault| format!("{fault:?}"));
            let before = starts.iter().filter(|start| start.hashed_bytes <= end as u64 - 3000);
            for start in before.step_by(starts.len().div_ceil(5)) {
                let at = (start.point.text_bytes + start.skip_bytes) as usize;
                let found = read(&path, Some(start)).map(|(text, _)| text.len() + at);
                assert_eq!(found.map_err(|fault| format!("{fault:?}")), expected, "from {start:?}");
                compared += 1;
                noticed += usize::from(expected.is_err());
            }
        }
        assert!(compared >= 3 * damaged.len() && 2 * noticed > compared, "{noticed} of {compared}");
    }
}

#[test]
fn a_file_that_changed_before_a_point_is_not_gone_on_with() {
    let (scratch, text) = (Scratch::new(), reads_text(8_000, 17));
    for whole in [text.clone(), gzip(&text, 6), [bgzf(&text), EOF_BLOCK.to_vec()].concat()] {
        let (_, starts) = read(&scratch.write(&whole), None).expect("the file is whole");
        let start = starts.last().expect("it has starts");
        for at in [0, 100, start.point.offset as usize - 1, start.hashed_bytes as usize - 1] {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let mut ahead = open(&scratch.write(&changed), Some(start));
            assert!(matches!(ahead.next(), Err(Fault::Changed)), "changed at {at}");
            assert!(ahead.next().is_err(), "an error is never followed by text, nor by an end");
        }
        let mut ahead = open(&scratch.write(&whole[..start.hashed_bytes as usize - 1]), Some(start));
        assert!(matches!(ahead.next(), Err(Fault::Changed)), "cut short");
        // Behind what there is: none of it may count as read.
        let beyond = Start { skip_bytes: text.len() as u64, ..start.clone() };
        assert!(matches!(open(&scratch.write(&whole), Some(&beyond)).next(), Err(Fault::Changed)));
    }
}

#[test]
fn pipes_have_no_points_and_the_checksum_from_a_point_is_that_of_the_file() {
    let (scratch, text) = (Scratch::new(), reads_text(8_000, 19));
    let bytes = gzip(&text, 6);
    let path = scratch.write(&bytes);
    let (_, starts) = read(&path, None).expect("the file is whole");
    let mut ahead = open(&path, starts.get(starts.len() / 2));
    while ahead.next().expect("the file is whole").is_some() {}
    assert_eq!(ahead.checksum(), Some(blake3::hash(&bytes).to_hex().to_string()));
    assert_eq!(ahead.bytes_read(), bytes.len() as u64);
    let (pipe, mut writer) = std::io::pipe().expect("a pipe");
    let writer = std::thread::spawn(move || writer.write_all(&bytes));
    let pipe = fs::File::from(std::os::fd::OwnedFd::from(pipe));
    let mut ahead = ReadAhead::start(Input::File(pipe), 1, ACCEPT, Points::Noted(EVERYWHERE, None)).expect("it starts");
    while ahead.next().expect("the pipe is whole").is_some() {}
    assert_eq!(ahead.start_after(text.len() as u64), None);
    writer.join().expect("no panic").expect("the pipe takes all");
}

/// A member with blocks ended here and there in all ways that zlib knows.
fn flushed(text: &[u8], level: u32, flushes: &[(usize, u8)]) -> Vec<u8> {
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
        let bytes = flushed(&text, level, &flushes);
        check(&Scratch::new().write(&bytes.repeat(members)), &text.repeat(members));
    }
}
