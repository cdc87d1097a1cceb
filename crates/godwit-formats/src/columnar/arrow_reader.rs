//! Arrow IPC of any origin, files and streams, read batch by batch.
//!
//! Nothing is mapped and nothing is taken on trust: each message is copied into memory of its own, no more of it than the file has,
//! and decoded behind the checks of [`godwit_model::ipc`].

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::root_as_footer;
use arrow_schema::SchemaRef;
use godwit_model::ipc::{IpcDecoder, IpcError, IpcMessage, message_extent, schema_of};

use crate::random_access::RandomAccess;

/// What a file, unlike a stream, starts and ends with; two bytes of padding follow at the start.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Length of the footer and the mark behind it.
const TAIL_BYTES: u64 = 10;
/// What stands before the length of a message since Arrow 0.15.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Longest header of a message, or end of a file: hundreds of thousands of columns.
const MAX_HEADER_BYTES: u64 = 256 << 20;
/// Longest body of a message; what its buffers unpack to is bounded too.
const MAX_BODY_BYTES: u64 = 1 << 31;

/// Why Arrow IPC cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArrowReadError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no Arrow IPC, neither a file nor a stream", path.display())]
    NotArrow {
        /// The file.
        path: PathBuf,
    },
    /// It ends too early.
    #[error("{} is truncated: {problem}; fetch or make it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What is missing.
        problem: &'static str,
    },
    /// Something in it cannot be.
    #[error("{} is damaged, or not as Arrow has it: the message at byte {offset}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the message begins.
        offset: u64,
        /// What is wrong with it.
        #[source]
        source: IpcError,
    },
}

/// A message, by its place.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    /// Where its body is.
    body: u64,
    body_bytes: u64,
}

#[derive(Clone, Debug)]
enum Layout {
    /// Its end tells where batches are.
    File { dictionaries: Vec<u64>, batches: Vec<u64>, rows: u64 },
    /// One message behind the other, from here on.
    Stream { first: u64 },
}

/// Arrow IPC, open.
#[derive(Clone, Debug)]
pub struct ArrowFile {
    source: Arc<dyn RandomAccess>,
    schema: SchemaRef,
    layout: Layout,
}

impl ArrowFile {
    /// Reads the schema, and where batches are.
    ///
    /// # Errors
    /// [`ArrowReadError`].
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, ArrowReadError> {
        let messages = Messages { source };
        let start = messages.bytes(0, (MAGIC.len() as u64).min(messages.source.bytes()))?;
        if start == MAGIC {
            return Self::open_file(messages);
        }
        let Some((place, header)) = messages.at(0)? else { return Err(messages.truncated("it has no schema")) };
        let mut decoder = IpcDecoder::default();
        let decoded = decoder.decode(&header, &Buffer::from_vec(Vec::<u8>::new()), None);
        match (decoded, decoder.schema()) {
            (Ok(IpcMessage::Schema), Some(schema)) => {
                let layout = Layout::Stream { first: place.body + place.body_bytes };
                Ok(Self { schema: schema.clone(), source: messages.source, layout })
            }
            _ => Err(ArrowReadError::NotArrow { path: messages.path() }),
        }
    }

    fn open_file(messages: Messages) -> Result<Self, ArrowReadError> {
        let file_bytes = messages.source.bytes();
        let no_footer = || messages.truncated("its end, which says where batches are, is missing");
        let tail = messages.bytes(file_bytes.saturating_sub(TAIL_BYTES), TAIL_BYTES.min(file_bytes))?;
        let tail: [u8; TAIL_BYTES as usize] = tail.try_into().map_err(|_| no_footer())?;
        let footer_bytes = read_footer_length(tail).map_err(|_| no_footer())? as u64;
        let offset = file_bytes.checked_sub(TAIL_BYTES + footer_bytes).ok_or_else(no_footer)?;
        let damaged = |problem| messages.damaged(offset, IpcError::Malformed { problem });
        if footer_bytes > MAX_HEADER_BYTES {
            return Err(damaged("the end of the file says to be longer than 256 MiB"));
        }
        let footer = messages.bytes(offset, footer_bytes)?;
        let footer = root_as_footer(&footer).map_err(|_| damaged("the end of the file is none"))?;
        let schema = footer.schema().ok_or_else(|| damaged("the end of the file has no schema"))?;
        let schema = schema_of(schema).map_err(|source| messages.damaged(offset, source))?;
        let dictionaries: Vec<u64> =
            footer.dictionaries().iter().flatten().map(|block| block.offset() as u64).collect();
        let batches: Vec<u64> = footer.recordBatches().iter().flatten().map(|block| block.offset() as u64).collect();
        let mut rows = 0u64;
        for offset in &batches {
            let problem = "the end of the file points to no batch";
            let wrong = || messages.damaged(*offset, IpcError::Malformed { problem });
            let (_, header) = messages.at(*offset)?.ok_or_else(wrong)?;
            let (_, of_batch) = message_extent(&header).map_err(|source| messages.damaged(*offset, source))?;
            rows = rows.saturating_add(of_batch.ok_or_else(wrong)?);
        }
        let layout = Layout::File { dictionaries, batches, rows };
        Ok(Self { schema: Arc::new(schema), source: messages.source, layout })
    }

    /// The columns, with metadata.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Its length, bytes.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Rows, as the headers of the batches of a file say; `None` for a stream.
    pub fn rows(&self) -> Option<u64> {
        match &self.layout {
            Layout::File { rows, .. } => Some(*rows),
            Layout::Stream { .. } => None,
        }
    }

    /// Number of batches; `None` for a stream, which is read as a whole.
    pub fn batch_count(&self) -> Option<usize> {
        match &self.layout {
            Layout::File { batches, .. } => Some(batches.len()),
            Layout::Stream { .. } => None,
        }
    }

    /// Reads batches of a file by their 0-based number, or all of a stream, and some columns, by their index in the schema,
    /// ascending.
    pub fn batches(&self, range: Range<usize>, columns: Option<&[usize]>) -> ArrowBatches {
        let decoder = IpcDecoder::with_schema(self.schema.clone());
        let ahead = match &self.layout {
            Layout::File { dictionaries, batches, .. } => {
                let range = range.start.min(batches.len())..range.end.min(batches.len());
                let of_range = batches.get(range).unwrap_or_default();
                Ahead::Places(dictionaries.iter().chain(of_range).rev().copied().collect())
            }
            Layout::Stream { first } => Ahead::From(*first),
        };
        let messages = Messages { source: self.source.clone() };
        ArrowBatches { messages, decoder, columns: columns.map(<[usize]>::to_vec), ahead }
    }
}

/// What is to be read.
#[derive(Debug)]
enum Ahead {
    /// Messages, last first.
    Places(Vec<u64>),
    /// All messages from a place on.
    From(u64),
}

/// Batches on their way out of a file.
#[derive(Debug)]
pub struct ArrowBatches {
    messages: Messages,
    decoder: IpcDecoder,
    columns: Option<Vec<usize>>,
    ahead: Ahead,
}

impl ArrowBatches {
    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// [`ArrowReadError`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, ArrowReadError> {
        loop {
            let offset = match &mut self.ahead {
                Ahead::Places(places) => match places.pop() {
                    Some(offset) => offset,
                    None => return Ok(None),
                },
                Ahead::From(offset) => *offset,
            };
            let Some((place, header)) = self.messages.at(offset)? else {
                if matches!(self.ahead, Ahead::From(_)) {
                    return Ok(None);
                }
                let problem = "the end of the file points to no message";
                return Err(self.messages.damaged(offset, IpcError::Malformed { problem }));
            };
            let body = self.messages.body(place)?;
            if let Ahead::From(next) = &mut self.ahead {
                *next = place.body + place.body_bytes;
            }
            let decoded = self.decoder.decode(&header, &body, self.columns.as_deref());
            match decoded.map_err(|source| self.messages.damaged(offset, source))? {
                IpcMessage::Batch(batch) if batch.num_rows() > 0 => return Ok(Some(batch)),
                IpcMessage::Batch(_) | IpcMessage::Dictionary => {}
                IpcMessage::Schema => {
                    let problem = "a second schema in one stream";
                    return Err(self.messages.damaged(offset, IpcError::Malformed { problem }));
                }
            }
        }
    }
}

/// Messages by their places.
#[derive(Debug)]
struct Messages {
    source: Arc<dyn RandomAccess>,
}

impl Messages {
    fn path(&self) -> PathBuf {
        self.source.path().to_owned()
    }

    fn truncated(&self, problem: &'static str) -> ArrowReadError {
        ArrowReadError::Truncated { path: self.path(), problem }
    }

    fn damaged(&self, offset: u64, source: IpcError) -> ArrowReadError {
        ArrowReadError::Damaged { path: self.path(), offset, source }
    }

    fn fill(&self, space: &mut [u8], offset: u64) -> Result<(), ArrowReadError> {
        let read = self.source.read_at(space, offset);
        let read = read.map_err(|source| ArrowReadError::Io { path: self.path(), source })?;
        if read < space.len() { Err(self.truncated("it ends within a message")) } else { Ok(()) }
    }

    /// Bytes that are there: memory is not taken for others.
    fn check(&self, offset: u64, bytes: u64) -> Result<(), ArrowReadError> {
        let is_there = offset.checked_add(bytes).is_some_and(|end| end <= self.source.bytes());
        if is_there { Ok(()) } else { Err(self.truncated("it ends within a message")) }
    }

    fn bytes(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, ArrowReadError> {
        self.check(offset, bytes)?;
        let mut space = vec![0; bytes as usize];
        self.fill(&mut space, offset)?;
        Ok(space)
    }

    /// The header of the message at a place; `None` for the mark that ends a stream.
    fn at(&self, offset: u64) -> Result<Option<(Place, Vec<u8>)>, ArrowReadError> {
        if offset == self.source.bytes() {
            return Err(self.truncated("the mark that ends a stream is missing"));
        }
        let number = |at| Ok::<[u8; 4], ArrowReadError>(self.bytes(at, 4)?.try_into().unwrap_or_default());
        let mut start = offset.saturating_add(4);
        let mut length = number(offset)?;
        if length == CONTINUATION {
            length = number(start)?;
            start = start.saturating_add(4);
        }
        let length = u64::from(u32::from_le_bytes(length));
        if length == 0 {
            return Ok(None);
        }
        if length > MAX_HEADER_BYTES {
            return Err(ArrowReadError::NotArrow { path: self.path() });
        }
        let header = self.bytes(start, length)?;
        let (body_bytes, _) = message_extent(&header).map_err(|source| self.damaged(offset, source))?;
        let body = start + length;
        Ok(Some((Place { offset, body, body_bytes }, header)))
    }

    fn body(&self, place: Place) -> Result<Buffer, ArrowReadError> {
        if place.body_bytes > MAX_BODY_BYTES {
            let problem = "it is longer than 2 GiB; write smaller batches";
            return Err(self.damaged(place.offset, IpcError::Malformed { problem }));
        }
        self.check(place.body, place.body_bytes)?;
        let mut space = MutableBuffer::from_len_zeroed(place.body_bytes as usize);
        self.fill(space.as_slice_mut(), place.body)?;
        Ok(space.into())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use proptest::prelude::*;

    use super::*;
    use crate::random_access::LocalFile;

    const ROWS: i64 = 500;
    const BATCHES: i64 = 5;

    fn batch(number: i64) -> RecordBatch {
        let numbers = Arc::new(Int64Array::from_iter_values(number * ROWS..(number + 1) * ROWS)) as ArrayRef;
        let names = (0..ROWS).map(|row| (row % 7 > 0).then(|| format!("name {row}")));
        RecordBatch::try_from_iter([("n", numbers), ("name", Arc::new(names.collect::<StringArray>()) as _)]).unwrap()
    }

    fn written(as_file: bool, compression: Option<CompressionType>) -> Vec<u8> {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let schema = batch(0).schema();
        if as_file {
            let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
            (0..BATCHES).for_each(|number| writer.write(&batch(number)).unwrap());
            writer.finish().unwrap();
            writer.into_inner().unwrap()
        } else {
            let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
            (0..BATCHES).for_each(|number| writer.write(&batch(number)).unwrap());
            writer.finish().unwrap();
            writer.into_inner().unwrap()
        }
    }

    fn opened(bytes: &[u8]) -> Result<ArrowFile, ArrowReadError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        ArrowFile::open(Arc::new(LocalFile::open(file.path()).unwrap()))
    }

    fn read(bytes: &[u8], range: Range<usize>, columns: Option<&[usize]>) -> Result<Vec<RecordBatch>, ArrowReadError> {
        let mut batches = opened(bytes)?.batches(range, columns);
        std::iter::from_fn(|| batches.next_batch().transpose()).collect()
    }

    #[test]
    fn files_and_streams_come_back_packed_or_not_and_in_parts() {
        for compression in [None, Some(CompressionType::ZSTD)] {
            let all: Vec<RecordBatch> = (0..BATCHES).map(batch).collect();
            let file = written(true, compression);
            assert_eq!(read(&file, 0..usize::MAX, None).unwrap(), all);
            assert_eq!(read(&written(false, compression), 0..usize::MAX, None).unwrap(), all);
            assert_eq!(read(&file, 1..3, None).unwrap(), all[1..3]);
            assert_eq!(read(&file, 4..9, Some(&[1])).unwrap(), [all[4].project(&[1]).unwrap()]);
            assert_eq!(opened(&file).unwrap().rows(), Some((ROWS * BATCHES) as u64));
        }
    }

    #[test]
    fn what_is_cut_short_is_told_wherever_it_ends() {
        for as_file in [true, false] {
            let whole = written(as_file, Some(CompressionType::ZSTD));
            for kept in (0..whole.len()).step_by(7) {
                let found = read(&whole[..kept], 0..usize::MAX, None);
                assert!(found.is_err(), "{as_file} {kept} of {}", whole.len());
            }
        }
        let said = opened(b"no arrow at all, whatever its name says").unwrap_err().to_string();
        assert!(said.contains("is no Arrow IPC") || said.contains("truncated"), "{said}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn damage_is_an_error_or_other_rows_and_never_more(
            as_file: bool, packed: bool, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
        ) {
            let mut bytes = written(as_file, packed.then_some(CompressionType::ZSTD));
            for (at, value) in flips {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if let Ok(batches) = read(&bytes, 0..usize::MAX, None) {
                prop_assert!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() < 1 << 26);
            }
        }
    }
}
