//! Statements that are reads of one dataset: their rows come from the dataset itself, in as many parts as it has.
//!
//! Nothing is computed for them, so no process is in between, and what holds for datasets holds for them: they begin at once,
//! and every part is a ticket of its own.

use std::sync::Arc;

use arrow_array::Int64Array;
use arrow_flight::{FlightDescriptor, FlightInfo};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tonic::Status;

use super::{Node, blocking, info_with, of_part};
use crate::dataset::{Part, Scan};
use crate::error_reason::ErrorReason;
use crate::gate::Caller;
use crate::server::Download;
use crate::sql::{Description, PlainColumns, PlainRead, told_batch, told_columns};
use crate::tickets::{Claim, DatasetPart, Selected, StatementText};

impl Node {
    /// What a statement would give, without asking the engine where it is a read of one dataset.
    pub(super) async fn describe(&self, caller: &Caller, sql: String) -> Result<Description, Status> {
        let text = StatementText { sql, parameters: Vec::new() };
        if let Some(read) = self.plain_read(caller, &text).await {
            return Ok(Description { schema: selected_schema(&read)?, parameters: Arc::new(Schema::empty()) });
        }
        self.engine()?.describe(caller, text.sql).await
    }

    /// The dataset that a statement reads, where that is all it does. In a pool statements are run as such: another node would
    /// not know the parts of this one's files.
    pub(super) async fn plain_read(&self, caller: &Caller, text: &StatementText) -> Option<PlainRead> {
        if self.inner.pool.is_some() || !text.parameters.is_empty() {
            return None;
        }
        let (engine, catalog, sql) = (self.inner.engine.clone()?, self.catalog(caller), text.sql.clone());
        blocking(move || Ok(engine.plain_read(catalog, &sql))).await.ok().flatten()
    }

    /// The parts of such a statement's rows, all of them at this server.
    pub(super) async fn plain_info(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
        text: StatementText,
        read: PlainRead,
    ) -> Result<FlightInfo, Status> {
        let schema = selected_schema(&read)?;
        let PlainRead { name, dataset, columns, regions } = read;
        let (columns, count) = match columns {
            PlainColumns::These(columns) => (columns, None),
            PlainColumns::Count(name) => (Vec::new(), Some(name)),
        };
        let mut ascending = columns.clone();
        ascending.sort_unstable();
        let place = |column| ascending.binary_search(column).unwrap_or_default() as u64;
        let order: Vec<u64> = columns.iter().map(place).collect();
        let rows = if count.is_some() { Some(1) } else { dataset.rows().filter(|_| regions.is_none()) };
        let most = count.is_some().then_some(1);
        let scan = Scan { columns: Some(ascending), regions };
        let (mut parts, scan, dataset) = self.parts_of(dataset, scan, most).await?;
        if parts.is_empty() {
            // Clients want something to fetch; this one has no rows.
            parts.push(Part::default());
        }
        let mut info = info_with(descriptor, &schema)?.with_ordered(true);
        for part in &parts {
            let selected = Selected { order: order.clone(), is_all: parts.len() == 1, count: count.clone() };
            let part =
                DatasetPart { selected: Some(selected), ..DatasetPart::new(&name, dataset.version(), &scan, part) };
            let claim = Claim {
                part: Some(part),
                statement: Some(text.clone()),
                ..Claim::new(caller, self.inner.options.ticket_lifetime)
            };
            info = info.with_endpoint(self.endpoint(&claim));
        }
        Ok(info.with_total_records(rows.map_or(-1, |rows| rows as i64)))
    }

    /// The rows of a part, as the statement has them. Where the dataset has changed and nobody has read another part of it, the
    /// statement is run on what it is now.
    pub(super) async fn read_plainly(
        &self,
        caller: &Caller,
        mut part: DatasetPart,
        statement: StatementText,
    ) -> Result<Download, Status> {
        let selected = part.selected.take().unwrap_or_default();
        let read = match &selected.count {
            Some(name) => self.count_part(caller, part, name).await,
            None => self.read_part(caller, part).await.and_then(|download| select(download, &selected)),
        };
        match read {
            Err(status) if selected.is_all && is_of_another_state(&status) => {
                self.run_statement(caller, statement).await
            }
            read => read,
        }
    }

    /// The number of rows of a part.
    async fn count_part(&self, caller: &Caller, part: DatasetPart, name: &str) -> Result<Download, Status> {
        let rows = if part.regions.is_none() {
            let catalog = self.catalog(caller);
            let rows = blocking(move || Ok(of_part(&*catalog, &part)?.rows())).await?;
            rows.ok_or_else(|| Status::internal("a bug in godwit: nobody knows how many rows there are"))?
        } else {
            let mut batches = self.read_part(caller, part).await?.batches;
            let mut rows = 0;
            while let Some((batch, _)) = batches.next().await.transpose()? {
                rows += batch.num_rows() as u64;
            }
            rows
        };
        let schema = count_schema(name);
        let column = Int64Array::from(vec![rows as i64]);
        let batch = told_batch(&schema, vec![Arc::new(column)], 1)?;
        Ok(Download { schema, batches: Box::pin(stream::iter([Ok((batch, Bytes::new()))])) })
    }
}

fn count_schema(name: &str) -> SchemaRef {
    told_columns(&Schema::new(vec![Field::new(name, DataType::Int64, false)]))
}

fn selected_schema(read: &PlainRead) -> Result<SchemaRef, Status> {
    match &read.columns {
        PlainColumns::These(columns) => {
            read.dataset.schema().project(columns).map(|schema| told_columns(&schema)).map_err(bug)
        }
        PlainColumns::Count(name) => Ok(count_schema(name)),
    }
}

/// Batches with the columns that clients were told.
fn select(download: Download, selected: &Selected) -> Result<Download, Status> {
    let order: Vec<usize> = selected.order.iter().map(|place| *place as usize).collect();
    let schema = told_columns(&download.schema.project(&order).map_err(bug)?);
    let told = schema.clone();
    let batches = download.batches.map(move |item| {
        let (batch, said) = item?;
        let columns = order.iter().map(|place| batch.column(*place).clone()).collect();
        Ok((told_batch(&told, columns, batch.num_rows())?, said))
    });
    Ok(Download { schema, batches: Box::pin(batches) })
}

/// Returns whether a dataset is absent or has changed since its tickets were issued.
fn is_of_another_state(status: &Status) -> bool {
    matches!(ErrorReason::of(status), Some(ErrorReason::DatasetChanged | ErrorReason::DatasetNotFound))
}

fn bug(error: arrow_schema::ArrowError) -> Status {
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
