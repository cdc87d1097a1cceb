//! The network endpoint of a worker.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_dataset::Principal;
use godwit_fleet::WorkerId;
use godwit_flight::{
    Address, Batches, Client, DataPlane, Download, FlightDescriptor, PutResultStream, Routes, Server, Status,
    TransportOptions, Upload,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};

use crate::bytes_batch;
use crate::credentials::ClusterCredentials;
use crate::download_source::{DownloadSource, serve_download};
use crate::error::ConnectionError;
use crate::head_endpoint::start_runtime;
use crate::messages::{HeadMessage, JobMessages, UploadHeader, WorkerMessage};

/// Maximum number of events that wait to be sent to the head. Events are few and small; if the queue is full, the
/// sending threads wait.
const QUEUE_LENGTH: usize = 256;

/// The connection of a worker to the head, of any job: the messages of both, and downloads from the head and other
/// workers.
pub struct WorkerConnection {
    runtime: Arc<Runtime>,
    head: SocketAddr,
    credentials: ClusterCredentials,
    /// Messages to the head, as JSON.
    events: mpsc::Sender<Vec<u8>>,
    /// Messages from the head, as JSON.
    commands: Mutex<mpsc::Receiver<Result<Bytes, ConnectionError>>>,
    stop_waiting: Notify,
    /// Connections for downloads and uploads, by address of the head or of another worker.
    connections: tokio::sync::Mutex<HashMap<SocketAddr, Client>>,
}

impl WorkerConnection {
    /// Connects to the head and requests to join its run.
    ///
    /// # Errors
    /// [`ConnectionError::StartNetwork`] if threads cannot be started; [`ConnectionError::Flight`] if the head cannot
    /// be reached.
    pub fn join(
        head: SocketAddr,
        credentials: ClusterCredentials,
        version: &str,
        name: &str,
    ) -> Result<Self, ConnectionError> {
        let runtime = Arc::new(start_runtime()?);
        let (events, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (sender, orders) = mpsc::channel(QUEUE_LENGTH);
        let opening = to_json(&UploadHeader::<()>::Join { version: version.to_owned(), name: name.to_owned() });
        let access = credentials.client_access.clone();
        runtime.block_on(async {
            let client = Client::connect(&Address::Tcp(head), access, TransportOptions::default()).await?;
            let (upload, answers) = client.upload(&FlightDescriptor::default(), &bytes_batch::schema())?;
            tokio::spawn(send_events(upload, opening, receiver));
            tokio::spawn(receive_commands(answers, sender));
            Ok::<_, ConnectionError>(())
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

    /// Waits until the head accepts this worker. Returns the id of the worker, and the task.
    ///
    /// # Errors
    /// [`ConnectionError::WorkerRejected`] if the head rejects the worker, and the errors of
    /// [`WorkerEndpoint::next_command`].
    pub fn wait_for_task<T: DeserializeOwned>(&self) -> Result<(WorkerId, T), ConnectionError> {
        match self.next_message::<T, IgnoredAny>()? {
            HeadMessage::AcceptWorker { worker, task } => Ok((worker, task)),
            HeadMessage::RejectWorker { reason } => Err(ConnectionError::WorkerRejected { reason }),
            HeadMessage::Command { .. } | HeadMessage::Finish => {
                Err(ConnectionError::invalid_head_message("a command before the task"))
            }
        }
    }

    /// Returns the endpoint of a job whose head has accepted this worker.
    pub fn endpoint<J: JobMessages>(&self, worker: WorkerId) -> WorkerEndpoint<'_, J> {
        WorkerEndpoint { connection: self, worker, job: PhantomData }
    }

    /// Reports the failure of this worker to the head. The head also notices that the connection closes, so an error is
    /// ignored.
    pub(crate) fn report_failure(&self, message: String, fatal_exit_code: Option<i32>) {
        let _ = self.send_message(&WorkerMessage::<()>::Failed { message, fatal_exit_code });
    }

    fn next_message<T: DeserializeOwned, C: DeserializeOwned>(&self) -> Result<HeadMessage<T, C>, ConnectionError> {
        let mut orders = self.commands.lock();
        let text = self.runtime.block_on(async {
            tokio::select! {
                order = orders.recv() => order.unwrap_or(Err(ConnectionError::HeadLost)),
                () = self.stop_waiting.notified() => Err(ConnectionError::HeadLost),
            }
        })?;
        serde_json::from_slice(&text).map_err(|error| ConnectionError::invalid_head_message(error.to_string()))
    }

    fn send_message(&self, message: &impl Serialize) -> Result<(), ConnectionError> {
        self.runtime.block_on(self.events.send(to_json(message))).map_err(|_| ConnectionError::HeadLost)
    }

    async fn drop_connection(&self, peer: SocketAddr) {
        self.connections.lock().await.remove(&peer);
    }

    async fn open_download(&self, from: SocketAddr, ticket: Vec<u8>) -> Result<Batches, ConnectionError> {
        Ok(self.connection(from).await?.download(ticket).await?)
    }

    /// Returns the connection for data to a peer. Creates the connection if there is none yet.
    async fn connection(&self, peer: SocketAddr) -> Result<Client, ConnectionError> {
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

/// Returns a message of this worker as JSON. Messages of workers contain text, numbers and addresses, no paths.
fn to_json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages of workers are plain data")
}

/// The endpoint of a worker that a head has accepted, with the messages of its job.
pub struct WorkerEndpoint<'c, J> {
    connection: &'c WorkerConnection,
    worker: WorkerId,
    job: PhantomData<fn(J)>,
}

impl<J> Clone for WorkerEndpoint<'_, J> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<J> Copy for WorkerEndpoint<'_, J> {}

impl<'c, J: JobMessages> WorkerEndpoint<'c, J> {
    /// Returns the id of this worker in the run.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Starts a server from which other workers download. Returns the address of the server, with a free port of `ip`.
    ///
    /// # Errors
    /// [`ConnectionError::Flight`] if no port can be bound.
    pub fn serve_downloads(
        &self,
        ip: IpAddr,
        source: Arc<impl DownloadSource<Ticket = J::Ticket>>,
    ) -> Result<SocketAddr, ConnectionError> {
        let address = Address::Tcp(SocketAddr::new(ip, 0));
        let plane = WorkerService { source };
        let server = Server::bind(
            &address,
            plane,
            Routes::default(),
            self.connection.credentials.server_access.clone(),
            TransportOptions::default(),
        );
        let server = self.connection.runtime.block_on(server)?;
        let Address::Tcp(address) = *server.address() else { unreachable!("it was asked for TCP") };
        self.connection.runtime.spawn(server.serve());
        Ok(address)
    }

    /// Waits for the next command of the head and returns it; `None` if the run has finished.
    ///
    /// # Errors
    /// [`ConnectionError::HeadLost`] if the connection to the head was lost or [`Self::stop_waiting_for_commands`] was
    /// called. [`ConnectionError::Flight`] if the head rejects the connection,
    /// [`ConnectionError::WorkerRejected`] if it rejects the worker, and [`ConnectionError::InvalidMessage`] for an
    /// invalid command.
    pub fn next_command(&self) -> Result<Option<J::Command>, ConnectionError> {
        match self.connection.next_message::<IgnoredAny, _>()? {
            HeadMessage::Command { command } => Ok(Some(command)),
            HeadMessage::Finish => Ok(None),
            HeadMessage::RejectWorker { reason } => Err(ConnectionError::WorkerRejected { reason }),
            HeadMessage::AcceptWorker { .. } => {
                Err(ConnectionError::invalid_head_message("the worker is accepted already"))
            }
        }
    }

    /// Wakes the thread that waits in [`Self::next_command`]. Called when further commands are not needed.
    pub fn stop_waiting_for_commands(&self) {
        self.connection.stop_waiting.notify_one();
    }

    /// Sends an event to the head.
    ///
    /// # Errors
    /// [`ConnectionError::HeadLost`] if the connection to the head was lost.
    pub fn send_event(&self, event: J::Event) -> Result<(), ConnectionError> {
        self.connection.send_message(&WorkerMessage::Event { event })
    }

    /// Uploads data to the head, and waits until the head has received all of the data.
    ///
    /// # Errors
    /// [`ConnectionError::Flight`] if the head rejects the upload or the connection fails.
    pub fn upload(&self, description: J::Upload, pieces: Vec<Buffer>) -> Result<(), ConnectionError> {
        let piece_bytes = pieces.iter().map(|piece| piece.len() as u64).collect();
        let opening = to_json(&UploadHeader::Data { worker: self.worker, description, piece_bytes });
        let connection = self.connection;
        connection.runtime.block_on(async {
            let client = connection.connection(connection.head).await?;
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
            received.and(sent).map_err(ConnectionError::from)
        })
    }

    /// Opens a download from the head.
    ///
    /// # Errors
    /// [`ConnectionError::Flight`] if the head rejects the ticket or the connection fails.
    pub fn download_from_head(&self, ticket: &J::Ticket) -> Result<DownloadReader<'c>, ConnectionError> {
        let connection = self.connection;
        let batches = connection.runtime.block_on(connection.open_download(connection.head, to_json(ticket)))?;
        Ok(DownloadReader { connection, batches })
    }

    /// Opens a download from another worker.
    ///
    /// # Errors
    /// [`ConnectionError::Flight`] if the other worker rejects the ticket or the connection fails.
    pub fn download_from_worker(
        &self,
        from: SocketAddr,
        ticket: &J::Ticket,
    ) -> Result<DownloadReader<'c>, ConnectionError> {
        let connection = self.connection;
        let batches = connection.runtime.block_on(connection.open_download(from, to_json(ticket)));
        let batches = batches.inspect_err(|_| connection.runtime.block_on(connection.drop_connection(from)))?;
        Ok(DownloadReader { connection, batches })
    }
}

/// A reader of the batches of a download.
pub struct DownloadReader<'c> {
    connection: &'c WorkerConnection,
    batches: Batches,
}

impl DownloadReader<'_> {
    /// Returns the next batch and its application metadata.
    ///
    /// # Errors
    /// [`ConnectionError::Flight`] if the download fails.
    pub fn next_batch(&mut self) -> Result<Option<(RecordBatch, Bytes)>, ConnectionError> {
        Ok(self.connection.runtime.block_on(self.batches.next())?)
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
async fn send_events(mut upload: godwit_flight::BatchSender, opening: Vec<u8>, mut reports: mpsc::Receiver<Vec<u8>>) {
    let empty = bytes_batch::batch_from_bytes(Buffer::default());
    if upload.send(&empty, &opening).await.is_err() {
        return;
    }
    while let Some(text) = reports.recv().await {
        if upload.send(&empty, &text).await.is_err() {
            return;
        }
    }
    // An error is ignored: the end of the connection also informs the head.
    let _ = upload.finish().await;
}

/// Receives commands from the head and forwards them to the channel `orders`. Stops at the first error.
async fn receive_commands(
    answers: impl Future<Output = Result<godwit_flight::Answered, godwit_flight::FlightError>>,
    orders: mpsc::Sender<Result<Bytes, ConnectionError>>,
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
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err(ConnectionError::HeadLost),
            Err(error) => Err(error.into()),
        };
        let ended = order.is_err();
        if orders.send(order).await.is_err() || ended {
            return;
        }
    }
}
