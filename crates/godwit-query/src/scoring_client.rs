//! A client of a scoring service, which computes scores for rows by a machine learning model.
//!
//! The client sends the feature columns of the rows in one Flight exchange, batch by batch, and the service returns the
//! scores in the same order. The model defines which columns are features. Passthrough columns are not sent: the client
//! keeps them for a few batches, until the scores of these batches arrive.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use godwit_flight::{BatchSender, Batches, Client, Code, FlightDescriptor, FlightError, Status};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::StatementError;
use crate::rows::Rows;

/// Number of rows per batch that is sent. Smaller batches cost more per row, and larger batches are not faster.
const BATCH_ROWS: usize = 16_384;
/// Maximum number of sent batches whose scores have not arrived.
const MAX_PENDING_BATCHES: usize = 16;
/// The Flight action that describes a model.
const DESCRIBE_ACTION: &str = "DescribeModel";

/// An error while rows are scored.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The server is not a scoring service.
    #[error("{url} is not a scoring service; start one with `python -m godwit.scoring`")]
    NotAScoringService {
        /// URL of the server.
        url: String,
    },
    /// The rows do not have all feature columns of the model.
    #[error("model {model} requires the columns {}, and the rows have no {}", required.join(", "), missing.join(", "))]
    MissingFeatures {
        /// Name of the model.
        model: String,
        /// Names of all feature columns of the model.
        required: Vec<String>,
        /// Names of the feature columns that the rows do not have.
        missing: Vec<String>,
    },
    /// The rows do not have a requested passthrough column.
    #[error("there is no column {column} to write with the scores")]
    ColumnNotFound {
        /// Name of the column.
        column: String,
    },
    /// A passthrough column has the same name as a score column.
    #[error(
        "the rows already have a column {column}, which is also a score of the model; select the columns to write with \
         --columns"
    )]
    ColumnConflict {
        /// Name of the column.
        column: String,
    },
    /// The response of the service violates the scoring protocol.
    #[error("{problem}; is the server a scoring service?")]
    InvalidResponse {
        /// Description of the violation.
        problem: String,
    },
    /// The service rejected a batch of rows.
    #[error("the model rejected the rows: {problem}")]
    RowsRejected {
        /// The error message that the service returned.
        problem: String,
    },
    /// The rows could not be read.
    #[error(transparent)]
    Rows(#[from] StatementError),
    /// A call failed, or the service rejected the model.
    #[error(transparent)]
    Flight(#[from] FlightError),
}

impl From<ArrowError> for ScoreError {
    fn from(error: ArrowError) -> Self {
        Self::Flight(error.into())
    }
}

/// Name and version of a model, in the form in which the client sends them to a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelName {
    /// Name of the model.
    pub model: String,
    /// Version of the model; `None`: the latest version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl ModelName {
    /// Parses `NAME` or `NAME/VERSION`.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_query::ModelName;
    ///
    /// let name = ModelName::parse("variant-filter/1.2");
    /// assert_eq!((name.model.as_str(), name.version.as_deref()), ("variant-filter", Some("1.2")));
    /// assert_eq!(ModelName::parse("variant-filter").version, None);
    /// ```
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

/// The description of a model that a service returns.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ModelDescription {
    /// Name of the model.
    pub model: String,
    /// Version of the model.
    pub version: String,
    /// Names of the feature columns.
    pub features: Vec<String>,
    /// True if the model has no real feature names and `features` are generated. Then any rows with the same number of
    /// columns are accepted, in order.
    #[serde(default)]
    pub by_position: bool,
    /// The score columns that the model returns.
    pub scores: Vec<ScoreColumn>,
}

/// A column of scores that a model returns.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ScoreColumn {
    /// Name of the column.
    pub name: String,
}

impl ModelDescription {
    /// Requests the description of a model from a service.
    ///
    /// # Errors
    /// [`ScoreError::NotAScoringService`] if the server does not support the action, [`ScoreError::InvalidResponse`] if
    /// the response is malformed, [`ScoreError::Flight`] if the call fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server, TransportOptions};
    /// use godwit_query::{ModelDescription, ModelName, ScoreError};
    ///
    /// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    /// // The server does not know the action that describes a model.
    /// let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
    /// let url = format!("grpc+tcp://{address}");
    /// let rejected = ModelDescription::fetch(&client, &url, &ModelName::parse("variant-filter")).await;
    /// assert!(matches!(rejected, Err(ScoreError::NotAScoringService { url: rejecting }) if rejecting == url));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fetch(client: &Client, url: &str, name: &ModelName) -> Result<Self, ScoreError> {
        let no_service = || ScoreError::NotAScoringService { url: url.to_owned() };
        let answers = client.do_action(DESCRIBE_ACTION, name.to_command()).await.map_err(|error| match &error {
            // A server that is not a scoring service, such as a data server, does not support the action.
            FlightError::Status { status, .. } if status.code() == Code::Unimplemented => no_service(),
            _ => error.into(),
        })?;
        let first_answer = answers.first().ok_or_else(no_service)?;
        serde_json::from_slice(first_answer).map_err(|error| ScoreError::InvalidResponse {
            problem: format!("the model description from {url} cannot be parsed: {error}"),
        })
    }

    /// Returns the indexes of the feature columns in the schema of the rows.
    ///
    /// # Errors
    /// [`ScoreError::MissingFeatures`] if a feature is missing.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use arrow_schema::{DataType, Field, Schema};
    /// use godwit_query::{ModelDescription, ScoreError};
    ///
    /// let model: ModelDescription = serde_json::from_str(
    ///     r#"{"model":"filter","version":"2","features":["depth","quality"],"scores":[{"name":"score"}]}"#,
    /// )?;
    /// let schema = |names: &[&str]| {
    ///     Schema::new(names.iter().map(|name| Field::new(*name, DataType::Float32, true)).collect::<Vec<_>>())
    /// };
    /// assert_eq!(model.feature_indices(&schema(&["position", "quality", "depth"]))?, [2, 1]);
    /// let missing = model.feature_indices(&schema(&["position", "quality"]));
    /// assert!(matches!(missing, Err(ScoreError::MissingFeatures { missing, .. }) if missing == ["depth"]));
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns the indexes of the passthrough columns in the schema of the rows. `columns` are their names; `None`: all
    /// columns.
    ///
    /// # Errors
    /// [`ScoreError::ColumnNotFound`] if a column does not exist, [`ScoreError::ColumnConflict`] if a column has the
    /// name of a score column.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use arrow_schema::{DataType, Field, Schema};
    /// use godwit_query::{ModelDescription, ScoreError};
    ///
    /// let model: ModelDescription = serde_json::from_str(
    ///     r#"{"model":"filter","version":"2","features":["depth","quality"],"scores":[{"name":"score"}]}"#,
    /// )?;
    /// let field = |name: &str| Field::new(name, DataType::Float32, true);
    /// let schema = Schema::new(vec![field("depth"), field("quality"), field("score")]);
    /// assert_eq!(model.passthrough_indices(&schema, Some(&["quality".to_owned()]))?, [1]);
    /// // All columns, one of which has the name of a score.
    /// let conflict = model.passthrough_indices(&schema, None);
    /// assert!(matches!(conflict, Err(ScoreError::ColumnConflict { column }) if column == "score"));
    /// # Ok(())
    /// # }
    /// ```
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

/// Rows with their scores, which are received while they are read.
pub struct ScoredRows {
    schema: SchemaRef,
    batches: Batches,
    first_scores: Option<RecordBatch>,
    passthrough: mpsc::Receiver<RecordBatch>,
    feeder: FeederTask,
}

/// The task that sends features to the service; `None` after its result was returned.
struct FeederTask(Option<JoinHandle<Result<(), ScoreError>>>);

impl Drop for FeederTask {
    fn drop(&mut self) {
        if let Some(feeding) = &self.0 {
            feeding.abort();
        }
    }
}

impl FeederTask {
    /// Waits for the end of the task. Fails if the task could not read or send all rows.
    async fn join(&mut self) -> Result<(), ScoreError> {
        match self.0.take() {
            Some(feeding) => feeding.await.unwrap_or_else(|_| Err(incomplete_scores_error())),
            None => Ok(()),
        }
    }

    /// Returns the cause of a failed exchange. If the rows could not be read, returns that error instead of `error`.
    async fn explain_failure(&mut self, error: FlightError) -> ScoreError {
        if self.0.as_ref().is_some_and(JoinHandle::is_finished)
            && let Err(ScoreError::Rows(cause)) = self.join().await
        {
            return cause.into();
        }
        scoring_error(error)
    }
}

impl ScoredRows {
    /// Starts scoring rows by a service. The result contains the passthrough columns and the scores.
    ///
    /// # Errors
    /// [`ScoreError`] if the rows cannot be read, if columns are missing, or if the exchange with the service fails.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::sync::Arc;
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server, TransportOptions};
    /// use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    /// use godwit_query::{ModelDescription, ModelName, RowFormat, RowWriter, Rows, ScoredRows};
    ///
    /// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    /// // The service of this example returns the features as scores.
    /// let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
    /// let model: ModelDescription = serde_json::from_str(
    ///     r#"{"model":"echo","version":"1","features":["depth"],"scores":[{"name":"depth"}]}"#,
    /// )?;
    /// let positions: ArrayRef = Arc::new(Int64Array::from(vec![100, 200]));
    /// let depths: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 0.25]));
    /// let sites = RecordBatch::try_from_iter([("position", positions), ("depth", depths)])?;
    /// let rows = Rows::new(sites.schema(), futures_util::stream::iter([Ok(sites)]));
    /// let kept = ["position".to_owned()];
    /// let mut rows = ScoredRows::score(&client, &ModelName::parse("echo"), &model, rows, Some(&kept)).await?;
    /// let mut csv = RowWriter::new(RowFormat::Csv, rows.schema(), Vec::new())?;
    /// while let Some(batch) = rows.next().await? {
    ///     csv.write(batch)?;
    /// }
    /// assert_eq!(String::from_utf8(csv.finish()?)?, "position,depth\n100,0.5\n200,0.25\n");
    /// # Ok(())
    /// # }
    /// ```
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
        // Start sending before waiting for the response: the service responds only after it has received the schema,
        // which is sent with the first batch.
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
        let mut requests =
            Self { schema: Arc::new(kept_schema), batches, first_scores: None, passthrough: receiver, feeder };
        requests.first_scores = requests.next_scores().await?;
        let Some(scores) = requests.batches.schema() else {
            requests.finish_sending().await?;
            return Err(ScoreError::InvalidResponse {
                problem: "the service did not describe its score columns".to_owned(),
            });
        };
        let fields = requests.schema.fields().iter().chain(scores.fields()).cloned();
        requests.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(requests)
    }

    /// Returns the schema of the result: the passthrough columns, followed by the score columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the next batch; `None` at the end.
    ///
    /// # Errors
    /// The same errors as [`Self::score`].
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
            problem: "the service returned scores of rows that were not sent".to_owned(),
        })?;
        if kept.num_rows() != scores.num_rows() {
            let problem = format!("the service returned {} scores for {} rows", scores.num_rows(), kept.num_rows());
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

    /// Checks, after the service has ended the exchange, that all rows were sent and scored.
    async fn finish_sending(&mut self) -> Result<(), ScoreError> {
        // Close the channel: the service receives no more rows, so the sending task would wait forever for free space.
        self.passthrough.close();
        self.feeder.join().await
    }
}

fn incomplete_scores_error() -> ScoreError {
    ScoreError::InvalidResponse { problem: "the service closed the stream before all rows were scored".to_owned() }
}

/// Returns the error message of a service without the Python traceback that Arrow C++ appends, on which Python services
/// are based.
///
/// # Examples
///
/// ```
/// use godwit_flight::Status;
/// use godwit_query::without_traceback;
///
/// let status = Status::invalid_argument("depth is negative. Detail: Python exception: Traceback ..");
/// assert_eq!(without_traceback(&status), "depth is negative");
/// ```
pub fn without_traceback(status: &Status) -> &str {
    status.message().split(". Detail: ").next().unwrap_or_default()
}

/// Converts an error of the exchange to a [`ScoreError`].
fn scoring_error(error: FlightError) -> ScoreError {
    match &error {
        FlightError::Status { status, .. } if status.code() == Code::InvalidArgument => {
            ScoreError::RowsRejected { problem: without_traceback(status).to_owned() }
        }
        _ => error.into(),
    }
}

/// Indexes of the feature columns, which are sent, and of the passthrough columns, which are kept.
struct ColumnSelection {
    features: Vec<usize>,
    passthrough: Vec<usize>,
}

/// Sends the features of all rows to the service. Queues the passthrough columns of each batch before sending its
/// features.
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
    use arrow_schema::{DataType, Field};

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
        assert_eq!(missing, "model filter requires the columns f0, f1, and the rows have no f0");
    }

    #[test]
    fn a_model_without_names_takes_as_many_columns_as_it_has_features() {
        assert_eq!(model(true).feature_indices(&columns(&["x", "y"])).unwrap(), [0, 1]);
        assert!(model(false).feature_indices(&columns(&["x", "y"])).is_err());
        assert!(model(true).feature_indices(&columns(&["x", "y", "z"])).is_err());
        // If only some names match, the columns are not accepted by position.
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
