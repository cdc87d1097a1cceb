//! Implements the trait [`SqlEngine`] of the Flight SQL server for the query engine.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use futures_util::{StreamExt as _, stream};
use godwit_dataset::Principal;
use godwit_flight::{
    Code, Download, ErrorReason, SqlEngine, StatementDescription, StatementProgress, StatementResult, Status,
    StatusFuture, advertised_batch, advertised_schema, dataset_status,
};
use godwit_model::split_batch;

use crate::engine::{QueryEngine, Rows};
use crate::error::QueryError;
use crate::statement_parameters::{bind_parameters, parameter_fields};

/// Maximum size of a batch, bytes. The engine returns groups in batches of any size, and a message has at most 1 GiB.
const MAX_BATCH_BYTES: usize = 64 << 20;

impl SqlEngine for QueryEngine {
    fn describe_statement(
        &self,
        _caller: &Principal,
        sql: String,
        values: Option<RecordBatch>,
    ) -> StatusFuture<'_, StatementDescription> {
        Box::pin(async move {
            let mut plan = self.plan(&sql).await?;
            let parameters = Arc::new(Schema::new(parameter_fields(&plan)?));
            if values.is_some() {
                plan = bind_parameters(plan, values.as_ref())?;
            }
            Ok(StatementDescription { schema: advertised_schema(plan.schema().as_arrow()), parameters })
        })
    }

    fn execute(
        &self,
        _caller: &Principal,
        sql: String,
        parameters: Option<RecordBatch>,
        progress: StatementProgress,
    ) -> StatusFuture<'_, StatementResult> {
        Box::pin(async move {
            // Discard the accesses of descriptions and of failed statements, which returned no rows. They must not
            // appear in the access record of this statement.
            drop(self.take_dataset_accesses());
            let plan = bind_parameters(self.plan(&sql).await?, parameters.as_ref())?;
            // Clients of a server compare the schema of the rows with the one that they received before.
            let advertised = advertised_schema(plan.schema().as_arrow());
            let rows = self.execute_plan(plan).await?;
            let scans = rows.progress.clone();
            progress.provide(move || scans.fraction());
            let advertised = (!self.keeps_plan_schema).then_some(advertised);
            let schema = advertised.clone().unwrap_or_else(|| rows.schema().clone());
            let batches = stream::try_unfold(rows, |mut rows: Rows| async move {
                Ok::<_, Status>(rows.next().await?.map(|batch| (batch, rows)))
            });
            let batches = batches.map(move |batch| {
                let batch = batch?;
                Ok(match &advertised {
                    Some(schema) => advertised_batch(schema, batch.columns().to_vec(), batch.num_rows())?,
                    None => batch,
                })
            });
            let batches = batches.flat_map(|batch: Result<RecordBatch, Status>| match batch {
                Ok(batch) => {
                    stream::iter(split_batch(&batch, MAX_BATCH_BYTES).map(|piece| Ok((piece, Default::default()))))
                        .boxed()
                }
                Err(error) => stream::iter([Err(error)]).boxed(),
            });
            Ok(StatementResult {
                download: Download { schema, batches: Box::pin(batches) },
                datasets: self.take_dataset_accesses(),
            })
        })
    }
}

impl From<QueryError> for Status {
    fn from(error: QueryError) -> Self {
        let text = godwit_model::message_with_causes(&error);
        match error {
            QueryError::InvalidStatement { .. } => Self::invalid_argument(text),
            QueryError::TableNotFound { .. } => ErrorReason::TableNotFound.status(Code::NotFound, text),
            QueryError::NotAQuery { .. } => ErrorReason::NotAQuery.status(Code::PermissionDenied, text),
            QueryError::MemoryLimit { .. } => Self::resource_exhausted(text),
            QueryError::Execution { .. } => ErrorReason::StatementFailed.status(Code::InvalidArgument, text),
            QueryError::Dataset(error) => dataset_status(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
    use godwit_dataset::{BatchReader, Catalog, Dataset, DatasetAccessList, DatasetError, DatasetKind, Scan, ScanPart};

    use super::*;
    use crate::engine::QueryResources;

    /// A table with one column and no rows.
    #[derive(Debug)]
    struct EmptyTable;

    impl Dataset for EmptyTable {
        fn kind(&self) -> DatasetKind {
            DatasetKind::Table
        }

        fn schema(&self) -> SchemaRef {
            Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8, true)]))
        }

        fn bytes(&self) -> u64 {
            0
        }

        fn version(&self) -> u64 {
            0
        }

        fn has_regions(&self) -> bool {
            false
        }

        fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
            Ok(vec![ScanPart::default()])
        }

        fn read(&self, _: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
            Ok(Box::new(std::iter::empty()))
        }
    }

    /// A catalog of empty tables, which adds each table that is opened to the list.
    #[derive(Debug)]
    struct RecordingCatalog(DatasetAccessList);

    impl Catalog for RecordingCatalog {
        fn names(&self) -> Result<Vec<String>, DatasetError> {
            Ok(["genes", "samples", "sites"].map(str::to_owned).to_vec())
        }

        fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
            self.0.add(name, "all");
            Ok(Arc::new(EmptyTable))
        }
    }

    #[tokio::test]
    async fn datasets_of_failed_and_described_statements_are_not_attributed_to_the_next_statement() {
        let accesses = DatasetAccessList::default();
        let limits = QueryResources { memory_bytes: 64 << 20, threads: 1, scratch_directory: None };
        let engine = QueryEngine::new(Arc::new(RecordingCatalog(accesses.clone())), &limits).unwrap();
        let engine = engine.with_dataset_accesses(accesses);
        let principal = Principal::default();
        let execute = |sql: &str| engine.execute(&principal, sql.to_owned(), None, StatementProgress::default());
        assert!(execute("SELECT none FROM genes").await.is_err());
        engine.describe_statement(&principal, "SELECT name FROM samples".to_owned(), None).await.unwrap();
        let result = execute("SELECT name FROM sites").await.unwrap();
        let opened: Vec<&str> = result.datasets.iter().map(|access| &*access.dataset).collect();
        assert_eq!(opened, ["sites"]);
    }
}
