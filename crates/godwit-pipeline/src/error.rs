//! The errors that end a job, and their kinds, which decide the exit code.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_cram::CramError;
use godwit_engines::EngineError;
use godwit_engines::aligner::bwa::{IndexError, StaleReason};
use godwit_exchange::ExchangeError;
use godwit_fleet::FleetError;
use godwit_formats::bam::BamError;
use godwit_formats::bed::BedError;
use godwit_formats::columnar::ColumnarError;
use godwit_formats::fasta::FastaError;
use godwit_formats::fastq::FastqError;
use godwit_formats::is_system_failure;
use godwit_formats::sam::{HeaderError, SamError, SamReadError};
use godwit_formats::vcf::VcfError;
use godwit_kernels::markdup::{BarcodeError, MarkDuplicatesError};
use godwit_model::{ContigId, Genome};
use serde::{Deserialize, Serialize};

use crate::memory::MemoryTooSmall;
use crate::python_step::PythonStepError;

/// The class of an error, which decides the exit code: the cause that has to change before the job can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The command line.
    Usage,
    /// The input data.
    Input,
    /// This machine: a file, tool, permission or disk.
    Machine,
    /// An outside program.
    Engine,
    /// Another machine, or the network.
    Remote,
    /// A stop by the user or by a signal.
    Interrupted,
    /// A bug in godwit.
    Bug,
}

impl ErrorKind {
    const ALL: [Self; 7] =
        [Self::Usage, Self::Input, Self::Machine, Self::Engine, Self::Remote, Self::Interrupted, Self::Bug];

    /// Returns the exit code of a process that fails with this kind.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::Bug => 1,
            Self::Usage => 2,
            Self::Input => 3,
            Self::Machine => 4,
            Self::Engine => 5,
            Self::Remote => 6,
            Self::Interrupted => 130,
        }
    }

    /// Returns the error kind of another godwit process by its exit code; without a known one, its machine was lost.
    pub fn of_exit_code(code: Option<i32>) -> Self {
        Self::ALL.into_iter().find(|blame| Some(blame.exit_code()) == code).unwrap_or(Self::Remote)
    }

    /// Returns the text in the outcome file of a sample. It is independent of the names of the variants.
    pub(crate) fn outcome_text(self) -> &'static str {
        match self {
            Self::Usage => "Usage",
            Self::Input => "Input",
            Self::Machine => "Machine",
            Self::Engine => "Engine",
            Self::Remote => "Remote",
            Self::Interrupted => "Interrupted",
            Self::Bug => "Bug",
        }
    }
}

/// An error that ends a job.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The memory limit cannot hold one block.
    #[error(transparent)]
    Memory(#[from] MemoryTooSmall),
    /// Options that contradict each other.
    #[error("{problem}")]
    Options {
        /// The problem and its remedy.
        problem: String,
    },
    /// An error of a FASTQ file.
    #[error(transparent)]
    Fastq(#[from] FastqError),
    /// Aligned input that cannot be used.
    #[error("cannot use {}", .path.display())]
    Alignments {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: AlignmentsError,
    },
    /// A header or read group line that is wrong.
    #[error("the header of {origin} is wrong")]
    Header {
        /// The source of the header, as named in the message.
        origin: String,
        /// The reason.
        #[source]
        source: HeaderError,
    },
    /// A required file does not exist.
    #[error("{description} {} is missing; {remedy}", .path.display())]
    Missing {
        /// The kind of file, for the message.
        description: &'static str,
        /// The file.
        path: PathBuf,
        /// The remedy.
        remedy: String,
    },
    /// A file with wrong content.
    #[error("{} is corrupt: {problem}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// An index that does not belong to its reference.
    #[error("the index beside {} does not belong to it: {reason}", .reference.display())]
    StaleIndex {
        /// The reference.
        reference: PathBuf,
        /// The difference.
        reason: StaleReason,
    },
    /// The reference is not valid FASTA.
    #[error("cannot use the reference {}", .path.display())]
    Fasta {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: FastaError,
    },
    /// The index or its reference could not be read.
    #[error("cannot check the index of {}", .reference.display())]
    Index {
        /// The reference.
        reference: PathBuf,
        /// The reason.
        #[source]
        source: IndexError,
    },
    /// An error of the aligner.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A program failed repeatedly on one region or slice.
    #[error("{action} {region} failed {attempts} times")]
    RegionFailed {
        /// The action, as `calling`.
        action: &'static str,
        /// The region, as `chr1:1-1000`, 1-based, or the records.
        region: String,
        /// Number of attempts.
        attempts: u32,
        /// The last failure.
        #[source]
        source: Box<EngineError>,
    },
    /// A caller failed repeatedly on one region, on a worker.
    #[error("calling {region} failed {attempts} times, the last time on {worker}: {message}")]
    RegionFailedOnWorker {
        /// The region, as `chr1:1-1000`, 1-based.
        region: String,
        /// Number of attempts.
        attempts: u32,
        /// Host and process of the last attempt.
        worker: String,
        /// The last failure, with the command and the end of its error output.
        message: String,
    },
    /// The output of a caller cannot be merged.
    #[error("what was called in {region} {problem}")]
    CallerOutput {
        /// The region, as `chr1:1-1000`, 1-based.
        region: String,
        /// The problem.
        problem: String,
    },
    /// An error of the program that trims the reads before alignment.
    #[error(transparent)]
    Trimmer(EngineError),
    /// A file or directory could not be created, written or read.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// `create`, `write`, `read`.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// An error of a barcode.
    #[error(transparent)]
    Barcode(#[from] BarcodeError),
    /// fastp did not read all reads.
    #[error("fastp took {trimmed_reads} of {reads} reads; trim the files by hand to see why, and align what it makes")]
    TrimmedReadCount {
        /// Reads in the files.
        reads: u64,
        /// Reads that fastp reports as read.
        trimmed_reads: u64,
    },
    /// CRAM that cannot be written: its reference, or a record.
    #[error("cannot write CRAM")]
    Cram(#[source] CramError),
    /// Columns that cannot be written.
    #[error("cannot write columns")]
    Columns(#[source] ColumnarError),
    /// Read names that are not unique.
    #[error(
        "several pairs of one read group share a name: more than one read, the last of them at {position}, has its mate on \
         {mate_contig}; was the same file given twice? give reads unique names"
    )]
    RepeatedName {
        /// Position of one of the reads, `contig:position`, 1-based.
        position: String,
        /// The contig with several candidates for its mate.
        mate_contig: String,
    },
    /// Fewer or more reads or records were written than read. This is a bug; no output was published.
    #[error("a bug in godwit: {actual} of {expected} {items} came through; please report it")]
    CountMismatch {
        /// The items that were counted.
        items: &'static str,
        /// Items read, less those left out on purpose.
        expected: u64,
        /// Items written.
        actual: u64,
    },
    /// An error in a sample sheet.
    #[error("{}, {position}: {problem}", .path.display())]
    Sheet {
        /// The file.
        path: PathBuf,
        /// Line, and column where known; both 1-based.
        position: String,
        /// The problem.
        problem: String,
    },
    /// Remote reads could not be downloaded, or outputs could not be uploaded.
    #[error("cannot copy between here and {address}: {message}")]
    Transfer {
        /// The remote address.
        address: String,
        /// The reason and the remedy.
        message: String,
        /// The kind of the error.
        kind: ErrorKind,
    },
    /// Some samples of several failed.
    #[error("{}", failed_samples_message(failed, *total))]
    Samples {
        /// Names of the failed samples, with the reasons.
        failed: Vec<(String, String)>,
        /// Number of all samples.
        total: usize,
        /// The kind of the first failure.
        kind: ErrorKind,
    },
    /// An error of a VCF file.
    #[error(transparent)]
    Vcf(#[from] VcfError),
    /// An error of a BED file.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// Files that cannot be compared with each other.
    #[error("{problem}")]
    Incomparable {
        /// The files, the evidence and the remedy.
        problem: String,
    },
    /// An error of a Python step.
    #[error(transparent)]
    PythonStep(#[from] PythonStepError),
    /// An error of the network between the workers of a job.
    #[error(transparent)]
    Exchange(Box<ExchangeError>),
    /// An error while workers are started or connect.
    #[error(transparent)]
    Fleet(Box<FleetError>),
    /// All workers are lost.
    #[error("no node is left to go on: {last_error}")]
    NoWorkers {
        /// The last failure that a worker reported, or else the first loss.
        last_error: String,
    },
    /// A worker failed with an error that all other workers would have too.
    #[error("{message} (on {worker})")]
    Worker {
        /// Name of the worker.
        worker: String,
        /// The problem, its location and the remedy.
        message: String,
        /// The kind of the error.
        kind: ErrorKind,
    },
    /// The job was cancelled.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
    /// The job was cancelled, and its work can be resumed.
    #[error("interrupted; what was done is kept in {}: add --resume to the same command to go on", .job_directory.display())]
    InterruptedResumable {
        /// The job directory.
        job_directory: PathBuf,
    },
}

/// The reason why a file of aligned reads cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AlignmentsError {
    /// CRAM from a pipe.
    #[error("it is CRAM, which cannot be read from a pipe; name a file")]
    CramPipe,
    /// CRAM that is encrypted.
    #[error("it is encrypted CRAM, which is not read: decrypt it first, or encrypt BAM")]
    CramEncrypted,
    /// A file of 0 bytes, or one that decompresses to 0 bytes.
    #[error("it is empty; was the program that wrote it stopped? A file without reads still has a header")]
    Empty,
    /// A file in none of the supported formats.
    #[error("it is neither SAM, BAM nor CRAM; convert it first, as with `samtools view -b`")]
    Format,
    /// A wrong line of SAM.
    #[error("line {line}")]
    Line {
        /// 1-based number of the line.
        line: u64,
        /// The reason.
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

/// An I/O error that names its file, for code that works on several files and returns [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Adds the file to an I/O error. An interruption is returned unchanged.
pub(crate) fn with_file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |source| match source.kind() {
        io::ErrorKind::Interrupted => source,
        kind => io::Error::new(kind, FileError { action, path: path.to_owned(), source }),
    }
}

fn failed_samples_message(failed: &[(String, String)], of: usize) -> String {
    let reasons: Vec<String> = failed.iter().map(|(name, reason)| format!("{name} ({reason})")).collect();
    let (count, reasons) = (failed.len(), reasons.join("; "));
    format!(
        "{count} of {of} samples failed: {reasons}; all others are done: mend these and add --resume to the same command"
    )
}

impl From<ExchangeError> for PipelineError {
    fn from(error: ExchangeError) -> Self {
        Self::Exchange(Box::new(error))
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
            Self::Bed(source) if is_system_failure(source) => ErrorKind::Machine,
            Self::Vcf(_) | Self::Bed(_) | Self::Incomparable { .. } => ErrorKind::Input,
            Self::Cram(_) | Self::Columns(_) => ErrorKind::Input,
            Self::Fastq(_) | Self::Alignments { .. } | Self::Header { .. } | Self::RepeatedName { .. } => {
                ErrorKind::Input
            }
            Self::Samples { kind: blame, .. } => *blame,
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
                _ => ErrorKind::Engine,
            },
            Self::PythonStep(error) => error.kind(),
            Self::Exchange(_) | Self::NoWorkers { .. } => ErrorKind::Remote,
            Self::Fleet(error) => match **error {
                FleetError::InvalidValue { .. } | FleetError::TooFewSlots { .. } => ErrorKind::Usage,
                _ => ErrorKind::Machine,
            },
            Self::Worker { kind, .. } | Self::Transfer { kind, .. } => *kind,
            Self::TrimmedReadCount { .. }
            | Self::RegionFailed { .. }
            | Self::RegionFailedOnWorker { .. }
            | Self::CallerOutput { .. } => ErrorKind::Engine,
            Self::CountMismatch { .. } => ErrorKind::Bug,
            Self::Interrupted | Self::InterruptedResumable { .. } => ErrorKind::Interrupted,
        }
    }

    /// Reports whether all workers would fail in the same way.
    pub(crate) fn affects_all_workers(&self) -> bool {
        match self {
            Self::PythonStep(error) if error.affects_all_workers() => true,
            error => matches!(error.kind(), ErrorKind::Usage | ErrorKind::Input | ErrorKind::Bug),
        }
    }

    /// Returns this error, or [`Self::Interrupted`] if the job was cancelled.
    pub(crate) fn or_interrupted(self, cancelled: &AtomicBool) -> Self {
        if cancelled.load(Ordering::Relaxed) { Self::Interrupted } else { self }
    }

    /// Makes an error of an I/O error. A file that the error names itself ([`with_file`]) replaces this one.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.downcast::<FileError>() {
            Ok(FileError { action, path, source }) => Self::File { action, path, source },
            Err(source) => Self::File { action, path, source },
        }
    }

    /// Makes an error of a file of aligned reads.
    pub(crate) fn alignments(path: &Path, source: AlignmentsError) -> Self {
        Self::Alignments { path: path.to_owned(), source }
    }

    /// Makes an error of a failed duplicate marking; `temp` is the directory of its scratch space.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_say_what_a_process_failed_for() {
        assert_eq!(ErrorKind::ALL.map(ErrorKind::exit_code), [2, 3, 4, 5, 6, 130, 1]);
        for blame in ErrorKind::ALL {
            assert_eq!(ErrorKind::of_exit_code(Some(blame.exit_code())), blame);
        }
        for code in [None, Some(0), Some(137)] {
            assert_eq!(ErrorKind::of_exit_code(code), ErrorKind::Remote);
        }
    }

    #[test]
    fn texts_in_outcome_files_are_those_of_earlier_versions() {
        let texts = ErrorKind::ALL.map(ErrorKind::outcome_text);
        assert_eq!(texts, ["Usage", "Input", "Machine", "Engine", "Remote", "Interrupted", "Bug"]);
    }
}
