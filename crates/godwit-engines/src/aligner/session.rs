//! An aligner program from its start to its hello.

use std::collections::VecDeque;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::{Arc, Mutex};

use godwit_model::BlockId;

use super::ends::{BlockReader, BlockWriter};
use super::pipe_reader::{PipeReader, stream_failed};
use super::pipe_writer::PipeWriter;
use super::protocol::Hello;
use super::{Aligner, ChildHandle};
use crate::EngineError;
use crate::child::{self, ChildState, Started};
use crate::stream::StreamReader;

/// Bytes gathered before a write, or read at a time: batches are larger and pass around it, what lies between is smaller.
const BUFFER_BYTES: usize = 64 << 10;

/// Blocks that were fed and not yet answered, with their number of reads, oldest first. The child bounds it: it takes
/// at most three blocks before it answers.
pub(super) type Unanswered = Arc<Mutex<VecDeque<(BlockId, u64)>>>;

/// A running aligner program that speaks the protocol of [`super::protocol`].
pub struct Session {
    hello: Hello,
    child: ChildHandle,
    state: Arc<ChildState>,
    stdin: BufWriter<ChildStdin>,
    streams: StreamReader<BufReader<ChildStdout>>,
}

impl Session {
    /// Starts `command` and waits for its hello, which comes when its index is loaded.
    ///
    /// `engine`: name and version of the engine inside, as `("bwa", "0.7.17")`.
    ///
    /// # Errors
    /// [`EngineError::Io`] when it does not start, [`EngineError::Usage`] and [`EngineError::Died`] when it ends instead
    /// of saying hello, [`EngineError::VersionMismatch`] when its godwit version or its engine's is not ours,
    /// [`EngineError::Protocol`] when it says something else.
    pub fn start(program: PathBuf, command: Command, engine: (&'static str, &str)) -> Result<Self, EngineError> {
        let Started { state, stdin, stdout } = child::start(program, command)?;
        let child = ChildHandle::new(state.clone());
        let mut streams = StreamReader::new(BufReader::with_capacity(BUFFER_BYTES, stdout));
        let hello = match streams.next_stream() {
            Ok(Some(schema)) => Hello::from_metadata(schema.metadata()).map_err(|problem| state.protocol(problem))?,
            Ok(None) => return Err(state.explain(state.protocol("it closed its output before saying hello"))),
            Err(error) => return Err(stream_failed(&state, error)),
        };
        state.set_version(&hello.engine_version);
        check_version(&state, "godwit", env!("CARGO_PKG_VERSION"), &hello.godwit_version)?;
        check_version(&state, engine.0, engine.1, &hello.engine_version)?;
        let stdin = BufWriter::with_capacity(BUFFER_BYTES, stdin);
        Ok(Self { hello, child, state, stdin, streams })
    }
}

impl Aligner for Session {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn split(self) -> (BlockWriter, BlockReader, ChildHandle) {
        let unanswered = Unanswered::default();
        let contigs = self.hello.genome.contigs().len();
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
