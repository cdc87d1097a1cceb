//! A file whose parts are written by many processes: [`PartBuilder`] writes parts where their records are,
//! [`OutputAssembler`] puts the file together and adds up the reports of the parts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_cram as cram;
use godwit_exchange::{BytesPerFile, MAX_FILES};
use godwit_formats::columnar::AlignmentLayout;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::DuplicateMarks;
use godwit_model::Genome;
use serde::{Deserialize, Serialize};

use super::collector::{CollectedRuns, WritingOptions};
use super::outputs::{OutputFiles, Outputs};
use super::partition::{NumberedPartition, PartitionContext, PartitionSummary, write_partition};
use super::qc::{QcJob, QcPart, QcThread, open_reference};
use super::sink::{ColumnFiles, PartitionedOutputs, UNFINISHED_PREFIX};
use super::step_partition::{PythonStepJob, StepTableContext};
use super::write::{MarkedRuns, PartitionResults, UnpublishedOutputs, create_outputs, writing_error};
use crate::error::PipelineError;
use crate::partitioned_file::{PartEdges, PartExtent, PartLocation, PartitionedFile, copy_part};
use crate::read_groups::ReadGroups;
use crate::runs::{SliceStore, SplitPartition};

/// Memory of the tables of a Python step for each thread of a worker, bytes.
const STEP_TABLE_BYTES_PER_THREAD: usize = 128 << 20;

/// Inputs of a [`PartBuilder`].
pub(crate) struct PartBuilderOptions {
    pub(crate) writing: WritingOptions,
    pub(crate) read_groups: ReadGroups,
    pub(crate) genome: Genome,
    /// Files and directories to write to.
    pub(crate) output_paths: OutputPaths,
    /// The header of the files.
    pub(crate) header: Header,
    /// The reference of CRAM.
    pub(crate) reference: PathBuf,
    /// Directory of scratch files.
    pub(crate) scratch: PathBuf,
    /// The duplicates, unless they are not marked.
    pub(crate) marking: Option<DuplicateMarks>,
    /// Number of parts of the file.
    pub(crate) part_count: usize,
    /// The sample.
    pub(crate) sample: String,
}

/// Temporary files and directories, which all processes write to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutputPaths {
    pub(crate) bam: Option<PathBuf>,
    pub(crate) cram: Option<PathBuf>,
    pub(crate) parquet: Option<PathBuf>,
    pub(crate) arrow: Option<PathBuf>,
    /// Directory for files that a Python step writes itself.
    #[serde(rename = "step")]
    pub(crate) step_directory: Option<PathBuf>,
}

/// A writer of parts from the slices of one process.
pub(crate) struct PartBuilder<'s> {
    store: &'s SliceStore,
    writing: WritingOptions,
    read_groups: ReadGroups,
    marking: Option<DuplicateMarks>,
    genome: Genome,
    qc: Option<QcJob>,
    step_job: Option<PythonStepJob>,
    outputs: PartitionedOutputs<'s>,
    /// BAM and CRAM, which have all parts in one file.
    files: [Option<File>; MAX_FILES],
    /// For messages.
    path: PathBuf,
}

/// A part that is compressed in the spill of its worker, and not yet in the files.
pub(crate) struct CompressedPart {
    /// Its location for each file.
    pub(crate) locations: PartLocations,
    /// Number of bytes.
    pub(crate) bytes: BytesPerFile,
    /// BLAKE3 of the BAM, hexadecimal, where there is one.
    pub(crate) checksum: Option<String>,
    /// The report for the [`OutputAssembler`]: JSON.
    pub(crate) report: Vec<u8>,
}

/// Locations in the spill of a part that is not yet in the files.
pub(crate) type PartLocations = [Option<PartLocation>; MAX_FILES];

/// The report of a part.
#[derive(Serialize, Deserialize)]
struct PartReport {
    summary: PartitionSummary,
    qc: Option<QcPart>,
}

impl<'s> PartBuilder<'s> {
    /// Creates a writer of parts.
    ///
    /// # Errors
    /// [`PipelineError`]: the reference, or a file to be written, cannot be opened.
    pub(crate) fn new(store: &'s SliceStore, options: PartBuilderOptions) -> Result<Self, PipelineError> {
        let PartBuilderOptions {
            writing,
            read_groups,
            genome,
            output_paths,
            header,
            reference,
            scratch,
            marking,
            part_count,
            sample,
        } = options;
        let OutputPaths { bam, cram, parquet, arrow, step_directory: out } = output_paths;
        let path = [&bam, &cram, &parquet, &arrow].into_iter().flatten().next().cloned().unwrap_or_default();
        let open =
            |path: &PathBuf| OpenOptions::new().write(true).open(path).map_err(PipelineError::file("write", path));
        let files = [bam.as_ref().map(open).transpose()?, cram.as_ref().map(open).transpose()?];
        let columns = (parquet.is_some() || arrow.is_some()).then(|| AlignmentLayout::new(&header));
        let encoder = cram.map(|_| {
            cram::Reference::open(&reference, &scratch)
                .and_then(|reference| cram::Encoder::new(&header, &reference, &scratch))
        });
        let encoder = encoder.transpose().map_err(PipelineError::Cram)?;
        let compared = writing.metrics.as_ref().and_then(|reference| reference.as_deref());
        let compared = compared.map(|path| open_reference(path, &genome)).transpose()?;
        let qc = QcJob::new(&writing, &genome, compared);
        let step = writing.python_step.as_ref().zip(out).map(|(step, output_directory)| {
            let place = StepTableContext {
                sample,
                partition_count: part_count,
                memory_bytes: STEP_TABLE_BYTES_PER_THREAD,
                scratch,
                output_directory,
            };
            PythonStepJob::new(step, &header, place)
        });
        let step_job = step.transpose()?;
        let outputs = PartitionedOutputs {
            job_directory: None,
            bam: files[0].is_some().then(|| PartitionedFile::detached(store.spill())),
            cram: encoder.map(|encoder| (PartitionedFile::detached(store.spill()), encoder)),
            columns: columns.transpose().map_err(PipelineError::Columns)?,
            parquet: parquet.map(ColumnFiles::Shared),
            arrow: arrow.map(ColumnFiles::Shared),
            step_files: None,
        };
        Ok(Self { store, writing, read_groups, marking, genome, qc, step_job, outputs, files, path })
    }

    /// Builds the part at index `at` of the file.
    ///
    /// # Errors
    /// [`PipelineError::Interrupted`], or an error of reading the slices or compressing the part.
    pub(crate) fn build_part(
        &self,
        at: usize,
        split: &SplitPartition,
        cancelled: &AtomicBool,
    ) -> Result<CompressedPart, PipelineError> {
        self.build_part_io(at, split, cancelled).map_err(|error| writing_error(error, &self.path))
    }

    fn build_part_io(
        &self,
        index: usize,
        split: &SplitPartition,
        cancelled: &AtomicBool,
    ) -> io::Result<CompressedPart> {
        let runs = self.store.runs(split);
        let Self { writing, read_groups, genome, .. } = self;
        let (marking, step_job) = (self.marking.as_ref(), self.step_job.as_ref());
        let known = PartitionContext { runs: &runs, marking, read_groups, options: writing, genome, step_job };
        let mut qc = self.qc.as_ref().map(QcJob::new_thread);
        let sinks = self.outputs.create_sinks(index, &self.genome)?;
        let (summary, parts) =
            write_partition(known, NumberedPartition { index, split }, qc.as_mut(), sinks, cancelled)?;
        let qc = qc.as_mut().map(QcThread::take_part);
        // The part writers are in the order of the files.
        let mut parts = parts.into_iter();
        let (mut locations, mut bytes) = (PartLocations::default(), BytesPerFile::default());
        for file in (0..MAX_FILES).filter(|file| self.files[*file].is_some()) {
            let place = parts.next().map(|mut part| part.flush_for_checkpoint()).transpose()?;
            bytes[file] = place.as_ref().map_or(0, PartLocation::bytes);
            locations[file] = place;
        }
        let checksum = summary.sink_reports.bam.as_ref().map(|bam| bam.checksum.clone());
        Ok(CompressedPart { locations, bytes, checksum, report: serde_json::to_vec(&PartReport { summary, qc })? })
    }

    /// Copies the whole pages of a part into the files, and makes them durable. Returns its edges on shared pages.
    ///
    /// # Errors
    /// [`PipelineError::File`] if a file cannot be written.
    pub(crate) fn write_part_to_files(
        &self,
        places: &PartLocations,
        offset: BytesPerFile,
    ) -> Result<[PartEdges; MAX_FILES], PipelineError> {
        let mut edges = <[PartEdges; MAX_FILES]>::default();
        for (at, (file, place)) in self.files.iter().zip(places).enumerate() {
            let (Some(file), Some(place)) = (file, place) else { continue };
            let copied = copy_part(self.store.spill(), place, file, offset[at]);
            let durable = copied.and_then(|edges| file.sync_data().map(|()| edges));
            edges[at] = durable.map_err(|error| writing_error(error, &self.path))?;
        }
        Ok(edges)
    }
}

/// The process that puts the file together.
pub(crate) struct OutputAssembler<'c> {
    marked: &'c CollectedRuns,
    outputs: PartitionedOutputs<'c>,
    qc: Option<QcJob>,
    /// Report of each part that was received.
    reports: Vec<Option<PartReport>>,
    /// Extents of each part that is in the files.
    extents: Vec<Option<[PartExtent; MAX_FILES]>>,
    /// Bytes before the first part.
    header_bytes: BytesPerFile,
    started_at: Instant,
    stem: PathBuf,
}

impl MarkedRuns {
    /// Returns the parts of the file.
    pub(crate) fn parts(&self) -> &[SplitPartition] {
        &self.partitions
    }

    /// Takes out the duplicate marks without the metrics, for the workers that write. `None` where duplicates are not
    /// marked.
    pub(crate) fn take_verdicts(&mut self) -> Option<DuplicateMarks> {
        let marking = self.collected.marking.as_mut()?;
        let DuplicateMarks { duplicates, optical, sets, .. } = marking;
        let duplicates = std::mem::take(duplicates);
        Some(DuplicateMarks { duplicates, optical: optical.take(), sets: sets.take(), ..DuplicateMarks::default() })
    }

    /// Returns the options of writing.
    pub(crate) fn writing_options(&self) -> &WritingOptions {
        &self.collected.options.writing
    }

    /// Starts the files.
    ///
    /// # Errors
    /// [`PipelineError`] if a header cannot be encoded or written.
    pub(crate) fn start_assembly(
        &self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        opened: OutputFiles,
    ) -> Result<OutputAssembler<'_>, PipelineError> {
        let reference = opened.reference.clone();
        let targets = create_outputs(&self.collected, opened);
        targets.write_headers(header).map_err(|error| writing_error(error, &outputs.stem))?;
        let header_bytes = partitioned_files(&targets).map(|file| file.map_or(0, PartitionedFile::contiguous_bytes));
        let parts = self.partitions.len();
        Ok(OutputAssembler {
            marked: &self.collected,
            outputs: targets,
            qc: QcJob::new(&self.collected.options.writing, genome, reference),
            reports: (0..parts).map(|_| None).collect(),
            extents: vec![None; parts],
            header_bytes,
            started_at: Instant::now(),
            stem: outputs.stem.clone(),
        })
    }
}

impl OutputAssembler<'_> {
    /// Returns the temporary paths of the files.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn output_paths(&self) -> io::Result<OutputPaths> {
        let directory = |files: &Option<ColumnFiles>| files.as_ref().map(ColumnFiles::directory_path).transpose();
        let file = |file: &PartitionedFile| std::path::absolute(file.atomic_file().temporary_path());
        let [bam, cram] = partitioned_files(&self.outputs).map(|partitioned| partitioned.map(file).transpose());
        let (parquet, arrow) = (directory(&self.outputs.parquet)?, directory(&self.outputs.arrow)?);
        Ok(OutputPaths { bam: bam?, cram: cram?, parquet, arrow, step_directory: directory(&self.outputs.step_files)? })
    }

    /// Returns where the first part starts in each file.
    pub(crate) fn header_bytes(&self) -> BytesPerFile {
        self.header_bytes
    }

    /// Adds the report of a part. It replaces that of another worker for the same part, which is equal.
    ///
    /// # Errors
    /// [`PipelineError`]: the report is not readable.
    pub(crate) fn add_report(&mut self, at: usize, report: &[u8]) -> Result<(), PipelineError> {
        let report = serde_json::from_slice(report).map_err(|error| writing_error(error.into(), &self.stem))?;
        if let Some(place) = self.reports.get_mut(at) {
            *place = Some(report);
        }
        Ok(())
    }

    /// Adds a part that is in the files, and writes its edges.
    ///
    /// # Errors
    /// [`PipelineError::File`] for an extent outside of the file, or if the file cannot be written.
    pub(crate) fn add_placed_part(
        &mut self,
        at: usize,
        extents: [PartExtent; MAX_FILES],
        edges: &[PartEdges; MAX_FILES],
    ) -> Result<(), PipelineError> {
        let failed = |error| writing_error(error, &self.stem);
        for (file, (extent, edges)) in partitioned_files(&self.outputs).into_iter().zip(extents.iter().zip(edges)) {
            let Some(file) = file else { continue };
            let file = file.atomic_file().file();
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

    /// Finishes the file and adds the files beside it.
    ///
    /// # Errors
    /// [`PipelineError`]; [`PipelineError::CountMismatch`] where a part is missing.
    pub(crate) fn finish(self, genome: &Genome, outputs: &Outputs) -> Result<UnpublishedOutputs, PipelineError> {
        let places = self.output_paths().map_err(|error| writing_error(error, &self.stem))?;
        for directory in places.parquet.iter().chain(&places.arrow) {
            remove_unfinished(directory).map_err(|error| writing_error(error, &self.stem))?;
        }
        let parts = self.reports.len() as u64;
        let mut summaries = Vec::new();
        for (at, (report, extents)) in self.reports.into_iter().zip(self.extents).enumerate() {
            let (Some(PartReport { summary, qc }), Some(extents)) = (report, extents) else {
                return Err(PipelineError::CountMismatch { items: "parts", expected: parts, actual: at as u64 });
            };
            for (file, extent) in partitioned_files(&self.outputs).into_iter().zip(extents) {
                let Some(file) = file else { continue };
                file.add_written_part(at + 1, extent).map_err(|error| writing_error(error, &self.stem))?;
            }
            if let (Some(job), Some(part)) = (&self.qc, qc) {
                job.take_part(at, part);
            }
            summaries.push(summary);
        }
        let written = PartitionResults { summaries, qc: self.qc, resumed_partitions: 0, started_at: self.started_at };
        written.into_outputs(self.marked, self.outputs, genome, outputs)
    }
}

/// Returns the files that hold all parts in one, in the order of [`BytesPerFile`].
fn partitioned_files<'f, 't>(targets: &'f PartitionedOutputs<'t>) -> [Option<&'f PartitionedFile<'t>>; MAX_FILES] {
    [targets.bam.as_ref(), targets.cram.as_ref().map(|(file, _)| file)]
}

/// Removes the files that lost workers left in a directory of columns.
fn remove_unfinished(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
