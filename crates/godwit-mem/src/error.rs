//! Errors of the alignment programs. Errors of the library itself end the process inside it.

use std::path::PathBuf;
use std::process::ExitCode;

use godwit_engines::aligner::stream_metadata::{EXIT_USAGE, ProtocolError, error_line};
use godwit_engines::stream::StreamError;
use godwit_formats::sam::SamError;
use godwit_model::{BlockId, GenomeError};

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is invalid.
    #[error("{message}")]
    Usage {
        /// The defect and the correct form.
        message: String,
    },
    /// The processor lacks a feature that the library needs.
    #[error("{problem}")]
    UnsupportedProcessor {
        /// The missing feature and the alternative.
        problem: String,
    },
    /// The index cannot be loaded.
    #[error("cannot load the index of {}: {problem}", .reference.display())]
    LoadIndex {
        /// Path of the reference.
        reference: PathBuf,
        /// The defect of the index.
        problem: String,
    },
    /// The library could not align a block.
    #[error("block {} of lane {} cannot be aligned: {problem}", .id.ordinal, .id.lane)]
    AlignBlock {
        /// Id of the block.
        id: BlockId,
        /// The library's message.
        problem: String,
    },
    /// The input is not a stream of reads.
    #[error("the input on stdin is broken: {source}")]
    Input {
        /// The defect.
        #[from]
        source: StreamError,
    },
    /// The metadata of a stream are invalid.
    #[error("the input on stdin is broken: {source}")]
    Protocol {
        /// The defect.
        #[from]
        source: ProtocolError,
    },
    /// A read that the library cannot process.
    #[error("read {index} of a block cannot be aligned: {problem}")]
    InvalidRead {
        /// 0-based index within the block.
        index: usize,
        /// The defect.
        problem: &'static str,
    },
    /// A block that the library cannot process.
    #[error("block {} of lane {} cannot be aligned: {problem}", .id.ordinal, .id.lane)]
    InvalidBlock {
        /// Id of the block.
        id: BlockId,
        /// The defect.
        problem: &'static str,
    },
    /// The engine returned an invalid record.
    #[error("the engine's answer for read {index} of block {} of lane {} is not a BAM record: {source}", .id.ordinal, .id.lane)]
    InvalidRecord {
        /// Id of the block.
        id: BlockId,
        /// 0-based index of the read within it.
        index: usize,
        /// The defect.
        #[source]
        source: SamError,
    },
    /// The contigs of the index are not a valid genome.
    #[error(transparent)]
    Genome(#[from] GenomeError),
    /// The reference cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Reference {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The library could not write the index, and printed the reason.
    #[error("{engine} could not write an index of {} (status {status})", .reference.display())]
    BuildIndex {
        /// Name of the engine.
        engine: &'static str,
        /// Path of the reference.
        reference: PathBuf,
        /// Status that the library returned.
        status: i32,
    },
    /// The reader of the records has exited, or the pipe failed.
    #[error("cannot write to stdout: {source}")]
    Output {
        /// The I/O error.
        #[from]
        source: std::io::Error,
    },
}

impl Error {
    /// Prints the error on stderr, except for a closed stdout, and returns the exit code: 2 for wrong usage, else 1.
    pub fn report(&self, program: &str) -> u8 {
        let is_broken_pipe = matches!(self, Self::Output { source } if source.kind() == std::io::ErrorKind::BrokenPipe);
        if !is_broken_pipe {
            eprintln!("{}", error_line(program, &self.to_string()));
        }
        if matches!(self, Self::Usage { .. }) { EXIT_USAGE } else { 1 }
    }

    /// Does the same as [`report`](Self::report), for `main`.
    pub fn exit_code(&self, program: &str) -> ExitCode {
        ExitCode::from(self.report(program))
    }
}
