//! Beginning in the middle of a lane: the same blocks, the same reads, the same errors.

use std::path::Path;

use super::*;
use crate::bgzf::{Accept, Points, Spacing, Start};
use crate::fastq::FilePlace;

/// At a level where deflate makes several blocks.
fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(text).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

fn options() -> LaneOptions {
    LaneOptions { block_bases: 100_000, ..strict() }
}

fn open(path: &Path, start: Option<&Start>) -> bgzf::Reader {
    let points = Points::Noted(Spacing { least: 50_000, most: 200_000 }, start);
    bgzf::Reader::start(path, 2, Accept::Any { lenient: false }, points).expect("the file opens")
}

fn pair(paths: &[PathBuf; 2], places: Option<&[FilePlace]>) -> LaneReader {
    let start = |file: usize| places.map(|places| &places[file].start);
    let input = LaneInput::Pair(open(&paths[0], start(0)), open(&paths[1], start(1)));
    match places {
        Some(places) => LaneReader::from_places(input, places, &options()).expect("a place for each file"),
        None => LaneReader::new(input, &options()),
    }
}

/// The reads of each block, the error at the end, and the places after each block.
type Came = (Vec<Vec<Read>>, Option<String>, Vec<Option<Vec<FilePlace>>>);

/// Reads to the end.
fn read(mut reader: LaneReader) -> Came {
    let (mut blocks, mut block, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let error = loop {
        match reader.next() {
            Ok(Some(LaneEvent::Reads(batch))) => block.extend(rows(&batch)),
            Ok(Some(LaneEvent::BlockEnd { .. })) => {
                blocks.push(std::mem::take(&mut block));
                places.push(reader.places());
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    (blocks, error, places)
}

/// Two files of mates, of unlike compression, and with a fault in the text of the second one's last records if asked for.
fn mates(files: &Files, fault: bool) -> [PathBuf; 2] {
    let first = fastq(20_000, &[100, 37, 151]);
    let mut second = fastq(20_000, &[80, 151]).into_bytes();
    if fault {
        let at = second.len() - 20_000;
        let line = at + memchr::memchr(b'+', &second[at..]).expect("there are '+' lines");
        second[line] = b'-';
    }
    [files.write("1.fq.gz", gzip(first.as_bytes())), files.write("2.fq.gz", bgzf(&second, 30_000))]
}

#[test]
fn from_every_place_come_the_blocks_that_follow_it() {
    let files = Files::new();
    let paths = mates(&files, false);
    let (blocks, error, places) = read(pair(&paths, None));
    assert!(error.is_none() && blocks.len() > 20, "{} blocks, {error:?}", blocks.len());
    let known: Vec<_> = places.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?))).collect();
    assert!(known.len() > 15, "{} places", known.len());
    for (at, places) in known {
        let (rest, error, _) = read(pair(&paths, Some(places)));
        assert_eq!(error, None);
        assert!(rest == blocks[at + 1..], "after block {at}");
        let reads: usize = blocks[..=at].iter().map(Vec::len).sum();
        assert_eq!(places.iter().map(|place| place.records as usize).sum::<usize>(), reads);
    }
}

#[test]
fn what_is_wrong_behind_a_place_has_the_same_record_and_line() {
    let files = Files::new();
    let paths = mates(&files, true);
    let (blocks, error, places) = read(pair(&paths, None));
    let error = error.expect("the file is damaged");
    assert!(error.contains("line 79") && error.contains("2.fq.gz"), "{error}");
    for (at, places) in places.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?))).step_by(5) {
        let (rest, found, _) = read(pair(&paths, Some(places)));
        assert_eq!(found.as_ref(), Some(&error));
        assert!(rest == blocks[at + 1..], "after block {at}");
    }
}

#[test]
fn a_changed_file_is_told_before_any_read() {
    let files = Files::new();
    let paths = mates(&files, false);
    let (_, _, places) = read(pair(&paths, None));
    let places = places.into_iter().flatten().nth(5).expect("there are places");
    for path in &paths {
        let whole = std::fs::read(path).expect("it is there");
        let mut changed = whole.clone();
        changed[1000] ^= 1;
        std::fs::write(path, changed).expect("it can be written");
        let mut reader = pair(&paths, Some(&places));
        let error = reader.next().expect_err("the file has changed");
        assert!(matches!(&error, FastqError::Changed { file } if file == path), "{error}");
        assert!(reader.next().expect("the end").is_none());
        std::fs::write(path, whole).expect("it can be written");
    }
}

#[test]
fn interleaved_and_fasta_files_are_entered_too() {
    let files = Files::new();
    let mut text = String::new();
    for index in 0..6_000 {
        text += &format!(">pair{index}/1\n{}\n>pair{index}/2\n{}\nAC\n", "ACGT".repeat(30), "GGTA".repeat(20));
    }
    let path = files.write("i.fa.gz", gzip(text.as_bytes()));
    let start = |places: &[FilePlace]| open(&path, Some(&places[0].start));
    let (blocks, error, places) = read(LaneReader::new(LaneInput::Interleaved(open(&path, None)), &options()));
    assert_eq!(error, None);
    let (at, place) =
        places.iter().enumerate().filter_map(|(at, place)| Some((at, place.as_ref()?))).nth(2).expect("a place");
    let reader = LaneReader::from_places(LaneInput::Interleaved(start(place)), place, &options());
    let (rest, error, _) = read(reader.expect("one place for one file"));
    assert!(error.is_none() && rest == blocks[at + 1..], "{error:?}");
    assert!(LaneReader::from_places(LaneInput::Pair(start(place), start(place)), place, &options()).is_none());
}
