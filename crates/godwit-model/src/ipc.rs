//! Checked decoding of Arrow IPC messages from untrusted sources, and conversion of record batches to and from bytes.
//!
//! Two independent crates use this module, because messages are received over the network and read from files. The
//! input is the header and the body of a message. The output is a record batch whose offsets and text were checked.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{StreamReader, read_dictionary, read_record_batch};
use arrow_ipc::writer::StreamWriter;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use crate::panics;

/// Maximum total size of the buffers of a batch after decompression, bytes. Batches without compression have the same
/// limit.
const MAX_UNCOMPRESSED_BYTES: u64 = 1 << 30;
/// Maximum number of rows of a batch whose columns do not take memory, such as columns of type null.
const MAX_ROWS_WITHOUT_DATA: u64 = 1 << 24;

/// An error that prevents decoding a message.
#[derive(Debug, thiserror::Error)]
pub enum IpcError {
    /// The bytes are not an Arrow IPC message, or values in the message contradict each other or exceed a limit.
    #[error("{problem}")]
    Malformed {
        /// The reason why the message is malformed; the subject is the message.
        problem: &'static str,
    },
    /// Arrow's reader rejected the message.
    #[error(transparent)]
    Arrow(ArrowError),
}

impl From<ArrowError> for IpcError {
    fn from(error: ArrowError) -> Self {
        match error {
            // The bytes are in memory, so an I/O error of the Arrow library means that a buffer cannot be decompressed.
            ArrowError::IoError(problem, _) => Self::Arrow(ArrowError::IpcError(problem)),
            error => Self::Arrow(error),
        }
    }
}

/// The content of a decoded message.
#[derive(Clone, Debug)]
pub enum IpcMessage {
    /// The schema of the stream. It precedes all other messages.
    Schema,
    /// A record batch.
    Batch(RecordBatch),
    /// A dictionary: values to which later batches refer by index.
    Dictionary,
}

/// A decoder of the messages of one Arrow IPC stream or file. Decoded batches share memory with the bodies of their
/// messages.
#[derive(Clone, Debug, Default)]
pub struct IpcDecoder {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl IpcDecoder {
    /// Creates a decoder with a known schema, for messages without a schema message. An Arrow IPC file has such
    /// messages, because its footer holds the schema.
    pub fn with_schema(schema: SchemaRef) -> Self {
        Self { schema: Some(schema), dictionaries: HashMap::new() }
    }

    /// Returns the schema, or `None` if the schema message has not been decoded yet.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Decodes one message. If `columns` is given, only the columns of a batch with these ascending 0-based indices are
    /// decoded.
    ///
    /// # Errors
    /// [`IpcError`] for a malformed message, and for a message that the reader of the `arrow-ipc` crate rejects.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use arrow_array::record_batch;
    /// use godwit_model::ipc::{IpcDecoder, IpcMessage};
    /// # use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
    ///
    /// let batch = record_batch!(("contig", Utf8, ["chr1", "chr2"]), ("position", Int32, [999, 5_000]))?;
    /// # let (mut tracker, options) = (DictionaryTracker::new(false), IpcWriteOptions::default());
    /// # let (_, message) =
    /// #     IpcDataGenerator::default().encode(&batch, &mut tracker, &options, &mut Default::default())?;
    /// # let (header, body) = (message.ipc_message, arrow_buffer::Buffer::from_vec(message.arrow_data));
    /// // `header` and `body` are the two parts of the message that contains the batch.
    /// let mut decoder = IpcDecoder::with_schema(batch.schema());
    /// let IpcMessage::Batch(positions) = decoder.decode(&header, &body, Some(&[1]))? else { panic!("not a batch") };
    /// assert_eq!(positions, batch.project(&[1])?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn decode(&mut self, header: &[u8], body: &Buffer, columns: Option<&[usize]>) -> Result<IpcMessage, IpcError> {
        catch_decoder_panic(|| self.decode_without_catching_panics(header, body, columns))
    }

    fn decode_without_catching_panics(
        &mut self,
        header: &[u8],
        body: &Buffer,
        columns: Option<&[usize]>,
    ) -> Result<IpcMessage, IpcError> {
        const NO_SCHEMA: IpcError = IpcError::Malformed { problem: "the message precedes the schema" };
        let header = parse_header(header)?;
        let missing = || ArrowError::IpcError("the header's type does not match its content".into());
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
            _ => Err(IpcError::Malformed { problem: "it is neither a schema nor a batch nor a dictionary" }),
        }
    }
}

/// Calls `read` and converts a panic into an error. The reader of Arrow 59 has panicked on untrusted bytes; its state
/// is not used after a panic.
///
/// # Errors
/// The errors of `read`; [`IpcError::Malformed`] if `read` panics.
fn catch_decoder_panic<T>(read: impl FnOnce() -> Result<T, IpcError>) -> Result<T, IpcError> {
    panics::catch_panic(read).unwrap_or(Err(IpcError::Malformed { problem: "its buffers contradict its header" }))
}

fn parse_header(header: &[u8]) -> Result<arrow_ipc::Message<'_>, IpcError> {
    root_as_message(header).map_err(|_| IpcError::Malformed { problem: "its header is damaged" })
}

/// Returns two values that the header of a message declares: the length of the body in bytes and, for a batch, the
/// number of rows.
///
/// # Errors
/// [`IpcError::Malformed`] if the header is damaged or declares a negative length.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_array::record_batch;
/// use godwit_model::ipc::body_length_and_row_count;
/// # use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
///
/// let batch = record_batch!(("contig", Utf8, ["chr1", "chr2"]), ("position", Int32, [999, 5_000]))?;
/// # let (mut tracker, options) = (DictionaryTracker::new(false), IpcWriteOptions::default());
/// # let (_, message) =
/// #     IpcDataGenerator::default().encode(&batch, &mut tracker, &options, &mut Default::default())?;
/// # let (header, body) = (message.ipc_message, message.arrow_data);
/// // `header` and `body` are the two parts of the message that contains the batch.
/// assert_eq!(body_length_and_row_count(&header)?, (body.len() as u64, Some(2)));
/// # Ok(())
/// # }
/// ```
pub fn body_length_and_row_count(header: &[u8]) -> Result<(u64, Option<u64>), IpcError> {
    let header = parse_header(header)?;
    let number =
        |number: i64| u64::try_from(number).map_err(|_| IpcError::Malformed { problem: "it has a negative length" });
    let rows = header.header_as_record_batch().map(|batch| number(batch.length())).transpose()?;
    Ok((number(header.bodyLength())?, rows))
}

/// Rejects a batch that declares more data than its body can contain. The reader of Arrow 59 uses memory and time in
/// proportion to the declared sizes: gigabytes and half a minute for a message of a few kilobytes.
fn check_declared_sizes(batch: &arrow_ipc::RecordBatch, body: &[u8]) -> Result<(), IpcError> {
    let wrong = |problem| Err(IpcError::Malformed { problem });
    let is_compressed = batch.compression().is_some();
    let mut unpacked_bytes = 0u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let offset_and_length = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes = offset_and_length.and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?));
        let Some(bytes) = bytes else { return wrong("a buffer is outside its body") };
        let uncompressed_length = match bytes.first_chunk() {
            // A compressed buffer starts with its uncompressed length, or with -1 if the data are not compressed (Arrow
            // Columnar Format 1.5, "Compression").
            Some(length) if is_compressed => i64::from_le_bytes(*length),
            _ => -1,
        };
        unpacked_bytes =
            unpacked_bytes.saturating_add(u64::try_from(uncompressed_length).unwrap_or(bytes.len() as u64));
    }
    if unpacked_bytes > MAX_UNCOMPRESSED_BYTES {
        return wrong("its buffers declare more than 1 GiB of uncompressed data");
    }
    // Each value takes at least one bit, except in columns without buffers.
    let max_rows = (8 * unpacked_bytes).max(MAX_ROWS_WITHOUT_DATA) as i64;
    let nodes = batch.nodes().into_iter().flatten();
    let plausible = |length: i64, nulls: i64| (0..=max_rows).contains(&length) && (0..=length).contains(&nulls);
    if !plausible(batch.length(), 0) || !nodes.into_iter().all(|node| plausible(node.length(), node.null_count())) {
        return wrong("it declares more rows than its data can hold");
    }
    Ok(())
}

/// Encodes a batch as the bytes of an Arrow IPC stream.
///
/// # Errors
/// [`ArrowError`] if the batch cannot be encoded.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_array::record_batch;
/// use godwit_model::ipc::{batch_from_bytes, batch_to_bytes};
///
/// let batch = record_batch!(("contig", Utf8, ["chr1", "chr2"]), ("position", Int32, [999, 5_000]))?;
/// let bytes = batch_to_bytes(&batch)?;
/// assert_eq!(batch_from_bytes(&bytes)?, batch);
/// # Ok(())
/// # }
/// ```
pub fn batch_to_bytes(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(batch)?;
    writer.into_inner()
}

/// Decodes a batch from trusted bytes that [`batch_to_bytes`] returned.
///
/// # Errors
/// [`ArrowError`] if the bytes are not an Arrow IPC stream with a batch.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_array::record_batch;
/// use godwit_model::ipc::{batch_from_bytes, batch_to_bytes};
///
/// let bytes = batch_to_bytes(&record_batch!(("position", Int32, [999, 5_000]))?)?;
/// let batch = batch_from_bytes(&bytes)?;
/// assert_eq!(batch.num_rows(), 2);
/// assert_eq!(batch.schema().field(0).name(), "position");
/// # Ok(())
/// # }
/// ```
pub fn batch_from_bytes(bytes: &[u8]) -> Result<RecordBatch, ArrowError> {
    let batch = StreamReader::try_new(bytes, None)?.next().transpose()?;
    batch.ok_or_else(|| ArrowError::IpcError("the stream contains no batch".to_owned()))
}

/// Decodes the schema in the footer of an Arrow IPC file. A panic of the decoder becomes an error.
///
/// # Errors
/// [`IpcError`] if the schema is invalid or the decoder panics.
pub fn schema_from_flatbuffer(schema: arrow_ipc::Schema) -> Result<Schema, IpcError> {
    catch_decoder_panic(|| Ok(arrow_ipc::convert::fb_to_schema(schema)))
}
