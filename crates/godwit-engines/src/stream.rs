//! Reads and writes Arrow IPC streams, of which several follow each other in one pipe.
//!
//! The reader does not trust the bytes it receives. It limits lengths before it allocates memory, accepts only the
//! schemas of [`godwit_model::schema`], and turns a panic of the Arrow decoder into an error. This module does not
//! interpret the content of the streams.

use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::writer::StreamWriter as ArrowWriter;
use arrow_ipc::{Message, MessageHeader, convert, reader, root_as_message};
use arrow_schema::{Schema, SchemaRef};
use godwit_model::panics::catch_panic;
use godwit_model::schema::{self, metadata};

/// First four bytes of every encapsulated message (Arrow columnar format 1.4, "Encapsulated message format").
const CONTINUATION_MARKER: [u8; 4] = [0xff; 4];
/// Maximum length of a message header, bytes. The schema metadata of a stream may contain `@SQ` lines, about 60 bytes
/// per contig for at most a few 100,000 contigs.
const MAX_HEADER_BYTES: usize = 64 << 20;
/// Maximum length of the body of a batch, bytes. The offsets of a binary column are 32-bit numbers.
const MAX_BODY_BYTES: usize = 1 << 31;
/// Memory that is allocated at a time for the body of a batch, bytes. More is allocated only after these bytes have
/// arrived. The batches of godwit are smaller.
const BODY_READ_BYTES: usize = 32 << 20;

/// An error of reading a sequence of Arrow streams.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Reading the pipe failed.
    #[error("cannot read the pipe")]
    Io {
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The input ends in the middle of a stream.
    #[error("the stream ends in the middle of {within}")]
    Truncated {
        /// Description of the element that is truncated.
        within: &'static str,
    },
    /// The input is not an Arrow stream, or its schema is not one of [`godwit_model::schema`].
    #[error("the stream is malformed: {problem}")]
    Malformed {
        /// Description of the defect.
        problem: String,
    },
}

fn malformed_error(problem: impl Into<String>) -> StreamError {
    StreamError::Malformed { problem: problem.into() }
}

/// A reader of consecutive Arrow streams with schemas of [`godwit_model::schema`], until the input ends.
pub struct StreamReader<R> {
    source: R,
    /// Schema of the current stream; `None` between two streams.
    schema: Option<SchemaRef>,
}

impl<R: BufRead> StreamReader<R> {
    /// Creates a reader. `source` must be at the start of a stream.
    pub fn new(source: R) -> Self {
        Self { source, schema: None }
    }

    /// Skips the remaining batches of the current stream and returns the schema of the next stream, with its metadata.
    /// Returns `None` if the input ends here.
    ///
    /// # Errors
    /// [`StreamError`]; the reader is then unusable.
    pub fn next_stream(&mut self) -> Result<Option<SchemaRef>, StreamError> {
        while self.next_batch()?.is_some() {}
        if self.source.fill_buf().map_err(|source| StreamError::Io { source })?.is_empty() {
            return Ok(None);
        }
        let Some(header) = self.read_header()? else {
            return Err(malformed_error("the stream starts with an end mark"));
        };
        let message = parse_header(&header)?;
        let body_bytes = checked_body_bytes(&message)?;
        let Some(found) = message.header_as_schema() else {
            return Err(malformed_error("a stream starts without a schema"));
        };
        if body_bytes != 0 {
            return Err(malformed_error("a schema has a body"));
        }
        let schema = decode_guarded(|| Ok(convert::fb_to_schema(found)))?;
        check_schema(&schema)?;
        let schema = Arc::new(schema);
        self.schema = Some(schema.clone());
        Ok(Some(schema))
    }

    /// Returns the next batch of the current stream; `None` at the end of the stream.
    ///
    /// # Errors
    /// [`StreamError`]; the reader is then unusable.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, StreamError> {
        let Some(schema) = self.schema.clone() else { return Ok(None) };
        let Some(header) = self.read_header()? else {
            self.schema = None;
            return Ok(None);
        };
        let message = parse_header(&header)?;
        let body = self.read_body(checked_body_bytes(&message)?)?;
        if message.header_type() != MessageHeader::RecordBatch || schema.fields().is_empty() {
            return Err(malformed_error(format!(
                "a message of type {:?} is not allowed at this position of a stream",
                message.header_type()
            )));
        }
        let Some(batch) = message.header_as_record_batch() else {
            return Err(malformed_error("a batch has no header"));
        };
        decode_guarded(|| {
            reader::read_record_batch(&body, batch, schema, &HashMap::new(), None, &message.version())
                .map_err(|error| malformed_error(error.to_string()))
        })
        .map(Some)
    }

    /// Returns the header of the next message (a flatbuffer); `None` for the end-of-stream marker.
    fn read_header(&mut self) -> Result<Option<Vec<u8>>, StreamError> {
        let mut prefix = [0u8; 8];
        read_exact(&mut self.source, &mut prefix, "a message")?;
        if prefix[..4] != CONTINUATION_MARKER {
            return Err(malformed_error("it is not an Arrow stream"));
        }
        let header_bytes = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
        if header_bytes == 0 {
            return Ok(None);
        }
        if header_bytes > MAX_HEADER_BYTES {
            return Err(malformed_error(format!("a message header of {header_bytes} bytes is too long")));
        }
        let mut header = vec![0; header_bytes];
        read_exact(&mut self.source, &mut header, "a message header")?;
        Ok(Some(header))
    }

    /// Reads the body of a message into aligned memory, so that the columns can refer to it without a copy.
    fn read_body(&mut self, body_bytes: usize) -> Result<Buffer, StreamError> {
        let mut body = MutableBuffer::new(body_bytes.min(BODY_READ_BYTES));
        while body.len() < body_bytes {
            let start = body.len();
            body.resize(body_bytes.min(start + BODY_READ_BYTES), 0);
            read_exact(&mut self.source, &mut body.as_slice_mut()[start..], "a batch")?;
        }
        Ok(body.into())
    }
}

fn read_exact(source: &mut impl Read, bytes: &mut [u8], within: &'static str) -> Result<(), StreamError> {
    source.read_exact(bytes).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => StreamError::Truncated { within },
        _ => StreamError::Io { source },
    })
}

fn parse_header(header: &[u8]) -> Result<Message<'_>, StreamError> {
    root_as_message(header).map_err(|error| malformed_error(format!("a message header cannot be parsed: {error}")))
}

fn checked_body_bytes(message: &Message) -> Result<usize, StreamError> {
    usize::try_from(message.bodyLength())
        .ok()
        .filter(|bytes| *bytes <= MAX_BODY_BYTES)
        .ok_or_else(|| malformed_error(format!("a batch of {} bytes is too long", message.bodyLength())))
}

/// Runs a decoder of untrusted bytes and turns a panic into an error. arrow-ipc 59.3 panics on some malformed input.
fn decode_guarded<T>(decode: impl FnOnce() -> Result<T, StreamError>) -> Result<T, StreamError> {
    catch_panic(decode).unwrap_or_else(|| Err(malformed_error("the Arrow decoder failed on a message")))
}

/// Returns the schema of this kind of stream, without metadata; `None` for an unknown kind.
fn schema_of_kind(kind: &str) -> Option<SchemaRef> {
    match kind {
        schema::HELLO | schema::BLOCK_END => Some(schema::empty_schema()),
        schema::READS => Some(schema::pipe_reads()),
        schema::ALIGNMENTS => Some(schema::pipe_alignments()),
        schema::PAIRS => Some(schema::pipe_pairs()),
        schema::ENDS => Some(schema::pipe_ends()),
        _ => None,
    }
}

fn check_schema(schema: &Schema) -> Result<(), StreamError> {
    let kind =
        schema.metadata().get(metadata::KIND).ok_or_else(|| malformed_error("a stream does not declare its kind"))?;
    let expected =
        schema_of_kind(kind).ok_or_else(|| malformed_error(format!("the stream kind {kind:?} is unknown")))?;
    if expected.fields() != schema.fields() {
        return Err(malformed_error(format!("the columns of a stream of kind {kind} are not those of its protocol")));
    }
    Ok(())
}

/// A writer of one Arrow stream: the schema with its metadata, then batches, then the end-of-stream marker by
/// [`StreamWriter::finish`].
pub struct StreamWriter<W: Write> {
    inner: ArrowWriter<W>,
}

impl<W: Write> StreamWriter<W> {
    /// Starts a stream. `schema` must be one of [`godwit_model::schema`], and `metadata` must contain the kind of the
    /// stream.
    ///
    /// # Errors
    /// The I/O error of writing to `sink`.
    pub fn start(sink: W, schema: &SchemaRef, metadata: HashMap<String, String>) -> std::io::Result<Self> {
        let schema = schema.as_ref().clone().with_metadata(metadata);
        let inner = ArrowWriter::try_new(sink, &schema).map_err(into_io_error)?;
        Ok(Self { inner })
    }

    /// Writes a batch, which must have the schema of the stream.
    ///
    /// # Errors
    /// The I/O error of writing to the sink.
    pub fn write(&mut self, batch: &RecordBatch) -> std::io::Result<()> {
        self.inner.write(batch).map_err(into_io_error)
    }

    /// Writes the end-of-stream marker, flushes the sink, and returns it.
    ///
    /// # Errors
    /// The I/O error of writing to the sink.
    pub fn finish(self) -> std::io::Result<W> {
        self.inner.into_inner().map_err(into_io_error)
    }
}

fn into_io_error(error: arrow_schema::ArrowError) -> std::io::Error {
    match error {
        arrow_schema::ArrowError::IoError(_, source) => source,
        other => std::io::Error::other(other),
    }
}

#[cfg(test)]
mod tests;
