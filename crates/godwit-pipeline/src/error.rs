//! The errors that end a job, and the error kinds, which decide the exit code.

mod python_step_error;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_cluster::{ClusterError, ConnectionError, FailureReport, WorkerError};
use godwit_columnar::ColumnarError;
use godwit_cram::CramError;
use godwit_engines::EngineError;
use godwit_engines::aligner::bwa::{IndexError, StaleReason};
use godwit_fleet::FleetError;
use godwit_formats::bam::BamError;
use godwit_formats::fasta::FastaError;
use godwit_formats::fastq::FastqError;
use godwit_formats::intervals::IntervalError;
use godwit_formats::sam::{HeaderError, SamError, SamReadError};
use godwit_formats::vcf::VcfError;
use godwit_haplotypes::HaplotypeError;
use godwit_kernels::markdup::{BarcodeError, MarkDuplicatesError};
use godwit_metrics::MetricsError;
use godwit_model::{ContigId, ErrorKind, Genome, is_system_failure, message_with_causes};
use godwit_process::RESUME_ADVICE;
use godwit_recalibrate::ReadError;

use crate::memory::MemoryTooSmall;
pub use python_step_error::{PythonStepError, PythonStepRefusal};

/// An error that ends a job.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The memory limit is so small that it cannot hold one block of reads.
    #[error(transparent)]
    Memory(#[from] MemoryTooSmall),
    /// A comparison by haplotypes failed.
    #[error(transparent)]
    Haplotypes(#[from] HaplotypeError),
    /// The metrics of a file cannot be computed.
    #[error(transparent)]
    Metrics(MetricsError),
    /// Options that contradict each other.
    #[error("{problem}")]
    Options {
        /// The options that contradict each other, and the remedy.
        problem: String,
    },
    /// An error of a FASTQ file.
    #[error(transparent)]
    Fastq(#[from] FastqError),
    /// A file of aligned reads (SAM, BAM or CRAM) that cannot be used.
    #[error("cannot use {}", .path.display())]
    Alignments {
        /// Path of the SAM, BAM or CRAM file.
        path: PathBuf,
        /// The reason why the file cannot be used.
        #[source]
        source: AlignmentsError,
    },
    /// A SAM header, or an `@RG` line for it, that is wrong.
    #[error("the header of {origin} is invalid")]
    Header {
        /// The file or option from which the header comes, for the error message.
        origin: String,
        /// The error in the header.
        #[source]
        source: HeaderError,
    },
    /// A required file does not exist.
    #[error("{description} {} is missing; {remedy}", .path.display())]
    Missing {
        /// The kind of file, for the error message, for example `the reference`.
        description: &'static str,
        /// Path of the missing file.
        path: PathBuf,
        /// The remedy, for the error message.
        remedy: String,
    },
    /// A file whose content is invalid or damaged.
    #[error("{} is corrupt: {problem}", .path.display())]
    Corrupt {
        /// Path of the corrupt file.
        path: PathBuf,
        /// The error in the content.
        problem: String,
    },
    /// An aligner index that was not built from the reference beside it.
    #[error("the index beside {} is the index of another file: {reason}", .reference.display())]
    StaleIndex {
        /// Path of the reference.
        reference: PathBuf,
        /// The difference between the index and the reference.
        reason: StaleReason,
    },
    /// The reference is not valid FASTA.
    #[error("cannot use the reference {}", .path.display())]
    Fasta {
        /// Path of the reference.
        path: PathBuf,
        /// The error in the FASTA text.
        #[source]
        source: FastaError,
    },
    /// The index of the aligner, or the reference that belongs to it, could not be read.
    #[error("cannot check the index of {}", .reference.display())]
    Index {
        /// Path of the reference.
        reference: PathBuf,
        /// The error of the index.
        #[source]
        source: IndexError,
    },
    /// An error of the aligner.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A caller or another program failed repeatedly on one region or on one slice of the records.
    #[error("{action} {region} failed {attempts} times")]
    RegionFailed {
        /// The action that failed, for example `calling`, for the error message.
        action: &'static str,
        /// The region, as `chr1:1-1000` (1-based), or the record numbers of the slice.
        region: String,
        /// Number of attempts.
        attempts: u32,
        /// The error of the last attempt.
        #[source]
        source: Box<EngineError>,
    },
    /// A variant caller failed repeatedly on one region, the last time on a worker.
    #[error("calling {region} failed {attempts} times, the last time on {worker}: {message}")]
    RegionFailedOnWorker {
        /// The region, as `chr1:1-1000`, 1-based.
        region: String,
        /// Number of attempts.
        attempts: u32,
        /// Host name and process number of the worker that made the last attempt.
        worker: String,
        /// The error of the last attempt, with the command line and the last lines of its standard error.
        message: String,
        /// The kind of the error of the last attempt ([`PipelineError::kind_of_item_failure`]).
        kind: ErrorKind,
    },
    /// The output of a variant caller for one region cannot be merged with the other regions.
    #[error("the output for {region} {problem}")]
    CallerOutput {
        /// The region whose variants cannot be merged, as `chr1:1-1000`, 1-based.
        region: String,
        /// The problem, as the end of the sentence "the output for REGION ...".
        problem: String,
    },
    /// An error of the program that trims the reads before alignment (fastp).
    #[error(transparent)]
    Trimmer(EngineError),
    /// A file or directory could not be created, written or read.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// The verb of the error message, for example `create`, `write` or `read`.
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The I/O error of the operating system.
        #[source]
        source: io::Error,
    },
    /// An error in the barcode (UMI) of a read.
    #[error(transparent)]
    Barcode(#[from] BarcodeError),
    /// fastp read fewer or more reads than the FASTQ files contain.
    #[error(
        "fastp read {trimmed_reads} of {reads} reads; run fastp separately to find the reason, and align its output"
    )]
    TrimmedReadCount {
        /// Number of reads in the FASTQ files.
        reads: u64,
        /// Number of reads that fastp reports as read.
        trimmed_reads: u64,
    },
    /// CRAM that cannot be written, because of its reference or of a record.
    #[error("cannot write CRAM")]
    Cram(#[source] CramError),
    /// A columnar output, for example Arrow or Parquet, that cannot be written.
    #[error("cannot write columns")]
    Columns(#[source] ColumnarError),
    /// Several read pairs of one read group with the same name.
    #[error(
        "several pairs of one read group share a name: more than one read, the last one at {position}, has its mate on \
         {mate_contig}; was the same file given twice? give reads unique names"
    )]
    RepeatedName {
        /// Position of one of the reads, as `contig:position` (1-based).
        position: String,
        /// Name of the contig on which more than one read could be the mate.
        mate_contig: String,
    },
    /// The number of written reads or records differs from the number of those read. This is a bug. No output is
    /// published.
    #[error("a bug in godwit: {actual} of {expected} {items} were written; please report it")]
    CountMismatch {
        /// Plural name of the counted items, for example `reads`, for the error message.
        items: &'static str,
        /// Number of items read, without those that are left out on purpose.
        expected: u64,
        /// Number of items written.
        actual: u64,
    },
    /// An error in a sample sheet.
    #[error("{}, {position}: {problem}", .path.display())]
    Sheet {
        /// Path of the sample sheet.
        path: PathBuf,
        /// Line number, and the column if it is known, for the error message; both are 1-based.
        position: String,
        /// The error in the line.
        problem: String,
    },
    /// Remote reads could not be downloaded, or outputs could not be uploaded.
    #[error("cannot copy between this host and {address}: {message}")]
    Transfer {
        /// Address of the remote server or file.
        address: String,
        /// The reason and the remedy, for the error message.
        message: String,
        /// The kind of the error, which decides the exit code.
        kind: ErrorKind,
    },
    /// At least one sample of a workflow failed.
    #[error("{}", failed_samples_message(failed, *total))]
    Samples {
        /// Names of the failed samples, each with the reason.
        failed: Vec<(String, String)>,
        /// Number of all samples.
        total: usize,
        /// The kind of the first error of a sample.
        kind: ErrorKind,
    },
    /// An error of a VCF file.
    #[error(transparent)]
    Vcf(#[from] VcfError),
    /// A read whose base qualities cannot be recalibrated.
    #[error("cannot recalibrate base qualities")]
    Recalibration(#[from] ReadError),
    /// An error of a BED file.
    #[error(transparent)]
    Bed(#[from] IntervalError),
    /// Variant files that cannot be compared with each other.
    #[error("{problem}")]
    Incomparable {
        /// The names of the files, the difference and the remedy.
        problem: String,
    },
    /// An error of a Python step.
    #[error(transparent)]
    PythonStep(#[from] PythonStepError),
    /// An error of the network between the head and the workers of a cluster job.
    #[error(transparent)]
    Connection(Box<ConnectionError>),
    /// An error while workers of a cluster job are started or connect.
    #[error(transparent)]
    Fleet(Box<FleetError>),
    /// All workers of a cluster job are lost.
    #[error("no worker is left: {last_error}")]
    NoWorkers {
        /// The last error that a worker reported; if no worker reported an error, the first loss of a worker.
        last_error: String,
    },
    /// A worker stopped with an error that every other worker would also have.
    #[error("{message} (on {worker})")]
    Worker {
        /// Name of the worker.
        worker: String,
        /// The problem, the file or record that has it, and the remedy.
        message: String,
        /// The kind of the error, which decides the exit code.
        kind: ErrorKind,
    },
    /// The job was cancelled. Its temporary files are removed.
    #[error("interrupted; all temporary files were removed")]
    Interrupted,
    /// The job was cancelled. Its finished work is stored, and `--resume` continues it.
    #[error(
        "interrupted; finished work is stored in {}: {}",
        .job_directory.display(),
        RESUME_ADVICE
    )]
    InterruptedResumable {
        /// Path of the job directory.
        job_directory: PathBuf,
    },
}

/// The reason why a file of aligned reads cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AlignmentsError {
    /// CRAM from a pipe, which is not supported.
    #[error("it is CRAM, which cannot be read from a pipe; name a file")]
    CramPipe,
    /// Encrypted CRAM, which is not supported.
    #[error("it is encrypted CRAM, which is not supported: decrypt it first, or use encrypted BAM")]
    CramEncrypted,
    /// A file of 0 bytes, or one that decompresses to 0 bytes.
    #[error("it is empty, but a file without reads has a header too; was the program that wrote it stopped?")]
    Empty,
    /// A file that is not SAM, BAM or CRAM.
    #[error("it is neither SAM, BAM nor CRAM; convert it first, as with `samtools view -b`")]
    Format,
    /// A file that is not BAM, for a job that reads only BAM.
    #[error("it is not BAM; convert it first, as with `samtools view -b`")]
    NotBam,
    /// A record that comes before its predecessor in the order of coordinates, for a job that needs this order.
    #[error("record {record} is not in the order of coordinates; sort the file first, as with `godwit markdup`")]
    NotSorted {
        /// 1-based number of the record.
        record: u64,
    },
    /// A wrong line of a SAM file.
    #[error("line {line}")]
    Line {
        /// Number of the line in the file, 1-based.
        line: u64,
        /// The error in the line.
        #[source]
        source: SamError,
    },
    /// An error in the text of a SAM file.
    #[error(transparent)]
    Sam(#[from] SamReadError),
    /// An error of a BAM file.
    #[error(transparent)]
    Bam(#[from] BamError),
    /// An error of a CRAM file.
    #[error(transparent)]
    Cram(#[from] CramError),
}

/// An I/O error with the path of its file, for functions that use several files and return [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Returns a function that adds the path of a file to an I/O error. It returns an error of kind `Interrupted`
/// unchanged.
pub(crate) fn with_file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |source| match source.kind() {
        io::ErrorKind::Interrupted => source,
        kind => io::Error::new(kind, FileError { action, path: path.to_owned(), source }),
    }
}

fn failed_samples_message(failed: &[(String, String)], of: usize) -> String {
    let reasons: Vec<String> = failed.iter().map(|(name, reason)| format!("{name} ({reason})")).collect();
    let (count, reasons) = (failed.len(), reasons.join("; "));
    if of == 1 {
        return format!("1 of 1 sample failed: {reasons}; correct the cause and add --resume to the same command");
    }
    format!(
        "{count} of {of} samples failed: {reasons}; all other samples are finished: correct the causes and add \
         --resume to the same command"
    )
}

impl From<MetricsError> for PipelineError {
    fn from(error: MetricsError) -> Self {
        match error {
            MetricsError::Reference(source) => Self::file("read", "the reference")(source),
            error => Self::Metrics(error),
        }
    }
}

impl From<ConnectionError> for PipelineError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(Box::new(error))
    }
}

impl From<ClusterError> for PipelineError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Connection(error) => error.into(),
            ClusterError::Fleet(error) => error.into(),
            error @ ClusterError::UnsendableMessage { .. } => Self::Options { problem: error.to_string() },
            ClusterError::File { action, path, source } => Self::File { action, path, source },
            ClusterError::NoWorkers { last_error } => Self::NoWorkers { last_error },
            ClusterError::WorkerFailed { worker, message, exit_code } => {
                Self::Worker { worker, message, kind: ErrorKind::of_exit_code(Some(exit_code)) }
            }
            ClusterError::UnexpectedMessage { worker, problem } => {
                Self::Worker { worker, message: problem, kind: ErrorKind::Engine }
            }
            ClusterError::Interrupted => Self::Interrupted,
        }
    }
}

impl WorkerError for PipelineError {
    fn connection_error(&self) -> Option<&ConnectionError> {
        match self {
            Self::Connection(error) => Some(error),
            _ => None,
        }
    }

    fn failure_report(&self) -> FailureReport {
        let fatal_exit_code = self.affects_all_workers().then(|| self.kind().exit_code());
        FailureReport { message: message_with_causes(self), fatal_exit_code }
    }
}

impl From<FleetError> for PipelineError {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::Cancelled => Self::Interrupted,
            error => Self::Fleet(Box::new(error)),
        }
    }
}

/// Returns whether a program, or the work around it, failed because the disk is full, by the message of strerror(3).
fn is_disk_full(error: &EngineError) -> bool {
    message_with_causes(error).contains("No space left on device")
}

impl PipelineError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory(_) | Self::Options { .. } => ErrorKind::Usage,
            Self::Fastq(FastqError::Open { .. } | FastqError::Read { .. } | FastqError::Thread { .. }) => {
                ErrorKind::Machine
            }
            Self::Fastq(FastqError::Unaligned(source)) if is_system_failure(source) => ErrorKind::Machine,
            Self::Alignments { source, .. } if is_system_failure(source) => ErrorKind::Machine,
            Self::Index { source, .. } if is_system_failure(source) => ErrorKind::Machine,
            Self::Fasta { source, .. } if is_system_failure(source) => ErrorKind::Machine,
            Self::Cram(source) if is_system_failure(source) => ErrorKind::Machine,
            Self::Columns(source) if is_system_failure(source) => ErrorKind::Machine,
            Self::Vcf(source) if is_system_failure(source) => ErrorKind::Machine,
            Self::Haplotypes(source) if source.is_system_failure() => ErrorKind::Machine,
            Self::Haplotypes(HaplotypeError::Options { .. }) => ErrorKind::Usage,
            Self::Haplotypes(HaplotypeError::Cancelled) => ErrorKind::Interrupted,
            Self::Haplotypes(HaplotypeError::NoPath { .. }) => ErrorKind::Bug,
            Self::Haplotypes(_) => ErrorKind::Input,
            Self::Metrics(source) if is_system_failure(source) => ErrorKind::Machine,
            Self::Metrics(_) => ErrorKind::Input,
            Self::Bed(source) if is_system_failure(source) => ErrorKind::Machine,
            Self::Recalibration(ReadError::Reference(_)) => ErrorKind::Machine,
            Self::Recalibration(_) => ErrorKind::Input,
            Self::Vcf(_) | Self::Bed(_) | Self::Incomparable { .. } => ErrorKind::Input,
            Self::Cram(_) | Self::Columns(_) => ErrorKind::Input,
            Self::Fastq(_) | Self::Alignments { .. } | Self::Header { .. } | Self::RepeatedName { .. } => {
                ErrorKind::Input
            }
            Self::Samples { kind, .. } => *kind,
            Self::Sheet { .. } => ErrorKind::Input,
            Self::Corrupt { .. } | Self::StaleIndex { .. } | Self::Index { .. } => ErrorKind::Input,
            Self::Fasta { .. } | Self::Barcode(_) => ErrorKind::Input,
            Self::Missing { .. } | Self::File { .. } => ErrorKind::Machine,
            Self::Engine(error) | Self::Trimmer(error) => match error {
                EngineError::NotFound { .. }
                | EngineError::NotInstalled { .. }
                | EngineError::VersionMismatch { .. }
                | EngineError::Processor { .. }
                | EngineError::Memory { .. }
                | EngineError::MissingIndex { .. } => ErrorKind::Machine,
                EngineError::Usage { .. } | EngineError::Arguments { .. } => ErrorKind::Usage,
                EngineError::Reference { source, .. } if is_system_failure(source) => ErrorKind::Machine,
                EngineError::WrongIndex { .. } | EngineError::Reference { .. } => ErrorKind::Input,
                error => Self::kind_of_item_failure(error),
            },
            Self::PythonStep(error) => error.kind(),
            Self::Connection(_) | Self::NoWorkers { .. } => ErrorKind::Remote,
            Self::Fleet(error) => match **error {
                FleetError::InvalidValue { .. } | FleetError::TooFewSlots { .. } | FleetError::Variable { .. } => {
                    ErrorKind::Usage
                }
                _ => ErrorKind::Machine,
            },
            Self::Worker { kind, .. } | Self::Transfer { kind, .. } | Self::RegionFailedOnWorker { kind, .. } => *kind,
            Self::RegionFailed { source, .. } => Self::kind_of_item_failure(source),
            Self::TrimmedReadCount { .. } | Self::CallerOutput { .. } => ErrorKind::Engine,
            Self::CountMismatch { .. } => ErrorKind::Bug,
            Self::Interrupted | Self::InterruptedResumable { .. } => ErrorKind::Interrupted,
        }
    }

    /// Returns the kind of the failure of a program on one region or on one slice of the records.
    pub fn kind_of_item_failure(error: &EngineError) -> ErrorKind {
        match error {
            _ if is_disk_full(error) => ErrorKind::Machine,
            EngineError::UnreadableInput(_) => ErrorKind::Input,
            _ => ErrorKind::Engine,
        }
    }

    /// Reports whether a program is not installed on this host, or has an unsuitable version. Other hosts may have it.
    pub fn is_missing_program(&self) -> bool {
        let (Self::Engine(error) | Self::Trimmer(error)) = self else { return false };
        error.is_missing_program()
    }

    /// Reports whether every worker of a cluster job would fail with this error, so that another worker need not try.
    fn affects_all_workers(&self) -> bool {
        match self {
            Self::PythonStep(error) if error.affects_all_workers() => true,
            error => matches!(error.kind(), ErrorKind::Usage | ErrorKind::Input | ErrorKind::Bug),
        }
    }

    /// Returns this error, or [`Self::Interrupted`] if the job was cancelled.
    pub fn or_interrupted(self, cancelled: &AtomicBool) -> Self {
        if cancelled.load(Ordering::Relaxed) { Self::Interrupted } else { self }
    }

    /// Returns a function that converts an I/O error. If [`with_file`] has added a path to the error, that path
    /// replaces `path`.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.downcast::<FileError>() {
            Ok(FileError { action, path, source }) => Self::File { action, path, source },
            Err(source) => Self::File { action, path, source },
        }
    }

    /// Creates the error for an invalid message of the head.
    pub fn malformed_command(problem: impl Into<String>) -> Self {
        ConnectionError::invalid_head_message(problem).into()
    }

    /// Creates the error for a file of aligned reads.
    pub fn alignments(path: &Path, source: AlignmentsError) -> Self {
        Self::Alignments { path: path.to_owned(), source }
    }

    /// Converts an error of duplicate marking; `temp` is the directory of the scratch files.
    pub(crate) fn from_marking(error: MarkDuplicatesError, temp: PathBuf, genome: &Genome) -> Self {
        match error {
            MarkDuplicatesError::Spill(source) if source.kind() == io::ErrorKind::Interrupted => Self::Interrupted,
            MarkDuplicatesError::Spill(source) => Self::file("use scratch space in", temp)(source),
            MarkDuplicatesError::RepeatedName(error) => {
                let named = |contig: i32| {
                    let contig = u32::try_from(contig).ok().and_then(|id| genome.contig(ContigId(id)));
                    contig.map_or("no contig", |contig| contig.name.as_str())
                };
                let position = format!("{}:{}", named(error.end.contig), i64::from(error.end.position) + 1);
                Self::RepeatedName { position, mate_contig: named(error.mate_contig).to_owned() }
            }
        }
    }
}
