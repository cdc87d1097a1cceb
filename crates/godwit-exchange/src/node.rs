//! A node's end of the network.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_flight::{
    Access, Address, Answers, Batches, Caller, Client, ClientTls, DataPlane, Download, FlightDescriptor, Routes,
    Server, ServerTls, Status, Token, Tuning, Upload, make_identity,
};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};

use crate::bytes_batch;
use crate::error::ExchangeError;
use crate::head::runtime;
use crate::ledger::NodeId;
use crate::protocol::{Gift, Opening, Order, Report, Ticket};
use crate::shelf::{Shelf, download};

/// Reports on their way to the head. They are few and small; whoever has more to say waits.
const REPORTS: usize = 256;

/// How to get to others, and what they have to know to get here.
#[derive(Clone)]
pub struct Keys {
    /// For others.
    pub server: Access<ServerTls>,
    /// For oneself.
    pub client: Access<ClientTls>,
}

/// The name that all processes of a run have in their certificate, wherever they are.
const NAME: &str = "godwit";

impl Keys {
    /// Makes the certificate of a run in a directory that its nodes can read.
    ///
    /// # Errors
    /// [`ExchangeError::Tls`].
    pub fn make(directory: &Path) -> Result<(), ExchangeError> {
        Ok(make_identity(directory, NAME).map(drop)?)
    }

    /// The token of a run, and its certificate from that directory: both ends of every connection show it.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn of_run(token: &str, directory: &Path) -> Result<Self, ExchangeError> {
        let token = Token::new(token);
        let malformed = || ExchangeError::Malformed { peer: "the rendezvous", problem: "its token is none".into() };
        let token = Some(token.ok_or_else(malformed)?);
        let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
        let server = ServerTls::from_files(&certificate, &key, Some(&certificate))?;
        let client = ClientTls::from_files(&certificate, NAME, Some((&certificate, &key)))?;
        let server = Access { token: token.clone(), tls: Some(server) };
        Ok(Self { server, client: Access { token, tls: Some(client) } })
    }
}

/// The network of a node.
pub struct Node {
    runtime: Arc<Runtime>,
    head: SocketAddr,
    keys: Keys,
    reports: mpsc::Sender<Report>,
    orders: Mutex<mpsc::Receiver<Result<Order, ExchangeError>>>,
    left: Notify,
    /// Connections for data: to the head, and to other nodes.
    connections: tokio::sync::Mutex<HashMap<SocketAddr, Client>>,
}

impl Node {
    /// Connects to the head and asks to be part of its run.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn join(head: SocketAddr, keys: Keys, version: &str, name: &str) -> Result<Self, ExchangeError> {
        let runtime = Arc::new(runtime()?);
        let (reports, receiver) = mpsc::channel(REPORTS);
        let (sender, orders) = mpsc::channel(REPORTS);
        let opening = Opening::Join { version: version.to_owned(), name: name.to_owned() };
        let opening = serde_json::to_vec(&opening).expect("it is plain data");
        let access = keys.client.clone();
        runtime.block_on(async {
            let client = Client::connect(&Address::Tcp(head), access, Tuning::default()).await?;
            let (upload, answers) = client.upload(&FlightDescriptor::default(), &bytes_batch::schema())?;
            tokio::spawn(talk(upload, opening, receiver));
            tokio::spawn(listen(answers, sender));
            Ok::<_, ExchangeError>(())
        })?;
        let connections = tokio::sync::Mutex::default();
        Ok(Self { runtime, head, keys, reports, orders: Mutex::new(orders), left: Notify::new(), connections })
    }

    /// Lets others fetch from here. Returns where.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn serve(&self, at: IpAddr, shelf: Arc<impl Shelf>) -> Result<SocketAddr, ExchangeError> {
        let address = Address::Tcp(SocketAddr::new(at, 0));
        let plane = NodePlane { shelf };
        let server = Server::bind(&address, plane, Routes::default(), self.keys.server.clone(), Tuning::default());
        let server = self.runtime.block_on(server)?;
        let Address::Tcp(address) = *server.address() else { unreachable!("it was asked for TCP") };
        self.runtime.spawn(server.serve());
        Ok(address)
    }

    /// The next order.
    ///
    /// # Errors
    /// [`ExchangeError::HeadLost`], and what the head refuses.
    pub fn next_order(&self) -> Result<Order, ExchangeError> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        self.runtime.block_on(async {
            tokio::select! {
                order = orders.recv() => order.unwrap_or(Err(ExchangeError::HeadLost)),
                () = self.left.notified() => Err(ExchangeError::HeadLost),
            }
        })
    }

    /// Wakes whoever waits for an order that is not needed any more.
    pub fn leave(&self) {
        self.left.notify_one();
    }

    /// Says something to the head.
    ///
    /// # Errors
    /// [`ExchangeError::HeadLost`].
    pub fn say(&self, report: Report) -> Result<(), ExchangeError> {
        self.runtime.block_on(self.reports.send(report)).map_err(|_| ExchangeError::HeadLost)
    }

    /// Hands something over to the head, and waits until it is there.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn give(&self, node: NodeId, gift: Gift, pieces: Vec<Buffer>) -> Result<(), ExchangeError> {
        let sizes = pieces.iter().map(|piece| piece.len() as u64).collect();
        let opening = serde_json::to_vec(&Opening::Gift { node, gift, pieces: sizes }).expect("it is plain data");
        self.runtime.block_on(async {
            let client = self.connection(self.head).await?;
            let (mut upload, answers) = client.upload(&FlightDescriptor::default(), &bytes_batch::schema())?;
            let sending = async {
                upload.send(&bytes_batch::of_bytes(Buffer::default()), &opening).await?;
                for batch in bytes_batch::cut(pieces) {
                    upload.send(&batch, &[]).await?;
                }
                upload.finish().await
            };
            let answered = async {
                let mut answers = answers.await?;
                while answers.next().await?.is_some() {}
                Ok(())
            };
            let (sent, answered) = tokio::join!(sending, answered);
            // Where the head ended the upload its answer says why.
            answered.and(sent).map_err(ExchangeError::from)
        })
    }

    /// Downloads from the head.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn get(&self, ticket: &Ticket) -> Result<Incoming<'_>, ExchangeError> {
        let batches = self.runtime.block_on(self.download(self.head, ticket))?;
        Ok(Incoming { node: self, batches })
    }

    /// Downloads from another node.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn fetch(&self, from: SocketAddr, ticket: &Ticket) -> Result<Incoming<'_>, ExchangeError> {
        let batches = self.runtime.block_on(self.download(from, ticket));
        let batches = batches.inspect_err(|_| self.runtime.block_on(self.forget(from)))?;
        Ok(Incoming { node: self, batches })
    }

    async fn forget(&self, peer: SocketAddr) {
        self.connections.lock().await.remove(&peer);
    }

    async fn download(&self, from: SocketAddr, ticket: &Ticket) -> Result<Batches, ExchangeError> {
        let ticket = serde_json::to_vec(ticket).expect("tickets are plain data");
        Ok(self.connection(from).await?.download(ticket).await?)
    }

    /// The one connection for data to a peer.
    async fn connection(&self, peer: SocketAddr) -> Result<Client, ExchangeError> {
        let mut connections = self.connections.lock().await;
        if let Some(client) = connections.get(&peer) {
            return Ok(client.clone());
        }
        let client = Client::connect(&Address::Tcp(peer), self.keys.client.clone(), Tuning::default()).await?;
        connections.insert(peer, client.clone());
        Ok(client)
    }
}

/// Batches on their way in.
pub struct Incoming<'n> {
    node: &'n Node,
    batches: Batches,
}

impl Incoming<'_> {
    /// The next batch and what is said beside it.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn next_batch(&mut self) -> Result<Option<(RecordBatch, Bytes)>, ExchangeError> {
        Ok(self.node.runtime.block_on(self.batches.next())?)
    }

    /// The schema, once a batch was taken.
    pub fn schema(&self) -> Option<&arrow_schema::SchemaRef> {
        self.batches.schema()
    }
}

struct NodePlane<S> {
    shelf: Arc<S>,
}

impl<S: Shelf> DataPlane for NodePlane<S> {
    async fn download(&self, _: Caller, ticket: Bytes) -> Result<Download, Status> {
        download(&self.shelf, &ticket).await
    }

    async fn upload(&self, _: Caller, _: Upload) -> Result<Answers, Status> {
        Err(Status::unimplemented("a node takes no uploads"))
    }
}

/// Carries reports to the head until there are no more, or the head is gone.
async fn talk(mut upload: godwit_flight::Sender, opening: Vec<u8>, mut reports: mpsc::Receiver<Report>) {
    let empty = bytes_batch::of_bytes(Buffer::default());
    if upload.send(&empty, &opening).await.is_err() {
        return;
    }
    while let Some(report) = reports.recv().await {
        let text = serde_json::to_vec(&report).expect("reports are plain data");
        if upload.send(&empty, &text).await.is_err() {
            return;
        }
    }
    // The other side learns of it by the end of the connection too.
    let _ = upload.finish().await;
}

/// Carries orders here.
async fn listen(
    answers: impl Future<Output = Result<godwit_flight::Answered, godwit_flight::FlightError>>,
    orders: mpsc::Sender<Result<Order, ExchangeError>>,
) {
    let mut answers = match answers.await {
        Ok(answers) => answers,
        Err(error) => {
            let _ = orders.send(Err(error.into())).await;
            return;
        }
    };
    loop {
        let order = match answers.next().await {
            Ok(Some(text)) => serde_json::from_slice(&text)
                .map_err(|error| ExchangeError::Malformed { peer: "the head", problem: error.to_string() }),
            Ok(None) => Err(ExchangeError::HeadLost),
            Err(error) => Err(error.into()),
        };
        let ended = order.is_err();
        if orders.send(order).await.is_err() || ended {
            return;
        }
    }
}
