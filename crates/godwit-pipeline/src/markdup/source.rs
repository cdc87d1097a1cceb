//! Aligned input of any kind as chunks that workers turn into packed records.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use godwit_cram as cram;
use godwit_formats::bam::{self, RecordChunk};
use godwit_formats::bgzf;
use godwit_formats::sam::{self, Header, HeaderError, InputFormat, LineChunk, LineEncoder, ReadError};
use godwit_model::{Genome, RawRecord};

use crate::error::{AlignmentsError, PipelineError};
use crate::memory_hints::large_buffer;

/// A file of aligned reads.
pub(super) struct Source {
    path: PathBuf,
    plain_bytes: Option<u64>,
    reader: Reader,
}

/// How a file is opened.
pub(super) struct OpenOptions<'o> {
    /// The program that decodes CRAM.
    pub(super) program: &'o Path,
    /// The reference that CRAM may need, and where scratch files go.
    pub(super) reference: Option<(&'o Path, &'o Path)>,
    /// Threads that decompress.
    pub(super) threads: usize,
}

enum Reader {
    Sam(sam::Reader),
    Bam(bam::Reader),
    Cram(Box<cram::Reader>),
}

/// A block of input.
pub(super) enum Chunk {
    Lines(LineChunk),
    Records(RecordChunk),
}

impl Source {
    /// Opens a file, known by its content, and reads its header.
    pub(super) fn open(
        path: &Path,
        how: OpenOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<(Self, Header), PipelineError> {
        let failed = |source: AlignmentsError| PipelineError::alignments(path, source);
        let opened = bgzf::Reader::open_any(path, how.threads, false);
        let mut input = opened.map_err(|error| failed(ReadError::from(error).into()))?;
        input.cancel_with(Arc::clone(cancelled));
        let (reader, header) = match sam::sniff(&mut input) {
            InputFormat::Sam => {
                let reader = sam::Reader::new(input).map_err(|error| failed(error.into()))?;
                let header = reader.header().clone();
                (Reader::Sam(reader), header)
            }
            InputFormat::Bam => {
                let reader = bam::Reader::new(input).map_err(|error| failed(error.into()))?;
                let header = reader.header().clone();
                (Reader::Bam(reader), header)
            }
            InputFormat::Cram if input.is_read_once() => return Err(failed(AlignmentsError::CramPipe)),
            InputFormat::Cram if input.is_decrypted() => return Err(failed(AlignmentsError::CramEncrypted)),
            InputFormat::Cram => {
                let reference = how.reference.map(|(reference, scratch)| (reference.to_owned(), scratch.to_owned()));
                let request = cram::DecodeRequest { path: path.to_owned(), reference, threads: how.threads };
                let reader = cram::Reader::open(how.program, &request).map_err(|error| failed(error.into()))?;
                let header = reader.header().clone();
                (Reader::Cram(Box::new(reader)), header)
            }
            InputFormat::Unknown => {
                // What cannot be read has no format, and a reason.
                let text = input.data().map_err(|error| failed(ReadError::from(error).into()))?;
                return Err(failed(if text.is_empty() { AlignmentsError::Empty } else { AlignmentsError::Format }));
            }
        };
        let plain_bytes = match &reader {
            Reader::Sam(reader) if reader.is_plain() => reader.input().compressed_bytes_total(),
            _ => None,
        };
        Ok((Self { path: path.to_owned(), plain_bytes, reader }, header))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn header_error(&self, error: HeaderError) -> PipelineError {
        PipelineError::Header { origin: self.path.display().to_string(), source: error }
    }

    /// BLAKE3 of the file, once all of it was read.
    pub(super) fn checksum(&self) -> Option<String> {
        match &self.reader {
            Reader::Sam(reader) => reader.checksum(),
            Reader::Bam(reader) => reader.checksum(),
            // htslib reads it in its own order.
            Reader::Cram(_) => None,
        }
    }

    /// Size of the input in the bytes that blocks count, where it is known: plain SAM only.
    pub(super) fn plain_bytes(&self) -> Option<u64> {
        self.plain_bytes
    }

    /// Takes back the memory of a block that is done with.
    pub(super) fn recycle(&mut self, memory: Vec<u8>) {
        if let Reader::Sam(reader) = &mut self.reader {
            reader.recycle(memory);
        }
    }

    /// The next block of about `bytes` bytes.
    pub(super) fn next_chunk(&mut self, bytes: usize) -> Result<Option<Chunk>, PipelineError> {
        match &mut self.reader {
            Reader::Sam(reader) => {
                let lines = reader.next_lines(bytes);
                lines
                    .map(|lines| lines.map(Chunk::Lines))
                    .map_err(|error| PipelineError::alignments(&self.path, error.into()))
            }
            Reader::Bam(reader) => {
                let mut chunk = RecordChunk::default();
                let more = reader.read_chunk(&mut chunk, bytes);
                let more = more.map_err(|error| PipelineError::alignments(&self.path, error.into()))?;
                Ok(more.then_some(Chunk::Records(chunk)))
            }
            Reader::Cram(reader) => {
                let mut chunk = RecordChunk::default();
                let more = reader.read_chunk(&mut chunk, bytes);
                let more = more.map_err(|error| PipelineError::alignments(&self.path, error.into()))?;
                Ok(more.then_some(Chunk::Records(chunk)))
            }
        }
    }
}

impl Chunk {
    /// Bytes of text or packed records.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Lines(lines) => lines.bytes.len(),
            Self::Records(records) => records.data.len(),
        }
    }
}

/// Turns chunks into packed records; one per worker.
pub(super) struct Encoder {
    lines: LineEncoder,
    done_with: Sender<Vec<u8>>,
}

impl Encoder {
    /// An encoder that hands the memory of its chunks on to `done_with`.
    pub(super) fn new(genome: &Genome, done_with: Sender<Vec<u8>>) -> Self {
        Self { lines: LineEncoder::new(genome), done_with }
    }

    /// Packed records one behind the other, and their offsets: 0, then the end of each. `each` sees every record as soon
    /// as it is packed and may name a stretch of it to be taken out.
    pub(super) fn packed(
        &mut self,
        chunk: Chunk,
        path: &Path,
        mut each: impl FnMut(RawRecord) -> Option<Range<usize>>,
    ) -> Result<(Vec<u8>, Vec<i32>), PipelineError> {
        let mut offsets = vec![0];
        match chunk {
            Chunk::Records(records) => {
                let cuts: Vec<_> = records.records().map(|record| each(RawRecord::trusted(record))).collect();
                if cuts.iter().all(Option::is_none) {
                    offsets.extend(records.ends.iter().map(|end| *end as i32));
                    return Ok((records.data, offsets));
                }
                let mut data = large_buffer(records.data.len());
                for (record, cut) in records.records().zip(cuts) {
                    let cut = cut.unwrap_or(record.len()..record.len());
                    data.extend_from_slice(&record[..cut.start]);
                    data.extend_from_slice(&record[cut.end..]);
                    offsets.push(data.len() as i32);
                }
                Ok((data, offsets))
            }
            Chunk::Lines(lines) => {
                // Packed records are smaller than their text, and memory that is not written to costs nothing.
                let mut data = large_buffer(lines.bytes.len());
                for (index, line) in lines.lines().enumerate() {
                    let start = data.len();
                    self.lines.encode(line, &mut data).map_err(|source| {
                        let line = lines.first_line + index as u64;
                        PipelineError::alignments(path, AlignmentsError::Line { line, source })
                    })?;
                    if let Some(cut) = each(RawRecord::trusted(&data[start..])) {
                        data.drain(start + cut.start..start + cut.end);
                    }
                    offsets.push(data.len() as i32);
                }
                // Nobody takes it where the input has ended.
                let _ = self.done_with.send(lines.bytes);
                Ok((data, offsets))
            }
        }
    }
}
