//! Transfers of a workload over several connections at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_flight::FlightDescriptor;

use super::{Workload, batches_of_stream};
use crate::batch_split::batch_bytes;
use crate::client::Client;
use crate::error::FlightError;

/// The size and duration of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferStats {
    /// Rows that were received.
    pub rows: u64,
    /// Bytes of their buffers.
    pub bytes: u64,
    /// Its duration.
    pub duration: Duration,
}

/// Has the server make the batches of a workload, so that no download waits for it.
///
/// # Errors
/// [`FlightError`] where the server rejects it or the connection fails.
pub async fn prepare_workload(client: &Client, workload: Workload) -> Result<(), FlightError> {
    let mut prepared = client.download(format!("{workload}/0/0")).await?;
    while prepared.next().await?.is_some() {}
    Ok(())
}

/// Downloads the workload over all clients at once, an equal part each.
///
/// # Errors
/// [`FlightError`] where the server rejects it or a connection fails.
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

/// Uploads batches of one schema over all clients at once, an equal part each.
///
/// # Errors
/// [`FlightError`] where the server rejects it or a connection fails.
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

/// Exchanges batches of one schema over all clients at once, an equal part each, with a server that echoes them. The bytes
/// are those received: as many were sent.
///
/// # Errors
/// [`FlightError`] where the server rejects it or a connection fails.
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

/// Runs all transfers at once, each with its 0-based number, and adds up their results.
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
    pub(super) fn add_batch(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        self.bytes += batch_bytes(batch) as u64;
    }
}
