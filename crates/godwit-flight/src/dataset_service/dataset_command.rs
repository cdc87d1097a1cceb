//! The JSON command by which a client requests a dataset.

use godwit_dataset::WriteMode;
use serde::{Deserialize, Serialize};

/// A request to read or upload a dataset, which the command of a Flight descriptor contains as JSON.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// use arrow_flight::flight_service_server::FlightService as _;
/// use futures_util::TryStreamExt as _;
/// use godwit_dataset::Principal;
/// use godwit_flight::{DataPlane as _, DatasetCommand, DatasetService, FlightDescriptor};
/// # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
/// # use arrow_schema::SchemaRef;
/// # use godwit_dataset::{BatchReader, Catalog, Dataset, DatasetError, DatasetKind};
/// # use godwit_flight::DatasetServiceOptions;
/// # use godwit_dataset::{Scan, ScanPart};
///
/// # #[derive(Clone, Debug)]
/// # struct Table(RecordBatch);
/// # impl Dataset for Table {
/// #     fn kind(&self) -> DatasetKind {
/// #         DatasetKind::Table
/// #     }
/// #     fn schema(&self) -> SchemaRef {
/// #         self.0.schema()
/// #     }
/// #     fn bytes(&self) -> u64 {
/// #         16
/// #     }
/// #     fn version(&self) -> u64 {
/// #         1
/// #     }
/// #     fn has_regions(&self) -> bool {
/// #         false
/// #     }
/// #     fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
/// #         Ok(vec![ScanPart::default()])
/// #     }
/// #     fn read(&self, scan: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
/// #         let columns = scan.columns.clone().unwrap_or_else(|| (0..self.0.num_columns()).collect());
/// #         let batch = self.0.project(&columns).map_err(|error| DatasetError::Data(error.into()));
/// #         Ok(Box::new(std::iter::once(batch)))
/// #     }
/// # }
/// # impl Catalog for Table {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(vec!["genes.csv".to_owned()])
/// #     }
/// #     fn open(&self, _: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Ok(Arc::new(self.clone()))
/// #     }
/// # }
/// # let numbers = |from: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(from..from + 4)) };
/// # let batch = RecordBatch::try_from_iter([("position", numbers(0)), ("end_position", numbers(1))])?;
/// # let service = DatasetService::new(Arc::new(Table(batch)), None, DatasetServiceOptions::default());
/// let command = DatasetCommand {
///     dataset: "genes.csv".to_owned(),
///     columns: Some(vec!["position".to_owned()]),
///     ..DatasetCommand::default()
/// };
/// let json = serde_json::to_string(&command)?;
/// assert_eq!(json, r#"{"dataset":"genes.csv","columns":["position"]}"#);
///
/// let descriptor = FlightDescriptor::new_cmd(json);
/// let info = service.get_flight_info(tonic::Request::new(descriptor)).await?.into_inner();
/// let ticket = info.endpoint[0].ticket.clone().unwrap_or_default().ticket;
/// let download = service.download(Principal::default(), ticket.clone()).await?;
/// let batches: Vec<_> = download.batches.try_collect().await?;
/// assert_eq!((batches[0].0.num_columns(), batches[0].0.num_rows()), (1, 4));
///
/// // The ticket is valid for the principal that requested it.
/// assert!(service.download(Principal::named("bob"), ticket).await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetCommand {
    /// The name of the dataset.
    pub dataset: String,
    /// Names of the requested columns; absent: all columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Requested regions in the format of samtools, such as `chr1:1000-2000`; absent: all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<String>>,
    /// Maximum number of parts into which the server splits the dataset; absent: the server decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "parts")]
    pub max_parts: Option<usize>,
    /// For uploads: the action if the dataset exists. Absent: the upload is rejected if the dataset exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "put")]
    pub write_mode: Option<WriteMode>,
    /// For uploads: true if the dataset is stored in memory and removed when the server stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// For uploads: a unique identifier of hexadecimal digits. The server stores uploads with the same identifier only
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "upload")]
    pub upload_id: Option<String>,
}
