//! Output files that many workers of a cluster run write. A [`PartBuilder`] on a worker compresses the parts of the
//! partitions whose records it stores. The [`OutputAssembler`] on the head assembles the files and merges the reports
//! of the parts.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_columnar::AlignmentLayout;
use godwit_cram as cram;
use godwit_exchange::PerFile;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::DuplicateMarks;
use godwit_model::Genome;
use godwit_recalibrate::{RecalibrationCounts, Recalibrator};
use serde::{Deserialize, Serialize};

use super::collector::{CollectedRuns, WritingOptions};
use super::outputs::{OutputFiles, Outputs};
use super::partition::{NumberedPartition, PartitionContext, PartitionSummary, write_partition};
use super::picard::PicardInputs;
use super::qc::{QcJob, QcPart, QcThread, open_reference};
use super::recalibration::{BaseRecalibration, count_partition};
use super::sink::{ColumnFiles, PartitionedOutputs, UNFINISHED_PREFIX};
use super::step_partition::{PythonStepJob, StepTableContext};
use super::write::{MarkedRuns, PartitionResults, UnpublishedOutputs, create_outputs, writing_error};
use crate::error::PipelineError;
use crate::partitioned_file::{PartEdges, PartExtent, PartLocation, PartitionedFile, copy_part};
use crate::read_groups::ReadGroups;
use crate::runs::{FinishedRuns, SliceStore, SplitPartition};

/// Memory for the tables of a Python step in each thread of a worker, bytes.
const STEP_TABLE_BYTES_PER_THREAD: usize = 128 << 20;
/// Number of threads with which a worker decompresses known sites.
const WORKER_DECOMPRESSION_THREADS: usize = 2;

/// Options of a [`PartBuilder`].
pub struct PartBuilderOptions {
    /// Formats and compression of the files.
    pub writing: WritingOptions,
    /// Read groups of the header, which records name by their index.
    pub read_groups: ReadGroups,
    /// Contigs of the reference, in the order of the header.
    pub genome: Genome,
    /// Paths of the files and directories to which the parts are written.
    pub output_paths: OutputPaths,
    /// The SAM header of the files.
    pub header: Header,
    /// Path of the reference, for CRAM.
    pub reference: PathBuf,
    /// Directory of the scratch files.
    pub scratch: PathBuf,
    /// The duplicate marks; `None` if duplicates are not marked.
    pub marking: Option<DuplicateMarks>,
    /// Number of parts of each file, without the header.
    pub part_count: usize,
    /// Name of the sample.
    pub sample: String,
}

/// Temporary paths of the output files and directories, to which all workers write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPaths {
    /// The BAM file.
    pub bam: Option<PathBuf>,
    /// The CRAM file.
    pub cram: Option<PathBuf>,
    /// Directory of the Parquet files.
    pub parquet: Option<PathBuf>,
    /// Directory of the Arrow files.
    pub arrow: Option<PathBuf>,
    /// Directory for files that the Python function writes.
    #[serde(rename = "step")]
    pub step_directory: Option<PathBuf>,
}

/// A worker's builder of parts from the slices that the worker stores.
pub struct PartBuilder<'s> {
    store: &'s SliceStore,
    writing: WritingOptions,
    read_groups: ReadGroups,
    marking: Option<DuplicateMarks>,
    genome: Genome,
    qc: Option<QcJob>,
    step_job: Option<PythonStepJob>,
    /// The inputs of a recalibration; `None` if base qualities are not changed.
    recalibration: Option<BaseRecalibration>,
    /// Changes base qualities; set when the qualities of all parts are counted.
    recalibrator: OnceLock<Recalibrator>,
    outputs: PartitionedOutputs<'s>,
    /// The open BAM and CRAM files, which contain the parts of all workers.
    files: PerFile<Option<File>>,
    /// Path of the first output, for error messages.
    path: PathBuf,
}

/// A part that is compressed in the spill file of its worker, and not yet copied to the output files.
pub struct CompressedPart {
    /// Location of the part in the spill file, for BAM and CRAM.
    pub locations: PartLocations,
    /// Size of the part in each file, bytes.
    pub bytes: PerFile<u64>,
    /// BLAKE3 of the part in the BAM, hexadecimal; `None` if no BAM is written.
    pub checksum: Option<String>,
    /// The report for the [`OutputAssembler`], as JSON.
    pub report: Vec<u8>,
}

/// Locations of a part in the spill file, for BAM and CRAM.
pub type PartLocations = PerFile<Option<PartLocation>>;

/// The report of a worker about a part.
#[derive(Serialize, Deserialize)]
struct PartReport {
    summary: PartitionSummary,
    qc: Option<QcPart>,
}

impl<'s> PartBuilder<'s> {
    /// Creates a part builder. Opens the output files and the reference.
    ///
    /// # Errors
    /// A [`PipelineError`] if the reference or an output file cannot be opened.
    pub fn new(store: &'s SliceStore, options: PartBuilderOptions) -> Result<Self, PipelineError> {
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
        let files = PerFile { bam: bam.as_ref().map(open).transpose()?, cram: cram.as_ref().map(open).transpose()? };
        let columns = (parquet.is_some() || arrow.is_some()).then(|| AlignmentLayout::new(&header));
        let encoder = cram.map(|_| {
            cram::Reference::open(&reference, &scratch)
                .and_then(|reference| cram::Encoder::new(&header, &reference, &scratch))
        });
        let encoder = encoder.transpose().map_err(PipelineError::Cram)?;
        let compared = writing.metrics.as_ref().and_then(|reference| reference.as_deref());
        let picard = PicardInputs::open_for_job(writing.picard_metrics.as_ref(), compared, &header)?;
        let compared = compared.map(|path| open_reference(path, &genome)).transpose()?;
        let qc = QcJob::new(&writing, &genome, compared, picard);
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
        let recalibration = writing
            .recalibration
            .as_ref()
            .map(|options| BaseRecalibration::open(options, &header, &genome, WORKER_DECOMPRESSION_THREADS));
        let recalibration = recalibration.transpose()?;
        let outputs = PartitionedOutputs {
            job_directory: None,
            bam: files.bam.is_some().then(|| PartitionedFile::detached(store.spill())),
            cram: encoder.map(|encoder| (PartitionedFile::detached(store.spill()), encoder)),
            columns: columns.transpose().map_err(PipelineError::Columns)?,
            parquet: parquet.map(ColumnFiles::Shared),
            arrow: arrow.map(ColumnFiles::Shared),
            step_files: None,
        };
        let recalibrator = OnceLock::new();
        Ok(Self {
            store,
            writing,
            read_groups,
            marking,
            genome,
            qc,
            step_job,
            recalibration,
            recalibrator,
            outputs,
            files,
            path,
        })
    }

    /// Counts the base qualities of a part. Returns the report of the counts; it is empty if the job does not
    /// recalibrate.
    ///
    /// # Errors
    /// [`PipelineError::Interrupted`], [`PipelineError::Recalibration`], or the error of reading the slices.
    pub fn count_part(&self, split: &SplitPartition, cancelled: &AtomicBool) -> Result<String, PipelineError> {
        let runs = self.store.runs(split);
        let counts = self.recalibration.as_ref().map(|inputs| {
            count_partition(inputs, self.partition_context(&runs), split, cancelled)
                .map_err(|error| writing_error(error, &self.path))
        });
        Ok(counts.transpose()?.unwrap_or_default().to_report())
    }

    /// Sets the report of the base qualities of all parts, by which qualities are changed.
    ///
    /// # Errors
    /// A [`PipelineError`] for an invalid report.
    pub fn set_recalibration_report(&self, report: &str) -> Result<(), PipelineError> {
        let mut counts = RecalibrationCounts::default();
        counts.add_report(report).map_err(|error| PipelineError::malformed_command(error.to_string()))?;
        if let Some(inputs) = &self.recalibration {
            let _ = self.recalibrator.set(inputs.recalibrator(&counts));
        }
        Ok(())
    }

    fn partition_context<'c>(&'c self, runs: &'c FinishedRuns) -> PartitionContext<'c> {
        PartitionContext {
            runs,
            marking: self.marking.as_ref(),
            read_groups: &self.read_groups,
            options: &self.writing,
            genome: &self.genome,
            step_job: self.step_job.as_ref(),
            recalibrator: self.recalibrator.get(),
        }
    }

    /// Compresses the part with index `at` into the spill file.
    ///
    /// # Errors
    /// [`PipelineError::Interrupted`], or the error of reading the slices or of compressing the part.
    pub fn build_part(
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
        let known = self.partition_context(&runs);
        let mut qc = self.qc.as_ref().map(QcJob::new_thread);
        let sinks = self.outputs.create_sinks(index, &self.genome)?;
        let (summary, parts) =
            write_partition(known, NumberedPartition { index, split }, qc.as_mut(), sinks, cancelled)?;
        let qc = qc.as_mut().map(QcThread::take_part);
        // The part writers are in the order of the files: BAM, CRAM.
        let mut parts = parts.into_iter();
        let locations = self.files.as_ref().try_map(|file| match file {
            Some(_) => parts.next().map(|mut part| part.flush_for_checkpoint()).transpose(),
            None => Ok::<_, io::Error>(None),
        })?;
        let bytes = locations.as_ref().map(|location| location.as_ref().map_or(0, PartLocation::bytes));
        let checksum = summary.sink_reports.bam.as_ref().map(|bam| bam.checksum.clone());
        Ok(CompressedPart { locations, bytes, checksum, report: serde_json::to_vec(&PartReport { summary, qc })? })
    }

    /// Copies a part from the spill file to the output files, except for pages that contain bytes of other parts. Makes
    /// the copy durable and returns the bytes in the shared pages.
    ///
    /// # Errors
    /// [`PipelineError::File`] if a file cannot be written.
    pub fn write_part_to_files(
        &self,
        places: &PartLocations,
        offset: PerFile<u64>,
    ) -> Result<PerFile<PartEdges>, PipelineError> {
        self.files.as_ref().zip(places.as_ref()).zip(offset).try_map(|((file, place), offset)| {
            let (Some(file), Some(place)) = (file, place) else { return Ok(PartEdges::default()) };
            let copied = copy_part(self.store.spill(), place, file, offset);
            let durable = copied.and_then(|edges| file.sync_data().map(|()| edges));
            durable.map_err(|error| writing_error(error, &self.path))
        })
    }
}

/// The head's assembler of the output files, which collects the locations and reports of all parts.
pub struct OutputAssembler<'c> {
    marked: &'c CollectedRuns,
    outputs: PartitionedOutputs<'c>,
    qc: Option<QcJob>,
    /// Report of each part; `None` until it is received.
    reports: Vec<Option<PartReport>>,
    /// Location of each part in the files; `None` until the part is written.
    extents: Vec<Option<PerFile<PartExtent>>>,
    /// Size of the header in each file, bytes. The first part starts there.
    header_bytes: PerFile<u64>,
    started_at: Instant,
    stem: PathBuf,
}

impl MarkedRuns {
    /// Returns the partitions, each of which is a part of the output files.
    pub fn parts(&self) -> &[SplitPartition] {
        &self.partitions
    }

    /// Removes and returns the duplicate marks, without the metrics. They are sent to the workers. Returns `None` if
    /// duplicates are not marked.
    pub fn take_verdicts(&mut self) -> Option<DuplicateMarks> {
        let marking = self.collected.marking.as_mut()?;
        let DuplicateMarks { duplicates, optical, sets, .. } = marking;
        let duplicates = std::mem::take(duplicates);
        Some(DuplicateMarks { duplicates, optical: optical.take(), sets: sets.take(), ..DuplicateMarks::default() })
    }

    /// Returns the options for writing records.
    pub fn writing_options(&self) -> &WritingOptions {
        &self.collected.options.writing
    }

    /// Creates the assembler and writes the headers of the files.
    ///
    /// # Errors
    /// A [`PipelineError`] if a header cannot be encoded or written.
    pub fn start_assembly(
        &self,
        header: &Header,
        genome: &Genome,
        outputs: &Outputs,
        mut opened: OutputFiles,
    ) -> Result<OutputAssembler<'_>, PipelineError> {
        let (reference, picard) = (opened.reference.clone(), opened.picard.take());
        let targets = create_outputs(&self.collected, opened);
        targets.write_headers(header).map_err(|error| writing_error(error, &outputs.stem))?;
        let header_bytes = partitioned_files(&targets).map(|file| file.map_or(0, PartitionedFile::contiguous_bytes));
        let parts = self.partitions.len();
        Ok(OutputAssembler {
            marked: &self.collected,
            outputs: targets,
            qc: QcJob::new(&self.collected.options.writing, genome, reference, picard),
            reports: (0..parts).map(|_| None).collect(),
            extents: vec![None; parts],
            header_bytes,
            started_at: Instant::now(),
            stem: outputs.stem.clone(),
        })
    }
}

impl OutputAssembler<'_> {
    /// Returns the temporary paths of the output files and directories.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn output_paths(&self) -> io::Result<OutputPaths> {
        let directory = |files: &Option<ColumnFiles>| files.as_ref().map(ColumnFiles::directory_path).transpose();
        let file = |file: &PartitionedFile| std::path::absolute(file.atomic_file().temporary_path());
        let PerFile { bam, cram } =
            partitioned_files(&self.outputs).try_map(|partitioned| partitioned.map(file).transpose())?;
        let (parquet, arrow) = (directory(&self.outputs.parquet)?, directory(&self.outputs.arrow)?);
        Ok(OutputPaths { bam, cram, parquet, arrow, step_directory: directory(&self.outputs.step_files)? })
    }

    /// Returns the offset of the first part in each file, bytes.
    pub fn header_bytes(&self) -> PerFile<u64> {
        self.header_bytes
    }

    /// Adds the report of a part. If another worker has reported the same part, the new report replaces the old, equal
    /// one.
    ///
    /// # Errors
    /// A [`PipelineError`] if the report is not valid JSON.
    pub fn add_report(&mut self, at: usize, report: &[u8]) -> Result<(), PipelineError> {
        let report = serde_json::from_slice(report).map_err(|error| writing_error(error.into(), &self.stem))?;
        if let Some(place) = self.reports.get_mut(at) {
            *place = Some(report);
        }
        Ok(())
    }

    /// Records the location of a part that a worker has written to the files, and writes the bytes of the part in
    /// shared pages.
    ///
    /// # Errors
    /// [`PipelineError::File`] if the location is invalid or a file cannot be written.
    pub fn add_placed_part(
        &mut self,
        at: usize,
        extents: PerFile<PartExtent>,
        edges: PerFile<PartEdges>,
    ) -> Result<(), PipelineError> {
        let failed = |error| writing_error(error, &self.stem);
        partitioned_files(&self.outputs).zip(extents.zip(edges)).try_map(|(file, (extent, edges))| {
            let Some(file) = file else { return Ok(()) };
            let file = file.atomic_file().file();
            let end = extent.offset.checked_add(extent.bytes);
            let last = end.and_then(|end| end.checked_sub(edges.last.len() as u64));
            let last = last.ok_or_else(|| failed(io::Error::other("a worker placed its part at an invalid offset")))?;
            file.write_all_at(&edges.first, extent.offset).map_err(failed)?;
            file.write_all_at(&edges.last, last).map_err(failed)
        })?;
        if let Some(place) = self.extents.get_mut(at) {
            *place = Some(extents);
        }
        Ok(())
    }

    /// Finishes the output files and adds indexes, counts and metrics. `recalibration_report`: the report of base
    /// qualities, if they were changed.
    ///
    /// # Errors
    /// A [`PipelineError`]; [`PipelineError::CountMismatch`] if a part is missing.
    pub fn finish(
        self,
        genome: &Genome,
        outputs: &Outputs,
        recalibration_report: Option<String>,
    ) -> Result<UnpublishedOutputs, PipelineError> {
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
            let written = partitioned_files(&self.outputs).zip(extents).try_map(|(file, extent)| match file {
                Some(file) => file.add_written_part(at + 1, extent),
                None => Ok(()),
            });
            written.map_err(|error| writing_error(error, &self.stem))?;
            if let (Some(job), Some(part)) = (&self.qc, qc) {
                job.take_part(at, part)?;
            }
            summaries.push(summary);
        }
        let written = PartitionResults {
            summaries,
            qc: self.qc,
            resumed_partitions: 0,
            recalibration_report,
            started_at: self.started_at,
        };
        written.into_outputs(self.marked, self.outputs, genome, outputs)
    }
}

/// Returns the BAM and the CRAM file.
fn partitioned_files<'f, 't>(targets: &'f PartitionedOutputs<'t>) -> PerFile<Option<&'f PartitionedFile<'t>>> {
    PerFile { bam: targets.bam.as_ref(), cram: targets.cram.as_ref().map(|(file, _)| file) }
}

/// Removes unfinished files of lost workers from a directory of Parquet or Arrow files.
fn remove_unfinished(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
