//! A node's side of a pool: how the others are, and which of them a client is to use.
//!
//! Nodes ask each other a few times a second. The first node of the file that answers gives out the grants, for clients that ask any
//! other node as well, so that one picker counts them all; where it does not answer, the node that was asked decides by itself.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::Status;

use super::machine::Machine;
use super::messages::{GRANT, GrantRequest, Granted, MESSAGE_LIMIT_BYTES, MemberState, NodeStatus, PoolState, STATUS};
use super::meter::{Meter, grant_header};
use super::picker::{GrantId, Picker, Policy};
use crate::client::Client;
use crate::error::FlightError;
use crate::sql::random_bytes;
use crate::tls::ClientTls;
use crate::transport::{Access, Address, Token, Tuning};

/// How often a node is asked how it is.
const ASK_INTERVAL: Duration = Duration::from_millis(400);
/// How long it may take to be reached and to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(900);
/// Answers in a row that a node may be late with: one that has much to do is not lost.
const LATE_AT_MOST: u32 = 1;
/// How long the node that gives out grants may take before another decides: little less than clients wait, since two that decide count
/// each for itself.
const LEAD_WITHIN: Duration = Duration::from_millis(1200);

/// A node of a pool, as clients and other nodes reach it.
#[derive(Clone)]
pub struct Member {
    /// Its URI in Arrow Flight.
    pub location: String,
    /// Where it is.
    pub address: Address,
    /// What lets whoever asks in.
    pub access: Access<ClientTls>,
    /// What it is to have in comparison with others.
    pub weight: u32,
    /// What its network carries, bytes a second, where somebody said.
    pub capacity: Option<f64>,
}

/// What a node is told of its pool.
pub struct MembershipOptions {
    /// The pool's name.
    pub name: String,
    /// By what nodes are chosen.
    pub policy: Policy,
    /// All nodes, this one included, in the order of the pool's file.
    pub members: Vec<Member>,
    /// What all nodes of the pool know and nobody else does.
    pub secret: Option<Vec<u8>>,
    /// Is told which nodes are lost, and which are back.
    pub notice: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A node's part in a pool.
pub struct Membership {
    options: MembershipOptions,
    /// What other nodes show to be let in.
    token: Option<Token>,
    instance: String,
    started: Instant,
    meter: Arc<Meter>,
    machine: Mutex<Machine>,
    picker: Mutex<Picker>,
    peers: Vec<Mutex<Option<Client>>>,
    /// Which of the members this is, once it has met itself.
    own: OnceLock<usize>,
    draining: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Membership {
    /// A node's part in a pool of nodes, of which none is known to be there yet.
    ///
    /// # Panics
    /// If there is no member.
    pub fn new(mut options: MembershipOptions) -> Self {
        let weights: Vec<u32> = options.members.iter().map(|member| member.weight).collect();
        let mut picker = Picker::weighted(options.policy, &weights, 0);
        (0..weights.len()).for_each(|node| picker.lost(node));
        let token = options.secret.as_ref().map(|secret| Self::token_of(secret)).and_then(|text| Token::new(&text));
        for member in &mut options.members {
            member.access.token = token.clone();
        }
        let peers = options.members.iter().map(|_| Mutex::new(None)).collect();
        Self {
            token,
            instance: blake3::Hash::from_bytes(random_bytes()).to_hex()[..16].to_owned(),
            started: Instant::now(),
            meter: Arc::default(),
            machine: Mutex::new(Machine::new(None)),
            picker: Mutex::new(picker),
            peers,
            own: OnceLock::new(),
            draining: AtomicBool::new(false),
            options,
        }
    }

    fn token_of(secret: &[u8]) -> String {
        blake3::Hash::from_bytes(blake3::derive_key("godwit 2026-11 nodes of a pool", secret)).to_hex().to_string()
    }

    /// What tickets of all nodes are signed with. Without a secret everybody can make it: then servers let everybody in, and a ticket
    /// says nothing that whoever shows it could not ask for.
    pub(crate) fn ticket_secret(&self) -> Vec<u8> {
        match &self.options.secret {
            Some(secret) => secret.clone(),
            None => format!("pool {} without a secret", self.options.name).into_bytes(),
        }
    }

    /// Whether another node shows this token.
    pub(crate) fn lets_in(&self, token: &[u8]) -> bool {
        self.token.as_ref().is_some_and(|own| own.is_in(&[b"Bearer ", token].concat()))
    }

    /// What is counted of this server.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Nothing new is to come here any more.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Asks all nodes how they are, again and again. Tasks of the current runtime do so until it ends.
    pub fn watch(self: &Arc<Self>) {
        for member in 0..self.options.members.len() {
            tokio::spawn(self.clone().watch_one(member));
        }
    }

    async fn watch_one(self: Arc<Self>, member: usize) {
        let location = &self.options.members[member].location;
        let (mut was_healthy, mut late) = (None, 0);
        loop {
            let status = match tokio::time::timeout(ANSWER_WITHIN, self.ask(member)).await {
                Err(_) if late < LATE_AT_MOST => {
                    late += 1;
                    continue;
                }
                answered => answered.ok().flatten(),
            };
            late = 0;
            let problem = self.take(member, status);
            let healthy = problem.is_none();
            if was_healthy.replace(healthy).is_some_and(|was| was != healthy) {
                let name = &self.options.name;
                let told =
                    problem.map_or_else(|| "is back".to_owned(), |problem| format!("gets nothing new: {problem}"));
                (self.options.notice)(&format!("pool {name}: {location} {told}"));
            }
            tokio::time::sleep(ASK_INTERVAL).await;
        }
    }

    async fn ask(&self, member: usize) -> Option<NodeStatus> {
        let client = self.peer(member).await.ok()?;
        let answer = client.first_answer(STATUS, Bytes::new(), MESSAGE_LIMIT_BYTES).await.ok()?;
        NodeStatus::read(&answer)
    }

    async fn peer(&self, member: usize) -> Result<Client, FlightError> {
        if let Some(client) = lock(&self.peers[member]).clone().filter(Client::is_open) {
            return Ok(client);
        }
        let Member { address, access, .. } = &self.options.members[member];
        let tuning = Tuning { connect_timeout: ANSWER_WITHIN, ..Tuning::default() };
        let client = Client::connect(address, access.clone(), tuning).await?;
        *lock(&self.peers[member]) = Some(client.clone());
        Ok(client)
    }

    /// Takes what a node said; why it is not to be used, where it is not.
    fn take(&self, member: usize, status: Option<NodeStatus>) -> Option<String> {
        let problem = match &status {
            None => Some("it does not answer".to_owned()),
            Some(status) if status.pool != self.options.name => Some(format!("it is in the pool {:?}", status.pool)),
            Some(status) if status.version != env!("CARGO_PKG_VERSION") => {
                Some(format!("it is godwit {}, this is {}", status.version, env!("CARGO_PKG_VERSION")))
            }
            Some(status) if status.draining => Some("it is ending".to_owned()),
            Some(_) => None,
        };
        let mut picker = lock(&self.picker);
        match status.filter(|_| problem.is_none()) {
            Some(status) => {
                if status.instance == self.instance {
                    self.own.get_or_init(|| member);
                }
                let mut load = status.load();
                load.capacity = self.options.members[member].capacity.unwrap_or(load.capacity);
                picker.report(member, load, &status.come());
            }
            None => {
                picker.lost(member);
                // What hangs is not waited for again.
                *lock(&self.peers[member]) = None;
            }
        }
        problem
    }

    /// How this node is, for others; `whole`: with the grants that have come, which only nodes want to know.
    pub(crate) fn status(&self, whole: bool) -> Result<Vec<u8>, Status> {
        let (cpu, throughput, capacity) = {
            let mut machine = lock(&self.machine);
            let (cpu, throughput) = machine.rates();
            (cpu, throughput, machine.capacity())
        };
        let (connections, come) = self.meter.counts();
        let status = NodeStatus {
            instance: self.instance.clone(),
            pool: self.options.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            draining: self.draining.load(Ordering::Relaxed),
            connections,
            cpu,
            throughput,
            capacity,
            come: come.into_iter().filter(|_| whole).map(grant_header).collect(),
        };
        json(&status)
    }

    /// Answers a client, or a node on behalf of one, which node to use.
    pub(crate) async fn grant(&self, body: &[u8]) -> Result<Vec<u8>, Status> {
        let wrong = || Status::invalid_argument("the request for a node of the pool cannot be read");
        let (id, request) = GrantRequest::read(body).ok_or_else(wrong)?;
        let locations = self.locations(id, &request).await;
        json(&Granted { pool: self.options.name.clone(), locations })
    }

    /// Where a client goes that does not know of the pool; the grant is known by `id` when it comes.
    pub(crate) async fn locations_for(&self, id: GrantId) -> Vec<String> {
        let request = GrantRequest { id: grant_header(id), avoid: Vec::new(), forwarded: false };
        self.locations(id, &request).await
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    /// Addresses of nodes, the one that is granted first.
    pub(super) async fn addresses_for(&self, id: GrantId) -> Vec<IpAddr> {
        let member_at = |location| self.options.members.iter().find(|member| member.location == location);
        let address = |location: String| match &member_at(location)?.address {
            Address::Tcp(address) => Some(address.ip()),
            Address::Unix(_) => None,
        };
        self.locations_for(id).await.into_iter().filter_map(address).collect()
    }

    /// Where a client goes that was sent here: it stays, and the others are named behind this node.
    pub(crate) fn locations_from_here(&self) -> Vec<String> {
        let Some(own) = self.own.get() else { return Vec::new() };
        let order = lock(&self.picker).order(*own, &[]);
        self.named(&order)
    }

    async fn locations(&self, id: GrantId, request: &GrantRequest) -> Vec<String> {
        if !request.forwarded
            && let Some(locations) = self.ask_lead(request).await
        {
            return locations;
        }
        let members = &self.options.members;
        let avoid: Vec<usize> =
            (0..members.len()).filter(|member| request.avoid.contains(&members[*member].location)).collect();
        let order = lock(&self.picker).grant(self.started.elapsed(), id, &avoid);
        self.named(&order.unwrap_or_default())
    }

    async fn ask_lead(&self, request: &GrantRequest) -> Option<Vec<String>> {
        let members = &self.options.members;
        let lead = {
            let picker = lock(&self.picker);
            (0..members.len())
                .find(|member| picker.is_healthy(*member) && !request.avoid.contains(&members[*member].location))?
        };
        if self.own.get() == Some(&lead) {
            return None;
        }
        let forwarded = serde_json::to_vec(&GrantRequest { forwarded: true, ..request.clone() }).ok()?;
        let asked = async {
            let client = self.peer(lead).await.ok()?;
            client.first_answer(GRANT, forwarded, MESSAGE_LIMIT_BYTES).await.ok()
        };
        let answer = tokio::time::timeout(LEAD_WITHIN, asked).await.ok()??;
        let granted: Granted = super::messages::within(&answer)?;
        let known = |location: &String| members.iter().any(|member| member.location == *location);
        let locations: Vec<String> = granted.locations.into_iter().filter(known).collect();
        (!locations.is_empty()).then_some(locations)
    }

    fn named(&self, order: &[usize]) -> Vec<String> {
        order.iter().map(|member| self.options.members[*member].location.clone()).collect()
    }

    /// The pool as this node sees it.
    pub fn state(&self) -> PoolState {
        let picker = lock(&self.picker);
        let nodes = self.options.members.iter().enumerate().map(|(node, member)| {
            let load = picker.load(node);
            MemberState {
                location: member.location.clone(),
                healthy: picker.is_healthy(node),
                connections: load.connections,
                pending: picker.unreported(node),
                cpu: load.cpu,
                bytes_per_s: load.throughput,
            }
        });
        let nodes = nodes.collect();
        PoolState { name: self.options.name.clone(), policy: self.options.policy.name(), nodes }
    }
}

fn json(message: &impl serde::Serialize) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(message).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}
