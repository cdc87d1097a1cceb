//! The client's side of a pool: a connection to the assigned member, and failover to another when that is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tonic::Code;

use super::connection_counter::format_lease_header;
use super::load_balancer::MemberLeaseId;
use super::membership::Member;
use super::messages::{
    MAX_MESSAGE_BYTES, MemberLeaseRequest, MemberLeaseResponse, POOL_LEASE_ACTION, POOL_STATUS_ACTION, parse_message,
};
use crate::client::Client;
use crate::error::FlightError;
use crate::sql::random_bytes;
use crate::transport::{Address, TransportOptions};

/// Interval of a client's health probes, over a connection of their own: on one that carries data they would wait behind
/// megabytes. A host that lost its power sends nothing, and TCP would wait for a quarter of an hour.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Body of a status request that needs no arrived leases.
const PROBE_BODY: &[u8] = b"look";
/// A probe that takes longer is repeated over another connection, while the first one still counts.
const PROBE_RETRY_DELAY: Duration = Duration::from_millis(450);
/// A member that answered neither by then is lost: with the interval, 1.5 s after it fell silent at the latest.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1200);
/// Time limit to connect and receive a response: the kernel accepts connections for a stopped process, which never responds.
const MEMBER_TIMEOUT: Duration = Duration::from_millis(1500);
/// Delay before the next member is requested as well.
const NEXT_MEMBER_DELAY: Duration = Duration::from_millis(250);
/// Most locations of a response that are used.
const MAX_LOCATIONS: usize = 16;
/// Time for which a lost member is tried last.
const SUSPECT_DURATION: Duration = Duration::from_secs(3);
/// Delay after a round in which no member answered.
const ROUND_DELAY: Duration = Duration::from_millis(300);

/// Options for waiting: a time limit and a callback.
#[derive(Clone)]
pub struct WaitOptions {
    /// Longest wait while no member answers.
    pub timeout: Duration,
    /// Is called when waiting starts, and for each lost member.
    pub notify: Arc<dyn Fn(&PoolNotice) + Send + Sync>,
}

/// A change of a pool that its client reports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolNotice {
    /// A member was lost, and another one is used.
    #[error("pool {pool}: {member} is lost; going on at another node")]
    MemberLost {
        /// Name of the pool.
        pool: String,
        /// Location of the member.
        member: String,
    },
    /// No member answers, and they are asked again.
    #[error("no node of the pool {pool} answers; waiting up to {seconds} s")]
    Waiting {
        /// Name of the pool.
        pool: String,
        /// Time limit, seconds.
        seconds: u64,
    },
}

impl PoolNotice {
    /// Returns a stable name for programs, which do not read the text.
    pub fn code(&self) -> &'static str {
        match self {
            Self::MemberLost { .. } => "member_lost",
            Self::Waiting { .. } => "waiting_for_pool",
        }
    }
}

/// A pool, on the client's side.
pub struct Pool {
    name: String,
    members: Vec<Member>,
    wait_options: WaitOptions,
    /// The time at which a member was found lost.
    lost_at: Mutex<Vec<Option<Instant>>>,
}

/// A connection to a pool member. While it is held, the member is probed; its connections are closed when it is lost.
#[derive(Clone)]
pub struct MemberLease {
    /// 0-based index of the pool's member.
    pub member: usize,
    /// The connection.
    pub client: Client,
    id: MemberLeaseId,
    lost: watch::Receiver<bool>,
    _health_probe: Arc<HealthProbe>,
}

impl MemberLease {
    /// Reports whether two values are the same lease.
    pub fn is_same_lease(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// A task that is aborted when it is dropped.
struct HealthProbe(tokio::task::JoinHandle<()>);

impl Drop for HealthProbe {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The answer to a lease request.
struct MemberLeaseOffer {
    /// The member that answered, and the connection to it.
    answered_by: usize,
    client: Client,
    /// All members, in order of preference.
    members: Vec<usize>,
}

impl Pool {
    /// Creates a pool of these members, in the order of its file.
    pub fn new(name: &str, members: Vec<Member>, wait_options: WaitOptions) -> Self {
        let lost_at = Mutex::new(vec![None; members.len()]);
        Self { name: name.to_owned(), members, wait_options, lost_at }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns how long to wait while no member answers.
    pub fn wait_timeout(&self) -> Duration {
        self.wait_options.timeout
    }

    fn lock_lost_at(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        self.lost_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a member as lost, and reports it.
    pub fn report_lost(&self, member: usize) {
        self.mark_lost(member);
        let member = self.members[member].location.clone();
        (self.wait_options.notify)(&PoolNotice::MemberLost { pool: self.name.clone(), member });
    }

    fn mark_lost(&self, member: usize) {
        self.lock_lost_at()[member] = Some(Instant::now());
    }

    /// Returns the members, split into trusted ones and those that were lost recently.
    fn trusted_and_suspect(&self) -> (Vec<usize>, Vec<usize>) {
        let suspects = self.lock_lost_at();
        let is_suspect =
            |member: &usize| suspects[*member].is_some_and(|since: Instant| since.elapsed() < SUSPECT_DURATION);
        (0..self.members.len()).partition(|member| !is_suspect(member))
    }

    /// Connects to the member that the pool assigns. Where no member answers, all are requested again until the time limit.
    ///
    /// # Errors
    /// [`FlightError::Connect`] where none answered in time; other variants where a member rejects this client.
    pub async fn lease(&self, options: &TransportOptions) -> Result<MemberLease, FlightError> {
        let started = Instant::now();
        let lease_id = MemberLeaseId::from_le_bytes(random_bytes());
        let options = with_connect_timeout(options);
        let mut told = false;
        loop {
            if let Some(seat) = self.try_lease(lease_id, &options).await? {
                return Ok(seat);
            }
            let (waited, most) = (started.elapsed(), self.wait_options.timeout);
            if waited >= most {
                let problem = format!("none of its {} nodes answered for {} s", self.members.len(), most.as_secs());
                let source = std::io::Error::new(std::io::ErrorKind::TimedOut, problem);
                return Err(FlightError::Connect { address: format!("godwit+pool://{}", self.name), source });
            }
            if !told {
                told = true;
                let seconds = most.as_secs();
                (self.wait_options.notify)(&PoolNotice::Waiting { pool: self.name.clone(), seconds });
            }
            tokio::time::sleep(ROUND_DELAY.min(most - waited)).await;
        }
    }

    /// Opens another connection to the member of a lease.
    ///
    /// # Errors
    /// [`FlightError`] where the member is lost or unreachable.
    pub async fn connect_to_same(&self, seat: &MemberLease, options: &TransportOptions) -> Result<Client, FlightError> {
        if *seat.lost.borrow() {
            return Err(timeout_error(&self.members[seat.member].location));
        }
        let client = self.connect(seat.member, &with_connect_timeout(options), Some(seat.lost.clone())).await?;
        Ok(client.with_lease(seat.id))
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
        for member in members {
            let looked = match member == answered_by {
                true => Ok(client.clone()),
                false => self.connect_and_probe(member, options).await,
            };
            let seat = match looked {
                Ok(look) => self.lease_at(member, look, lease_id, options).await,
                Err(error) => Err(error),
            };
            match seat {
                Ok(seat) => return Ok(Some(seat)),
                Err(error) if is_member_lost(&error) => self.mark_lost(member),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Creates a lease at a member; the connection on which it answered is used for health probes.
    async fn lease_at(
        &self,
        member: usize,
        look: Client,
        id: MemberLeaseId,
        tuning: &TransportOptions,
    ) -> Result<MemberLease, FlightError> {
        let (found, lost) = watch::channel(false);
        let client = self.connect(member, tuning, Some(lost.clone())).await?.with_lease(id);
        let look = HealthProbe(tokio::spawn(watch_health(self.members[member].clone(), look, found)));
        Ok(MemberLease { member, client, id, lost, _health_probe: Arc::new(look) })
    }

    /// Requests a lease: from the first member, and from the next ones as well after a delay; `None` where none answers.
    async fn request_lease(
        &self,
        grant: MemberLeaseId,
        options: &TransportOptions,
    ) -> Result<Option<MemberLeaseOffer>, FlightError> {
        let (trusted, suspects) = self.trusted_and_suspect();
        let named = |members: &[usize]| members.iter().map(|member| self.members[*member].location.clone()).collect();
        // Where all members were lost, they are equally likely to be back.
        let avoid: Vec<String> = if trusted.is_empty() { Vec::new() } else { named(&suspects) };
        let request = MemberLeaseRequest { id: format_lease_header(grant), avoid, forwarded: false };
        let request = serde_json::to_vec(&request).map(Bytes::from);
        let request = request.map_err(|_| FlightError::Malformed { problem: "it cannot be written" })?;
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
                Err(error) if is_member_lost(&error) => self.mark_lost(member),
                Err(error) => refused = Some(error),
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
        let asked = async {
            let client = self.connect(member, tuning, None).await?;
            match client.first_action_result(POOL_LEASE_ACTION, request, MAX_MESSAGE_BYTES).await {
                Ok(answer) => {
                    let granted: Option<MemberLeaseResponse> = parse_message(&answer);
                    let locations = granted.map(|granted| granted.locations).unwrap_or_default();
                    Ok((client, self.members_at(&locations).await))
                }
                // A server that does not know pools is used directly.
                Err(FlightError::Status { status, .. }) if is_unsupported(status.code()) => Ok((client, Vec::new())),
                Err(error) => Err(error),
            }
        };
        with_member_timeout(asked, &self.members[member].location).await
    }

    /// Returns the members at these locations. Members may use other locations than this client, which resolved a host name.
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

    /// Returns the members that a response names, then the others. Where it names no known one, the start is random.
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

    /// Connects, and checks that the member answers.
    async fn connect_and_probe(&self, member: usize, tuning: &TransportOptions) -> Result<Client, FlightError> {
        let asked = async {
            let client = self.connect(member, tuning, None).await?;
            probe(&client).await?;
            Ok(client)
        };
        with_member_timeout(asked, &self.members[member].location).await
    }
}

/// Probes the health of a member.
async fn probe(client: &Client) -> Result<(), FlightError> {
    match client.first_action_result(POOL_STATUS_ACTION, PROBE_BODY, MAX_MESSAGE_BYTES).await {
        Err(FlightError::Status { status, .. }) if is_unsupported(status.code()) => Ok(()),
        answer => answer.map(drop),
    }
}

/// Probes a member until it is lost.
async fn watch_health(member: Member, mut client: Client, found: watch::Sender<bool>) {
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        match tokio::time::timeout(PROBE_TIMEOUT, probe_with_retry(&member, &client)).await {
            Ok(Some(answered)) => client = answered,
            Ok(None) | Err(_) => {
                found.send_replace(true);
                return;
            }
        }
    }
}

/// Returns the connection that answered first: this one, or another where it is slow or broken; `None`: the member is lost.
async fn probe_with_retry(member: &Member, client: &Client) -> Option<Client> {
    let is_there = |answer: Result<(), FlightError>| !answer.is_err_and(|error| is_member_lost(&error));
    let here = async { is_there(probe(client).await).then(|| client.clone()) };
    let again = async {
        let other =
            Client::connect(&member.address, member.security.clone(), TransportOptions::default()).await.ok()?;
        is_there(probe(&other).await).then_some(other)
    };
    tokio::pin!(here);
    // A broken connection fails at once, and is retried at once.
    let first = tokio::time::timeout(PROBE_RETRY_DELAY, here.as_mut()).await;
    if let Ok(Some(client)) = first {
        return Some(client);
    }
    tokio::pin!(again);
    if first.is_ok() {
        return again.await;
    }
    tokio::select! {
        Some(client) = here => Some(client),
        Some(client) = again => Some(client),
        else => None,
    }
}

/// Reports whether a code means that the server does not support the request.
fn is_unsupported(code: Code) -> bool {
    matches!(code, Code::Unimplemented | Code::InvalidArgument | Code::PermissionDenied)
}

async fn with_member_timeout<T>(
    work: impl Future<Output = Result<T, FlightError>>,
    location: &str,
) -> Result<T, FlightError> {
    match tokio::time::timeout(MEMBER_TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(timeout_error(location)),
    }
}

fn timeout_error(location: &str) -> FlightError {
    FlightError::Connect { address: location.to_owned(), source: std::io::ErrorKind::TimedOut.into() }
}

/// Limits the time to connect.
fn with_connect_timeout(tuning: &TransportOptions) -> TransportOptions {
    TransportOptions { connect_timeout: MEMBER_TIMEOUT, ..tuning.clone() }
}

/// Reports whether an error means that a member is lost or stopping, as opposed to a rejection.
pub(super) fn is_member_lost(error: &FlightError) -> bool {
    match error {
        // Waiting does not help against an untrusted certificate.
        FlightError::Connect { source, .. } => source.kind() != std::io::ErrorKind::InvalidData,
        FlightError::Connection { .. } | FlightError::Io { .. } | FlightError::MissingStatus { .. } => true,
        FlightError::Status { status, .. } => status.code() == Code::Unavailable,
        _ => false,
    }
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

    #[tokio::test]
    async fn a_pool_without_a_responding_member_is_reported_in_time() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = told.clone();
        let notify = Arc::new(move |notice: &PoolNotice| hears.lock().unwrap().push(notice.clone()));
        // Port 1 of an unused address: the connection is refused at once.
        let pool = Pool {
            wait_options: WaitOptions { timeout: Duration::from_millis(10), notify },
            ..pool(&[("n", "127.0.0.3:1")])
        };
        let error = pool.lease(&TransportOptions::default()).await.err().expect("nobody is there");
        assert!(matches!(&error, FlightError::Connect { address, .. } if address == "godwit+pool://p"), "{error}");
        assert_eq!(*told.lock().unwrap(), [PoolNotice::Waiting { pool: "p".to_owned(), seconds: 0 }]);
        pool.report_lost(0);
        let lost = told.lock().unwrap()[1].clone();
        assert_eq!(lost, PoolNotice::MemberLost { pool: "p".to_owned(), member: "n".to_owned() });
        assert_eq!(lost.code(), "member_lost");
    }
}
