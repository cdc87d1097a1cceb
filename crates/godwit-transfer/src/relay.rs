//! A relay: a server that receives blocks from one side and forwards them to the other, so that two short network paths
//! replace a long one.
//!
//! Each side has its own connections. They reach their rate and recover from losses sooner than a connection over the
//! whole path. The receiving end verifies the blocks by their hashes. The upstream server, with which the relay
//! communicates for a client, authenticates the relay by a delegation token that it has issued. A relay with a cache
//! directory stores blocks ([`cache`]), so that a file for several clients crosses the upstream path only once.

mod cache;
mod cached_download;
mod pending_fetches;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Stream, stream};
use godwit_auth::Token;
use godwit_dataset::Principal;
use godwit_flight::{
    Answered, BatchSender, Client, Code, Download, ErrorReason, FlightDescriptor, FlightError, FlightStreamChunk,
    PutResultStream, SocketHandle, Status, Upload,
};
use parking_lot::Mutex;

use crate::abort_on_drop::AbortOnDropTask;
use crate::block_reader::block_schema;
use crate::control_client::connect_with_full_window;
use crate::copy_protocol::{BLOCK_SCHEMA, READ_TICKET, RelayRequest, RelayWriteCommand, WRITE_COMMAND, encode_message};
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::location::{Location, RemoteLocation};
use crate::server_errors::{UNKNOWN_TOKEN_MESSAGE, is_transient};
use crate::tcp_tuning;
pub use cache::{RELAY_CACHE_MIN_BYTES, RelayCache};
use cached_download::{CachedDownload, is_cacheable};
use pending_fetches::PendingFetches;

/// A connection that was idle for this time is closed when another one is opened.
const CONNECTION_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest number of connections of the relay to upstream servers.
const MAX_CONNECTIONS: usize = 4096;

/// The connections of a relay to upstream servers, and its cache.
#[derive(Debug)]
pub(crate) struct Relay {
    ca_certificates: Option<PathBuf>,
    connections: Mutex<HashMap<String, UpstreamConnection>>,
    cache: Option<Arc<RelayCache>>,
    pending_fetches: Arc<PendingFetches>,
}

/// A connection to an upstream server that forwards the requests of one client connection.
struct UpstreamConnection {
    client: Client,
    last_used: Instant,
}

impl std::fmt::Debug for UpstreamConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamConnection").field("last_used", &self.last_used).finish_non_exhaustive()
    }
}

/// Converts an error of the upstream server or connection to an error for the client.
fn upstream_error(error: FlightError, server: &str) -> TransferError {
    let status_error =
        |status| TransferError::Flight(FlightError::Status { peer: server.to_owned(), status: Box::new(status) });
    match &error {
        FlightError::Status { status, .. } if status.code() == Code::Unauthenticated => {
            let message = format!("{server}: {UNKNOWN_TOKEN_MESSAGE}: {}", status.message());
            status_error(ErrorReason::GrantRejected.status(Code::FailedPrecondition, message))
        }
        FlightError::Status { .. } => error.into(),
        // Bits that were flipped on the upstream connection must not fail the call of the client; the client retries.
        error if is_transient(error) => status_error(Status::unavailable(godwit_model::message_with_causes(error))),
        _ => error.into(),
    }
}

/// Parses the URI of an upstream server; pools are rejected.
fn parse_server(address: &str) -> Result<RemoteLocation, TransferError> {
    match Location::parse(address)? {
        Location::Remote(remote) if !remote.is_pool => Ok(remote),
        _ => Err(TransferError::rejected(format!("{address} is not a server"))),
    }
}

impl Relay {
    /// Returns a relay that trusts the certificate authorities in this PEM file; `None` for those of the system.
    pub(crate) fn new(ca_certificates: Option<PathBuf>, cache: Option<Arc<RelayCache>>) -> Self {
        Self { ca_certificates, connections: Mutex::default(), cache, pending_fetches: Arc::default() }
    }

    /// Returns the requested blocks of an upstream server, from the cache or by forwarding the request.
    ///
    /// # Errors
    /// [`TransferError::Flight`] if the upstream server is unreachable or rejects the request.
    pub(crate) async fn relay_download(
        &self,
        principal: &Principal,
        request: RelayRequest,
    ) -> Result<Download, TransferError> {
        tcp_tuning::apply_send_options(&SocketHandle::of_call(principal), request.read_request.send_options);
        let remote = parse_server(&request.server)?;
        let server = remote.server_uri();
        let lane = [principal.name(), &server, &request.token, &request.connection_name].join("\n");
        let client = self.upstream_connection(&lane, &remote, &request.token).await?;
        let started = match &self.cache {
            Some(cache) if is_cacheable(&request.read_request) => {
                let kept = (cache.clone(), self.pending_fetches.clone());
                CachedDownload::start(kept, (client, &server), request.read_request).await
            }
            _ => forward_download(client, server.clone(), &request).await,
        };
        started.map_err(|error| match error {
            TransferError::Flight(error) => {
                if !matches!(error, FlightError::Status { .. }) {
                    self.connections.lock().remove(&lane);
                }
                upstream_error(error, &server)
            }
            error => error,
        })
    }

    /// Forwards the upload of a client to the upstream server, and the responses of that server to the client.
    ///
    /// # Errors
    /// [`TransferError::Flight`] if the upstream server is unreachable.
    pub(crate) async fn relay_upload(
        &self,
        principal: &Principal,
        command: RelayWriteCommand,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> Result<PutResultStream, TransferError> {
        let remote = parse_server(&command.server)?;
        let server = remote.server_uri();
        let lane = [principal.name(), &server, &command.token, &command.connection_name].join("\n");
        let connected = self.upstream_connection(&lane, &remote, &command.token).await;
        let client = connected.map_err(|error| match error {
            TransferError::Flight(error) => upstream_error(error, &server),
            error => error,
        })?;
        tcp_tuning::apply_send_options(client.socket_handle(), command.send_options);
        let described = FlightDescriptor::new_cmd(encode_message(WRITE_COMMAND, &command.write_command)?);
        let (sender, answers) = client.upload(&described, &BLOCK_SCHEMA)?;
        let forwarding = AbortOnDropTask::spawn(forward_upload(sender, first, upload));
        Ok(Box::pin(forward_responses(answers, server, forwarding)))
    }

    /// Returns the connection with this name; opens it if it is not open.
    async fn upstream_connection(
        &self,
        name: &str,
        remote: &RemoteLocation,
        token: &str,
    ) -> Result<Client, TransferError> {
        if let Some(lane) = self.connections.lock().get_mut(name).filter(|lane| lane.client.is_open()) {
            lane.last_used = Instant::now();
            return Ok(lane.client.clone());
        }
        let credentials = Credentials {
            token: Token::new(token),
            ca_certificates: self.ca_certificates.clone(),
            ..Credentials::default()
        };
        let client = connect_with_full_window(remote, &credentials.server_access(remote)?).await?;
        let mut lanes = self.connections.lock();
        lanes.retain(|_, lane| lane.last_used.elapsed() < CONNECTION_IDLE_TIMEOUT && lane.client.is_open());
        if lanes.len() >= MAX_CONNECTIONS {
            return Err(TransferError::RemoteFailure {
                problem: "this server has reached its limit of relay connections".to_owned(),
                reason: None,
            });
        }
        lanes.insert(name.to_owned(), UpstreamConnection { client: client.clone(), last_used: Instant::now() });
        Ok(client)
    }
}

/// Forwards the batches of the upstream server to the client unchanged.
async fn forward_download(client: Client, server: String, request: &RelayRequest) -> Result<Download, TransferError> {
    let batches = client.download(encode_message(READ_TICKET, &request.read_request)?).await?;
    let forwarded = stream::try_unfold((batches, server), |(mut batches, server)| async move {
        let next = batches.next().await.map_err(|error| Status::from(upstream_error(error, &server)))?;
        Ok(next.map(|item| (item, (batches, server))))
    });
    Ok(Download { schema: block_schema(), batches: Box::pin(forwarded) })
}

/// Forwards the batches of an upload as fast as the upstream connection accepts them.
async fn forward_upload(mut sender: BatchSender, first: Option<FlightStreamChunk>, mut upload: Upload) {
    // Send an empty message first: the upstream server opens its response stream only after the first request. If
    // sending fails, the response stream contains the reason.
    if sender.send_metadata(&[]).await.is_err() {
        return;
    }
    let mut next = first;
    loop {
        let chunk = match next.take() {
            Some(chunk) => chunk,
            None => match upload.next().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // The client has disconnected, so the responses are not needed.
                Err(_) => return,
            },
        };
        let Some(batch) = chunk.batch else { continue };
        if batch.schema().fields() != BLOCK_SCHEMA.fields() || sender.send(&batch, &[]).await.is_err() {
            return;
        }
    }
    let _ = sender.finish().await;
}

/// Returns the responses of the upstream server as they arrive. Drops `kept` after the last response.
fn forward_responses(
    answers: impl Future<Output = Result<Answered, FlightError>> + Send + 'static,
    server: String,
    kept: AbortOnDropTask<()>,
) -> impl Stream<Item = Result<bytes::Bytes, Status>> + Send {
    let failed = |error, server: &str| Status::from(upstream_error(error, server));
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
        upstream_error(error, "grpc://behind").into()
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
