//! Property tests: the result of reading a text does not depend on buffer sizes and compression; memory stays limited;
//! damage is detected.

use std::path::Path;

use godwit_io::bgzf::ReadAhead;
use proptest::prelude::*;

use super::super::record_reader::RecordReader;
use super::super::text_window::TextWindow;
use super::*;

/// Formatting of a generated record as FASTQ text.
#[derive(Clone, Debug)]
struct Style {
    comment: Option<String>,
    slash: bool,
    repeat_title: bool,
    wrap: Option<usize>,
    crlf: bool,
}

fn style() -> impl Strategy<Value = Style> {
    let comment = proptest::option::of("[ -~\t]{1,12}");
    let wrap = proptest::option::weighted(0.2, 1_usize..20);
    (comment, any::<bool>(), proptest::bool::weighted(0.2), wrap, proptest::bool::weighted(0.2))
        .prop_map(|(comment, slash, repeat_title, wrap, crlf)| Style { comment, slash, repeat_title, wrap, crlf })
}

fn record() -> impl Strategy<Value = (Read, Style)> {
    let bases = proptest::collection::vec((0_usize..9, 0_u8..94), 0..60);
    ("[!-.0-~]{1,20}", bases, style()).prop_map(|(name, bases, style)| {
        let sequence: String = bases.iter().map(|&(base, _)| char::from(b"ACGTNacg."[base])).collect();
        let quality: String = bases.iter().map(|&(_, quality)| char::from(b'!' + quality)).collect();
        let quality = (!quality.is_empty()).then_some(quality);
        (Read { name, comment: style.comment.clone(), sequence, quality }, style)
    })
}

fn records() -> impl Strategy<Value = Vec<(Read, Style)>> {
    proptest::collection::vec(record(), 1..40)
}

fn format_record((read, style): &(Read, Style)) -> String {
    let title = [read.name.as_str(), if style.slash { "/1" } else { "" }].concat();
    let title = read.comment.as_ref().map_or(title.clone(), |comment| format!("{title} {comment}"));
    let lines = |text: &str| match style.wrap {
        Some(width) if text.len() > width => text
            .as_bytes()
            .chunks(width)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => text.to_owned(),
    };
    let plus = if style.repeat_title { title.as_str() } else { "" };
    let quality = read.quality.as_deref().unwrap_or_default();
    let text = format!("@{title}\n{}\n+{plus}\n{}\n", lines(&read.sequence), lines(quality));
    if style.crlf { text.replace('\n', "\r\n") } else { text }
}

/// Returns all reads of a text that arrives in buffers of these sizes, and the error at the end.
fn read_in_chunks(text: &[u8], chunk_bytes: impl IntoIterator<Item = usize>) -> (Vec<Read>, String) {
    let (mut chunks, mut rest) = (Vec::new(), text);
    for bytes in chunk_bytes {
        let (chunk, after) = rest.split_at(bytes.clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        if chunk.is_empty() {
            break;
        }
        chunks.push(chunk.to_vec());
    }
    if !rest.is_empty() {
        chunks.push(rest.to_vec());
    }
    let mut records = RecordReader::new(TextWindow::new(Path::new("reads.fq"), ReadAhead::from_texts(chunks)), false);
    let mut reads = Vec::new();
    let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    loop {
        match records.advance() {
            Ok(true) => {
                let record = records.record();
                reads.push(Read {
                    name: string(record.name),
                    comment: record.comment.map(string),
                    sequence: string(record.sequence),
                    quality: record.quality.map(string),
                });
            }
            Ok(false) => return (reads, "end".to_owned()),
            Err(error) => return (reads, format!("{error:?}")),
        }
    }
}

#[test]
fn a_record_beyond_the_limit_is_refused_before_it_fills_the_memory() {
    let chunks = std::iter::repeat_n(b"ACGTACGTAC".to_vec(), 1_000);
    let chunks = [b"@a\nA\n+\nI\n@b\n".to_vec()].into_iter().chain(chunks).collect();
    let mut text = TextWindow::new(Path::new("reads.fq"), ReadAhead::from_texts(chunks));
    text.max_record_bytes = 2_000;
    let mut records = RecordReader::new(text, false);
    assert!(records.advance().is_ok());
    match records.advance() {
        Err(FastqError::RecordTooLong { location, limit_bytes: 2_000 }) => {
            assert_eq!((location.record, location.line), (2, 5))
        }
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read_however_it_is_cut(
        records in records(),
        cuts in proptest::collection::vec(1_usize..200, 0..60),
    ) {
        let text: String = records.iter().map(format_record).collect();
        let expected: Vec<Read> = records.into_iter().map(|(read, _)| read).collect();
        let (reads, end) = read_in_chunks(text.as_bytes(), cuts);
        prop_assert_eq!(reads, expected);
        prop_assert_eq!(end, "end");
    }

    #[test]
    fn damaged_text_reads_the_same_the_fast_and_the_careful_way(
        records in records(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..4, any::<u8>()), 0..4),
        cuts in proptest::collection::vec(1_usize..200, 0..60),
    ) {
        let mut text: Vec<u8> = records.iter().map(format_record).collect::<String>().into_bytes();
        for (at, kind, byte) in damage {
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text[at] = b"\n\r@+> \t/"[usize::from(byte) % 8],
                2 => { text.remove(at); }
                _ => text.insert(at, b"\n\r@+> \t/"[usize::from(byte) % 8]),
            }
            if text.is_empty() {
                break;
            }
        }
        let whole = read_in_chunks(&text, []);
        prop_assert_eq!(&read_in_chunks(&text, cuts), &whole);
        // With buffers of one byte, no record is ever buffered completely, so the slow parser reads all records.
        prop_assert_eq!(&read_in_chunks(&text, std::iter::repeat_n(1, text.len())), &whole);
    }

    #[test]
    fn any_compression_yields_the_same_batches_and_block_ends(
        records in records(),
        members in proptest::collection::vec((0_u8..3, 1_usize..1_000), 1..8),
        padding in 0_usize..3,
        block_bases in 1_u64..500,
        batch_bytes in 1_usize..2_000,
        decompress_threads in 0_usize..4,
    ) {
        let text: Vec<u8> = records.iter().map(format_record).collect::<String>().into_bytes();
        let options = LaneOptions { block_bases, batch_bytes, decompress_threads, lenient: false };
        let expected = read_lane_of_text(&text, &options).expect("the text is sound");
        let (mut bytes, mut rest) = (Vec::new(), text.as_slice());
        for (kind, text_bytes) in members {
            let (part, after) = rest.split_at(text_bytes.min(rest.len()));
            bytes.extend(match kind {
                0 => gzip(part),
                1 => bgzf(part, 100),
                _ => bgzf_blocks(part, 300),
            });
            rest = after;
        }
        bytes.extend(bgzf(rest, 700));
        bytes.resize(bytes.len() + padding, 0);
        let compressed = read_lane_of_text(&bytes, &options).expect("the same text, compressed");
        prop_assert_eq!(compressed, expected);
    }
}
