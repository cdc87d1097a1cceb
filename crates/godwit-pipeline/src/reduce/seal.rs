//! What comes before the first part of each format and behind the last: headers, ends, indexes.

use std::fs::File;
use std::io;

use godwit_cram as cram;
use godwit_formats::index::{IndexBuilder, IndexFormat};
use godwit_formats::sam::Header;
use godwit_formats::{bam, bgzf};
use godwit_model::Genome;

use super::outputs::{Format, Outputs};
use super::partition::PartitionSummary;
use super::sink::{BamReport, ColumnFiles, Targets};
use super::write::{Segment, writing_failed};
use crate::error::PipelineError;
use crate::partitioned_file::{PartExtent, PartitionedFile};
use crate::staging::{Staged, StagedDirectory};

/// Memory of a sink: a row group being compressed and the batch before it.
const COLUMN_SINK_BYTES: usize = 32 << 20;
/// Memory of a sink: the records of a slice as htslib holds them, and its streams.
const CRAM_SINK_BYTES: usize = 48 << 20;
/// Level of the header's block, which is small.
const HEADER_LEVEL: u8 = 6;

/// Outputs that are whole and lack only their names.
#[derive(Default)]
pub(super) struct Sealed {
    pub(super) staged: Staged,
    /// Bytes of the records in all formats.
    pub(super) bytes: u64,
    /// Stretches of the BAM.
    pub(super) segments: Vec<Segment>,
}

impl Targets<'_> {
    /// What the sinks of one partition take beyond a block of BAM.
    pub(super) fn sink_bytes(&self) -> usize {
        usize::from(self.columns.is_some()) * COLUMN_SINK_BYTES + usize::from(self.cram.is_some()) * CRAM_SINK_BYTES
    }

    /// Part 0 of BAM and CRAM: the header in blocks of its own.
    pub(super) fn write_headers(&self, header: &Header) -> io::Result<()> {
        if let Some(file) = &self.bam {
            let mut plain = Vec::new();
            bam::encode_header(header, &mut plain).map_err(io::Error::other)?;
            let mut writer = bgzf::Writer::new(file.part(0), HEADER_LEVEL);
            writer.write_bytes(&plain)?;
            writer.finish_blocks()?.0.finish()?;
        }
        if let Some((file, encoder)) = &self.cram {
            let mut part = file.part(0);
            io::Write::write_all(&mut part, encoder.header_bytes())?;
            part.finish()?;
        }
        Ok(())
    }

    /// Ends every file and directory and adds them to `sealed`, each behind its index; the BAM comes last because it is
    /// what others wait for.
    pub(super) fn seal(
        self,
        summaries: Vec<PartitionSummary>,
        genome: &Genome,
        outputs: &Outputs,
        sealed: &mut Sealed,
    ) -> Result<(), PipelineError> {
        for directory in [self.parquet, self.arrow].into_iter().flatten() {
            let ColumnFiles::Own(directory) = directory else { continue };
            sealed.bytes += directory.bytes();
            sealed.staged.add_directory(directory);
        }
        if let Some(ColumnFiles::Own(directory)) = self.step {
            add_files_of_step(directory, sealed)?;
        }
        let (records, parts): (Vec<u64>, Vec<_>) =
            summaries.into_iter().map(|summary| (summary.flagstat.records(), summary.parts)).unzip();
        let (bam_reports, cram_indexes): (Vec<_>, Vec<_>) =
            parts.into_iter().map(|part| (part.bam, part.cram_index)).unzip();
        if let Some((file, _)) = self.cram {
            let path = outputs.path(Format::Cram);
            let failed = |error| writing_failed(error, &path);
            let extents = end_file(&file, records.len(), &cram::EOF_CONTAINER, sealed).map_err(failed)?;
            let mut index = Vec::new();
            cram::write_index(cram_indexes.into_iter().zip(extents.iter().map(|extent| extent.offset)), &mut index)
                .map_err(failed)?;
            add_index(sealed, &path, "crai", &index)?;
            sealed.staged.add(file.into_staged());
        }
        if let Some(file) = self.bam {
            let path = outputs.path(Format::Bam);
            let failed = |error| writing_failed(error, &path);
            let extents = end_file(&file, records.len(), &bgzf::EOF_BLOCK, sealed).map_err(failed)?;
            let reports: Vec<BamReport> = bam_reports.into_iter().flatten().collect();
            sealed.segments = segments(&reports, &records, &extents);
            let format = IndexFormat::for_genome(genome);
            let mut index = Vec::new();
            merge_index(reports, &extents)
                .and_then(|merged| merged.write(format, genome, &mut index))
                .map_err(failed)?;
            add_index(sealed, &path, format.extension(), &index)?;
            sealed.staged.add(file.into_staged());
        }
        // Stretches of a BAM are none of what is encrypted.
        if !outputs.recipients.is_empty() {
            sealed.segments.clear();
        }
        sealed.staged.encrypt(&outputs.to_encrypt(), &outputs.recipients)
    }
}

/// Ends a file of that many partitions behind its header, and returns where they lie.
fn end_file(file: &PartitionedFile, partitions: usize, end: &[u8], sealed: &mut Sealed) -> io::Result<Vec<PartExtent>> {
    let mut extents = file.seal(partitions + 1, end)?;
    let last = extents[partitions];
    sealed.bytes += last.offset + last.bytes + end.len() as u64;
    extents.remove(0);
    Ok(extents)
}

/// Makes what a step wrote durable. A directory without files is left out.
fn add_files_of_step(directory: StagedDirectory, sealed: &mut Sealed) -> Result<(), PipelineError> {
    let files = directory.files().map_err(PipelineError::file("read", directory.path()))?;
    for path in &files {
        let durable = File::open(path).and_then(|file| file.sync_all());
        durable.map_err(PipelineError::file("write", path))?;
    }
    if !files.is_empty() {
        sealed.staged.add_directory(directory);
    }
    Ok(())
}

fn add_index(sealed: &mut Sealed, of: &std::path::Path, extension: &str, bytes: &[u8]) -> Result<(), PipelineError> {
    let path = of.with_added_extension(extension);
    sealed.staged.write(&path, bytes).map_err(PipelineError::file("write", &path))
}

fn segments(reports: &[BamReport], records: &[u64], extents: &[PartExtent]) -> Vec<Segment> {
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
