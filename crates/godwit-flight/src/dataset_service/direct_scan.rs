//! Statements that are reads of one dataset: their rows are read from the dataset itself, in as many parts as it has.
//!
//! Nothing is computed for them, so they need no worker process and behave as datasets do: they start at once, and every
//! part is a ticket of its own.

use std::sync::Arc;

use arrow_array::Int64Array;
use arrow_flight::{FlightDescriptor, FlightInfo};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tonic::Status;

use super::{DatasetService, flight_info_with_schema, open_dataset_part, run_blocking};
use crate::auth::Principal;
use crate::dataset::{Scan, ScanPart};
use crate::error_reason::ErrorReason;
use crate::server::Download;
use crate::sql::{DirectScan, DirectScanColumns, StatementDescription, advertised_batch, advertised_schema};
use crate::tickets::{BoundStatement, DatasetPart, DirectScanOutput, TicketClaims};

impl DatasetService {
    /// Describes a statement, without the engine where it is a read of one dataset.
    pub(super) async fn describe_statement(
        &self,
        principal: &Principal,
        sql: String,
    ) -> Result<StatementDescription, Status> {
        let text = BoundStatement { sql, parameters: Vec::new() };
        if let Some(read) = self.direct_scan(principal, &text).await {
            return Ok(StatementDescription { schema: output_schema(&read)?, parameters: Arc::new(Schema::empty()) });
        }
        self.sql_engine()?.describe_statement(principal, text.sql).await
    }

    /// Returns the dataset scan that a statement consists of. In a pool statements are always run by the engine: another
    /// member would not know the parts of this one's files.
    pub(super) async fn direct_scan(&self, principal: &Principal, text: &BoundStatement) -> Option<DirectScan> {
        if self.inner.pool.is_some() || !text.parameters.is_empty() {
            return None;
        }
        let (engine, catalog, sql) =
            (self.inner.sql_engine.clone()?, self.authorized_catalog(principal), text.sql.clone());
        run_blocking(move || Ok(engine.direct_scan(catalog, &sql))).await.ok().flatten()
    }

    /// Returns the parts of such a statement's rows, all of them at this server.
    pub(super) async fn direct_scan_info(
        &self,
        principal: &Principal,
        descriptor: FlightDescriptor,
        text: BoundStatement,
        read: DirectScan,
    ) -> Result<FlightInfo, Status> {
        let schema = output_schema(&read)?;
        let DirectScan { name, dataset, columns, regions } = read;
        let (columns, count) = match columns {
            DirectScanColumns::Projection(columns) => (columns, None),
            DirectScanColumns::Count(name) => (Vec::new(), Some(name)),
        };
        let mut ascending = columns.clone();
        ascending.sort_unstable();
        let index = |column| ascending.binary_search(column).unwrap_or_default() as u64;
        let order: Vec<u64> = columns.iter().map(index).collect();
        let rows = if count.is_some() { Some(1) } else { dataset.rows().filter(|_| regions.is_none()) };
        let max_parts = count.is_some().then_some(1);
        let scan = Scan { columns: Some(ascending), regions };
        let (mut parts, scan, dataset) = self.plan_parts(dataset, scan, max_parts).await?;
        if parts.is_empty() {
            // Clients expect an endpoint; this part has no rows.
            parts.push(ScanPart::default());
        }
        let mut info = flight_info_with_schema(descriptor, &schema)?.with_ordered(true);
        for part in &parts {
            let selected = DirectScanOutput {
                column_order: order.clone(),
                is_only_part: parts.len() == 1,
                count_column: count.clone(),
            };
            let part =
                DatasetPart { output: Some(selected), ..DatasetPart::new(&name, dataset.version(), &scan, part) };
            let claim = TicketClaims {
                part: Some(part),
                statement: Some(text.clone()),
                ..TicketClaims::new(principal, self.inner.options.ticket_lifetime)
            };
            info = info.with_endpoint(self.signed_endpoint(&claim));
        }
        Ok(info.with_total_records(rows.map_or(-1, |rows| rows as i64)))
    }

    /// Reads the rows of a part in the columns of the statement. Where the dataset has changed and it is the only part, the
    /// statement is run on the current version.
    pub(super) async fn read_direct_scan(
        &self,
        principal: &Principal,
        mut part: DatasetPart,
        statement: BoundStatement,
    ) -> Result<Download, Status> {
        let selected = part.output.take().unwrap_or_default();
        let read = match &selected.count_column {
            Some(name) => self.count_rows(principal, part, name).await,
            None => self.read_part(principal, part).await.and_then(|download| project_output(download, &selected)),
        };
        match read {
            Err(status) if selected.is_only_part && is_of_another_state(&status) => {
                self.run_statement(principal, statement).await
            }
            read => read,
        }
    }

    /// Counts the rows of a part.
    async fn count_rows(&self, principal: &Principal, part: DatasetPart, name: &str) -> Result<Download, Status> {
        let rows = if part.regions.is_none() {
            let catalog = self.authorized_catalog(principal);
            let rows = run_blocking(move || Ok(open_dataset_part(&*catalog, &part)?.rows())).await?;
            rows.ok_or_else(|| Status::internal("a bug in godwit: nobody knows how many rows there are"))?
        } else {
            let mut batches = self.read_part(principal, part).await?.batches;
            let mut rows = 0;
            while let Some((batch, _)) = batches.next().await.transpose()? {
                rows += batch.num_rows() as u64;
            }
            rows
        };
        let schema = count_schema(name);
        let column = Int64Array::from(vec![rows as i64]);
        let batch = advertised_batch(&schema, vec![Arc::new(column)], 1)?;
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, Bytes::new()))])) })
    }
}

fn count_schema(name: &str) -> SchemaRef {
    advertised_schema(&Schema::new(vec![Field::new(name, DataType::Int64, false)]))
}

fn output_schema(read: &DirectScan) -> Result<SchemaRef, Status> {
    match &read.columns {
        DirectScanColumns::Projection(columns) => {
            read.dataset.schema().project(columns).map(|schema| advertised_schema(&schema)).map_err(internal_error)
        }
        DirectScanColumns::Count(name) => Ok(count_schema(name)),
    }
}

/// Converts batches to the advertised columns.
fn project_output(download: Download, selected: &DirectScanOutput) -> Result<Download, Status> {
    let order: Vec<usize> = selected.column_order.iter().map(|index| *index as usize).collect();
    let schema = advertised_schema(&download.schema.project(&order).map_err(internal_error)?);
    let advertised = schema.clone();
    let batches = download.batches.map(move |item| {
        let (batch, app_metadata) = item?;
        let columns = order.iter().map(|index| batch.column(*index).clone()).collect();
        Ok((advertised_batch(&advertised, columns, batch.num_rows())?, app_metadata))
    });
    Ok(Download { schema, batches: Box::pin(batches) })
}

/// Reports whether a dataset is absent or has changed since its tickets were issued.
fn is_of_another_state(status: &Status) -> bool {
    matches!(ErrorReason::of(status), Some(ErrorReason::DatasetChanged | ErrorReason::DatasetNotFound))
}

fn internal_error(error: arrow_schema::ArrowError) -> Status {
    Status::internal(format!("a bug in godwit: {error}"))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::dataset::DatasetError;

    #[test]
    fn another_state_of_a_dataset_is_recognised_by_the_reason() {
        for error in [DatasetError::Changed { name: "d".into() }, DatasetError::NotFound { name: "d".into() }] {
            assert!(is_of_another_state(&error.into()));
        }
        assert!(is_of_another_state(&ErrorReason::DatasetChanged.status(Code::FailedPrecondition, "reworded")));
        assert!(!is_of_another_state(&Status::failed_precondition("d has changed")));
        assert!(!is_of_another_state(&Status::not_found("there is no column x")));
    }
}
