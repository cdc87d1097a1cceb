//! A BAM cut into slices: runs of records that follow each other, each a BAM of its own.
//!
//! Every record is in one slice, whatever regions it reaches over, and the slices one behind the other are the file again.
//! Where they end depends on the file and the size asked for, not on who works on them.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use godwit_formats::bam::{self, BamError, RecordChunk};
use godwit_formats::bgzf;
use godwit_formats::index::IndexBuilder;
use godwit_formats::sam::Header;
use godwit_model::{Genome, RawRecord, flags};

use crate::error::{AlignmentsError, PipelineError};

/// Bytes of records that are read at a time; slices end between two such reads.
const READ_BYTES: usize = 1 << 18;
/// Level of slices, which are read once.
const SCRATCH_LEVEL: u8 = 1;

/// A BAM that is cut while it is read.
pub(super) struct Slicer {
    reader: bam::Reader,
    head: Vec<u8>,
    chunk: RecordChunk,
    slice_records: u64,
    next: usize,
    /// Records in the slices before.
    records: u64,
}

/// A slice.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    pub(super) index: usize,
    /// 0-based number of its first record in the file.
    pub(super) first: u64,
    pub(super) records: u64,
}

impl Slice {
    /// As messages have it; records are counted from 1.
    pub(super) fn name(self) -> String {
        format!("records {} to {}", self.first + 1, self.first + self.records)
    }
}

impl Slicer {
    /// Opens a BAM, decompressed on that many threads.
    ///
    /// # Errors
    /// [`PipelineError::Alignments`], [`PipelineError::Header`].
    pub(super) fn open(path: &Path, threads: usize, slice_records: u64) -> Result<Self, PipelineError> {
        let failed = |error: BamError| PipelineError::alignments(path, AlignmentsError::Bam(error));
        let reader = bam::Reader::open(path, threads).map_err(failed)?;
        let head = encoded(path, reader.header())?;
        Ok(Self { reader, head, chunk: RecordChunk::default(), slice_records, next: 0, records: 0 })
    }

    /// The next slice; `None` at the end of the file. `place` says where it is to be written; where it says nothing, it is
    /// passed over.
    ///
    /// # Errors
    /// [`PipelineError::Alignments`], [`PipelineError::File`].
    pub(super) fn next<'p>(
        &mut self,
        place: impl FnOnce(usize) -> Option<&'p Path>,
    ) -> Result<Option<Slice>, PipelineError> {
        let mut slice = Slice { index: self.next, first: self.records, records: 0 };
        let path = place(slice.index);
        let failed = |path: Option<&Path>, error| PipelineError::file("write", path.unwrap_or(Path::new("")))(error);
        let mut out = None;
        while slice.records < self.slice_records && self.read()? {
            slice.records += self.chunk.ends.len() as u64;
            let Some(path) = path else { continue };
            let mut writer = match out.take() {
                Some(writer) => writer,
                None => self.start(path).map_err(|error| failed(Some(path), error))?,
            };
            for record in self.chunk.records() {
                let bytes = (record.len() as u32).to_le_bytes();
                writer.write_record(&[&bytes, record]).map_err(|error| failed(Some(path), error))?;
            }
            out = Some(writer);
        }
        if slice.records == 0 {
            return Ok(None);
        }
        if let Some(writer) = out {
            let whole = writer.finish_file().and_then(|(buffer, _)| buffer.into_inner().map_err(io::Error::from));
            whole.map_err(|error| failed(path, error))?;
        }
        self.next += 1;
        self.records += slice.records;
        Ok(Some(slice))
    }

    fn start(&self, path: &Path) -> io::Result<bgzf::Writer<BufWriter<File>>> {
        let file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut writer = bgzf::Writer::new(file, SCRATCH_LEVEL);
        writer.write_bytes(&self.head)?;
        Ok(writer)
    }

    fn read(&mut self) -> Result<bool, PipelineError> {
        let read = self.reader.read_chunk(&mut self.chunk, READ_BYTES);
        read.map_err(|error| PipelineError::alignments(self.reader.input().path(), AlignmentsError::Bam(error)))
    }
}

/// What a BAM holds before its records.
///
/// # Errors
/// [`PipelineError::Header`].
pub(super) fn encoded(path: &Path, header: &Header) -> Result<Vec<u8>, PipelineError> {
    let mut bytes = Vec::new();
    bam::encode_header(header, &mut bytes)
        .map_err(|source| PipelineError::Header { origin: path.display().to_string(), source })?;
    Ok(bytes)
}

/// Records of a BAM as blocks for the middle of another one.
pub(super) struct Part<B> {
    pub(super) blocks: B,
    /// Offsets are relative to the first block.
    pub(super) index: IndexBuilder,
    pub(super) records: u64,
}

impl Part<Vec<u8>> {
    /// Reads a BAM and compresses its records anew, indexed for a file with these contigs.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(path: &Path, genome: &Genome) -> Result<Self, Box<dyn std::error::Error>> {
        let mut reader = bam::Reader::open(path, 1)?;
        let mut writer = bgzf::Writer::new(Vec::new(), bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        let (mut index, mut records, mut chunk) = (IndexBuilder::new(genome), 0, RecordChunk::default());
        while reader.read_chunk(&mut chunk, READ_BYTES)? {
            for bytes in chunk.records() {
                let place = writer.write_record(&[&(bytes.len() as u32).to_le_bytes(), bytes])?;
                let record = RawRecord::trusted(bytes);
                let flag = record.flag();
                let mapped = flag & flags::UNMAPPED == 0;
                index.push(record.contig(), record.position(), record.end_position(flag), mapped, place)?;
                records += 1;
            }
        }
        let (blocks, _) = writer.finish_blocks()?;
        Ok(Self { blocks, index, records })
    }
    /// As it is kept: the length of what is known of it, that, and the blocks.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let known = serde_json::to_vec(&(self.records, &self.index))?;
        Ok([&(known.len() as u64).to_le_bytes(), &known[..], &self.blocks].concat())
    }
}

impl<'b> Part<&'b [u8]> {
    /// What [`Part::to_bytes`] made.
    pub(super) fn from_bytes(bytes: &'b [u8]) -> io::Result<Self> {
        let cut_short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let (length, rest) = bytes.split_first_chunk().ok_or_else(cut_short)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut_short())?;
        let (known, blocks) = rest.split_at_checked(length).ok_or_else(cut_short)?;
        let (records, index) = serde_json::from_slice(known)?;
        Ok(Self { blocks, index, records })
    }
}
