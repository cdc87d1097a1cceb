//! A server in between: it takes blocks from one side and sends them on to the other as they come, so that a long path is two shorter ones.
//!
//! Each half has its own connections, which fill sooner and make good for losses sooner than one over the whole path. Blocks come with
//! their hashes, which whoever writes them checks, and the other server lets in whom it gave the grant that is shown to it. A relay that
//! was given a directory keeps blocks on the way ([`cache`]), so that several who want one file have it cross the other half once.

mod cache;
mod cached;
mod flights;
mod recency;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{Stream, stream};
use godwit_flight::{
    Answered, Answers, Caller, Chunk, Client, Code, Download, ErrorReason, FlightDescriptor, FlightError, Sender,
    Status, Token, Upload,
};

use crate::control::{Credentials, GRANT_ENDED, client, is_passing};
use crate::error::TransferError;
use crate::place::{Place, Remote};
use crate::protocol::{READ, RelayRequest, RelayWriteCommand, SCHEMA, WRITE, marked};
use crate::source::schema;
use crate::task::Task;
use crate::tune;

pub use cache::{RELAY_CACHE_LEAST_BYTES, RelayCache};
use cached::{Serving, is_for_cache};
use flights::Flights;

/// Connections that nobody has used for so long are closed when another is made.
const IDLE: Duration = Duration::from_secs(60);
/// Connections to other servers, at most.
const LANES: usize = 4096;

/// Connections to other servers.
#[derive(Debug)]
pub(crate) struct Relay {
    authority: Option<PathBuf>,
    lanes: Mutex<HashMap<String, Lane>>,
    cache: Option<Arc<RelayCache>>,
    flights: Arc<Flights>,
}

/// A connection on which the requests of one connection of a caller go on.
struct Lane {
    client: Client,
    used: Instant,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("used", &self.used).finish_non_exhaustive()
    }
}

/// What went wrong on the other half, as the caller is told it.
fn on_other_half(error: FlightError, server: &str) -> TransferError {
    let said =
        |status| TransferError::Flight(FlightError::Status { peer: server.to_owned(), status: Box::new(status) });
    match &error {
        FlightError::Status { status, .. } if status.code() == Code::Unauthenticated => {
            let message = format!("{server}: {GRANT_ENDED}: {}", status.message());
            said(ErrorReason::GrantRejected.status(Code::FailedPrecondition, message))
        }
        FlightError::Status { .. } => error.into(),
        // Bits that flipped there are no reason to give up here.
        error if is_passing(error) => said(Status::unavailable(godwit_model::with_causes(error))),
        _ => error.into(),
    }
}

/// A server by its address.
fn server_of(address: &str) -> Result<Remote, TransferError> {
    match Place::parse(address)? {
        Place::There(remote) if !remote.pool => Ok(remote),
        _ => Err(TransferError::refused(format!("{address} is no server"))),
    }
}

impl Relay {
    /// One that trusts servers of these authorities, PEM; those of the system's list where none are named.
    pub(crate) fn new(authority: Option<PathBuf>, cache: Option<Arc<RelayCache>>) -> Self {
        Self { authority, lanes: Mutex::default(), cache, flights: Arc::default() }
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, HashMap<String, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends on what another server sends, or what is kept of that.
    ///
    /// # Errors
    /// Where the other server is not there, or refuses.
    pub(crate) async fn send(&self, caller: &Caller, request: RelayRequest) -> Result<Download, TransferError> {
        tune::steer(caller.wire(), request.read.manner);
        let remote = server_of(&request.from)?;
        let server = remote.server();
        let lane = [caller.name(), &server, &request.token, &request.lane].join("\n");
        let client = self.lane(&lane, &remote, &request.token).await?;
        let started = match &self.cache {
            Some(cache) if is_for_cache(&request.read) => {
                let kept = (cache.clone(), self.flights.clone());
                Serving::begin(kept, (client, &server), request.read).await
            }
            _ => passed_on(client, server.clone(), &request).await,
        };
        started.map_err(|error| match error {
            TransferError::Flight(error) => {
                if !matches!(error, FlightError::Status { .. }) {
                    self.lanes().remove(&lane);
                }
                on_other_half(error, &server)
            }
            error => error,
        })
    }

    /// Has another server take what a caller sends; what it answers goes back.
    ///
    /// # Errors
    /// Where the other server is not there.
    pub(crate) async fn take(
        &self,
        caller: &Caller,
        command: RelayWriteCommand,
        first: Option<Chunk>,
        upload: Upload,
    ) -> Result<Answers, TransferError> {
        let remote = server_of(&command.to)?;
        let server = remote.server();
        let lane = [caller.name(), &server, &command.token, &command.lane].join("\n");
        let connected = self.lane(&lane, &remote, &command.token).await;
        let client = connected.map_err(|error| match error {
            TransferError::Flight(error) => on_other_half(error, &server),
            error => error,
        })?;
        tune::steer(client.wire(), command.manner);
        let described = FlightDescriptor::new_cmd(marked(WRITE, &command.write)?);
        let (sender, answers) = client.upload(&described, &SCHEMA)?;
        let forwarding = Task::spawn(forward(sender, first, upload));
        Ok(Box::pin(answered(answers, server, forwarding)))
    }

    /// The connection of that name, which may have to be made.
    async fn lane(&self, name: &str, remote: &Remote, token: &str) -> Result<Client, TransferError> {
        if let Some(lane) = self.lanes().get_mut(name).filter(|lane| lane.client.is_open()) {
            lane.used = Instant::now();
            return Ok(lane.client.clone());
        }
        let credentials =
            Credentials { token: Token::new(token), authority: self.authority.clone(), ..Credentials::default() };
        let client = client(remote, &credentials.access(remote)?).await?;
        let mut lanes = self.lanes();
        lanes.retain(|_, lane| lane.used.elapsed() < IDLE && lane.client.is_open());
        if lanes.len() >= LANES {
            return Err(TransferError::Elsewhere { problem: "this server sends on to too many at a time".to_owned() });
        }
        lanes.insert(name.to_owned(), Lane { client: client.clone(), used: Instant::now() });
        Ok(client)
    }
}

/// What another server sends, as it is.
async fn passed_on(client: Client, server: String, request: &RelayRequest) -> Result<Download, TransferError> {
    let batches = client.download(marked(READ, &request.read)?).await?;
    let forwarded = stream::try_unfold((batches, server), |(mut batches, server)| async move {
        let next = batches.next().await.map_err(|error| Status::from(on_other_half(error, &server)))?;
        Ok(next.map(|item| (item, (batches, server))))
    });
    Ok(Download { schema: schema(), batches: Box::pin(forwarded) })
}

/// Sends on the batches of an upload, each when there is room for it.
async fn forward(mut sender: Sender, first: Option<Chunk>, mut upload: Upload) {
    // The other server answers nothing before it has heard something; why it wants no more is in its answers.
    if sender.say(&[]).await.is_err() {
        return;
    }
    let mut next = first;
    loop {
        let chunk = match next.take() {
            Some(chunk) => chunk,
            None => match upload.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // Who sends it is gone: nobody waits for answers.
                Err(_) => return,
            },
        };
        let Some(batch) = chunk.batch else { continue };
        if batch.schema().fields() != SCHEMA.fields() || sender.send(&batch, &[]).await.is_err() {
            return;
        }
    }
    let _ = sender.finish().await;
}

/// Answers of the other server, as they come. What is kept until then is kept.
fn answered(
    answers: impl Future<Output = Result<Answered, FlightError>> + Send + 'static,
    server: String,
    kept: Task<()>,
) -> impl Stream<Item = Result<bytes::Bytes, Status>> + Send {
    let failed = |error, server: &str| Status::from(on_other_half(error, server));
    let opened = async move {
        let answers = answers.await.map_err(|error| failed(error, &server))?;
        Ok::<_, Status>(stream::try_unfold((answers, server, kept), move |(mut answers, server, kept)| async move {
            let next = answers.next().await.map_err(|error| failed(error, &server))?;
            Ok::<_, Status>(next.map(|answer| (answer, (answers, server, kept))))
        }))
    };
    futures_util::TryStreamExt::try_flatten(stream::once(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_on(status: Status) -> Status {
        let error = FlightError::Status { peer: "behind".to_owned(), status: Box::new(status) };
        on_other_half(error, "grpc://behind").into()
    }

    #[test]
    fn reasons_of_the_server_behind_reach_the_client() {
        let behind = ErrorReason::UnknownSession.status(Code::ResourceExhausted, "reworded");
        assert_eq!(ErrorReason::of(&passed_on(behind)), Some(ErrorReason::UnknownSession));
    }

    #[test]
    fn a_rejected_grant_has_a_reason() {
        let status = passed_on(Status::unauthenticated("reworded"));
        assert_eq!(
            (status.code(), ErrorReason::of(&status)),
            (Code::FailedPrecondition, Some(ErrorReason::GrantRejected))
        );
    }
}
