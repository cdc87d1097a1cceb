//! Sinks to which the records of a partition are written, one for each format. A single merge of the runs feeds all
//! sinks.
//!
//! The thread that writes a partition owns the sinks of the partition and compresses in all of them. Committing a sink
//! completes its part of the output. If a sink is dropped before, the part is missing, and the output is never
//! published.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout, AlignmentParquetWriter, ArrowFileWriter};
use godwit_cram as cram;
use godwit_files::AtomicDirectory;
use godwit_formats::binning_index::IndexBuilder;
use godwit_io::bgzf;
use godwit_model::{Genome, RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::outputs::Format;
use crate::job_directory::JobDirectory;
use crate::partitioned_file::{PartWriter, PartitionedFile};
use crate::scratch::unique_name;

/// Compression level of BAM. Level 1 is fast and suits a large intermediate file.
const BAM_COMPRESSION_LEVEL: u8 = 1;
/// Offset of FLAG in a packed BAM record without its length field, bytes.
const FLAG_OFFSET: usize = 14;
/// Size of the write buffer of a Parquet or Arrow file, bytes.
const WRITE_BYTES: usize = 256 << 10;
/// Prefix of the temporary names of Parquet and Arrow files that workers write.
pub(super) const UNFINISHED_PREFIX: &str = ".unfinished-";

/// The output files of a job, to which the sinks of all partitions write.
pub(super) struct PartitionedOutputs<'t> {
    /// Job directory in which finished parts are stored for a later process; `None` if the job cannot be resumed.
    pub(super) job_directory: Option<&'t JobDirectory>,
    pub(super) bam: Option<PartitionedFile<'t>>,
    pub(super) cram: Option<(PartitionedFile<'t>, cram::Encoder)>,
    pub(super) columns: Option<AlignmentLayout>,
    pub(super) parquet: Option<ColumnFiles>,
    pub(super) arrow: Option<ColumnFiles>,
    /// Directory for files that the Python function writes.
    pub(super) step_files: Option<ColumnFiles>,
}

/// A directory with one Parquet or Arrow file for each partition.
pub(super) enum ColumnFiles {
    /// A directory that this process creates and publishes.
    Local(AtomicDirectory),
    /// A directory of the head, in which this worker writes files.
    Shared(PathBuf),
}

/// A Parquet or Arrow file. A worker writes it under a temporary name, because a lost worker and its replacement may
/// both write the same partition.
pub(super) struct ColumnFile {
    file: File,
    temporary_and_final_path: Option<(PathBuf, PathBuf)>,
}

impl ColumnFiles {
    /// Returns the absolute path of the directory before it is published.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub(super) fn directory_path(&self) -> io::Result<PathBuf> {
        match self {
            Self::Local(directory) => std::path::absolute(directory.temporary_path()),
            Self::Shared(directory) => Ok(directory.clone()),
        }
    }

    fn create(&self, name: &str) -> io::Result<ColumnFile> {
        match self {
            Self::Local(directory) => {
                Ok(ColumnFile { file: directory.create_file(name)?, temporary_and_final_path: None })
            }
            Self::Shared(directory) => {
                let temporary_path = directory.join(format!("{UNFINISHED_PREFIX}{}-{name}", unique_name()));
                let file = OpenOptions::new().write(true).create_new(true).open(&temporary_path)?;
                Ok(ColumnFile { file, temporary_and_final_path: Some((temporary_path, directory.join(name))) })
            }
        }
    }
}

impl ColumnFile {
    /// Makes the file durable and renames it to its final name.
    fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        self.temporary_and_final_path.map_or(Ok(()), |(temporary, name)| fs::rename(temporary, name))
    }
}

impl Write for ColumnFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The reports of all sinks of a partition.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct SinkReports {
    pub(super) bam: Option<BamReport>,
    /// Index entries of the CRAM containers, with offsets relative to the start of the part.
    #[serde(default)]
    pub(super) cram_index: Vec<cram::IndexEntry>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct BamReport {
    /// Index of the records, with offsets relative to the start of the part.
    pub(super) index: IndexBuilder,
    /// BLAKE3 of the compressed bytes of the part, hexadecimal.
    pub(super) checksum: String,
}

/// A sink for one format and one partition. This is an enum because a match per record costs less than a virtual call.
/// A sink does not keep references to records.
pub(super) enum PartSink<'t> {
    Bam(Box<BamSink<'t>>),
    Cram(CramSink<'t>),
    Columns(Box<ColumnSink<'t>>),
}

impl PartitionedOutputs<'_> {
    /// Creates the sinks of the partition with index `at`. Its part in BAM and CRAM has the number `at + 1`, because
    /// part 0 is the header.
    pub(super) fn create_sinks(&self, at: usize, genome: &Genome) -> io::Result<Vec<PartSink<'_>>> {
        let mut sinks = Vec::new();
        if let Some(file) = &self.bam {
            let out = HashingWriter { out: file.part_writer(at + 1), hasher: blake3::Hasher::new() };
            let bgzf = bgzf::Writer::new(out, BAM_COMPRESSION_LEVEL);
            sinks.push(PartSink::Bam(Box::new(BamSink { bgzf, index: IndexBuilder::new(genome) })));
        }
        if let Some((file, encoder)) = &self.cram {
            sinks.push(PartSink::Cram(CramSink { part: encoder.start_part()?, out: file.part_writer(at + 1) }));
        }
        if let Some(layout) = &self.columns {
            let file = |directory: &ColumnFiles, format: Format| {
                let file = directory.create(&format!("part-{at:05}.{}", format.extension()))?;
                Ok::<_, io::Error>(BufWriter::with_capacity(WRITE_BYTES, file))
            };
            let parquet = self.parquet.as_ref().map(|directory| file(directory, Format::Parquet)).transpose()?;
            let parquet =
                parquet.map(|file| AlignmentParquetWriter::new(layout, file)).transpose().map_err(io::Error::other)?;
            let arrow = self.arrow.as_ref().map(|directory| file(directory, Format::Arrow)).transpose()?;
            let arrow = arrow.map(|file| ArrowFileWriter::new(layout, file)).transpose().map_err(io::Error::other)?;
            let columns = AlignmentBatchBuilder::new(layout);
            sinks.push(PartSink::Columns(Box::new(ColumnSink { columns, parquet, arrow })));
        }
        Ok(sinks)
    }
}

impl<'t> PartSink<'t> {
    /// Writes a record with FLAG `flag`. The caller passes records in coordinate order.
    #[inline]
    pub(super) fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        match self {
            Self::Bam(sink) => sink.write(record, flag),
            Self::Cram(sink) => sink.part.write(record, flag),
            Self::Columns(sink) => sink.write(record, flag),
        }
    }

    /// Completes the part and adds its report. Returns the part writer of BAM or CRAM, which the caller must finish.
    pub(super) fn commit(self, report: &mut SinkReports) -> io::Result<Option<PartWriter<'t>>> {
        match self {
            Self::Bam(sink) => {
                let (bam, part) = sink.commit()?;
                report.bam = Some(bam);
                Ok(Some(part))
            }
            Self::Cram(mut sink) => {
                report.cram_index = sink.part.finish(&mut sink.out)?;
                Ok(Some(sink.out))
            }
            Self::Columns(sink) => sink.commit().map(|()| None),
        }
    }
}

/// A writer that computes the BLAKE3 of the bytes that it writes.
struct HashingWriter<W> {
    out: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A sink for BAM. It starts a new BGZF block for each partition and builds the index.
pub(super) struct BamSink<'t> {
    bgzf: bgzf::Writer<HashingWriter<PartWriter<'t>>>,
    index: IndexBuilder,
}

impl<'t> BamSink<'t> {
    fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        let bytes = record.bytes();
        let length = (bytes.len() as u32).to_le_bytes();
        let place = self.bgzf.write_record(&[
            &length,
            &bytes[..FLAG_OFFSET],
            &flag.to_le_bytes(),
            &bytes[FLAG_OFFSET + 2..],
        ])?;
        let mapped = flag & flags::UNMAPPED == 0;
        self.index
            .push(record.contig(), record.position(), record.end_position(flag), mapped, place)
            .map_err(io::Error::other)
    }

    fn commit(self) -> io::Result<(BamReport, PartWriter<'t>)> {
        let (hashing, _) = self.bgzf.finish_blocks()?;
        let checksum = hashing.hasher.finalize().to_hex().to_string();
        Ok((BamReport { index: self.index, checksum }, hashing.out))
    }
}

/// A sink for containers of CRAM.
pub(super) struct CramSink<'t> {
    part: cram::PartEncoder<'t>,
    out: PartWriter<'t>,
}

/// A sink for Parquet and Arrow, which converts records to columns once for both formats.
pub(super) struct ColumnSink<'t> {
    columns: AlignmentBatchBuilder<&'t AlignmentLayout>,
    parquet: Option<AlignmentParquetWriter<BufWriter<ColumnFile>>>,
    arrow: Option<ArrowFileWriter<BufWriter<ColumnFile>>>,
}

impl ColumnSink<'_> {
    fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        self.columns.push(record, flag);
        if self.columns.is_full() { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> io::Result<()> {
        let batch = self.columns.take_batch().map_err(io::Error::other)?;
        if let Some(parquet) = &mut self.parquet {
            parquet.write(&batch).map_err(io::Error::other)?;
        }
        if let Some(arrow) = &mut self.arrow {
            arrow.write(&batch).map_err(io::Error::other)?;
        }
        self.columns.recycle(batch);
        Ok(())
    }

    fn commit(mut self) -> io::Result<()> {
        if self.columns.row_count() > 0 {
            self.write_batch()?;
        }
        let durable = |file: BufWriter<ColumnFile>| file.into_inner().map_err(io::IntoInnerError::into_error)?.commit();
        if let Some(parquet) = self.parquet {
            durable(parquet.finish().map_err(io::Error::other)?)?;
        }
        if let Some(arrow) = self.arrow {
            durable(arrow.finish().map_err(io::Error::other)?)?;
        }
        Ok(())
    }
}
