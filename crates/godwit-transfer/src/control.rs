//! A server as a copy sees it: connections to it, and what is asked of it besides data.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use godwit_flight::pool::{Pool, Seat};
use godwit_flight::{Access, Address, Client, ClientTls, Code, ErrorReason, FlightError, Status, Token, Tuning};

use crate::copy::{CopyEvent, CopySummary};
use crate::error::TransferError;
use crate::manifest::{Entry, EntryFailure, Links, Listing};
use crate::names::shown;
use crate::place::Remote;
use crate::protocol::{
    BEGIN, BeginRequest, Begun, END, ENTRIES_PER_MESSAGE, EndRequest, FETCH, FINISH, FailureMessage, FinishRequest,
    GRANT, GRANT_WRITING, HAPPENED, Have, LIST, ListEnd, ListRequest, Proof, REFERENCE, ReferenceRequest, TREE,
    TreeRequest, WriteCommand, action, hashes_to_text, json, parse,
};
use crate::ranges::RangeSet;
use crate::third_party::FetchRequest;
use crate::tree::BlockHash;
use crate::tune::info;

/// How long a connection may take: two SYNs, the second after a second, so that a path that is back is found soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Wait between attempts.
const WAIT: Duration = Duration::from_millis(500);
/// Bytes that may be under way on a connection which is one of few: a gigabit at a quarter of a second.
const WINDOW_BYTES: u32 = 32 << 20;
/// Bytes that may be under way on connections that share a copy, and on each at least. What is under way, or waits to be read, is lost with either end. With
/// 16 connections that is a gigabit at a fifth of a second; paths that hold more get more connections.
const SHARED_WINDOW_BYTES: u32 = 24 << 20;
const LEAST_WINDOW_BYTES: u32 = 3 << 19;
/// Bytes of answers beside blocks that nobody reads yet: what was asked for ahead is not read before it is known what there is.
const BESIDE_BYTES: u32 = 1 << 20;

/// What lets a copy in to servers, and which of them it trusts.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The token to show.
    pub token: Option<Token>,
    /// Authorities whose servers are trusted, PEM.
    pub authority: Option<PathBuf>,
    /// Own certificate and key, PEM, where servers ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Pools of servers that places name, by name.
    pub pools: HashMap<String, Arc<Pool>>,
}

/// Authorities that the system trusts, where nothing else is said.
const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

impl Credentials {
    /// What lets a client in to a server.
    ///
    /// # Errors
    /// [`TransferError::Refused`] where a certificate is none, or there is nobody to trust.
    pub fn access(&self, remote: &Remote) -> Result<Access<ClientTls>, TransferError> {
        let tls = if remote.encrypted {
            let system = || SYSTEM_AUTHORITIES.iter().map(PathBuf::from).find(|path| path.exists());
            let none = || TransferError::refused("this system has no list of authorities; give --ca FILE");
            let authority = self.authority.clone().or_else(system).ok_or_else(none)?;
            let identity = self.identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
            let tls = ClientTls::from_files(&authority, &remote.host, identity);
            Some(tls.map_err(|error| TransferError::refused(godwit_model::with_causes(&error)))?)
        } else {
            None
        };
        Ok(Access { token: self.token.clone(), tls })
    }
}

/// A server, or a pool of servers of which one is used at a time.
pub(crate) struct Control {
    remote: Remote,
    way: Way,
    client: Mutex<Option<Client>>,
    patience: Duration,
    window_bytes: AtomicU32,
}

/// How it is reached.
enum Way {
    Server(Access<ClientTls>),
    Pool(Arc<Pool>, Box<PoolSeat>),
}

/// Which server of a pool is used.
#[derive(Default)]
struct PoolSeat {
    seat: tokio::sync::Mutex<Option<Seat>>,
    /// Whether it was another one before.
    moved: AtomicBool,
    /// Whether a session of files was begun at one of them.
    began: AtomicBool,
}

fn tuning(window_bytes: u32) -> Tuning {
    Tuning {
        stream_window_bytes: window_bytes,
        connection_window_bytes: window_bytes + BESIDE_BYTES,
        connect_timeout: CONNECT_TIMEOUT,
        ..Tuning::default()
    }
}

/// Whether trying again may help: the way there broke, not what was asked.
pub(crate) fn is_passing(error: &FlightError) -> bool {
    match error {
        FlightError::Connect { source, .. } => source.kind() != std::io::ErrorKind::InvalidData,
        FlightError::Connection { .. }
        | FlightError::Broken { .. }
        | FlightError::MissingStatus { .. }
        | FlightError::Checksum { .. } => true,
        // Bits that flipped make messages that cannot be read.
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

/// What a server said, as an error of a copy.
pub(crate) fn told(error: FlightError) -> TransferError {
    match &error {
        FlightError::Status { status, .. } => {
            let problem = status.message().to_owned();
            match status.code() {
                Code::NotFound | Code::PermissionDenied => TransferError::refused(problem),
                Code::ResourceExhausted | Code::Aborted | Code::DataLoss | Code::FailedPrecondition => {
                    TransferError::Elsewhere { problem }
                }
                _ => error.into(),
            }
        }
        _ => error.into(),
    }
}

/// Whether a server cannot write what it takes.
pub(crate) fn is_full(error: &FlightError) -> bool {
    matches!(error, FlightError::Status { status, .. } if status.code() == Code::ResourceExhausted)
}

/// The message of a relay where the server behind it does not accept the grant: it was restarted, or the grant is too old.
// Clients of versions before `ErrorReason` look for this text.
pub(crate) const GRANT_ENDED: &str = "what was granted is not known there";

/// Returns whether a relay has to be given another grant.
pub(crate) fn lost_grant(error: &FlightError) -> bool {
    reason_of(error) == Some(ErrorReason::GrantRejected)
}

/// Returns whether a server was restarted since a session began.
pub(crate) fn lost_session(error: &FlightError) -> bool {
    reason_of(error) == Some(ErrorReason::UnknownSession)
}

fn reason_of(error: &FlightError) -> Option<ErrorReason> {
    let FlightError::Status { status, .. } = error else { return None };
    ErrorReason::of(status).or_else(|| reason_in_text_of_earlier_version(status))
}

/// Reads the reason of a status of a server, or of a relay, of a version before [`ErrorReason`]: those sent texts only, and these are
/// their texts. This is the only place where a message decides.
fn reason_in_text_of_earlier_version(status: &Status) -> Option<ErrorReason> {
    [
        ("this session is not known here", ErrorReason::UnknownSession),
        ("what was granted is not known there", ErrorReason::GrantRejected),
    ]
    .into_iter()
    .find_map(|(text, reason)| status.message().contains(text).then_some(reason))
}

/// A connection to a server, as one of few.
pub(crate) async fn client(remote: &Remote, access: &Access<ClientTls>) -> Result<Client, FlightError> {
    connected(remote, access, tuning(WINDOW_BYTES)).await
}

async fn connected(remote: &Remote, access: &Access<ClientTls>, tuning: Tuning) -> Result<Client, FlightError> {
    let server = remote.server();
    let unknown = |source| FlightError::Connect { address: server, source };
    let named = remote.clone();
    let found = tokio::task::spawn_blocking(move || named.address()).await;
    let address = match found.map_err(std::io::Error::other) {
        Ok(Ok(address)) => address,
        Ok(Err(error)) | Err(error) => return Err(unknown(error)),
    };
    Client::connect(&Address::Tcp(address), access.clone(), tuning).await
}

impl Control {
    /// A server that is not connected to yet.
    pub(crate) fn new(remote: &Remote, credentials: &Credentials, patience: Duration) -> Result<Self, TransferError> {
        let way = if remote.pool {
            let none = || TransferError::refused(format!("{} is no pool that is known here", remote.server()));
            let pool = credentials.pools.get(&remote.host).ok_or_else(none)?;
            Way::Pool(pool.clone(), Box::default())
        } else {
            Way::Server(credentials.access(remote)?)
        };
        let patience = match &way {
            Way::Pool(pool, _) => patience.min(pool.patience()),
            Way::Server(_) => patience,
        };
        let window_bytes = AtomicU32::new(WINDOW_BYTES);
        Ok(Self { remote: remote.clone(), way, client: Mutex::new(None), patience, window_bytes })
    }

    /// Connections from now on are so many that share a copy: the more there are, the less each has under way.
    pub(crate) fn share(&self, streams: u32) {
        let window = (SHARED_WINDOW_BYTES / streams.max(1)).max(LEAST_WINDOW_BYTES);
        self.window_bytes.store(window, Ordering::Relaxed);
    }

    fn tuning(&self) -> Tuning {
        tuning(self.window_bytes.load(Ordering::Relaxed))
    }

    /// Connects once: a server that is not there is told at once; one of a pool is waited for.
    pub(crate) async fn open(&self) -> Result<(), TransferError> {
        let client = self.another().await?;
        self.set(Some(client));
        Ok(())
    }

    /// A server, connected to.
    pub(crate) async fn connect(
        remote: &Remote,
        credentials: &Credentials,
        patience: Duration,
    ) -> Result<Self, TransferError> {
        let control = Self::new(remote, credentials, patience)?;
        control.open().await?;
        Ok(control)
    }

    /// Whether it is one of several servers, which grant connections.
    pub(crate) fn is_pool(&self) -> bool {
        matches!(self.way, Way::Pool(..))
    }

    fn set(&self, client: Option<Client>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// The connection that calls go over, where there is one.
    pub(crate) fn current(&self) -> Option<Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls go over this connection from now on.
    pub(crate) fn call_over(&self, client: Client) {
        self.set(Some(client));
    }

    /// Another connection.
    pub(crate) async fn another(&self) -> Result<Client, FlightError> {
        match &self.way {
            Way::Server(access) => connected(&self.remote, access, self.tuning()).await,
            Way::Pool(pool, seat) => self.another_of(pool, seat).await,
        }
    }

    /// Another connection to the server that a pool granted, or to the next one where that does not answer.
    async fn another_of(&self, pool: &Pool, found: &PoolSeat) -> Result<Client, FlightError> {
        let before = found.seat.lock().await.clone();
        if let Some(seat) = &before
            && let Ok(client) = pool.beside(seat, &self.tuning()).await
        {
            return Ok(client);
        }
        let mut held = found.seat.lock().await;
        // Another connection may have found out first.
        match (&before, &*held) {
            (Some(before), Some(now)) if !before.is(now) => return pool.beside(now, &self.tuning()).await,
            (None, Some(now)) => return pool.beside(now, &self.tuning()).await,
            (Some(before), _) => {
                pool.lost(before.member);
                found.moved.store(true, Ordering::Relaxed);
            }
            (None, None) => {}
        }
        let seat = pool.seat(&self.tuning()).await?;
        let client = seat.client.clone();
        self.set(Some(client.clone()));
        *held = Some(seat);
        Ok(client)
    }

    /// Whether files were begun to be sent to another server of the pool.
    fn has_begun_elsewhere(&self) -> bool {
        matches!(&self.way, Way::Pool(_, seat) if seat.began.load(Ordering::Relaxed)) && self.has_moved()
    }

    /// Whether another server of the pool was used before this one.
    pub(crate) fn has_moved(&self) -> bool {
        matches!(&self.way, Way::Pool(_, seat) if seat.moved.load(Ordering::Relaxed))
    }

    /// Round-trip time of the connection, as its handshake took it.
    pub(crate) fn rtt(&self) -> Duration {
        let info = self.current().and_then(|client| info(client.wire()));
        Duration::from_micros(info.map_or(0, |info| info.rtt_us.into()))
    }

    /// Has the server do something, and again where the way there breaks.
    async fn act(&self, kind: &str, body: Vec<u8>) -> Result<Vec<Bytes>, FlightError> {
        let started = Instant::now();
        let body = Bytes::from(body);
        loop {
            let outcome = match self.current() {
                Some(client) => client.act(&action(kind), body.clone()).await,
                None => match self.another().await {
                    Ok(client) => {
                        self.set(Some(client));
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            match outcome {
                Err(error) if is_passing(&error) && started.elapsed() < self.patience => {
                    self.set(None);
                    tokio::time::sleep(WAIT).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// What is below a path.
    ///
    /// # Errors
    /// [`TransferError::Refused`] where the server is of an earlier version and would follow links that are not to be followed.
    pub(crate) async fn list(&self, path: &str, links: Links) -> Result<Listing, TransferError> {
        let (listing, knows_links) = self.list_as_it_can(path, links).await?;
        if knows_links || links == Links::Follow {
            return Ok(listing);
        }
        let server = self.remote.server();
        Err(TransferError::refused(format!(
            "{server} is of an earlier version, which follows links; leave --links out"
        )))
    }

    /// Lists the entries below a path, and returns whether the server supports links: earlier versions follow them.
    pub(crate) async fn list_as_it_can(&self, path: &str, links: Links) -> Result<(Listing, bool), TransferError> {
        let body = json(&ListRequest { path: path.to_owned(), links, each: true })?;
        let (mut listing, mut knows_links) = (Listing::default(), false);
        for message in self.act(LIST, body).await.map_err(told)? {
            if is_list_end(&message) {
                let ListEnd { failures, skipped_links } = parse(&message)?;
                listing.failures.extend(failures.into_iter().map(FailureMessage::into_failure));
                listing.skipped_links.extend(skipped_links);
                knows_links = true;
            } else {
                listing.entries.extend(parse::<Vec<Entry>>(&message)?);
            }
        }
        Ok((listing, knows_links))
    }

    /// Hashes of all blocks of a file in one state of it; `None` where it is another by now.
    pub(crate) async fn tree(&self, path: &str, version: u64) -> Result<Option<Vec<BlockHash>>, TransferError> {
        let body = json(&TreeRequest { path: path.to_owned(), version })?;
        match self.act(TREE, body).await {
            Ok(messages) => {
                Ok(Some(messages.iter().flat_map(|message| message.as_chunks().0.iter().copied()).collect()))
            }
            Err(FlightError::Status { status, .. }) if status.code() == Code::FailedPrecondition => Ok(None),
            Err(error) => Err(told(error)),
        }
    }

    /// Digest of a reference of the server that goes with one here of these sequences; `packs`: here.
    pub(crate) async fn reference(&self, sequences: Vec<String>, packs: bool) -> Result<Option<String>, TransferError> {
        let messages = self.act(REFERENCE, json(&ReferenceRequest { sequences, packs })?).await.map_err(told)?;
        parse(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// True if the server accepts links and names of any bytes, and answers for each file separately.
    pub(crate) async fn answers_for_each(&self, base: &str) -> Result<bool, TransferError> {
        let (session, base, entries) = (None, base.to_owned(), Vec::new());
        let request = BeginRequest { session, base, first: 0, entries, dry_run: true, take_over: false, each: true };
        let messages = self.act(BEGIN, json(&request)?).await.map_err(told)?;
        Ok(parse::<Begun>(messages.first().map(|message| &message[..]).unwrap_or_default())?.each)
    }

    /// Begins to send files; a session, and what is there of each, or why it cannot be sent.
    pub(crate) async fn begin(
        &self,
        base: &str,
        entries: &[Entry],
        dry_run: bool,
    ) -> Result<(String, Vec<Result<Have, TransferError>>), TransferError> {
        let mut have = Vec::new();
        let mut session: Option<String> = None;
        for (number, some) in entries.chunks(ENTRIES_PER_MESSAGE).enumerate() {
            let first = (number * ENTRIES_PER_MESSAGE) as u32;
            let (base, entries) = (base.to_owned(), some.to_vec());
            let take_over = self.has_begun_elsewhere();
            let request =
                BeginRequest { session: session.clone(), base, first, entries, dry_run, take_over, each: true };
            let messages = self.act(BEGIN, json(&request)?).await.map_err(told)?;
            let begun: Begun = parse(messages.first().map(|message| &message[..]).unwrap_or_default())?;
            session = Some(begun.session).filter(|session| !session.is_empty());
            have.extend(begun.have.into_iter().zip(some).map(|(have, entry)| match have {
                Have::Refused(why) => Err(why.into_error(&shown(&entry.path))),
                have => Ok(have),
            }));
        }
        if let Way::Pool(_, seat) = &self.way {
            seat.began.fetch_or(!dry_run, Ordering::Relaxed);
        }
        if have.len() != entries.len() {
            return Err(TransferError::refused("the server did not say what it has of each file"));
        }
        Ok((session.unwrap_or_default(), have))
    }

    /// Has a file proved that was sent; blocks that are to be sent again.
    pub(crate) async fn finish(
        &self,
        session: &str,
        file: u32,
        hashes: &[BlockHash],
        keep_only: bool,
    ) -> Result<RangeSet, FlightError> {
        let request = FinishRequest { session: session.to_owned(), file, hashes: hashes_to_text(hashes), keep_only };
        let malformed = FlightError::Malformed { problem: "its proof is not understood" };
        let Ok(body) = json(&request) else { return Err(malformed) };
        let messages = self.act(FINISH, body).await?;
        let proof = messages.first().and_then(|message| parse::<Proof>(message).ok());
        proof.map(|proof| proof.wrong).ok_or(malformed)
    }

    /// The server.
    pub(crate) fn server(&self) -> String {
        self.remote.server()
    }

    /// A token that lets another server read below a path.
    pub(crate) async fn grant(&self, path: &str) -> Result<String, TransferError> {
        let messages = self
            .act(GRANT, json(&ListRequest { path: path.to_owned(), links: Links::Follow, each: false })?)
            .await
            .map_err(told)?;
        parse(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// A token that lets another server send blocks of a session.
    pub(crate) async fn grant_writing(&self, session: &str) -> Result<String, FlightError> {
        let malformed = FlightError::Malformed { problem: "its grant is not understood" };
        let Ok(body) = json(&WriteCommand { session: session.to_owned() }) else { return Err(malformed) };
        let messages = self.act(GRANT_WRITING, body).await?;
        messages.first().and_then(|message| parse(message).ok()).ok_or(malformed)
    }

    /// Has the server fetch files from another, to the end; and what it could not fetch.
    pub(crate) async fn fetch(
        &self,
        request: &FetchRequest,
    ) -> Result<(CopySummary, Vec<EntryFailure>), TransferError> {
        let messages = self.act(FETCH, json(request)?).await.map_err(told)?;
        let summary = parse(messages.first().map(|message| &message[..]).unwrap_or_default())?;
        Ok((summary, failures_in(messages.get(1))?))
    }

    /// What happened to what the server fetches under a name, since it was last asked. Nothing is tried again.
    pub(crate) async fn happened(&self, name: &str) -> Result<Vec<CopyEvent>, TransferError> {
        let Some(client) = self.current() else { return Ok(Vec::new()) };
        let messages = client.act(&action(HAPPENED), json(&name)?).await.map_err(told)?;
        parse(messages.first().map(|message| &message[..]).unwrap_or_default())
    }

    /// Ends a session; returns what could not be ended.
    pub(crate) async fn end(&self, session: &str, remove: Vec<String>) -> Result<Vec<EntryFailure>, TransferError> {
        let body = json(&EndRequest { session: session.to_owned(), remove, each: true })?;
        failures_in(self.act(END, body).await?.first())
    }
}

/// The entries that a server could not copy. Earlier versions report none.
fn failures_in(message: Option<&Bytes>) -> Result<Vec<EntryFailure>, TransferError> {
    let failures: Vec<FailureMessage> = message.map_or(Ok(Vec::new()), |message| parse(message))?;
    Ok(failures.into_iter().map(FailureMessage::into_failure).collect())
}

/// Returns whether a message is the [`ListEnd`] of a list, an object. The others are arrays of entries, and earlier versions send
/// only those.
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
        assert!(lost_session(&reworded) && !lost_grant(&reworded));
        assert!(lost_session(&answered(TransferError::UnknownSession.into())));
        assert!(!lost_session(&answered(Status::resource_exhausted("no such upload"))));
        let full =
            answered(ErrorReason::GrantRejected.status(Code::FailedPrecondition, "this session is not known here"));
        assert!(!lost_session(&full));
    }

    #[test]
    fn a_lost_grant_is_recognised_by_its_reason_whatever_the_message_is() {
        let reworded = answered(ErrorReason::GrantRejected.status(Code::FailedPrecondition, "s: the grant expired"));
        assert!(lost_grant(&reworded) && !lost_session(&reworded));
        assert!(!lost_grant(&answered(Status::failed_precondition("s: the grant expired"))));
    }

    #[test]
    fn servers_before_reasons_are_understood_by_their_texts() {
        assert!(lost_session(&answered(Status::resource_exhausted("this session is not known here"))));
        let relayed = "grpc://s: what was granted is not known there: the token is missing or wrong";
        assert!(lost_grant(&answered(Status::failed_precondition(relayed))));
        // Clients of that version look for the same texts.
        assert!(Status::from(TransferError::UnknownSession).message().contains("this session is not known here"));
        assert_eq!(GRANT_ENDED, "what was granted is not known there");
    }
}
