//! Statements that are asked of a server again and again, over several connections at once.

use std::time::{Duration, Instant};

use super::transfer::Transferred;
use crate::client::Client;
use crate::error::FlightError;

/// One answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answered {
    /// From asking to the first batch of rows, or to the end where there are none.
    pub first: Duration,
    /// What came, and how long it took from asking to the last row.
    pub transferred: Transferred,
}

/// Asks all clients at once, each one answer after the other. Returns the answers of all, and how long it took.
///
/// # Errors
/// [`FlightError`], the first of any.
pub async fn ask(clients: &[Client], sql: &str, rounds: u32) -> Result<(Vec<Answered>, Duration), FlightError> {
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients {
        let (client, sql) = (client.clone(), sql.to_owned());
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..rounds {
                answers.push(answer(&client, &sql).await?);
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

async fn answer(client: &Client, sql: &str) -> Result<Answered, FlightError> {
    let asked = Instant::now();
    let (mut first, mut transferred) = (None, Transferred::default());
    for ticket in client.ask_sql(sql).await? {
        let mut batches = client.download(ticket).await?;
        while let Some((batch, _)) = batches.next().await? {
            first.get_or_insert_with(|| asked.elapsed());
            transferred.add(&batch);
        }
    }
    transferred.duration = asked.elapsed();
    Ok(Answered { first: first.unwrap_or(transferred.duration), transferred })
}
