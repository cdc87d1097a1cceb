//! What coordinator and worker say to each other, over the worker's standard input and output.
//!
//! A frame is one byte of kind, eight bytes of length, and that many bytes. Numbers are little-endian; a text is eight bytes of
//! length and its bytes. `worker/main.cpp` is the other end, and `bulk/worker.rs` of what it needs. Each request has one answer of the same kind, apart from `R`, which
//! is answered by `H`, and `E` and `Q`, which have none. `X` in place of any answer says that the worker ends, and why.
//!
//! | frame | request | answer |
//! |---|---|---|
//! | `I` | ranges wanted, bytes of memory for reports, scratch directory, command line, fields of rows | volumes, whether queries are empty, whether sizes of batches vary, size of the first, ranges |
//! | `B` | number of a batch, sizes of batches up to it | queries, letters, whether it is the last, whole, alone |
//! | `R`/`H` | item, ordinals of a range, how many queries have full lists, each with an e-value | item, extensions, subjects that a list holds (0: not known), subjects that were dropped, hits of each query |
//! | `E` | no more ranges of this batch | |
//! | `O` | item, queries from, to, whether alone, hits | item, bytes, checksum, lines for the header, rows |
//! | `A` | item (the batch), sizes | item, queries, whether it is the last, bytes, checksum, lines for the header, rows |
//! | `M` | extensions of each batch so far | size of the next |
//! | `P`, `Z`, `F` | -, count of queries, lines for the header | text |
//! | `W` | path, bytes of a page, items with their offsets | what shares a page with others: offsets and bytes |
//! | `S` | | CPU seconds of search, traceback, format, all; bytes of memory; CPU seconds of starting ranges, how many |
//! | `Q` | end | |
//!
//! Rows are of alignments that were printed, where fields were asked for: eight bytes of the query's place among all, e-value, bit
//! score, and the fields as a table has them, as one text.

use std::io::Read;

use godwit_fleet::leases::ItemId;

use crate::SearchError;
use crate::hits::Row;

/// Bytes before the body of a frame.
pub(crate) const HEAD_BYTES: usize = 9;

/// A frame on its way.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    kind: u8,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(kind: u8) -> Self {
        Self { kind, body: Vec::new() }
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.body.push(value);
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn f64(mut self, value: f64) -> Self {
        self.body.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn numbers(mut self, values: &[i32]) -> Self {
        values.iter().for_each(|value| self.body.extend(value.to_le_bytes()));
        self
    }

    pub(crate) fn text(mut self, value: &[u8]) -> Self {
        self.body.extend((value.len() as u64).to_le_bytes());
        self.body.extend(value);
        self
    }

    /// What of it follows its head.
    pub(crate) fn body(self) -> Vec<u8> {
        self.body
    }

    /// The frame that is sent.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let length = (self.body.len() as u64).to_le_bytes();
        [&[self.kind][..], &length, &self.body].concat()
    }
}

/// A line for the header of SAM, and the name of the sequence it is about.
pub(crate) type HeaderLine = (Vec<u8>, Vec<u8>);

/// An answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The worker has opened its files.
    Ready(Ready),
    Batch(Batch),
    /// What was found in a range.
    Hits {
        item: ItemId,
        extensions: i64,
        /// Subjects that the list of a query holds; 0 where that is not known.
        most: u32,
        /// Subjects that were worse than what their query's list has.
        dropped: u64,
        /// Of each query, or of all.
        hits: Vec<Vec<u8>>,
    },
    Report {
        item: ItemId,
        bytes: u64,
        /// CRC-32, as gzip has it.
        checksum: u32,
        lines: Vec<HeaderLine>,
        /// Of alignments, as bytes; see [`Fields::row`].
        rows: Vec<u8>,
    },
    /// A batch was searched and reported by one worker.
    Alone {
        item: ItemId,
        queries: u32,
        last: bool,
        bytes: u64,
        /// CRC-32, as gzip has it.
        checksum: u32,
        lines: Vec<HeaderLine>,
        /// Of alignments, as bytes; see [`Fields::row`].
        rows: Vec<u8>,
    },
    Size(i32),
    Text(Vec<u8>),
    /// Reports are in their places, but for what shares a page with others.
    Written {
        /// Offset and bytes.
        edges: Vec<(u64, Vec<u8>)>,
    },
    Stages(Stages),
    /// It ends, by its own will.
    Failed {
        kind: FailureKind,
        message: String,
    },
}

/// The kind of a worker's failure. It decides the error; the message beside it does not. On the wire each kind is a letter, which
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

    /// Reads the letter on the wire. One of a later version counts as the engine's.
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
            Self::Engine => SearchError::Failed { message },
        }
    }
}

/// What a worker knows once it has opened its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Paths of the database's volumes, without endings.
    pub(crate) volumes: Vec<String>,
    pub(crate) queries_are_empty: bool,
    pub(crate) batch_sizes_vary: bool,
    pub(crate) batch_size: i32,
    /// Ordinals from, to, and letters.
    pub(crate) ranges: Vec<(u32, u32, u64)>,
}

/// A batch of queries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) queries: u32,
    pub(crate) last: bool,
    /// Hits are not told apart by query.
    pub(crate) whole: bool,
    /// It cannot be searched in parts.
    pub(crate) alone: bool,
}

/// CPU seconds of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stages {
    pub(crate) search: f64,
    pub(crate) traceback: f64,
    pub(crate) format: f64,
    pub(crate) total: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) range_starts: f64,
    pub(crate) ranges_started: u64,
}

/// Reads the next frame; `None` where the worker has closed its end.
pub(crate) fn read_frame(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut frame = vec![0; HEAD_BYTES];
    from.read_exact(&mut frame).ok()?;
    let length = u64::from_le_bytes(frame[1..].try_into().expect("eight bytes"));
    let read = from.take(length).read_to_end(&mut frame).ok()?;
    (read as u64 == length).then_some(frame)
}

/// What a frame says.
///
/// # Errors
/// [`SearchError::Protocol`] where it is no answer.
pub(crate) fn answer(frame: &[u8]) -> Result<Answer, SearchError> {
    let answer = frame.split_at_checked(HEAD_BYTES).and_then(|(head, body)| Fields::new(body).answer(head[0]));
    let kind = frame.first().map_or(' ', |kind| char::from(*kind));
    let problem = || format!("a frame {kind:?} of {} bytes cannot be read", frame.len());
    answer.ok_or_else(|| SearchError::Protocol { problem: problem() })
}

/// What of some bytes was not read yet.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next row of hits.
    pub(crate) fn row(&mut self) -> Option<Row> {
        let (query, evalue, bitscore) = (self.u64()?, self.f64()?, self.f64()?);
        let printed = String::from_utf8_lossy(&self.text()?).into_owned();
        Some(Row { query, evalue, bitscore, printed })
    }

    fn answer(&mut self, kind: u8) -> Option<Answer> {
        Some(match kind {
            b'I' => Answer::Ready(self.ready()?),
            b'B' => {
                let queries = self.u32()?;
                // Letters are for whoever looks on.
                self.u64()?;
                Answer::Batch(Batch { queries, last: self.flag()?, whole: self.flag()?, alone: self.flag()? })
            }
            b'H' => {
                let (item, extensions) = (ItemId(self.u64()?), self.u64()? as i64);
                let (most, dropped, groups) = (self.u32()?, self.u64()?, self.u32()?);
                let hits = (0..groups).map(|_| self.text()).collect::<Option<_>>()?;
                Answer::Hits { item, extensions, most, dropped, hits }
            }
            b'O' => {
                let (item, bytes) = (ItemId(self.u64()?), self.u64()?);
                Answer::Report { item, bytes, checksum: self.u32()?, lines: self.lines()?, rows: self.text()? }
            }
            b'A' => {
                let (item, queries, last) = (ItemId(self.u64()?), self.u32()?, self.flag()?);
                {
                    let (bytes, checksum) = (self.u64()?, self.u32()?);
                    Answer::Alone { item, queries, last, bytes, checksum, lines: self.lines()?, rows: self.text()? }
                }
            }
            b'M' => Answer::Size(self.u32()? as i32),
            b'P' | b'Z' | b'F' => Answer::Text(std::mem::take(&mut self.rest).to_vec()),
            b'W' => {
                let count = self.u32()?;
                let edges = (0..count).map(|_| Some((self.u64()?, self.text()?))).collect::<Option<_>>()?;
                Answer::Written { edges }
            }
            b'S' => Answer::Stages(Stages {
                search: self.f64()?,
                traceback: self.f64()?,
                format: self.f64()?,
                total: self.f64()?,
                memory_bytes: self.u64()?,
                range_starts: self.f64()?,
                ranges_started: self.u64()?,
            }),
            b'X' => {
                let kind = FailureKind::of_letter(self.u8()?);
                Answer::Failed { kind, message: String::from_utf8_lossy(&self.text()?).trim().to_owned() }
            }
            _ => return None,
        })
        .filter(|_| self.rest.is_empty())
    }

    fn ready(&mut self) -> Option<Ready> {
        let count = self.u32()?;
        let volumes = (0..count)
            .map(|_| self.text().map(|path| String::from_utf8_lossy(&path).into_owned()))
            .collect::<Option<_>>()?;
        let (queries_are_empty, batch_sizes_vary) = (self.flag()?, self.flag()?);
        let batch_size = self.u32()? as i32;
        let count = self.u32()?;
        let cuts = (0..count).map(|_| Some((self.u32()?, self.u64()?))).collect::<Option<Vec<_>>>()?;
        let ranges = cuts.windows(2).map(|pair| (pair[0].0, pair[1].0, pair[0].1)).collect();
        Some(Ready { volumes, queries_are_empty, batch_sizes_vary, batch_size, ranges })
    }

    /// The header lines: a text that has pairs of texts, or nothing.
    fn lines(&mut self) -> Option<Vec<HeaderLine>> {
        let text = self.text()?;
        let mut fields = Fields::new(&text);
        let mut lines = Vec::new();
        while !fields.rest.is_empty() {
            lines.push((fields.text()?, fields.text()?));
        }
        Some(lines)
    }

    fn bytes<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        self.u8().map(|value| value != 0)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Option<f64> {
        self.bytes().map(f64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.u64()?).ok()?;
        self.skip(length).map(<[u8]>::to_vec)
    }

    /// Passes over so many bytes.
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
            let frame =
                read_frame(&mut &*Request::new(b'X').u8(letter).text(message.as_bytes()).frame()).expect("whole");
            let Ok(Answer::Failed { kind, message }) = answer(&frame) else { panic!("no failure") };
            kind.error("blastp", message)
        };
        for message in ["", "reworded", "Database error: nvalid option in query"] {
            assert!(matches!(received(b'u', message), SearchError::Options { .. }));
            assert!(matches!(received(b'i', message), SearchError::Queries { .. }));
            assert!(matches!(received(b'd', message), SearchError::Database { .. }));
            assert!(matches!(received(b'e', message), SearchError::Failed { .. }));
            assert!(matches!(received(b'?', message), SearchError::Failed { .. }));
        }
    }

    #[test]
    fn hits_come_as_they_were_sent() {
        let sent = Request::new(b'H').u64(7).u64(9).u32(3).u64(1).u32(2).text(b"ab").text(b"");
        let frame = read_frame(&mut &*sent.frame()).expect("it is whole");
        let Ok(Answer::Hits { item, extensions, most, dropped, hits }) = answer(&frame) else { panic!("no hits") };
        assert_eq!((item, extensions, most, dropped), (ItemId(7), 9, 3, 1));
        assert_eq!(hits, vec![b"ab".to_vec(), Vec::new()]);
    }

    #[test]
    fn nonsense_is_an_error_and_a_closed_end_is_none() {
        for sent in [
            Request::new(b'?'),
            Request::new(b'H').u32(1),
            Request::new(b'W').u8(1),
            Request::new(b'O').u64(1).u64(u64::MAX),
        ] {
            assert!(matches!(answer(&sent.frame()), Err(SearchError::Protocol { .. })), "{sent:?}");
        }
        assert!(matches!(answer(b"W"), Err(SearchError::Protocol { .. })));
        assert!(read_frame(&mut &b""[..]).is_none());
        assert!(read_frame(&mut &b"W\x05\0\0\0\0\0\0\0ab"[..]).is_none());
    }
}
