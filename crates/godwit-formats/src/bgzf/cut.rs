//! A stretch of a BGZF file as bytes of a BGZF file: whole blocks as they lie there, and the blocks at both ends, of which a part is
//! wanted, compressed again.
//!
//! Behind a header that was cut in the same way, and before an end-of-file block, a stretch between records is a file.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::error::Fault;
use super::{BgzfError, SeekReader, Unpacked as _, VirtualOffset, Writer};
use crate::random_access::RandomAccess;

/// Bytes that make up a stretch, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Blocks with what is wanted of the first one.
    pub head: Vec<u8>,
    /// Where whole blocks lie in the file, bytes.
    pub whole: Range<u64>,
    /// Blocks with what is wanted of the last one.
    pub tail: Vec<u8>,
}

impl Cut {
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.head.len() as u64 + (self.whole.end - self.whole.start) + self.tail.len() as u64
    }
}

/// Cuts a file at two places, of which the second is not before the first.
///
/// # Errors
/// [`BgzfError`]; [`BgzfError::Corrupt`] where no such places are in the file.
pub fn cut(source: &Arc<dyn RandomAccess>, start: VirtualOffset, end: VirtualOffset) -> Result<Cut, BgzfError> {
    let mut input = SeekReader::new(source.clone());
    let (first, last) = (start >> 16, end >> 16);
    let mut made = Cut { whole: first..first, ..Cut::default() };
    if start >= end {
        return Ok(made);
    }
    if last > source.bytes() {
        let detail = "an index points behind the end of the file".to_owned();
        return Err(Fault::Corrupt { offset: source.bytes(), detail }.into_error(source.path()));
    }
    if first == last {
        made.head = compressed(&data_between(&mut input, start, (end & 0xffff) as usize)?);
        return Ok(made);
    }
    if start & 0xffff > 0 {
        made.head = compressed(&data_between(&mut input, start, usize::MAX)?);
        made.whole.start = input.virtual_offset() >> 16;
    }
    if end & 0xffff > 0 {
        made.tail = compressed(&data_between(&mut input, last << 16, (end & 0xffff) as usize)?);
    }
    // An index that is of another file may say that the second lies within the block of the first.
    made.whole.end = last.max(made.whole.start);
    Ok(made)
}

/// The data of one block from a place on, up to an offset in the block; all of it is read.
fn data_between(input: &mut SeekReader, start: VirtualOffset, end_within: usize) -> Result<Vec<u8>, BgzfError> {
    input.seek(start)?;
    // Behind the last byte of a block, or in one without data, there is nothing of it.
    if input.virtual_offset() != start {
        return Ok(Vec::new());
    }
    let data = input.data()?;
    let wanted = end_within.saturating_sub((start & 0xffff) as usize).min(data.len());
    let (taken, count) = (data[..wanted].to_vec(), data.len());
    input.consume(count);
    Ok(taken)
}

/// Blocks of some data; none where there are none.
fn compressed(data: &[u8]) -> Vec<u8> {
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

        fn bytes(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = self.0.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    /// A file of some records, and where each one begins; behind the last, where the data end.
    fn file(records: &[Vec<u8>]) -> (Vec<u8>, Vec<VirtualOffset>) {
        let mut writer = Writer::new(Vec::new(), 1);
        let places: Vec<_> = records.iter().map(|record| writer.write_record(&[record]).unwrap()).collect();
        let starts = places.iter().map(|place| place.before).chain(places.last().map(|place| place.after));
        (writer.finish_file().unwrap().0, starts.collect())
    }

    #[test]
    fn a_stretch_between_any_records_is_the_bytes_of_these_records() {
        // Records that fill blocks by several, one that spans blocks, and one that ends with its block.
        let lengths = [10, 30_000, 30_000, 8_000, 5, 65_280, 150_000, 1, 65_279, 7];
        let records: Vec<Vec<u8>> = (0u8..).zip(lengths).map(|(number, length)| vec![number; length]).collect();
        let (bytes, starts) = file(&records);
        let source: Arc<dyn RandomAccess> = Arc::new(InMemory(bytes.clone()));
        for from in 0..starts.len() {
            for to in from..starts.len() {
                let made = cut(&source, starts[from], starts[to]).unwrap();
                let whole = &bytes[made.whole.start as usize..made.whole.end as usize];
                let joined = [&made.head[..], whole, &made.tail[..], &EOF_BLOCK[..]].concat();
                assert_eq!(made.bytes(), (joined.len() - EOF_BLOCK.len()) as u64);
                let mut found = Vec::new();
                flate2::read::MultiGzDecoder::new(&joined[..]).read_to_end(&mut found).unwrap();
                assert!(found == records[from..to].concat(), "records {from} to {to}");
            }
        }
    }

    #[test]
    fn places_that_are_in_no_file_are_refused() {
        let (bytes, _) = file(&[vec![1; 100_000], vec![2; 100]]);
        let length = bytes.len() as u64;
        let source: Arc<dyn RandomAccess> = Arc::new(InMemory(bytes));
        for (start, end) in [(1 << 16 | 3, length << 16), (0, (length + 9) << 16), (0, length << 16 | 4)] {
            assert!(cut(&source, start, end).is_err(), "{start} {end}");
        }
        assert_eq!(cut(&source, 9, 3).unwrap().bytes(), 0);
    }
}
