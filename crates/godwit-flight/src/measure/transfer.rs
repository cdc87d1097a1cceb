//! Measured transfers of a workload over several connections at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_flight::FlightDescriptor;
use godwit_model::batch_bytes;

use super::{Workload, batches_of_stream};
use crate::client::Client;
use crate::error::FlightError;

/// The size and duration of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferStats {
    /// Number of rows that were transferred.
    pub rows: u64,
    /// Size of the Arrow buffers of these rows, bytes.
    pub bytes: u64,
    /// Duration of the transfer.
    pub duration: Duration,
}

/// Requests that the server creates the batches of a workload, so that a measured download does not include this time.
///
/// # Errors
/// [`FlightError`] if the server rejects the request or the connection fails.
pub async fn prepare_workload(client: &Client, workload: Workload) -> Result<(), FlightError> {
    let mut prepared = client.download(format!("{workload}/0/0")).await?;
    while prepared.next().await?.is_some() {}
    Ok(())
}

/// Downloads a workload over all clients at once. Each client transfers an equal part.
///
/// # Errors
/// [`FlightError`] if the server rejects a call or a connection fails.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server, TransportOptions};
/// # use godwit_flight::measure::WorkloadDataPlane;
/// use godwit_flight::measure::{Workload, download, prepare_workload};
///
/// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
/// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
/// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
/// # let address = server.address().clone();
/// # tokio::spawn(server.serve());
/// # let connect = || Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default());
/// let clients = [connect().await?, connect().await?];
/// let workload: Workload = "fixed/2/1000/32000".parse()?;
/// prepare_workload(&clients[0], workload).await?;
/// let stats = download(&clients, workload).await?;
/// assert_eq!(stats.rows, 2000);
/// # Ok(())
/// # }
/// ```
pub async fn download(clients: &[Client], workload: Workload) -> Result<TransferStats, FlightError> {
    let streams = clients.len();
    run_transfers(clients.iter().cloned(), |stream, client| async move {
        let mut batches = client.download(format!("{workload}/{stream}/{streams}")).await?;
        let mut transferred = TransferStats::default();
        while let Some((batch, _)) = batches.next().await? {
            transferred.add_batch(&batch);
        }
        Ok(transferred)
    })
    .await
}

/// Uploads batches of one schema over all clients at once. Each client transfers an equal part.
///
/// # Errors
/// [`FlightError`] if the server rejects a call or a connection fails.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server, TransportOptions};
/// # use godwit_flight::measure::WorkloadDataPlane;
/// use std::sync::Arc;
///
/// use godwit_flight::measure::{Workload, upload};
///
/// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
/// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
/// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
/// # let address = server.address().clone();
/// # tokio::spawn(server.serve());
/// # let connect = || Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default());
/// let clients = [connect().await?, connect().await?];
/// let workload: Workload = "alignments/0/1000/700000".parse()?;
/// let stats = upload(&clients, &Arc::new(workload.batches())).await?;
/// assert_eq!(stats.rows, 2000);
/// # Ok(())
/// # }
/// ```
pub async fn upload(clients: &[Client], batches: &Arc<Vec<RecordBatch>>) -> Result<TransferStats, FlightError> {
    let streams = clients.len();
    run_transfers(clients.iter().cloned(), |stream, client| {
        let batches = batches.clone();
        async move {
            let (mut sender, answers) = client.upload(&bench_descriptor(), &batches[0].schema())?;
            let sending = async {
                let mut transferred = TransferStats::default();
                for batch in batches_of_stream(batches, stream, streams) {
                    sender.send(&batch, &[]).await?;
                    transferred.add_batch(&batch);
                }
                sender.finish().await?;
                Ok::<_, FlightError>(transferred)
            };
            let taking = async {
                let mut answers = answers.await?;
                while answers.next().await?.is_some() {}
                Ok::<_, FlightError>(())
            };
            let (sent, taken) = tokio::join!(sending, taking);
            taken.and(sent)
        }
    })
    .await
}

/// Exchanges batches of one schema over all clients at once with a server that echoes them. Each client transfers an
/// equal part. The returned bytes are the received bytes; the same number was sent.
///
/// # Errors
/// [`FlightError`] if the server rejects a call or a connection fails.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server, TransportOptions};
/// # use godwit_flight::measure::WorkloadDataPlane;
/// use std::sync::Arc;
///
/// use godwit_flight::measure::{Workload, exchange};
///
/// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
/// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
/// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
/// # let address = server.address().clone();
/// # tokio::spawn(server.serve());
/// # let connect = || Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default());
/// let clients = [connect().await?];
/// let workload: Workload = "fixed/1/500/12000".parse()?;
/// let stats = exchange(&clients, &Arc::new(workload.batches())).await?;
/// assert_eq!(stats.rows, 1500);
/// # Ok(())
/// # }
/// ```
pub async fn exchange(clients: &[Client], batches: &Arc<Vec<RecordBatch>>) -> Result<TransferStats, FlightError> {
    let streams = clients.len();
    run_transfers(clients.iter().cloned(), |stream, client| {
        let batches = batches.clone();
        async move {
            let (mut sender, given) = client.exchange(&bench_descriptor(), &batches[0].schema())?;
            let sending = async {
                for batch in batches_of_stream(batches, stream, streams) {
                    sender.send(&batch, &[]).await?;
                }
                sender.finish().await
            };
            let taking = async {
                let mut given = given.await?;
                let mut transferred = TransferStats::default();
                while let Some((batch, _)) = given.next().await? {
                    transferred.add_batch(&batch);
                }
                Ok::<_, FlightError>(transferred)
            };
            let (sent, taken) = tokio::join!(sending, taking);
            sent.and(taken)
        }
    })
    .await
}

fn bench_descriptor() -> FlightDescriptor {
    FlightDescriptor::new_path(vec!["bench".into()])
}

/// Runs a transfer for each client at the same time, passing its 0-based number, and returns the sum of rows and bytes.
pub(super) async fn run_transfers<C, F>(
    ends: impl IntoIterator<Item = C>,
    transfer: impl Fn(usize, C) -> F,
) -> Result<TransferStats, FlightError>
where
    F: Future<Output = Result<TransferStats, FlightError>> + Send + 'static,
{
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (stream, end) in ends.into_iter().enumerate() {
        tasks.spawn(transfer(stream, end));
    }
    let mut total = TransferStats::default();
    while let Some(done) = tasks.join_next().await {
        let part = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        total.rows += part.rows;
        total.bytes += part.bytes;
    }
    total.duration = started.elapsed();
    Ok(total)
}

impl TransferStats {
    /// Adds the rows and the size of a batch.
    pub fn add_batch(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        self.bytes += batch_bytes(batch) as u64;
    }
}
