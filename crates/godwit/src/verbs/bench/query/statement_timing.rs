//! Measurements of SQL statements, which are run repeatedly over several connections at once.

use std::time::{Duration, Instant};

use godwit_flight::measure::TransferStats;
use godwit_flight::{Client, FlightError};

/// The measured times of one run of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatementTiming {
    /// Time from the request to the first batch of rows, or to the end if the statement returns no rows.
    pub(super) time_to_first_batch: Duration,
    /// Number of rows and bytes that were received, and the time from the request to the last row.
    pub(super) transfer: TransferStats,
}

/// Runs statements: all clients at the same time, and the statements of one client one after the other. Returns the
/// times of each run, and the total time.
///
/// # Errors
/// The first [`FlightError`] of any statement.
pub(super) async fn run_statements(
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
    let started_at = Instant::now();
    let (mut first, mut transfer) = (None, TransferStats::default());
    for ticket in client.statement_tickets(sql).await? {
        let mut batches = client.download(ticket).await?;
        while let Some((batch, _)) = batches.next().await? {
            first.get_or_insert_with(|| started_at.elapsed());
            transfer.add_batch(&batch);
        }
    }
    transfer.duration = started_at.elapsed();
    Ok(StatementTiming { time_to_first_batch: first.unwrap_or(transfer.duration), transfer })
}
