//! Tests of resuming in the middle of a lane, which must give the same blocks, reads and errors.

use std::path::Path;

use godwit_io::bgzf::{AccessPointMode, AccessPointSpacing, ExpectedFormat, ResumePoint};

use super::*;
use crate::fastq::FastqResumePoint;

/// Compresses at a level at which deflate data has several blocks.
fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(text).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

fn options() -> LaneOptions {
    LaneOptions { block_bases: 100_000, ..strict_options() }
}

fn open(path: &Path, start: Option<&ResumePoint>) -> bgzf::Reader {
    let points = AccessPointMode::Enabled(AccessPointSpacing { min_bytes: 50_000, max_bytes: 200_000 }, start);
    bgzf::Reader::open_with(path, 2, ExpectedFormat::Any { lenient: false }, points).expect("the file opens")
}

fn open_pair(paths: &[PathBuf; 2], resume_points: Option<&[FastqResumePoint]>) -> LaneReader {
    let start = |file: usize| resume_points.map(|places| &places[file].resume_point);
    let input = LaneInput::Pair(open(&paths[0], start(0)), open(&paths[1], start(1)));
    match resume_points {
        Some(places) => LaneReader::from_resume_points(input, places, &options()).expect("a place for each file"),
        None => LaneReader::new(input, &options()),
    }
}

/// The reads of each block, the error at the end if any, and the resume points after each block.
type LaneResult = (Vec<Vec<Read>>, Option<String>, Vec<Option<Vec<FastqResumePoint>>>);

/// Reads a lane to its end and returns its blocks, its error and its resume points.
fn read_to_end(mut reader: LaneReader) -> LaneResult {
    let (mut blocks, mut block, mut resume_points) = (Vec::new(), Vec::new(), Vec::new());
    let error = loop {
        match reader.next() {
            Ok(Some(LaneEvent::Reads(batch))) => block.extend(rows(&batch)),
            Ok(Some(LaneEvent::BlockEnd { .. })) => {
                blocks.push(std::mem::take(&mut block));
                resume_points.push(reader.resume_points());
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    (blocks, error, resume_points)
}

/// Writes two files of mates with different compression. If `with_damage`, the last records of the second file are
/// damaged.
fn write_mate_files(files: &TestDirectory, with_damage: bool) -> [PathBuf; 2] {
    let first = fastq_text(20_000, &[100, 37, 151]);
    let mut second = fastq_text(20_000, &[80, 151]).into_bytes();
    if with_damage {
        let at = second.len() - 20_000;
        let line = at + memchr::memchr(b'+', &second[at..]).expect("there are '+' lines");
        second[line] = b'-';
    }
    [files.write("1.fq.gz", gzip(first.as_bytes())), files.write("2.fq.gz", bgzf(&second, 30_000))]
}

#[test]
fn from_every_resume_point_the_following_blocks_are_read() {
    let files = TestDirectory::new();
    let paths = write_mate_files(&files, false);
    let (blocks, error, resume_points) = read_to_end(open_pair(&paths, None));
    assert!(error.is_none() && blocks.len() > 20, "{} blocks, {error:?}", blocks.len());
    let known: Vec<_> =
        resume_points.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?))).collect();
    assert!(known.len() > 15, "{} places", known.len());
    for (at, places) in known {
        let (rest, error, _) = read_to_end(open_pair(&paths, Some(places)));
        assert_eq!(error, None);
        assert!(rest == blocks[at + 1..], "after block {at}");
        let reads: usize = blocks[..=at].iter().map(Vec::len).sum();
        assert_eq!(places.iter().map(|place| place.records as usize).sum::<usize>(), reads);
    }
}

#[test]
fn damage_behind_a_resume_point_has_the_same_record_and_line() {
    let files = TestDirectory::new();
    let paths = write_mate_files(&files, true);
    let (blocks, error, resume_points) = read_to_end(open_pair(&paths, None));
    let error = error.expect("the file is damaged");
    assert!(error.contains("line 79") && error.contains("2.fq.gz"), "{error}");
    for (at, places) in
        resume_points.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?))).step_by(5)
    {
        let (rest, found, _) = read_to_end(open_pair(&paths, Some(places)));
        assert_eq!(found.as_ref(), Some(&error));
        assert!(rest == blocks[at + 1..], "after block {at}");
    }
}

#[test]
fn a_changed_file_is_reported_before_any_read() {
    let files = TestDirectory::new();
    let paths = write_mate_files(&files, false);
    let (_, _, resume_points) = read_to_end(open_pair(&paths, None));
    let places = resume_points.into_iter().flatten().nth(5).expect("there are places");
    for path in &paths {
        let whole = std::fs::read(path).expect("it is there");
        let mut changed = whole.clone();
        changed[1000] ^= 1;
        std::fs::write(path, changed).expect("it can be written");
        let mut reader = open_pair(&paths, Some(&places));
        let error = reader.next().expect_err("the file has changed");
        assert!(matches!(&error, FastqError::Changed { file } if file == path), "{error}");
        assert!(reader.next().expect("the end").is_none());
        std::fs::write(path, whole).expect("it can be written");
    }
}

#[test]
fn interleaved_and_fasta_files_are_entered_too() {
    let files = TestDirectory::new();
    let mut text = String::new();
    for index in 0..6_000 {
        text += &format!(">pair{index}/1\n{}\n>pair{index}/2\n{}\nAC\n", "ACGT".repeat(30), "GGTA".repeat(20));
    }
    let path = files.write("i.fa.gz", gzip(text.as_bytes()));
    let start = |places: &[FastqResumePoint]| open(&path, Some(&places[0].resume_point));
    let (blocks, error, resume_points) =
        read_to_end(LaneReader::new(LaneInput::Interleaved(open(&path, None)), &options()));
    assert_eq!(error, None);
    let (at, place) =
        resume_points.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?))).nth(2).expect("a place");
    let reader = LaneReader::from_resume_points(LaneInput::Interleaved(start(place)), place, &options());
    let (rest, error, _) = read_to_end(reader.expect("one place for one file"));
    assert!(error.is_none() && rest == blocks[at + 1..], "{error:?}");
    assert!(LaneReader::from_resume_points(LaneInput::Pair(start(place), start(place)), place, &options()).is_none());
}
