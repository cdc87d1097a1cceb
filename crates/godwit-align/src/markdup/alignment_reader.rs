//! Reads a SAM, BAM or CRAM file in blocks, which other threads convert to packed records.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;

use godwit_cram as cram;
use godwit_formats::bam::{self, RecordBuffer};
use godwit_formats::sam::{self, AlignmentFormat, Header, HeaderError, LineEncoder, SamLines, SamReadError};
use godwit_io::bgzf;
use godwit_model::{Genome, RawRecord};
use godwit_pipeline::memory_hints::large_buffer;
use godwit_pipeline::{AlignmentsError, PipelineError};

/// An open file of aligned reads, in SAM, BAM or CRAM.
pub(super) struct AlignmentReader {
    path: PathBuf,
    plain_bytes: Option<u64>,
    reader: FormatReader,
}

/// Options with which a file of aligned reads is opened.
pub(super) struct AlignmentReaderOptions<'o> {
    /// Path of the godwit program, which is started to decode CRAM.
    pub(super) program: &'o Path,
    /// Path of the reference that CRAM may need, and the directory of scratch files.
    pub(super) reference: Option<(&'o Path, &'o Path)>,
    /// Number of threads that decompress BGZF.
    pub(super) threads: usize,
}

enum FormatReader {
    Sam(sam::Reader),
    Bam(bam::Reader),
    Cram(Box<cram::Reader>),
}

/// A block of input: lines of SAM, or packed records of BAM or CRAM.
pub(super) enum InputBlock {
    Lines(SamLines),
    Records(RecordBuffer),
}

impl AlignmentReader {
    /// Opens a file of aligned reads, detects its format and reads its header.
    pub(super) fn open(
        path: &Path,
        how: AlignmentReaderOptions,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<(Self, Header), PipelineError> {
        let failed = |source: AlignmentsError| PipelineError::alignments(path, source);
        let opened = bgzf::Reader::open_any(path, how.threads, false);
        let mut input = opened.map_err(|error| failed(SamReadError::from(error).into()))?;
        input.set_cancel_flag(Arc::clone(cancelled));
        let (reader, header) = match sam::detect_format(&mut input) {
            AlignmentFormat::Sam => {
                let reader = sam::Reader::new(input).map_err(|error| failed(error.into()))?;
                let header = reader.header().clone();
                (FormatReader::Sam(reader), header)
            }
            AlignmentFormat::Bam => {
                let reader = bam::Reader::new(input).map_err(|error| failed(error.into()))?;
                let header = reader.header().clone();
                (FormatReader::Bam(reader), header)
            }
            AlignmentFormat::Cram if input.is_single_pass() => return Err(failed(AlignmentsError::CramPipe)),
            AlignmentFormat::Cram if input.is_decrypted() => return Err(failed(AlignmentsError::CramEncrypted)),
            AlignmentFormat::Cram => {
                let reference = how.reference.map(|(reference, scratch)| (reference.to_owned(), scratch.to_owned()));
                let request = cram::DecodeRequest { path: path.to_owned(), reference, threads: how.threads };
                let reader = cram::Reader::open(how.program, &request).map_err(|error| failed(error.into()))?;
                let header = reader.header().clone();
                (FormatReader::Cram(Box::new(reader)), header)
            }
            AlignmentFormat::Unknown => {
                // If the file cannot be read, its format is unknown. Report the read error then.
                let text = input.data().map_err(|error| failed(SamReadError::from(error).into()))?;
                return Err(failed(if text.is_empty() { AlignmentsError::Empty } else { AlignmentsError::Format }));
            }
        };
        let plain_bytes = match &reader {
            FormatReader::Sam(reader) if reader.is_plain() => reader.input().compressed_bytes_total(),
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

    /// Returns the BLAKE3 of the file. Valid only after the whole file is read.
    pub(super) fn checksum(&self) -> Option<String> {
        match &self.reader {
            FormatReader::Sam(reader) => reader.checksum(),
            FormatReader::Bam(reader) => reader.checksum(),
            // htslib does not read the bytes of CRAM in file order, so no checksum is computed.
            FormatReader::Cram(_) => None,
        }
    }

    /// Returns the size of the uncompressed text of the input, bytes. It is known only for uncompressed SAM.
    pub(super) fn plain_bytes(&self) -> Option<u64> {
        self.plain_bytes
    }

    /// Reuses the buffer of a block that is processed.
    pub(super) fn recycle(&mut self, memory: Vec<u8>) {
        if let FormatReader::Sam(reader) = &mut self.reader {
            reader.recycle(memory);
        }
    }

    /// Returns the next block of about `bytes` bytes; `None` at the end of the input.
    pub(super) fn next_block(&mut self, bytes: usize) -> Result<Option<InputBlock>, PipelineError> {
        match &mut self.reader {
            FormatReader::Sam(reader) => {
                let lines = reader.next_lines(bytes);
                lines
                    .map(|lines| lines.map(InputBlock::Lines))
                    .map_err(|error| PipelineError::alignments(&self.path, error.into()))
            }
            FormatReader::Bam(reader) => {
                let mut chunk = RecordBuffer::default();
                let more = reader.read_records(&mut chunk, bytes);
                let more = more.map_err(|error| PipelineError::alignments(&self.path, error.into()))?;
                Ok(more.then_some(InputBlock::Records(chunk)))
            }
            FormatReader::Cram(reader) => {
                let mut chunk = RecordBuffer::default();
                let more = reader.read_chunk(&mut chunk, bytes);
                let more = more.map_err(|error| PipelineError::alignments(&self.path, error.into()))?;
                Ok(more.then_some(InputBlock::Records(chunk)))
            }
        }
    }
}

impl InputBlock {
    /// Returns the size of the lines or packed records, bytes.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Lines(lines) => lines.bytes.len(),
            Self::Records(records) => records.data.len(),
        }
    }
}

/// A converter of blocks to packed records, which each thread has for itself.
pub(super) struct RecordEncoder {
    lines: LineEncoder,
    recycled_buffers: Sender<Vec<u8>>,
}

impl RecordEncoder {
    /// Returns an encoder that sends the buffers of processed blocks to `recycled_buffers`.
    pub(super) fn new(genome: &Genome, recycled_buffers: Sender<Vec<u8>>) -> Self {
        Self { lines: LineEncoder::new(genome), recycled_buffers }
    }

    /// Returns the concatenated packed records and their offsets: 0, then the end of each record. Calls `each` with
    /// every record right after packing; `each` may return a range of bytes to remove from the record.
    pub(super) fn encode_block(
        &mut self,
        chunk: InputBlock,
        path: &Path,
        mut each: impl FnMut(RawRecord) -> Option<Range<usize>>,
    ) -> Result<(Vec<u8>, Vec<i32>), PipelineError> {
        let mut offsets = vec![0];
        match chunk {
            InputBlock::Records(records) => {
                let cuts: Vec<_> =
                    records.records().map(|record| each(RawRecord::from_trusted_bytes(record))).collect();
                if cuts.iter().all(Option::is_none) {
                    offsets.extend(records.end_offsets.iter().map(|end| *end as i32));
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
            InputBlock::Lines(lines) => {
                // Packed records are smaller than their text. Unused memory at the end of the buffer costs nothing.
                let mut data = large_buffer(lines.bytes.len());
                for (index, line) in lines.lines().enumerate() {
                    let start = data.len();
                    self.lines.encode(line, &mut data).map_err(|source| {
                        let line = lines.first_line_number + index as u64;
                        PipelineError::alignments(path, AlignmentsError::Line { line, source })
                    })?;
                    if let Some(cut) = each(RawRecord::from_trusted_bytes(&data[start..])) {
                        data.drain(start + cut.start..start + cut.end);
                    }
                    offsets.push(data.len() as i32);
                }
                // If the receiver is closed, the input has ended and the buffer is not needed.
                let _ = self.recycled_buffers.send(lines.bytes);
                Ok((data, offsets))
            }
        }
    }
}
