//! A file whose parts are written by many processes: [`PartMaker`] makes parts where their records are, [`Gathering`] puts
//! the file together and adds up what the makers say.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_cram as cram;
use godwit_exchange::{FILES, PerFile};
use godwit_formats::columnar::ColumnLayout;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::Marking;
use godwit_model::Genome;
use serde::{Deserialize, Serialize};

use super::collector::{Collected, WritingOptions};
use super::outputs::{Opened, Outputs};
use super::partition::{Known, Part, PartitionSummary, write_partition};
use super::qc::{QcJob, QcPart, QcWorker, open_reference};
use super::sink::{ColumnFiles, Targets, UNFINISHED};
use super::stepped::{StepJob, StepPlace};
use super::write::{Decided, Reduced, Written, targets, writing_failed};
use crate::error::PipelineError;
use crate::partitioned_file::{PartEdges, PartExtent, PartPlace, PartitionedFile, copy_part};
use crate::read_groups::ReadGroups;
use crate::runs::{SliceStore, SplitPartition};

/// Memory that tables of a step take for each thread of a node, bytes.
const STEP_BYTES: usize = 128 << 20;

/// What a maker of parts has to know.
pub(crate) struct PartMakerOptions {
    pub(crate) writing: WritingOptions,
    pub(crate) read_groups: ReadGroups,
    pub(crate) genome: Genome,
    /// Where it is written.
    pub(crate) places: Places,
    /// The header of the files.
    pub(crate) header: Header,
    /// The reference that CRAM needs.
    pub(crate) reference: PathBuf,
    /// Where scratch files go.
    pub(crate) scratch: PathBuf,
    /// Which records are duplicates, where they are looked for.
    pub(crate) marking: Option<Marking>,
    /// Parts of the file.
    pub(crate) parts: usize,
    /// The sample.
    pub(crate) sample: String,
}

/// Files and directories in the making, which all processes write to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    pub(crate) bam: Option<PathBuf>,
    pub(crate) cram: Option<PathBuf>,
    pub(crate) parquet: Option<PathBuf>,
    pub(crate) arrow: Option<PathBuf>,
    /// Where a step puts files of its own.
    pub(crate) step: Option<PathBuf>,
}

/// Makes parts from the slices of one process.
pub(crate) struct PartMaker<'s> {
    store: &'s SliceStore,
    writing: WritingOptions,
    read_groups: ReadGroups,
    marking: Option<Marking>,
    genome: Genome,
    qc: Option<QcJob>,
    step: Option<StepJob>,
    targets: Targets<'s>,
    /// BAM and CRAM, which have all parts in one file.
    files: [Option<File>; FILES],
    /// For messages.
    path: PathBuf,
}

/// A part that waits in the spill of its maker.
pub(crate) struct MadePart {
    /// Where, for each file.
    pub(crate) places: PartPlaces,
    /// Number of bytes.
    pub(crate) bytes: PerFile,
    /// BLAKE3 of the BAM, hexadecimal, where there is one.
    pub(crate) checksum: Option<String>,
    /// What the gathering process has to know: JSON of its own.
    pub(crate) report: Vec<u8>,
}

/// Where a part waits to be put into each of the files.
pub(crate) type PartPlaces = [Option<PartPlace>; FILES];

/// What a maker says about a part.
#[derive(Serialize, Deserialize)]
struct PartReport {
    summary: PartitionSummary,
    qc: Option<QcPart>,
}

impl<'s> PartMaker<'s> {
    /// A maker of parts.
    ///
    /// # Errors
    /// [`PipelineError`]: the reference, or a file to be written, cannot be opened.
    pub(crate) fn new(store: &'s SliceStore, options: PartMakerOptions) -> Result<Self, PipelineError> {
        let PartMakerOptions {
            writing,
            read_groups,
            genome,
            places,
            header,
            reference,
            scratch,
            marking,
            parts,
            sample,
        } = options;
        let Places { bam, cram, parquet, arrow, step: out } = places;
        let path = [&bam, &cram, &parquet, &arrow].into_iter().flatten().next().cloned().unwrap_or_default();
        let open =
            |path: &PathBuf| OpenOptions::new().write(true).open(path).map_err(PipelineError::file("write", path));
        let files = [bam.as_ref().map(open).transpose()?, cram.as_ref().map(open).transpose()?];
        let columns = (parquet.is_some() || arrow.is_some()).then(|| ColumnLayout::new(&header));
        let encoder = cram.map(|_| {
            cram::Reference::open(&reference, &scratch)
                .and_then(|reference| cram::Encoder::new(&header, &reference, &scratch))
        });
        let encoder = encoder.transpose().map_err(PipelineError::Cram)?;
        let compared = writing.metrics.as_ref().and_then(|reference| reference.as_deref());
        let compared = compared.map(|path| open_reference(path, &genome)).transpose()?;
        let qc = QcJob::new(&writing, &genome, compared);
        let step = writing.step.as_ref().zip(out).map(|(step, out)| {
            let place = StepPlace { sample, count: parts, memory_bytes: STEP_BYTES, scratch, out };
            StepJob::new(step, &header, place)
        });
        let step = step.transpose()?;
        let targets = Targets {
            run: None,
            bam: files[0].is_some().then(|| PartitionedFile::apart(store.spill())),
            cram: encoder.map(|encoder| (PartitionedFile::apart(store.spill()), encoder)),
            columns: columns.transpose().map_err(PipelineError::Columns)?,
            parquet: parquet.map(ColumnFiles::Elsewhere),
            arrow: arrow.map(ColumnFiles::Elsewhere),
            step: None,
        };
        Ok(Self { store, writing, read_groups, marking, genome, qc, step, targets, files, path })
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
        let Self { writing, read_groups, genome, .. } = self;
        let (marking, step) = (self.marking.as_ref(), self.step.as_ref());
        let known = Known { runs: &runs, marking, read_groups, options: writing, genome, step };
        let mut qc = self.qc.as_ref().map(QcJob::worker);
        let sinks = self.targets.sinks(at, &self.genome)?;
        let (summary, parts) = write_partition(known, Part { at, split }, qc.as_mut(), sinks, cancelled)?;
        let qc = qc.as_mut().map(QcWorker::take_part);
        // Those that wait for their places come in the order of the files.
        let mut parts = parts.into_iter();
        let (mut places, mut bytes) = (PartPlaces::default(), PerFile::default());
        for file in (0..FILES).filter(|file| self.files[*file].is_some()) {
            let place = parts.next().map(|mut part| part.seal()).transpose()?;
            bytes[file] = place.as_ref().map_or(0, PartPlace::bytes);
            places[file] = place;
        }
        let checksum = summary.parts.bam.as_ref().map(|bam| bam.checksum.clone());
        Ok(MadePart { places, bytes, checksum, report: serde_json::to_vec(&PartReport { summary, qc })? })
    }

    /// Copies a part into the files, where their pages are its own, and makes them durable. Returns the rest.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn place(&self, places: &PartPlaces, offset: PerFile) -> Result<[PartEdges; FILES], PipelineError> {
        let mut edges = <[PartEdges; FILES]>::default();
        for (at, (file, place)) in self.files.iter().zip(places).enumerate() {
            let (Some(file), Some(place)) = (file, place) else { continue };
            let copied = copy_part(self.store.spill(), place, file, offset[at]);
            let durable = copied.and_then(|edges| file.sync_data().map(|()| edges));
            edges[at] = durable.map_err(|error| writing_failed(error, &self.path))?;
        }
        Ok(edges)
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
    extents: Vec<Option<[PartExtent; FILES]>>,
    /// Bytes before the first part.
    header_bytes: PerFile,
    started: Instant,
    stem: PathBuf,
}

impl Decided {
    /// The parts of the file.
    pub(crate) fn parts(&self) -> &[SplitPartition] {
        &self.partitions
    }

    /// Hands out what is decided of the records, but for the metrics: for those who write. `None` where duplicates were not
    /// looked for.
    pub(crate) fn take_verdicts(&mut self) -> Option<Marking> {
        let marking = self.collected.marking.as_mut()?;
        let Marking { duplicates, optical, sets, .. } = marking;
        let duplicates = std::mem::take(duplicates);
        Some(Marking { duplicates, optical: optical.take(), sets: sets.take(), ..Marking::default() })
    }

    /// What writing takes.
    pub(crate) fn writing(&self) -> &WritingOptions {
        &self.collected.options.writing
    }

    /// Begins the files.
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
        let reference = opened.reference.clone();
        let targets = targets(&self.collected, opened);
        targets.write_headers(header).map_err(|error| writing_failed(error, &outputs.stem))?;
        let header_bytes = files(&targets).map(|file| file.map_or(0, PartitionedFile::placed_bytes));
        let parts = self.partitions.len();
        Ok(Gathering {
            collected: &self.collected,
            targets,
            qc: QcJob::new(&self.collected.options.writing, genome, reference),
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
        let directory = |files: &Option<ColumnFiles>| files.as_ref().map(ColumnFiles::place).transpose();
        let file = |file: &PartitionedFile| std::path::absolute(file.staged().aside());
        let [bam, cram] = files(&self.targets).map(|partitioned| partitioned.map(file).transpose());
        let (parquet, arrow) = (directory(&self.targets.parquet)?, directory(&self.targets.arrow)?);
        Ok(Places { bam: bam?, cram: cram?, parquet, arrow, step: directory(&self.targets.step)? })
    }

    /// Where the first part begins in each file.
    pub(crate) fn header_bytes(&self) -> PerFile {
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

    /// Takes a part that is in the files, all but its edges.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub(crate) fn take_placed(
        &mut self,
        at: usize,
        extents: [PartExtent; FILES],
        edges: &[PartEdges; FILES],
    ) -> Result<(), PipelineError> {
        let failed = |error| writing_failed(error, &self.stem);
        for (file, (extent, edges)) in files(&self.targets).into_iter().zip(extents.iter().zip(edges)) {
            let Some(file) = file else { continue };
            let file = file.staged().file();
            let end = extent.offset.checked_add(extent.bytes);
            let last = end.and_then(|end| end.checked_sub(edges.last.len() as u64));
            let last = last.ok_or_else(|| failed(io::Error::other("a node placed its part where no part can be")))?;
            file.write_all_at(&edges.first, extent.offset).map_err(failed)?;
            file.write_all_at(&edges.last, last).map_err(failed)?;
        }
        if let Some(place) = self.extents.get_mut(at) {
            *place = Some(extents);
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
        for (at, (report, extents)) in self.reports.into_iter().zip(self.extents).enumerate() {
            let (Some(PartReport { summary, qc }), Some(extents)) = (report, extents) else {
                return Err(PipelineError::Lost { what: "parts", taken: parts, written: at as u64 });
            };
            for (file, extent) in files(&self.targets).into_iter().zip(extents) {
                let Some(file) = file else { continue };
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

/// The files that have all parts in one, in the order in which their numbers are told.
fn files<'f, 't>(targets: &'f Targets<'t>) -> [Option<&'f PartitionedFile<'t>>; FILES] {
    [targets.bam.as_ref(), targets.cram.as_ref().map(|(file, _)| file)]
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
