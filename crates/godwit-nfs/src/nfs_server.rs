//! The connections of clients: one TCP port for NFS and MOUNT.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::export::Export;
use crate::nfs_health::{HealthRequests, NfsHealth};
use crate::rpc_message::{read_fragment_header, read_record};

/// Largest number of calls of one connection that are carried out or sent at the same time. Others wait in the socket.
const MAX_CALLS_PER_CONNECTION: usize = 16;
/// Largest number of calls of all connections; each uses at most 2 MiB. Each address has [`RESERVED_CALLS`] in addition.
const MAX_CALLS: usize = 128;
/// Largest number of calls of the connections from one address, so that a client that accepts no replies leaves room for
/// those of others.
const MAX_CALLS_PER_ADDRESS: usize = MAX_CALLS / 2;
/// Number of calls of each address that do not count as calls of all connections, so that the calls of some clients, for
/// example in a directory of slow storage, never prevent those of others.
const RESERVED_CALLS: usize = 1;
/// Time in which a call must arrive after its first bytes, and in which a reply must be accepted. A connection that is
/// slower is closed.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which a connection without calls is closed, as servers of Linux do. Clients connect again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(6 * 60);
/// Time without data after which the system checks whether the client still exists.
const KEEP_ALIVE_TIME: Duration = Duration::from_secs(60);
/// Interval at which idle accesses are recorded as ended.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, such as for lack of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Size of the buffer for small calls, bytes.
const INPUT_BUFFER_BYTES: usize = 16 << 10;

/// A reply, with the permits of its call; `None` if the client sent something else than calls.
type Answer = Option<(Vec<u8>, [OwnedSemaphorePermit; 3])>;

/// The permits of the calls from one address. Each connection from the address has a reference.
#[derive(Debug)]
struct AddressCalls {
    all: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
}

/// The address of a client, and the permits of its calls.
struct Peer {
    address: IpAddr,
    address_calls: Arc<AddressCalls>,
    all_calls: Arc<Semaphore>,
}

impl AddressCalls {
    fn new() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { all: semaphore(MAX_CALLS_PER_ADDRESS), reserved: semaphore(RESERVED_CALLS) }
    }
}

impl Peer {
    /// Waits until a call of this client may be carried out.
    async fn permits(&self) -> io::Result<[OwnedSemaphorePermit; 2]> {
        let address_permit = permit(&self.address_calls.all).await?;
        let call_permit = tokio::select! {
            biased;
            reserved = permit(&self.address_calls.reserved) => reserved,
            shared = permit(&self.all_calls) => shared,
        };
        Ok([address_permit, call_permit?])
    }
}

async fn permit(calls: &Arc<Semaphore>) -> io::Result<OwnedSemaphorePermit> {
    calls.clone().acquire_owned().await.map_err(io::Error::other)
}

/// A server of NFSv3 and MOUNT at one TCP port.
#[derive(Debug)]
pub struct NfsServer {
    listener: TcpListener,
    export: Arc<Export>,
    max_connections: usize,
    health: NfsHealth,
    health_requests: HealthRequests,
}

impl NfsServer {
    /// Binds the port. Connections from addresses that no client may have are closed immediately, and so are further
    /// connections than `max_connections`, or than half of them from one address.
    ///
    /// # Errors
    /// The I/O error if the address cannot be bound.
    pub async fn bind(address: SocketAddr, export: Export, max_connections: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let (health, health_requests) = NfsHealth::new();
        Ok(Self { listener, export: Arc::new(export), max_connections, health, health_requests })
    }

    /// Returns the health check of this server.
    pub fn health(&self) -> NfsHealth {
        self.health.clone()
    }

    /// Returns the address and port at which the server listens.
    ///
    /// # Errors
    /// The I/O error of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` completes, and then closes all connections. Clients continue at another server, or wait for
    /// the next one at this address.
    pub async fn serve_until(mut self, stop: impl Future<Output = ()>) {
        let all_calls = Arc::new(Semaphore::new(MAX_CALLS));
        let mut addresses: HashMap<IpAddr, Arc<AddressCalls>> = HashMap::new();
        let mut connections = JoinSet::new();
        let mut idle_check = tokio::time::interval(IDLE_CHECK_INTERVAL);
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                _ = idle_check.tick() => self.export.opened.end(false),
                Some(request) = self.health_requests.recv() => request.answer(&self.export),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let address = peer.ip().to_canonical();
                        match self.admit(address, &mut addresses, connections.len()) {
                            Ok(address_calls) => {
                                let peer = Peer { address, address_calls, all_calls: all_calls.clone() };
                                connections.spawn(serve_connection(self.export.clone(), stream, peer));
                            }
                            Err(reason) => self.export.log_rejection(&format!("NFS: {peer} is rejected: {reason}")),
                        }
                    }
                    Err(error) => {
                        self.export.log(&format!("NFS: a connection cannot be accepted: {error}"));
                        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
            }
        }
        connections.shutdown().await;
        self.export.opened.end(true);
    }

    /// Returns the permits of the calls from the address of a new connection, or the reason why it is rejected.
    fn admit(
        &self,
        address: IpAddr,
        addresses: &mut HashMap<IpAddr, Arc<AddressCalls>>,
        open_connections: usize,
    ) -> Result<Arc<AddressCalls>, String> {
        if self.export.access.identify(address).is_none() {
            return Err("the rules do not list its address".to_owned());
        }
        if open_connections >= self.max_connections {
            return Err(format!("{open_connections} connections are open"));
        }
        addresses.retain(|_, calls| Arc::strong_count(calls) > 1);
        let calls = addresses.entry(address).or_insert_with(|| Arc::new(AddressCalls::new()));
        let open_from_address = Arc::strong_count(calls) - 1;
        match open_from_address < self.max_connections.div_ceil(2) {
            true => Ok(calls.clone()),
            false => Err(format!("{open_from_address} connections are open from its address")),
        }
    }
}

/// Serves a connection until the client closes it or violates the protocol.
async fn serve_connection(export: Arc<Export>, stream: TcpStream, peer: Peer) {
    // Without these options the connection works, but slower, or longer than its client.
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE_TIME).with_interval(KEEP_ALIVE_TIME / 6);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keep_alive);
    let _ = stream.set_nodelay(true);
    let (input, output) = stream.into_split();
    let (answers, sent) = mpsc::channel(MAX_CALLS_PER_CONNECTION);
    // The error of a connection needs no message: the client connects again.
    let _ = tokio::select! {
        read = read_calls(export, input, &peer, answers) => read,
        written = write_replies(output, sent) => written,
    };
}

/// Reads calls and starts to carry them out, until the client closes the connection.
async fn read_calls(
    export: Arc<Export>,
    input: OwnedReadHalf,
    peer: &Peer,
    answers: mpsc::Sender<Answer>,
) -> io::Result<()> {
    let mut input = BufReader::with_capacity(INPUT_BUFFER_BYTES, input);
    let own_calls = Arc::new(Semaphore::new(MAX_CALLS_PER_CONNECTION));
    let address = peer.address;
    while let Some(header) = timeout(IDLE_TIMEOUT, read_fragment_header(&mut input)).await?? {
        let own_permit = permit(&own_calls).await?;
        // A client that sends a call slowly has no permit that others need.
        let record = timeout(TRANSFER_TIMEOUT, read_record(header, &mut input)).await??;
        let [address_permit, call_permit] = peer.permits().await?;
        let permits = [own_permit, address_permit, call_permit];
        if is_reset(input.get_ref()) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let (export, answers) = (export.clone(), answers.clone());
        tokio::task::spawn_blocking(move || {
            let reply = export.answer_record(address, &record);
            // The connection may have been closed.
            let _ = answers.blocking_send(reply.map(|reply| (reply, permits)));
        });
    }
    Ok(())
}

/// Reports whether a connection was reset, so that no reply can be sent (`ENOTCONN` of getpeername(2)).
///
/// Calls of such a connection must not be carried out, although they can be read from the socket: the client has sent them
/// again to another server, and may have changed the same data since. A server that was suspended reads them late.
fn is_reset(input: &OwnedReadHalf) -> bool {
    input.peer_addr().is_err()
}

/// Sends replies in the order in which the calls end.
async fn write_replies(mut output: impl AsyncWrite + Unpin, mut sent: mpsc::Receiver<Answer>) -> io::Result<()> {
    while let Some(answer) = sent.recv().await {
        let (reply, _permits) = answer.ok_or(io::ErrorKind::InvalidData)?;
        timeout(TRANSFER_TIMEOUT, output.write_all(&reply)).await??;
    }
    Ok(())
}
