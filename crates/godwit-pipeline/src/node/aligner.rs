//! The aligner of a node: one process that takes block after block, or one for each block.
//!
//! godwit's own programs answer a block as soon as it is aligned. A program of somebody else's answers when it likes, the rest
//! of it when its input ends; only where its records do not depend on where reads are cut may each block be an input of its
//! own.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_engines::ChildHandle;
use godwit_engines::aligner::bwa::{self, BwaOptions, IndexKind};
use godwit_engines::aligner::foreign::{self, SamSession};
use godwit_engines::aligner::minimap2::Minimap2;
use godwit_engines::aligner::template::LaneValues;
use godwit_engines::aligner::{Aligner, AlignerChoice, BlockHeader, BlockReader, BlockWriter, Hello, Session};

use super::aligning::{BlockReads, Packing, take};
use super::{AlignWork, malformed};
use crate::align::root_cause;
use crate::aligner_selection::{Place, SelectedAligner, Selection};
use crate::error::PipelineError;

/// An aligner that has told who it is.
pub(super) enum NodeAligner {
    /// Runs for all blocks.
    Lasting(SelectedAligner, Session),
    /// Runs for each block.
    EachBlock(EachBlock),
}

/// Where blocks go.
pub(super) enum Feeding {
    Lasting(BlockWriter),
    EachBlock(EachBlock),
}

/// Ends the aligner, whatever it does.
pub(super) enum Stop {
    Lasting(ChildHandle),
    EachBlock(Arc<Mutex<Current>>),
}

/// A program that is started for each block.
pub(super) struct EachBlock {
    program: Minimap2,
    hello: Hello,
    work: Box<AlignWork>,
    threads: usize,
    current: Arc<Mutex<Current>>,
}

/// The process that runs now.
#[derive(Default)]
pub(super) struct Current {
    child: Option<ChildHandle>,
    stopped: bool,
}

impl NodeAligner {
    /// Starts the aligner, or finds it and its index.
    pub(super) fn start(work: &AlignWork, threads: usize) -> Result<Self, PipelineError> {
        let choice = work.aligner.parse::<AlignerChoice>()?;
        match choice {
            AlignerChoice::Auto | AlignerChoice::Bwa | AlignerChoice::BwaMem3 | AlignerChoice::BwaMem2 => {
                let selected = Selection {
                    choice: &choice,
                    reference: &work.reference,
                    arguments: &work.arguments,
                    place: Place::Here { processes: work.processes_of_host },
                    threads,
                    block_bases: work.block_bases,
                    // The head has compared it.
                    compares_reference: false,
                }
                .select()?;
                let options = BwaOptions {
                    kind: selected.kind,
                    program: None,
                    reference: work.reference.clone(),
                    threads,
                    arguments: work.arguments.clone(),
                    share_index: work.processes_of_host > 1 && selected.kind == IndexKind::Bwa,
                };
                Ok(Self::Lasting(selected, options.start()?))
            }
            AlignerChoice::Minimap2 => {
                let program = Minimap2::find(&work.arguments)?;
                program.check_index(&work.reference)?;
                let hello = foreign::hello(&work.reference, program.version())?;
                let current = Arc::default();
                let each = EachBlock { program, hello, work: Box::new(work.clone()), threads, current };
                Ok(Self::EachBlock(each))
            }
            AlignerChoice::Template(_) => Err(malformed(format!("{} does not take blocks", work.aligner))),
        }
    }

    /// Versions and contigs.
    pub(super) fn hello(&self) -> &Hello {
        match self {
            Self::Lasting(_, session) => session.hello(),
            Self::EachBlock(each) => &each.hello,
        }
    }

    /// Version of the program whose records it gives.
    pub(super) fn records_version(&self) -> &str {
        match self {
            Self::Lasting(..) => bwa::RECORDS.1,
            Self::EachBlock(each) => &each.hello.engine_version,
        }
    }

    /// Name and version of the program that aligns.
    pub(super) fn name_and_version(&self) -> (String, String) {
        match self {
            Self::Lasting(selected, _) => selected.name_and_version(),
            Self::EachBlock(each) => (each.work.aligner.clone(), each.hello.engine_version.clone()),
        }
    }

    /// The end that is fed, the one that answers where it is the same for all blocks, and what ends both.
    pub(super) fn split(self) -> (Feeding, Option<BlockReader>, Stop) {
        match self {
            Self::Lasting(_, session) => {
                let (writer, reader, child) = session.split();
                (Feeding::Lasting(writer), Some(reader), Stop::Lasting(child))
            }
            Self::EachBlock(each) => {
                let stop = Stop::EachBlock(each.current.clone());
                (Feeding::EachBlock(each), None, stop)
            }
        }
    }
}

impl Stop {
    pub(super) fn now(&self) {
        match self {
            Self::Lasting(child) => child.kill(),
            Self::EachBlock(current) => {
                let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
                current.stopped = true;
                current.kill();
            }
        }
    }
}

impl Current {
    fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            child.kill();
        }
    }
}

impl EachBlock {
    /// Aligns a block from its first read to its last record.
    pub(super) fn align(&self, mut reads: BlockReads, packing: &Sender<Packing>) -> Result<(), PipelineError> {
        let (mut writer, reader) = self.start(reads.header())?;
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| take(reader, packing).inspect_err(|_| self.kill()));
            let fed = reads.feed(&mut writer).and_then(|()| Ok(writer.finish()?)).inspect_err(|_| self.kill());
            let taken = taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (fed, taken) {
                (Err(feeding), Err(taking)) => Err(root_cause(feeding, taking)),
                (fed, taken) => fed.and(taken),
            }
        })
    }

    fn start(&self, header: &BlockHeader) -> Result<(BlockWriter, BlockReader), PipelineError> {
        let lane = self.work.lanes.get(usize::from(header.id.lane));
        let lane = lane.ok_or_else(|| malformed(format!("there is no lane {}", header.id.lane)))?;
        let values = LaneValues {
            reference: &self.work.reference,
            threads: self.threads,
            read_group: &lane.read_group,
            read_group_id: &lane.read_group_id,
            sample: &self.work.sample,
            paired: header.paired,
        };
        let invocation = self.program.invocation(&values)?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.stopped {
            return Err(PipelineError::Interrupted);
        }
        let (writer, reader, child) = SamSession::start(&invocation, self.hello.clone())?.split();
        current.child = Some(child);
        Ok((writer, reader))
    }

    fn kill(&self) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}
