//! The client of a copy for a server: connections, and all calls besides data.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use godwit_flight::pool::{MemberLease, Pool};
use godwit_flight::{
    Address, Client, ClientTls, Code, ConnectionSecurity, ErrorReason, FlightError, Status, Token, TransportOptions,
};

use crate::blake3_tree::BlockHash;
use crate::copy::{CopyEvent, CopySummary};
use crate::copy_protocol::{
    BEGIN_ACTION, BLOCK_HASHES_ACTION, BeginRequest, BeginResponse, BlockHashesRequest, END_ACTION, EndRequest,
    EntryFailureMessage, FETCH_ACTION, FETCH_EVENTS_ACTION, FINISH_ACTION, FinishRequest, FinishResponse, LIST_ACTION,
    ListRequest, ListTrailer, MAX_ENTRIES_PER_MESSAGE, READ_TOKEN_ACTION, REFERENCE_ACTION, ReceiverState,
    ReferenceRequest, WRITE_TOKEN_ACTION, WriteCommand, action_name, from_json, hashes_to_text, to_json,
};
use crate::error::TransferError;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy, Listing};
use crate::location::RemoteLocation;
use crate::path_text::escape_for_display;
use crate::ranges::RangeSet;
use crate::tcp_tuning::connection_tcp_info;
use crate::third_party_copy::FetchRequest;

/// Longest time for a connection: two SYNs, the second after a second, so that a restored path is found soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay between attempts.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// HTTP/2 flow-control window of a connection that is one of few: a gigabit per second at a quarter of a second.
const FLOW_CONTROL_WINDOW_BYTES: u32 = 32 << 20;
/// Sum of the flow-control windows of the connections of a copy, and the least of each. Data in flight or unread are lost
/// with either end. With 16 connections the sum is a gigabit per second at a fifth of a second; paths that hold more get more
/// connections.
const SHARED_FLOW_CONTROL_WINDOW_BYTES: u32 = 24 << 20;
const MIN_FLOW_CONTROL_WINDOW_BYTES: u32 = 3 << 19;
/// Bytes of responses besides blocks that may be unread: prefetched blocks are not read before the list of entries is known.
const CONTROL_WINDOW_BYTES: u32 = 1 << 20;

/// Credentials of a copy, and the certificate authorities it trusts.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The bearer token.
    pub token: Option<Token>,
    /// Trusted certificate authorities, PEM.
    pub ca_certificates: Option<PathBuf>,
    /// Client certificate and key, PEM, for servers that require them.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Pools of servers by the name that locations use.
    pub pools: HashMap<String, Arc<Pool>>,
}

/// Default certificate authorities of the system.
const SYSTEM_CA_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

impl Credentials {
    /// Returns the credentials for a server.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if a certificate is invalid, or there are no certificate authorities.
    pub fn server_access(&self, remote: &RemoteLocation) -> Result<ConnectionSecurity<ClientTls>, TransferError> {
        let tls = if remote.uses_tls {
            let system = || SYSTEM_CA_FILES.iter().map(PathBuf::from).find(|path| path.exists());
            let none = || TransferError::rejected("this system has no list of authorities; give --ca FILE");
            let authority = self.ca_certificates.clone().or_else(system).ok_or_else(none)?;
            let identity = self.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
            let tls = ClientTls::from_files(&authority, &remote.host, identity);
            Some(tls.map_err(|error| TransferError::rejected(godwit_model::message_with_causes(&error)))?)
        } else {
            None
        };
        Ok(ConnectionSecurity { token: self.token.clone(), tls })
    }
}

/// A client of a server, or of one member of a pool at a time.
pub(crate) struct ControlClient {
    location: RemoteLocation,
    target: ControlTarget,
    client: Mutex<Option<Client>>,
    retry_timeout: Duration,
    window_bytes: AtomicU32,
}

/// The server or pool.
enum ControlTarget {
    Server(ConnectionSecurity<ClientTls>),
    Pool(Arc<Pool>, Box<PoolConnection>),
}

/// The member of a pool that is used.
#[derive(Default)]
struct PoolConnection {
    lease: tokio::sync::Mutex<Option<MemberLease>>,
    /// The lease was moved from another member.
    has_moved: AtomicBool,
    /// An upload session was started at a member.
    has_started_session: AtomicBool,
}

fn transport_tuning(window_bytes: u32) -> TransportOptions {
    TransportOptions {
        stream_window_bytes: window_bytes,
        connection_window_bytes: window_bytes + CONTROL_WINDOW_BYTES,
        connect_timeout: CONNECT_TIMEOUT,
        ..TransportOptions::default()
    }
}

/// Reports whether a retry may help: the connection failed, not the request.
pub(crate) fn is_transient(error: &FlightError) -> bool {
    match error {
        FlightError::Connect { source, .. } => source.kind() != std::io::ErrorKind::InvalidData,
        FlightError::Connection { .. }
        | FlightError::Io { .. }
        | FlightError::MissingStatus { .. }
        | FlightError::Checksum { .. } => true,
        // Flipped bits make messages that cannot be read.
        FlightError::Malformed { .. } | FlightError::TooLarge { .. } | FlightError::Arrow { .. } => true,
        FlightError::Status { status, .. } => {
            matches!(
                status.code(),
                Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded | Code::Internal
            )
        }
        FlightError::Listen { .. } => false,
    }
}

/// Converts the status of a server to an error of a copy.
pub(crate) fn error_from_status(error: FlightError) -> TransferError {
    match &error {
        FlightError::Status { status, .. } => {
            let problem = status.message().to_owned();
            match status.code() {
                Code::NotFound | Code::PermissionDenied => TransferError::rejected(problem),
                Code::ResourceExhausted | Code::Aborted | Code::DataLoss | Code::FailedPrecondition => {
                    TransferError::RemoteFailure { problem }
                }
                _ => error.into(),
            }
        }
        _ => error.into(),
    }
}

/// Reports whether a server cannot write received data.
pub(crate) fn is_storage_full(error: &FlightError) -> bool {
    matches!(error, FlightError::Status { status, .. } if status.code() == Code::ResourceExhausted)
}

/// The message of a relay whose upstream rejects the delegation token: the upstream was restarted, or the token has expired.
// Clients of versions before `ErrorReason` look for this text.
pub(crate) const UNKNOWN_TOKEN_MESSAGE: &str = "what was granted is not known there";

/// Reports whether a relay needs a new delegation token.
pub(crate) fn is_unknown_token(error: &FlightError) -> bool {
    reason_of(error) == Some(ErrorReason::GrantRejected)
}

/// Reports whether a server was restarted after a session started.
pub(crate) fn is_unknown_session(error: &FlightError) -> bool {
    reason_of(error) == Some(ErrorReason::UnknownSession)
}

fn reason_of(error: &FlightError) -> Option<ErrorReason> {
    let FlightError::Status { status, .. } = error else { return None };
    ErrorReason::of(status).or_else(|| reason_in_text_of_earlier_version(status))
}

/// Returns the reason in the message of a server or relay of a version before [`ErrorReason`], which sent texts only. No
/// other function decides by a message.
fn reason_in_text_of_earlier_version(status: &Status) -> Option<ErrorReason> {
    [
        ("this session is not known here", ErrorReason::UnknownSession),
        ("what was granted is not known there", ErrorReason::GrantRejected),
    ]
    .into_iter()
    .find_map(|(text, reason)| status.message().contains(text).then_some(reason))
}

/// Connects to a server with the window of a connection that is one of few.
pub(crate) async fn connect_with_full_window(
    remote: &RemoteLocation,
    access: &ConnectionSecurity<ClientTls>,
) -> Result<Client, FlightError> {
    connect_with_tuning(remote, access, transport_tuning(FLOW_CONTROL_WINDOW_BYTES)).await
}

async fn connect_with_tuning(
    remote: &RemoteLocation,
    access: &ConnectionSecurity<ClientTls>,
    tuning: TransportOptions,
) -> Result<Client, FlightError> {
    let server = remote.server_uri();
    let unknown = |source| FlightError::Connect { address: server, source };
    let named = remote.clone();
    let found = tokio::task::spawn_blocking(move || named.resolve()).await;
    let address = match found.map_err(std::io::Error::other) {
        Ok(Ok(address)) => address,
        Ok(Err(error)) | Err(error) => return Err(unknown(error)),
    };
    Client::connect(&Address::Tcp(address), access.clone(), tuning).await
}

impl ControlClient {
    /// Returns a client that is not connected.
    pub(crate) fn new(
        remote: &RemoteLocation,
        credentials: &Credentials,
        patience: Duration,
    ) -> Result<Self, TransferError> {
        let target = if remote.is_pool {
            let none = || TransferError::rejected(format!("{} is no pool that is known here", remote.server_uri()));
            let pool = credentials.pools.get(&remote.host).ok_or_else(none)?;
            ControlTarget::Pool(pool.clone(), Box::default())
        } else {
            ControlTarget::Server(credentials.server_access(remote)?)
        };
        let retry_timeout = match &target {
            ControlTarget::Pool(pool, _) => patience.min(pool.wait_timeout()),
            ControlTarget::Server(_) => patience,
        };
        let window_bytes = AtomicU32::new(FLOW_CONTROL_WINDOW_BYTES);
        Ok(Self { location: remote.clone(), target, client: Mutex::new(None), retry_timeout, window_bytes })
    }

    /// Sets the number of connections that share a copy: the more there are, the smaller is the window of each.
    pub(crate) fn set_stream_count(&self, streams: u32) {
        let window = (SHARED_FLOW_CONTROL_WINDOW_BYTES / streams.max(1)).max(MIN_FLOW_CONTROL_WINDOW_BYTES);
        self.window_bytes.store(window, Ordering::Relaxed);
    }

    fn transport_tuning(&self) -> TransportOptions {
        transport_tuning(self.window_bytes.load(Ordering::Relaxed))
    }

    /// Connects once: an unreachable server fails at once; for a member of a pool it waits.
    pub(crate) async fn open(&self) -> Result<(), TransferError> {
        let client = self.open_connection().await?;
        self.set_client(Some(client));
        Ok(())
    }

    /// Connects to a server.
    pub(crate) async fn connect(
        remote: &RemoteLocation,
        credentials: &Credentials,
        patience: Duration,
    ) -> Result<Self, TransferError> {
        let control = Self::new(remote, credentials, patience)?;
        control.open().await?;
        Ok(control)
    }

    /// Reports whether the target is a pool of servers.
    pub(crate) fn is_pool(&self) -> bool {
        matches!(self.target, ControlTarget::Pool(..))
    }

    fn set_client(&self, client: Option<Client>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Returns the connection for calls, if there is one.
    pub(crate) fn current_client(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses this connection for calls from now on.
    pub(crate) fn use_client(&self, client: Client) {
        self.set_client(Some(client));
    }

    /// Opens another connection.
    pub(crate) async fn open_connection(&self) -> Result<Client, FlightError> {
        match &self.target {
            ControlTarget::Server(access) => connect_with_tuning(&self.location, access, self.transport_tuning()).await,
            ControlTarget::Pool(pool, seat) => self.open_pool_connection(pool, seat).await,
        }
    }

    /// Opens another connection to the leased member of a pool, or to a new one if that does not respond.
    async fn open_pool_connection(&self, pool: &Pool, found: &PoolConnection) -> Result<Client, FlightError> {
        let before = found.lease.lock().await.clone();
        if let Some(seat) = &before
            && let Ok(client) = pool.connect_to_same(seat, &self.transport_tuning()).await
        {
            return Ok(client);
        }
        let mut held = found.lease.lock().await;
        // Another connection may have found the loss first.
        match (&before, &*held) {
            (Some(before), Some(now)) if !before.is_same_lease(now) => {
                return pool.connect_to_same(now, &self.transport_tuning()).await;
            }
            (None, Some(now)) => return pool.connect_to_same(now, &self.transport_tuning()).await,
            (Some(before), _) => {
                pool.report_lost(before.member);
                found.has_moved.store(true, Ordering::Relaxed);
            }
            (None, None) => {}
        }
        let seat = pool.lease(&self.transport_tuning()).await?;
        let client = seat.client.clone();
        self.set_client(Some(client.clone()));
        *held = Some(seat);
        Ok(client)
    }

    /// Reports whether an upload session was started at another member of the pool.
    fn has_session_on_other_member(&self) -> bool {
        matches!(&self.target, ControlTarget::Pool(_, seat) if seat.has_started_session.load(Ordering::Relaxed))
            && self.has_moved()
    }

    /// Reports whether another member of the pool was used before this one.
    pub(crate) fn has_moved(&self) -> bool {
        matches!(&self.target, ControlTarget::Pool(_, seat) if seat.has_moved.load(Ordering::Relaxed))
    }

    /// Returns the round-trip time of the connection.
    pub(crate) fn rtt(&self) -> Duration {
        let info = self.current_client().and_then(|client| connection_tcp_info(client.socket_handle()));
        Duration::from_micros(info.map_or(0, |info| info.rtt_us.into()))
    }

    /// Calls an action; retries if the connection fails.
    async fn call_action(&self, kind: &str, body: Vec<u8>) -> Result<Vec<Bytes>, FlightError> {
        let started = Instant::now();
        let body = Bytes::from(body);
        loop {
            let outcome = match self.current_client() {
                Some(client) => client.do_action(&action_name(kind), body.clone()).await,
                None => match self.open_connection().await {
                    Ok(client) => {
                        self.set_client(Some(client));
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            match outcome {
                Err(error) if is_transient(&error) && started.elapsed() < self.retry_timeout => {
                    self.set_client(None);
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Lists the entries below a path.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if the server is of an earlier version and would follow links against the policy.
    pub(crate) async fn list_entries(&self, path: &str, links: LinkPolicy) -> Result<Listing, TransferError> {
        let (listing, knows_links) = self.list_with_link_support(path, links).await?;
        if knows_links || links == LinkPolicy::Follow {
            return Ok(listing);
        }
        let server = self.location.server_uri();
        Err(TransferError::rejected(format!(
            "{server} is of an earlier version, which follows links; leave --links out"
        )))
    }

    /// Lists the entries below a path; returns whether the server supports links. Earlier versions follow them.
    pub(crate) async fn list_with_link_support(
        &self,
        path: &str,
        link_policy: LinkPolicy,
    ) -> Result<(Listing, bool), TransferError> {
        let body = to_json(&ListRequest { path: path.to_owned(), link_policy, per_entry_errors: true })?;
        let (mut listing, mut knows_links) = (Listing::default(), false);
        for message in self.call_action(LIST_ACTION, body).await.map_err(error_from_status)? {
            if is_list_end(&message) {
                let ListTrailer { failures, skipped_links } = from_json(&message)?;
                listing.failures.extend(failures.into_iter().map(EntryFailureMessage::into_failure));
                listing.skipped_links.extend(skipped_links);
                knows_links = true;
            } else {
                listing.entries.extend(from_json::<Vec<Entry>>(&message)?);
            }
        }
        Ok((listing, knows_links))
    }

    /// Returns the hashes of all blocks of a version of a file; `None` if the file has changed.
    pub(crate) async fn block_hashes(&self, path: &str, version: u64) -> Result<Option<Vec<BlockHash>>, TransferError> {
        let body = to_json(&BlockHashesRequest { path: path.to_owned(), version })?;
        match self.call_action(BLOCK_HASHES_ACTION, body).await {
            Ok(messages) => {
                Ok(Some(messages.iter().flat_map(|message| message.as_chunks().0.iter().copied()).collect()))
            }
            Err(FlightError::Status { status, .. }) if status.code() == Code::FailedPrecondition => Ok(None),
            Err(error) => Err(error_from_status(error)),
        }
    }

    /// Returns the digest of a reference at the server with the same sequences as one on this host. `client_packs` reports
    /// which end packs.
    pub(crate) async fn matching_reference(
        &self,
        sequences: Vec<String>,
        client_packs: bool,
    ) -> Result<Option<String>, TransferError> {
        let messages = self
            .call_action(REFERENCE_ACTION, to_json(&ReferenceRequest { sequences, client_packs })?)
            .await
            .map_err(error_from_status)?;
        from_json(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// Reports whether the server accepts links and names of any bytes, and returns errors for each entry.
    pub(crate) async fn supports_per_entry_errors(&self, base: &str) -> Result<bool, TransferError> {
        let (session, base_path, entries) = (None, base.to_owned(), Vec::new());
        let request = BeginRequest {
            session,
            base_path,
            first_file: 0,
            entries,
            dry_run: true,
            take_over: false,
            per_entry_errors: true,
        };
        let messages = self.call_action(BEGIN_ACTION, to_json(&request)?).await.map_err(error_from_status)?;
        Ok(from_json::<BeginResponse>(messages.first().map(|message| &message[..]).unwrap_or_default())?
            .per_entry_errors)
    }

    /// Starts an upload session; returns its name, and for each file the state at the server or the error.
    pub(crate) async fn begin_files(
        &self,
        base: &str,
        entries: &[Entry],
        dry_run: bool,
    ) -> Result<(String, Vec<Result<ReceiverState, TransferError>>), TransferError> {
        let mut have = Vec::new();
        let mut session: Option<String> = None;
        for (number, some) in entries.chunks(MAX_ENTRIES_PER_MESSAGE).enumerate() {
            let first_file = (number * MAX_ENTRIES_PER_MESSAGE) as u32;
            let (base_path, entries) = (base.to_owned(), some.to_vec());
            let take_over = self.has_session_on_other_member();
            let request = BeginRequest {
                session: session.clone(),
                base_path,
                first_file,
                entries,
                dry_run,
                take_over,
                per_entry_errors: true,
            };
            let messages = self.call_action(BEGIN_ACTION, to_json(&request)?).await.map_err(error_from_status)?;
            let begun: BeginResponse = from_json(messages.first().map(|message| &message[..]).unwrap_or_default())?;
            session = Some(begun.session).filter(|session| !session.is_empty());
            have.extend(begun.receiver_states.into_iter().zip(some).map(|(have, entry)| match have {
                ReceiverState::Rejected(why) => Err(why.into_error(&escape_for_display(&entry.path))),
                have => Ok(have),
            }));
        }
        if let ControlTarget::Pool(_, seat) = &self.target {
            seat.has_started_session.fetch_or(!dry_run, Ordering::Relaxed);
        }
        if have.len() != entries.len() {
            return Err(TransferError::rejected("the server did not say what it has of each file"));
        }
        Ok((session.unwrap_or_default(), have))
    }

    /// Verifies a file that was sent; returns the blocks that must be sent again.
    pub(crate) async fn finish_file(
        &self,
        session: &str,
        file: u32,
        hashes: &[BlockHash],
        discard_stale_only: bool,
    ) -> Result<RangeSet, FlightError> {
        let request =
            FinishRequest { session: session.to_owned(), file, hashes: hashes_to_text(hashes), discard_stale_only };
        let malformed = FlightError::Malformed { problem: "its proof is not understood" };
        let Ok(body) = to_json(&request) else { return Err(malformed) };
        let messages = self.call_action(FINISH_ACTION, body).await?;
        let proof = messages.first().and_then(|message| from_json::<FinishResponse>(message).ok());
        proof.map(|proof| proof.mismatched_blocks).ok_or(malformed)
    }

    /// Returns the URI of the server.
    pub(crate) fn server_uri(&self) -> String {
        self.location.server_uri()
    }

    /// Requests a delegation token by which another server may read below a path.
    pub(crate) async fn request_read_token(&self, path: &str) -> Result<String, TransferError> {
        let messages = self
            .call_action(
                READ_TOKEN_ACTION,
                to_json(&ListRequest {
                    path: path.to_owned(),
                    link_policy: LinkPolicy::Follow,
                    per_entry_errors: false,
                })?,
            )
            .await
            .map_err(error_from_status)?;
        from_json(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// Requests a delegation token by which another server may send the blocks of a session.
    pub(crate) async fn request_write_token(&self, session: &str) -> Result<String, FlightError> {
        let malformed = FlightError::Malformed { problem: "its grant is not understood" };
        let Ok(body) = to_json(&WriteCommand { session: session.to_owned() }) else { return Err(malformed) };
        let messages = self.call_action(WRITE_TOKEN_ACTION, body).await?;
        messages.first().and_then(|message| from_json(message).ok()).ok_or(malformed)
    }

    /// Makes the server fetch files from another; returns the summary and the failures.
    pub(crate) async fn request_fetch(
        &self,
        request: &FetchRequest,
    ) -> Result<(CopySummary, Vec<EntryFailure>), TransferError> {
        let messages = self.call_action(FETCH_ACTION, to_json(request)?).await.map_err(error_from_status)?;
        let summary = from_json(messages.first().map(|message| &message[..]).unwrap_or_default())?;
        Ok((summary, parse_failures(messages.get(1))?))
    }

    /// Returns the events of a fetch since the last call. Failed calls are not retried.
    pub(crate) async fn fetch_events(&self, name: &str) -> Result<Vec<CopyEvent>, TransferError> {
        let Some(client) = self.current_client() else { return Ok(Vec::new()) };
        let messages =
            client.do_action(&action_name(FETCH_EVENTS_ACTION), to_json(&name)?).await.map_err(error_from_status)?;
        from_json(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// Ends a session; returns the entries that failed.
    pub(crate) async fn end_session(
        &self,
        session: &str,
        paths_to_remove: Vec<String>,
    ) -> Result<Vec<EntryFailure>, TransferError> {
        let body = to_json(&EndRequest { session: session.to_owned(), paths_to_remove, per_entry_errors: true })?;
        parse_failures(self.call_action(END_ACTION, body).await?.first())
    }
}

/// Parses the entries that a server could not copy. Earlier versions report none.
fn parse_failures(message: Option<&Bytes>) -> Result<Vec<EntryFailure>, TransferError> {
    let failures: Vec<EntryFailureMessage> = message.map_or(Ok(Vec::new()), |message| from_json(message))?;
    Ok(failures.into_iter().map(EntryFailureMessage::into_failure).collect())
}

/// Reports whether a message is the [`ListTrailer`] of a list, which is an object. Other messages, and all of earlier
/// versions, are arrays of entries.
fn is_list_end(message: &[u8]) -> bool {
    message.starts_with(b"{")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: Status) -> FlightError {
        FlightError::Status { peer: "s".to_owned(), status: Box::new(status) }
    }

    #[test]
    fn a_lost_session_is_recognised_by_its_reason_whatever_the_message_is() {
        let reworded = answered(ErrorReason::UnknownSession.status(Code::ResourceExhausted, "no such upload"));
        assert!(is_unknown_session(&reworded) && !is_unknown_token(&reworded));
        assert!(is_unknown_session(&answered(TransferError::UnknownSession.into())));
        assert!(!is_unknown_session(&answered(Status::resource_exhausted("no such upload"))));
        let full =
            answered(ErrorReason::GrantRejected.status(Code::FailedPrecondition, "this session is not known here"));
        assert!(!is_unknown_session(&full));
    }

    #[test]
    fn a_lost_grant_is_recognised_by_its_reason_whatever_the_message_is() {
        let reworded = answered(ErrorReason::GrantRejected.status(Code::FailedPrecondition, "s: the grant expired"));
        assert!(is_unknown_token(&reworded) && !is_unknown_session(&reworded));
        assert!(!is_unknown_token(&answered(Status::failed_precondition("s: the grant expired"))));
    }

    #[test]
    fn servers_before_reasons_are_understood_by_their_texts() {
        assert!(is_unknown_session(&answered(Status::resource_exhausted("this session is not known here"))));
        let relayed = "grpc://s: what was granted is not known there: the token is missing or wrong";
        assert!(is_unknown_token(&answered(Status::failed_precondition(relayed))));
        // Clients of that version search for the same texts.
        assert!(Status::from(TransferError::UnknownSession).message().contains("this session is not known here"));
        assert_eq!(UNKNOWN_TOKEN_MESSAGE, "what was granted is not known there");
    }
}
