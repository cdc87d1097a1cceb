//! Errors of the alignment programs. If an error occurs inside the aligner library, the library usually exits the
//! process itself.

use std::path::PathBuf;
use std::process::ExitCode;

use godwit_engines::aligner::stream_metadata::ProtocolError;
use godwit_engines::stream::StreamError;
use godwit_engines::usage_error::{EXIT_USAGE, error_line};
use godwit_formats::sam::SamError;
use godwit_model::{BlockId, GenomeError};

/// An error because of which the alignment program exits.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid.
    #[error("{message}")]
    Usage {
        /// Description of the invalid argument, and the correct form.
        message: String,
    },
    /// The processor lacks a feature that the library needs.
    #[error("{problem}")]
    UnsupportedProcessor {
        /// Description of the missing feature, and the alternative.
        problem: String,
    },
    /// The index cannot be loaded.
    #[error("cannot load the index of {}: {problem}", .reference.display())]
    LoadIndex {
        /// Path prefix of the index files.
        reference: PathBuf,
        /// Description of what is wrong with the index.
        problem: String,
    },
    /// The library could not align a block.
    #[error("block {} of lane {} cannot be aligned: {problem}", .id.ordinal, .id.lane)]
    AlignBlock {
        /// Id of the block.
        id: BlockId,
        /// The error message of the aligner library.
        problem: String,
    },
    /// The input on stdin is not a valid Arrow stream.
    #[error("the input on stdin is invalid: {source}")]
    Input {
        /// The error of the stream reader.
        #[from]
        source: StreamError,
    },
    /// The schema metadata of a stream on stdin is invalid.
    #[error("the input on stdin is invalid: {source}")]
    Protocol {
        /// The error in the metadata.
        #[from]
        source: ProtocolError,
    },
    /// The aligner library cannot process a read.
    #[error("read {index} of a block cannot be aligned: {problem}")]
    InvalidRead {
        /// 0-based index of the read in the block.
        index: usize,
        /// Description of what is wrong with the read.
        problem: &'static str,
    },
    /// The aligner library cannot process a block.
    #[error("block {} of lane {} cannot be aligned: {problem}", .id.ordinal, .id.lane)]
    InvalidBlock {
        /// Id of the block.
        id: BlockId,
        /// Description of what is wrong with the block.
        problem: &'static str,
    },
    /// The aligner library returned an invalid record.
    #[error(
        "the engine's record for read {index} of block {} of lane {} is not a BAM record: {source}",
        .id.ordinal, .id.lane
    )]
    InvalidRecord {
        /// Id of the block.
        id: BlockId,
        /// 0-based index of the read in the block.
        index: usize,
        /// The reason why the record is invalid.
        #[source]
        source: SamError,
    },
    /// The contigs of the index are invalid, for example because two have the same name.
    #[error(transparent)]
    Genome(#[from] GenomeError),
    /// The FASTA file of the reference cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Reference {
        /// Path of the FASTA file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The aligner library could not build the index; it has printed the reason on stderr.
    #[error("{engine} could not write an index of {} (status {status})", .reference.display())]
    BuildIndex {
        /// Name of the aligner library.
        engine: &'static str,
        /// Path of the FASTA file of the reference.
        reference: PathBuf,
        /// Status that the aligner library returned.
        status: i32,
    },
    /// Writing to stdout failed, for example because godwit, which reads the records, has exited.
    #[error("cannot write to stdout: {source}")]
    Output {
        /// The I/O error.
        #[from]
        source: std::io::Error,
    },
}

impl Error {
    /// Prints the error on stderr, unless the reader of stdout has exited. Returns the exit code: 2 for an invalid
    /// command line, otherwise 1.
    pub fn report(&self, program: &str) -> u8 {
        let is_broken_pipe = matches!(self, Self::Output { source } if source.kind() == std::io::ErrorKind::BrokenPipe);
        if !is_broken_pipe {
            eprintln!("{}", error_line(program, &self.to_string()));
        }
        if matches!(self, Self::Usage { .. }) { EXIT_USAGE } else { 1 }
    }

    /// Prints the error like [`report`](Self::report), and returns the exit code in the type that `main` needs.
    pub fn exit_code(&self, program: &str) -> ExitCode {
        ExitCode::from(self.report(program))
    }
}
