//! A client's side of a pool: a connection to the node that the pool grants, and another one where that is lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tonic::Code;

use super::membership::Member;
use super::messages::{GRANT, GrantRequest, Granted, MESSAGE_LIMIT_BYTES, STATUS, within};
use super::meter::grant_header;
use super::picker::GrantId;
use crate::client::Client;
use crate::error::FlightError;
use crate::sql::random_bytes;
use crate::transport::{Address, Tuning};

/// How often a client looks whether its node is there, over a connection for nothing else: what is asked on one that carries data waits behind
/// megabytes of them. A machine that lost its power says nothing, and TCP would wait for a quarter of an hour.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Says that whoever asks only wants an answer.
const LOOK: &[u8] = b"look";
/// An answer that takes longer is asked for once more, over another connection, while the first one is still waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(450);
/// A node that has answered neither by then is lost: with the interval, a second and a half after it fell silent at the latest.
const LOOK_WITHIN: Duration = Duration::from_millis(1200);
/// How long a node may take to be reached and to answer: a process that is stopped is connected to by its kernel, and never answers.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);
/// The next node is asked beside one that takes longer.
const HEAD_START: Duration = Duration::from_millis(250);
/// Locations of an answer that are looked at.
const MOST_LOCATIONS: usize = 16;
/// How long a node that was lost is asked last.
const SUSPECT_FOR: Duration = Duration::from_secs(3);
/// Between two rounds in which no node answered.
const WAIT: Duration = Duration::from_millis(300);

/// How long nodes are waited for, and who is told.
#[derive(Clone)]
pub struct Waiting {
    /// How long none of them may answer.
    pub most: Duration,
    /// Is told that it waits, and which node was lost.
    pub notice: Arc<dyn Fn(&PoolNotice) + Send + Sync>,
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
        /// For how long at most.
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

/// A pool as a client knows it.
pub struct Pool {
    name: String,
    members: Vec<Member>,
    waiting: Waiting,
    /// When a member was found lost.
    suspects: Mutex<Vec<Option<Instant>>>,
}

/// A place at a node of a pool. As long as it is held, the node is looked after; connections are given up when it is found lost.
#[derive(Clone)]
pub struct Seat {
    /// Which of the pool's members.
    pub member: usize,
    /// The connection.
    pub client: Client,
    grant: GrantId,
    lost: watch::Receiver<bool>,
    _look: Arc<Look>,
}

impl Seat {
    /// Whether it is the same grant.
    pub fn is(&self, other: &Self) -> bool {
        self.grant == other.grant
    }
}

/// A task that ends with whoever holds it.
struct Look(tokio::task::JoinHandle<()>);

impl Drop for Look {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What a node said that was asked which to use.
struct Asked {
    /// Which node it was, and the connection to it.
    at: usize,
    client: Client,
    /// All nodes, those that are to be used first.
    order: Vec<usize>,
}

impl Pool {
    /// A pool of these members, in the order of its file.
    pub fn new(name: &str, members: Vec<Member>, waiting: Waiting) -> Self {
        let suspects = Mutex::new(vec![None; members.len()]);
        Self { name: name.to_owned(), members, waiting, suspects }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long it is waited for where no node answers.
    pub fn patience(&self) -> Duration {
        self.waiting.most
    }

    fn suspects(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member was lost, which is told.
    pub fn lost(&self, member: usize) {
        self.suspect(member);
        let member = self.members[member].location.clone();
        (self.waiting.notice)(&PoolNotice::MemberLost { pool: self.name.clone(), member });
    }

    fn suspect(&self, member: usize) {
        self.suspects()[member] = Some(Instant::now());
    }

    /// Members, those that were lost lately last.
    fn by_trust(&self) -> (Vec<usize>, Vec<usize>) {
        let suspects = self.suspects();
        let is_suspect = |member: &usize| suspects[*member].is_some_and(|since: Instant| since.elapsed() < SUSPECT_FOR);
        (0..self.members.len()).partition(|member| !is_suspect(member))
    }

    /// A connection to the node that the pool grants. Where no node answers, they are asked again for as long as may be waited.
    ///
    /// # Errors
    /// [`FlightError::Connect`] where none answered in time; what a node said that refuses this client.
    pub async fn seat(&self, tuning: &Tuning) -> Result<Seat, FlightError> {
        let started = Instant::now();
        let grant = GrantId::from_le_bytes(random_bytes());
        let tuning = quick(tuning);
        let mut told = false;
        loop {
            if let Some(seat) = self.try_seat(grant, &tuning).await? {
                return Ok(seat);
            }
            let (waited, most) = (started.elapsed(), self.waiting.most);
            if waited >= most {
                let problem = format!("none of its {} nodes answered for {} s", self.members.len(), most.as_secs());
                let source = std::io::Error::new(std::io::ErrorKind::TimedOut, problem);
                return Err(FlightError::Connect { address: format!("godwit+pool://{}", self.name), source });
            }
            if !told {
                told = true;
                let seconds = most.as_secs();
                (self.waiting.notice)(&PoolNotice::Waiting { pool: self.name.clone(), seconds });
            }
            tokio::time::sleep(WAIT.min(most - waited)).await;
        }
    }

    /// Another connection to the node of a seat.
    ///
    /// # Errors
    /// [`FlightError`] where that is lost, or is not there.
    pub async fn beside(&self, seat: &Seat, tuning: &Tuning) -> Result<Client, FlightError> {
        if *seat.lost.borrow() {
            return Err(silent(&self.members[seat.member].location));
        }
        let client = self.connected(seat.member, &quick(tuning), Some(seat.lost.clone())).await?;
        Ok(client.with_grant(seat.grant))
    }

    async fn try_seat(&self, grant: GrantId, tuning: &Tuning) -> Result<Option<Seat>, FlightError> {
        let Some(Asked { at, client, order }) = self.ask(grant, tuning).await? else { return Ok(None) };
        for member in order {
            let looked = match member == at {
                true => Ok(client.clone()),
                false => self.reached(member, tuning).await,
            };
            let seat = match looked {
                Ok(look) => self.seat_at(member, look, grant, tuning).await,
                Err(error) => Err(error),
            };
            match seat {
                Ok(seat) => return Ok(Some(seat)),
                Err(error) if is_lost(&error) => self.suspect(member),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// A place at a node that has answered over a connection, by which it is looked after from now on.
    async fn seat_at(&self, member: usize, look: Client, grant: GrantId, tuning: &Tuning) -> Result<Seat, FlightError> {
        let (found, lost) = watch::channel(false);
        let client = self.connected(member, tuning, Some(lost.clone())).await?.with_grant(grant);
        let look = Look(tokio::spawn(look_after(self.members[member].clone(), look, found)));
        Ok(Seat { member, client, grant, lost, _look: Arc::new(look) })
    }

    /// Asks which node to use: the first member, and the next ones beside it where it takes long; `None` where nobody answers.
    async fn ask(&self, grant: GrantId, tuning: &Tuning) -> Result<Option<Asked>, FlightError> {
        let (trusted, suspects) = self.by_trust();
        let named = |members: &[usize]| members.iter().map(|member| self.members[*member].location.clone()).collect();
        // Where all were lost, one that is back is as good as another.
        let avoid: Vec<String> = if trusted.is_empty() { Vec::new() } else { named(&suspects) };
        let request = GrantRequest { id: grant_header(grant), avoid, forwarded: false };
        let request = serde_json::to_vec(&request).map(Bytes::from);
        let request = request.map_err(|_| FlightError::Malformed { problem: "it cannot be written" })?;
        let mut asking: FuturesUnordered<_> = (0u32..)
            .zip(trusted.iter().chain(&suspects).copied())
            .map(|(place, member)| {
                let request = request.clone();
                async move {
                    tokio::time::sleep(HEAD_START * place).await;
                    (member, self.ask_one(member, request, tuning).await)
                }
            })
            .collect();
        let mut refused = None;
        while let Some((member, answer)) = asking.next().await {
            match answer {
                Ok((client, granted)) => return Ok(Some(self.ordered(member, client, granted, grant))),
                Err(error) if is_lost(&error) => self.suspect(member),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    async fn ask_one(
        &self,
        member: usize,
        request: Bytes,
        tuning: &Tuning,
    ) -> Result<(Client, Vec<usize>), FlightError> {
        let asked = async {
            let client = self.connected(member, tuning, None).await?;
            match client.first_answer(GRANT, request, MESSAGE_LIMIT_BYTES).await {
                Ok(answer) => {
                    let granted: Option<Granted> = within(&answer);
                    let locations = granted.map(|granted| granted.locations).unwrap_or_default();
                    Ok((client, self.members_at(&locations).await))
                }
                // A server that knows of no pool is used as it is.
                Err(FlightError::Status { status, .. }) if is_unknown(status.code()) => Ok((client, Vec::new())),
                Err(error) => Err(error),
            }
        };
        in_time(asked, &self.members[member].location).await
    }

    /// The members at these locations. Nodes may call each other otherwise than this client does, who has their addresses of a name.
    async fn members_at(&self, locations: &[String]) -> Vec<usize> {
        let mut found = Vec::new();
        for location in locations.iter().take(MOST_LOCATIONS) {
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

    /// What a node named, and then the others. Where it named none that is known here, clients begin anywhere.
    fn ordered(&self, at: usize, client: Client, granted: Vec<usize>, grant: GrantId) -> Asked {
        let mut order: Vec<usize> = Vec::new();
        let (mut trusted, suspects) = self.by_trust();
        let count = trusted.len().max(1) as u64;
        trusted.rotate_left((grant % count) as usize);
        for member in granted.into_iter().chain(trusted).chain([at]).chain(suspects) {
            if !order.contains(&member) {
                order.push(member);
            }
        }
        Asked { at, client, order }
    }

    async fn connected(
        &self,
        member: usize,
        tuning: &Tuning,
        lost: Option<watch::Receiver<bool>>,
    ) -> Result<Client, FlightError> {
        let Member { address, access, .. } = &self.members[member];
        Client::connect_until(address, access.clone(), tuning.clone(), lost).await
    }

    /// A connection that was answered on.
    async fn reached(&self, member: usize, tuning: &Tuning) -> Result<Client, FlightError> {
        let asked = async {
            let client = self.connected(member, tuning, None).await?;
            look(&client).await?;
            Ok(client)
        };
        in_time(asked, &self.members[member].location).await
    }
}

/// Asks a node for a sign of life.
async fn look(client: &Client) -> Result<(), FlightError> {
    match client.first_answer(STATUS, LOOK, MESSAGE_LIMIT_BYTES).await {
        Err(FlightError::Status { status, .. }) if is_unknown(status.code()) => Ok(()),
        answer => answer.map(drop),
    }
}

/// Looks after a node until it is lost.
async fn look_after(member: Member, mut client: Client, found: watch::Sender<bool>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        match tokio::time::timeout(LOOK_WITHIN, sign_of_life(&member, &client)).await {
            Ok(Some(answered)) => client = answered,
            Ok(None) | Err(_) => {
                found.send_replace(true);
                return;
            }
        }
    }
}

/// The connection on which a node answered first: this one, or another one where it takes long or is broken. `None`: it is not there.
async fn sign_of_life(member: &Member, client: &Client) -> Option<Client> {
    let is_there = |answer: Result<(), FlightError>| !answer.is_err_and(|error| is_lost(&error));
    let here = async { is_there(look(client).await).then(|| client.clone()) };
    let again = async {
        let other = Client::connect(&member.address, member.access.clone(), Tuning::default()).await.ok()?;
        is_there(look(&other).await).then_some(other)
    };
    tokio::pin!(here);
    // What is broken is told at once, and asked again at once.
    let first = tokio::time::timeout(LOOK_AGAIN, here.as_mut()).await;
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

/// Whether a server says that it does not do what it was asked.
fn is_unknown(code: Code) -> bool {
    matches!(code, Code::Unimplemented | Code::InvalidArgument | Code::PermissionDenied)
}

async fn in_time<T>(work: impl Future<Output = Result<T, FlightError>>, location: &str) -> Result<T, FlightError> {
    match tokio::time::timeout(ANSWER_WITHIN, work).await {
        Ok(done) => done,
        Err(_) => Err(silent(location)),
    }
}

fn silent(location: &str) -> FlightError {
    FlightError::Connect { address: location.to_owned(), source: std::io::ErrorKind::TimedOut.into() }
}

/// As somebody likes it, but given up soon where nobody is there.
fn quick(tuning: &Tuning) -> Tuning {
    Tuning { connect_timeout: ANSWER_WITHIN, ..tuning.clone() }
}

/// Whether an error says that a node is gone, or going, not that it refuses.
pub(super) fn is_lost(error: &FlightError) -> bool {
    match error {
        // A certificate that is not trusted is no matter of waiting.
        FlightError::Connect { source, .. } => source.kind() != std::io::ErrorKind::InvalidData,
        FlightError::Connection { .. } | FlightError::Broken { .. } | FlightError::MissingStatus { .. } => true,
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
            access: crate::transport::Access::default(),
            weight: 1,
            capacity: None,
        };
        let waiting = Waiting { most: Duration::ZERO, notice: Arc::new(|_| ()) };
        Pool::new("p", addresses.iter().map(member).collect(), waiting)
    }

    #[tokio::test]
    async fn nodes_are_known_by_their_location_or_its_address_and_what_is_no_location_is_passed_over() {
        let pool = pool(&[("grpc+tls://a.example:7", "127.0.0.1:7"), ("grpc+tls://b.example:7", "127.0.0.2:7")]);
        let named = |locations: &[&str]| locations.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let found = pool.members_at(&named(&["grpc+tls://b.example:7", "grpc+tcp://127.0.0.1:7/x"])).await;
        assert_eq!(found, [1, 0]);
        let nonsense = named(&["", "://", "grpc+tcp://", "grpc+tcp://127.0.0.1:8", "grpc+tcp://127.0.0.1:99999"]);
        assert!(pool.members_at(&nonsense).await.is_empty());
    }

    #[tokio::test]
    async fn a_pool_of_which_nobody_is_there_is_told_of_in_time() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = told.clone();
        let notice = Arc::new(move |notice: &PoolNotice| hears.lock().unwrap().push(notice.clone()));
        // Port 1 of an address that nobody has taken: it is refused at once.
        let pool =
            Pool { waiting: Waiting { most: Duration::from_millis(10), notice }, ..pool(&[("n", "127.0.0.3:1")]) };
        let error = pool.seat(&Tuning::default()).await.err().expect("nobody is there");
        assert!(matches!(&error, FlightError::Connect { address, .. } if address == "godwit+pool://p"), "{error}");
        assert_eq!(*told.lock().unwrap(), [PoolNotice::Waiting { pool: "p".to_owned(), seconds: 0 }]);
        pool.lost(0);
        let lost = told.lock().unwrap()[1].clone();
        assert_eq!(lost, PoolNotice::MemberLost { pool: "p".to_owned(), member: "n".to_owned() });
        assert_eq!(lost.code(), "member_lost");
    }
}
