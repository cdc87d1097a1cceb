//! Extraction of a chunk of a BGZF file as compressed blocks. Blocks that lie completely in the chunk are taken over
//! unchanged; of the partial blocks at both ends, the requested data is compressed again.
//!
//! To form a valid file, extract the header of the original file in the same way and append a chunk between two
//! records, then an end-of-file block.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::error::InputError;
use super::{BgzfBufRead as _, BgzfError, SeekReader, VirtualOffset, Writer};
use crate::random_access::RandomAccess;

/// The compressed blocks of a chunk, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkBlocks {
    /// Newly compressed blocks with the requested data of the first block, if that block lies only partly in the chunk.
    pub first_blocks: Vec<u8>,
    /// Byte range in the file of the blocks that lie completely in the chunk.
    pub block_range: Range<u64>,
    /// Newly compressed blocks with the requested data of the last block, if that block lies only partly in the chunk.
    pub last_blocks: Vec<u8>,
}

impl ChunkBlocks {
    /// Returns the total length in bytes of the compressed blocks.
    pub fn byte_len(&self) -> u64 {
        self.first_blocks.len() as u64 + (self.block_range.end - self.block_range.start) + self.last_blocks.len() as u64
    }
}

/// Extracts the chunk from the virtual offset `start` up to the virtual offset `end`. If `end` is not after `start`,
/// the chunk is empty.
///
/// # Errors
/// [`BgzfError::Corrupt`] if the file has no such offsets; other variants of [`BgzfError`] if a block cannot be read.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Read;
/// use std::sync::Arc;
///
/// use godwit_io::bgzf::{Writer, extract_chunk};
/// use godwit_io::random_access::{LocalFile, RandomAccess};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.bed.gz");
/// let mut file = Writer::new(std::fs::File::create(&path)?, 6);
/// file.write_record(&[b"chr1\t0\t9\n"])?;
/// let second = file.write_record(&[b"chr2\t0\t9\n"])?;
/// file.finish_file()?;
///
/// let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(&path)?);
/// let chunk = extract_chunk(&source, second.start, second.end)?;
/// // Both offsets are in one block, of which a part is compressed again.
/// assert!(chunk.block_range.is_empty());
/// let mut text = String::new();
/// flate2::read::GzDecoder::new(&chunk.first_blocks[..]).read_to_string(&mut text)?;
/// assert_eq!(text, "chr2\t0\t9\n");
/// # Ok(())
/// # }
/// ```
pub fn extract_chunk(
    source: &Arc<dyn RandomAccess>,
    start: VirtualOffset,
    end: VirtualOffset,
) -> Result<ChunkBlocks, BgzfError> {
    let mut input = SeekReader::new(source.clone());
    let (first, last) = (start >> 16, end >> 16);
    let mut chunk = ChunkBlocks { block_range: first..first, ..ChunkBlocks::default() };
    if start >= end {
        return Ok(chunk);
    }
    if last > source.byte_len() {
        let detail = "an index points past the end of the file".to_owned();
        return Err(InputError::Corrupt { offset: source.byte_len(), detail }.into_bgzf_error(source.path()));
    }
    if first == last {
        chunk.first_blocks = compress_blocks(&read_block_data(&mut input, start, (end & 0xffff) as usize)?);
        return Ok(chunk);
    }
    if start & 0xffff > 0 {
        chunk.first_blocks = compress_blocks(&read_block_data(&mut input, start, usize::MAX)?);
        chunk.block_range.start = input.virtual_offset() >> 16;
    }
    if end & 0xffff > 0 {
        chunk.last_blocks = compress_blocks(&read_block_data(&mut input, last << 16, (end & 0xffff) as usize)?);
    }
    // If the index belongs to another file, `end` may lie within the block that contains `start`.
    chunk.block_range.end = last.max(chunk.block_range.start);
    Ok(chunk)
}

/// Returns the data of one block from the virtual offset `start` to the offset `end_within` in the block. Consumes the
/// whole block.
fn read_block_data(input: &mut SeekReader, start: VirtualOffset, end_within: usize) -> Result<Vec<u8>, BgzfError> {
    input.seek(start)?;
    // If `start` is at the end of a block's data or in an empty block, the block has no data to return.
    if input.virtual_offset() != start {
        return Ok(Vec::new());
    }
    let data = input.data()?;
    let wanted = end_within.saturating_sub((start & 0xffff) as usize).min(data.len());
    let (block_data, count) = (data[..wanted].to_vec(), data.len());
    input.consume(count);
    Ok(block_data)
}

/// Compresses data into BGZF blocks. Empty data gives no block.
fn compress_blocks(data: &[u8]) -> Vec<u8> {
    let mut blocks = Writer::new(Vec::new(), Writer::<Vec<u8>>::DEFAULT_LEVEL);
    let written: io::Result<Vec<u8>> =
        blocks.write_bytes(data).and_then(|()| blocks.finish_blocks()).map(|(blocks, _)| blocks);
    written.expect("memory takes what is written to it")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::Path;

    use super::*;
    use crate::bgzf::EOF_BLOCK;

    #[derive(Debug)]
    struct InMemory(Vec<u8>);

    impl RandomAccess for InMemory {
        fn path(&self) -> &Path {
            Path::new("in memory")
        }

        fn byte_len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    /// Returns a BGZF file with these records, the virtual offset of each record, and the virtual offset of the end of
    /// the data.
    fn bgzf_file(records: &[Vec<u8>]) -> (Vec<u8>, Vec<VirtualOffset>) {
        let mut writer = Writer::new(Vec::new(), 1);
        let offsets: Vec<_> = records.iter().map(|record| writer.write_record(&[record]).unwrap()).collect();
        let starts = offsets.iter().map(|place| place.start).chain(offsets.last().map(|place| place.end));
        (writer.finish_file().unwrap().0, starts.collect())
    }

    #[test]
    fn a_chunk_between_any_records_is_the_bytes_of_these_records() {
        // Several of the records fit into one block, one record covers several blocks, and one record ends exactly at
        // the end of a block.
        let lengths = [10, 30_000, 30_000, 8_000, 5, 65_280, 150_000, 1, 65_279, 7];
        let records: Vec<Vec<u8>> = (0u8..).zip(lengths).map(|(number, length)| vec![number; length]).collect();
        let (bytes, starts) = bgzf_file(&records);
        let source: Arc<dyn RandomAccess> = Arc::new(InMemory(bytes.clone()));
        for from in 0..starts.len() {
            for to in from..starts.len() {
                let made = extract_chunk(&source, starts[from], starts[to]).unwrap();
                let whole = &bytes[made.block_range.start as usize..made.block_range.end as usize];
                let joined = [&made.first_blocks[..], whole, &made.last_blocks[..], &EOF_BLOCK[..]].concat();
                assert_eq!(made.byte_len(), (joined.len() - EOF_BLOCK.len()) as u64);
                let mut found = Vec::new();
                flate2::read::MultiGzDecoder::new(&joined[..]).read_to_end(&mut found).unwrap();
                assert!(found == records[from..to].concat(), "records {from} to {to}");
            }
        }
    }

    #[test]
    fn virtual_offsets_that_are_in_no_file_are_rejected() {
        let (bytes, _) = bgzf_file(&[vec![1; 100_000], vec![2; 100]]);
        let length = bytes.len() as u64;
        let source: Arc<dyn RandomAccess> = Arc::new(InMemory(bytes));
        for (start, end) in [(1 << 16 | 3, length << 16), (0, (length + 9) << 16), (0, length << 16 | 4)] {
            assert!(extract_chunk(&source, start, end).is_err(), "{start} {end}");
        }
        assert_eq!(extract_chunk(&source, 9, 3).unwrap().byte_len(), 0);
    }
}
