//! Encoding of record batches as Flight messages, and decoding.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use godwit_model::ipc::{IpcDecoder, IpcMessage};

use crate::error::FlightError;
use crate::message::{FlightDataMessage, OutgoingMessage, encode_message};
use crate::pool::StreamProgress;
use crate::segments::Segments;

/// Bytes before each message of an IPC stream: marker and length (Arrow Columnar Format 1.5, "Encapsulated message format").
const IPC_PREFIX_BYTES: usize = 8;

/// An encoder for batches of one schema. The schema is sent with the first batch.
pub(crate) struct BatchEncoder {
    encoder: StreamEncoder,
    schema: Schema,
    is_started: bool,
}

impl BatchEncoder {
    /// Creates an encoder.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    pub(crate) fn new(schema: &Schema) -> Result<Self, FlightError> {
        Ok(Self { encoder: StreamEncoder::try_new(schema)?, schema: schema.clone(), is_started: false })
    }

    /// Returns the bytes of a batch, after its dictionaries where there are any. `descriptor` is added to the first message,
    /// `app_metadata` to the batch.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the batch does not have the schema, or is too large.
    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        descriptor: &[u8],
        app_metadata: &[u8],
    ) -> Result<Segments, FlightError> {
        self.is_started = true;
        encode_stream(self.encoder.encode(batch)?, descriptor, app_metadata)
    }

    /// Adds the messages that [`Self::encode`] would make of a batch to `progress`, instead of encoding them.
    ///
    /// # Errors
    /// As for [`Self::encode`].
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

    /// Returns what is to be sent after the last batch: the schema, where there was no batch.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    pub(crate) fn finish(&mut self, descriptor: &[u8]) -> Result<Segments, FlightError> {
        if self.is_started {
            return Ok(Segments::default());
        }
        self.is_started = true;
        encode_stream(StreamEncoder::try_new(&self.schema)?.finish()?, descriptor, &[])
    }
}

/// Encodes metadata without a batch.
pub(crate) fn encode_metadata(descriptor: &[u8], app_metadata: &[u8]) -> Segments {
    encode_message(OutgoingMessage { descriptor, app_metadata, ..OutgoingMessage::default() })
}

/// Encodes an IPC stream in pieces as Flight messages.
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

/// Splits an IPC stream in pieces: kind, header and body of each message.
fn for_each_message(
    pieces: Vec<Buffer>,
    mut found: impl FnMut(MessageHeader, &[u8], Vec<Buffer>),
) -> Result<(), FlightError> {
    let mut stream = BufferReader { pieces: pieces.into_iter(), current: Buffer::from(Vec::<u8>::new()) };
    while let Some(prefix) = stream.read_bytes(IPC_PREFIX_BYTES) {
        let header_bytes = prefix.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        // A length of zero ends an IPC stream; Flight ends its streams otherwise.
        let Some(header) = (header_bytes > 0).then(|| stream.read_bytes(header_bytes)).flatten() else { break };
        let parsed =
            root_as_message(&header).map_err(|_| FlightError::Malformed { problem: "its header is damaged" })?;
        let body = stream.read_buffers(parsed.bodyLength() as usize);
        found(parsed.header_type(), &header, body);
    }
    Ok(())
}

/// A reader over bytes in pieces.
struct BufferReader {
    pieces: std::vec::IntoIter<Buffer>,
    current: Buffer,
}

impl BufferReader {
    /// Returns the next contiguous bytes, `max_bytes` at most; empty at the end.
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

    /// Copies the next bytes; `None` where fewer are left.
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

/// One message of an upload or an exchange; named as in Arrow's other libraries.
#[derive(Clone, Debug)]
pub struct FlightStreamChunk {
    /// A batch; `None` where only metadata is sent.
    pub batch: Option<RecordBatch>,
    /// Its application metadata.
    pub app_metadata: Bytes,
}

/// The content of a decoded message.
#[derive(Clone, Debug)]
pub(crate) enum DecodedMessage {
    /// The stream's schema; the first message.
    Schema,
    /// A batch.
    Batch(RecordBatch),
    /// A dictionary of later batches.
    Dictionary,
    /// Metadata alone.
    Metadata,
}

/// Decodes the messages of one stream. Batches share the memory of their message.
#[derive(Debug, Default)]
pub(crate) struct BatchDecoder {
    inner: IpcDecoder,
}

impl BatchDecoder {
    /// Returns the schema, once it was received.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.inner.schema()
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// [`FlightError::Arrow`], [`FlightError::Malformed`]. Offsets and text are checked before a batch is returned.
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

    /// Returns the messages of a stream of one batch of numbers, compressed or not: the schema and the batch.
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
        // The first buffer that is not empty, that of the values, begins with its uncompressed length.
        let at = body.windows(8).position(|bytes| bytes == 800_000i64.to_le_bytes()).unwrap();
        body[at..at + 8].copy_from_slice(&(1i64 << 40).to_le_bytes());
        bomb[1].body = Buffer::from_vec(body);
        let refused = decode_last(&bomb).unwrap_err();
        assert!(refused.to_string().contains("more than 1 GiB"), "{refused}");
        // The number of rows is in the header, in the batch and in its column.
        let mut rows = messages(false);
        let many = (1i64 << 50).to_le_bytes();
        for at in 0..rows[1].header.len() - 8 {
            if rows[1].header[at..at + 8] == 100_000i64.to_le_bytes() {
                rows[1].header[at..at + 8].copy_from_slice(&many);
            }
        }
        let refused = decode_last(&rows).unwrap_err();
        assert!(refused.to_string().contains("more rows than data"), "{refused}");
        let mut cut = messages(false);
        cut[1].body = cut[1].body.slice_with_length(0, 1000);
        assert!(decode_last(&cut).unwrap_err().to_string().contains("outside its body"));
    }
}
