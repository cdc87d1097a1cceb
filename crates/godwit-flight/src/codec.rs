//! Record batches into messages and back.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use godwit_model::ipc::{IpcDecoder, IpcMessage};

use crate::error::FlightError;
use crate::message::{Message, Outgoing, frame};
use crate::pool::Come;
use crate::segments::Segments;

/// Mark and length before each message of an IPC stream (Arrow Columnar Format 1.5, "Encapsulated message format").
const IPC_PREFIX_BYTES: usize = 8;

/// Encodes batches of one schema. The first batch brings the schema along.
pub(crate) struct BatchEncoder {
    encoder: StreamEncoder,
    schema: Schema,
    started: bool,
}

impl BatchEncoder {
    /// An encoder.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the schema cannot be sent.
    pub(crate) fn new(schema: &Schema) -> Result<Self, FlightError> {
        Ok(Self { encoder: StreamEncoder::try_new(schema)?, schema: schema.clone(), started: false })
    }

    /// The bytes of a batch, with dictionaries before it where there are any. `descriptor` goes with the first message,
    /// `app_metadata` with the batch.
    ///
    /// # Errors
    /// [`FlightError::Arrow`]: the batch does not have the schema, or is too large.
    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        descriptor: &[u8],
        app_metadata: &[u8],
    ) -> Result<Segments, FlightError> {
        self.started = true;
        segments(self.encoder.encode(batch)?, descriptor, app_metadata)
    }

    /// Tells `come` of the messages that [`Self::encode`] makes of a batch, which it is in place of.
    ///
    /// # Errors
    /// As for [`Self::encode`].
    pub(crate) fn digest(&mut self, batch: &RecordBatch, come: &mut Come) -> Result<(), FlightError> {
        self.started = true;
        each_message(self.encoder.encode(batch)?, |kind, header, body| {
            if kind != MessageHeader::Schema {
                come.message(header, &body);
            }
        })
    }

    /// What is still to be sent when there are no more batches: the schema, where there was none.
    ///
    /// # Errors
    /// [`FlightError::Arrow`].
    pub(crate) fn finish(&mut self, descriptor: &[u8]) -> Result<Segments, FlightError> {
        if self.started {
            return Ok(Segments::default());
        }
        self.started = true;
        segments(StreamEncoder::try_new(&self.schema)?.finish()?, descriptor, &[])
    }
}

/// The bytes of metadata without a batch.
pub(crate) fn encode_metadata(descriptor: &[u8], app_metadata: &[u8]) -> Segments {
    frame(Outgoing { descriptor, app_metadata, ..Outgoing::default() })
}

/// An IPC stream in pieces as Flight messages.
fn segments(pieces: Vec<Buffer>, descriptor: &[u8], app_metadata: &[u8]) -> Result<Segments, FlightError> {
    let mut result = Segments::default();
    let mut descriptor = Some(descriptor);
    each_message(pieces, |kind, header, body| {
        let app_metadata = if kind == MessageHeader::RecordBatch { app_metadata } else { &[] };
        let descriptor = descriptor.take().unwrap_or_default();
        result.append(frame(Outgoing { descriptor, header, app_metadata, body }));
    })?;
    Ok(result)
}

/// Takes an IPC stream in pieces apart: kind, header and body of each message.
fn each_message(
    pieces: Vec<Buffer>,
    mut found: impl FnMut(MessageHeader, &[u8], Vec<Buffer>),
) -> Result<(), FlightError> {
    let mut stream = Pieces { pieces: pieces.into_iter(), current: Buffer::from(Vec::<u8>::new()) };
    while let Some(prefix) = stream.take(IPC_PREFIX_BYTES) {
        let header_bytes = prefix.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        // A length of zero ends the stream; Flight ends it otherwise.
        let Some(header) = (header_bytes > 0).then(|| stream.take(header_bytes)).flatten() else { break };
        let parsed =
            root_as_message(&header).map_err(|_| FlightError::Malformed { problem: "its header is damaged" })?;
        let body = stream.take_pieces(parsed.bodyLength() as usize);
        found(parsed.header_type(), &header, body);
    }
    Ok(())
}

/// Bytes in pieces.
struct Pieces {
    pieces: std::vec::IntoIter<Buffer>,
    current: Buffer,
}

impl Pieces {
    /// The next bytes that lie together, `most` at most; empty at the end.
    fn next(&mut self, most: usize) -> Buffer {
        while self.current.is_empty() {
            match self.pieces.next() {
                Some(piece) => self.current = piece,
                None => return self.current.clone(),
            }
        }
        let bytes = most.min(self.current.len());
        let piece = self.current.slice_with_length(0, bytes);
        self.current = self.current.slice(bytes);
        piece
    }

    /// A copy of the next bytes; `None` where fewer are left.
    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let pieces = self.take_pieces(bytes);
        let copied = pieces.iter().flat_map(|piece| piece.as_slice()).copied().collect::<Vec<u8>>();
        (copied.len() == bytes).then_some(copied)
    }

    fn take_pieces(&mut self, mut bytes: usize) -> Vec<Buffer> {
        let mut pieces = Vec::new();
        while bytes > 0 {
            let piece = self.next(bytes);
            if piece.is_empty() {
                break;
            }
            bytes -= piece.len();
            pieces.push(piece);
        }
        pieces
    }
}

/// One message of an upload or an exchange; stock libraries say `FlightStreamChunk`.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// A batch; `None` where only metadata is sent.
    pub batch: Option<RecordBatch>,
    /// What is said beside it.
    pub app_metadata: Bytes,
}

/// What a message held.
#[derive(Clone, Debug)]
pub(crate) enum Decoded {
    /// The stream's schema; comes first.
    Schema,
    /// A batch.
    Batch(RecordBatch),
    /// Values that later batches refer to.
    Dictionary,
    /// Metadata alone.
    Nothing,
}

/// Decodes the messages of one stream. Batches share the memory of their message.
#[derive(Debug, Default)]
pub(crate) struct BatchDecoder {
    inner: IpcDecoder,
}

impl BatchDecoder {
    /// The schema, once it was there.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.inner.schema()
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// [`FlightError::Arrow`], [`FlightError::Malformed`]. Offsets and text are checked before a batch is handed out.
    pub(crate) fn decode(&mut self, message: &Message) -> Result<Decoded, FlightError> {
        if message.header.is_empty() {
            return Ok(Decoded::Nothing);
        }
        Ok(match self.inner.decode(&message.header, &message.body, None)? {
            IpcMessage::Schema => Decoded::Schema,
            IpcMessage::Batch(batch) => Decoded::Batch(batch),
            IpcMessage::Dictionary => Decoded::Dictionary,
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

    /// The messages of a stream of one batch of numbers, packed or not: the schema, and the batch.
    fn messages(packed: bool) -> Vec<Message> {
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
            messages.push(Message { header, body, ..Message::default() });
        }
        messages
    }

    fn decoded(messages: &[Message]) -> Result<Decoded, FlightError> {
        let mut decoder = BatchDecoder::default();
        messages.iter().map(|message| decoder.decode(message)).last().expect("there are messages")
    }

    #[test]
    fn a_batch_that_says_to_be_more_than_it_can_be_is_refused_before_memory_is_taken() {
        for packed in [false, true] {
            let sound = messages(packed);
            assert!(matches!(decoded(&sound), Ok(Decoded::Batch(batch)) if batch.num_rows() == 100_000));
        }
        let mut bomb = messages(true);
        let mut body = bomb[1].body.to_vec();
        // The first buffer that is there, that of the values, begins with the bytes it unpacks to.
        let at = body.windows(8).position(|bytes| bytes == 800_000i64.to_le_bytes()).unwrap();
        body[at..at + 8].copy_from_slice(&(1i64 << 40).to_le_bytes());
        bomb[1].body = Buffer::from_vec(body);
        let refused = decoded(&bomb).unwrap_err();
        assert!(refused.to_string().contains("more than 1 GiB"), "{refused}");
        // Its number of rows stands in the header, in the batch and in its column.
        let mut rows = messages(false);
        let many = (1i64 << 50).to_le_bytes();
        for at in 0..rows[1].header.len() - 8 {
            if rows[1].header[at..at + 8] == 100_000i64.to_le_bytes() {
                rows[1].header[at..at + 8].copy_from_slice(&many);
            }
        }
        let refused = decoded(&rows).unwrap_err();
        assert!(refused.to_string().contains("more rows than data"), "{refused}");
        let mut cut = messages(false);
        cut[1].body = cut[1].body.slice_with_length(0, 1000);
        assert!(decoded(&cut).unwrap_err().to_string().contains("outside its body"));
    }
}
