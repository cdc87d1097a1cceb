//! Arrow IPC messages of untrusted origin, decoded with checks; and batches as bytes.
//!
//! Two independent crates use this module: messages arrive over the network and are stored in files. Input: the header of a
//! message and its body. Output: batches whose offsets and text were checked.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{StreamReader, read_dictionary, read_record_batch};
use arrow_ipc::writer::StreamWriter;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use crate::panics;

/// Maximum size of a batch with its buffers uncompressed, bytes; it is also accepted for a batch without compression.
const MAX_UNCOMPRESSED_BYTES: u64 = 1 << 30;
/// Maximum number of rows of a batch whose columns take no memory.
const MAX_ROWS_WITHOUT_DATA: u64 = 1 << 24;

/// An error that prevents decoding a message.
#[derive(Debug, thiserror::Error)]
pub enum IpcError {
    /// The bytes are not a message, or the message contradicts itself.
    #[error("{problem}")]
    Malformed {
        /// The defect.
        problem: &'static str,
    },
    /// Arrow's reader rejected the message.
    #[error(transparent)]
    Arrow(ArrowError),
}

impl From<ArrowError> for IpcError {
    fn from(error: ArrowError) -> Self {
        match error {
            // Decoded bytes are in memory: an I/O error of Arrow means that a buffer could not be decompressed.
            ArrowError::IoError(problem, _) => Self::Arrow(ArrowError::IpcError(problem)),
            error => Self::Arrow(error),
        }
    }
}

/// The content of a message.
#[derive(Clone, Debug)]
pub enum IpcMessage {
    /// The stream's schema; it precedes everything else.
    Schema,
    /// A batch.
    Batch(RecordBatch),
    /// Values that later batches refer to.
    Dictionary,
}

/// A decoder of the messages of one stream or one file. Batches share the memory of their message.
#[derive(Clone, Debug, Default)]
pub struct IpcDecoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl IpcDecoder {
    /// Creates a decoder of messages without a schema message, as in a file, whose footer holds the schema.
    pub fn with_schema(schema: SchemaRef) -> Self {
        Self { schema: Some(schema), dictionaries: HashMap::new() }
    }

    /// Returns the schema, once it is known.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Decodes one message; of a batch, only the columns with these 0-based indices, ascending.
    ///
    /// # Errors
    /// [`IpcError`] for a malformed message or one that Arrow's reader rejects.
    pub fn decode(&mut self, header: &[u8], body: &Buffer, columns: Option<&[usize]>) -> Result<IpcMessage, IpcError> {
        catch_decoder_panic(|| self.decode_without_catching_panics(header, body, columns))
    }

    fn decode_without_catching_panics(
        &mut self,
        header: &[u8],
        body: &Buffer,
        columns: Option<&[usize]>,
    ) -> Result<IpcMessage, IpcError> {
        const NO_SCHEMA: IpcError = IpcError::Malformed { problem: "it comes before the schema" };
        let header = parse_header(header)?;
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
                check_declared_sizes(&batch, body)?;
                let version = header.version();
                let batch = read_record_batch(body, batch, schema, &self.dictionaries, columns, &version)?;
                Ok(IpcMessage::Batch(batch))
            }
            MessageHeader::DictionaryBatch => {
                let batch = header.header_as_dictionary_batch().ok_or_else(missing)?;
                let schema = self.schema.clone().ok_or(NO_SCHEMA)?;
                check_declared_sizes(&batch.data().ok_or_else(missing)?, body)?;
                read_dictionary(body, batch, &schema, &mut self.dictionaries, &header.version())?;
                Ok(IpcMessage::Dictionary)
            }
            _ => Err(IpcError::Malformed { problem: "it is neither schema nor batch nor dictionary" }),
        }
    }
}

/// Runs a decoder. Untrusted bytes have made the reader of Arrow 59 panic; no state of it is used after a panic.
///
/// # Errors
/// Those of `read`; [`IpcError::Malformed`] where it panics.
pub fn catch_decoder_panic<T>(read: impl FnOnce() -> Result<T, IpcError>) -> Result<T, IpcError> {
    panics::catch_panic(read).unwrap_or(Err(IpcError::Malformed { problem: "its buffers contradict its header" }))
}

fn parse_header(header: &[u8]) -> Result<arrow_ipc::Message<'_>, IpcError> {
    root_as_message(header).map_err(|_| IpcError::Malformed { problem: "its header is damaged" })
}

/// Returns the length of the body in bytes that the header of a message declares, and the number of rows of a batch.
///
/// # Errors
/// [`IpcError::Malformed`] for a damaged header or a negative length.
pub fn body_length_and_row_count(header: &[u8]) -> Result<(u64, Option<u64>), IpcError> {
    let header = parse_header(header)?;
    let number =
        |number: i64| u64::try_from(number).map_err(|_| IpcError::Malformed { problem: "it has a length below zero" });
    let rows = header.header_as_record_batch().map(|batch| number(batch.length())).transpose()?;
    Ok((number(header.bodyLength())?, rows))
}

/// Rejects a batch that declares more data than it can have. The reader of Arrow 59 allocates memory and takes time by the
/// declared sizes: gigabytes and half a minute for a few kilobytes.
fn check_declared_sizes(batch: &arrow_ipc::RecordBatch, body: &[u8]) -> Result<(), IpcError> {
    let wrong = |problem| Err(IpcError::Malformed { problem });
    let is_compressed = batch.compression().is_some();
    let mut unpacked_bytes = 0u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let offset_and_length = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes = offset_and_length.and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?));
        let Some(bytes) = bytes else { return wrong("a buffer lies outside its body") };
        let uncompressed_length = match bytes.first_chunk() {
            // Uncompressed length, or -1 for an uncompressed buffer (Arrow Columnar Format 1.5, "Compression").
            Some(length) if is_compressed => i64::from_le_bytes(*length),
            _ => -1,
        };
        unpacked_bytes =
            unpacked_bytes.saturating_add(u64::try_from(uncompressed_length).unwrap_or(bytes.len() as u64));
    }
    if unpacked_bytes > MAX_UNCOMPRESSED_BYTES {
        return wrong("its buffers say to unpack to more than 1 GiB");
    }
    // At least one bit for each value, except for columns without buffers.
    let max_rows = (8 * unpacked_bytes).max(MAX_ROWS_WITHOUT_DATA) as i64;
    let nodes = batch.nodes().into_iter().flatten();
    let plausible = |length: i64, nulls: i64| (0..=max_rows).contains(&length) && (0..=length).contains(&nulls);
    if !plausible(batch.length(), 0) || !nodes.into_iter().all(|node| plausible(node.length(), node.null_count())) {
        return wrong("it says to have more rows than data");
    }
    Ok(())
}

/// Writes a batch as an Arrow IPC stream.
///
/// # Errors
/// [`ArrowError`] if the batch cannot be encoded.
pub fn batch_to_bytes(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    writer.into_inner()
}

/// Reads a batch from trusted bytes, which [`batch_to_bytes`] wrote.
///
/// # Errors
/// [`ArrowError`] if the bytes have another origin.
pub fn batch_from_bytes(bytes: &[u8]) -> Result<RecordBatch, ArrowError> {
    let batch = StreamReader::try_new(bytes, None)?.next().transpose()?;
    batch.ok_or_else(|| ArrowError::IpcError("there is no batch".to_owned()))
}

/// Returns the schema of a file's footer, with panics caught.
///
/// # Errors
/// [`IpcError`] if the schema is invalid or the decoder panics.
pub fn schema_from_flatbuffer(schema: arrow_ipc::Schema) -> Result<Schema, IpcError> {
    catch_decoder_panic(|| Ok(arrow_ipc::convert::fb_to_schema(schema)))
}
