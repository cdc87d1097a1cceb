//! The client's side of a pool: connects to the member that the pool assigns, and to another member when this one is
//! lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::watch;
use tonic::Code;

use super::membership::Member;
use super::messages::{
    MAX_MESSAGE_BYTES, MemberLeaseRequest, MemberLeaseResponse, POOL_LEASE_ACTION, POOL_STATUS_ACTION, parse_message,
};
use crate::client::Client;
use crate::error::FlightError;
use crate::lease_header::{MemberLeaseId, format_lease_header};
use crate::transport::{Address, TransportOptions};
use godwit_auth::random_bytes;
use godwit_model::message_with_causes;

/// Interval between health probes that a client sends to its member. TCP would detect a host without power only after
/// about 15 minutes. Probes use a separate connection, because on a data connection they would wait behind megabytes of
/// data.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Body of the status request that a client sends as a health probe.
const PROBE_BODY: &[u8] = b"look";
/// Time after which an unanswered probe is repeated over a new connection. A late answer to the first probe still
/// counts.
const PROBE_RETRY_DELAY: Duration = Duration::from_millis(450);
/// Time limit for an answer to either probe, after which the member is lost. Together with the interval, a lost member
/// is detected within 1.5 s.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1200);
/// Time limit for connecting to a member and receiving a response. Connecting alone proves nothing, because the kernel
/// accepts connections even for a suspended process.
const MEMBER_TIMEOUT: Duration = Duration::from_millis(1500);
/// Delay before a lease is also requested from the next member.
const NEXT_MEMBER_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of locations in a lease response that are used.
const MAX_LOCATIONS: usize = 16;
/// Time for which a member that was lost is tried only after all other members.
const SUSPECT_DURATION: Duration = Duration::from_secs(3);
/// Delay before the next attempt if no member answered.
const ROUND_DELAY: Duration = Duration::from_millis(300);

/// Options for waiting while no member answers.
#[derive(Clone)]
pub struct WaitOptions {
    /// Longest wait while no member answers.
    pub timeout: Duration,
    /// A callback for messages to the user, called when waiting starts and for each lost member.
    pub notify: Arc<dyn Fn(&PoolNotice) + Send + Sync>,
}

/// A change of the state of a pool that a client reports to its user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolNotice {
    /// A member was lost, and another one is used.
    #[error("pool {pool}: {member} is lost; continuing at another member")]
    MemberLost {
        /// Name of the pool.
        pool: String,
        /// Location of the member.
        member: String,
    },
    /// The certificate of a member is not trusted, and another member is used if there is one.
    #[error("pool {pool}: {member} is not used: {problem}")]
    MemberUntrusted {
        /// Name of the pool.
        pool: String,
        /// Location of the member.
        member: String,
        /// The reason, and the remedy.
        problem: String,
    },
    /// No member answers; the client repeats its requests until the time limit.
    #[error("no member of the pool {pool} answers; waiting up to {seconds} s")]
    Waiting {
        /// Name of the pool.
        pool: String,
        /// Time limit, seconds.
        seconds: u64,
    },
}

impl PoolNotice {
    /// Returns a stable, machine-readable name of the notice.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MemberLost { .. } => "member_lost",
            Self::MemberUntrusted { .. } => "member_untrusted",
            Self::Waiting { .. } => "waiting_for_pool",
        }
    }
}

/// A pool of servers, as a client uses it.
pub struct Pool {
    name: String,
    members: Vec<Member>,
    wait_options: WaitOptions,
    /// For each member, the last time at which the member was found lost.
    lost_at: Mutex<Vec<Option<Instant>>>,
    /// The members with untrusted certificates about which [`Pool::mark_failed`] has notified the user.
    untrusted: Mutex<HashSet<usize>>,
}

/// The assignment of a client to a pool member, with a connection. The client probes the member until the lease is
/// dropped, and closes the connections of the lease when the member is lost.
#[derive(Clone)]
pub struct MemberLease {
    /// 0-based index of the member in the pool.
    pub member: usize,
    /// The connection to the member.
    pub client: Client,
    id: MemberLeaseId,
    lost: watch::Receiver<bool>,
    _health_probe: Arc<HealthProbe>,
}

impl MemberLease {
    /// Returns whether two values are clones of the same lease.
    pub fn is_same_lease(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// The task that probes a member. The task is aborted when this value is dropped.
struct HealthProbe(tokio::task::JoinHandle<()>);

impl Drop for HealthProbe {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result of a lease request.
struct MemberLeaseOffer {
    /// Index of the member that answered; `client` is connected to this member.
    answered_by: usize,
    client: Client,
    /// Indexes of all members in the order in which they should be tried.
    members: Vec<usize>,
}

impl Pool {
    /// Creates a pool of these members, which must be in the order of the pool file.
    pub fn new(name: &str, members: Vec<Member>, wait_options: WaitOptions) -> Self {
        let lost_at = Mutex::new(vec![None; members.len()]);
        Self { name: name.to_owned(), members, wait_options, lost_at, untrusted: Mutex::default() }
    }

    /// Returns the name of the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of members.
    pub(super) fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Returns the maximum time to wait while no member answers.
    pub fn wait_timeout(&self) -> Duration {
        self.wait_options.timeout
    }

    /// Marks a member as lost, and notifies the user.
    pub fn report_lost(&self, member: usize) {
        self.mark_lost(member);
        let member = self.members[member].location.clone();
        (self.wait_options.notify)(&PoolNotice::MemberLost { pool: self.name.clone(), member });
    }

    /// Avoids a member for a while, without a notice.
    pub(super) fn mark_lost(&self, member: usize) {
        self.lost_at.lock()[member] = Some(Instant::now());
    }

    /// Avoids a member for a while because of an error, and notifies the user once if the certificate of the member is not
    /// trusted. If the member is not lost, sets `refused` to the error, unless that is already a rejected token.
    fn mark_failed(&self, member: usize, error: FlightError, refused: &mut Option<FlightError>) {
        let is_untrusted = matches!(error, FlightError::UntrustedCertificate { .. });
        if is_untrusted || error.is_server_lost() {
            self.mark_lost(member);
        }
        if is_untrusted && self.untrusted.lock().insert(member) {
            let (pool, member) = (self.name.clone(), self.members[member].location.clone());
            let problem = message_with_causes(&error);
            (self.wait_options.notify)(&PoolNotice::MemberUntrusted { pool, member, problem });
        }
        if !error.is_server_lost() {
            *refused = refused.take().filter(|before| code_of(before) == Some(Code::Unauthenticated)).or(Some(error));
        }
    }

    /// Returns two lists of member indexes: trusted members, and members that were lost recently.
    fn trusted_and_suspect(&self) -> (Vec<usize>, Vec<usize>) {
        let suspects = self.lost_at.lock();
        let is_suspect =
            |member: &usize| suspects[*member].is_some_and(|since: Instant| since.elapsed() < SUSPECT_DURATION);
        (0..self.members.len()).partition(|member| !is_suspect(member))
    }

    /// Connects to the member that the pool assigns. If no member answers, repeats the request to all members until the
    /// time limit.
    ///
    /// # Errors
    /// [`FlightError::Connect`] if no member answers within the time limit; other variants if a member rejects this
    /// client.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, ConnectionSecurity, Routes, Server, TransportOptions};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use godwit_flight::pool::{Member, Pool, PoolNotice, WaitOptions};
    ///
    /// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    /// let member = Member {
    ///     location: format!("grpc+tcp://{address}"),
    ///     address,
    ///     security: ConnectionSecurity::default(),
    ///     weight: 1,
    ///     capacity_bytes_per_s: None,
    /// };
    /// let notify = Arc::new(|notice: &PoolNotice| eprintln!("{notice}"));
    /// let wait_options = WaitOptions { timeout: Duration::from_secs(30), notify };
    /// let pool = Pool::new("archive", vec![member], wait_options);
    /// let lease = pool.lease(&TransportOptions::default()).await?;
    /// assert_eq!(lease.member, 0);
    /// assert!(lease.client.download("fixed/1/100/800/0/1").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lease(&self, options: &TransportOptions) -> Result<MemberLease, FlightError> {
        let started = Instant::now();
        let lease_id = MemberLeaseId::from_le_bytes(random_bytes());
        let options = with_connect_timeout(options);
        let mut has_notified = false;
        loop {
            if let Some(lease) = self.try_lease(lease_id, &options).await? {
                return Ok(lease);
            }
            let (waited, most) = (started.elapsed(), self.wait_options.timeout);
            if waited >= most {
                let problem = format!("none of its {} members answered for {} s", self.members.len(), most.as_secs());
                let source = std::io::Error::new(std::io::ErrorKind::TimedOut, problem);
                return Err(FlightError::Connect { address: format!("godwit+pool://{}", self.name), source });
            }
            if !has_notified {
                has_notified = true;
                let seconds = most.as_secs();
                (self.wait_options.notify)(&PoolNotice::Waiting { pool: self.name.clone(), seconds });
            }
            tokio::time::sleep(ROUND_DELAY.min(most - waited)).await;
        }
    }

    /// Opens another connection to the member of a lease.
    ///
    /// # Errors
    /// [`FlightError`] if the member is lost or unreachable.
    pub async fn connect_to_same(
        &self,
        lease: &MemberLease,
        options: &TransportOptions,
    ) -> Result<Client, FlightError> {
        if *lease.lost.borrow() {
            return Err(timeout_error(&self.members[lease.member].location));
        }
        let client = self.connect(lease.member, &with_connect_timeout(options), Some(lease.lost.clone())).await?;
        Ok(client.with_lease(lease.id))
    }

    async fn try_lease(
        &self,
        lease_id: MemberLeaseId,
        options: &TransportOptions,
    ) -> Result<Option<MemberLease>, FlightError> {
        let Some(MemberLeaseOffer { answered_by, client, members }) = self.request_lease(lease_id, options).await?
        else {
            return Ok(None);
        };
        let mut refused = None;
        for member in members {
            let look = (member == answered_by).then(|| client.clone());
            match self.lease_at(member, look, lease_id, options).await {
                Ok(lease) => return Ok(Some(lease)),
                Err(error) => self.mark_failed(member, error, &mut refused),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Connects to a member and creates its lease. `look`, the connection on which the member answered, if it has, is used
    /// for health probes.
    async fn lease_at(
        &self,
        member: usize,
        look: Option<Client>,
        id: MemberLeaseId,
        tuning: &TransportOptions,
    ) -> Result<MemberLease, FlightError> {
        let look = match look {
            Some(look) => look,
            None => self.connect_and_probe(member, tuning).await?,
        };
        let (found, lost) = watch::channel(false);
        let client = self.connect(member, tuning, Some(lost.clone())).await?.with_lease(id);
        let look = HealthProbe(tokio::spawn(watch_health(self.members[member].clone(), look, found)));
        Ok(MemberLease { member, client, id, lost, _health_probe: Arc::new(look) })
    }

    /// Requests a lease from the first member, and after increasing delays also from the next ones. Returns the first
    /// answer; `None` if no member answers.
    async fn request_lease(
        &self,
        grant: MemberLeaseId,
        options: &TransportOptions,
    ) -> Result<Option<MemberLeaseOffer>, FlightError> {
        let (trusted, suspects) = self.trusted_and_suspect();
        let named = |members: &[usize]| members.iter().map(|member| self.members[*member].location.clone()).collect();
        // If all members were lost recently, avoid none of them: any of them may be back.
        let avoid: Vec<String> = if trusted.is_empty() { Vec::new() } else { named(&suspects) };
        let request = MemberLeaseRequest { id: format_lease_header(grant), avoid, forwarded: false };
        let request = serde_json::to_vec(&request).map(Bytes::from);
        let request = request.map_err(|_| FlightError::Malformed { problem: "the request cannot be encoded" })?;
        let mut asking: FuturesUnordered<_> = (0u32..)
            .zip(trusted.iter().chain(&suspects).copied())
            .map(|(place, member)| {
                let request = request.clone();
                async move {
                    tokio::time::sleep(NEXT_MEMBER_DELAY * place).await;
                    (member, self.request_lease_from(member, request, options).await)
                }
            })
            .collect();
        let mut refused = None;
        while let Some((member, answer)) = asking.next().await {
            match answer {
                Ok((client, granted)) => return Ok(Some(self.order_members(member, client, granted, grant))),
                Err(error) => self.mark_failed(member, error, &mut refused),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    async fn request_lease_from(
        &self,
        member: usize,
        request: Bytes,
        tuning: &TransportOptions,
    ) -> Result<(Client, Vec<usize>), FlightError> {
        let calling = async {
            let client = self.connect(member, tuning, None).await?;
            match client.first_action_result(POOL_LEASE_ACTION, request, MAX_MESSAGE_BYTES).await {
                Ok(answer) => {
                    let granted: Option<MemberLeaseResponse> = parse_message(&answer);
                    let locations = granted.map(|granted| granted.locations).unwrap_or_default();
                    Ok((client, self.members_at(&locations).await))
                }
                // The server does not support pools: use this server.
                Err(error) if code_of(&error).is_some_and(is_unsupported) => Ok((client, Vec::new())),
                Err(error) => Err(error),
            }
        };
        with_member_timeout(calling, &self.members[member].location).await
    }

    /// Returns the indexes of the members at these locations. Locations may contain host names, which are resolved and
    /// compared with the addresses that this client uses.
    async fn members_at(&self, locations: &[String]) -> Vec<usize> {
        let mut found = Vec::new();
        for location in locations.iter().take(MAX_LOCATIONS) {
            if let Some(member) = self.members.iter().position(|member| member.location == *location) {
                found.push(member);
                continue;
            }
            let authority = location.split_once("://").and_then(|(_, rest)| rest.split('/').next());
            let addresses = tokio::net::lookup_host(authority.unwrap_or_default()).await;
            let addresses: Vec<Address> = addresses.into_iter().flatten().map(Address::Tcp).collect();
            found.extend(self.members.iter().position(|member| addresses.contains(&member.address)));
        }
        found
    }

    /// Orders all members: first those that the lease response names, then the others, starting with a random one.
    fn order_members(
        &self,
        answered_by: usize,
        client: Client,
        granted: Vec<usize>,
        grant: MemberLeaseId,
    ) -> MemberLeaseOffer {
        let mut members: Vec<usize> = Vec::new();
        let (mut trusted, suspects) = self.trusted_and_suspect();
        let count = trusted.len().max(1) as u64;
        trusted.rotate_left((grant % count) as usize);
        for member in granted.into_iter().chain(trusted).chain([answered_by]).chain(suspects) {
            if !members.contains(&member) {
                members.push(member);
            }
        }
        MemberLeaseOffer { answered_by, client, members }
    }

    async fn connect(
        &self,
        member: usize,
        tuning: &TransportOptions,
        lost: Option<watch::Receiver<bool>>,
    ) -> Result<Client, FlightError> {
        let Member { address, security, .. } = &self.members[member];
        Client::connect_until_lost(address, security.clone(), tuning.clone(), lost).await
    }

    /// Connects to a member, and checks by a probe that the member answers.
    async fn connect_and_probe(&self, member: usize, tuning: &TransportOptions) -> Result<Client, FlightError> {
        let calling = async {
            let client = self.connect(member, tuning, None).await?;
            probe(&client).await?;
            Ok(client)
        };
        with_member_timeout(calling, &self.members[member].location).await
    }
}

/// Sends a health probe to a member, and waits for the answer.
async fn probe(client: &Client) -> Result<(), FlightError> {
    match client.first_action_result(POOL_STATUS_ACTION, PROBE_BODY, MAX_MESSAGE_BYTES).await {
        Err(error) if code_of(&error).is_some_and(is_unsupported) => Ok(()),
        answer => answer.map(drop),
    }
}

/// Sends health probes to a member until the member is lost; then sets `found` to true.
async fn watch_health(member: Member, mut client: Client, found: watch::Sender<bool>) {
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let probed = tokio::time::timeout(PROBE_TIMEOUT, probe_with_retry(&member, &client)).await;
        let Ok(Some(connected)) = probed else { break };
        client = connected;
    }
    found.send_replace(true);
}

/// Probes a member over the given connection; if this is slow or fails, also over a new connection. Returns the
/// connection on which the member answered first; `None` if the member is lost.
async fn probe_with_retry(member: &Member, client: &Client) -> Option<Client> {
    let is_there = |answer: Result<(), FlightError>| !answer.is_err_and(|error| error.is_server_lost());
    let here = async { is_there(probe(client).await).then(|| client.clone()) };
    let again = async {
        let other =
            Client::connect(&member.address, member.security.clone(), TransportOptions::default()).await.ok()?;
        is_there(probe(&other).await).then_some(other)
    };
    tokio::pin!(here, again);
    // If the connection is broken, the probe fails immediately and is repeated immediately.
    if let Ok(first) = tokio::time::timeout(PROBE_RETRY_DELAY, here.as_mut()).await {
        return if first.is_some() { first } else { again.await };
    }
    tokio::select! {
        Some(client) = here => Some(client),
        Some(client) = again => Some(client),
        else => None,
    }
}

/// Returns the code of a status with which a server answered.
fn code_of(error: &FlightError) -> Option<Code> {
    if let FlightError::Status { status, .. } = error { Some(status.code()) } else { None }
}

/// Returns whether a gRPC code means that the server does not support the request.
fn is_unsupported(code: Code) -> bool {
    matches!(code, Code::Unimplemented | Code::InvalidArgument | Code::PermissionDenied)
}

async fn with_member_timeout<T>(
    work: impl Future<Output = Result<T, FlightError>>,
    location: &str,
) -> Result<T, FlightError> {
    tokio::time::timeout(MEMBER_TIMEOUT, work).await.unwrap_or_else(|_| Err(timeout_error(location)))
}

fn timeout_error(location: &str) -> FlightError {
    FlightError::Connect { address: location.to_owned(), source: std::io::ErrorKind::TimedOut.into() }
}

/// Returns the options with [`MEMBER_TIMEOUT`] as connect timeout.
fn with_connect_timeout(tuning: &TransportOptions) -> TransportOptions {
    TransportOptions { connect_timeout: MEMBER_TIMEOUT, ..tuning.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(addresses: &[(&str, &str)]) -> Pool {
        let member = |(location, address): &(&str, &str)| Member {
            location: (*location).to_owned(),
            address: Address::Tcp(address.parse().expect("an address")),
            security: crate::transport::ConnectionSecurity::default(),
            weight: 1,
            capacity_bytes_per_s: None,
        };
        let waiting = WaitOptions { timeout: Duration::ZERO, notify: Arc::new(|_| ()) };
        Pool::new("p", addresses.iter().map(member).collect(), waiting)
    }

    #[tokio::test]
    async fn members_are_recognised_by_location_or_address_and_other_texts_are_skipped() {
        let pool = pool(&[("grpc+tls://a.example:7", "127.0.0.1:7"), ("grpc+tls://b.example:7", "127.0.0.2:7")]);
        let named = |locations: &[&str]| locations.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let found = pool.members_at(&named(&["grpc+tls://b.example:7", "grpc+tcp://127.0.0.1:7/x"])).await;
        assert_eq!(found, [1, 0]);
        let nonsense = named(&["", "://", "grpc+tcp://", "grpc+tcp://127.0.0.1:8", "grpc+tcp://127.0.0.1:99999"]);
        assert!(pool.members_at(&nonsense).await.is_empty());
    }

    #[test]
    fn a_rejected_token_is_reported_although_another_member_cannot_be_used() {
        let pool = pool(&[("a", "127.0.0.1:7"), ("b", "127.0.0.2:7")]);
        let rejected = || FlightError::Status {
            peer: "a".to_owned(),
            status: Box::new(tonic::Status::unauthenticated("the token is wrong")),
        };
        let untrusted = || FlightError::UntrustedCertificate {
            address: "b".to_owned(),
            source: std::io::ErrorKind::InvalidData.into(),
        };
        for errors in [[rejected(), untrusted()], [untrusted(), rejected()], [rejected(), timeout_error("b")]] {
            let mut refused = None;
            errors.into_iter().enumerate().for_each(|(member, error)| pool.mark_failed(member, error, &mut refused));
            assert_eq!(refused.as_ref().and_then(code_of), Some(Code::Unauthenticated), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn a_pool_without_a_responding_member_is_reported_in_time() {
        let notices = Arc::new(Mutex::new(Vec::new()));
        let received_notices = notices.clone();
        let notify = Arc::new(move |notice: &PoolNotice| received_notices.lock().push(notice.clone()));
        // No server listens on port 1, so the kernel refuses the connection at once.
        let pool = Pool {
            wait_options: WaitOptions { timeout: Duration::from_millis(10), notify },
            ..pool(&[("n", "127.0.0.3:1")])
        };
        let error = pool.lease(&TransportOptions::default()).await.err().expect("no server listens");
        assert!(matches!(&error, FlightError::Connect { address, .. } if address == "godwit+pool://p"), "{error}");
        assert_eq!(*notices.lock(), [PoolNotice::Waiting { pool: "p".to_owned(), seconds: 0 }]);
        pool.report_lost(0);
        let lost = notices.lock()[1].clone();
        assert_eq!(lost, PoolNotice::MemberLost { pool: "p".to_owned(), member: "n".to_owned() });
        assert_eq!(lost.code(), "member_lost");
    }
}
