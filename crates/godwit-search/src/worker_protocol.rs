//! The protocol between head and worker, over the worker's standard input and output.
//!
//! A frame is one byte of kind, eight bytes of length, and that many bytes. Numbers are little-endian; a text is eight bytes of
//! length and its bytes. `worker/main.cpp` is the other end, `tool_search/tool_worker.rs` the part that tools need. Each request
//! has one response of the same kind, except `R` (`H`), and `E` and `Q` (none). `X` instead of a response: the worker stops, with
//! the reason.
//!
//! | frame | request | response |
//! |---|---|---|
//! | `I` | requested ranges, bytes of memory for reports, scratch directory, command line, fields of rows | volumes, whether queries are empty, whether sizes of batches vary, size of the first, ranges |
//! | `B` | number of a batch, sizes of batches up to it | queries, letters, whether it is the last, whole, alone |
//! | `R`/`H` | item, ordinals of a range, number of queries with full lists, each with an e-value | item, extensions, capacity of a list (0: unknown), number of dropped subjects, hits of each query |
//! | `E` | no more ranges of this batch | |
//! | `O` | item, queries from, to, whether alone, hits | item, bytes, checksum, lines for the header, rows |
//! | `A` | item (the batch), sizes | item, queries, whether it is the last, bytes, checksum, lines for the header, rows |
//! | `M` | extensions of each batch so far | size of the next |
//! | `P`, `Z`, `F` | -, count of queries, lines for the header | text |
//! | `W` | path, bytes of a page, items with their offsets | bytes on pages shared with others, with offsets |
//! | `S` | | CPU seconds of search, traceback, format, all; bytes of memory; CPU seconds of starting ranges, and their number |
//! | `Q` | end | |
//!
//! There is a row for each printed alignment, if fields were requested: eight bytes of the query's 0-based index, e-value, bit
//! score, and the fields as in a table, as one text.

use std::io::Read;

use godwit_fleet::leases::ItemId;

use crate::SearchError;
use crate::hits::HitRow;

/// Bytes before the body of a frame.
pub(crate) const FRAME_HEADER_BYTES: usize = 9;

/// A frame before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct ProtocolFrame {
    kind: u8,
    body: Vec<u8>,
}

impl ProtocolFrame {
    pub(crate) fn new(kind: u8) -> Self {
        Self { kind, body: Vec::new() }
    }

    pub(crate) fn with_u8(mut self, value: u8) -> Self {
        self.body.push(value);
        self
    }

    pub(crate) fn with_u32(mut self, value: u32) -> Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn with_u64(mut self, value: u64) -> Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn with_f64(mut self, value: f64) -> Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn with_i32s(mut self, values: &[i32]) -> Self {
        values.iter().for_each(|value| self.body.extend(value.to_le_bytes()));
        self
    }

    pub(crate) fn with_text(mut self, value: &[u8]) -> Self {
        self.body.extend((value.len() as u64).to_le_bytes());
        self.body.extend(value);
        self
    }

    /// Returns the body, without the header.
    pub(crate) fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// Returns the bytes of the frame.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let length = (self.body.len() as u64).to_le_bytes();
        [&[self.kind][..], &length, &self.body].concat()
    }
}

/// A line for the SAM header, and the name of the sequence it describes.
pub(crate) type HeaderLine = (Vec<u8>, Vec<u8>);

/// A response.
#[derive(Debug)]
pub(crate) enum Response {
    /// The worker has opened its files.
    Init(InitResponse),
    Batch(BatchInfo),
    /// The hits of a range.
    Hits {
        item: ItemId,
        extensions: i64,
        /// Capacity of a query's list; 0 if unknown.
        list_capacity: u32,
        /// Number of subjects that were worse than those in their query's list.
        dropped_subjects: u64,
        /// Hits of each query, or of all.
        hits: Vec<Vec<u8>>,
    },
    Report {
        item: ItemId,
        bytes: u64,
        /// CRC-32, as in gzip.
        checksum: u32,
        lines: Vec<HeaderLine>,
        /// Rows of alignments, as bytes; see [`FieldReader::read_hit_row`].
        rows: Vec<u8>,
    },
    /// One worker searched and reported a batch.
    BatchReport {
        item: ItemId,
        queries: u32,
        last: bool,
        bytes: u64,
        /// CRC-32, as in gzip.
        checksum: u32,
        lines: Vec<HeaderLine>,
        /// Rows of alignments, as bytes; see [`FieldReader::read_hit_row`].
        rows: Vec<u8>,
    },
    BatchSize(i32),
    Text(Vec<u8>),
    /// Reports are written at their offsets, except bytes on pages shared with others.
    Written {
        /// Offset and bytes of these.
        edges: Vec<(u64, Vec<u8>)>,
    },
    Stages(StageSeconds),
    /// The worker stops because of a failure.
    Failed {
        kind: FailureKind,
        message: String,
    },
}

/// The kind of a worker's failure. It decides the error; the message does not. On the wire each kind is a letter, which
/// `worker/main.cpp` writes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Options of the command line.
    Usage,
    /// The queries.
    Input,
    /// The database.
    Database,
    /// The engine, or anything else.
    Engine,
}

impl FailureKind {
    /// Returns the letter on the wire.
    pub(crate) fn letter(self) -> u8 {
        match self {
            Self::Usage => b'u',
            Self::Input => b'i',
            Self::Database => b'd',
            Self::Engine => b'e',
        }
    }

    /// Converts a letter on the wire. An unknown letter counts as a failure of the engine.
    fn of_letter(letter: u8) -> Self {
        let known = [Self::Usage, Self::Input, Self::Database];
        known.into_iter().find(|kind| kind.letter() == letter).unwrap_or(Self::Engine)
    }

    /// Returns the error of this kind. `program`: the program whose options or queries they are.
    pub(crate) fn error(self, program: &'static str, message: String) -> SearchError {
        match self {
            Self::Usage => SearchError::Options { program, message },
            Self::Input => SearchError::Queries { program, message },
            Self::Database => SearchError::Database { message },
            Self::Engine => SearchError::EngineFailed { message },
        }
    }
}

/// The response to the init request, after the worker has opened its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InitResponse {
    /// Paths of the database's volumes, without extensions.
    pub(crate) volumes: Vec<String>,
    pub(crate) queries_are_empty: bool,
    pub(crate) batch_sizes_vary: bool,
    pub(crate) batch_size: i32,
    /// Start ordinal, end ordinal and number of letters of each range.
    pub(crate) ranges: Vec<(u32, u32, u64)>,
}

/// A batch of queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchInfo {
    pub(crate) queries: u32,
    pub(crate) is_last: bool,
    /// True if hits are not separated by query.
    pub(crate) has_joint_hits: bool,
    /// True if it cannot be searched in parts.
    pub(crate) is_unsplittable: bool,
}

/// CPU seconds of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageSeconds {
    pub(crate) search: f64,
    pub(crate) traceback: f64,
    pub(crate) format: f64,
    pub(crate) total_seconds: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) range_starts: f64,
    pub(crate) ranges_started: u64,
}

/// Reads the next frame; returns `None` if the worker has closed its end.
pub(crate) fn read_frame_bytes(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    from.read_exact(&mut frame).ok()?;
    let length = u64::from_le_bytes(frame[1..].try_into().expect("eight bytes"));
    let read = from.take(length).read_to_end(&mut frame).ok()?;
    (read as u64 == length).then_some(frame)
}

/// Parses a frame.
///
/// # Errors
/// [`SearchError::Protocol`] if it is not a response.
pub(crate) fn parse_response(frame: &[u8]) -> Result<Response, SearchError> {
    let answer = frame
        .split_at_checked(FRAME_HEADER_BYTES)
        .and_then(|(head, body)| FieldReader::new(body).read_response(head[0]));
    let kind = frame.first().map_or(' ', |kind| char::from(*kind));
    let problem = || format!("a frame {kind:?} of {} bytes cannot be read", frame.len());
    answer.ok_or_else(|| SearchError::Protocol { problem: problem() })
}

/// A reader of the fields of a frame; it holds the unread bytes.
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next row of hits.
    pub(crate) fn read_hit_row(&mut self) -> Option<HitRow> {
        let (query, evalue, bitscore) = (self.read_u64()?, self.read_f64()?, self.read_f64()?);
        let printed = String::from_utf8_lossy(&self.read_text()?).into_owned();
        Some(HitRow { query, evalue, bitscore, printed })
    }

    fn read_response(&mut self, kind: u8) -> Option<Response> {
        Some(match kind {
            b'I' => Response::Init(self.read_init_response()?),
            b'B' => {
                let queries = self.read_u32()?;
                // The number of letters is informational.
                self.read_u64()?;
                Response::Batch(BatchInfo {
                    queries,
                    is_last: self.read_flag()?,
                    has_joint_hits: self.read_flag()?,
                    is_unsplittable: self.read_flag()?,
                })
            }
            b'H' => {
                let (item, extensions) = (ItemId(self.read_u64()?), self.read_u64()? as i64);
                let (list_capacity, dropped_subjects, groups) = (self.read_u32()?, self.read_u64()?, self.read_u32()?);
                let hits = (0..groups).map(|_| self.read_text()).collect::<Option<_>>()?;
                Response::Hits { item, extensions, list_capacity, dropped_subjects, hits }
            }
            b'O' => {
                let (item, bytes) = (ItemId(self.read_u64()?), self.read_u64()?);
                Response::Report {
                    item,
                    bytes,
                    checksum: self.read_u32()?,
                    lines: self.read_header_lines()?,
                    rows: self.read_text()?,
                }
            }
            b'A' => {
                let (item, queries, last) = (ItemId(self.read_u64()?), self.read_u32()?, self.read_flag()?);
                {
                    let (bytes, checksum) = (self.read_u64()?, self.read_u32()?);
                    Response::BatchReport {
                        item,
                        queries,
                        last,
                        bytes,
                        checksum,
                        lines: self.read_header_lines()?,
                        rows: self.read_text()?,
                    }
                }
            }
            b'M' => Response::BatchSize(self.read_u32()? as i32),
            b'P' | b'Z' | b'F' => Response::Text(std::mem::take(&mut self.rest).to_vec()),
            b'W' => {
                let count = self.read_u32()?;
                let edges = (0..count).map(|_| Some((self.read_u64()?, self.read_text()?))).collect::<Option<_>>()?;
                Response::Written { edges }
            }
            b'S' => Response::Stages(StageSeconds {
                search: self.read_f64()?,
                traceback: self.read_f64()?,
                format: self.read_f64()?,
                total_seconds: self.read_f64()?,
                memory_bytes: self.read_u64()?,
                range_starts: self.read_f64()?,
                ranges_started: self.read_u64()?,
            }),
            b'X' => {
                let kind = FailureKind::of_letter(self.read_u8()?);
                Response::Failed { kind, message: String::from_utf8_lossy(&self.read_text()?).trim().to_owned() }
            }
            _ => return None,
        })
        .filter(|_| self.rest.is_empty())
    }

    fn read_init_response(&mut self) -> Option<InitResponse> {
        let count = self.read_u32()?;
        let volumes = (0..count)
            .map(|_| self.read_text().map(|path| String::from_utf8_lossy(&path).into_owned()))
            .collect::<Option<_>>()?;
        let (queries_are_empty, batch_sizes_vary) = (self.read_flag()?, self.read_flag()?);
        let batch_size = self.read_u32()? as i32;
        let count = self.read_u32()?;
        let cuts = (0..count).map(|_| Some((self.read_u32()?, self.read_u64()?))).collect::<Option<Vec<_>>>()?;
        let ranges = cuts.windows(2).map(|pair| (pair[0].0, pair[1].0, pair[0].1)).collect();
        Some(InitResponse { volumes, queries_are_empty, batch_sizes_vary, batch_size, ranges })
    }

    /// Reads the header lines: a text that contains pairs of texts, or an empty text.
    fn read_header_lines(&mut self) -> Option<Vec<HeaderLine>> {
        let text = self.read_text()?;
        let mut fields = FieldReader::new(&text);
        let mut lines = Vec::new();
        while !fields.rest.is_empty() {
            lines.push((fields.read_text()?, fields.read_text()?));
        }
        Some(lines)
    }

    fn read_array<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*first)
    }

    fn read_u8(&mut self) -> Option<u8> {
        self.read_array().map(u8::from_le_bytes)
    }

    fn read_flag(&mut self) -> Option<bool> {
        self.read_u8().map(|value| value != 0)
    }

    pub(crate) fn read_u32(&mut self) -> Option<u32> {
        self.read_array().map(u32::from_le_bytes)
    }

    pub(crate) fn read_u64(&mut self) -> Option<u64> {
        self.read_array().map(u64::from_le_bytes)
    }

    pub(crate) fn read_f64(&mut self) -> Option<f64> {
        self.read_array().map(f64::from_le_bytes)
    }

    pub(crate) fn read_text(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.read_u64()?).ok()?;
        self.skip(length).map(<[u8]>::to_vec)
    }

    /// Skips `length` bytes and returns them.
    pub(crate) fn skip(&mut self, length: usize) -> Option<&'a [u8]> {
        let (passed, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_of_the_kind_of_its_letter_whatever_the_message_is() {
        let received = |letter: u8, message: &str| {
            let frame = read_frame_bytes(
                &mut &*ProtocolFrame::new(b'X').with_u8(letter).with_text(message.as_bytes()).to_bytes(),
            )
            .expect("whole");
            let Ok(Response::Failed { kind, message }) = parse_response(&frame) else { panic!("no failure") };
            kind.error("blastp", message)
        };
        for message in ["", "reworded", "Database error: nvalid option in query"] {
            assert!(matches!(received(b'u', message), SearchError::Options { .. }));
            assert!(matches!(received(b'i', message), SearchError::Queries { .. }));
            assert!(matches!(received(b'd', message), SearchError::Database { .. }));
            assert!(matches!(received(b'e', message), SearchError::EngineFailed { .. }));
            assert!(matches!(received(b'?', message), SearchError::EngineFailed { .. }));
        }
    }

    #[test]
    fn hits_come_as_they_were_sent() {
        let sent = ProtocolFrame::new(b'H')
            .with_u64(7)
            .with_u64(9)
            .with_u32(3)
            .with_u64(1)
            .with_u32(2)
            .with_text(b"ab")
            .with_text(b"");
        let frame = read_frame_bytes(&mut &*sent.to_bytes()).expect("it is whole");
        let Ok(Response::Hits { item, extensions, list_capacity, dropped_subjects, hits }) = parse_response(&frame)
        else {
            panic!("no hits")
        };
        assert_eq!((item, extensions, list_capacity, dropped_subjects), (ItemId(7), 9, 3, 1));
        assert_eq!(hits, vec![b"ab".to_vec(), Vec::new()]);
    }

    #[test]
    fn nonsense_is_an_error_and_a_closed_end_is_none() {
        for sent in [
            ProtocolFrame::new(b'?'),
            ProtocolFrame::new(b'H').with_u32(1),
            ProtocolFrame::new(b'W').with_u8(1),
            ProtocolFrame::new(b'O').with_u64(1).with_u64(u64::MAX),
        ] {
            assert!(matches!(parse_response(&sent.to_bytes()), Err(SearchError::Protocol { .. })), "{sent:?}");
        }
        assert!(matches!(parse_response(b"W"), Err(SearchError::Protocol { .. })));
        assert!(read_frame_bytes(&mut &b""[..]).is_none());
        assert!(read_frame_bytes(&mut &b"W\x05\0\0\0\0\0\0\0ab"[..]).is_none());
    }
}
