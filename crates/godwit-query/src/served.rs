//! The engine as Flight SQL asks it.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use futures_util::{StreamExt as _, stream};
use godwit_flight::{
    Caller, Code, Description, Download, ErrorReason, Pending, Ran, SqlEngine, Status, told_batch, told_columns,
};

use crate::engine::{Engine, Rows};
use crate::error::QueryError;

impl SqlEngine for Engine {
    fn describe(&self, _caller: &Caller, sql: String) -> Pending<'_, Description> {
        Box::pin(async move {
            let plan = self.plan(&sql).await?;
            let mut parameters: Vec<(usize, String, DataType)> = plan
                .get_parameter_types()
                .map_err(QueryError::from)?
                .into_iter()
                .map(|(name, data_type)| {
                    let number = name.trim_start_matches('$').parse().unwrap_or(usize::MAX);
                    (number, name, data_type.unwrap_or(DataType::Utf8))
                })
                .collect();
            parameters.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
            let fields: Vec<Field> =
                parameters.into_iter().map(|(_, name, data_type)| Field::new(name, data_type, true)).collect();
            Ok(Description {
                schema: told_columns(plan.schema().as_arrow()),
                parameters: Arc::new(Schema::new(fields)),
            })
        })
    }

    fn run(&self, _caller: &Caller, sql: String, parameters: Option<RecordBatch>) -> Pending<'_, Ran> {
        Box::pin(async move {
            let values = parameters.map(|row| values_in(&row)).transpose()?.unwrap_or_default();
            let plan = self.plan_with(&sql, values).await?;
            // Clients compare the columns of the rows with those that they were told.
            let schema = told_columns(plan.schema().as_arrow());
            let rows = self.rows(plan).await?;
            let told = schema.clone();
            let batches = stream::try_unfold(rows, |mut rows: Rows| async move {
                Ok::<_, Status>(rows.next().await?.map(|batch| (batch, rows)))
            });
            let batches = batches.map(move |batch| {
                let batch = batch?;
                Ok((told_batch(&told, batch.columns().to_vec(), batch.num_rows())?, Default::default()))
            });
            Ok(Ran { download: Download { schema, batches: Box::pin(batches) }, touched: self.touched() })
        })
    }
}

fn values_in(row: &RecordBatch) -> Result<Vec<ScalarValue>, Status> {
    if row.num_rows() == 0 {
        return Ok(Vec::new());
    }
    let values = row.columns().iter().map(|column| ScalarValue::try_from_array(column, 0));
    values.collect::<Result<_, _>>().map_err(|error| Status::invalid_argument(error.to_string()))
}

impl From<QueryError> for Status {
    fn from(error: QueryError) -> Self {
        let text = godwit_model::with_causes(&error);
        match error {
            QueryError::Statement { .. } => Self::invalid_argument(text),
            QueryError::NoTable { .. } => ErrorReason::TableNotFound.status(Code::NotFound, text),
            QueryError::Refused { .. } => Self::permission_denied(text),
            QueryError::Memory { .. } => Self::resource_exhausted(text),
            QueryError::Execution { .. } => Self::invalid_argument(text),
            QueryError::Output { .. } => Self::internal(text),
            QueryError::Dataset(error) => error.into(),
        }
    }
}
