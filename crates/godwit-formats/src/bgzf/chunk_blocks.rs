//! A chunk of a BGZF file as bytes of a BGZF file: whole blocks as in the file, and the partial blocks at both ends,
//! compressed again.
//!
//! A chunk between records, behind a header that was cut in the same way and before an end-of-file block, is a valid file.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::error::InputError;
use super::{BgzfBufRead as _, BgzfError, SeekReader, VirtualOffset, Writer};
use crate::random_access::RandomAccess;

/// The bytes that make up a chunk, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkBlocks {
    /// Blocks with the requested part of the first block.
    pub first_blocks: Vec<u8>,
    /// Byte range in the file of the whole blocks.
    pub block_range: Range<u64>,
    /// Blocks with the requested part of the last block.
    pub last_blocks: Vec<u8>,
}

impl ChunkBlocks {
    /// Returns the length, bytes.
    pub fn byte_len(&self) -> u64 {
        self.first_blocks.len() as u64 + (self.block_range.end - self.block_range.start) + self.last_blocks.len() as u64
    }
}

/// Extracts the chunk between two virtual offsets, of which the second is not before the first.
///
/// # Errors
/// [`BgzfError`]; [`BgzfError::Corrupt`] where the file has no such offsets.
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
        let detail = "an index points behind the end of the file".to_owned();
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
    // The index of another file may place the end within the block of the start.
    chunk.block_range.end = last.max(chunk.block_range.start);
    Ok(chunk)
}

/// Returns the data of one block from a virtual offset to an offset in the block; reads all of the block.
fn read_block_data(input: &mut SeekReader, start: VirtualOffset, end_within: usize) -> Result<Vec<u8>, BgzfError> {
    input.seek(start)?;
    // Behind the last byte of a block, or in one without data, nothing is left.
    if input.virtual_offset() != start {
        return Ok(Vec::new());
    }
    let data = input.data()?;
    let wanted = end_within.saturating_sub((start & 0xffff) as usize).min(data.len());
    let (block_data, count) = (data[..wanted].to_vec(), data.len());
    input.consume(count);
    Ok(block_data)
}

/// Compresses data into blocks; none for no data.
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

    /// Writes a file of records; returns the virtual offset of each, and that of the end of the data.
    fn bgzf_file(records: &[Vec<u8>]) -> (Vec<u8>, Vec<VirtualOffset>) {
        let mut writer = Writer::new(Vec::new(), 1);
        let offsets: Vec<_> = records.iter().map(|record| writer.write_record(&[record]).unwrap()).collect();
        let starts = offsets.iter().map(|place| place.start).chain(offsets.last().map(|place| place.end));
        (writer.finish_file().unwrap().0, starts.collect())
    }

    #[test]
    fn a_chunk_between_any_records_is_the_bytes_of_these_records() {
        // Records of which several fill a block, one that covers several blocks, and one that ends with its block.
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
