//! A server in between: it fetches blocks from another server and sends them on as they come, so that a long path is two shorter ones.
//!
//! Each half has its own connections, which fill sooner and make good for losses sooner than one over the whole path. What goes through
//! is looked at by nobody here: blocks come with their hashes, which the client checks, and the other server lets in whom it gave the
//! grant that is shown to it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream;
use godwit_flight::{Caller, Client, Download, FlightError, Status, Token};

use crate::control::{Credentials, client};
use crate::error::TransferError;
use crate::place::Place;
use crate::protocol::{READ, RelayRequest, marked};
use crate::service::Steering;
use crate::source::schema;

/// Connections that nobody has used for so long are closed when another is made.
const IDLE: Duration = Duration::from_secs(60);
/// Connections to other servers, at most.
const LANES: usize = 4096;

/// Connections to other servers.
#[derive(Debug)]
pub(crate) struct Relay {
    authority: Option<PathBuf>,
    lanes: Mutex<HashMap<String, Lane>>,
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

impl Relay {
    /// One that trusts servers of these authorities, PEM; those of the system's list where none are named.
    pub(crate) fn new(authority: Option<PathBuf>) -> Self {
        Self { authority, lanes: Mutex::default() }
    }

    fn lanes(&self) -> std::sync::MutexGuard<'_, HashMap<String, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends on what another server sends.
    ///
    /// # Errors
    /// Where the other server is not there, or refuses.
    pub(crate) async fn send(&self, caller: &Caller, request: RelayRequest) -> Result<Download, TransferError> {
        let steering = Steering::of(caller.wire(), request.read.manner);
        let lane = [caller.name(), &request.from, &request.token, &request.lane].join("\n");
        let client = self.lane(&lane, &request).await?;
        let batches = match client.download(marked(READ, &request.read)?).await {
            Ok(batches) => batches,
            Err(error) => {
                if !matches!(error, FlightError::Status { .. }) {
                    self.lanes().remove(&lane);
                }
                return Err(error.into());
            }
        };
        let forwarded = stream::try_unfold((batches, steering), |(mut batches, steering)| async move {
            let next = batches.next().await.map_err(Status::from)?;
            Ok(next.map(|item| (item, (batches, steering))))
        });
        Ok(Download { schema: schema(), batches: Box::pin(forwarded) })
    }

    /// The connection of that name, which may have to be made.
    async fn lane(&self, name: &str, request: &RelayRequest) -> Result<Client, TransferError> {
        if let Some(lane) = self.lanes().get_mut(name).filter(|lane| lane.client.is_open()) {
            lane.used = Instant::now();
            return Ok(lane.client.clone());
        }
        let Place::There(remote) = Place::parse(&request.from)? else {
            return Err(TransferError::refused(format!("{} is no server", request.from)));
        };
        let credentials = Credentials {
            token: Token::new(&request.token),
            authority: self.authority.clone(),
            ..Credentials::default()
        };
        let client = client(&remote, &credentials.access(&remote)?).await?;
        let mut lanes = self.lanes();
        lanes.retain(|_, lane| lane.used.elapsed() < IDLE && lane.client.is_open());
        if lanes.len() >= LANES {
            return Err(TransferError::Elsewhere { problem: "this server sends on to too many at a time".to_owned() });
        }
        lanes.insert(name.to_owned(), Lane { client: client.clone(), used: Instant::now() });
        Ok(client)
    }
}
