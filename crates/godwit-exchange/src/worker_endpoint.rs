//! The network endpoint of a worker.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_flight::{
    Address, Batches, Client, ClientTls, ConnectionSecurity, DataPlane, Download, FlightDescriptor, Principal,
    PutResultStream, Routes, Server, ServerTls, Status, Token, TransportOptions, Upload, create_identity,
};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};

use crate::bytes_batch;
use crate::download_source::{DownloadSource, serve_download};
use crate::error::ExchangeError;
use crate::head_endpoint::start_runtime;
use crate::shuffle_scheduler::WorkerId;
use crate::worker_messages::{Command, DownloadTicket, UploadHeader, WorkerEvent, WorkerUpload};

/// Maximum number of events that wait to be sent to the head. Events are few and small; if the queue is full, the
/// sending threads wait.
const QUEUE_LENGTH: usize = 256;

/// The credentials of a process of a cluster run, as a server and as a client.
#[derive(Clone)]
pub struct ClusterCredentials {
    /// Security that this process requires from clients that connect to it.
    pub server_access: ConnectionSecurity<ServerTls>,
    /// Credentials that this process sends to the servers to which it connects.
    pub client_access: ConnectionSecurity<ClientTls>,
}

/// The host name in the TLS certificate that all processes of a run share. It does not depend on the host.
const CERTIFICATE_NAME: &str = "godwit";

impl ClusterCredentials {
    /// Creates the TLS certificate of a run and stores it in a directory that the workers can read.
    ///
    /// # Errors
    /// [`ExchangeError::Tls`] if the certificate cannot be created or stored.
    pub fn create_certificate(directory: &Path) -> Result<(), ExchangeError> {
        Ok(create_identity(directory, CERTIFICATE_NAME).map(drop)?)
    }

    /// Loads the certificate of a run from the directory that [`Self::create_certificate`] wrote. Both ends of every
    /// connection of the run require the certificate and the token.
    ///
    /// # Errors
    /// [`ExchangeError::Tls`] if the certificate cannot be read; [`ExchangeError::InvalidMessage`] if the token is
    /// malformed.
    pub fn load(token: &str, directory: &Path) -> Result<Self, ExchangeError> {
        let token = Token::new(token);
        let malformed =
            || ExchangeError::InvalidMessage { peer: "the rendezvous", problem: "it contains an invalid token".into() };
        let token = Some(token.ok_or_else(malformed)?);
        let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
        let server = ServerTls::from_files(&certificate, &key, Some(&certificate))?;
        let client = ClientTls::from_files(&certificate, CERTIFICATE_NAME, Some((&certificate, &key)))?;
        let server_access = ConnectionSecurity { token: token.clone(), tls: Some(server) };
        Ok(Self { server_access, client_access: ConnectionSecurity { token, tls: Some(client) } })
    }
}

/// The network endpoint of a worker: its connection to the head, and downloads from the head and other workers.
pub struct WorkerEndpoint {
    runtime: Arc<Runtime>,
    head: SocketAddr,
    credentials: ClusterCredentials,
    events: mpsc::Sender<WorkerEvent>,
    commands: Mutex<mpsc::Receiver<Result<Command, ExchangeError>>>,
    stop_waiting: Notify,
    /// Connections for downloads and uploads, by address of the head or of another worker.
    connections: tokio::sync::Mutex<HashMap<SocketAddr, Client>>,
}

impl WorkerEndpoint {
    /// Connects to the head and requests to join its run.
    ///
    /// # Errors
    /// [`ExchangeError::StartNetwork`] if threads cannot be started; [`ExchangeError::Flight`] if the head cannot be
    /// reached.
    pub fn join(
        head: SocketAddr,
        credentials: ClusterCredentials,
        version: &str,
        name: &str,
    ) -> Result<Self, ExchangeError> {
        let runtime = Arc::new(start_runtime()?);
        let (events, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (sender, orders) = mpsc::channel(QUEUE_LENGTH);
        let opening = UploadHeader::Join { version: version.to_owned(), name: name.to_owned() };
        let opening = serde_json::to_vec(&opening).expect("it is plain data");
        let access = credentials.client_access.clone();
        runtime.block_on(async {
            let client = Client::connect(&Address::Tcp(head), access, TransportOptions::default()).await?;
            let (upload, answers) = client.upload(&FlightDescriptor::default(), &bytes_batch::schema())?;
            tokio::spawn(send_events(upload, opening, receiver));
            tokio::spawn(receive_commands(answers, sender));
            Ok::<_, ExchangeError>(())
        })?;
        let connections = tokio::sync::Mutex::default();
        Ok(Self {
            runtime,
            head,
            credentials,
            events,
            commands: Mutex::new(orders),
            stop_waiting: Notify::new(),
            connections,
        })
    }

    /// Starts a server from which other workers download. Returns the address of the server, with a free port of `ip`.
    ///
    /// # Errors
    /// [`ExchangeError::Flight`] if no port can be bound.
    pub fn serve_downloads(&self, ip: IpAddr, source: Arc<impl DownloadSource>) -> Result<SocketAddr, ExchangeError> {
        let address = Address::Tcp(SocketAddr::new(ip, 0));
        let plane = WorkerService { source };
        let server = Server::bind(
            &address,
            plane,
            Routes::default(),
            self.credentials.server_access.clone(),
            TransportOptions::default(),
        );
        let server = self.runtime.block_on(server)?;
        let Address::Tcp(address) = *server.address() else { unreachable!("the server was started on TCP") };
        self.runtime.spawn(server.serve());
        Ok(address)
    }

    /// Waits for the next command of the head and returns it.
    ///
    /// # Errors
    /// [`ExchangeError::HeadLost`] if the connection to the head was lost or [`Self::stop_waiting_for_commands`] was
    /// called. [`ExchangeError::Flight`] if the head rejects the connection, and [`ExchangeError::InvalidMessage`] for
    /// an invalid command.
    pub fn next_command(&self) -> Result<Command, ExchangeError> {
        let mut orders = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        self.runtime.block_on(async {
            tokio::select! {
                order = orders.recv() => order.unwrap_or(Err(ExchangeError::HeadLost)),
                () = self.stop_waiting.notified() => Err(ExchangeError::HeadLost),
            }
        })
    }

    /// Wakes the thread that waits in [`Self::next_command`]. Called when further commands are not needed.
    pub fn stop_waiting_for_commands(&self) {
        self.stop_waiting.notify_one();
    }

    /// Sends an event to the head.
    ///
    /// # Errors
    /// [`ExchangeError::HeadLost`] if the connection to the head was lost.
    pub fn send_event(&self, report: WorkerEvent) -> Result<(), ExchangeError> {
        self.runtime.block_on(self.events.send(report)).map_err(|_| ExchangeError::HeadLost)
    }

    /// Uploads data to the head, and waits until the head has received all of the data.
    ///
    /// # Errors
    /// [`ExchangeError::Flight`] if the head rejects the upload or the connection fails.
    pub fn upload(&self, worker: WorkerId, upload: WorkerUpload, pieces: Vec<Buffer>) -> Result<(), ExchangeError> {
        let sizes = pieces.iter().map(|piece| piece.len() as u64).collect();
        let opening =
            serde_json::to_vec(&UploadHeader::Data { worker, upload, piece_bytes: sizes }).expect("it is plain data");
        self.runtime.block_on(async {
            let client = self.connection(self.head).await?;
            let (mut upload, answers) = client.upload(&FlightDescriptor::default(), &bytes_batch::schema())?;
            let sending = async {
                upload.send(&bytes_batch::batch_from_bytes(Buffer::default()), &opening).await?;
                for batch in bytes_batch::split_into_batches(pieces) {
                    upload.send(&batch, &[]).await?;
                }
                upload.finish().await
            };
            let receiving = async {
                let mut answers = answers.await?;
                while answers.next().await?.is_some() {}
                Ok(())
            };
            let (sent, received) = tokio::join!(sending, receiving);
            // If the head ended the upload early, its response contains the reason, so this error takes precedence.
            received.and(sent).map_err(ExchangeError::from)
        })
    }

    /// Opens a download from the head.
    ///
    /// # Errors
    /// [`ExchangeError::Flight`] if the head rejects the ticket or the connection fails.
    pub fn download_from_head(&self, ticket: &DownloadTicket) -> Result<DownloadReader<'_>, ExchangeError> {
        let batches = self.runtime.block_on(self.open_download(self.head, ticket))?;
        Ok(DownloadReader { endpoint: self, batches })
    }

    /// Opens a download from another worker.
    ///
    /// # Errors
    /// [`ExchangeError::Flight`] if the other worker rejects the ticket or the connection fails.
    pub fn download_from_worker(
        &self,
        from: SocketAddr,
        ticket: &DownloadTicket,
    ) -> Result<DownloadReader<'_>, ExchangeError> {
        let batches = self.runtime.block_on(self.open_download(from, ticket));
        let batches = batches.inspect_err(|_| self.runtime.block_on(self.drop_connection(from)))?;
        Ok(DownloadReader { endpoint: self, batches })
    }

    async fn drop_connection(&self, peer: SocketAddr) {
        self.connections.lock().await.remove(&peer);
    }

    async fn open_download(&self, from: SocketAddr, ticket: &DownloadTicket) -> Result<Batches, ExchangeError> {
        let ticket = serde_json::to_vec(ticket).expect("tickets are plain data");
        Ok(self.connection(from).await?.download(ticket).await?)
    }

    /// Returns the connection for data to a peer. Creates the connection if there is none yet.
    async fn connection(&self, peer: SocketAddr) -> Result<Client, ExchangeError> {
        let mut connections = self.connections.lock().await;
        if let Some(client) = connections.get(&peer) {
            return Ok(client.clone());
        }
        let client =
            Client::connect(&Address::Tcp(peer), self.credentials.client_access.clone(), TransportOptions::default())
                .await?;
        connections.insert(peer, client.clone());
        Ok(client)
    }
}

/// A reader of the batches of a download.
pub struct DownloadReader<'n> {
    endpoint: &'n WorkerEndpoint,
    batches: Batches,
}

impl DownloadReader<'_> {
    /// Returns the next batch and its application metadata.
    ///
    /// # Errors
    /// [`ExchangeError::Flight`] if the download fails.
    pub fn next_batch(&mut self) -> Result<Option<(RecordBatch, Bytes)>, ExchangeError> {
        Ok(self.endpoint.runtime.block_on(self.batches.next())?)
    }

    /// Returns the schema of the batches, or `None` if no batch has been read yet.
    pub fn schema(&self) -> Option<&arrow_schema::SchemaRef> {
        self.batches.schema()
    }
}

struct WorkerService<S> {
    source: Arc<S>,
}

impl<S: DownloadSource> DataPlane for WorkerService<S> {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        serve_download(&self.source, &ticket).await
    }

    async fn upload(&self, _: Principal, _: Upload) -> Result<PutResultStream, Status> {
        Err(Status::unimplemented("DoPut is not supported by a worker"))
    }
}

/// Sends the events of this worker to the head until the channel is closed or the head is lost.
async fn send_events(
    mut upload: godwit_flight::BatchSender,
    opening: Vec<u8>,
    mut reports: mpsc::Receiver<WorkerEvent>,
) {
    let empty = bytes_batch::batch_from_bytes(Buffer::default());
    if upload.send(&empty, &opening).await.is_err() {
        return;
    }
    while let Some(report) = reports.recv().await {
        let text = serde_json::to_vec(&report).expect("reports are plain data");
        if upload.send(&empty, &text).await.is_err() {
            return;
        }
    }
    // Ignore the error: the head also detects the end of the connection.
    let _ = upload.finish().await;
}

/// Receives commands from the head and forwards them to the channel `orders`. Stops at the first error.
async fn receive_commands(
    answers: impl Future<Output = Result<godwit_flight::Answered, godwit_flight::FlightError>>,
    orders: mpsc::Sender<Result<Command, ExchangeError>>,
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
                .map_err(|error| ExchangeError::InvalidMessage { peer: "the head", problem: error.to_string() }),
            Ok(None) => Err(ExchangeError::HeadLost),
            Err(error) => Err(error.into()),
        };
        let ended = order.is_err();
        if orders.send(order).await.is_err() || ended {
            return;
        }
    }
}
