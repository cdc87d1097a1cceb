//! Rows of a statement that a pool runs, read on from another node where the first one is lost.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use tonic::{Code, Status};

use super::resume::Come;
use super::seats::{Pool, Seat, is_lost};
use crate::client::Batches;
use crate::error::FlightError;
use crate::error_reason::ErrorReason;
use crate::transport::Tuning;

/// Nodes that may be lost in a row before a batch comes.
const LOST_AT_MOST: u32 = 12;

/// Rows, ticket by ticket. Each batch is handed out once, whichever node it comes from.
pub struct PooledRows {
    pool: Arc<Pool>,
    sql: String,
    seat: Seat,
    tickets: Vec<Bytes>,
    /// The ticket that is read.
    at: usize,
    /// What has come of it.
    come: Come,
    batches: Option<Batches>,
    schema: SchemaRef,
    /// Read to know the columns.
    first: Option<RecordBatch>,
    lost: u32,
}

impl PooledRows {
    /// Has a node of a pool run a statement.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn ask(pool: Arc<Pool>, sql: &str) -> Result<Self, FlightError> {
        let seat = pool.seat(&Tuning::default()).await?;
        let schema = SchemaRef::new(arrow_schema::Schema::empty());
        let (sql, tickets, come) = (sql.to_owned(), Vec::new(), Come::default());
        let mut rows = Self { pool, sql, seat, tickets, at: 0, come, batches: None, schema, first: None, lost: 0 };
        rows.first = rows.next_anywhere().await?;
        let none = FlightError::Malformed { problem: "it names no rows to fetch" };
        rows.schema = rows.batches.as_ref().and_then(Batches::schema).cloned().ok_or(none)?;
        Ok(rows)
    }

    /// Their columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch.
    ///
    /// # Errors
    /// [`FlightError`].
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.next_anywhere().await,
        }
    }

    async fn next_anywhere(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        loop {
            match self.next_here().await {
                Ok(batch) => {
                    self.lost = 0;
                    return Ok(batch);
                }
                Err(error) if is_lost(&error) && self.lost < LOST_AT_MOST => {
                    self.lost += 1;
                    self.batches = None;
                    self.pool.lost(self.seat.member);
                    self.seat = self.pool.seat(&Tuning::default()).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn next_here(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        if self.tickets.is_empty() {
            self.tickets = self.seat.client.ask_sql(&self.sql).await?;
        }
        while self.at < self.tickets.len() {
            if self.batches.is_none() {
                self.batches = Some(self.open().await?);
            }
            let Some(batches) = &mut self.batches else { continue };
            if let Some(batch) = batches.next_counted(&mut self.come).await? {
                return Ok(Some(batch));
            }
            self.at += 1;
            self.come = Come::default();
            // The last one still knows the columns.
            if self.at < self.tickets.len() {
                self.batches = None;
            }
        }
        Ok(None)
    }

    /// Reads on where it was.
    async fn open(&mut self) -> Result<Batches, FlightError> {
        match self.seat.client.download(self.come.ticket(&self.tickets[self.at])).await {
            // It has expired by now, or the node cannot have signed it: it is asked for again.
            Err(FlightError::Status { status, .. }) if needs_new_ticket(&status) => {
                let tickets = self.seat.client.ask_sql(&self.sql).await?;
                if tickets.len() != self.tickets.len() {
                    return Err(FlightError::Malformed { problem: "another node answers in other parts" });
                }
                self.tickets = tickets;
                self.seat.client.download(self.come.ticket(&self.tickets[self.at])).await
            }
            opened => opened,
        }
    }
}

/// Returns whether a ticket has to be requested again. Servers of earlier versions send no reason: their code means other refusals too,
/// which the second request meets again.
fn needs_new_ticket(status: &Status) -> bool {
    match ErrorReason::of(status) {
        Some(reason) => matches!(
            reason,
            ErrorReason::TicketExpired | ErrorReason::TicketOfOtherServer | ErrorReason::TicketOfOtherPrincipal
        ),
        None => status.code() == Code::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_requested_again_by_the_reason_whatever_the_message_is() {
        for (reason, is_new) in [
            (ErrorReason::TicketExpired, true),
            (ErrorReason::TicketOfOtherServer, true),
            (ErrorReason::TicketOfOtherPrincipal, true),
            (ErrorReason::DatasetChanged, false),
        ] {
            assert_eq!(needs_new_ticket(&reason.status(Code::PermissionDenied, "reworded")), is_new, "{reason:?}");
        }
        assert!(needs_new_ticket(&Status::permission_denied("of an earlier version")));
        assert!(!needs_new_ticket(&Status::unavailable("the ticket has expired")));
    }
}
