//! A reader of Arrow IPC files and streams of any origin, batch by batch.
//!
//! The input is not trusted and is not mapped into memory. Each message is copied into memory of its own, after
//! checking that the file is as long as the message claims. It is decoded with the checks of [`godwit_model::ipc`].

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
use godwit_model::schema::{UnknownVersion, check_version};

use godwit_io::random_access::RandomAccess;

/// First and last bytes of the file format; the streaming format does not have them. At the start, two bytes of padding
/// follow.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Bytes at the end of a file: the length of the footer and the magic bytes.
const FOOTER_TRAILER_BYTES: u64 = 10;
/// Bytes that precede the length of a message since Arrow 0.15.
const CONTINUATION_INDICATOR: [u8; 4] = [0xff; 4];
/// Maximum bytes of a message header or a footer, which suffices for hundreds of thousands of columns.
const MAX_HEADER_BYTES: u64 = 256 << 20;
/// Maximum bytes of a message body. The decoder also limits the decompressed size of its buffers.
const MAX_BODY_BYTES: u64 = 1 << 31;

/// A reason why an Arrow IPC file or stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArrowReadError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error in reading the file.
        #[source]
        source: io::Error,
    },
    /// The file is not Arrow IPC.
    #[error("{} is not Arrow IPC, neither a file nor a stream", path.display())]
    NotArrow {
        /// Path of the file.
        path: PathBuf,
    },
    /// The columns of the file have a version that this godwit does not know.
    #[error("{} has {version}", path.display())]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// The version of the file, and the version that this godwit reads.
        version: UnknownVersion,
    },
    /// The file is truncated.
    #[error("{} is truncated: {problem}; fetch or create it again", path.display())]
    Truncated {
        /// Path of the file.
        path: PathBuf,
        /// Description of what is missing.
        problem: &'static str,
    },
    /// A message of the file is invalid.
    #[error("{} is damaged, or not valid Arrow IPC: the message at byte {offset}", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the message in the file.
        offset: u64,
        /// The reason why the message is invalid.
        #[source]
        source: IpcError,
    },
}

/// The location of a message in the file.
#[derive(Clone, Copy, Debug)]
struct MessageLocation {
    offset: u64,
    /// Offset in the file of the body of the message.
    body_offset: u64,
    body_bytes: u64,
}

#[derive(Clone, Debug)]
enum IpcFormat {
    /// The file format, whose footer lists the offsets of dictionaries and batches.
    File { dictionaries: Vec<u64>, batches: Vec<u64>, rows: u64 },
    /// The streaming format, which consists of consecutive messages.
    Stream { first_message_offset: u64 },
}

/// An open Arrow IPC file or stream.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::fs::File;
/// use std::sync::Arc;
///
/// use arrow_array::{ArrayRef, RecordBatch, StringArray};
/// use godwit_columnar::{ArrowFile, ArrowFileWriter};
/// use godwit_io::random_access::LocalFile;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("samples.arrow");
/// let samples: ArrayRef = Arc::new(StringArray::from(vec!["NA12878", "NA12891"]));
/// let batch = RecordBatch::try_from_iter([("sample", samples)])?;
/// let mut writer = ArrowFileWriter::with_schema(&batch.schema(), File::create(&path)?)?;
/// writer.write(&batch)?;
/// writer.finish()?;
///
/// let file = ArrowFile::open(Arc::new(LocalFile::open(&path)?))?;
/// assert_eq!((file.row_count(), file.batch_count()), (Some(2), Some(1)));
/// assert_eq!(file.batches(0..1, None).next_batch()?, Some(batch));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ArrowFile {
    source: Arc<dyn RandomAccess>,
    schema: SchemaRef,
    format: IpcFormat,
}

impl ArrowFile {
    /// Opens a file or stream: reads the schema and, for a file, the offsets of the batches.
    ///
    /// # Errors
    /// [`ArrowReadError`] if the file cannot be read, is truncated, or is not valid Arrow IPC, or if its columns have an
    /// unknown version.
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, ArrowReadError> {
        let file = Self::open_format(MessageReader { source })?;
        check_version(file.schema.metadata())
            .map_err(|version| ArrowReadError::Version { path: file.source.path().to_owned(), version })?;
        Ok(file)
    }

    fn open_format(messages: MessageReader) -> Result<Self, ArrowReadError> {
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
        let no_footer = || messages.truncated_error("its footer, which lists its batches, is missing");
        let tail = messages
            .read_bytes(file_bytes.saturating_sub(FOOTER_TRAILER_BYTES), FOOTER_TRAILER_BYTES.min(file_bytes))?;
        let tail: [u8; FOOTER_TRAILER_BYTES as usize] = tail.try_into().map_err(|_| no_footer())?;
        let footer_bytes = read_footer_length(tail).map_err(|_| no_footer())? as u64;
        let offset = file_bytes.checked_sub(FOOTER_TRAILER_BYTES + footer_bytes).ok_or_else(no_footer)?;
        let damaged = |problem| messages.damaged_error(offset, IpcError::Malformed { problem });
        if footer_bytes > MAX_HEADER_BYTES {
            return Err(damaged("the footer claims more than 256 MiB"));
        }
        let footer = messages.read_bytes(offset, footer_bytes)?;
        let footer = root_as_footer(&footer).map_err(|_| damaged("the footer is invalid"))?;
        let schema = footer.schema().ok_or_else(|| damaged("the footer has no schema"))?;
        let schema = schema_from_flatbuffer(schema).map_err(|source| messages.damaged_error(offset, source))?;
        let dictionaries: Vec<u64> =
            footer.dictionaries().iter().flatten().map(|block| block.offset() as u64).collect();
        let batches: Vec<u64> = footer.recordBatches().iter().flatten().map(|block| block.offset() as u64).collect();
        let mut rows = 0u64;
        for offset in &batches {
            let problem = "the footer points to an offset without a batch";
            let batch_error = || messages.damaged_error(*offset, IpcError::Malformed { problem });
            let (_, header) = messages.read_header(*offset)?.ok_or_else(batch_error)?;
            let (_, batch_rows) =
                body_length_and_row_count(&header).map_err(|source| messages.damaged_error(*offset, source))?;
            rows = rows.saturating_add(batch_rows.ok_or_else(batch_error)?);
        }
        let format = IpcFormat::File { dictionaries, batches, rows };
        Ok(Self { schema: Arc::new(schema), source: messages.source, format })
    }

    /// Returns the schema with its metadata.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the length of the file in bytes.
    pub fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    /// Returns the number of rows, from the headers of the batches of a file; `None` for a stream.
    pub fn row_count(&self) -> Option<u64> {
        match &self.format {
            IpcFormat::File { rows, .. } => Some(*rows),
            IpcFormat::Stream { .. } => None,
        }
    }

    /// Returns the number of batches of a file; `None` for a stream, which can only be read as a whole.
    pub fn batch_count(&self) -> Option<usize> {
        match &self.format {
            IpcFormat::File { batches, .. } => Some(batches.len()),
            IpcFormat::Stream { .. } => None,
        }
    }

    /// Returns an iterator over the batches of a file whose 0-based numbers are in `range`, or over all batches of a
    /// stream. `columns` are ascending indexes in the schema; `None` means all columns.
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

/// The messages of a file that are still to be read.
#[derive(Debug)]
enum MessageQueue {
    /// Offsets of messages in a file, in reverse order.
    Offsets(Vec<u64>),
    /// All messages of a stream from this offset on.
    Sequential(u64),
}

/// An iterator over record batches of a file or stream.
#[derive(Debug)]
pub struct ArrowBatches {
    messages: MessageReader,
    decoder: IpcDecoder,
    columns: Option<Vec<usize>>,
    queue: MessageQueue,
}

impl ArrowBatches {
    /// Returns the next batch that is not empty, or `None` after the last batch.
    ///
    /// # Errors
    /// [`ArrowReadError`] if the file cannot be read, is truncated, or contains an invalid message.
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
                let problem = "the footer points to an offset without a message";
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

/// A reader of messages at given offsets of a file.
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

    /// Checks that the file contains this range of bytes. This check precedes the allocation of memory for them.
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

    /// Reads the header of the message at an offset; returns `None` if the end-of-stream marker is at this offset.
    fn read_header(&self, offset: u64) -> Result<Option<(MessageLocation, Vec<u8>)>, ArrowReadError> {
        if offset == self.source.byte_len() {
            return Err(self.truncated_error("the end-of-stream marker is missing"));
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
    use godwit_io::random_access::LocalFile;
    use proptest::prelude::*;

    use super::*;

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
        assert!(message.contains("is not Arrow IPC") || message.contains("truncated"), "{message}");
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
