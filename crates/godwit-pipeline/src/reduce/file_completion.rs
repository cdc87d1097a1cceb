//! The start and end of the output file of each format: headers, end-of-file markers and indexes.

use std::fs::File;
use std::io;

use godwit_cram as cram;
use godwit_files::{AtomicDirectory, AtomicSet};
use godwit_formats::bam;
use godwit_formats::binning_index::{IndexBuilder, IndexFormat};
use godwit_formats::sam::Header;
use godwit_io::bgzf;
use godwit_model::Genome;

use super::outputs::{Format, Outputs};
use super::partition::PartitionSummary;
use super::sink::{BamReport, ColumnFiles, PartitionedOutputs};
use super::write::writing_error;
use crate::encryption::encrypt_files;
use crate::error::PipelineError;
use crate::manifest::Segment;
use crate::partitioned_file::{PartExtent, PartitionedFile};

/// Memory of a Parquet or Arrow sink, bytes: the row group that is being compressed and the batch before it.
const COLUMN_SINK_BYTES: usize = 32 << 20;
/// Memory of a CRAM sink, bytes: the records of a slice in htslib and its data streams.
const CRAM_SINK_BYTES: usize = 48 << 20;
/// BGZF compression level of the BAM header, which is small.
const HEADER_COMPRESSION_LEVEL: u8 = 6;

/// Finished output files that are not published yet.
#[derive(Default)]
pub(super) struct FinishedFiles {
    pub(super) files: AtomicSet,
    /// Size of the record files in all formats, bytes.
    pub(super) bytes: u64,
    /// Segments of the BAM, with checksums.
    pub(super) segments: Vec<Segment>,
}

impl PartitionedOutputs<'_> {
    /// Returns the memory of the sinks of one partition, without that of a BAM sink, bytes.
    pub(super) fn sink_bytes(&self) -> usize {
        usize::from(self.columns.is_some()) * COLUMN_SINK_BYTES + usize::from(self.cram.is_some()) * CRAM_SINK_BYTES
    }

    /// Writes the header as part 0 of the BAM and the CRAM.
    pub(super) fn write_headers(&self, header: &Header) -> io::Result<()> {
        if let Some(file) = &self.bam {
            let mut plain = Vec::new();
            bam::encode_header(header, &mut plain).map_err(io::Error::other)?;
            let mut writer = bgzf::Writer::new(file.part_writer(0), HEADER_COMPRESSION_LEVEL);
            writer.write_bytes(&plain)?;
            writer.finish_blocks()?.0.finish()?;
        }
        if let Some((file, encoder)) = &self.cram {
            let mut part = file.part_writer(0);
            io::Write::write_all(&mut part, encoder.header_bytes())?;
            part.finish()?;
        }
        Ok(())
    }

    /// Finishes all files and directories and adds them to `sealed`, each file after its index. The BAM is added last,
    /// because other programs may wait for it to appear.
    pub(super) fn finish_files(
        self,
        summaries: Vec<PartitionSummary>,
        genome: &Genome,
        outputs: &Outputs,
        sealed: &mut FinishedFiles,
    ) -> Result<(), PipelineError> {
        for directory in [self.parquet, self.arrow].into_iter().flatten() {
            let ColumnFiles::Local(directory) = directory else { continue };
            sealed.bytes += directory.bytes();
            sealed.files.add_directory(directory);
        }
        if let Some(ColumnFiles::Local(directory)) = self.step_files {
            add_step_files(directory, sealed)?;
        }
        let (records, parts): (Vec<u64>, Vec<_>) =
            summaries.into_iter().map(|summary| (summary.flagstat.records(), summary.sink_reports)).unzip();
        let (bam_reports, cram_indexes): (Vec<_>, Vec<_>) =
            parts.into_iter().map(|part| (part.bam, part.cram_index)).unzip();
        if let Some((file, _)) = self.cram {
            let path = outputs.path(Format::Cram);
            let failed = |error| writing_error(error, &path);
            let extents = finish_file(&file, records.len(), &cram::EOF_CONTAINER, sealed).map_err(failed)?;
            let mut index = Vec::new();
            cram::write_index(cram_indexes.into_iter().zip(extents.iter().map(|extent| extent.offset)), &mut index)
                .map_err(failed)?;
            add_index(sealed, &path, "crai", &index)?;
            sealed.files.add(file.into_atomic_file()).map_err(failed)?;
        }
        if let Some(file) = self.bam {
            let path = outputs.path(Format::Bam);
            let failed = |error| writing_error(error, &path);
            let extents = finish_file(&file, records.len(), &bgzf::EOF_BLOCK, sealed).map_err(failed)?;
            let reports: Vec<BamReport> = bam_reports.into_iter().flatten().collect();
            sealed.segments = bam_segments(&reports, &records, &extents);
            let format = IndexFormat::for_genome(genome);
            let mut index = Vec::new();
            merge_index(reports, &extents)
                .and_then(|merged| merged.write(format, genome, &mut index))
                .map_err(failed)?;
            add_index(sealed, &path, format.extension(), &index)?;
            sealed.files.add(file.into_atomic_file()).map_err(failed)?;
        }
        // Segments are byte ranges of the plain BAM, so an encrypted BAM has none.
        if !outputs.recipients.is_empty() {
            sealed.segments.clear();
        }
        encrypt_files(&mut sealed.files, &outputs.encryptable_paths(), &outputs.recipients)
    }
}

/// Writes the end of a file that has a header and `partitions` partitions. Returns the locations of the partitions.
fn finish_file(
    file: &PartitionedFile,
    partitions: usize,
    end: &[u8],
    sealed: &mut FinishedFiles,
) -> io::Result<Vec<PartExtent>> {
    let mut extents = file.finish_file(partitions + 1, end)?;
    let last = extents[partitions];
    sealed.bytes += last.offset + last.bytes + end.len() as u64;
    extents.remove(0);
    Ok(extents)
}

/// Makes the files of a Python step durable and adds their directory. A directory without files is not published.
fn add_step_files(directory: AtomicDirectory, sealed: &mut FinishedFiles) -> Result<(), PipelineError> {
    let files = directory.files().map_err(PipelineError::file("read", directory.path()))?;
    for path in &files {
        let durable = File::open(path).and_then(|file| file.sync_all());
        durable.map_err(PipelineError::file("write", path))?;
    }
    if !files.is_empty() {
        sealed.files.add_directory(directory);
    }
    Ok(())
}

fn add_index(
    sealed: &mut FinishedFiles,
    of: &std::path::Path,
    extension: &str,
    bytes: &[u8],
) -> Result<(), PipelineError> {
    let path = of.with_added_extension(extension);
    sealed.files.write_file(&path, bytes).map_err(PipelineError::file("write", &path))
}

fn bam_segments(reports: &[BamReport], records: &[u64], extents: &[PartExtent]) -> Vec<Segment> {
    let parts = reports.iter().zip(records).zip(extents);
    parts
        .map(|((report, records), extent)| Segment {
            offset: extent.offset,
            bytes: extent.bytes,
            records: *records,
            blake3: report.checksum.clone(),
        })
        .collect()
}

fn merge_index(reports: Vec<BamReport>, extents: &[PartExtent]) -> io::Result<IndexBuilder> {
    let parts = reports.into_iter().zip(extents).map(|(report, extent)| (report.index, extent.offset)).collect();
    IndexBuilder::merge(parts).map_err(io::Error::other)
}
