//! Where the records of a partition go: one sink for each format, all fed by the same merge.
//!
//! A sink belongs to the thread that writes the partition, which compresses for all of its sinks. Committing completes the
//! part; a sink that is dropped leaves it missing, and the output is never named.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use godwit_cram as cram;
use godwit_formats::bgzf;
use godwit_formats::columnar::{ArrowPart, ColumnLayout, Columns, ParquetPart};
use godwit_formats::index::IndexBuilder;
use godwit_model::{Genome, RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::outputs::Format;
use crate::partitioned_file::{PartWriter, PartitionedFile};
use crate::run_directory::RunDirectory;
use crate::scratch::unique;
use crate::staging::StagedDirectory;

/// Compression level of BAM: fast, as intermediate files of this size want it.
const COMPRESSION_LEVEL: u8 = 1;
/// Bytes of a record before its FLAG.
const FLAG_OFFSET: usize = 14;
/// Bytes gathered before a file of columns is written to.
const WRITE_BYTES: usize = 256 << 10;
/// What names start with while files of columns are written elsewhere.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// The files of a run, which the sinks of all partitions share.
pub(super) struct Targets<'t> {
    /// Where parts are kept for a later process.
    pub(super) run: Option<&'t RunDirectory>,
    pub(super) bam: Option<PartitionedFile<'t>>,
    pub(super) cram: Option<(PartitionedFile<'t>, cram::Encoder)>,
    pub(super) columns: Option<ColumnLayout>,
    pub(super) parquet: Option<ColumnFiles>,
    pub(super) arrow: Option<ColumnFiles>,
    /// Where a step puts files of its own.
    pub(super) step: Option<ColumnFiles>,
}

/// Where files go that belong to one partition each.
pub(super) enum ColumnFiles {
    /// Into a directory of this process.
    Own(StagedDirectory),
    /// Into that of the process that gathers what many write.
    Elsewhere(PathBuf),
}

/// A file of columns, and the name it gets when it is whole: a process that was given up and another one in its place may
/// write the same partition.
pub(super) struct ColumnFile {
    file: File,
    names: Option<(PathBuf, PathBuf)>,
}

impl ColumnFiles {
    /// The directory, as it is called for now.
    ///
    /// # Errors
    /// What the file system reports.
    pub(super) fn place(&self) -> io::Result<PathBuf> {
        match self {
            Self::Own(directory) => std::path::absolute(directory.aside()),
            Self::Elsewhere(directory) => Ok(directory.clone()),
        }
    }

    fn create(&self, name: &str) -> io::Result<ColumnFile> {
        match self {
            Self::Own(directory) => Ok(ColumnFile { file: directory.file(name)?, names: None }),
            Self::Elsewhere(directory) => {
                let aside = directory.join(format!("{UNFINISHED}{}-{name}", unique()));
                let file = OpenOptions::new().write(true).create_new(true).open(&aside)?;
                Ok(ColumnFile { file, names: Some((aside, directory.join(name))) })
            }
        }
    }
}

impl ColumnFile {
    /// Makes it durable and gives it its name.
    fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        self.names.map_or(Ok(()), |(aside, name)| fs::rename(aside, name))
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

/// What the sinks of a partition say about their parts.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct PartReport {
    pub(super) bam: Option<BamReport>,
    /// Offsets are relative to the part's start.
    #[serde(default)]
    pub(super) cram_index: Vec<cram::IndexEntry>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct BamReport {
    /// Offsets are relative to the part's start.
    pub(super) index: IndexBuilder,
    /// BLAKE3 of the compressed bytes, hexadecimal.
    pub(super) checksum: String,
}

/// One format of one partition. A match per record costs less than a call through a table, and sinks copy what they keep.
pub(super) enum PartSink<'t> {
    Bam(Box<BamSink<'t>>),
    Cram(CramSink<'t>),
    Columns(Box<ColumnSink<'t>>),
}

impl Targets<'_> {
    /// Sinks for partition `at`. Part 0 of BAM and CRAM is the header.
    pub(super) fn sinks(&self, at: usize, genome: &Genome) -> io::Result<Vec<PartSink<'_>>> {
        let mut sinks = Vec::new();
        if let Some(file) = &self.bam {
            let out = Hashing { out: file.part(at + 1), hasher: blake3::Hasher::new() };
            let bgzf = bgzf::Writer::new(out, COMPRESSION_LEVEL);
            sinks.push(PartSink::Bam(Box::new(BamSink { bgzf, index: IndexBuilder::new(genome) })));
        }
        if let Some((file, encoder)) = &self.cram {
            sinks.push(PartSink::Cram(CramSink { part: encoder.part()?, out: file.part(at + 1) }));
        }
        if let Some(layout) = &self.columns {
            let file = |directory: &ColumnFiles, format: Format| {
                let file = directory.create(&format!("part-{at:05}.{}", format.extension()))?;
                Ok::<_, io::Error>(BufWriter::with_capacity(WRITE_BYTES, file))
            };
            let parquet = self.parquet.as_ref().map(|directory| file(directory, Format::Parquet)).transpose()?;
            let parquet = parquet.map(|file| ParquetPart::new(layout, file)).transpose().map_err(io::Error::other)?;
            let arrow = self.arrow.as_ref().map(|directory| file(directory, Format::Arrow)).transpose()?;
            let arrow = arrow.map(|file| ArrowPart::new(layout, file)).transpose().map_err(io::Error::other)?;
            let columns = Columns::new(layout);
            sinks.push(PartSink::Columns(Box::new(ColumnSink { columns, parquet, arrow })));
        }
        Ok(sinks)
    }
}

impl<'t> PartSink<'t> {
    /// Takes a record whose FLAG is to be `flag`. Records come in coordinate order.
    #[inline]
    pub(super) fn write(&mut self, record: RawRecord, flag: u16) -> io::Result<()> {
        match self {
            Self::Bam(sink) => sink.write(record, flag),
            Self::Cram(sink) => sink.part.write(record, flag),
            Self::Columns(sink) => sink.write(record, flag),
        }
    }

    /// Completes the part. Returns it where others wait for it to hand on their turn.
    pub(super) fn commit(self, report: &mut PartReport) -> io::Result<Option<PartWriter<'t>>> {
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

/// Writes and hashes.
struct Hashing<W> {
    out: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Compresses from a fresh BGZF block, and indexes.
pub(super) struct BamSink<'t> {
    bgzf: bgzf::Writer<Hashing<PartWriter<'t>>>,
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

/// Encodes CRAM containers.
pub(super) struct CramSink<'t> {
    part: cram::PartEncoder<'t>,
    out: PartWriter<'t>,
}

/// Fills columns once for Parquet and Arrow.
pub(super) struct ColumnSink<'t> {
    columns: Columns<&'t ColumnLayout>,
    parquet: Option<ParquetPart<BufWriter<ColumnFile>>>,
    arrow: Option<ArrowPart<BufWriter<ColumnFile>>>,
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
        self.columns.reuse(batch);
        Ok(())
    }

    fn commit(mut self) -> io::Result<()> {
        if self.columns.rows() > 0 {
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
