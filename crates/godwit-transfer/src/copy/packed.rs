//! What goes before a copy: genomes that are not at the destination yet are sent as what differs from a reference that both ends have.
//!
//! Those that come whole so are there when the copy itself looks at what is there. All others are left to it, and so is whatever goes wrong here, but for
//! a way that is silent for too long.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_flight::{Client, FlightDescriptor, FlightError};
use tokio::sync::mpsc;

use super::runner::TELL_INTERVAL;
use super::{Copy, CopyEvent};
use crate::control::{is_passing, told};
use crate::error::TransferError;
use crate::genomes::landing::{Landed, Landing};
use crate::genomes::may_be_genome;
use crate::genomes::pieces::{PIECES_AHEAD, Piece, SCHEMA};
use crate::genomes::references::{Loaded, References};
use crate::genomes::serving::Stop;
use crate::genomes::source::Packing;
use crate::inbox::{CopyInbox, Inbox, wait_for_ended_copies};
use crate::manifest::Entry;
use crate::names::{printable, shown};
use crate::plan::Item;
use crate::protocol::{Have, PACKED, PackedRequest, UNPACK, UnpackCommand, marked, parse};
use crate::service::blocking;
use crate::tune::{self, Manner};

/// Wait between attempts.
const WAIT: Duration = Duration::from_millis(500);

/// What was copied so.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Paths below the destination.
    pub(super) landed: HashSet<String>,
    /// Bytes of these files.
    pub(super) bytes: u64,
    /// Bytes that were sent for them.
    pub(super) sent_bytes: u64,
}

/// The reference that both ends have.
struct Shared {
    loaded: Arc<Loaded>,
    /// Digest of the server's.
    there: String,
}

/// What kept a file from being sent so.
enum Failed {
    /// The connection, or the other end.
    Way(FlightError),
    /// Anything else.
    Here(TransferError),
}

impl From<FlightError> for Failed {
    fn from(error: FlightError) -> Self {
        Self::Way(error)
    }
}

impl From<TransferError> for Failed {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Flight(error) => Self::Way(error),
            error => Self::Here(error),
        }
    }
}

impl Copy<'_> {
    /// Sends the genomes among the files.
    ///
    /// # Errors
    /// Where a reference here cannot be read, [`TransferError::Silent`], [`TransferError::Interrupted`].
    pub(super) async fn send_packed(
        &self,
        references: &Arc<References>,
        cancelled: &AtomicBool,
    ) -> Result<Packed, TransferError> {
        let mut packed = Packed::default();
        let genomes = self.genomes().await?;
        if genomes.is_empty() {
            return Ok(packed);
        }
        let Some(shared) = self.shared(references).await? else { return Ok(packed) };
        let (mut client, mut left) = (None, BTreeMap::<String, Vec<String>>::new());
        for item in genomes {
            match self.send_one(&item, &shared, references.threads(), &mut client, cancelled).await {
                Ok((Landed::Named { blake3 }, sent_bytes)) => {
                    let (path, bytes) = (item.entry.path.clone(), item.entry.size_bytes);
                    packed.bytes += bytes;
                    packed.sent_bytes += sent_bytes;
                    packed.landed.insert(path.clone());
                    let path = printable(&path);
                    self.observer.event(&CopyEvent::Unpacked { path: path.clone(), bytes, sent_bytes });
                    self.observer.event(&CopyEvent::Copied { path, bytes, blake3 });
                }
                Ok((Landed::Unsuited { why }, _)) => left.entry(why).or_default().push(shown(&item.origin)),
                // Somebody else was quicker.
                Ok((Landed::Here, _)) => {}
                Err(error @ (TransferError::Interrupted | TransferError::Silent { .. })) => return Err(error),
                Err(error) => left.entry(godwit_model::with_causes(&error)).or_default().push(shown(&item.origin)),
            }
        }
        for (why, files) in left {
            let others = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
            self.warn(format!("{}{others}: sent as it is, because {why}", files[0]));
        }
        Ok(packed)
    }

    fn warn(&self, message: String) {
        self.observer.event(&CopyEvent::Warning { message });
    }

    /// Files that may be genomes, and of which nothing is at the destination.
    async fn genomes(&self) -> Result<Vec<Item>, TransferError> {
        let wanted = |item: &&Item| {
            let is_plain = !item.entry.is_file() || self.sums.contains_key(&item.entry.path);
            !is_plain && may_be_genome(&item.origin, item.entry.size_bytes)
        };
        let items: Vec<Item> = self.plan.items.iter().filter(wanted).cloned().collect();
        let entries: Vec<Entry> = items.iter().map(|item| item.entry.clone()).collect();
        let have: Vec<Result<Have, TransferError>> = match self.downloads {
            _ if items.is_empty() => Vec::new(),
            true => {
                let inbox = Inbox::new(&self.directory(), self.options.strict);
                blocking(move || Ok(entries.iter().map(|entry| inbox.look(entry)).collect())).await?
            }
            false => self.control.begin(&self.base, &entries, true).await?.1,
        };
        // What cannot be looked at is told when the copy itself looks at it.
        let nothing = |(item, have)| matches!(have, Ok(Have::Nothing)).then_some(item);
        Ok(items.into_iter().zip(have).filter_map(nothing).collect())
    }

    /// The first reference that both ends have; where there is none, this is told.
    async fn shared(&self, references: &Arc<References>) -> Result<Option<Shared>, TransferError> {
        for path in references.paths() {
            let (references, path) = (references.clone(), path.clone());
            let loaded = blocking(move || references.load(&path)).await?;
            match self.control.reference(loaded.sequences(), !self.downloads).await {
                Ok(Some(there)) => return Ok(Some(Shared { loaded, there })),
                Ok(None) => {}
                Err(error @ TransferError::Flight(_)) => return Err(error),
                Err(error) => {
                    let why = godwit_model::with_causes(&error);
                    self.warn(format!("{}: genomes are sent as they are, because {why}", self.control.server()));
                    return Ok(None);
                }
            }
        }
        let server = self.control.server();
        self.warn(match references.paths() {
            [] => "no reference is named (--reference): genomes are sent as they are".to_owned(),
            [only] => format!(
                "{server} has no reference with the sequences of {}: genomes are sent as they are; `godwit serve --reference` tells it of one",
                only.display()
            ),
            [first, rest @ ..] => format!(
                "{server} has no reference with the sequences of {} or the {} others: genomes are sent as they are",
                first.display(),
                rest.len()
            ),
        });
        Ok(None)
    }

    /// Sends a file, and again where the way breaks; what became of it, and the bytes that were sent.
    async fn send_one(
        &self,
        item: &Item,
        shared: &Shared,
        threads: usize,
        client: &mut Option<Client>,
        cancelled: &AtomicBool,
    ) -> Result<(Landed, u64), TransferError> {
        let mut heard_at = Instant::now();
        loop {
            let done_bytes = Arc::new(AtomicU64::new(0));
            let attempt = async {
                let client = match client.take() {
                    Some(client) => client,
                    None => self.control.another().await?,
                };
                let sent = match self.downloads {
                    true => self.download_packed(&client, item, shared, threads, done_bytes.clone()).await,
                    false => self.upload_packed(&client, item, shared, threads, done_bytes.clone()).await,
                };
                sent.map(|sent| (sent, client))
            };
            let outcome = self.watch(attempt, item, &done_bytes, cancelled).await?;
            match outcome {
                Ok((sent, kept)) => {
                    *client = Some(kept);
                    return Ok(sent);
                }
                Err(Failed::Here(error)) => return Err(error),
                Err(Failed::Way(error)) if is_passing(&error) => {
                    if done_bytes.load(Ordering::Relaxed) > 0 {
                        heard_at = Instant::now();
                    }
                    if heard_at.elapsed() >= self.options.patience {
                        let source = Some(Box::new(error.into()));
                        return Err(TransferError::Silent { seconds: self.options.patience.as_secs(), source });
                    }
                    tokio::time::sleep(WAIT).await;
                }
                Err(Failed::Way(error)) => return Err(told(error)),
            }
        }
    }

    /// Tells how far it is while something goes on, and ends it where somebody wants that.
    async fn watch<T>(
        &self,
        work: impl Future<Output = T>,
        item: &Item,
        done_bytes: &AtomicU64,
        cancelled: &AtomicBool,
    ) -> Result<T, TransferError> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(TELL_INTERVAL) => {
                    if cancelled.load(Ordering::Relaxed) {
                        return Err(TransferError::Interrupted);
                    }
                    let (path, of) = (printable(&item.entry.path), item.entry.size_bytes);
                    self.observer.event(&CopyEvent::Packing { path, bytes: done_bytes.load(Ordering::Relaxed), of });
                }
            }
        }
    }

    /// How this end, or the server, sends over the one connection.
    fn manner_of_one(&self) -> Manner {
        let bytes_per_s = self.options.bits_per_s.map(|bits| (bits / 8).max(1));
        Manner { mode: self.options.mode, bytes_per_s, compress: false }
    }

    async fn download_packed(
        &self,
        client: &Client,
        item: &Item,
        shared: &Shared,
        threads: usize,
        done_bytes: Arc<AtomicU64>,
    ) -> Result<(Landed, u64), Failed> {
        let (path, version) = (item.origin.clone(), item.entry.version);
        let request = PackedRequest { path, version, reference: shared.there.clone(), manner: self.manner_of_one() };
        let mut batches = client.download(marked(PACKED, &request)?).await?;
        let owner = CopyInbox::new(Inbox::new(&self.directory(), self.options.strict));
        let inbox = owner.share();
        let (stop, entry) = (Arc::new(AtomicBool::new(false)), item.entry.clone());
        let landing = Landing { inbox, entry, loaded: shared.loaded.clone(), threads, stop: stop.clone(), done_bytes };
        let _stop = Stop(stop);
        let (sender, mut receiver) = mpsc::channel(PIECES_AHEAD);
        let unpacking = tokio::task::spawn_blocking(move || {
            wait_for_ended_copies();
            landing.run(&mut receiver)
        });
        let mut sent_bytes = 0;
        let came = loop {
            let (batch, said) = match batches.next().await {
                Ok(Some(item)) => item,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let piece = Piece::of(&batch, &said)?;
            sent_bytes += (piece.packed.len() + piece.making.len()) as u64;
            // Why no more is taken is told by who takes it.
            if sender.send(piece).await.is_err() {
                break Ok(());
            }
        };
        drop(sender);
        match (ended(unpacking.await), came) {
            (Err(TransferError::Interrupted), Err(error)) => Err(error.into()),
            (landed, _) => Ok((landed?, sent_bytes)),
        }
    }

    async fn upload_packed(
        &self,
        client: &Client,
        item: &Item,
        shared: &Shared,
        threads: usize,
        done_bytes: Arc<AtomicU64>,
    ) -> Result<(Landed, u64), Failed> {
        tune::steer(client.wire(), self.manner_of_one());
        let (base, entry) = (self.base.clone(), item.entry.clone());
        let command = marked(UNPACK, &UnpackCommand { base, entry, reference: shared.there.clone() })?;
        let (mut sender, answers) = client.upload(&FlightDescriptor::new_cmd(command), &SCHEMA)?;
        // The server answers nothing before it has heard something.
        sender.say(&[]).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let (path, version, loaded) = (item.path(), item.entry.version, shared.loaded.clone());
        let packing = Packing { path, version, loaded, threads, stop: stop.clone(), done_bytes };
        let _stop = Stop(stop);
        let (pieces, mut receiver) = mpsc::channel::<Piece>(PIECES_AHEAD);
        let packing =
            tokio::task::spawn_blocking(move || packing.run(&mut |piece| pieces.blocking_send(piece).is_ok()));
        let sending = async {
            let mut sent_bytes = 0;
            while let Some(piece) = receiver.recv().await {
                sent_bytes += (piece.packed.len() + piece.making.len()) as u64;
                let (batch, said) = piece.to_batch()?;
                sender.send(&batch, &said).await?;
            }
            ended(packing.await)?;
            sender.finish().await?;
            Ok::<u64, Failed>(sent_bytes)
        };
        let hearing = async {
            let mut answers = answers.await?;
            let answer = answers.next().await?.ok_or(FlightError::Malformed { problem: "it has no answer" })?;
            Ok::<Landed, Failed>(parse(&answer)?)
        };
        tokio::pin!(sending, hearing);
        tokio::select! {
            landed = &mut hearing => Ok((landed?, 0)),
            sent = &mut sending => match sent {
                Ok(sent_bytes) => Ok((hearing.await?, sent_bytes)),
                Err(failed @ Failed::Here(_)) => Err(failed),
                // Why an upload was ended is in its answer.
                Err(failed @ Failed::Way(_)) => match hearing.await {
                    Ok(landed) => Ok((landed, 0)),
                    Err(Failed::Way(FlightError::Malformed { .. })) => Err(failed),
                    Err(told) => Err(told),
                },
            },
        }
    }
}

fn ended<T>(work: Result<Result<T, TransferError>, tokio::task::JoinError>) -> Result<T, TransferError> {
    work.unwrap_or_else(|error| Err(TransferError::Bug { problem: error.to_string() }))
}
