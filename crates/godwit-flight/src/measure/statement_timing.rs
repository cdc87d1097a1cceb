//! Measurements of statements that are run repeatedly, over several connections at once.

use std::time::{Duration, Instant};

use super::transfer::TransferStats;
use crate::client::Client;
use crate::error::FlightError;

/// The timing of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatementTiming {
    /// Time from the request to the first batch of rows, or to the end where there are none.
    pub time_to_first_batch: Duration,
    /// The received data, and the time from the request to the last row.
    pub transfer: TransferStats,
}

/// Runs statements on all clients at once, on each one after the other. Returns all timings, and the total time.
///
/// # Errors
/// [`FlightError`], the first of any.
pub async fn run_statements(
    clients: &[Client],
    sql: &str,
    rounds: u32,
) -> Result<(Vec<StatementTiming>, Duration), FlightError> {
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients {
        let (client, sql) = (client.clone(), sql.to_owned());
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..rounds {
                answers.push(run_statement(&client, &sql).await?);
            }
            Ok::<_, FlightError>(answers)
        });
    }
    let mut answers = Vec::new();
    while let Some(done) = tasks.join_next().await {
        answers.extend(done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?);
    }
    Ok((answers, started.elapsed()))
}

async fn run_statement(client: &Client, sql: &str) -> Result<StatementTiming, FlightError> {
    let asked = Instant::now();
    let (mut first, mut transfer) = (None, TransferStats::default());
    for ticket in client.statement_tickets(sql).await? {
        let mut batches = client.download(ticket).await?;
        while let Some((batch, _)) = batches.next().await? {
            first.get_or_insert_with(|| asked.elapsed());
            transfer.add_batch(&batch);
        }
    }
    transfer.duration = asked.elapsed();
    Ok(StatementTiming { time_to_first_batch: first.unwrap_or(transfer.duration), transfer })
}
