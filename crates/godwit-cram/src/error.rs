//! What can be wrong with a CRAM file or the reference it needs.

use std::io;
use std::path::PathBuf;

use godwit_formats::bam::DamagedRecord;
use godwit_formats::fasta::FastaError;
use godwit_formats::sam::UnusableHeader;

/// Why CRAM cannot be read or written. Records are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum CramError {
    /// The file is no CRAM, or not from its first bytes on.
    #[error("{} cannot be read as CRAM: it is damaged or has another format; fetch or make it again", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("cannot open {} as CRAM", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The file lacks its end.
    #[error("{} is truncated: its end-of-file container is missing; fetch or make it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
    },
    /// The text of the header is not one.
    #[error(transparent)]
    Header(#[from] UnusableHeader),
    /// A record cannot be decoded.
    #[error("record {record} of {} cannot be decoded: the file is damaged; fetch or make it again", path.display())]
    Decode {
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
    NoReference {
        /// The file.
        path: PathBuf,
        /// 1-based number of the record.
        record: u64,
    },
    /// A decoded record is not one.
    #[error(transparent)]
    Record(#[from] DamagedRecord),
    /// The process that decodes says what is wrong.
    #[error("{message}")]
    Decoder {
        /// What it says.
        message: String,
    },
    /// The process that decodes says what the system refused.
    #[error("{message}")]
    DecoderSystem {
        /// What it says.
        message: String,
        /// The same.
        #[source]
        source: io::Error,
    },
    /// The process that decodes cannot be started.
    #[error("cannot start {} to decode CRAM", program.display())]
    StartDecoder {
        /// The program.
        program: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The process that decodes ended without a word.
    #[error(
        "decoding record {record} of {} (or one after it) brought the decoder down ({ending}): the file is damaged; fetch \
         or make it again",
        path.display()
    )]
    DecoderDied {
        /// The file.
        path: PathBuf,
        /// 1-based number of the first record that did not come.
        record: u64,
        /// How the process ended.
        ending: String,
    },
    /// The reference cannot be read.
    #[error("cannot use the reference {}", path.display())]
    Fasta {
        /// The reference.
        path: PathBuf,
        /// What is wrong with it.
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
    /// A contig is not the one the header speaks of.
    #[error(
        "contig {contig} of the reference {} is another one than the header's: {difference}; pass \
         the reference the reads were aligned to",
        reference.display()
    )]
    OtherContig {
        /// The reference.
        reference: PathBuf,
        /// The contig.
        contig: String,
        /// `LN` or `M5`, as the reference and as the header has it.
        difference: String,
    },
    /// htslib refused to encode.
    #[error("htslib cannot encode the record {name}")]
    Encode {
        /// The read's name.
        name: String,
    },
    /// htslib refused something that should always work.
    #[error("htslib cannot {action}")]
    Htslib {
        /// What.
        action: &'static str,
        /// What the system said last.
        #[source]
        source: io::Error,
    },
    /// Scratch space failed.
    #[error("cannot use scratch space in {}", path.display())]
    Scratch {
        /// The directory.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}
