//! Record batches into messages and back.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::writer::StreamEncoder;
use arrow_ipc::{MessageHeader, root_as_message};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::Bytes;

use crate::error::FlightError;
use crate::message::{Message, Outgoing, frame};
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
    let mut stream = Pieces { pieces: pieces.into_iter(), current: Buffer::from(Vec::<u8>::new()) };
    let mut result = Segments::default();
    let mut descriptor = Some(descriptor);
    while let Some(prefix) = stream.take(IPC_PREFIX_BYTES) {
        let header_bytes = prefix.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        // A length of zero ends the stream; Flight ends it otherwise.
        let Some(header) = (header_bytes > 0).then(|| stream.take(header_bytes)).flatten() else { break };
        let parsed =
            root_as_message(&header).map_err(|_| FlightError::Malformed { problem: "its header is damaged" })?;
        let body = stream.take_pieces(parsed.bodyLength() as usize);
        let is_batch = parsed.header_type() == MessageHeader::RecordBatch;
        result.append(frame(Outgoing {
            descriptor: descriptor.take().unwrap_or_default(),
            header: &header,
            app_metadata: if is_batch { app_metadata } else { &[] },
            body,
        }));
    }
    Ok(result)
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
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
}

impl BatchDecoder {
    /// The schema, once it was there.
    pub(crate) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// [`FlightError::Arrow`], [`FlightError::Malformed`]. Offsets and text are checked before a batch is handed out.
    pub(crate) fn decode(&mut self, message: &Message) -> Result<Decoded, FlightError> {
        if message.header.is_empty() {
            return Ok(Decoded::Nothing);
        }
        // Bytes of strangers have made the reader of Arrow 59 panic; nothing it holds outlives a panic.
        catch_unwind(AssertUnwindSafe(|| self.decode_unguarded(message)))
            .unwrap_or(Err(FlightError::Malformed { problem: "its buffers contradict its header" }))
    }

    fn decode_unguarded(&mut self, message: &Message) -> Result<Decoded, FlightError> {
        const NO_SCHEMA: FlightError = FlightError::Malformed { problem: "it comes before the schema" };
        let header = root_as_message(&message.header);
        let header = header.map_err(|_| FlightError::Malformed { problem: "its header is damaged" })?;
        let missing = || ArrowError::IpcError("a header of another type than it says".into());
        match header.header_type() {
            MessageHeader::Schema => {
                let schema = header.header_as_schema().ok_or_else(missing)?;
                self.schema = Some(Arc::new(arrow_ipc::convert::fb_to_schema(schema)));
                Ok(Decoded::Schema)
            }
            MessageHeader::RecordBatch => {
                let batch = header.header_as_record_batch().ok_or_else(missing)?;
                let schema = self.schema.clone().ok_or(NO_SCHEMA)?;
                let version = header.version();
                let batch = read_record_batch(&message.body, batch, schema, &self.dictionaries, None, &version)?;
                Ok(Decoded::Batch(batch))
            }
            MessageHeader::DictionaryBatch => {
                let batch = header.header_as_dictionary_batch().ok_or_else(missing)?;
                let schema = self.schema.clone().ok_or(NO_SCHEMA)?;
                read_dictionary(&message.body, batch, &schema, &mut self.dictionaries, &header.version())?;
                Ok(Decoded::Dictionary)
            }
            _ => Err(FlightError::Malformed { problem: "it is neither schema nor batch nor dictionary" }),
        }
    }
}
