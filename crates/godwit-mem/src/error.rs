//! What can go wrong in such a program. Errors of the library itself end the process inside it.

use std::path::PathBuf;
use std::process::ExitCode;

use godwit_engines::aligner::protocol::{EXIT_USAGE, ProtocolError, error_line};
use godwit_engines::stream::StreamError;
use godwit_formats::sam::SamError;
use godwit_model::{BlockId, GenomeError};

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line is wrong.
    #[error("{message}")]
    Usage {
        /// What is wrong and what is right.
        message: String,
    },
    /// The processor lacks what the library needs.
    #[error("{problem}")]
    Machine {
        /// The missing feature and the alternative.
        problem: String,
    },
    /// The index cannot be loaded.
    #[error("cannot load the index of {}: {problem}", .reference.display())]
    Load {
        /// The reference.
        reference: PathBuf,
        /// The defect of the index.
        problem: String,
    },
    /// The library could not align a block.
    #[error("block {} of lane {} cannot be aligned: {problem}", .id.ordinal, .id.lane)]
    Align {
        /// The block.
        id: BlockId,
        /// The library's message.
        problem: String,
    },
    /// The input is no stream of reads.
    #[error("the input on stdin is broken: {source}")]
    Input {
        /// What is wrong.
        #[from]
        source: StreamError,
    },
    /// A stream says something that makes no sense.
    #[error("the input on stdin is broken: {source}")]
    Protocol {
        /// What is wrong.
        #[from]
        source: ProtocolError,
    },
    /// A read that the library cannot take.
    #[error("read {index} of a block cannot be aligned: {problem}")]
    Read {
        /// 0-based index within the block.
        index: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A block that the library cannot take.
    #[error("block {} of lane {} cannot be aligned: {problem}", .id.ordinal, .id.lane)]
    Block {
        /// The block.
        id: BlockId,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// An answer of the engine's that is no record.
    #[error("the engine's answer for read {index} of block {} of lane {} is not a BAM record: {source}", .id.ordinal, .id.lane)]
    Record {
        /// The block.
        id: BlockId,
        /// 0-based index of the read within it.
        index: usize,
        /// Why not.
        #[source]
        source: SamError,
    },
    /// The contigs of the index make no genome.
    #[error(transparent)]
    Genome(#[from] GenomeError),
    /// The reference cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Reference {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The library could not write the index, and printed the reason.
    #[error("{engine} could not write an index of {} (status {status})", .reference.display())]
    Index {
        /// The engine.
        engine: &'static str,
        /// The reference.
        reference: PathBuf,
        /// Status that the library returned.
        status: i32,
    },
    /// Nobody reads the answers any more, or the pipe failed.
    #[error("cannot write to stdout: {source}")]
    Output {
        /// The system's answer.
        #[from]
        source: std::io::Error,
    },
}

impl Error {
    /// Says it on stderr, unless whoever would care has gone, and tells the exit code: 2 for wrong usage, else 1.
    pub fn report(&self, program: &str) -> u8 {
        let reader_gone = matches!(self, Self::Output { source } if source.kind() == std::io::ErrorKind::BrokenPipe);
        if !reader_gone {
            eprintln!("{}", error_line(program, &self.to_string()));
        }
        if matches!(self, Self::Usage { .. }) { EXIT_USAGE } else { 1 }
    }

    /// As [`report`](Self::report), for `main`.
    pub fn exit_code(&self, program: &str) -> ExitCode {
        ExitCode::from(self.report(program))
    }
}
