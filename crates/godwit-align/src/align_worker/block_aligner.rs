//! The aligner of a worker: one persistent process for all blocks, or one process for each block.
//!
//! The aligners that are part of godwit return a block as soon as it is aligned, so one process can align all blocks.
//! Other programs return their last records only when their input ends, so each block needs a process of its own. This
//! requires that the records do not depend on how the reads are divided into blocks.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use godwit_engines::ChildHandle;
use godwit_engines::aligner::bwa::{self, BwaOptions, IndexKind};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_engines::aligner::sam_program::{self, SamSession};
use godwit_engines::aligner::template::LaneValues;
use godwit_engines::aligner::{
    Aligner, AlignerChoice, AlignerInfo, BlockHeader, BlockReader, BlockWriter, PipeSession,
};
use godwit_pipeline::PipelineError;
use parking_lot::Mutex;

use super::align_threads::{BlockReads, PackInput, collect_aligned};
use crate::align_messages::AlignTask;
use crate::aligner_selection::{AlignerLocation, AlignerSelection, SelectedAligner};
use crate::aligner_threads::root_cause;

/// An aligner whose version and contigs are known.
pub(super) enum BlockAligner {
    /// One process for all blocks.
    Persistent(SelectedAligner, PipeSession),
    /// One process for each block.
    PerBlock(PerBlockAligner),
}

/// The input side of an aligner.
pub(super) enum AlignerFeed {
    Persistent(BlockWriter),
    PerBlock(PerBlockAligner),
}

/// A handle that stops the aligner, whether or not a process is running.
pub(super) enum AlignerStopper {
    Persistent(ChildHandle),
    PerBlock(Arc<Mutex<CurrentProcess>>),
}

/// A program that is started for each block.
pub(super) struct PerBlockAligner {
    program: Minimap2,
    hello: AlignerInfo,
    task: Box<AlignTask>,
    threads: usize,
    current_process: Arc<Mutex<CurrentProcess>>,
}

/// The process that aligns the current block, if there is one.
#[derive(Default)]
pub(super) struct CurrentProcess {
    child: Option<ChildHandle>,
    stopped: bool,
}

impl BlockAligner {
    /// Starts a persistent aligner. If the aligner needs a process for each block, only finds the program and checks
    /// its index.
    pub(super) fn start(work: &AlignTask, threads: usize) -> Result<Self, PipelineError> {
        let choice = work.aligner.parse::<AlignerChoice>()?;
        match choice {
            AlignerChoice::Auto | AlignerChoice::Bwa | AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2 => {
                let selected = AlignerSelection {
                    choice: &choice,
                    reference: &work.reference,
                    arguments: &work.arguments,
                    location: AlignerLocation::Local { processes: work.host_processes },
                    threads,
                    block_bases: work.block_bases,
                    // The head has already compared the index with the reference.
                    compares_reference: false,
                }
                .select()?;
                let options = BwaOptions {
                    kind: selected.kind,
                    program: None,
                    reference: work.reference.clone(),
                    threads,
                    arguments: work.arguments.clone(),
                    share_index: work.host_processes > 1 && selected.kind == IndexKind::Bwa,
                };
                Ok(Self::Persistent(selected, options.start()?))
            }
            AlignerChoice::Minimap2 => {
                let program = Minimap2::find_installed(&work.arguments)?;
                program.check_index(&work.reference)?;
                let hello = sam_program::aligner_info(&work.reference, program.version())?;
                let current_process = Arc::default();
                let each = PerBlockAligner { program, hello, task: Box::new(work.clone()), threads, current_process };
                Ok(Self::PerBlock(each))
            }
            AlignerChoice::Template(_) => {
                Err(PipelineError::malformed_command(format!("{} does not support blocks", work.aligner)))
            }
        }
    }

    /// Returns the version of the aligner and the contigs of its reference.
    pub(super) fn hello(&self) -> &AlignerInfo {
        match self {
            Self::Persistent(_, session) => session.info(),
            Self::PerBlock(each) => &each.hello,
        }
    }

    /// Returns the version of the program whose records the aligner produces.
    pub(super) fn emulated_version(&self) -> &str {
        match self {
            Self::Persistent(..) => bwa::BWA_NAME_AND_VERSION.1,
            Self::PerBlock(each) => &each.hello.engine_version,
        }
    }

    /// Returns name and version of the program that aligns.
    pub(super) fn name_and_version(&self) -> (String, String) {
        match self {
            Self::Persistent(selected, _) => selected.name_and_version(),
            Self::PerBlock(each) => (each.task.aligner.clone(), each.hello.engine_version.clone()),
        }
    }

    /// Splits the aligner into the input side, the output side if it is persistent, and a handle to stop both.
    pub(super) fn split(self) -> (AlignerFeed, Option<BlockReader>, AlignerStopper) {
        match self {
            Self::Persistent(_, session) => {
                let (writer, reader, child) = session.split();
                (AlignerFeed::Persistent(writer), Some(reader), AlignerStopper::Persistent(child))
            }
            Self::PerBlock(each) => {
                let stop = AlignerStopper::PerBlock(each.current_process.clone());
                (AlignerFeed::PerBlock(each), None, stop)
            }
        }
    }
}

impl AlignerStopper {
    pub(super) fn stop(&self) {
        match self {
            Self::Persistent(child) => child.kill(),
            Self::PerBlock(current) => {
                let mut current = current.lock();
                current.stopped = true;
                current.kill();
            }
        }
    }
}

impl CurrentProcess {
    fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            child.kill();
        }
    }
}

impl PerBlockAligner {
    /// Aligns a block with a process of its own, and passes the records to the packing thread.
    pub(super) fn align_block(&self, mut reads: BlockReads, packing: &Sender<PackInput>) -> Result<(), PipelineError> {
        let (mut writer, reader) = self.start_process(reads.header())?;
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| collect_aligned(reader, packing).inspect_err(|_| self.kill()));
            let fed = reads.feed_into(&mut writer).and_then(|()| Ok(writer.finish()?)).inspect_err(|_| self.kill());
            let taken = taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (fed, taken) {
                (Err(feeding), Err(taking)) => Err(root_cause(feeding, taking)),
                (fed, taken) => fed.and(taken),
            }
        })
    }

    fn start_process(&self, header: &BlockHeader) -> Result<(BlockWriter, BlockReader), PipelineError> {
        let lane = self.task.lanes.get(usize::from(header.id.lane));
        let lane = lane.ok_or_else(|| PipelineError::malformed_command(format!("unknown lane {}", header.id.lane)))?;
        let values = LaneValues {
            reference: &self.task.reference,
            threads: self.threads,
            read_group: &lane.read_group,
            read_group_id: &lane.read_group_id,
            sample: &self.task.sample,
            paired: header.paired,
        };
        let invocation = self.program.invocation(&values)?;
        let mut current = self.current_process.lock();
        if current.stopped {
            return Err(PipelineError::Interrupted);
        }
        let (writer, reader, child) = SamSession::start(&invocation, self.hello.clone())?.split();
        current.child = Some(child);
        Ok((writer, reader))
    }

    fn kill(&self) {
        self.current_process.lock().kill();
    }
}
