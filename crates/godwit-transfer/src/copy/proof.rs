//! The end of a file: one of its sources says what all of its blocks are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::{Control, is_passing, lost_session, told};
use crate::error::TransferError;
use crate::plan::Item;
use crate::ranges::RangeSet;
use crate::service::blocking;
use crate::session::{Event, FileId};
use crate::source::Hashes;
use crate::streams::{Direction, Note};
use crate::task::Task;
use crate::tree::BlockHash;

/// What came of a proof.
enum Proven {
    /// Blocks that are not what a source says, the hashes of all, and which source it was.
    Told(RangeSet, Vec<BlockHash>, u32),
    /// A source does not have the file any more.
    Gone(u32, TransferError),
    /// The server does not know this session any more.
    Lost(String),
}

/// A source that can prove a file.
pub(super) struct Prover {
    /// Which of the sources.
    pub(super) source: u32,
    pub(super) control: Arc<Control>,
    /// Path and state of the file there.
    pub(super) path: String,
    pub(super) version: u64,
}

/// A file that is to be proved.
pub(super) struct Proof {
    /// Who can; one at least.
    pub(super) provers: Vec<Prover>,
    /// How long they are asked again where none answers.
    pub(super) patience: Duration,
    pub(super) direction: Direction,
    pub(super) hashes: Arc<Hashes>,
    pub(super) item: Item,
    pub(super) file: FileId,
    /// Where its hashes were asked for while its last blocks were under way.
    pub(super) foretold: Option<Foretold>,
}

/// What a source says of a file: hashes of all its blocks, or why it does not have it.
type Said = (u32, Result<Vec<BlockHash>, TransferError>);

/// Hashes of a file that have been asked for. Dropping it gives them up.
pub(super) struct Foretold(Task<Result<Said, TransferError>>);

impl Foretold {
    /// Asks who can prove a file for its hashes. What they say holds for the state of it that is being fetched, whenever that is.
    pub(super) fn ask(provers: Vec<Prover>, patience: Duration) -> Self {
        Self(Task::spawn(async move { tree(&provers, patience).await }))
    }
}

impl Proof {
    /// Has it proved; what is to be said of that.
    pub(super) async fn note(mut self) -> Note {
        let file = self.file;
        match self.run().await {
            Ok(Proven::Lost(session)) => Note::ProveAgain { file, session },
            Ok(Proven::Told(wrong, hashes, _)) if wrong.is_empty() => Note::Proved { file, hashes },
            Ok(Proven::Told(blocks, _, source)) => Note::Event(Event::Disproved { file, blocks, source }),
            Ok(Proven::Gone(source, why)) => Note::Failed { file, source, why },
            // Another source would be asked next, and so on until there is none.
            Err(why) if why.is_of_one_file() => {
                Note::Failed { file, source: self.provers.first().map_or(0, |prover| prover.source), why }
            }
            Err(error) => Note::Fatal(error),
        }
    }

    async fn run(&mut self) -> Result<Proven, TransferError> {
        let foretold = match &mut self.foretold {
            Some(Foretold(asked)) => asked.await.ok(),
            None => None,
        };
        match &self.direction {
            Direction::Download { inbox } => {
                let said = match foretold {
                    Some(Ok(said @ (_, Ok(_)))) => said,
                    _ => tree(&self.provers, self.patience).await?,
                };
                let (source, tree) = match said {
                    (source, Ok(tree)) => (source, tree),
                    (source, Err(gone)) => return Ok(Proven::Gone(source, gone)),
                };
                let (inbox, file) = (inbox.clone(), self.file);
                blocking(move || Ok(Proven::Told(inbox.prove(file, &tree, false)?, tree, source))).await
            }
            Direction::Upload { session, .. } => {
                let (hashes, path, version) = (self.hashes.clone(), self.item.path(), self.item.entry.version);
                let tree = blocking(move || hashes.all(&path, version)).await?;
                let Some(prover) = self.provers.first() else { return Err(nobody()) };
                match prover.control.finish(session, self.file, &tree, false).await {
                    Ok(wrong) => Ok(Proven::Told(wrong, tree, 0)),
                    // The server was started anew.
                    Err(error) if lost_session(&error) => Ok(Proven::Lost(session.clone())),
                    Err(error) => Err(told(error)),
                }
            }
        }
    }
}

/// Hashes of all blocks from the first source that answers, or why it does not have the file.
async fn tree(provers: &[Prover], patience: Duration) -> Result<Said, TransferError> {
    let started = Instant::now();
    loop {
        let mut failure = nobody();
        for Prover { source, control, path, version } in provers {
            match control.tree(path, *version).await {
                Ok(Some(tree)) => return Ok((*source, Ok(tree))),
                Ok(None) => return Ok((*source, Err(TransferError::Changed { place: path.clone() }))),
                Err(TransferError::Flight(error)) if is_passing(&error) => failure = error.into(),
                Err(error) if provers.len() > 1 => return Ok((*source, Err(error))),
                Err(error) => return Err(error),
            }
        }
        if started.elapsed() >= patience {
            return Err(failure);
        }
    }
}

fn nobody() -> TransferError {
    TransferError::Bug { problem: "a file without a source is to be proved".to_owned() }
}
