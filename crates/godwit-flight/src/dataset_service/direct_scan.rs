//! Direct scans: SQL statements that only read rows of one dataset are answered from the dataset, without the SQL
//! engine.
//!
//! A direct scan needs no worker process and starts at once. As for a dataset, the flight info has a ticket for each
//! part.

use std::sync::Arc;

use arrow_array::Int64Array;
use arrow_flight::{FlightDescriptor, FlightInfo};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_dataset::{Principal, Scan, ScanPart};
use tonic::Status;

use super::{DatasetService, decode_batch, flight_info_with_schema, open_dataset_part, run_blocking};
use crate::call_streams::Download;
use crate::error_reason::ErrorReason;
use crate::sql::{
    DirectScan, DirectScanColumns, StatementDescription, StatementProgress, advertised_batch, advertised_schema,
};
use crate::tickets::{BoundStatement, DatasetPart, DirectScanOutput, TicketClaims};

impl DatasetService {
    /// Returns the schemas of a statement. Uses the SQL engine only if the statement is not a direct scan.
    pub(super) async fn describe_statement(
        &self,
        principal: &Principal,
        text: &BoundStatement,
    ) -> Result<StatementDescription, Status> {
        if let Some(read) = self.direct_scan(principal, text).await {
            return Ok(StatementDescription { schema: output_schema(&read)?, parameters: Arc::new(Schema::empty()) });
        }
        self.describe_by_engine(principal, text).await
    }

    /// Returns the schemas of a statement that is not a direct scan.
    pub(super) async fn describe_by_engine(
        &self,
        principal: &Principal,
        text: &BoundStatement,
    ) -> Result<StatementDescription, Status> {
        let parameters = decode_batch(&text.parameters)?;
        self.sql_engine()?.describe_statement(principal, text.sql.clone(), parameters).await
    }

    /// Returns the direct scan of a statement; `None` if the engine must run the statement. Pool members always use the
    /// engine, because tickets for parts of this server's files would not be valid at other members.
    pub(super) async fn direct_scan(&self, principal: &Principal, text: &BoundStatement) -> Option<DirectScan> {
        if self.inner.pool.is_some() || !text.parameters.is_empty() {
            return None;
        }
        let (engine, catalog, sql) =
            (self.inner.sql_engine.clone()?, self.authorized_catalog(principal), text.sql.clone());
        run_blocking(move || Ok(engine.direct_scan(catalog, &sql))).await.ok().flatten()
    }

    /// Returns the flight info of a direct scan, with an endpoint at this server for each part.
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
            // Clients expect at least one endpoint, so add a part without rows.
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

    /// Reads the rows of a part, with the columns of the statement. If the dataset has changed, and the part contains
    /// all rows of the statement, runs the statement again on the current version.
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
                self.run_statement(principal, statement, StatementProgress::default()).await
            }
            read => read,
        }
    }

    /// Returns the number of rows in a part, as a batch with one row.
    async fn count_rows(&self, principal: &Principal, part: DatasetPart, name: &str) -> Result<Download, Status> {
        let rows = if part.regions.is_none() {
            let catalog = self.authorized_catalog(principal);
            let rows = run_blocking(move || Ok(open_dataset_part(&*catalog, &part)?.rows())).await?;
            rows.ok_or_else(|| Status::internal("a bug in godwit: the number of rows is unknown"))?
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

/// Converts batches to the output columns of the statement, with the schema that was sent to the client before.
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

/// Returns whether an error means that the dataset was removed or changed after its ticket was issued.
fn is_of_another_state(status: &Status) -> bool {
    matches!(ErrorReason::of(status), Some(ErrorReason::DatasetChanged | ErrorReason::DatasetNotFound))
}

fn internal_error(error: arrow_schema::ArrowError) -> Status {
    Status::internal(format!("a bug in godwit: {error}"))
}

#[cfg(test)]
mod tests {
    use godwit_dataset::DatasetError;
    use tonic::Code;

    use super::*;
    use crate::error::dataset_status;

    #[test]
    fn another_state_of_a_dataset_is_recognised_by_the_reason() {
        for error in [DatasetError::Changed { name: "d".into() }, DatasetError::NotFound { name: "d".into() }] {
            assert!(is_of_another_state(&dataset_status(error)));
        }
        assert!(is_of_another_state(&ErrorReason::DatasetChanged.status(Code::FailedPrecondition, "reworded")));
        assert!(!is_of_another_state(&Status::failed_precondition("d has changed")));
        assert!(!is_of_another_state(&Status::not_found("column x does not exist")));
    }
}
