//! Fuzz targets for files of unaligned reads: FASTQ, FASTA, SAM and BAM.

use godwit_formats::bam;
use godwit_formats::fastq::{LaneEvent, LaneInput, LaneOptions, LaneReader};
use godwit_formats::sam::{self, AlignmentFormat};
use godwit_formats::unaligned::{self, ReadGroupFilter, Selection};
use godwit_io::bgzf;

use crate::input_files::{compress_bgzf as as_bgzf, compress_gzip, open_input, split_parts};

fn options(lenient: bool) -> LaneOptions {
    LaneOptions { block_bases: 50, batch_bytes: 100, decompress_threads: 1, lenient }
}

/// The name and the bases of a read.
type NameAndBases = (Vec<u8>, Vec<u8>);

/// Returns the names and bases of all reads of a lane up to the first error, and true if there was no error.
fn read_lane(mut lane: LaneReader) -> (Vec<NameAndBases>, bool) {
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

/// Reads FASTQ or FASTA, uncompressed or compressed. The first byte of the input selects a single file, an interleaved
/// file, or two files of mates.
pub(crate) fn fastq(bytes: &[u8]) {
    let Some((&options_byte, bytes)) = bytes.split_first() else { return };
    let lane = match options_byte % 3 {
        0 => LaneInput::Single(open_input(bytes)),
        1 => LaneInput::Interleaved(open_input(bytes)),
        _ => {
            let [first, second] = split_parts(bytes);
            LaneInput::Pair(open_input(first), open_input(second))
        }
    };
    read_lane(LaneReader::new(lane, &options(options_byte & 0x80 != 0)));
}

/// Checks that the reader returns the same reads from an uncompressed file, a gzip file and a BGZF file.
pub(crate) fn fastq_packed(bytes: &[u8]) {
    if bytes.starts_with(b"\x1f\x8b") {
        return;
    }
    let read = |bytes: &[u8]| read_lane(LaneReader::new(LaneInput::Single(open_input(bytes)), &options(false)));
    let plain = read(bytes);
    assert_eq!(read(&compress_gzip(bytes)), plain, "gzip");
    let inner = bytes.starts_with(b"BZh") || bytes.starts_with(b"PK") || bytes.starts_with(b"BAM");
    if !inner {
        assert_eq!(read(&as_bgzf(bytes)), plain, "BGZF");
    }
}

/// Reads the reads of a SAM file, or of a BAM file before its compression. The first byte of the input selects the read
/// group.
pub(crate) fn unaligned(bytes: &[u8]) {
    let Some((&options_byte, bytes)) = bytes.split_first() else { return };
    let packed = as_bgzf(bytes);
    let mut input: bgzf::Reader = open_input(if bytes.starts_with(b"BAM\x01") { &packed } else { bytes });
    let known_ids = vec![b"x".to_vec(), b"y".to_vec()];
    let read_groups = match options_byte % 3 {
        0 => ReadGroupFilter::All,
        1 => ReadGroupFilter::Single(b"x".to_vec()),
        _ => ReadGroupFilter::OneOf { id: b"y".to_vec(), known_ids },
    };
    let selection = Selection { read_groups, tags: vec![*b"BC", *b"RX", *b"XN"] };
    let reader = match sam::detect_format(&mut input) {
        AlignmentFormat::Bam => bam::Reader::new(input).ok().map(|bam| unaligned::Reader::from_bam(bam, selection)),
        _ => sam::Reader::new(input).ok().map(|sam| unaligned::Reader::from_sam(sam, selection)),
    };
    if let Some(Ok(reader)) = reader {
        read_lane(LaneReader::new(LaneInput::Unaligned(Box::new(reader)), &options(false)));
    }
}
