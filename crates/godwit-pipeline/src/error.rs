//! What can end a job, and whose turn it is to act.

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
use godwit_formats::sam::{HeaderError, ReadError, SamError};
use godwit_formats::vcf::VcfError;
use godwit_kernels::markdup::{BarcodeError, MarkError};
use godwit_model::{ContigId, Genome};
use serde::{Deserialize, Serialize};

use crate::memory::MemoryTooSmall;
use crate::step::StepError;

/// Who can do something about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
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
    /// Whoever stopped the run.
    Interrupted,
    /// godwit.
    Bug,
}

impl Blame {
    const ALL: [Self; 7] =
        [Self::Usage, Self::Input, Self::Machine, Self::Engine, Self::Remote, Self::Interrupted, Self::Bug];

    /// Returns the exit code of a process that fails so.
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

    /// Returns what another godwit failed for, by its exit code. A process without one, or with another, is lost with its machine.
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

/// Why a job failed.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The memory limit cannot hold one block.
    #[error(transparent)]
    Memory(#[from] MemoryTooSmall),
    /// Options that do not go together.
    #[error("{problem}")]
    Options {
        /// What, and what to do.
        problem: String,
    },
    /// A FASTQ file.
    #[error(transparent)]
    Fastq(#[from] FastqError),
    /// Aligned input.
    #[error("cannot use {}", .path.display())]
    Alignments {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: AlignmentsError,
    },
    /// A header or read group line.
    #[error("the header of {origin} is wrong")]
    Header {
        /// Where it is from.
        origin: String,
        /// What is wrong with it.
        #[source]
        source: HeaderError,
    },
    /// A file that is needed and not there.
    #[error("{what} {} is missing; {remedy}", .path.display())]
    Missing {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What to do.
        remedy: String,
    },
    /// A file that is not what it should be.
    #[error("{} is corrupt: {problem}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// An index that does not belong to its reference.
    #[error("the index beside {} does not belong to it: {reason}", .reference.display())]
    StaleIndex {
        /// The reference.
        reference: PathBuf,
        /// What differs.
        reason: StaleReason,
    },
    /// The reference is no clean FASTA.
    #[error("cannot use the reference {}", .path.display())]
    Fasta {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: FastaError,
    },
    /// The index or its reference could not be read.
    #[error("cannot check the index of {}", .reference.display())]
    Index {
        /// The reference.
        reference: PathBuf,
        /// What is wrong.
        #[source]
        source: IndexError,
    },
    /// The aligner.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A program failed on one region or slice, again.
    #[error("{doing} {region} failed {attempts} times")]
    Region {
        /// What was done to it, as `calling`.
        doing: &'static str,
        /// The region, as `chr1:1-1000`, 1-based, or which records.
        region: String,
        /// How often it was tried.
        attempts: u32,
        /// How it failed the last time.
        #[source]
        source: Box<EngineError>,
    },
    /// A caller failed on one region, again, on a node.
    #[error("calling {region} failed {attempts} times, the last time on {node}: {message}")]
    RegionOnNode {
        /// The region, as `chr1:1-1000`, 1-based.
        region: String,
        /// How often it was tried.
        attempts: u32,
        /// Machine and process.
        node: String,
        /// How it failed the last time, with the command and its last words.
        message: String,
    },
    /// What a caller wrote cannot be put together.
    #[error("what was called in {region} {problem}")]
    Called {
        /// The region, as `chr1:1-1000`, 1-based.
        region: String,
        /// What is wrong.
        problem: String,
    },
    /// The program that reads come through before they are aligned.
    #[error(transparent)]
    Trimmer(EngineError),
    /// A file or directory could not be made, written or read.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// `create`, `write`, `read`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A barcode.
    #[error(transparent)]
    Barcode(#[from] BarcodeError),
    /// fastp did not take all reads.
    #[error("fastp took {seen} of {reads} reads; trim the files by hand to see why, and align what it makes")]
    Untrimmed {
        /// Reads in the files.
        reads: u64,
        /// Reads that fastp says it took.
        seen: u64,
    },
    /// CRAM that cannot be written: its reference, or a record.
    #[error("cannot write CRAM")]
    Cram(#[source] CramError),
    /// Columns that cannot be written.
    #[error("cannot write columns")]
    Columns(#[source] ColumnarError),
    /// Names that do not tell reads apart.
    #[error(
        "several pairs of one read group share a name: more than one read, the last of them at {place}, has its mate on \
         {mate_contig}; was the same file given twice? give reads unique names"
    )]
    RepeatedName {
        /// Where one of the reads is, `contig:position`, 1-based.
        place: String,
        /// The contig where several mates are looked for.
        mate_contig: String,
    },
    /// Fewer or more reads or records came out than went in: a bug, and no output was named.
    #[error("a bug in godwit: {written} of {taken} {what} came through; please report it")]
    Lost {
        /// Of what.
        what: &'static str,
        /// Taken in, less those left out on purpose.
        taken: u64,
        /// Come out.
        written: u64,
    },
    /// A sheet of samples.
    #[error("{}, {place}: {problem}", .path.display())]
    Sheet {
        /// The file.
        path: PathBuf,
        /// Line, and column where that is known; from 1.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// Reads that lie elsewhere did not come, or what is to lie elsewhere could not be brought there.
    #[error("cannot copy between here and {address}: {message}")]
    Fetch {
        /// Where they lie.
        address: String,
        /// Why not, and what to do.
        message: String,
        /// Who can do something about it.
        blame: Blame,
    },
    /// Some samples of several failed.
    #[error("{}", samples(failed, *of))]
    Samples {
        /// Which, and why.
        failed: Vec<(String, String)>,
        /// Samples in all.
        of: usize,
        /// Who can do something about the first failure.
        blame: Blame,
    },
    /// A file of variants.
    #[error(transparent)]
    Vcf(#[from] VcfError),
    /// A file of regions.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// Files that have nothing to do with each other.
    #[error("{problem}")]
    Incomparable {
        /// Which, how that was seen, and what to do.
        problem: String,
    },
    /// A user's function between marking and writing.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The network between the nodes of a run.
    #[error(transparent)]
    Exchange(Box<ExchangeError>),
    /// Finding or starting the nodes of a run.
    #[error(transparent)]
    Fleet(Box<FleetError>),
    /// No node is left to work.
    #[error("no node is left to go on: {last}")]
    NoNodes {
        /// What the last one that left said.
        last: String,
    },
    /// A node found something wrong that all others would find too.
    #[error("{message} (on {node})")]
    Node {
        /// Its name.
        node: String,
        /// What, where and what to do.
        message: String,
        /// Who can do something about it.
        blame: Blame,
    },
    /// Stopped from outside.
    #[error("interrupted; nothing was left behind")]
    Interrupted,
    /// Stopped from outside, with work that can be gone on with.
    #[error("interrupted; what was done is kept in {}: add --resume to the same command to go on", .run.display())]
    Paused {
        /// The run directory.
        run: PathBuf,
    },
}

/// What is wrong with a file of aligned reads.
#[derive(Debug, thiserror::Error)]
pub enum AlignmentsError {
    /// CRAM from a pipe.
    #[error("it is CRAM, which cannot be read from a pipe; name a file")]
    CramPipe,
    /// CRAM that is encrypted.
    #[error("it is encrypted CRAM, which is not read: decrypt it first, or encrypt BAM")]
    CramEncrypted,
    /// A file without a byte, or compressed without a byte of text.
    #[error("it is empty; was the program that wrote it stopped? A file without reads still has a header")]
    Empty,
    /// None of the formats that are read.
    #[error("it is neither SAM, BAM nor CRAM; convert it first, as with `samtools view -b`")]
    Format,
    /// A line of SAM.
    #[error("line {line}")]
    Line {
        /// 1-based number of the line.
        line: u64,
        /// What is wrong with it.
        #[source]
        source: SamError,
    },
    /// The text of a SAM file.
    #[error(transparent)]
    Sam(#[from] ReadError),
    /// A BAM file.
    #[error(transparent)]
    Bam(#[from] BamError),
    /// A CRAM file.
    #[error(transparent)]
    Cram(#[from] CramError),
}

/// An error of the system that names its file, for code that works on several files and returns [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
struct FileFailure {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Names the file that an error is about. An interruption stays one.
pub(crate) fn named(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |source| match source.kind() {
        io::ErrorKind::Interrupted => source,
        kind => io::Error::new(kind, FileFailure { action, path: path.to_owned(), source }),
    }
}

fn samples(failed: &[(String, String)], of: usize) -> String {
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
    /// Whose turn it is.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Memory(_) | Self::Options { .. } => Blame::Usage,
            Self::Fastq(FastqError::Open { .. } | FastqError::Read { .. } | FastqError::Thread { .. }) => {
                Blame::Machine
            }
            Self::Fastq(FastqError::Unaligned(source)) if is_system_failure(source) => Blame::Machine,
            Self::Alignments { source, .. } if is_system_failure(source) => Blame::Machine,
            Self::Index { source, .. } if is_system_failure(source) => Blame::Machine,
            Self::Fasta { source, .. } if is_system_failure(source) => Blame::Machine,
            Self::Cram(source) if is_system_failure(source) => Blame::Machine,
            Self::Columns(source) if is_system_failure(source) => Blame::Machine,
            Self::Vcf(source) if is_system_failure(source) => Blame::Machine,
            Self::Bed(source) if is_system_failure(source) => Blame::Machine,
            Self::Vcf(_) | Self::Bed(_) | Self::Incomparable { .. } => Blame::Input,
            Self::Cram(_) | Self::Columns(_) => Blame::Input,
            Self::Fastq(_) | Self::Alignments { .. } | Self::Header { .. } | Self::RepeatedName { .. } => Blame::Input,
            Self::Samples { blame, .. } => *blame,
            Self::Sheet { .. } => Blame::Input,
            Self::Corrupt { .. } | Self::StaleIndex { .. } | Self::Index { .. } => Blame::Input,
            Self::Fasta { .. } | Self::Barcode(_) => Blame::Input,
            Self::Missing { .. } | Self::File { .. } => Blame::Machine,
            Self::Engine(error) | Self::Trimmer(error) => match error {
                EngineError::NotFound { .. }
                | EngineError::NotInstalled { .. }
                | EngineError::VersionMismatch { .. }
                | EngineError::Processor { .. }
                | EngineError::Memory { .. }
                | EngineError::MissingIndex { .. } => Blame::Machine,
                EngineError::Usage { .. } | EngineError::Arguments { .. } => Blame::Usage,
                EngineError::Reference { source, .. } if is_system_failure(source) => Blame::Machine,
                EngineError::WrongIndex { .. } | EngineError::Reference { .. } => Blame::Input,
                _ => Blame::Engine,
            },
            Self::Step(error) => error.blame(),
            Self::Exchange(_) | Self::NoNodes { .. } => Blame::Remote,
            Self::Fleet(error) => match **error {
                FleetError::Unusable { .. } | FleetError::TooFewSlots { .. } => Blame::Usage,
                _ => Blame::Machine,
            },
            Self::Node { blame, .. } | Self::Fetch { blame, .. } => *blame,
            Self::Untrimmed { .. } | Self::Region { .. } | Self::RegionOnNode { .. } | Self::Called { .. } => {
                Blame::Engine
            }
            Self::Lost { .. } => Blame::Bug,
            Self::Interrupted | Self::Paused { .. } => Blame::Interrupted,
        }
    }

    /// Whether a node that fails so would not be alone with it.
    pub(crate) fn is_everywhere(&self) -> bool {
        match self {
            Self::Step(error) if error.is_everywhere() => true,
            error => matches!(error.blame(), Blame::Usage | Blame::Input | Blame::Bug),
        }
    }

    /// This failure, or the interruption that led to it.
    pub(crate) fn unless_cancelled(self, cancelled: &AtomicBool) -> Self {
        if cancelled.load(Ordering::Relaxed) { Self::Interrupted } else { self }
    }

    /// An error of the system about a file: that which the error names itself ([`named`]), else this one.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.downcast::<FileFailure>() {
            Ok(FileFailure { action, path, source }) => Self::File { action, path, source },
            Err(source) => Self::File { action, path, source },
        }
    }

    /// Something about a file of aligned reads.
    pub(crate) fn alignments(path: &Path, source: AlignmentsError) -> Self {
        Self::Alignments { path: path.to_owned(), source }
    }

    /// Marking failed: scratch space in `temp`, or names.
    pub(crate) fn marking(error: MarkError, temp: PathBuf, genome: &Genome) -> Self {
        match error {
            MarkError::Spill(source) if source.kind() == io::ErrorKind::Interrupted => Self::Interrupted,
            MarkError::Spill(source) => Self::file("use scratch space in", temp)(source),
            MarkError::RepeatedName(error) => {
                let named = |contig: i32| {
                    let contig = u32::try_from(contig).ok().and_then(|id| genome.contig(ContigId(id)));
                    contig.map_or("no contig", |contig| contig.name.as_str())
                };
                let place = format!("{}:{}", named(error.end.contig), i64::from(error.end.position) + 1);
                Self::RepeatedName { place, mate_contig: named(error.mate_contig).to_owned() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_say_what_a_process_failed_for() {
        assert_eq!(Blame::ALL.map(Blame::exit_code), [2, 3, 4, 5, 6, 130, 1]);
        for blame in Blame::ALL {
            assert_eq!(Blame::of_exit_code(Some(blame.exit_code())), blame);
        }
        for code in [None, Some(0), Some(137)] {
            assert_eq!(Blame::of_exit_code(code), Blame::Remote);
        }
    }

    #[test]
    fn texts_in_outcome_files_are_those_of_earlier_versions() {
        let texts = Blame::ALL.map(Blame::outcome_text);
        assert_eq!(texts, ["Usage", "Input", "Machine", "Engine", "Remote", "Interrupted", "Bug"]);
    }
}
