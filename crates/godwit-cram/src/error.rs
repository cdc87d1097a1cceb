//! Errors of CRAM files and their reference.

use std::io;
use std::path::PathBuf;

use godwit_formats::bam::DamagedRecordError;
use godwit_formats::fasta::FastaError;
use godwit_formats::sam::FileHeaderError;

/// A reason why CRAM cannot be read or written. Records are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum CramError {
    /// The file is not CRAM, or its first bytes are damaged.
    #[error("{} cannot be read as CRAM: it is damaged or has another format; fetch or make it again", path.display())]
    NotCram {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("cannot open {} as CRAM", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file lacks its end.
    #[error("{} is truncated: its end-of-file container is missing; fetch or make it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
    },
    /// The text of the header is invalid.
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    /// A record cannot be decoded.
    #[error("record {record} of {} cannot be decoded: the file is damaged; fetch or make it again", path.display())]
    DecodeRecord {
        /// The file.
        path: PathBuf,
        /// 1-based number of the record.
        record: u64,
    },
    /// A record cannot be decoded, and no reference was given.
    #[error(
        "record {record} of {} cannot be decoded without its reference; pass --reference REF.fa (or the file is damaged)",
        path.display()
    )]
    MissingReference {
        /// The file.
        path: PathBuf,
        /// 1-based number of the record.
        record: u64,
    },
    /// A decoded record is invalid.
    #[error(transparent)]
    InvalidRecord(#[from] DamagedRecordError),
    /// The decoder process reported an error.
    #[error("{message}")]
    DecoderFailure {
        /// Its message.
        message: String,
    },
    /// The decoder process reported an error of the system.
    #[error("{message}")]
    DecoderSystemFailure {
        /// Its message.
        message: String,
        /// The same message.
        #[source]
        source: io::Error,
    },
    /// The decoder process cannot be started.
    #[error("cannot start {} to decode CRAM", program.display())]
    StartDecoder {
        /// The program.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The decoder process ended without reporting an outcome.
    #[error(
        "decoding record {record} of {} (or one after it) brought the decoder down ({exit_status}): the file is damaged; fetch \
         or make it again",
        path.display()
    )]
    DecoderCrashed {
        /// The file.
        path: PathBuf,
        /// 1-based number of the first record that is missing.
        record: u64,
        /// Exit status of the process.
        exit_status: String,
    },
    /// The reference cannot be read.
    #[error("cannot use the reference {}", path.display())]
    ReadReference {
        /// The reference.
        path: PathBuf,
        /// The problem.
        #[source]
        source: FastaError,
    },
    /// The reference lacks a contig.
    #[error("the reference {} has no contig {contig}; pass the one the reads were aligned to", reference.display())]
    MissingContig {
        /// The reference.
        reference: PathBuf,
        /// The contig of the header.
        contig: String,
    },
    /// A contig differs from that of the header.
    #[error(
        "contig {contig} of the reference {} is another one than the header's: {difference}; pass \
         the reference the reads were aligned to",
        reference.display()
    )]
    ContigMismatch {
        /// The reference.
        reference: PathBuf,
        /// The contig.
        contig: String,
        /// `LN` or `M5`, of the reference and of the header.
        difference: String,
    },
    /// htslib could not encode a record.
    #[error("htslib cannot encode the record {read_name}")]
    EncodeRecord {
        /// The read's name.
        read_name: String,
    },
    /// htslib failed in an operation that should always succeed.
    #[error("htslib cannot {action}")]
    Htslib {
        /// The operation.
        action: &'static str,
        /// The last error of the system.
        #[source]
        source: io::Error,
    },
    /// The scratch directory cannot be used.
    #[error("cannot use scratch space in {}", path.display())]
    Scratch {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}
