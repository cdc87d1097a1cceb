//! Arrow IPC of any origin, files and streams, read batch by batch.
//!
//! Nothing is mapped and nothing is trusted: each message is copied into separate memory, never more than the file has, and
//! decoded behind the checks of [`godwit_model::ipc`].

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::reader::read_footer_length;
use arrow_ipc::root_as_footer;
use arrow_schema::SchemaRef;
use godwit_model::ipc::{IpcDecoder, IpcError, IpcMessage, body_length_and_row_count, schema_from_flatbuffer};

use crate::random_access::RandomAccess;

/// First and last bytes of a file, unlike a stream; two bytes of padding follow at the start.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Length of the footer and the magic behind it.
const FOOTER_TRAILER_BYTES: u64 = 10;
/// Bytes before the length of a message since Arrow 0.15.
const CONTINUATION_INDICATOR: [u8; 4] = [0xff; 4];
/// Maximum bytes of a message header, or of a footer: enough for hundreds of thousands of columns.
const MAX_HEADER_BYTES: u64 = 256 << 20;
/// Maximum bytes of a message body; the decompressed size of its buffers is bounded too.
const MAX_BODY_BYTES: u64 = 1 << 31;

/// A reason why Arrow IPC cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArrowReadError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The file has another format.
    #[error("{} is no Arrow IPC, neither a file nor a stream", path.display())]
    NotArrow {
        /// The file.
        path: PathBuf,
    },
    /// The file is truncated.
    #[error("{} is truncated: {problem}; fetch or make it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The missing part.
        problem: &'static str,
    },
    /// A message is invalid.
    #[error("{} is damaged, or not as Arrow has it: the message at byte {offset}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the message.
        offset: u64,
        /// The problem.
        #[source]
        source: IpcError,
    },
}

/// The location of a message.
#[derive(Clone, Copy, Debug)]
struct MessageLocation {
    offset: u64,
    /// Offset of its body.
    body_offset: u64,
    body_bytes: u64,
}

#[derive(Clone, Debug)]
enum IpcFormat {
    /// The footer lists the offsets of batches.
    File { dictionaries: Vec<u64>, batches: Vec<u64>, rows: u64 },
    /// Consecutive messages from an offset on.
    Stream { first_message_offset: u64 },
}

/// An open Arrow IPC file or stream.
#[derive(Clone, Debug)]
pub struct ArrowFile {
    source: Arc<dyn RandomAccess>,
    schema: SchemaRef,
    format: IpcFormat,
}

impl ArrowFile {
    /// Reads the schema, and the offsets of batches.
    ///
    /// # Errors
    /// [`ArrowReadError`].
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, ArrowReadError> {
        let messages = MessageReader { source };
        let start = messages.read_bytes(0, (MAGIC.len() as u64).min(messages.source.byte_len()))?;
        if start == MAGIC {
            return Self::open_file(messages);
        }
        let Some((location, header)) = messages.read_header(0)? else {
            return Err(messages.truncated_error("it has no schema"));
        };
        let mut decoder = IpcDecoder::default();
        let decoded = decoder.decode(&header, &Buffer::from_vec(Vec::<u8>::new()), None);
        match (decoded, decoder.schema()) {
            (Ok(IpcMessage::Schema), Some(schema)) => {
                let format = IpcFormat::Stream { first_message_offset: location.body_offset + location.body_bytes };
                Ok(Self { schema: schema.clone(), source: messages.source, format })
            }
            _ => Err(ArrowReadError::NotArrow { path: messages.path() }),
        }
    }

    fn open_file(messages: MessageReader) -> Result<Self, ArrowReadError> {
        let file_bytes = messages.source.byte_len();
        let no_footer = || messages.truncated_error("its end, which says where batches are, is missing");
        let tail = messages
            .read_bytes(file_bytes.saturating_sub(FOOTER_TRAILER_BYTES), FOOTER_TRAILER_BYTES.min(file_bytes))?;
        let tail: [u8; FOOTER_TRAILER_BYTES as usize] = tail.try_into().map_err(|_| no_footer())?;
        let footer_bytes = read_footer_length(tail).map_err(|_| no_footer())? as u64;
        let offset = file_bytes.checked_sub(FOOTER_TRAILER_BYTES + footer_bytes).ok_or_else(no_footer)?;
        let damaged = |problem| messages.damaged_error(offset, IpcError::Malformed { problem });
        if footer_bytes > MAX_HEADER_BYTES {
            return Err(damaged("the end of the file says to be longer than 256 MiB"));
        }
        let footer = messages.read_bytes(offset, footer_bytes)?;
        let footer = root_as_footer(&footer).map_err(|_| damaged("the end of the file is none"))?;
        let schema = footer.schema().ok_or_else(|| damaged("the end of the file has no schema"))?;
        let schema = schema_from_flatbuffer(schema).map_err(|source| messages.damaged_error(offset, source))?;
        let dictionaries: Vec<u64> =
            footer.dictionaries().iter().flatten().map(|block| block.offset() as u64).collect();
        let batches: Vec<u64> = footer.recordBatches().iter().flatten().map(|block| block.offset() as u64).collect();
        let mut rows = 0u64;
        for offset in &batches {
            let problem = "the end of the file points to no batch";
            let batch_error = || messages.damaged_error(*offset, IpcError::Malformed { problem });
            let (_, header) = messages.read_header(*offset)?.ok_or_else(batch_error)?;
            let (_, batch_rows) =
                body_length_and_row_count(&header).map_err(|source| messages.damaged_error(*offset, source))?;
            rows = rows.saturating_add(batch_rows.ok_or_else(batch_error)?);
        }
        let format = IpcFormat::File { dictionaries, batches, rows };
        Ok(Self { schema: Arc::new(schema), source: messages.source, format })
    }

    /// Returns the columns, with metadata.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the length, bytes.
    pub fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    /// Returns the number of rows by the headers of a file's batches; `None` for a stream.
    pub fn row_count(&self) -> Option<u64> {
        match &self.format {
            IpcFormat::File { rows, .. } => Some(*rows),
            IpcFormat::Stream { .. } => None,
        }
    }

    /// Returns the number of batches; `None` for a stream, which is read as a whole.
    pub fn batch_count(&self) -> Option<usize> {
        match &self.format {
            IpcFormat::File { batches, .. } => Some(batches.len()),
            IpcFormat::Stream { .. } => None,
        }
    }

    /// Reads batches of a file by their 0-based number, or all of a stream, with all or some columns, by their index in the
    /// schema, ascending.
    pub fn batches(&self, range: Range<usize>, columns: Option<&[usize]>) -> ArrowBatches {
        let decoder = IpcDecoder::with_schema(self.schema.clone());
        let queue = match &self.format {
            IpcFormat::File { dictionaries, batches, .. } => {
                let range = range.start.min(batches.len())..range.end.min(batches.len());
                let of_range = batches.get(range).unwrap_or_default();
                MessageQueue::Offsets(dictionaries.iter().chain(of_range).rev().copied().collect())
            }
            IpcFormat::Stream { first_message_offset } => MessageQueue::Sequential(*first_message_offset),
        };
        let messages = MessageReader { source: self.source.clone() };
        ArrowBatches { messages, decoder, columns: columns.map(<[usize]>::to_vec), queue }
    }
}

/// The messages that are still to be read.
#[derive(Debug)]
enum MessageQueue {
    /// Offsets of messages, last first.
    Offsets(Vec<u64>),
    /// All messages from an offset on.
    Sequential(u64),
}

/// A stream of batches of a file.
#[derive(Debug)]
pub struct ArrowBatches {
    messages: MessageReader,
    decoder: IpcDecoder,
    columns: Option<Vec<usize>>,
    queue: MessageQueue,
}

impl ArrowBatches {
    /// Returns the next batch; `None` at the end.
    ///
    /// # Errors
    /// [`ArrowReadError`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, ArrowReadError> {
        loop {
            let offset = match &mut self.queue {
                MessageQueue::Offsets(offsets) => match offsets.pop() {
                    Some(offset) => offset,
                    None => return Ok(None),
                },
                MessageQueue::Sequential(offset) => *offset,
            };
            let Some((location, header)) = self.messages.read_header(offset)? else {
                if matches!(self.queue, MessageQueue::Sequential(_)) {
                    return Ok(None);
                }
                let problem = "the end of the file points to no message";
                return Err(self.messages.damaged_error(offset, IpcError::Malformed { problem }));
            };
            let body = self.messages.read_body(location)?;
            if let MessageQueue::Sequential(next) = &mut self.queue {
                *next = location.body_offset + location.body_bytes;
            }
            let decoded = self.decoder.decode(&header, &body, self.columns.as_deref());
            match decoded.map_err(|source| self.messages.damaged_error(offset, source))? {
                IpcMessage::Batch(batch) if batch.num_rows() > 0 => return Ok(Some(batch)),
                IpcMessage::Batch(_) | IpcMessage::Dictionary => {}
                IpcMessage::Schema => {
                    let problem = "a second schema in one stream";
                    return Err(self.messages.damaged_error(offset, IpcError::Malformed { problem }));
                }
            }
        }
    }
}

/// A reader of messages by their offsets.
#[derive(Debug)]
struct MessageReader {
    source: Arc<dyn RandomAccess>,
}

impl MessageReader {
    fn path(&self) -> PathBuf {
        self.source.path().to_owned()
    }

    fn truncated_error(&self, problem: &'static str) -> ArrowReadError {
        ArrowReadError::Truncated { path: self.path(), problem }
    }

    fn damaged_error(&self, offset: u64, source: IpcError) -> ArrowReadError {
        ArrowReadError::Damaged { path: self.path(), offset, source }
    }

    fn read_exact_at(&self, space: &mut [u8], offset: u64) -> Result<(), ArrowReadError> {
        let read = self.source.read_at(space, offset);
        let read = read.map_err(|source| ArrowReadError::Io { path: self.path(), source })?;
        if read < space.len() { Err(self.truncated_error("it ends within a message")) } else { Ok(()) }
    }

    /// Checks that the file has these bytes, before memory is allocated for them.
    fn check_range(&self, offset: u64, bytes: u64) -> Result<(), ArrowReadError> {
        let is_there = offset.checked_add(bytes).is_some_and(|end| end <= self.source.byte_len());
        if is_there { Ok(()) } else { Err(self.truncated_error("it ends within a message")) }
    }

    fn read_bytes(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, ArrowReadError> {
        self.check_range(offset, bytes)?;
        let mut space = vec![0; bytes as usize];
        self.read_exact_at(&mut space, offset)?;
        Ok(space)
    }

    /// Reads the header of the message at an offset; returns `None` for the end-of-stream marker.
    fn read_header(&self, offset: u64) -> Result<Option<(MessageLocation, Vec<u8>)>, ArrowReadError> {
        if offset == self.source.byte_len() {
            return Err(self.truncated_error("the mark that ends a stream is missing"));
        }
        let number = |at| Ok::<[u8; 4], ArrowReadError>(self.read_bytes(at, 4)?.try_into().unwrap_or_default());
        let mut start = offset.saturating_add(4);
        let mut length = number(offset)?;
        if length == CONTINUATION_INDICATOR {
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
        let header = self.read_bytes(start, length)?;
        let (body_bytes, _) =
            body_length_and_row_count(&header).map_err(|source| self.damaged_error(offset, source))?;
        let body_offset = start + length;
        Ok(Some((MessageLocation { offset, body_offset, body_bytes }, header)))
    }

    fn read_body(&self, location: MessageLocation) -> Result<Buffer, ArrowReadError> {
        if location.body_bytes > MAX_BODY_BYTES {
            let problem = "it is longer than 2 GiB; write smaller batches";
            return Err(self.damaged_error(location.offset, IpcError::Malformed { problem }));
        }
        self.check_range(location.body_offset, location.body_bytes)?;
        let mut space = MutableBuffer::from_len_zeroed(location.body_bytes as usize);
        self.read_exact_at(space.as_slice_mut(), location.body_offset)?;
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

    fn write_batches(as_file: bool, compression: Option<CompressionType>) -> Vec<u8> {
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

    fn open_bytes(bytes: &[u8]) -> Result<ArrowFile, ArrowReadError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        ArrowFile::open(Arc::new(LocalFile::open(file.path()).unwrap()))
    }

    fn read(bytes: &[u8], range: Range<usize>, columns: Option<&[usize]>) -> Result<Vec<RecordBatch>, ArrowReadError> {
        let mut batches = open_bytes(bytes)?.batches(range, columns);
        std::iter::from_fn(|| batches.next_batch().transpose()).collect()
    }

    #[test]
    fn files_and_streams_come_back_packed_or_not_and_in_parts() {
        for compression in [None, Some(CompressionType::ZSTD)] {
            let all: Vec<RecordBatch> = (0..BATCHES).map(batch).collect();
            let file = write_batches(true, compression);
            assert_eq!(read(&file, 0..usize::MAX, None).unwrap(), all);
            assert_eq!(read(&write_batches(false, compression), 0..usize::MAX, None).unwrap(), all);
            assert_eq!(read(&file, 1..3, None).unwrap(), all[1..3]);
            assert_eq!(read(&file, 4..9, Some(&[1])).unwrap(), [all[4].project(&[1]).unwrap()]);
            assert_eq!(open_bytes(&file).unwrap().row_count(), Some((ROWS * BATCHES) as u64));
        }
    }

    #[test]
    fn truncation_is_reported_wherever_the_file_ends() {
        for as_file in [true, false] {
            let whole = write_batches(as_file, Some(CompressionType::ZSTD));
            for kept in (0..whole.len()).step_by(7) {
                let found = read(&whole[..kept], 0..usize::MAX, None);
                assert!(found.is_err(), "{as_file} {kept} of {}", whole.len());
            }
        }
        let message = open_bytes(b"no arrow at all, whatever its name says").unwrap_err().to_string();
        assert!(message.contains("is no Arrow IPC") || message.contains("truncated"), "{message}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn damage_is_an_error_or_other_rows_and_never_more(
            as_file: bool, packed: bool, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
        ) {
            let mut bytes = write_batches(as_file, packed.then_some(CompressionType::ZSTD));
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
