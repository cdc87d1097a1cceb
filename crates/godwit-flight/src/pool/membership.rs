//! The server's side of a pool: a member monitors the health of the other members and assigns clients to members.
//!
//! Members probe each other a few times per second. The first healthy member in the pool file (the lead) assigns all
//! clients, so that a single load balancer counts all leases. Other members forward lease requests to the lead. If the
//! lead does not answer, the member that received the request decides itself.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tonic::Status;

use super::connection_counter::ConnectionCounter;
use super::host_load::HostLoad;
use super::load_balancer::{BalancingPolicy, LoadBalancer};
use super::messages::{
    MAX_MESSAGE_BYTES, MemberLeaseRequest, MemberLeaseResponse, MemberState, MemberStatus, POOL_LEASE_ACTION,
    POOL_STATUS_ACTION, PoolState,
};
use crate::client::Client;
use crate::error::FlightError;
use crate::lease_header::{MemberLeaseId, format_lease_header};
use crate::tls::ClientTls;
use crate::transport::{Address, ConnectionSecurity, TransportOptions};
use godwit_auth::{Token, random_bytes};
use godwit_model::message_with_causes;

/// Interval between two probes of the same member.
const PROBE_INTERVAL: Duration = Duration::from_millis(400);
/// Time limit for connecting to a member and for its answer to a probe.
const PROBE_TIMEOUT: Duration = Duration::from_millis(900);
/// The problem of a member that cannot be reached.
const NO_ANSWER: &str = "it does not answer";
/// Number of consecutive late probes after which a member still counts as healthy, because it may only be busy.
const MAX_LATE_PROBES: u32 = 1;
/// Time after which a server that has not received its own probe warns that it is not a member of its pool.
const OWN_PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the lead to answer a forwarded lease request. It is only a little shorter than the time limit of
/// clients: if another member decides, its load balancer does not know the leases of the lead.
const LEAD_TIMEOUT: Duration = Duration::from_millis(1200);

/// A pool member, with the data that clients and other members need to connect to it.
#[derive(Clone)]
pub struct Member {
    /// Flight location URI of the member.
    pub location: String,
    /// Network address of the member.
    pub address: Address,
    /// Token and TLS settings for connecting to the member.
    pub security: ConnectionSecurity<ClientTls>,
    /// Weight of the member in load balancing, relative to other members.
    pub weight: u32,
    /// Configured network capacity of the member, bytes per second; `None` if it is not configured.
    pub capacity_bytes_per_s: Option<f64>,
}

/// Options of a server that is a pool member.
pub struct MembershipOptions {
    /// Name of the pool.
    pub name: String,
    /// The policy by which the load balancer selects members.
    pub policy: BalancingPolicy,
    /// All members including this one, in the order of the pool file.
    pub members: Vec<Member>,
    /// Secret that only the members know, for tickets and for authentication between members; `None`: no
    /// authentication.
    pub secret: Option<Vec<u8>>,
    /// A callback for messages to the operator, called when a member is lost or healthy again.
    pub notify: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A server's membership in a pool.
pub struct Membership {
    options: MembershipOptions,
    /// The token by which members authenticate to each other, derived from the secret.
    token: Option<Token>,
    instance: String,
    started: Instant,
    connection_counter: Arc<ConnectionCounter>,
    host_load: Mutex<HostLoad>,
    load_balancer: Mutex<LoadBalancer>,
    clients: Vec<Mutex<Option<Client>>>,
    /// Index of this member in the pool; known after this member has received its own probe.
    own_member: OnceLock<usize>,
    draining: AtomicBool,
}

impl Membership {
    /// Creates a membership. All members count as lost until they answer a probe.
    ///
    /// # Panics
    /// If there is no member.
    pub fn new(mut options: MembershipOptions) -> Self {
        let weights: Vec<u32> = options.members.iter().map(|member| member.weight).collect();
        let mut balancer = LoadBalancer::with_weights(options.policy, &weights, 0);
        (0..weights.len()).for_each(|member| balancer.mark_lost(member));
        let token = options.secret.as_ref().and_then(|secret| {
            let key = blake3::derive_key("godwit 2026-11 nodes of a pool", secret);
            Token::new(&blake3::Hash::from_bytes(key).to_hex())
        });
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

    /// Returns the secret from which all members derive the key for tickets. Without a configured secret, it can be
    /// guessed. This is acceptable because servers then do not authenticate clients, so a forged ticket gives no
    /// additional rights.
    pub(crate) fn ticket_secret(&self) -> Vec<u8> {
        match &self.options.secret {
            Some(secret) => secret.clone(),
            None => format!("pool {} without a secret", self.options.name).into_bytes(),
        }
    }

    /// Returns whether a token is the one by which members authenticate to each other.
    pub(crate) fn accepts_token(&self, token: &[u8]) -> bool {
        self.token.as_ref().is_some_and(|own| own.matches_header(&[b"Bearer ", token].concat()))
    }

    /// Returns the connection counter of this server.
    pub(crate) fn connection_counter(&self) -> &Arc<ConnectionCounter> {
        &self.connection_counter
    }

    /// Marks this member as shutting down. Other members then assign no new clients to it.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Starts tasks that probe all members periodically, until the current tokio runtime ends.
    pub fn watch_members(self: &Arc<Self>) {
        for member in 0..self.options.members.len() {
            tokio::spawn(self.clone().watch_member(member));
        }
        tokio::spawn(self.clone().warn_if_unlisted());
    }

    /// Warns the operator if this server has not received its own probe after some time.
    async fn warn_if_unlisted(self: Arc<Self>) {
        tokio::time::sleep(OWN_PROBE_TIMEOUT).await;
        if self.own_member.get().is_none() {
            (self.options.notify)(&format!(
                "pool {}: this server is not one of its members, so it gets no clients of the pool: no address of the \
                 pool file leads to this server, or it does not trust its own certificate (--ca)",
                self.options.name
            ));
        }
    }

    async fn watch_member(self: Arc<Self>, member: usize) {
        let location = &self.options.members[member].location;
        let (mut reported, mut late): (Option<Option<bool>>, u32) = (None, 0);
        loop {
            let status = match tokio::time::timeout(PROBE_TIMEOUT, self.request_status(member)).await {
                Err(_) if late < MAX_LATE_PROBES => {
                    late += 1;
                    continue;
                }
                answered => answered.unwrap_or_else(|_| Err(NO_ANSWER.to_owned())),
            };
            late = 0;
            let problem = self.apply_status(member, status);
            // A member that does not answer may not have started yet. Other problems are reported after the first probe.
            // The texts are not compared, because that of an expired certificate contains the time.
            let is_definite = problem.as_ref().map(|problem| problem != NO_ANSWER);
            let is_change = match reported {
                None => is_definite == Some(true),
                Some(reported) if is_definite == Some(true) => reported != is_definite,
                Some(reported) => reported.is_some() != is_definite.is_some(),
            };
            if is_change {
                let name = &self.options.name;
                let change =
                    problem.as_ref().map_or("is back".to_owned(), |why| format!("receives no new streams: {why}"));
                (self.options.notify)(&format!("pool {name}: {location} {change}"));
            }
            if is_change || reported.is_none() {
                reported = Some(is_definite);
            }
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }

    /// Returns the status of a member, or the reason why there is none.
    async fn request_status(&self, member: usize) -> Result<MemberStatus, String> {
        let answer = match self.client_for(member).await {
            Ok(client) => client.first_action_result(POOL_STATUS_ACTION, Bytes::new(), MAX_MESSAGE_BYTES).await,
            Err(error) => Err(error),
        };
        match answer {
            Err(error) if !error.is_server_lost() => Err(message_with_causes(&error)),
            answer => answer.ok().and_then(|answer| MemberStatus::parse(&answer)).ok_or_else(|| NO_ANSWER.to_owned()),
        }
    }

    async fn client_for(&self, member: usize) -> Result<Client, FlightError> {
        if let Some(client) = self.clients[member].lock().clone().filter(Client::is_open) {
            return Ok(client);
        }
        let Member { address, security, .. } = &self.options.members[member];
        let options = TransportOptions { connect_timeout: PROBE_TIMEOUT, ..TransportOptions::default() };
        let client = Client::connect(address, security.clone(), options).await?;
        *self.clients[member].lock() = Some(client.clone());
        Ok(client)
    }

    /// Applies the answer of a member to a probe. If the member must not be used, returns the reason.
    fn apply_status(&self, member: usize, status: Result<MemberStatus, String>) -> Option<String> {
        let problem = match &status {
            Err(problem) => Some(problem.clone()),
            Ok(status) if status.pool != self.options.name => {
                Some(format!("the server is a member of the pool {:?}", status.pool))
            }
            Ok(status) if status.version != env!("CARGO_PKG_VERSION") => Some(format!(
                "the server runs godwit {}, but this member runs {}",
                status.version,
                env!("CARGO_PKG_VERSION")
            )),
            Ok(status) if status.draining => Some("the server is shutting down".to_owned()),
            Ok(_) => None,
        };
        let mut balancer = self.load_balancer.lock();
        match status.ok().filter(|_| problem.is_none()) {
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
                // Connect again next time, because the connection may hang.
                *self.clients[member].lock() = None;
            }
        }
        problem
    }

    /// Returns the status of this member as JSON. If `with_leases`, the status includes the arrived leases, which only
    /// other members need.
    pub(crate) fn encode_status(&self, with_leases: bool) -> Result<Vec<u8>, Status> {
        let (cpu, bytes_per_s, capacity_bytes_per_s) = {
            let mut machine = self.host_load.lock();
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

    /// Answers a lease request of a client, or one that another member forwards. Returns the response as JSON.
    pub(crate) async fn encode_lease(&self, body: &[u8]) -> Result<Vec<u8>, Status> {
        let wrong = || Status::invalid_argument("the lease request cannot be parsed");
        let (id, request) = MemberLeaseRequest::parse(body).ok_or_else(wrong)?;
        let locations = self.choose_locations(id, &request).await;
        encode_json(&MemberLeaseResponse { pool: self.options.name.clone(), locations })
    }

    /// Selects locations for a client without support for pools. The load balancer counts the client as lease `id`.
    pub(crate) async fn lease_locations(&self, id: MemberLeaseId) -> Vec<String> {
        let request = MemberLeaseRequest { id: format_lease_header(id), avoid: Vec::new(), forwarded: false };
        self.choose_locations(id, &request).await
    }

    /// Returns the name of the pool.
    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    /// Selects a member for a client without support for pools. Returns the IP addresses of the members that `accepts` accepts,
    /// that of the selected member first. If there are none, no lease is counted.
    pub(super) async fn lease_addresses(&self, accepts: impl Fn(&IpAddr) -> bool) -> Vec<IpAddr> {
        let ip = |member: &Member| match &member.address {
            Address::Tcp(address) => Some(address.ip()).filter(&accepts),
            Address::Unix(_) => None,
        };
        let members = &self.options.members;
        if !members.iter().any(|member| ip(member).is_some()) {
            return Vec::new();
        }
        let address = |location: String| ip(members.iter().find(|member| member.location == location)?);
        let id = MemberLeaseId::from_le_bytes(random_bytes());
        self.lease_locations(id).await.into_iter().filter_map(address).collect()
    }

    /// Returns the locations for a client that was assigned to this member: the location of this member, then the
    /// others.
    pub(crate) fn locations_from_self(&self) -> Vec<String> {
        let Some(own) = self.own_member.get() else { return Vec::new() };
        let order = self.load_balancer.lock().order_from(*own, &[]);
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
        let order = self.load_balancer.lock().lease_member(self.started.elapsed(), id, &avoid);
        self.member_locations(&order.unwrap_or_default())
    }

    async fn request_from_lead(&self, request: &MemberLeaseRequest) -> Option<Vec<String>> {
        let members = &self.options.members;
        let lead = {
            let balancer = self.load_balancer.lock();
            (0..members.len())
                .find(|member| balancer.is_healthy(*member) && !request.avoid.contains(&members[*member].location))?
        };
        if self.own_member.get() == Some(&lead) {
            return None;
        }
        let forwarded = serde_json::to_vec(&MemberLeaseRequest { forwarded: true, ..request.clone() }).ok()?;
        let calling = async {
            let client = self.client_for(lead).await.ok()?;
            client.first_action_result(POOL_LEASE_ACTION, forwarded, MAX_MESSAGE_BYTES).await.ok()
        };
        let answer = tokio::time::timeout(LEAD_TIMEOUT, calling).await.ok()??;
        let granted: MemberLeaseResponse = super::messages::parse_message(&answer)?;
        let known = |location: &String| members.iter().any(|member| member.location == *location);
        let locations: Vec<String> = granted.locations.into_iter().filter(known).collect();
        (!locations.is_empty()).then_some(locations)
    }

    fn member_locations(&self, order: &[usize]) -> Vec<String> {
        order.iter().map(|member| self.options.members[*member].location.clone()).collect()
    }

    /// Returns the state of the pool as this member sees it.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use godwit_flight::{Address, ConnectionSecurity};
    /// use godwit_flight::pool::{BalancingPolicy, Member, Membership, MembershipOptions};
    ///
    /// # let member = Member {
    /// #     location: "grpc+tcp://127.0.0.1:8815".to_owned(),
    /// #     address: Address::Tcp("127.0.0.1:8815".parse()?),
    /// #     security: ConnectionSecurity::default(),
    /// #     weight: 1,
    /// #     capacity_bytes_per_s: None,
    /// # };
    /// let membership = Membership::new(MembershipOptions {
    ///     name: "archive".to_owned(),
    ///     policy: BalancingPolicy::Cpu,
    ///     members: vec![member],
    ///     secret: None,
    ///     notify: Arc::new(|message: &str| eprintln!("{message}")),
    /// });
    /// let state = membership.pool_state();
    /// assert_eq!((state.name.as_str(), state.policy), ("archive", "cpu"));
    /// // The member has not been probed yet.
    /// assert!(!state.members[0].healthy);
    /// # Ok(())
    /// # }
    /// ```
    pub fn pool_state(&self) -> PoolState {
        let balancer = self.load_balancer.lock();
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
