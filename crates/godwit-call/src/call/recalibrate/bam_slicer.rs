//! Divides a BAM into slices of consecutive records, each in memory or written as a BAM file of its own.
//!
//! Every record is in exactly one slice, and the slices together contain all records in their order. The borders of
//! slices depend only on the file and the requested size, so that another process finds the same slices.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use godwit_formats::bam::{self, BamError, RecordBuffer};
use godwit_formats::binning_index::IndexBuilder;
use godwit_formats::sam::Header;
use godwit_io::bgzf;
use godwit_model::{Genome, RawRecord, flags};
use godwit_pipeline::{AlignmentsError, PipelineError};

/// Bytes of records that are read from the input at once; slices end only between two of these portions.
const READ_BYTES: usize = 1 << 18;
/// Compression level of slice files, which are read only once.
const SLICE_COMPRESSION_LEVEL: u8 = 1;

/// A reader that divides a BAM into slices.
pub(super) struct BamSlicer {
    reader: bam::Reader,
    header_bytes: Vec<u8>,
    chunk: RecordBuffer,
    slice_records: u64,
    next_index: usize,
    /// Number of records in all previous slices.
    records: u64,
}

/// The index of a slice, and the range of its records in the file.
#[derive(Clone, Copy)]
pub(super) struct BamSlice {
    pub(super) index: usize,
    /// 0-based number of the slice's first record in the file.
    pub(super) first_record: u64,
    pub(super) records: u64,
}

/// The place for the records of a slice.
pub(super) enum SliceTarget<'t> {
    /// The records are not needed.
    Skip,
    /// A BAM file with this path.
    File(&'t Path),
    /// Buffers in memory.
    Memory(&'t mut Vec<RecordBuffer>),
}

impl BamSlice {
    /// Returns the name of the slice in messages; records are counted from 1.
    pub(super) fn label(self) -> String {
        format!("records {} to {}", self.first_record + 1, self.first_record + self.records)
    }
}

impl BamSlicer {
    /// Opens a BAM, which `threads` threads decompress.
    ///
    /// # Errors
    /// [`PipelineError::Alignments`] for a file that is not a valid BAM, [`PipelineError::Header`] for an invalid
    /// header.
    pub(super) fn open(path: &Path, threads: usize, slice_records: u64) -> Result<Self, PipelineError> {
        let failed = |error: BamError| PipelineError::alignments(path, AlignmentsError::Bam(error));
        let reader = bam::Reader::open(path, threads).map_err(failed)?;
        let header_bytes = encode_header(path, reader.header())?;
        Ok(Self { reader, header_bytes, chunk: RecordBuffer::default(), slice_records, next_index: 0, records: 0 })
    }

    /// Reads the next slice and returns its description; `None` at the end of the input. `target` returns the place for
    /// the slice with a given index.
    ///
    /// # Errors
    /// [`PipelineError::Alignments`] for damaged input, [`PipelineError::File`] if the slice cannot be written.
    pub(super) fn next_slice<'t>(
        &mut self,
        target: impl FnOnce(usize) -> SliceTarget<'t>,
    ) -> Result<Option<BamSlice>, PipelineError> {
        let mut slice = BamSlice { index: self.next_index, first_record: self.records, records: 0 };
        let mut target = target(slice.index);
        let mut out = None;
        while slice.records < self.slice_records && self.read_chunk()? {
            slice.records += self.chunk.end_offsets.len() as u64;
            match &mut target {
                SliceTarget::Skip => {}
                SliceTarget::Memory(records) => records.push(std::mem::take(&mut self.chunk)),
                SliceTarget::File(path) => {
                    let written = self.append_chunk(path, out.take());
                    out = Some(written.map_err(PipelineError::file("write", *path))?);
                }
            }
        }
        if slice.records == 0 {
            return Ok(None);
        }
        if let (SliceTarget::File(path), Some(writer)) = (target, out) {
            let whole = writer.finish_file().and_then(|(buffer, _)| buffer.into_inner().map_err(io::Error::from));
            whole.map_err(PipelineError::file("write", path))?;
        }
        self.next_index += 1;
        self.records += slice.records;
        Ok(Some(slice))
    }

    /// Writes the records of the current chunk to a slice file, which is created if `out` is `None`.
    fn append_chunk(
        &self,
        path: &Path,
        out: Option<bgzf::Writer<BufWriter<File>>>,
    ) -> io::Result<bgzf::Writer<BufWriter<File>>> {
        let mut writer = out.map_or_else(|| self.create_slice_file(path), Ok)?;
        for record in self.chunk.records() {
            writer.write_record(&[&(record.len() as u32).to_le_bytes(), record])?;
        }
        Ok(writer)
    }

    fn create_slice_file(&self, path: &Path) -> io::Result<bgzf::Writer<BufWriter<File>>> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut writer = bgzf::Writer::new(file, SLICE_COMPRESSION_LEVEL);
        writer.write_bytes(&self.header_bytes)?;
        Ok(writer)
    }

    fn read_chunk(&mut self) -> Result<bool, PipelineError> {
        let read = self.reader.read_records(&mut self.chunk, READ_BYTES);
        read.map_err(|error| PipelineError::alignments(self.reader.input().path(), AlignmentsError::Bam(error)))
    }
}

/// Returns the uncompressed bytes of a BAM that precede its records.
///
/// # Errors
/// [`PipelineError::Header`] for an invalid header.
pub(super) fn encode_header(path: &Path, header: &Header) -> Result<Vec<u8>, PipelineError> {
    let mut bytes = Vec::new();
    bam::encode_header(header, &mut bytes)
        .map_err(|source| PipelineError::Header { origin: path.display().to_string(), source })?;
    Ok(bytes)
}

/// Compressed records that can be appended to another BAM.
pub(super) struct BamPart<B> {
    pub(super) blocks: B,
    /// BAM index of the records, with offsets from the first block.
    pub(super) index: IndexBuilder,
    pub(super) records: u64,
}

/// A builder of a [`BamPart`], which receives records in coordinate order.
pub(super) struct BamPartBuilder {
    writer: bgzf::Writer<Vec<u8>>,
    index: IndexBuilder,
    records: u64,
}

impl BamPartBuilder {
    /// Creates a builder for a file with the contigs of `genome`.
    pub(super) fn new(genome: &Genome) -> Self {
        let writer = bgzf::Writer::new(Vec::new(), bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        Self { writer, index: IndexBuilder::new(genome), records: 0 }
    }

    /// Appends a record.
    ///
    /// # Errors
    /// An error of compressing the record, or of indexing one that is not in coordinate order.
    pub(super) fn push(&mut self, record: RawRecord) -> io::Result<()> {
        let bytes = record.bytes();
        let place = self.writer.write_record(&[&(bytes.len() as u32).to_le_bytes(), bytes])?;
        let flag = record.flag();
        let mapped = flag & flags::UNMAPPED == 0;
        let indexed = self.index.push(record.contig(), record.position(), record.end_position(flag), mapped, place);
        self.records += 1;
        indexed.map_err(io::Error::other)
    }

    /// Ends the part with its last block.
    ///
    /// # Errors
    /// An error of compressing the last block.
    pub(super) fn finish(self) -> io::Result<BamPart<Vec<u8>>> {
        let (blocks, _) = self.writer.finish_blocks()?;
        Ok(BamPart { blocks, index: self.index, records: self.records })
    }
}

impl BamPart<Vec<u8>> {
    /// Reads a BAM, recompresses its records, and builds an index of them for a file with the contigs of `genome`.
    ///
    /// # Errors
    /// An error of reading or indexing the BAM.
    pub(super) fn from_bam(path: &Path, genome: &Genome) -> Result<Self, Box<dyn std::error::Error>> {
        let mut reader = bam::Reader::open(path, 1)?;
        let (mut part, mut chunk) = (BamPartBuilder::new(genome), RecordBuffer::default());
        while reader.read_records(&mut chunk, READ_BYTES)? {
            chunk.records().try_for_each(|bytes| part.push(RawRecord::from_trusted_bytes(bytes)))?;
        }
        Ok(part.finish()?)
    }

    /// Encodes the part for a checkpoint: the length of the JSON text, the number of records and the index as JSON,
    /// then the blocks.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let known = serde_json::to_vec(&(self.records, &self.index))?;
        Ok([&(known.len() as u64).to_le_bytes(), &known[..], &self.blocks].concat())
    }
}

impl<'b> BamPart<&'b [u8]> {
    /// Parses the bytes of [`BamPart::to_bytes`].
    pub(super) fn from_bytes(bytes: &'b [u8]) -> io::Result<Self> {
        let cut_short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (length, rest) = bytes.split_first_chunk().ok_or_else(cut_short)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut_short())?;
        let (known, blocks) = rest.split_at_checked(length).ok_or_else(cut_short)?;
        let (records, index) = serde_json::from_slice(known)?;
        Ok(Self { blocks, index, records })
    }
}
