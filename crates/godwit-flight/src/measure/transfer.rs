//! Transfers of a workload over several connections at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_flight::FlightDescriptor;

use super::{Workload, share};
use crate::client::Client;
use crate::cut::data_bytes;
use crate::error::FlightError;

/// What a transfer came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transferred {
    /// Rows that arrived.
    pub rows: u64,
    /// Bytes of their buffers.
    pub bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Has the server make the batches of a workload, so that no download waits for it.
///
/// # Errors
/// [`FlightError`].
pub async fn prepare(client: &Client, workload: Workload) -> Result<(), FlightError> {
    let mut prepared = client.download(format!("{workload}/0/0")).await?;
    while prepared.next().await?.is_some() {}
    Ok(())
}

/// Downloads the workload over all clients at once, a share each.
///
/// # Errors
/// [`FlightError`].
pub async fn download(clients: &[Client], workload: Workload) -> Result<Transferred, FlightError> {
    let streams = clients.len();
    over_all(clients.iter().cloned(), |stream, client| async move {
        let mut batches = client.download(format!("{workload}/{stream}/{streams}")).await?;
        let mut transferred = Transferred::default();
        while let Some((batch, _)) = batches.next().await? {
            transferred.add(&batch);
        }
        Ok(transferred)
    })
    .await
}

/// Uploads batches of one schema over all clients at once, a share each.
///
/// # Errors
/// [`FlightError`].
pub async fn upload(clients: &[Client], batches: &Arc<Vec<RecordBatch>>) -> Result<Transferred, FlightError> {
    let streams = clients.len();
    over_all(clients.iter().cloned(), |stream, client| {
        let batches = batches.clone();
        async move {
            let (mut sender, answers) = client.upload(&descriptor(), &batches[0].schema())?;
            let sending = async {
                let mut transferred = Transferred::default();
                for batch in share(batches, stream, streams) {
                    sender.send(&batch, &[]).await?;
                    transferred.add(&batch);
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

/// Exchanges batches of one schema over all clients at once, a share each, with a server that gives them back. The bytes are
/// those that came back: as many went out.
///
/// # Errors
/// [`FlightError`].
pub async fn exchange(clients: &[Client], batches: &Arc<Vec<RecordBatch>>) -> Result<Transferred, FlightError> {
    let streams = clients.len();
    over_all(clients.iter().cloned(), |stream, client| {
        let batches = batches.clone();
        async move {
            let (mut sender, given) = client.exchange(&descriptor(), &batches[0].schema())?;
            let sending = async {
                for batch in share(batches, stream, streams) {
                    sender.send(&batch, &[]).await?;
                }
                sender.finish().await
            };
            let taking = async {
                let mut given = given.await?;
                let mut transferred = Transferred::default();
                while let Some((batch, _)) = given.next().await? {
                    transferred.add(&batch);
                }
                Ok::<_, FlightError>(transferred)
            };
            let (sent, taken) = tokio::join!(sending, taking);
            sent.and(taken)
        }
    })
    .await
}

fn descriptor() -> FlightDescriptor {
    FlightDescriptor::new_path(vec!["bench".into()])
}

/// Has all ends transfer at once, each told its 0-based number, and adds up what they did.
pub(super) async fn over_all<C, F>(
    ends: impl IntoIterator<Item = C>,
    transfer: impl Fn(usize, C) -> F,
) -> Result<Transferred, FlightError>
where
    F: Future<Output = Result<Transferred, FlightError>> + Send + 'static,
{
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (stream, end) in ends.into_iter().enumerate() {
        tasks.spawn(transfer(stream, end));
    }
    let mut total = Transferred::default();
    while let Some(done) = tasks.join_next().await {
        let part = done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        total.rows += part.rows;
        total.bytes += part.bytes;
    }
    total.duration = started.elapsed();
    Ok(total)
}

impl Transferred {
    pub(super) fn add(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        self.bytes += data_bytes(batch) as u64;
    }
}
