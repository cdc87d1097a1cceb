//! Files of reads.

use godwit_formats::fastq::{LaneEvent, LaneInput, LaneOptions, LaneReader};
use godwit_formats::sam::{self, InputFormat};
use godwit_formats::unaligned::{self, Selection, Take};
use godwit_formats::{bam, bgzf};

use crate::file::{bgzf as as_bgzf, gzip, input, parts};

fn options(lenient: bool) -> LaneOptions {
    LaneOptions { block_bases: 50, batch_bytes: 100, decompress_threads: 1, lenient }
}

/// The name of a read and its bases.
type NameAndBases = (Vec<u8>, Vec<u8>);

/// Names and bases of all reads, and whether the lane is sound to its end.
fn read(mut lane: LaneReader) -> (Vec<NameAndBases>, bool) {
    let paired = lane.is_paired();
    let (mut reads, mut in_block) = (Vec::new(), 0);
    loop {
        match lane.next() {
            Ok(Some(LaneEvent::Reads(batch))) => {
                let column = |name| {
                    let column = batch.column_by_name(name).expect("the schema has it").to_data();
                    let offsets = column.buffers()[0].typed_data::<i32>()[..=batch.num_rows()].to_vec();
                    let values = column.buffers()[1].to_vec();
                    offsets
                        .windows(2)
                        .map(move |at| values[at[0] as usize..at[1] as usize].to_vec())
                        .collect::<Vec<Vec<u8>>>()
                };
                assert!(batch.num_rows() > 0, "no batch is empty");
                in_block += batch.num_rows() as u64;
                reads.extend(column("name").into_iter().zip(column("sequence")));
            }
            Ok(Some(LaneEvent::BlockEnd { reads, .. })) => {
                assert_eq!(reads, in_block, "a block ends after its last read");
                in_block = 0;
            }
            Ok(None) => {
                assert!(!paired || reads.chunks(2).all(|mates| mates.len() == 2 && mates[0].0 == mates[1].0));
                return (reads, true);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return (reads, false);
            }
        }
    }
}

/// FASTQ or FASTA, plain or packed. The first byte says whether it is one file, an interleaved one or two.
pub(crate) fn fastq(bytes: &[u8]) {
    let Some((&way, bytes)) = bytes.split_first() else { return };
    let lane = match way % 3 {
        0 => LaneInput::Single(input(bytes)),
        1 => LaneInput::Interleaved(input(bytes)),
        _ => {
            let [first, second] = parts(bytes);
            LaneInput::Pair(input(first), input(second))
        }
    };
    read(LaneReader::new(lane, &options(way & 0x80 != 0)));
}

/// Text gives the same reads in any compression.
pub(crate) fn fastq_packed(bytes: &[u8]) {
    if bytes.starts_with(b"\x1f\x8b") {
        return;
    }
    let read = |bytes: &[u8]| read(LaneReader::new(LaneInput::Single(input(bytes)), &options(false)));
    let plain = read(bytes);
    assert_eq!(read(&gzip(bytes)), plain, "gzip");
    let inner = bytes.starts_with(b"BZh") || bytes.starts_with(b"PK") || bytes.starts_with(b"BAM");
    if !inner {
        assert_eq!(read(&as_bgzf(bytes)), plain, "BGZF");
    }
}

/// SAM, or what BAM holds, as reads. The first byte says of which read group.
pub(crate) fn unaligned(bytes: &[u8]) {
    let Some((&way, bytes)) = bytes.split_first() else { return };
    let packed = as_bgzf(bytes);
    let mut input: bgzf::Reader = input(if bytes.starts_with(b"BAM\x01") { &packed } else { bytes });
    let all = vec![b"x".to_vec(), b"y".to_vec()];
    let take = match way % 3 {
        0 => Take::All,
        1 => Take::Only(b"x".to_vec()),
        _ => Take::Group { id: b"y".to_vec(), all },
    };
    let selection = Selection { take, tags: vec![*b"BC", *b"RX", *b"XN"] };
    let reader = match sam::sniff(&mut input) {
        InputFormat::Bam => bam::Reader::new(input).ok().map(|bam| unaligned::Reader::from_bam(bam, selection)),
        _ => sam::Reader::new(input).ok().map(|sam| unaligned::Reader::from_sam(sam, selection)),
    };
    if let Some(Ok(reader)) = reader {
        read(LaneReader::new(LaneInput::Unaligned(Box::new(reader)), &options(false)));
    }
}
