//! Rows of an SQL statement that a pool runs. If a member is lost, the download continues at another member.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use tonic::{Code, Status};

use super::member_lease::{MemberLease, Pool};
use crate::client::{Batches, ParameterValues};
use crate::error::FlightError;
use crate::error_reason::ErrorReason;
use crate::stream_progress::StreamProgress;
use crate::transport::TransportOptions;

/// Maximum number of consecutive failovers without a received batch in between.
const MAX_FAILOVERS: u32 = 12;

/// The rows of a statement, downloaded ticket by ticket. Each batch is returned once, even if members are lost.
pub struct PooledRows {
    pool: Arc<Pool>,
    sql: String,
    values: Option<ParameterValues>,
    lease: MemberLease,
    tickets: Vec<Bytes>,
    /// 0-based index of the current ticket.
    ticket_index: usize,
    /// The batches of the current ticket that were received.
    progress: StreamProgress,
    batches: Option<Batches>,
    schema: SchemaRef,
    /// The first batch, which was read in advance to know the schema.
    first_batch: Option<RecordBatch>,
    failovers: u32,
    /// Indexes of the members that cannot run the statement.
    members_without_sql: BTreeSet<usize>,
}

impl PooledRows {
    /// Runs a statement with values for its parameters on a member of a pool.
    ///
    /// # Errors
    /// [`FlightError::Status`] if the statement is rejected; other variants if no member answers.
    pub async fn run_statement(
        pool: Arc<Pool>,
        sql: &str,
        values: Option<ParameterValues>,
    ) -> Result<Self, FlightError> {
        let lease = pool.lease(&TransportOptions::default()).await?;
        let schema = SchemaRef::new(arrow_schema::Schema::empty());
        let (sql, tickets, progress) = (sql.to_owned(), Vec::new(), StreamProgress::default());
        let mut rows = Self {
            pool,
            sql,
            values,
            lease,
            tickets,
            ticket_index: 0,
            progress,
            batches: None,
            schema,
            first_batch: None,
            failovers: 0,
            members_without_sql: BTreeSet::new(),
        };
        rows.first_batch = rows.next_with_failover().await?;
        let none = FlightError::Malformed { problem: "the response contains no tickets" };
        rows.schema = rows.batches.as_ref().and_then(Batches::schema).cloned().ok_or(none)?;
        Ok(rows)
    }

    /// Returns the schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the next batch; `None` after the last one.
    ///
    /// # Errors
    /// [`FlightError`] if the server rejects the request, or if a member is lost and no other member can continue.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        match self.first_batch.take() {
            Some(first) => Ok(Some(first)),
            None => self.next_with_failover().await,
        }
    }

    async fn next_with_failover(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        loop {
            match self.next_from_member().await {
                Ok(batch) => {
                    self.failovers = 0;
                    return Ok(batch);
                }
                Err(error) if error.is_server_lost() && self.failovers < MAX_FAILOVERS => {
                    self.failovers += 1;
                    self.batches = None;
                    match is_without_sql(&error) {
                        true => self.avoid_member_without_sql(error)?,
                        false => self.pool.report_lost(self.lease.member),
                    }
                    self.lease = self.pool.lease(&TransportOptions::default()).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Avoids the current member, which is not lost but answered with `error` that it cannot run the statement.
    ///
    /// # Errors
    /// The same error if no member of the pool can run it.
    fn avoid_member_without_sql(&mut self, error: FlightError) -> Result<(), FlightError> {
        self.members_without_sql.insert(self.lease.member);
        if self.members_without_sql.len() == self.pool.member_count() {
            return Err(error);
        }
        self.pool.mark_lost(self.lease.member);
        Ok(())
    }

    async fn next_from_member(&mut self) -> Result<Option<RecordBatch>, FlightError> {
        if self.tickets.is_empty() {
            self.tickets = self.lease.client.bound_statement_tickets(&self.sql, self.values.as_ref()).await?;
        }
        while self.ticket_index < self.tickets.len() {
            if self.batches.is_none() {
                self.batches = Some(self.open_ticket().await?);
            }
            let Some(batches) = &mut self.batches else { continue };
            if let Some(batch) = batches.next_with_progress(&mut self.progress).await? {
                return Ok(Some(batch));
            }
            self.ticket_index += 1;
            self.progress = StreamProgress::default();
            // Keep the download of the last ticket, because `run_statement` reads its schema.
            if self.ticket_index < self.tickets.len() {
                self.batches = None;
            }
        }
        Ok(None)
    }

    /// Starts the download of the current ticket after the batches that were already received.
    async fn open_ticket(&mut self) -> Result<Batches, FlightError> {
        match self.lease.client.download(self.progress.resume_ticket(&self.tickets[self.ticket_index])).await {
            // Request new tickets: the old ticket has expired, or this member did not sign it.
            Err(FlightError::Status { status, .. }) if needs_new_ticket(&status) => {
                let tickets = self.lease.client.bound_statement_tickets(&self.sql, self.values.as_ref()).await?;
                if tickets.len() != self.tickets.len() {
                    let problem = "the new pool member divides the rows differently; run the statement again";
                    return Err(FlightError::Malformed { problem });
                }
                self.tickets = tickets;
                self.lease.client.download(self.progress.resume_ticket(&self.tickets[self.ticket_index])).await
            }
            opened => opened,
        }
    }
}

/// Returns whether an error means that a member cannot run SQL statements.
fn is_without_sql(error: &FlightError) -> bool {
    matches!(error, FlightError::Status { status, .. } if ErrorReason::of(status) == Some(ErrorReason::SqlUnavailable))
}

/// Returns whether an error means that a new ticket is needed. Servers of earlier versions send no error reason. Their
/// code `PermissionDenied` can have other causes, with which the request of a new ticket fails too.
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
