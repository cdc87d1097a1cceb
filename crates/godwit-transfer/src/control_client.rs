//! The client that a copy uses to call a server: opens connections and makes all calls except those that carry file
//! data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use godwit_flight::pool::{MemberLease, Pool};
use godwit_flight::{Address, Client, ClientTls, Code, ConnectionSecurity, FlightError, TransportOptions};
use godwit_transfer_session::blake3_tree::BlockHash;
use godwit_transfer_session::ranges::RangeSet;
use parking_lot::Mutex;

use crate::copy_protocol::{
    BEGIN_ACTION, BLOCK_HASHES_ACTION, BeginRequest, BeginResponse, BlockHashesRequest, END_ACTION, EndRequest,
    EntryFailureMessage, FETCH_ACTION, FETCH_EVENTS_ACTION, FINISH_ACTION, FinishRequest, FinishResponse, LIST_ACTION,
    ListRequest, MAX_ENTRIES_PER_MESSAGE, READ_TOKEN_ACTION, REFERENCE_ACTION, ReceiverState, ReferenceRequest,
    WRITE_TOKEN_ACTION, WriteCommand, action_name, decode_listing, from_json, hashes_to_text, to_json,
};
use crate::credentials::Credentials;
use crate::error::TransferError;
use crate::fetch_request::FetchRequest;
use crate::file_listing::{Entry, EntryFailure, LinkPolicy, Listing};
use crate::location::RemoteLocation;
use crate::path_text::escape_for_display;
use crate::server_errors::{error_from_status, is_transient, is_unanswered};
use crate::server_outage::ServerOutage;
use crate::tcp_tuning::connection_tcp_info;
use godwit_transfer_session::copy_events::{CopyEvent, CopySummary};

/// Longest time to open a connection. It allows two TCP SYNs, the second after 1 s, so that a restored path is detected
/// soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay between two attempts of a call.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(500);
/// HTTP/2 flow-control window of a connection if the copy has few connections: enough for 1 Gbit/s at an RTT of 250 ms.
const FLOW_CONTROL_WINDOW_BYTES: u32 = 32 << 20;
/// Sum of the HTTP/2 flow-control windows of all connections of a copy, and the smallest window of a connection. If
/// either end stops, all data in flight must be sent again, so the sum is limited. With 16 connections the sum allows 1
/// Gbit/s at an RTT of 200 ms; longer or faster paths get more connections.
const SHARED_FLOW_CONTROL_WINDOW_BYTES: u32 = 24 << 20;
const MIN_FLOW_CONTROL_WINDOW_BYTES: u32 = 3 << 19;
/// HTTP/2 flow-control window for responses without blocks, bytes. The client does not read prefetched blocks before it
/// has received the list of entries.
const CONTROL_WINDOW_BYTES: u32 = 1 << 20;

/// A client of one server, or of one member of a pool at a time.
pub(crate) struct ControlClient {
    location: RemoteLocation,
    target: ControlTarget,
    /// The connection for calls, and the time at which it was opened; `None` if that time is unknown.
    client: Mutex<Option<(Client, Option<Instant>)>>,
    retry_timeout: Duration,
    outage: Arc<ServerOutage>,
    window_bytes: AtomicU32,
}

/// The server or pool that the client calls.
enum ControlTarget {
    Server(ConnectionSecurity<ClientTls>),
    Pool(Arc<Pool>, Box<PoolConnection>),
}

/// The state of the connection to a pool: the leased member, and whether it changed.
#[derive(Default)]
struct PoolConnection {
    lease: tokio::sync::Mutex<Option<MemberLease>>,
    /// True if this copy used another member of the pool before the current member.
    has_moved: AtomicBool,
    /// True if an upload session was started at a member of the pool.
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

/// Connects to a server with the flow-control window for copies with few connections.
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
    /// Returns a client that has no connection yet.
    pub(crate) fn new(
        remote: &RemoteLocation,
        credentials: &Credentials,
        retry_timeout: Duration,
    ) -> Result<Self, TransferError> {
        let target = if remote.is_pool {
            let none = || TransferError::rejected(format!("no pool file defines the pool {}", remote.server_uri()));
            let pool = credentials.pools.get(&remote.host).ok_or_else(none)?;
            ControlTarget::Pool(pool.clone(), Box::default())
        } else {
            ControlTarget::Server(credentials.server_access(remote)?)
        };
        let retry_timeout = match &target {
            ControlTarget::Pool(pool, _) => retry_timeout.min(pool.wait_timeout()),
            ControlTarget::Server(_) => retry_timeout,
        };
        let (window_bytes, client) = (AtomicU32::new(FLOW_CONTROL_WINDOW_BYTES), Mutex::default());
        let outage = Arc::new(ServerOutage::new(remote.server_uri(), Arc::new(|_| ())));
        Ok(Self { location: remote.clone(), target, client, retry_timeout, outage, window_bytes })
    }

    /// Shares the record of outages with other clients of the same server or pool.
    pub(crate) fn with_outage(self, outage: Arc<ServerOutage>) -> Self {
        Self { outage, ..self }
    }

    /// Sets the number of connections of the copy, which share the total flow-control window equally.
    pub(crate) fn set_stream_count(&self, streams: u32) {
        let window = (SHARED_FLOW_CONTROL_WINDOW_BYTES / streams.max(1)).max(MIN_FLOW_CONTROL_WINDOW_BYTES);
        self.window_bytes.store(window, Ordering::Relaxed);
    }

    fn transport_tuning(&self) -> TransportOptions {
        transport_tuning(self.window_bytes.load(Ordering::Relaxed))
    }

    /// Connects without retries. An unreachable server is an immediate error; for a pool, the call waits for a free
    /// member.
    pub(crate) async fn open(&self) -> Result<(), TransferError> {
        let client = self.open_connection().await?;
        self.set_new_client(client);
        Ok(())
    }

    /// Returns a client that is connected to a server.
    pub(crate) async fn connect(
        remote: &RemoteLocation,
        credentials: &Credentials,
        retry_timeout: Duration,
    ) -> Result<Self, TransferError> {
        let control = Self::new(remote, credentials, retry_timeout)?;
        control.open().await?;
        Ok(control)
    }

    /// Reports whether this client calls a pool of servers.
    pub(crate) fn is_pool(&self) -> bool {
        matches!(self.target, ControlTarget::Pool(..))
    }

    /// Makes `client`, which was opened just now, the connection that carries all later calls.
    fn set_new_client(&self, client: Client) {
        *self.client.lock() = Some((client, Some(Instant::now())));
    }

    /// Returns the open connection for calls; `None` if it is closed.
    pub(crate) fn current_client(&self) -> Option<Client> {
        self.client.lock().as_ref().map(|(client, _)| client.clone())
    }

    /// Makes `client`, which was opened at an unknown time, the connection that carries all later calls.
    pub(crate) fn use_client(&self, client: Client) {
        *self.client.lock() = Some((client, None));
    }

    /// Opens a further connection to the server or to the leased member of the pool.
    pub(crate) async fn open_connection(&self) -> Result<Client, FlightError> {
        match &self.target {
            ControlTarget::Server(access) => connect_with_tuning(&self.location, access, self.transport_tuning()).await,
            ControlTarget::Pool(pool, connection) => self.open_pool_connection(pool, connection).await,
        }
    }

    /// Opens a further connection to the leased member of a pool or, if that member does not respond, to a new member.
    async fn open_pool_connection(&self, pool: &Pool, found: &PoolConnection) -> Result<Client, FlightError> {
        let before = found.lease.lock().await.clone();
        if let Some(lease) = &before
            && let Ok(client) = pool.connect_to_same(lease, &self.transport_tuning()).await
        {
            return Ok(client);
        }
        let mut held = found.lease.lock().await;
        // Another connection of this copy may have detected the loss of the member earlier and leased a new member.
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
        let lease = pool.lease(&self.transport_tuning()).await?;
        let client = lease.client.clone();
        self.set_new_client(client.clone());
        *held = Some(lease);
        Ok(client)
    }

    /// Reports whether an upload session was started at another member of the pool.
    fn has_session_on_other_member(&self) -> bool {
        matches!(&self.target, ControlTarget::Pool(_, state) if state.has_started_session.load(Ordering::Relaxed))
            && self.has_moved()
    }

    /// Reports whether this copy used another member of the pool before the current member.
    pub(crate) fn has_moved(&self) -> bool {
        matches!(&self.target, ControlTarget::Pool(_, state) if state.has_moved.load(Ordering::Relaxed))
    }

    /// Returns the round-trip time (RTT) that TCP measured on the current connection; zero if there is no connection.
    pub(crate) fn rtt(&self) -> Duration {
        let info = self.current_client().and_then(|client| connection_tcp_info(client.socket_handle()));
        Duration::from_micros(info.map_or(0, |info| info.rtt_us.into()))
    }

    /// Calls a Flight action; retries until the timeout if the connection fails.
    async fn call_action(&self, kind: &str, body: Vec<u8>) -> Result<Vec<Bytes>, FlightError> {
        self.call_action_counting_attempts(kind, body).await.0
    }

    /// Calls an action as [`Self::call_action`] does, and also returns the number of attempts. After several attempts,
    /// the server may have carried out the action more than once.
    pub(crate) async fn call_action_counting_attempts(
        &self,
        kind: &str,
        body: Vec<u8>,
    ) -> (Result<Vec<Bytes>, FlightError>, u32) {
        let started = Instant::now();
        let body = Bytes::from(body);
        let mut attempts = 0;
        loop {
            let outcome = match self.connected_client().await {
                Ok(client) => {
                    attempts += 1;
                    client.do_action(&action_name(kind), body.clone()).await
                }
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if self.is_retried(&error, started) => {
                    self.disconnect();
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                outcome => {
                    if outcome.is_ok() {
                        self.record_answer();
                    }
                    return (outcome, attempts);
                }
            }
        }
    }

    /// Records that the server has answered a call.
    pub(crate) fn record_answer(&self) {
        self.outage.record_answer();
    }

    /// Records the error of an attempt of a call, and reports whether the call is repeated: for the retry timeout from
    /// `started`, the beginning of the call, but not if no server has answered any call for this time. So calls that begin
    /// in a long outage fail after one attempt, also if a program makes many of them one after another.
    pub(crate) fn is_retried(&self, error: &FlightError, started: Instant) -> bool {
        self.is_retried_at(Instant::now(), error, started)
    }

    fn is_retried_at(&self, now: Instant, error: &FlightError, started: Instant) -> bool {
        let outage = if is_unanswered(error) {
            self.outage.record_failure(now, now, error)
        } else {
            self.record_answer();
            Duration::ZERO
        };
        is_transient(error) && now.saturating_duration_since(started).max(outage) < self.retry_timeout
    }

    /// Returns the longest time for which failed calls are retried.
    pub(crate) fn retry_timeout(&self) -> Duration {
        self.retry_timeout
    }

    /// Drops the current connection, which has failed; the next call opens another one.
    pub(crate) fn disconnect(&self) {
        *self.client.lock() = None;
    }

    /// Returns the current connection; opens one if there is none, or if it was opened before an outage that has not
    /// ended: its failure would not show that the server still does not answer.
    pub(crate) async fn connected_client(&self) -> Result<Client, FlightError> {
        let current = self.client.lock().clone();
        if let Some((client, opened)) = current
            && client.is_open()
            && !self.outage.has_begun_after(opened)
        {
            return Ok(client);
        }
        let started = Instant::now();
        let opened = self.open_connection().await;
        let client = opened.inspect_err(|error| {
            self.outage.record_failure(started, Instant::now(), error);
        })?;
        self.set_new_client(client.clone());
        Ok(client)
    }

    /// Lists the entries below a path of the server.
    ///
    /// # Errors
    /// [`TransferError::Rejected`] if the server has an earlier version, which would follow links although `links`
    /// excludes it.
    pub(crate) async fn list_entries(&self, path: &str, links: LinkPolicy) -> Result<Listing, TransferError> {
        let listed = self.request_listing(path, links).await?.map_err(error_from_status)?;
        let (listing, knows_links) = decode_listing(listed)?;
        if knows_links || links == LinkPolicy::Follow {
            return Ok(listing);
        }
        let server = self.location.server_uri();
        Err(TransferError::rejected(format!(
            "{server} runs an earlier version of godwit, which always follows links; omit --links"
        )))
    }

    /// Lists the entries below a path; `None` if the path does not exist. Servers of earlier versions follow all links.
    pub(crate) async fn list_if_present(
        &self,
        path: &str,
        link_policy: LinkPolicy,
    ) -> Result<Option<Listing>, TransferError> {
        match self.request_listing(path, link_policy).await? {
            Err(FlightError::Status { status, .. }) if status.code() == Code::NotFound => Ok(None),
            listed => Ok(Some(decode_listing(listed.map_err(error_from_status)?)?.0)),
        }
    }

    async fn request_listing(
        &self,
        path: &str,
        link_policy: LinkPolicy,
    ) -> Result<Result<Vec<Bytes>, FlightError>, TransferError> {
        let body = to_json(&ListRequest { path: path.to_owned(), link_policy, per_entry_errors: true })?;
        Ok(self.call_action(LIST_ACTION, body).await)
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

    /// Returns the digest of a reference at the server that matches a local reference with these sequences; `None` if
    /// there is none. The unpacking end must have all sequences of the packing end; `client_packs` is true if this host
    /// packs.
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

    /// Reports whether the server accepts links and names that are not UTF-8, and returns a separate error for each
    /// entry.
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

    /// Starts an upload session. Returns the session name and, for each file, its state at the server or the error.
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
        if let ControlTarget::Pool(_, connection) = &self.target {
            connection.has_started_session.fetch_or(!dry_run, Ordering::Relaxed);
        }
        if have.len() != entries.len() {
            return Err(TransferError::rejected("the server's response lacks the state of some files"));
        }
        Ok((session.unwrap_or_default(), have))
    }

    /// Verifies an uploaded file at the server; returns the blocks that must be sent again.
    pub(crate) async fn finish_file(
        &self,
        session: &str,
        file: u32,
        hashes: &[BlockHash],
        discard_stale_only: bool,
    ) -> Result<RangeSet, FlightError> {
        let request =
            FinishRequest { session: session.to_owned(), file, hashes: hashes_to_text(hashes), discard_stale_only };
        let malformed = FlightError::Malformed { problem: "invalid response to the verification of a file" };
        let Ok(body) = to_json(&request) else { return Err(malformed) };
        let messages = self.call_action(FINISH_ACTION, body).await?;
        let proof = messages.first().and_then(|message| from_json::<FinishResponse>(message).ok());
        proof.map(|proof| proof.mismatched_blocks).ok_or(malformed)
    }

    /// Returns the URI of the server or pool.
    pub(crate) fn server_uri(&self) -> String {
        self.location.server_uri()
    }

    /// Requests a delegation token that allows another server to read below a path of this server.
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

    /// Requests a delegation token that allows another server to send the blocks of an upload session to this server.
    pub(crate) async fn request_write_token(&self, session: &str) -> Result<String, FlightError> {
        let malformed = FlightError::Malformed { problem: "invalid response to the request for a delegation token" };
        let Ok(body) = to_json(&WriteCommand { session: session.to_owned() }) else { return Err(malformed) };
        let messages = self.call_action(WRITE_TOKEN_ACTION, body).await?;
        messages.first().and_then(|message| from_json(message).ok()).ok_or(malformed)
    }

    /// Makes the server fetch files from another server; returns the summary and the entries that failed.
    pub(crate) async fn request_fetch(
        &self,
        request: &FetchRequest,
    ) -> Result<(CopySummary, Vec<EntryFailure>), TransferError> {
        let messages = self.call_action(FETCH_ACTION, to_json(request)?).await.map_err(error_from_status)?;
        let summary = from_json(messages.first().map(|message| &message[..]).unwrap_or_default())?;
        Ok((summary, parse_failures(messages.get(1))?))
    }

    /// Returns the events of a fetch since the previous call. A failed call is not retried.
    pub(crate) async fn fetch_events(&self, name: &str) -> Result<Vec<CopyEvent>, TransferError> {
        let Some(client) = self.current_client() else { return Ok(Vec::new()) };
        let messages =
            client.do_action(&action_name(FETCH_EVENTS_ACTION), to_json(&name)?).await.map_err(error_from_status)?;
        from_json(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// Ends an upload session; returns the entries that failed.
    pub(crate) async fn end_session(
        &self,
        session: &str,
        paths_to_remove: Vec<String>,
    ) -> Result<Vec<EntryFailure>, TransferError> {
        let body = to_json(&EndRequest { session: session.to_owned(), paths_to_remove, per_entry_errors: true })?;
        parse_failures(self.call_action(END_ACTION, body).await?.first())
    }
}

/// Parses the list of entries that a server could not copy. Servers of earlier versions do not send this list.
fn parse_failures(message: Option<&Bytes>) -> Result<Vec<EntryFailure>, TransferError> {
    let failures: Vec<EntryFailureMessage> = message.map_or(Ok(Vec::new()), |message| from_json(message))?;
    Ok(failures.into_iter().map(EntryFailureMessage::into_failure).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;

    const WAIT: Duration = Duration::from_secs(30);

    fn control_client() -> ControlClient {
        let Ok(Location::Remote(location)) = Location::parse("grpc+tcp://127.0.0.1:1/") else { unreachable!() };
        ControlClient::new(&location, &Credentials::default(), WAIT).unwrap()
    }

    #[test]
    fn a_call_that_begins_in_a_long_outage_is_not_repeated() {
        let (control, start) = (control_client(), Instant::now());
        let error = FlightError::MissingStatus { peer: "127.0.0.1:1".to_owned() };
        assert!(control.is_retried_at(start, &error, start));
        let later = start + WAIT;
        assert!(!control.is_retried_at(later, &error, later));
        let much_later = later + Duration::from_secs(3600);
        assert!(control.is_retried_at(much_later, &error, much_later), "the earlier outage says nothing");
        assert!(!control.is_retried_at(much_later + WAIT, &error, much_later));
        control.record_answer();
        assert!(control.is_retried_at(much_later + WAIT, &error, much_later + WAIT));
    }

    #[test]
    fn an_error_of_a_server_that_answers_is_repeated_and_ends_the_outage() {
        let (control, start) = (control_client(), Instant::now());
        let unanswered = FlightError::MissingStatus { peer: "127.0.0.1:1".to_owned() };
        let answered = FlightError::Malformed { problem: "damaged" };
        assert!(control.is_retried_at(start, &unanswered, start));
        let later = start + WAIT;
        assert!(control.is_retried_at(later, &answered, later));
        assert!(control.is_retried_at(later, &unanswered, later));
        assert!(!control.is_retried_at(later + WAIT, &answered, later));
    }
}
