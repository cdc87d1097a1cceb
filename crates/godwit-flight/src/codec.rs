//! Encoding of record batches as Flight messages, and decoding of Flight messages.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use godwit_model::ipc::{IpcDecoder, IpcMessage};

use crate::error::FlightError;
use crate::message::{FlightDataMessage, OutgoingMessage, encode_message};
use crate::segments::Segments;
use crate::stream_progress::StreamProgress;

/// Bytes of continuation marker and length before each message of an Arrow IPC stream (Arrow Columnar Format 1.5,
/// "Encapsulated message format").
const IPC_PREFIX_BYTES: usize = 8;

/// An encoder for batches of one schema. The bytes of the first batch also contain the schema message.
pub(crate) struct BatchEncoder {
    encoder: StreamEncoder,
    schema: Schema,
    is_started: bool,
}

impl BatchEncoder {
    /// Creates an encoder for batches of this schema.
    ///
    /// # Errors
    /// [`FlightError::Arrow`] if the schema cannot be encoded.
    pub(crate) fn new(schema: &Schema) -> Result<Self, FlightError> {
        Ok(Self { encoder: StreamEncoder::try_new(schema)?, schema: schema.clone(), is_started: false })
    }

    /// Encodes a batch, preceded by its dictionaries. The first message contains `descriptor`, and the message with the
    /// batch contains `app_metadata`.
    ///
    /// # Errors
    /// [`FlightError::Arrow`] if the batch has another schema or is too large.
    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        descriptor: &[u8],
        app_metadata: &[u8],
    ) -> Result<Segments, FlightError> {
        self.is_started = true;
        encode_stream(self.encoder.encode(batch)?, descriptor, app_metadata)
    }

    /// Adds the messages of a batch to `progress` as if they had been sent. Used to skip batches that a client received
    /// earlier.
    ///
    /// # Errors
    /// The same errors as [`Self::encode`].
    pub(crate) fn add_to_progress(
        &mut self,
        batch: &RecordBatch,
        progress: &mut StreamProgress,
    ) -> Result<(), FlightError> {
        self.is_started = true;
        for_each_message(self.encoder.encode(batch)?, |kind, header, body| {
            if kind != MessageHeader::Schema {
                progress.add_message(header, &body);
            }
        })
    }

    /// Returns the bytes to send after the last batch: the schema if no batch was encoded, otherwise nothing.
    ///
    /// # Errors
    /// [`FlightError::Arrow`] if the schema cannot be encoded.
    pub(crate) fn finish(&mut self, descriptor: &[u8]) -> Result<Segments, FlightError> {
        if self.is_started {
            return Ok(Segments::default());
        }
        self.is_started = true;
        encode_stream(StreamEncoder::try_new(&self.schema)?.finish()?, descriptor, &[])
    }
}

/// Encodes a Flight message with metadata and without a batch.
pub(crate) fn encode_metadata(descriptor: &[u8], app_metadata: &[u8]) -> Segments {
    encode_message(OutgoingMessage { descriptor, app_metadata, ..OutgoingMessage::default() })
}

/// Converts the bytes of an Arrow IPC stream, given as a list of buffers, to Flight messages.
fn encode_stream(pieces: Vec<Buffer>, descriptor: &[u8], app_metadata: &[u8]) -> Result<Segments, FlightError> {
    let mut result = Segments::default();
    let mut descriptor = Some(descriptor);
    for_each_message(pieces, |kind, header, body| {
        let app_metadata = if kind == MessageHeader::RecordBatch { app_metadata } else { &[] };
        let descriptor = descriptor.take().unwrap_or_default();
        result.append(encode_message(OutgoingMessage { descriptor, header, app_metadata, body }));
    })?;
    Ok(result)
}

/// Splits the bytes of an Arrow IPC stream into messages, and calls `found` with kind, header and body of each.
fn for_each_message(
    pieces: Vec<Buffer>,
    mut found: impl FnMut(MessageHeader, &[u8], Vec<Buffer>),
) -> Result<(), FlightError> {
    let mut stream = BufferReader { pieces: pieces.into_iter(), current: Buffer::from(Vec::<u8>::new()) };
    while let Some(prefix) = stream.read_bytes(IPC_PREFIX_BYTES) {
        let header_bytes = prefix.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        // A length of zero marks the end of an IPC stream. Flight does not send this mark.
        let Some(header) = (header_bytes > 0).then(|| stream.read_bytes(header_bytes)).flatten() else { break };
        let parsed = root_as_message(&header)
            .map_err(|_| FlightError::Malformed { problem: "the message header is damaged" })?;
        let body = stream.read_buffers(parsed.bodyLength() as usize);
        found(parsed.header_type(), &header, body);
    }
    Ok(())
}

/// A reader of bytes that are spread over several buffers.
struct BufferReader {
    pieces: std::vec::IntoIter<Buffer>,
    current: Buffer,
}

impl BufferReader {
    /// Returns the next bytes of one buffer without a copy, `max_bytes` at most; empty at the end.
    fn next_contiguous(&mut self, max_bytes: usize) -> Buffer {
        while self.current.is_empty() {
            match self.pieces.next() {
                Some(piece) => self.current = piece,
                None => return self.current.clone(),
            }
        }
        let bytes = max_bytes.min(self.current.len());
        let piece = self.current.slice_with_length(0, bytes);
        self.current = self.current.slice(bytes);
        piece
    }

    /// Copies the next `bytes` bytes; `None` if fewer are left.
    fn read_bytes(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let pieces = self.read_buffers(bytes);
        let copied = pieces.iter().flat_map(|piece| piece.as_slice()).copied().collect::<Vec<u8>>();
        (copied.len() == bytes).then_some(copied)
    }

    fn read_buffers(&mut self, mut bytes: usize) -> Vec<Buffer> {
        let mut pieces = Vec::new();
        while bytes > 0 {
            let piece = self.next_contiguous(bytes);
            if piece.is_empty() {
                break;
            }
            bytes -= piece.len();
            pieces.push(piece);
        }
        pieces
    }
}

/// A batch, metadata, or both, as one message of an upload or an exchange. Other Arrow libraries use the same name.
///
/// # Examples
///
/// A message of metadata and a batch, both returned by a server that echoes:
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_flight::measure::{Workload, WorkloadDataPlane};
/// # use godwit_flight::{Address, Client, ConnectionSecurity, FlightDescriptor, Routes, Server, TransportOptions};
/// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
/// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
/// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
/// # let address = server.address().clone();
/// # tokio::spawn(server.serve());
/// # let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
/// # let batch = "fixed/2/1000/16000".parse::<Workload>()?.batches().remove(0);
/// let (mut sender, echoes) = client.exchange(&FlightDescriptor::new_cmd("echo"), &batch.schema())?;
/// let sending = async {
///     sender.send_metadata(b"start").await?;
///     sender.send(&batch, b"first").await?;
///     sender.finish().await
/// };
/// let ((), mut echoes) = tokio::try_join!(sending, echoes)?;
/// let start = echoes.next_chunk().await?.ok_or("the exchange has ended")?;
/// assert!(start.batch.is_none() && start.app_metadata == "start");
/// let first = echoes.next_chunk().await?.ok_or("the exchange has ended")?;
/// assert!(first.batch.as_ref() == Some(&batch) && first.app_metadata == "first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FlightStreamChunk {
    /// The batch; `None` if the message contains only metadata.
    pub batch: Option<RecordBatch>,
    /// Application metadata, sent with the batch or alone; may be empty.
    pub app_metadata: Bytes,
}

/// The content of a decoded Flight message.
#[derive(Clone, Debug)]
pub(crate) enum DecodedMessage {
    /// The schema of all batches, in the first message of a call.
    Schema,
    /// A batch.
    Batch(RecordBatch),
    /// A dictionary that later batches use; the decoder stores it.
    Dictionary,
    /// Application metadata without a batch.
    Metadata,
}

/// A decoder of the Flight messages of one call. A decoded batch shares the memory of its message.
#[derive(Debug, Default)]
pub(crate) struct BatchDecoder {
    inner: IpcDecoder,
}

impl BatchDecoder {
    /// Returns the schema; `None` until its message was decoded.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.inner.schema()
    }

    /// Decodes one Flight message.
    ///
    /// # Errors
    /// [`FlightError::Arrow`] or [`FlightError::Malformed`] if the message is invalid. Offsets and UTF-8 text in a
    /// batch are validated too.
    pub(crate) fn decode(&mut self, message: &FlightDataMessage) -> Result<DecodedMessage, FlightError> {
        if message.header.is_empty() {
            return Ok(DecodedMessage::Metadata);
        }
        Ok(match self.inner.decode(&message.header, &message.body, None)? {
            IpcMessage::Schema => DecodedMessage::Schema,
            IpcMessage::Batch(batch) => DecodedMessage::Batch(batch),
            IpcMessage::Dictionary => DecodedMessage::Dictionary,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};

    use super::*;

    /// Returns two messages, a schema and a batch of 100,000 integers. If `packed`, the batch is compressed.
    fn messages(packed: bool) -> Vec<FlightDataMessage> {
        let compression = packed.then_some(CompressionType::ZSTD);
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let numbers = Arc::new(Int64Array::from(vec![7; 100_000])) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        writer.write(&batch).unwrap();
        let mut stream = writer.into_inner().unwrap();
        let mut messages = Vec::new();
        while stream.len() > IPC_PREFIX_BYTES {
            let header_bytes = u32::from_le_bytes(stream[4..8].try_into().unwrap()) as usize;
            let header = stream[IPC_PREFIX_BYTES..][..header_bytes].to_vec();
            let body_bytes = root_as_message(&header).unwrap().bodyLength() as usize;
            let body_start = IPC_PREFIX_BYTES + header_bytes;
            let body = Buffer::from_slice_ref(&stream[body_start..][..body_bytes]);
            stream.drain(..body_start + body_bytes);
            messages.push(FlightDataMessage { header, body, ..FlightDataMessage::default() });
        }
        messages
    }

    fn decode_last(messages: &[FlightDataMessage]) -> Result<DecodedMessage, FlightError> {
        let mut decoder = BatchDecoder::default();
        messages.iter().map(|message| decoder.decode(message)).last().expect("there are messages")
    }

    #[test]
    fn a_batch_with_impossible_sizes_is_rejected_before_memory_is_allocated() {
        for packed in [false, true] {
            let sound = messages(packed);
            assert!(matches!(decode_last(&sound), Ok(DecodedMessage::Batch(batch)) if batch.num_rows() == 100_000));
        }
        let mut bomb = messages(true);
        let mut body = bomb[1].body.to_vec();
        // A compressed buffer begins with its uncompressed length. The buffer of the values is the first one that is
        // not empty.
        let at = body.windows(8).position(|bytes| bytes == 800_000i64.to_le_bytes()).unwrap();
        body[at..at + 8].copy_from_slice(&(1i64 << 40).to_le_bytes());
        bomb[1].body = Buffer::from_vec(body);
        let refused = decode_last(&bomb).unwrap_err();
        assert!(refused.to_string().contains("more than 1 GiB"), "{refused}");
        // The header contains the number of rows twice: for the batch and for its column.
        let mut rows = messages(false);
        let many = (1i64 << 50).to_le_bytes();
        for at in 0..rows[1].header.len() - 8 {
            if rows[1].header[at..at + 8] == 100_000i64.to_le_bytes() {
                rows[1].header[at..at + 8].copy_from_slice(&many);
            }
        }
        let refused = decode_last(&rows).unwrap_err();
        assert!(refused.to_string().contains("more rows than its data"), "{refused}");
        let mut cut = messages(false);
        cut[1].body = cut[1].body.slice_with_length(0, 1000);
        assert!(decode_last(&cut).unwrap_err().to_string().contains("outside its body"));
    }
}
