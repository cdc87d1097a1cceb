//! The protocol between the head of a search and a worker, over the worker's standard input and output.
//!
//! A frame consists of one byte for the kind, eight bytes for the length of the body, and the body. Numbers are
//! little-endian. A text consists of eight bytes for its length and the bytes of the text. `worker/main.cpp` implements
//! the worker for BLAST+, `tool_search/tool_worker.rs` the worker for external tools. The response to a request has the
//! same kind, except that the response to `R` is `H`. `E` and `Q` have no response. A worker that must stop sends `X`
//! with the reason instead of a response.
//!
//! | frame | request | response |
//! |---|---|---|
//! | `I`: open the files | minimum number of ranges, maximum size of a range (bytes of letters; 0: none), memory for reports (bytes), scratch directory, command line, fields of rows | volumes, 1 if there are no queries, 1 if batch sizes vary, size of the first batch, number of ranges as it would have to be requested, ranges |
//! | `B`: open a batch | number of the batch, sizes of the batches up to it | number of queries, number of letters, 1 for the last batch, the flags `has_joint_hits` and `is_unsplittable` |
//! | `G`: open a group of batches | number of its first batch, maximum number of queries before its last batch, maximum number of batches, sizes of the batches up to the last one | number of batches, and each batch as in the response to `B` |
//! | `R`: search a range (response `H`) | item, number of the batch and of the first batch of its group ([`OPEN_BATCH`] twice: the batch of the last `B`), number of sizes, sizes of the batches up to the last one of the group, start and end of the range, number of queries with full lists, index and e-value threshold of each | item, extensions, maximum length of a list (0: unknown), dropped subjects, hits of each query |
//! | `E`: no more ranges | | |
//! | `O`: report on queries | item, first query, end, 1 if the batch is unsplittable, 1 if the database exceeds the memory, hits | item, size of the report, checksum, lines for the SAM header, rows |
//! | `A`: search and report a batch | item (number of the batch), sizes of batches (none: the worker chooses them by the results of earlier batches) | item, number of queries, 1 for the last batch, size of the report, checksum, lines for the SAM header, rows |
//! | `M`: size of the next batch | extensions of each batch so far | size of the next batch |
//! | `P`, `Z`, `F`: text before the reports, text after them, SAM header | `P`: nothing; `Z`: number of queries; `F`: lines for the SAM header | the text |
//! | `W`: write reports | path of the output, page size (bytes), items with their offsets | bytes on pages that contain other reports, with their offsets |
//! | `S`: statistics | | CPU seconds of search, traceback, formatting, and in total; memory (bytes); CPU seconds for starting ranges, number of started ranges |
//! | `Q`: stop | | |
//!
//! If the `I` request names fields of rows, responses contain a row for each printed alignment. A row consists of the
//! 0-based index of the query (eight bytes), the e-value, the bit score, and one text with the printed fields.

use std::io::Read;

use godwit_fleet::leases::ItemId;

use crate::SearchError;

/// Size in bytes of the header of a frame: one byte for the kind, and eight for the length of the body.
pub(crate) const FRAME_HEADER_BYTES: usize = 9;

/// In a request to search a range: the batch that the last `B` request opened, instead of a batch of a group.
pub(crate) const OPEN_BATCH: u32 = u32::MAX;

/// A row of the table of hits, as a worker sends it for an alignment.
pub(crate) struct HitRow {
    /// 0-based index of the query.
    pub(crate) query: u64,
    /// E-value, not rounded.
    pub(crate) evalue: f64,
    pub(crate) bitscore: f64,
    /// The printed fields, separated by the control character 0x1f.
    pub(crate) printed: String,
}

/// A frame that is being built for sending.
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

    /// Returns the body of the frame, without the header.
    pub(crate) fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// Returns the header and the body of the frame as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let length = (self.body.len() as u64).to_le_bytes();
        [&[self.kind][..], &length, &self.body].concat()
    }
}

/// The name of a sequence, and the line of the SAM header that describes it.
pub(crate) type HeaderLine = (Vec<u8>, Vec<u8>);

/// A response from a worker.
#[derive(Debug)]
pub(crate) enum Response {
    /// The worker has opened the database and the queries.
    Init(InitResponse),
    Batch(BatchInfo),
    /// The batches of a group, in order.
    Group(Vec<BatchInfo>),
    /// The hits of a range of the database.
    Hits {
        item: ItemId,
        extensions: i64,
        /// Maximum number of subjects in the list of a query; 0 if unknown.
        list_capacity: u32,
        /// Number of subjects that the worker dropped because they were worse than the full list of the query.
        dropped_subjects: u64,
        /// Serialized hits, one element for each query; a single element if [`BatchInfo::has_joint_hits`].
        hits: Vec<Vec<u8>>,
    },
    Report {
        item: ItemId,
        bytes: u64,
        /// CRC-32 (as in gzip) of the report.
        checksum: u32,
        lines: Vec<HeaderLine>,
        /// Serialized rows for the table of hits; see [`FieldReader::read_hit_row`].
        rows: Vec<u8>,
    },
    /// The worker has searched a whole batch of queries and holds the report.
    BatchReport {
        item: ItemId,
        queries: u32,
        last: bool,
        bytes: u64,
        /// CRC-32 (as in gzip) of the report.
        checksum: u32,
        lines: Vec<HeaderLine>,
        /// Serialized rows for the table of hits; see [`FieldReader::read_hit_row`].
        rows: Vec<u8>,
    },
    BatchSize(i32),
    Text(Vec<u8>),
    /// The worker has written its reports at their offsets, except bytes on pages that also contain other reports.
    Written {
        /// Offset and content of the bytes that the worker did not write; the head writes them.
        edges: Vec<(u64, Vec<u8>)>,
    },
    Stages(StageSeconds),
    /// The worker stops because of a failure.
    Failed {
        kind: FailureKind,
        message: String,
    },
}

/// The kind of a worker's failure, which alone decides the [`SearchError`] variant. A frame contains the kind as a
/// letter; `worker/main.cpp` uses the same letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The options of the command line are wrong.
    Usage,
    /// The queries cannot be searched.
    Input,
    /// The database cannot be searched.
    Database,
    /// The engine failed, or the cause is unknown.
    Engine,
}

impl FailureKind {
    /// Returns the letter for this kind in a frame.
    pub(crate) fn letter(self) -> u8 {
        match self {
            Self::Usage => b'u',
            Self::Input => b'i',
            Self::Database => b'd',
            Self::Engine => b'e',
        }
    }

    /// Returns the kind for a letter in a frame. An unknown letter counts as a failure of the engine.
    fn of_letter(letter: u8) -> Self {
        let known = [Self::Usage, Self::Input, Self::Database];
        known.into_iter().find(|kind| kind.letter() == letter).unwrap_or(Self::Engine)
    }

    /// Returns the error for a failure of this kind. `program` is the name of the search program.
    pub(crate) fn error(self, program: &'static str, message: String) -> SearchError {
        match self {
            Self::Usage => SearchError::Options { program, message },
            Self::Input => SearchError::Queries { program, message },
            Self::Database => SearchError::Database { message },
            Self::Engine => SearchError::EngineFailed { message },
        }
    }
}

/// The response to the init request, which a worker sends after it has opened the database and the queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InitResponse {
    /// Paths of the database's volumes, without extensions.
    pub(crate) volumes: Vec<String>,
    pub(crate) queries_are_empty: bool,
    pub(crate) batch_sizes_vary: bool,
    pub(crate) batch_size: i32,
    /// Number of ranges that must be requested to receive these ranges again.
    pub(crate) requested_ranges: u32,
    /// First sequence, end (exclusive) and number of letters of each range. Sequences of the database are numbered from
    /// 0.
    pub(crate) ranges: Vec<(u32, u32, u64)>,
}

impl InitResponse {
    /// Returns the number of letters of queries that the program puts into each batch; 0 if it varies.
    pub(crate) fn fixed_batch_letters(&self) -> u64 {
        if self.batch_sizes_vary { 0 } else { self.batch_size.max(0) as u64 }
    }
}

/// A batch of queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchInfo {
    pub(crate) queries: u32,
    /// Number of letters of the queries.
    pub(crate) letters: u64,
    pub(crate) is_last: bool,
    /// True if a worker sends the hits of all queries of the batch together, not separated by query.
    pub(crate) has_joint_hits: bool,
    /// True if the batch must be searched in the whole database at once, not by ranges.
    pub(crate) is_unsplittable: bool,
}

/// CPU seconds and memory of a worker.
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

/// Reads the bytes of the next frame; returns `None` if the pipe is closed before the end of the frame.
pub(crate) fn read_frame_bytes(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    from.read_exact(&mut frame).ok()?;
    let length = u64::from_le_bytes(frame[1..].try_into().expect("eight bytes"));
    let read = from.take(length).read_to_end(&mut frame).ok()?;
    (read as u64 == length).then_some(frame)
}

/// Parses the bytes of a frame from a worker.
///
/// # Errors
/// [`SearchError::Protocol`] if the frame is not a valid response.
pub(crate) fn parse_response(frame: &[u8]) -> Result<Response, SearchError> {
    let answer = frame
        .split_at_checked(FRAME_HEADER_BYTES)
        .and_then(|(head, body)| FieldReader::new(body).read_response(head[0]));
    let kind = frame.first().map_or(' ', |kind| char::from(*kind));
    let problem = || format!("a frame {kind:?} of {} bytes cannot be read", frame.len());
    answer.ok_or_else(|| SearchError::Protocol { problem: problem() })
}

/// A reader of the fields in the body of a frame.
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

    /// Reads the next row of the table of hits.
    pub(crate) fn read_hit_row(&mut self) -> Option<HitRow> {
        let (query, evalue, bitscore) = (self.read_u64()?, self.read_f64()?, self.read_f64()?);
        let printed = String::from_utf8_lossy(&self.read_text()?).into_owned();
        Some(HitRow { query, evalue, bitscore, printed })
    }

    fn read_response(&mut self, kind: u8) -> Option<Response> {
        Some(match kind {
            b'I' => Response::Init(self.read_init_response()?),
            b'B' => Response::Batch(self.read_batch()?),
            b'G' => {
                let count = self.read_u32()?;
                Response::Group((0..count).map(|_| self.read_batch()).collect::<Option<_>>()?)
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

    fn read_batch(&mut self) -> Option<BatchInfo> {
        Some(BatchInfo {
            queries: self.read_u32()?,
            letters: self.read_u64()?,
            is_last: self.read_flag()?,
            has_joint_hits: self.read_flag()?,
            is_unsplittable: self.read_flag()?,
        })
    }

    fn read_init_response(&mut self) -> Option<InitResponse> {
        let count = self.read_u32()?;
        let volumes = (0..count)
            .map(|_| self.read_text().map(|path| String::from_utf8_lossy(&path).into_owned()))
            .collect::<Option<_>>()?;
        let (queries_are_empty, batch_sizes_vary) = (self.read_flag()?, self.read_flag()?);
        let batch_size = self.read_u32()? as i32;
        let requested_ranges = self.read_u32()?;
        let count = self.read_u32()?;
        let cuts = (0..count).map(|_| Some((self.read_u32()?, self.read_u64()?))).collect::<Option<Vec<_>>>()?;
        let ranges = cuts.windows(2).map(|pair| (pair[0].0, pair[1].0, pair[0].1)).collect();
        Some(InitResponse { volumes, queries_are_empty, batch_sizes_vary, batch_size, requested_ranges, ranges })
    }

    /// Reads lines of the SAM header: a text that contains the name and the line, as two texts, of each sequence.
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
