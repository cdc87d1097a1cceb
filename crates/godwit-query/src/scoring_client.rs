//! Client of a scoring service: rows with their scores.
//!
//! Features of rows are sent over one exchange, batch by batch, and scores return in the same order. Passthrough columns
//! wait here for their scores, a few batches of them. The model defines which columns are features.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use godwit_flight::{BatchSender, Batches, Client, Code, FlightDescriptor, FlightError, Status};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::engine::Rows;
use crate::error::QueryError;

/// Rows of a batch that is sent: larger batches gain nothing, smaller ones cost more per row.
const BATCH_ROWS: usize = 16_384;
/// Batches that wait for their scores, at most.
const MAX_PENDING_BATCHES: usize = 16;
/// The Flight action that describes a model.
const DESCRIBE_ACTION: &str = "DescribeModel";

/// An error of scoring.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The server is not a scoring service.
    #[error("{url} is no service for scoring; `python -m godwit.scoring` starts one")]
    NotAScoringService {
        /// URL of the server.
        url: String,
    },
    /// The rows lack features of the model.
    #[error("model {model} wants the columns {}, and the rows have no {}", required.join(", "), missing.join(", "))]
    MissingFeatures {
        /// Name of the model.
        model: String,
        /// Columns of all its features.
        required: Vec<String>,
        /// Features that the rows lack.
        missing: Vec<String>,
    },
    /// A passthrough column that the rows lack.
    #[error("there is no column {column} to write beside the scores")]
    ColumnNotFound {
        /// Name of the column.
        column: String,
    },
    /// A passthrough column has the name of a score.
    #[error("the rows have a column {column} already, which the model gives too; name those to keep with --columns")]
    ColumnConflict {
        /// Name of the column.
        column: String,
    },
    /// The service violates the scoring protocol.
    #[error("{problem}; is that a service for scoring?")]
    InvalidResponse {
        /// Description of the violation.
        problem: String,
    },
    /// The service rejected a batch.
    #[error("the model takes no such rows: {problem}")]
    RowsRejected {
        /// Message of the service.
        problem: String,
    },
    /// The rows could not be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A call failed, or the service rejected the model.
    #[error(transparent)]
    Flight(#[from] FlightError),
}

impl From<ArrowError> for ScoreError {
    fn from(error: ArrowError) -> Self {
        Self::Flight(error.into())
    }
}

/// Name and version of a model, as a service receives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelName {
    /// Name of the model.
    pub model: String,
    /// Version; the latest if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl ModelName {
    /// Parses `NAME` or `NAME/VERSION`.
    pub fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some((model, version)) => Self { model: model.to_owned(), version: Some(version.to_owned()) },
            None => Self { model: text.to_owned(), version: None },
        }
    }

    fn to_command(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a struct of strings is JSON")
    }
}

/// Description of a model by its service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ModelDescription {
    /// Name of the model.
    pub model: String,
    /// Version of the model.
    pub version: String,
    /// Names of the feature columns.
    pub features: Vec<String>,
    /// True if the names are generated: then the same number of columns in order is accepted too.
    #[serde(default)]
    pub by_position: bool,
    /// The score columns.
    pub scores: Vec<ScoreColumn>,
}

/// A column of scores.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ScoreColumn {
    /// Name of the column.
    pub name: String,
}

impl ModelDescription {
    /// Requests the description of a model from a service.
    ///
    /// # Errors
    /// [`ScoreError::NotAScoringService`] if the action is unknown, [`ScoreError::InvalidResponse`],
    /// [`ScoreError::Flight`].
    pub async fn fetch(client: &Client, url: &str, name: &ModelName) -> Result<Self, ScoreError> {
        let no_service = || ScoreError::NotAScoringService { url: url.to_owned() };
        let answers = client.do_action(DESCRIBE_ACTION, name.to_command()).await.map_err(|error| match &error {
            // A dataset server does not know the action.
            FlightError::Status { status, .. } if status.code() == Code::Unimplemented => no_service(),
            _ => error.into(),
        })?;
        let told = answers.first().ok_or_else(no_service)?;
        serde_json::from_slice(told).map_err(|error| ScoreError::InvalidResponse {
            problem: format!("what {url} says of the model is not read: {error}"),
        })
    }

    /// Returns the indices of the features among the columns of rows.
    ///
    /// # Errors
    /// [`ScoreError::MissingFeatures`] if a feature is missing.
    pub fn feature_indices(&self, schema: &Schema) -> Result<Vec<usize>, ScoreError> {
        let found: Vec<Option<usize>> = self.features.iter().map(|name| schema.index_of(name).ok()).collect();
        if self.by_position && found.iter().all(Option::is_none) && schema.fields().len() == self.features.len() {
            return Ok((0..self.features.len()).collect());
        }
        let missing = self.features.iter().zip(&found).filter(|(_, found)| found.is_none());
        let missing: Vec<String> = missing.map(|(name, _)| name.clone()).collect();
        if !missing.is_empty() {
            return Err(ScoreError::MissingFeatures {
                model: self.model.clone(),
                required: self.features.clone(),
                missing,
            });
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the indices of the passthrough columns: those named, or all.
    ///
    /// # Errors
    /// [`ScoreError::ColumnNotFound`] if one is missing, [`ScoreError::ColumnConflict`] if one has the name of a score.
    pub fn passthrough_indices(&self, schema: &Schema, columns: Option<&[String]>) -> Result<Vec<usize>, ScoreError> {
        let place = |column: &String| {
            schema.index_of(column).map_err(|_| ScoreError::ColumnNotFound { column: column.clone() })
        };
        let kept = match columns {
            Some(columns) => columns.iter().map(place).collect::<Result<_, _>>()?,
            None => (0..schema.fields().len()).collect::<Vec<_>>(),
        };
        match kept.iter().map(|&at| schema.field(at).name()).find(|name| self.has_score(name)) {
            Some(column) => Err(ScoreError::ColumnConflict { column: column.clone() }),
            None => Ok(kept),
        }
    }

    fn has_score(&self, name: &str) -> bool {
        self.scores.iter().any(|score| score.name == name)
    }
}

/// Rows with their scores, read as a stream.
pub struct ScoredRows {
    schema: SchemaRef,
    batches: Batches,
    first_scores: Option<RecordBatch>,
    passthrough: mpsc::Receiver<RecordBatch>,
    feeder: FeederTask,
}

/// The task that sends features; its result is taken once.
struct FeederTask(Option<JoinHandle<Result<(), ScoreError>>>);

impl Drop for FeederTask {
    fn drop(&mut self) {
        if let Some(feeding) = &self.0 {
            feeding.abort();
        }
    }
}

impl FeederTask {
    /// Waits for the task; fails if not everything was sent.
    async fn join(&mut self) -> Result<(), ScoreError> {
        match self.0.take() {
            Some(feeding) => feeding.await.unwrap_or_else(|_| Err(incomplete_scores_error())),
            None => Ok(()),
        }
    }

    /// Returns the cause of a failed exchange: if the rows could not be read, that error.
    async fn explain_failure(&mut self, error: FlightError) -> ScoreError {
        if self.0.as_ref().is_some_and(JoinHandle::is_finished)
            && let Err(ScoreError::Query(cause)) = self.join().await
        {
            return cause.into();
        }
        scoring_error(error)
    }
}

impl ScoredRows {
    /// Scores rows with a service, and keeps some of their columns.
    ///
    /// # Errors
    /// [`ScoreError`] if the rows cannot be read or the service rejects or fails the exchange.
    pub async fn score(
        client: &Client,
        name: &ModelName,
        model: &ModelDescription,
        rows: Rows,
        columns: Option<&[String]>,
    ) -> Result<Self, ScoreError> {
        let features = model.feature_indices(rows.schema())?;
        let passthrough = model.passthrough_indices(rows.schema(), columns)?;
        let descriptor = FlightDescriptor::new_cmd(name.to_command());
        let (sender, answer) = client.exchange(&descriptor, &rows.schema().project(&features)?)?;
        let kept_schema = rows.schema().project(&passthrough)?;
        let (keep, receiver) = mpsc::channel(MAX_PENDING_BATCHES);
        // The service responds once it has seen the schema, which is sent with the first batch: sending starts before.
        let mut feeder = FeederTask(Some(tokio::spawn(send_features(
            rows,
            sender,
            ColumnSelection { features, passthrough },
            keep,
        ))));
        let batches = match answer.await {
            Ok(batches) => batches,
            Err(error) => return Err(feeder.explain_failure(error).await),
        };
        let mut asked =
            Self { schema: Arc::new(kept_schema), batches, first_scores: None, passthrough: receiver, feeder };
        asked.first_scores = asked.next_scores().await?;
        let Some(scores) = asked.batches.schema() else {
            asked.finish_sending().await?;
            return Err(ScoreError::InvalidResponse {
                problem: "the service did not say what its scores are".to_owned(),
            });
        };
        let fields = asked.schema.fields().iter().chain(scores.fields()).cloned();
        asked.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(asked)
    }

    /// Returns the passthrough columns, then the scores.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the next batch; `None` at the end.
    ///
    /// # Errors
    /// [`ScoreError`] as in [`Self::score`].
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, ScoreError> {
        let scores = match self.first_scores.take() {
            Some(first) => Some(first),
            None => self.next_scores().await?,
        };
        let Some(scores) = scores else {
            self.finish_sending().await?;
            return match self.passthrough.recv().await {
                Some(_) => Err(incomplete_scores_error()),
                None => Ok(None),
            };
        };
        let kept = self.passthrough.recv().await.ok_or_else(|| ScoreError::InvalidResponse {
            problem: "the service gave scores of rows that were not sent".to_owned(),
        })?;
        if kept.num_rows() != scores.num_rows() {
            let problem = format!("the service gave {} scores for {} rows", scores.num_rows(), kept.num_rows());
            return Err(ScoreError::InvalidResponse { problem });
        }
        let columns = kept.columns().iter().chain(scores.columns()).cloned().collect();
        Ok(Some(RecordBatch::try_new(self.schema.clone(), columns)?))
    }

    async fn next_scores(&mut self) -> Result<Option<RecordBatch>, ScoreError> {
        match self.batches.next().await {
            Ok(answer) => Ok(answer.map(|(batch, _)| batch)),
            Err(error) => Err(self.feeder.explain_failure(error).await),
        }
    }

    /// Checks that everything was sent, after the service has ended the exchange.
    async fn finish_sending(&mut self) -> Result<(), ScoreError> {
        // The feeder would wait forever for room in the channel, because the service takes no more rows.
        self.passthrough.close();
        self.feeder.join().await
    }
}

fn incomplete_scores_error() -> ScoreError {
    ScoreError::InvalidResponse { problem: "the service ended before all rows were scored".to_owned() }
}

/// Returns the message of a service. Arrow's C++ library, on which services in Python run, appends the traceback to it.
pub fn without_traceback(status: &Status) -> &str {
    status.message().split(". Detail: ").next().unwrap_or_default()
}

/// Converts the error of a service about a batch.
fn scoring_error(error: FlightError) -> ScoreError {
    match &error {
        FlightError::Status { status, .. } if status.code() == Code::InvalidArgument => {
            ScoreError::RowsRejected { problem: without_traceback(status).to_owned() }
        }
        _ => error.into(),
    }
}

/// Indices of the columns that are sent, and of those that are kept.
struct ColumnSelection {
    features: Vec<usize>,
    passthrough: Vec<usize>,
}

/// Sends features of rows, and queues the passthrough columns of each batch before it is sent.
async fn send_features(
    mut rows: Rows,
    mut sender: BatchSender,
    columns: ColumnSelection,
    keep: mpsc::Sender<RecordBatch>,
) -> Result<(), ScoreError> {
    while let Some(batch) = rows.next().await? {
        for at in (0..batch.num_rows()).step_by(BATCH_ROWS) {
            let piece = batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at));
            if keep.send(piece.project(&columns.passthrough)?).await.is_err() {
                return Err(incomplete_scores_error());
            }
            sender.send(&piece.project(&columns.features)?, &[]).await?;
        }
    }
    Ok(sender.finish().await?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};

    use super::*;

    fn model(by_position: bool) -> ModelDescription {
        let text = format!(
            r#"{{"model":"filter","version":"2","kind":"xgboost","features":["f0","f1"],"by_position":{by_position},"scores":[{{"name":"score","type":"float"}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn columns(names: &[&str]) -> Schema {
        Schema::new(names.iter().map(|name| Field::new(*name, DataType::Float32, true)).collect::<Vec<_>>())
    }

    #[test]
    fn a_model_is_named_with_its_version_or_without() {
        let whole = ModelName::parse("filter/1.2");
        assert_eq!(whole.to_command(), br#"{"model":"filter","version":"1.2"}"#);
        assert_eq!(ModelName::parse("filter").to_command(), br#"{"model":"filter"}"#);
    }

    #[test]
    fn features_are_found_by_name_wherever_they_stand() {
        assert_eq!(model(false).feature_indices(&columns(&["x", "f1", "f0"])).unwrap(), [2, 1]);
        let missing = model(false).feature_indices(&columns(&["x", "f1"])).unwrap_err().to_string();
        assert_eq!(missing, "model filter wants the columns f0, f1, and the rows have no f0");
    }

    #[test]
    fn a_model_without_names_takes_as_many_columns_as_it_has_features() {
        assert_eq!(model(true).feature_indices(&columns(&["x", "y"])).unwrap(), [0, 1]);
        assert!(model(false).feature_indices(&columns(&["x", "y"])).is_err());
        assert!(model(true).feature_indices(&columns(&["x", "y", "z"])).is_err());
        // If some names match and some do not, the columns are wrong, not unnamed.
        assert!(model(true).feature_indices(&columns(&["f1", "y"])).is_err());
    }

    #[test]
    fn columns_to_keep_are_there_and_are_no_scores() {
        let schema = columns(&["contig", "f0", "score"]);
        assert_eq!(model(false).passthrough_indices(&schema, Some(&["f0".into(), "contig".into()])).unwrap(), [1, 0]);
        assert!(matches!(model(false).passthrough_indices(&schema, None), Err(ScoreError::ColumnConflict { .. })));
        assert!(matches!(
            model(false).passthrough_indices(&schema, Some(&["x".into()])),
            Err(ScoreError::ColumnNotFound { .. })
        ));
        assert_eq!(model(false).passthrough_indices(&columns(&["a", "b"]), None).unwrap(), [0, 1]);
    }
}
