//! Arrow IPC messages of strangers, decoded behind checks; and a batch as bytes.
//!
//! Here because two crates that know nothing of each other need it: messages come over the network and lie in files. Flows in:
//! the header of a message and its body. Flows out: batches whose offsets and text were checked.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{StreamReader, read_dictionary, read_record_batch};
use arrow_ipc::writer::StreamWriter;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use crate::panics;

/// Bytes of a batch once its buffers are unpacked, at most: what is taken of one that is not packed.
const MAX_UNPACKED_BYTES: u64 = 1 << 30;
/// Rows of a batch whose columns take no memory, at most.
const MAX_ROWS_WITHOUT_DATA: u64 = 1 << 24;

/// Why a message cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum IpcError {
    /// It is none, or contradicts itself.
    #[error("{problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Arrow's reader refused it.
    #[error(transparent)]
    Arrow(ArrowError),
}

impl From<ArrowError> for IpcError {
    fn from(error: ArrowError) -> Self {
        match error {
            // What is decoded lies in memory: where Arrow speaks of I/O, a buffer could not be unpacked.
            ArrowError::IoError(problem, _) => Self::Arrow(ArrowError::IpcError(problem)),
            error => Self::Arrow(error),
        }
    }
}

/// What a message held.
#[derive(Clone, Debug)]
pub enum IpcMessage {
    /// The stream's schema; comes first.
    Schema,
    /// A batch.
    Batch(RecordBatch),
    /// Values that later batches refer to.
    Dictionary,
}

/// Decodes the messages of one stream, or of one file. Batches share the memory of their message.
#[derive(Clone, Debug, Default)]
pub struct IpcDecoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl IpcDecoder {
    /// Decodes messages that come without their schema: those of a file, whose end tells it.
    pub fn with_schema(schema: SchemaRef) -> Self {
        Self { schema: Some(schema), dictionaries: HashMap::new() }
    }

    /// The schema, once it was there.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Decodes one message; of a batch only some columns, by their 0-based index, ascending.
    ///
    /// # Errors
    /// [`IpcError`].
    pub fn decode(&mut self, header: &[u8], body: &Buffer, columns: Option<&[usize]>) -> Result<IpcMessage, IpcError> {
        unless_it_panics(|| self.decode_unguarded(header, body, columns))
    }

    fn decode_unguarded(
        &mut self,
        header: &[u8],
        body: &Buffer,
        columns: Option<&[usize]>,
    ) -> Result<IpcMessage, IpcError> {
        const NO_SCHEMA: IpcError = IpcError::Malformed { problem: "it comes before the schema" };
        let header = parsed(header)?;
        let missing = || ArrowError::IpcError("a header of another type than it says".into());
        match header.header_type() {
            MessageHeader::Schema => {
                let schema = header.header_as_schema().ok_or_else(missing)?;
                self.schema = Some(Arc::new(arrow_ipc::convert::fb_to_schema(schema)));
                Ok(IpcMessage::Schema)
            }
            MessageHeader::RecordBatch => {
                let batch = header.header_as_record_batch().ok_or_else(missing)?;
                let schema = self.schema.clone().ok_or(NO_SCHEMA)?;
                check_claims(&batch, body)?;
                let version = header.version();
                let batch = read_record_batch(body, batch, schema, &self.dictionaries, columns, &version)?;
                Ok(IpcMessage::Batch(batch))
            }
            MessageHeader::DictionaryBatch => {
                let batch = header.header_as_dictionary_batch().ok_or_else(missing)?;
                let schema = self.schema.clone().ok_or(NO_SCHEMA)?;
                check_claims(&batch.data().ok_or_else(missing)?, body)?;
                read_dictionary(body, batch, &schema, &mut self.dictionaries, &header.version())?;
                Ok(IpcMessage::Dictionary)
            }
            _ => Err(IpcError::Malformed { problem: "it is neither schema nor batch nor dictionary" }),
        }
    }
}

/// Bytes of strangers have made the reader of Arrow 59 panic; nothing it holds outlives a panic.
///
/// # Errors
/// Those of `read`; [`IpcError::Malformed`] where it panics.
pub fn unless_it_panics<T>(read: impl FnOnce() -> Result<T, IpcError>) -> Result<T, IpcError> {
    panics::unless_it_panics(read).unwrap_or(Err(IpcError::Malformed { problem: "its buffers contradict its header" }))
}

fn parsed(header: &[u8]) -> Result<arrow_ipc::Message<'_>, IpcError> {
    root_as_message(header).map_err(|_| IpcError::Malformed { problem: "its header is damaged" })
}

/// What the header of a message says of it: bytes of its body, and rows, where it is a batch.
///
/// # Errors
/// [`IpcError::Malformed`].
pub fn message_extent(header: &[u8]) -> Result<(u64, Option<u64>), IpcError> {
    let header = parsed(header)?;
    let number =
        |number: i64| u64::try_from(number).map_err(|_| IpcError::Malformed { problem: "it has a length below zero" });
    let rows = header.header_as_record_batch().map(|batch| number(batch.length())).transpose()?;
    Ok((number(header.bodyLength())?, rows))
}

/// Refuses a batch that says to be more than it can be: the reader of Arrow 59 takes memory and time by what is said, gigabytes
/// and half a minute for a few kilobytes.
fn check_claims(batch: &arrow_ipc::RecordBatch, body: &[u8]) -> Result<(), IpcError> {
    let wrong = |problem| Err(IpcError::Malformed { problem });
    let is_compressed = batch.compression().is_some();
    let mut unpacked_bytes = 0u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let place = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes = place.and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?));
        let Some(bytes) = bytes else { return wrong("a buffer lies outside its body") };
        let claimed = match bytes.first_chunk() {
            // Length of the data, or -1 where it is stored as it is (Arrow Columnar Format 1.5, "Compression").
            Some(length) if is_compressed => i64::from_le_bytes(*length),
            _ => -1,
        };
        unpacked_bytes = unpacked_bytes.saturating_add(u64::try_from(claimed).unwrap_or(bytes.len() as u64));
    }
    if unpacked_bytes > MAX_UNPACKED_BYTES {
        return wrong("its buffers say to unpack to more than 1 GiB");
    }
    // A bit for each value at least, but for columns that have no buffers.
    let most = (8 * unpacked_bytes).max(MAX_ROWS_WITHOUT_DATA) as i64;
    let nodes = batch.nodes().into_iter().flatten();
    let plausible = |length: i64, nulls: i64| (0..=most).contains(&length) && (0..=length).contains(&nulls);
    if !plausible(batch.length(), 0) || !nodes.into_iter().all(|node| plausible(node.length(), node.null_count())) {
        return wrong("it says to have more rows than data");
    }
    Ok(())
}

/// A batch as an Arrow IPC stream.
///
/// # Errors
/// [`ArrowError`]: it cannot be sent.
pub fn batch_to_bytes(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    writer.into_inner()
}

/// The batch that [`batch_to_bytes`] made bytes of, and nobody else.
///
/// # Errors
/// [`ArrowError`]: they are of another origin.
pub fn batch_from_bytes(bytes: &[u8]) -> Result<RecordBatch, ArrowError> {
    let batch = StreamReader::try_new(bytes, None)?.next().transpose()?;
    batch.ok_or_else(|| ArrowError::IpcError("there is no batch".to_owned()))
}

/// The schema that the end of a file tells, guarded.
///
/// # Errors
/// [`IpcError`].
pub fn schema_of(schema: arrow_ipc::Schema) -> Result<Schema, IpcError> {
    unless_it_panics(|| Ok(arrow_ipc::convert::fb_to_schema(schema)))
}
