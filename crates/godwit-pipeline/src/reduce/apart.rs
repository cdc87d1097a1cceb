//! A file whose parts are written by many processes: [`PartMaker`] makes parts where their records are, [`Gathering`] puts
//! the file together and adds up what the makers say.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_formats::columnar::ColumnLayout;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::{Marking, Verdicts};
use godwit_model::Genome;
use serde::{Deserialize, Serialize};

use super::collector::{Collected, ReduceOptions};
use super::outputs::{Opened, Outputs};
use super::partition::{Known, PartitionSummary, write_partition};
use super::qc::{QcJob, QcPart, QcWorker};
use super::sink::{ColumnFiles, Targets, UNFINISHED};
use super::write::{Decided, Reduced, Written, targets, writing_failed};
use crate::error::PipelineError;
use crate::partitioned_file::{PartEdges, PartExtent, PartPlace, PartitionedFile, copy_part};
use crate::read_groups::ReadGroups;
use crate::runs::{SliceStore, SplitPartition};

/// What a maker of parts has to know.
pub(crate) struct PartMakerOptions {
    pub(crate) reduce: ReduceOptions,
    pub(crate) read_groups: ReadGroups,
    pub(crate) genome: Genome,
    /// Where it is written.
    pub(crate) places: Places,
    /// The header, for columns.
    pub(crate) header: Header,
    /// Duplicates, and optical ones where they are to be told.
    pub(crate) duplicates: Option<Verdicts>,
    pub(crate) optical: Option<Verdicts>,
}

/// Files and directories in the making, which all processes write to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    pub(crate) bam: Option<PathBuf>,
    pub(crate) parquet: Option<PathBuf>,
    pub(crate) arrow: Option<PathBuf>,
}

/// Makes parts from the slices of one process.
pub(crate) struct PartMaker<'s> {
    store: &'s SliceStore,
    collected: Collected,
    genome: Genome,
    qc: Option<QcJob>,
    targets: Targets<'s>,
    bam: Option<File>,
    /// For messages.
    path: PathBuf,
}

/// A part that waits in the spill of its maker.
pub(crate) struct MadePart {
    /// Where.
    pub(crate) place: PartPlace,
    /// Number of bytes.
    pub(crate) bytes: u64,
    /// BLAKE3 of them, hexadecimal, where they are BAM.
    pub(crate) checksum: Option<String>,
    /// What the gathering process has to know: JSON of its own.
    pub(crate) report: Vec<u8>,
}

/// What a maker says about a part.
#[derive(Serialize, Deserialize)]
struct PartReport {
    summary: PartitionSummary,
    qc: Option<QcPart>,
}

impl<'s> PartMaker<'s> {
    /// A maker of parts, of BAM and of columns.
    ///
    /// # Errors
    /// [`PipelineError`]: the reference, or the file to be written, cannot be opened.
    pub(crate) fn new(store: &'s SliceStore, options: PartMakerOptions) -> Result<Self, PipelineError> {
        let PartMakerOptions { reduce, read_groups, genome, places, header, duplicates, optical } = options;
        let Places { bam, parquet, arrow } = places;
        let path = bam.as_ref().or(parquet.as_ref()).or(arrow.as_ref()).cloned().unwrap_or_default();
        let open =
            |path: &PathBuf| OpenOptions::new().write(true).open(path).map_err(PipelineError::file("write", path));
        let file = bam.as_ref().map(open).transpose()?;
        let columns = (parquet.is_some() || arrow.is_some()).then(|| ColumnLayout::new(&header));
        let qc = QcJob::new(&reduce, &genome)?;
        let marking = duplicates.map(|duplicates| Marking { duplicates, optical, ..Marking::default() });
        let collected = Collected {
            runs: None,
            marking,
            read_groups,
            spill: store.spill().clone(),
            records: 0,
            options: reduce,
            deciding_seconds: 0.0,
            run: None,
        };
        let targets = Targets {
            run: None,
            bam: file.is_some().then(|| PartitionedFile::apart(store.spill())),
            cram: None,
            columns: columns.transpose().map_err(PipelineError::Columns)?,
            parquet: parquet.map(ColumnFiles::Elsewhere),
            arrow: arrow.map(ColumnFiles::Elsewhere),
        };
        Ok(Self { store, collected, genome, qc, targets, bam: file, path })
    }

    /// Makes a part, the `at`th of the file.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn make(
        &self,
        at: usize,
        split: &SplitPartition,
        cancelled: &AtomicBool,
    ) -> Result<MadePart, PipelineError> {
        self.make_part(at, split, cancelled).map_err(|error| writing_failed(error, &self.path))
    }

    fn make_part(&self, at: usize, split: &SplitPartition, cancelled: &AtomicBool) -> io::Result<MadePart> {
        let runs = self.store.runs(split);
        let known = Known { runs: &runs, collected: &self.collected, genome: &self.genome };
        let mut qc = self.qc.as_ref().map(QcJob::worker);
        let sinks = self.targets.sinks(at, &self.genome)?;
        let (summary, parts) = write_partition(known, split, qc.as_mut(), sinks, cancelled)?;
        let qc = qc.as_mut().map(QcWorker::take_part);
        // Only BAM waits for its place.
        let sealed = parts.into_iter().next().map(|mut part| part.seal()).transpose()?;
        let place = sealed.unwrap_or(PartPlace::Spill(Vec::new()));
        let bytes = match &place {
            PartPlace::Spill(pieces) => pieces.iter().map(|(_, bytes)| bytes).sum(),
            PartPlace::File { bytes, .. } => *bytes,
        };
        let checksum = summary.parts.bam.as_ref().map(|bam| bam.checksum.clone());
        Ok(MadePart { place, bytes, checksum, report: serde_json::to_vec(&PartReport { summary, qc })? })
    }

    /// Copies a part into the file, where its pages are its own, and makes them durable. Returns the rest.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn place(&self, place: &PartPlace, offset: u64) -> Result<PartEdges, PipelineError> {
        let Some(file) = &self.bam else { return Ok(PartEdges::default()) };
        let copied = copy_part(self.store.spill(), place, file, offset);
        let durable = copied.and_then(|edges| file.sync_data().map(|()| edges));
        durable.map_err(|error| writing_failed(error, &self.path))
    }
}

/// The one process that puts the file together.
pub(crate) struct Gathering<'c> {
    collected: &'c Collected,
    targets: Targets<'c>,
    qc: Option<QcJob>,
    /// Of each part, as far as it was told.
    reports: Vec<Option<PartReport>>,
    /// Where each part lies, as far as it is placed.
    extents: Vec<Option<PartExtent>>,
    /// Bytes before the first part.
    header_bytes: u64,
    started: Instant,
    stem: PathBuf,
}

impl Decided {
    /// The parts of the file.
    pub(crate) fn parts(&self) -> &[SplitPartition] {
        &self.partitions
    }

    /// The duplicates by block, and the optical ones where they are told; `None` where duplicates were not looked for.
    pub(crate) fn verdicts(&self) -> Option<(&Verdicts, Option<&Verdicts>)> {
        let marking = self.collected.marking.as_ref()?;
        Some((&marking.duplicates, marking.optical.as_ref()))
    }

    /// Begins the files: BAM, Parquet and Arrow, but not CRAM.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn gather(
        &self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        opened: Opened,
    ) -> Result<Gathering<'_>, PipelineError> {
        let targets = targets(&self.collected, opened);
        targets.write_headers(header).map_err(|error| writing_failed(error, &outputs.stem))?;
        let header_bytes = targets.bam.as_ref().map_or(0, PartitionedFile::placed_bytes);
        let parts = self.partitions.len();
        Ok(Gathering {
            collected: &self.collected,
            targets,
            qc: QcJob::new(&self.collected.options, genome)?,
            reports: (0..parts).map(|_| None).collect(),
            extents: vec![None; parts],
            header_bytes,
            started: Instant::now(),
            stem: outputs.stem.clone(),
        })
    }
}

impl Gathering<'_> {
    /// The files, as they are called for now.
    ///
    /// # Errors
    /// What the file system reports.
    pub(crate) fn places(&self) -> io::Result<Places> {
        let directory = |files: &Option<ColumnFiles>| match files {
            Some(ColumnFiles::Own(directory)) => std::path::absolute(directory.aside()).map(Some),
            _ => Ok(None),
        };
        let bam = self.targets.bam.as_ref().map(|file| std::path::absolute(file.staged().aside()));
        let (parquet, arrow) = (directory(&self.targets.parquet)?, directory(&self.targets.arrow)?);
        Ok(Places { bam: bam.transpose()?, parquet, arrow })
    }

    /// Where the first part begins.
    pub(crate) fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    /// Takes what the maker of a part says about it. What another maker of the same part said before is replaced: it is
    /// the same.
    ///
    /// # Errors
    /// [`PipelineError`]: it is not readable.
    pub(crate) fn take_report(&mut self, at: usize, report: &[u8]) -> Result<(), PipelineError> {
        let report = serde_json::from_slice(report).map_err(|error| writing_failed(error.into(), &self.stem))?;
        if let Some(place) = self.reports.get_mut(at) {
            *place = Some(report);
        }
        Ok(())
    }

    /// Takes a part that is in the file, all but its edges.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn take_placed(
        &mut self,
        at: usize,
        extent: PartExtent,
        edges: &PartEdges,
    ) -> Result<(), PipelineError> {
        let failed = |error| writing_failed(error, &self.stem);
        if let Some(file) = &self.targets.bam {
            let file = file.staged().file();
            let last = extent.offset + extent.bytes - edges.last.len() as u64;
            file.write_all_at(&edges.first, extent.offset).map_err(failed)?;
            file.write_all_at(&edges.last, last).map_err(failed)?;
        }
        if let Some(place) = self.extents.get_mut(at) {
            *place = Some(extent);
        }
        Ok(())
    }

    /// Ends the file and adds what goes beside it.
    ///
    /// # Errors
    /// [`PipelineError`]; [`PipelineError::Lost`] where a part is missing.
    pub(crate) fn complete(self, genome: &Genome, outputs: &Outputs) -> Result<Reduced, PipelineError> {
        let places = self.places().map_err(|error| writing_failed(error, &self.stem))?;
        for directory in places.parquet.iter().chain(&places.arrow) {
            remove_unfinished(directory).map_err(|error| writing_failed(error, &self.stem))?;
        }
        let parts = self.reports.len() as u64;
        let mut summaries = Vec::new();
        for (at, (report, extent)) in self.reports.into_iter().zip(self.extents).enumerate() {
            let (Some(PartReport { summary, qc }), Some(extent)) = (report, extent) else {
                return Err(PipelineError::Lost { what: "parts", taken: parts, written: at as u64 });
            };
            if let Some(file) = &self.targets.bam {
                file.placed(at + 1, extent).map_err(|error| writing_failed(error, &self.stem))?;
            }
            if let (Some(job), Some(part)) = (&self.qc, qc) {
                job.take_part(at, part);
            }
            summaries.push(summary);
        }
        let written = Written { summaries, qc: self.qc, kept: 0, started: self.started };
        written.complete(self.collected, self.targets, genome, outputs)
    }
}

/// Removes what nodes that were lost left among files of columns.
fn remove_unfinished(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
