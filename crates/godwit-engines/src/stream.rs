//! Arrow IPC streams back to back on one pipe.
//!
//! In flows a byte stream, out flow schemas and batches; the writer does the reverse. The reader treats the bytes as
//! foreign: lengths are bounded before memory is taken, only schemas of [`godwit_model::schema`] are accepted, and a
//! panic of the Arrow decoder becomes an error. It does not know what the streams mean.

use std::collections::HashMap;
use std::io::{BufRead, Read, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::writer::StreamWriter as ArrowWriter;
use arrow_ipc::{Message, MessageHeader, convert, reader, root_as_message};
use arrow_schema::{Schema, SchemaRef};
use godwit_model::panics::unless_it_panics;
use godwit_model::schema::{self, metadata};

/// First four bytes of every encapsulated message (Arrow columnar format 1.4, "Encapsulated message format").
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Longest message header: the schema of a stream carries the `@SQ` lines, 60 bytes for each of at most some 100,000
/// contigs.
const MAX_HEADER_BYTES: usize = 64 << 20;
/// Longest body of a batch: the offsets of a binary column are 32 bits wide.
const MAX_BODY_BYTES: usize = 1 << 31;
/// Memory taken for a body before as much of it has come; batches of ours are smaller.
const READ_AT_ONCE: usize = 32 << 20;

/// Why bytes are not the streams they should be.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The pipe failed.
    #[error("cannot read the pipe")]
    Io {
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The bytes end within a stream.
    #[error("the stream ends in the middle of {within}")]
    Truncated {
        /// Where it ends.
        within: &'static str,
    },
    /// The bytes are no Arrow stream, or not one of ours.
    #[error("the stream is malformed: {problem}")]
    Malformed {
        /// What is wrong.
        problem: String,
    },
}

fn malformed(problem: impl Into<String>) -> StreamError {
    StreamError::Malformed { problem: problem.into() }
}

/// Reads streams of the kinds of [`godwit_model::schema`] until the input ends.
pub struct StreamReader<R> {
    source: R,
    /// The stream being read.
    schema: Option<SchemaRef>,
}

impl<R: BufRead> StreamReader<R> {
    /// A reader at the start of a stream.
    pub fn new(source: R) -> Self {
        Self { source, schema: None }
    }

    /// The schema of the next stream, with its metadata; `None` where the input ends between streams. What is left of
    /// the current stream is skipped.
    ///
    /// # Errors
    /// [`StreamError`]; the reader is of no use afterwards.
    pub fn next_stream(&mut self) -> Result<Option<SchemaRef>, StreamError> {
        while self.next_batch()?.is_some() {}
        if self.source.fill_buf().map_err(|source| StreamError::Io { source })?.is_empty() {
            return Ok(None);
        }
        let Some(header) = self.read_header()? else { return Err(malformed("an end of stream comes first")) };
        let message = parse_header(&header)?;
        let body_bytes = body_bytes(&message)?;
        let Some(found) = message.header_as_schema() else { return Err(malformed("a stream starts without a schema")) };
        if body_bytes != 0 {
            return Err(malformed("a schema has a body"));
        }
        let schema = guarded(|| Ok(convert::fb_to_schema(found)))?;
        check_schema(&schema)?;
        let schema = Arc::new(schema);
        self.schema = Some(schema.clone());
        Ok(Some(schema))
    }

    /// The next batch of the current stream; `None` at its end.
    ///
    /// # Errors
    /// [`StreamError`]; the reader is of no use afterwards.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, StreamError> {
        let Some(schema) = self.schema.clone() else { return Ok(None) };
        let Some(header) = self.read_header()? else {
            self.schema = None;
            return Ok(None);
        };
        let message = parse_header(&header)?;
        let body = self.read_body(body_bytes(&message)?)?;
        if message.header_type() != MessageHeader::RecordBatch || schema.fields().is_empty() {
            return Err(malformed(format!("a message of type {:?} is out of place", message.header_type())));
        }
        let Some(batch) = message.header_as_record_batch() else { return Err(malformed("a batch has no header")) };
        guarded(|| {
            reader::read_record_batch(&body, batch, schema, &HashMap::new(), None, &message.version())
                .map_err(|error| malformed(error.to_string()))
        })
        .map(Some)
    }

    /// The flatbuffer of the next message; `None` for an end-of-stream mark.
    fn read_header(&mut self) -> Result<Option<Vec<u8>>, StreamError> {
        let mut prefix = [0u8; 8];
        read_exact(&mut self.source, &mut prefix, "a message")?;
        if prefix[..4] != CONTINUATION {
            return Err(malformed("it is not an Arrow stream"));
        }
        let header_bytes = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]) as usize;
        if header_bytes == 0 {
            return Ok(None);
        }
        if header_bytes > MAX_HEADER_BYTES {
            return Err(malformed(format!("a message header of {header_bytes} bytes is too long")));
        }
        let mut header = vec![0; header_bytes];
        read_exact(&mut self.source, &mut header, "a message header")?;
        Ok(Some(header))
    }

    /// Reads a body into aligned memory, so that the columns need no further copy.
    fn read_body(&mut self, body_bytes: usize) -> Result<Buffer, StreamError> {
        let mut body = MutableBuffer::new(body_bytes.min(READ_AT_ONCE));
        while body.len() < body_bytes {
            let start = body.len();
            body.resize(body_bytes.min(start + READ_AT_ONCE), 0);
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
    root_as_message(header).map_err(|error| malformed(format!("a message header does not parse: {error}")))
}

fn body_bytes(message: &Message) -> Result<usize, StreamError> {
    usize::try_from(message.bodyLength())
        .ok()
        .filter(|bytes| *bytes <= MAX_BODY_BYTES)
        .ok_or_else(|| malformed(format!("a batch of {} bytes is too long", message.bodyLength())))
}

/// Runs a decoder of foreign bytes; arrow-ipc 59.3 panics on some malformed input.
fn guarded<T>(decode: impl FnOnce() -> Result<T, StreamError>) -> Result<T, StreamError> {
    unless_it_panics(decode).unwrap_or_else(|| Err(malformed("the Arrow decoder gave up on a message")))
}

/// The schema of a kind of stream, without metadata; `None` for a kind that does not exist.
fn schema_of_kind(kind: &str) -> Option<SchemaRef> {
    match kind {
        schema::HELLO | schema::BLOCK_END => Some(schema::message()),
        schema::READS => Some(schema::reads()),
        schema::ALIGNMENTS => Some(schema::alignments()),
        schema::PAIRS => Some(schema::pairs()),
        schema::ENDS => Some(schema::ends()),
        _ => None,
    }
}

fn check_schema(schema: &Schema) -> Result<(), StreamError> {
    let kind = schema.metadata().get(metadata::KIND).ok_or_else(|| malformed("a stream does not say its kind"))?;
    let expected = schema_of_kind(kind).ok_or_else(|| malformed(format!("there is no stream of kind {kind:?}")))?;
    if expected.fields() != schema.fields() {
        return Err(malformed(format!("a stream of kind {kind} has other columns than it should")));
    }
    Ok(())
}

/// Writes one stream: the schema with `metadata`, then batches, then the end mark by [`StreamWriter::finish`].
pub struct StreamWriter<W: Write> {
    inner: ArrowWriter<W>,
}

impl<W: Write> StreamWriter<W> {
    /// Starts a stream. `schema` is one of [`godwit_model::schema`], `metadata` tells its kind.
    ///
    /// # Errors
    /// What the pipe answered.
    pub fn start(sink: W, schema: &SchemaRef, metadata: HashMap<String, String>) -> std::io::Result<Self> {
        let schema = schema.as_ref().clone().with_metadata(metadata);
        let inner = ArrowWriter::try_new(sink, &schema).map_err(into_io)?;
        Ok(Self { inner })
    }

    /// Writes a batch of that schema.
    ///
    /// # Errors
    /// What the pipe answered.
    pub fn write(&mut self, batch: &RecordBatch) -> std::io::Result<()> {
        self.inner.write(batch).map_err(into_io)
    }

    /// Writes the end mark, flushes, and gives the sink back.
    ///
    /// # Errors
    /// What the pipe answered.
    pub fn finish(self) -> std::io::Result<W> {
        self.inner.into_inner().map_err(into_io)
    }
}

fn into_io(error: arrow_schema::ArrowError) -> std::io::Error {
    match error {
        arrow_schema::ArrowError::IoError(_, source) => source,
        other => std::io::Error::other(other),
    }
}

#[cfg(test)]
mod tests;
