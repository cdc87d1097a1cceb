//! Errors of reading and writing CRAM files and their references.

use std::io;
use std::path::PathBuf;

use godwit_formats::bam::DamagedRecordError;
use godwit_formats::fasta::FastaError;
use godwit_formats::sam::FileHeaderError;

/// Error of reading or writing a CRAM file or its reference. Records are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum CramError {
    /// The file is not CRAM, or its first bytes are damaged.
    #[error("{} cannot be read as CRAM: it is damaged or has another format; fetch or create it again", path.display())]
    NotCram {
        /// Path of the CRAM file.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("cannot open {} as CRAM", path.display())]
    Open {
        /// Path of the CRAM file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The file does not end with the end-of-file container.
    #[error("{} is truncated: its end-of-file container is missing; fetch or create it again", path.display())]
    Truncated {
        /// Path of the CRAM file.
        path: PathBuf,
    },
    /// The text of the header is invalid.
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    /// A record cannot be decoded.
    #[error("record {record} of {} cannot be decoded: the file is damaged; fetch or create it again", path.display())]
    DecodeRecord {
        /// Path of the CRAM file.
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
        /// Path of the CRAM file.
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
        /// The error message from the decoder process.
        message: String,
    },
    /// The decoder process reported an error of the operating system, not of the file.
    #[error("{message}")]
    DecoderSystemFailure {
        /// The error message from the decoder process.
        message: String,
        /// The same message as an I/O error, by which callers recognize a failure of the system.
        #[source]
        source: io::Error,
    },
    /// The decoder process cannot be started.
    #[error("cannot start {} to decode CRAM", program.display())]
    StartDecoder {
        /// Path of the program.
        program: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The decoder process exited without reporting success or failure.
    #[error(
        "the decoder crashed at record {record} of {} or a later one ({exit_status}): the file is damaged; fetch \
         or make it again",
        path.display()
    )]
    DecoderCrashed {
        /// Path of the CRAM file.
        path: PathBuf,
        /// 1-based number of the first record that was not received.
        record: u64,
        /// Exit status of the decoder process, or the signal that killed it.
        exit_status: String,
    },
    /// The reference cannot be read.
    #[error("cannot use the reference {}", path.display())]
    ReadReference {
        /// Path of the FASTA file.
        path: PathBuf,
        /// The error of the FASTA reader.
        #[source]
        source: FastaError,
    },
    /// A contig of the CRAM header is missing in the reference.
    #[error("the reference {} has no contig {contig}; pass the one the reads were aligned to", reference.display())]
    MissingContig {
        /// Path of the FASTA file.
        reference: PathBuf,
        /// Name of the contig in the header.
        contig: String,
    },
    /// A contig of the reference has another length or checksum than in the CRAM header.
    #[error(
        "contig {contig} of the reference {} differs from that of the header: {difference}; pass \
         the reference the reads were aligned to",
        reference.display()
    )]
    ContigMismatch {
        /// Path of the FASTA file.
        reference: PathBuf,
        /// Name of the contig.
        contig: String,
        /// The differing field, `LN` or `M5`, with the values of the reference and of the header.
        difference: String,
    },
    /// htslib could not encode a record.
    #[error("htslib cannot encode the record {read_name}")]
    EncodeRecord {
        /// Name of the read.
        read_name: String,
    },
    /// htslib failed in an operation that should always succeed.
    #[error("htslib cannot {action}")]
    Htslib {
        /// The operation that failed, such as `parse the header`.
        action: &'static str,
        /// The last error of the operating system (`errno`).
        #[source]
        source: io::Error,
    },
    /// The scratch directory cannot be used.
    #[error("cannot use scratch space in {}", path.display())]
    Scratch {
        /// Path of the scratch directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}
