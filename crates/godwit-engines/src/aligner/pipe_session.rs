//! Starts one of godwit's own aligner programs and receives its [`AlignerInfo`].

use std::collections::VecDeque;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::Arc;

use godwit_model::BlockId;
use parking_lot::Mutex;

use super::block_io::{BlockReader, BlockWriter};
use super::pipe_reader::{PipeReader, stream_error};
use super::pipe_writer::PipeWriter;
use super::stream_metadata::AlignerInfo;
use super::{Aligner, ChildHandle};
use crate::EngineError;
use crate::child::{self, ChildState, PipedChild};
use crate::stream::StreamReader;

/// Size of the buffers for stdin and stdout, bytes. Batches are larger and bypass the buffers; all other messages are
/// smaller.
const PIPE_BUFFER_BYTES: usize = 64 << 10;

/// Blocks that the aligner has received but not returned, oldest first, with their numbers of reads. At most three,
/// because the aligner reads no more blocks before it returns one.
pub(super) type PendingBlocks = Arc<Mutex<VecDeque<(BlockId, u64)>>>;

/// A running aligner program that uses the protocol of [`super::stream_metadata`].
pub struct PipeSession {
    info: AlignerInfo,
    child: ChildHandle,
    state: Arc<ChildState>,
    stdin: BufWriter<ChildStdin>,
    streams: StreamReader<BufReader<ChildStdout>>,
}

impl PipeSession {
    /// Starts `command` and waits for the [`AlignerInfo`], which the program sends after it has loaded its index.
    ///
    /// `engine`: name and version of the aligner library in the program, such as `("bwa", "0.7.17")`.
    ///
    /// # Errors
    /// [`EngineError::Io`] if the program does not start, [`EngineError::Usage`] or [`EngineError::Exited`] if it exits
    /// before it sends its info, [`EngineError::VersionMismatch`] if the version of godwit or of the library differs,
    /// [`EngineError::Protocol`] if it sends anything else.
    pub fn start(program: PathBuf, command: Command, engine: (&'static str, &str)) -> Result<Self, EngineError> {
        let PipedChild { state, stdin, stdout } = child::start_piped(program, command)?;
        let child = ChildHandle::new(state.clone());
        let mut streams = StreamReader::new(BufReader::with_capacity(PIPE_BUFFER_BYTES, stdout));
        let info = match streams.next_stream() {
            Ok(Some(schema)) => {
                AlignerInfo::from_metadata(schema.metadata()).map_err(|problem| state.protocol_error(problem))?
            }
            Ok(None) => {
                return Err(state.exit_error_or(state.protocol_error("it closed its output before its first stream")));
            }
            Err(error) => return Err(stream_error(&state, error)),
        };
        state.set_version(&info.engine_version);
        check_version(&state, "godwit", env!("CARGO_PKG_VERSION"), &info.godwit_version)?;
        check_version(&state, engine.0, engine.1, &info.engine_version)?;
        let stdin = BufWriter::with_capacity(PIPE_BUFFER_BYTES, stdin);
        Ok(Self { info, child, state, stdin, streams })
    }
}

impl Aligner for PipeSession {
    fn info(&self) -> &AlignerInfo {
        &self.info
    }

    fn split(self) -> (BlockWriter, BlockReader, ChildHandle) {
        let unanswered = PendingBlocks::default();
        let contigs = self.info.genome.contigs().len();
        let writer = PipeWriter::new(self.state.clone(), self.stdin, unanswered.clone());
        let reader = PipeReader::new(self.state, self.streams, unanswered, contigs);
        (BlockWriter::Pipe(writer), BlockReader::Pipe(reader), self.child)
    }
}

fn check_version(state: &ChildState, component: &'static str, expected: &str, found: &str) -> Result<(), EngineError> {
    if expected == found {
        return Ok(());
    }
    let program = state.program().clone();
    Err(EngineError::VersionMismatch { program, component, expected: expected.to_owned(), found: found.to_owned() })
}
