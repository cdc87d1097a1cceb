//! A member's side of a pool: the health of the others, and the assignment of clients.
//!
//! Members probe each other a few times a second. The first of the file that answers (the lead) assigns all leases, also for
//! clients of other members, so that one balancer counts them; where it does not answer, the requested member decides.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::Status;

use super::connection_counter::{ConnectionCounter, format_lease_header};
use super::host_load::HostLoad;
use super::load_balancer::{BalancingPolicy, LoadBalancer, MemberLeaseId};
use super::messages::{
    MAX_MESSAGE_BYTES, MemberLeaseRequest, MemberLeaseResponse, MemberState, MemberStatus, POOL_LEASE_ACTION,
    POOL_STATUS_ACTION, PoolState,
};
use crate::client::Client;
use crate::error::FlightError;
use crate::sql::random_bytes;
use crate::tls::ClientTls;
use crate::transport::{Address, ConnectionSecurity, Token, TransportOptions};

/// Interval of the probes of a member.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);
/// Time limit to connect and answer.
const PROBE_TIMEOUT: Duration = Duration::from_millis(900);
/// Consecutive probes that may be late: a busy member is not lost.
const MAX_LATE_PROBES: u32 = 1;
/// Time limit of the lead before another member decides: little less than clients wait, since two that decide count
/// separately.
const LEAD_TIMEOUT: Duration = Duration::from_millis(1200);

/// A pool member, as clients and other members reach it.
#[derive(Clone)]
pub struct Member {
    /// Its Flight location, a URI.
    pub location: String,
    /// Its address.
    pub address: Address,
    /// The credentials for connecting to it.
    pub security: ConnectionSecurity<ClientTls>,
    /// Its weight, relative to others.
    pub weight: u32,
    /// Capacity of its network, bytes a second, where it is configured.
    pub capacity_bytes_per_s: Option<f64>,
}

/// Options of a member's side of a pool.
pub struct MembershipOptions {
    /// The pool's name.
    pub name: String,
    /// The policy by which members are chosen.
    pub policy: BalancingPolicy,
    /// All members, this one included, in the order of the pool's file.
    pub members: Vec<Member>,
    /// Secret that only the members know.
    pub secret: Option<Vec<u8>>,
    /// Is called with a message when a member is lost or is back.
    pub notify: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A server's membership in a pool.
pub struct Membership {
    options: MembershipOptions,
    /// The token by which members authenticate to each other.
    token: Option<Token>,
    instance: String,
    started: Instant,
    connection_counter: Arc<ConnectionCounter>,
    host_load: Mutex<HostLoad>,
    load_balancer: Mutex<LoadBalancer>,
    clients: Vec<Mutex<Option<Client>>>,
    /// Index of this member, once its probe has reached itself.
    own_member: OnceLock<usize>,
    draining: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Membership {
    /// Creates a membership in a pool of which no member is known to be healthy yet.
    ///
    /// # Panics
    /// If there is no member.
    pub fn new(mut options: MembershipOptions) -> Self {
        let weights: Vec<u32> = options.members.iter().map(|member| member.weight).collect();
        let mut balancer = LoadBalancer::with_weights(options.policy, &weights, 0);
        (0..weights.len()).for_each(|member| balancer.mark_lost(member));
        let token = options.secret.as_ref().map(|secret| Self::derive_token(secret)).and_then(|text| Token::new(&text));
        for member in &mut options.members {
            member.security.token = token.clone();
        }
        let clients = options.members.iter().map(|_| Mutex::new(None)).collect();
        Self {
            token,
            instance: blake3::Hash::from_bytes(random_bytes()).to_hex()[..16].to_owned(),
            started: Instant::now(),
            connection_counter: Arc::default(),
            host_load: Mutex::new(HostLoad::new(None)),
            load_balancer: Mutex::new(balancer),
            clients,
            own_member: OnceLock::new(),
            draining: AtomicBool::new(false),
            options,
        }
    }

    fn derive_token(secret: &[u8]) -> String {
        blake3::Hash::from_bytes(blake3::derive_key("godwit 2026-11 nodes of a pool", secret)).to_hex().to_string()
    }

    /// Returns the secret that signs the tickets of all members. Without one it is guessable: then servers do not
    /// authenticate, and a ticket allows nothing that its holder could not request.
    pub(crate) fn ticket_secret(&self) -> Vec<u8> {
        match &self.options.secret {
            Some(secret) => secret.clone(),
            None => format!("pool {} without a secret", self.options.name).into_bytes(),
        }
    }

    /// Reports whether a token is that of the pool's members.
    pub(crate) fn accepts_token(&self, token: &[u8]) -> bool {
        self.token.as_ref().is_some_and(|own| own.matches_header(&[b"Bearer ", token].concat()))
    }

    /// Returns the connection counter of this server.
    pub fn connection_counter(&self) -> &Arc<ConnectionCounter> {
        &self.connection_counter
    }

    /// Marks this member as draining: it receives no new streams.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Probes all members periodically, by tasks of the current runtime, until it ends.
    pub fn watch_members(self: &Arc<Self>) {
        for member in 0..self.options.members.len() {
            tokio::spawn(self.clone().watch_member(member));
        }
    }

    async fn watch_member(self: Arc<Self>, member: usize) {
        let location = &self.options.members[member].location;
        let (mut was_healthy, mut late) = (None, 0);
        loop {
            let status = match tokio::time::timeout(PROBE_TIMEOUT, self.request_status(member)).await {
                Err(_) if late < MAX_LATE_PROBES => {
                    late += 1;
                    continue;
                }
                answered => answered.ok().flatten(),
            };
            late = 0;
            let problem = self.apply_status(member, status);
            let healthy = problem.is_none();
            if was_healthy.replace(healthy).is_some_and(|was| was != healthy) {
                let name = &self.options.name;
                let change =
                    problem.map_or_else(|| "is back".to_owned(), |problem| format!("gets nothing new: {problem}"));
                (self.options.notify)(&format!("pool {name}: {location} {change}"));
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }

    async fn request_status(&self, member: usize) -> Option<MemberStatus> {
        let client = self.client_for(member).await.ok()?;
        let answer = client.first_action_result(POOL_STATUS_ACTION, Bytes::new(), MAX_MESSAGE_BYTES).await.ok()?;
        MemberStatus::parse(&answer)
    }

    async fn client_for(&self, member: usize) -> Result<Client, FlightError> {
        if let Some(client) = lock(&self.clients[member]).clone().filter(Client::is_open) {
            return Ok(client);
        }
        let Member { address, security, .. } = &self.options.members[member];
        let options = TransportOptions { connect_timeout: PROBE_TIMEOUT, ..TransportOptions::default() };
        let client = Client::connect(address, security.clone(), options).await?;
        *lock(&self.clients[member]) = Some(client.clone());
        Ok(client)
    }

    /// Applies the answer of a member; returns why it is not used, where it is not.
    fn apply_status(&self, member: usize, status: Option<MemberStatus>) -> Option<String> {
        let problem = match &status {
            None => Some("it does not answer".to_owned()),
            Some(status) if status.pool != self.options.name => Some(format!("it is in the pool {:?}", status.pool)),
            Some(status) if status.version != env!("CARGO_PKG_VERSION") => {
                Some(format!("it is godwit {}, this is {}", status.version, env!("CARGO_PKG_VERSION")))
            }
            Some(status) if status.draining => Some("it is ending".to_owned()),
            Some(_) => None,
        };
        let mut balancer = lock(&self.load_balancer);
        match status.filter(|_| problem.is_none()) {
            Some(status) => {
                if status.instance == self.instance {
                    self.own_member.get_or_init(|| member);
                }
                let mut load = status.load();
                load.capacity_bytes_per_s =
                    self.options.members[member].capacity_bytes_per_s.unwrap_or(load.capacity_bytes_per_s);
                balancer.record_report(member, load, &status.arrived_leases());
            }
            None => {
                balancer.mark_lost(member);
                // A connection that hangs is not used again.
                *lock(&self.clients[member]) = None;
            }
        }
        problem
    }

    /// Returns the status of this member; `with_leases`: with the leases that arrived, which only members need.
    pub(crate) fn encode_status(&self, with_leases: bool) -> Result<Vec<u8>, Status> {
        let (cpu, bytes_per_s, capacity_bytes_per_s) = {
            let mut machine = lock(&self.host_load);
            let (cpu, throughput) = machine.rates();
            (cpu, throughput, machine.capacity_bytes_per_s())
        };
        let (connections, arrived_leases) = self.connection_counter.connections_and_leases();
        let status = MemberStatus {
            instance: self.instance.clone(),
            pool: self.options.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            draining: self.draining.load(Ordering::Relaxed),
            connections,
            cpu,
            bytes_per_s,
            capacity_bytes_per_s,
            arrived_leases: arrived_leases.into_iter().filter(|_| with_leases).map(format_lease_header).collect(),
        };
        encode_json(&status)
    }

    /// Answers a lease request of a client, or of a member on behalf of one.
    pub(crate) async fn encode_lease(&self, body: &[u8]) -> Result<Vec<u8>, Status> {
        let wrong = || Status::invalid_argument("the request for a node of the pool cannot be read");
        let (id, request) = MemberLeaseRequest::parse(body).ok_or_else(wrong)?;
        let locations = self.choose_locations(id, &request).await;
        encode_json(&MemberLeaseResponse { pool: self.options.name.clone(), locations })
    }

    /// Returns the locations for a client that does not know pools; the lease is counted as `id`.
    pub(crate) async fn lease_locations(&self, id: MemberLeaseId) -> Vec<String> {
        let request = MemberLeaseRequest { id: format_lease_header(id), avoid: Vec::new(), forwarded: false };
        self.choose_locations(id, &request).await
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns the addresses of members, the assigned one first.
    pub(super) async fn lease_addresses(&self, id: MemberLeaseId) -> Vec<IpAddr> {
        let member_at = |location| self.options.members.iter().find(|member| member.location == location);
        let address = |location: String| match &member_at(location)?.address {
            Address::Tcp(address) => Some(address.ip()),
            Address::Unix(_) => None,
        };
        self.lease_locations(id).await.into_iter().filter_map(address).collect()
    }

    /// Returns the locations for a client that was assigned to this member: this one first, then the others.
    pub(crate) fn locations_from_self(&self) -> Vec<String> {
        let Some(own) = self.own_member.get() else { return Vec::new() };
        let order = lock(&self.load_balancer).order_from(*own, &[]);
        self.member_locations(&order)
    }

    async fn choose_locations(&self, id: MemberLeaseId, request: &MemberLeaseRequest) -> Vec<String> {
        if !request.forwarded
            && let Some(locations) = self.request_from_lead(request).await
        {
            return locations;
        }
        let members = &self.options.members;
        let avoid: Vec<usize> =
            (0..members.len()).filter(|member| request.avoid.contains(&members[*member].location)).collect();
        let order = lock(&self.load_balancer).lease_member(self.started.elapsed(), id, &avoid);
        self.member_locations(&order.unwrap_or_default())
    }

    async fn request_from_lead(&self, request: &MemberLeaseRequest) -> Option<Vec<String>> {
        let members = &self.options.members;
        let lead = {
            let balancer = lock(&self.load_balancer);
            (0..members.len())
                .find(|member| balancer.is_healthy(*member) && !request.avoid.contains(&members[*member].location))?
        };
        if self.own_member.get() == Some(&lead) {
            return None;
        }
        let forwarded = serde_json::to_vec(&MemberLeaseRequest { forwarded: true, ..request.clone() }).ok()?;
        let asked = async {
            let client = self.client_for(lead).await.ok()?;
            client.first_action_result(POOL_LEASE_ACTION, forwarded, MAX_MESSAGE_BYTES).await.ok()
        };
        let answer = tokio::time::timeout(LEAD_TIMEOUT, asked).await.ok()??;
        let granted: MemberLeaseResponse = super::messages::parse_message(&answer)?;
        let known = |location: &String| members.iter().any(|member| member.location == *location);
        let locations: Vec<String> = granted.locations.into_iter().filter(known).collect();
        (!locations.is_empty()).then_some(locations)
    }

    fn member_locations(&self, order: &[usize]) -> Vec<String> {
        order.iter().map(|member| self.options.members[*member].location.clone()).collect()
    }

    /// Returns the state of the pool as this member sees it.
    pub fn pool_state(&self) -> PoolState {
        let balancer = lock(&self.load_balancer);
        let nodes = self.options.members.iter().enumerate().map(|(index, member)| {
            let load = balancer.load(index);
            MemberState {
                location: member.location.clone(),
                healthy: balancer.is_healthy(index),
                connections: load.connections,
                unreported_leases: balancer.unreported_leases(index),
                cpu: load.cpu,
                bytes_per_s: load.bytes_per_s,
            }
        });
        let members = nodes.collect();
        PoolState { name: self.options.name.clone(), policy: self.options.policy.name(), members }
    }
}

fn encode_json(message: &impl serde::Serialize) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(message).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}
