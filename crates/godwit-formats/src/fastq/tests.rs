//! Tests of the lane reader with generated files.

mod blocks;
mod bwa_comparison;
mod compression;
mod parsing;
mod property;
mod rejected_input;
mod resume_points;

use std::io::Write as _;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use godwit_io::bgzf;
use tempfile::TempDir;

use super::{FastqError, LaneEvent, LaneInput, LaneOptions, LaneReader};

/// A read from a record batch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    name: String,
    comment: Option<String>,
    sequence: String,
    quality: Option<String>,
}

fn new_read(name: &str, comment: Option<&str>, sequence: &str, quality: Option<&str>) -> Read {
    let (comment, quality) = (comment.map(str::to_owned), quality.map(str::to_owned));
    Read { name: name.to_owned(), comment, sequence: sequence.to_owned(), quality }
}

/// The content of all events of a lane.
#[derive(Debug, Default, PartialEq)]
struct LaneContent {
    batches: Vec<RecordBatch>,
    reads: Vec<Read>,
    /// Number of reads and number of bases of each block.
    blocks: Vec<(u64, u64)>,
}

/// A temporary directory that is removed at the end of the test.
struct TestDirectory {
    directory: TempDir,
}

impl TestDirectory {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file is written");
        path
    }
}

fn strict_options() -> LaneOptions {
    LaneOptions::default()
}

fn lenient_options() -> LaneOptions {
    LaneOptions { lenient: true, ..LaneOptions::default() }
}

/// Reads the files of a lane to their end and returns the content of all events.
fn read_lane(files: &[PathBuf], options: &LaneOptions) -> Result<LaneContent, FastqError> {
    let mut reader = LaneReader::open(files, options)?;
    let (mut lane, mut in_block) = (LaneContent::default(), 0);
    while let Some(event) = reader.next()? {
        match event {
            LaneEvent::Reads(batch) => {
                assert!(batch.num_rows() > 0, "no batch is empty");
                assert_eq!(batch.schema(), godwit_model::schema::pipe_reads());
                in_block += batch.num_rows() as u64;
                lane.reads.extend(rows(&batch));
                lane.batches.push(batch);
            }
            LaneEvent::BlockEnd { reads, bases } => {
                assert_eq!(reads, in_block, "a block ends after its last batch");
                lane.blocks.push((reads, bases));
                in_block = 0;
            }
        }
    }
    assert_eq!(in_block, 0, "the last block ends too");
    assert!(reader.next()?.is_none(), "the end stays the end");
    Ok(lane)
}

/// Writes this content to a file and reads it as a lane.
fn read_lane_of_text(content: impl AsRef<[u8]>, options: &LaneOptions) -> Result<LaneContent, FastqError> {
    let files = TestDirectory::new();
    read_lane(&[files.write("reads.fq", content)], options)
}

fn parse_reads(content: impl AsRef<[u8]>) -> Vec<Read> {
    read_lane_of_text(content, &strict_options()).expect("the file is sound").reads
}

fn parse_error(content: impl AsRef<[u8]>) -> FastqError {
    read_lane_of_text(content, &strict_options()).expect_err("the file is damaged")
}

fn rows(batch: &RecordBatch) -> Vec<Read> {
    let cell = |column: usize, row: usize| {
        let array = batch.column(column).as_binary::<i32>();
        array.is_valid(row).then(|| String::from_utf8_lossy(array.value(row)).into_owned())
    };
    let read = |row| Read {
        name: cell(0, row).expect("a name"),
        comment: cell(1, row),
        sequence: cell(2, row).expect("a sequence"),
        quality: cell(3, row),
    };
    (0..batch.num_rows()).map(read).collect()
}

/// Returns FASTQ text with `count` records, whose sequences have the given lengths in turn.
fn fastq_text(count: usize, lengths: &[usize]) -> String {
    let mut text = String::new();
    for index in 0..count {
        let bases = lengths[index % lengths.len()];
        let sequence: String = (0..bases).map(|at| char::from(b"ACGT"[(at * 7 + index * 3 + at / 5) % 4])).collect();
        let quality: String = (0..bases).map(|at| char::from(b'!' + ((at + index) % 94) as u8)).collect();
        text += &format!("@read{index}\n{sequence}\n+\n{quality}\n");
    }
    text
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

/// Returns the text compressed as BGZF blocks of `block_bytes` bytes, without an end-of-file block.
fn bgzf_blocks(text: &[u8], block_bytes: usize) -> Vec<u8> {
    text.chunks(block_bytes).flat_map(bgzf_block).collect()
}

fn bgzf(text: &[u8], block_bytes: usize) -> Vec<u8> {
    [bgzf_blocks(text, block_bytes), bgzf_block(b"")].concat()
}

fn bgzf_block(text: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::fastest());
    let mut data = vec![0; compressor.deflate_compress_bound(text.len())];
    let bytes = compressor.deflate_compress(text, &mut data).expect("the bound is enough");
    let mut block = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0".to_vec();
    block.extend(((bytes + 18 + 8 - 1) as u16).to_le_bytes());
    block.extend(&data[..bytes]);
    block.extend(libdeflater::crc32(text).to_le_bytes());
    block.extend((text.len() as u32).to_le_bytes());
    block
}
