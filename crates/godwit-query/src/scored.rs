//! Rows with the scores that a service gives for them.
//!
//! Features of rows go out over one exchange, batch by batch, and scores come back in the same order; columns that are kept wait
//! here meanwhile, a few batches of them. Which columns are features is the model's to say.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use godwit_flight::{Batches, Client, Code, FlightDescriptor, FlightError, Sender, Status};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::engine::Rows;
use crate::error::QueryError;

/// Rows of a batch on its way: more gain nothing, and fewer cost more each.
const BATCH_ROWS: usize = 16_384;
/// Batches that wait for their scores, at most.
const WAITING_BATCHES: usize = 16;
/// The action that tells of a model.
const DESCRIBE: &str = "DescribeModel";

/// Why there are no scores.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The other end scores nothing.
    #[error("{url} is no service for scoring; `python -m godwit.scoring` starts one")]
    NoService {
        /// Where it is.
        url: String,
    },
    /// The rows have other columns than the model wants.
    #[error("model {model} wants the columns {}, and the rows have no {}", wanted.join(", "), missing.join(", "))]
    Features {
        /// Its name.
        model: String,
        /// All of its features.
        wanted: Vec<String>,
        /// Those that are not there.
        missing: Vec<String>,
    },
    /// A column to keep that is not there.
    #[error("there is no column {column} to write beside the scores")]
    NoColumn {
        /// Its name.
        column: String,
    },
    /// A column has the name of a score.
    #[error("the rows have a column {column} already, which the model gives too; name those to keep with --columns")]
    Taken {
        /// Its name.
        column: String,
    },
    /// What the service gives is not what was agreed upon.
    #[error("{problem}; is that a service for scoring?")]
    Answer {
        /// What is wrong.
        problem: String,
    },
    /// The service refused a batch.
    #[error("the model takes no such rows: {problem}")]
    Refused {
        /// What it said.
        problem: String,
    },
    /// The rows could not be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The network, or what a service said of the model.
    #[error(transparent)]
    Flight(#[from] FlightError),
}

impl From<ArrowError> for ScoreError {
    fn from(error: ArrowError) -> Self {
        Self::Flight(error.into())
    }
}

/// What is asked of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelName {
    /// The model.
    pub model: String,
    /// The version; the last where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl ModelName {
    /// Reads `NAME` or `NAME/VERSION`.
    pub fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some((model, version)) => Self { model: model.to_owned(), version: Some(version.to_owned()) },
            None => Self { model: text.to_owned(), version: None },
        }
    }

    fn command(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a struct of strings is JSON")
    }
}

/// What a service says of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ModelDescription {
    /// Its name.
    pub model: String,
    /// Its version.
    pub version: String,
    /// Names of the columns it takes.
    pub features: Vec<String>,
    /// Whether those names are made up: as many columns in their order will do.
    #[serde(default)]
    pub by_position: bool,
    /// What it gives.
    pub scores: Vec<ScoreColumn>,
}

/// A column of scores.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ScoreColumn {
    /// Its name.
    pub name: String,
}

impl ModelDescription {
    /// Asks a service for it.
    ///
    /// # Errors
    /// [`ScoreError::NoService`], [`ScoreError::Answer`], [`ScoreError::Flight`].
    pub async fn ask(client: &Client, url: &str, name: &ModelName) -> Result<Self, ScoreError> {
        let no_service = || ScoreError::NoService { url: url.to_owned() };
        let answers = client.act(DESCRIBE, name.command()).await.map_err(|error| match &error {
            // A server of datasets does not know the action.
            FlightError::Status { status, .. } if status.code() == Code::Unimplemented => no_service(),
            _ => error.into(),
        })?;
        let told = answers.first().ok_or_else(no_service)?;
        serde_json::from_slice(told).map_err(|error| ScoreError::Answer {
            problem: format!("what {url} says of the model is not read: {error}"),
        })
    }

    /// Where the features are among the columns of rows.
    ///
    /// # Errors
    /// [`ScoreError::Features`].
    pub fn features_in(&self, schema: &Schema) -> Result<Vec<usize>, ScoreError> {
        let found: Vec<Option<usize>> = self.features.iter().map(|name| schema.index_of(name).ok()).collect();
        if self.by_position && found.iter().all(Option::is_none) && schema.fields().len() == self.features.len() {
            return Ok((0..self.features.len()).collect());
        }
        let missing = self.features.iter().zip(&found).filter(|(_, found)| found.is_none());
        let missing: Vec<String> = missing.map(|(name, _)| name.clone()).collect();
        if !missing.is_empty() {
            return Err(ScoreError::Features { model: self.model.clone(), wanted: self.features.clone(), missing });
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Where columns to keep are: those named, or all; none may have the name of a score.
    ///
    /// # Errors
    /// [`ScoreError::NoColumn`], [`ScoreError::Taken`].
    pub fn kept_in(&self, schema: &Schema, columns: Option<&[String]>) -> Result<Vec<usize>, ScoreError> {
        let place =
            |column: &String| schema.index_of(column).map_err(|_| ScoreError::NoColumn { column: column.clone() });
        let kept = match columns {
            Some(columns) => columns.iter().map(place).collect::<Result<_, _>>()?,
            None => (0..schema.fields().len()).collect::<Vec<_>>(),
        };
        match kept.iter().map(|&at| schema.field(at).name()).find(|name| self.gives(name)) {
            Some(column) => Err(ScoreError::Taken { column: column.clone() }),
            None => Ok(kept),
        }
    }

    fn gives(&self, name: &str) -> bool {
        self.scores.iter().any(|score| score.name == name)
    }
}

/// Rows with their scores, as they come.
pub struct ScoredRows {
    schema: SchemaRef,
    batches: Batches,
    first: Option<RecordBatch>,
    kept: mpsc::Receiver<RecordBatch>,
    feeding: Feeding,
}

/// What sends; its outcome is asked for once.
struct Feeding(Option<JoinHandle<Result<(), ScoreError>>>);

impl Drop for Feeding {
    fn drop(&mut self) {
        if let Some(feeding) = &self.0 {
            feeding.abort();
        }
    }
}

impl Feeding {
    /// Whether everything was sent.
    async fn outcome(&mut self) -> Result<(), ScoreError> {
        match self.0.take() {
            Some(feeding) => feeding.await.unwrap_or_else(|_| Err(broken_off())),
            None => Ok(()),
        }
    }

    /// Why an exchange failed: where rows could not be read, that is why the service got too few.
    async fn blame(&mut self, error: FlightError) -> ScoreError {
        if self.0.as_ref().is_some_and(JoinHandle::is_finished)
            && let Err(ScoreError::Query(cause)) = self.outcome().await
        {
            return cause.into();
        }
        refused(error)
    }
}

impl ScoredRows {
    /// Has a service score rows, and keeps some of their columns.
    ///
    /// # Errors
    /// [`ScoreError`].
    pub async fn ask(
        client: &Client,
        name: &ModelName,
        model: &ModelDescription,
        rows: Rows,
        columns: Option<&[String]>,
    ) -> Result<Self, ScoreError> {
        let features = model.features_in(rows.schema())?;
        let kept = model.kept_in(rows.schema(), columns)?;
        let descriptor = FlightDescriptor::new_cmd(name.command());
        let (sender, answer) = client.exchange(&descriptor, &rows.schema().project(&features)?)?;
        let kept_schema = rows.schema().project(&kept)?;
        let (keep, receiver) = mpsc::channel(WAITING_BATCHES);
        // The service answers once it has seen the columns, which come with the first batch: sending begins before.
        let mut feeding = Feeding(Some(tokio::spawn(feed(rows, sender, Columns { features, kept }, keep))));
        let batches = match answer.await {
            Ok(batches) => batches,
            Err(error) => return Err(feeding.blame(error).await),
        };
        let mut asked = Self { schema: Arc::new(kept_schema), batches, first: None, kept: receiver, feeding };
        asked.first = asked.take().await?;
        let Some(scores) = asked.batches.schema() else {
            asked.finish().await?;
            return Err(ScoreError::Answer { problem: "the service did not say what its scores are".to_owned() });
        };
        let fields = asked.schema.fields().iter().chain(scores.fields()).cloned();
        asked.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(asked)
    }

    /// Columns that were kept, and scores.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch.
    ///
    /// # Errors
    /// [`ScoreError`].
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, ScoreError> {
        let scores = match self.first.take() {
            Some(first) => Some(first),
            None => self.take().await?,
        };
        let Some(scores) = scores else {
            self.finish().await?;
            return match self.kept.recv().await {
                Some(_) => Err(broken_off()),
                None => Ok(None),
            };
        };
        let kept = self.kept.recv().await.ok_or_else(|| ScoreError::Answer {
            problem: "the service gave scores of rows that were not sent".to_owned(),
        })?;
        if kept.num_rows() != scores.num_rows() {
            let problem = format!("the service gave {} scores for {} rows", scores.num_rows(), kept.num_rows());
            return Err(ScoreError::Answer { problem });
        }
        let columns = kept.columns().iter().chain(scores.columns()).cloned().collect();
        Ok(Some(RecordBatch::try_new(self.schema.clone(), columns)?))
    }

    async fn take(&mut self) -> Result<Option<RecordBatch>, ScoreError> {
        match self.batches.next().await {
            Ok(answer) => Ok(answer.map(|(batch, _)| batch)),
            Err(error) => Err(self.feeding.blame(error).await),
        }
    }

    /// Whether everything was sent, once the service has ended the exchange.
    async fn finish(&mut self) -> Result<(), ScoreError> {
        // It takes no more; what waits for room would wait for ever.
        self.kept.close();
        self.feeding.outcome().await
    }
}

fn broken_off() -> ScoreError {
    ScoreError::Answer { problem: "the service ended before all rows were scored".to_owned() }
}

/// Returns the message of a service. Arrow's C++ library, on which services in Python run, appends the traceback to it.
pub fn without_traceback(status: &Status) -> &str {
    status.message().split(". Detail: ").next().unwrap_or_default()
}

/// What a service says against a batch.
fn refused(error: FlightError) -> ScoreError {
    match &error {
        FlightError::Status { status, .. } if status.code() == Code::InvalidArgument => {
            ScoreError::Refused { problem: without_traceback(status).to_owned() }
        }
        _ => error.into(),
    }
}

/// Where columns are that are sent, and that are kept.
struct Columns {
    features: Vec<usize>,
    kept: Vec<usize>,
}

/// Sends features of rows, and hands on what is kept of each batch before it goes.
async fn feed(
    mut rows: Rows,
    mut sender: Sender,
    columns: Columns,
    keep: mpsc::Sender<RecordBatch>,
) -> Result<(), ScoreError> {
    while let Some(batch) = rows.next().await? {
        for at in (0..batch.num_rows()).step_by(BATCH_ROWS) {
            let piece = batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at));
            if keep.send(piece.project(&columns.kept)?).await.is_err() {
                return Err(broken_off());
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
        assert_eq!(whole.command(), br#"{"model":"filter","version":"1.2"}"#);
        assert_eq!(ModelName::parse("filter").command(), br#"{"model":"filter"}"#);
    }

    #[test]
    fn features_are_found_by_name_wherever_they_stand() {
        assert_eq!(model(false).features_in(&columns(&["x", "f1", "f0"])).unwrap(), [2, 1]);
        let missing = model(false).features_in(&columns(&["x", "f1"])).unwrap_err().to_string();
        assert_eq!(missing, "model filter wants the columns f0, f1, and the rows have no f0");
    }

    #[test]
    fn a_model_without_names_takes_as_many_columns_as_it_has_features() {
        assert_eq!(model(true).features_in(&columns(&["x", "y"])).unwrap(), [0, 1]);
        assert!(model(false).features_in(&columns(&["x", "y"])).is_err());
        assert!(model(true).features_in(&columns(&["x", "y", "z"])).is_err());
        // One of its names there and one not is a mistake, not an order.
        assert!(model(true).features_in(&columns(&["f1", "y"])).is_err());
    }

    #[test]
    fn columns_to_keep_are_there_and_are_no_scores() {
        let schema = columns(&["contig", "f0", "score"]);
        assert_eq!(model(false).kept_in(&schema, Some(&["f0".into(), "contig".into()])).unwrap(), [1, 0]);
        assert!(matches!(model(false).kept_in(&schema, None), Err(ScoreError::Taken { .. })));
        assert!(matches!(model(false).kept_in(&schema, Some(&["x".into()])), Err(ScoreError::NoColumn { .. })));
        assert_eq!(model(false).kept_in(&columns(&["a", "b"]), None).unwrap(), [0, 1]);
    }
}
