//! Lookups of genomic regions in an exchange: the client sends regions and receives the rows that overlap them.
//!
//! By an exchange, a client can look up thousands of regions without requesting flight info for each. Each batch of
//! regions that the client sends is one lookup. The server returns the rows of each lookup in the order of the dataset,
//! each row once.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, RecordBatch, StringArray};
use arrow_flight::FlightDescriptor;
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_dataset::{Dataset, DatasetError, Principal, Scan};
use godwit_model::Region;
use serde::Serialize;
use tokio::sync::mpsc;
use tonic::Status;

use super::{
    BATCH_QUEUE_LENGTH, DatasetCommand, DatasetService, DescriptorCommand, parse_descriptor, projected_schema,
    run_blocking,
};
use crate::call_streams::ExchangeStream;
use crate::codec::FlightStreamChunk;
use crate::error::dataset_status;
use crate::server::Upload;

/// Maximum number of regions in one lookup.
const MAX_REGIONS: usize = 100_000;

/// The application metadata of each batch that the server returns.
#[derive(Serialize)]
struct LookupMetadata {
    /// 0-based number of the lookup within the exchange.
    #[serde(rename = "question")]
    lookup: u64,
    /// True if this is the last batch of the lookup.
    #[serde(rename = "last")]
    is_last: bool,
}

impl DatasetService {
    pub(super) async fn exchange_lookups(
        &self,
        principal: &Principal,
        mut upload: Upload,
    ) -> Result<ExchangeStream, Status> {
        let first = upload.next().await?;
        let descriptor = upload.descriptor().cloned();
        let descriptor = descriptor.ok_or_else(|| Status::invalid_argument("DoExchange requires a descriptor"))?;
        let resource = self.descriptor_resource(principal, &descriptor);
        let started = self.stream_lookups(principal, &descriptor, first, upload).await;
        let (chunks, recorded) = self.record_start_or_failure(principal, "DoExchange", resource, started).await?;
        Ok(match recorded {
            Some(recorded) => recorded.record_exchange(chunks),
            None => chunks,
        })
    }

    async fn stream_lookups(
        &self,
        principal: &Principal,
        descriptor: &FlightDescriptor,
        first: Option<FlightStreamChunk>,
        mut upload: Upload,
    ) -> Result<ExchangeStream, Status> {
        let DescriptorCommand::Dataset(command) = parse_descriptor(descriptor)? else {
            return Err(Status::unimplemented("DoExchange requires a dataset; use DoGet for SQL"));
        };
        let (dataset, scan) = self.open_for_lookups(principal, command.clone()).await?;
        let (service, principal) = (self.clone(), principal.clone());
        let schema = projected_schema(&*dataset, &scan)?;
        let (sender, receiver) = mpsc::channel(BATCH_QUEUE_LENGTH);
        tokio::spawn(async move {
            let (mut next, mut question) = (Ok(first), 0);
            loop {
                let chunk = match next {
                    Ok(Some(chunk)) => chunk,
                    Ok(None) => return,
                    Err(status) => {
                        let _ = sender.send(Err(status)).await;
                        return;
                    }
                };
                if let Some(batch) = chunk.batch {
                    // Open the dataset again: the access rules may have changed since the exchange started.
                    let opened = match service.inner.options.authorizer.is_some() {
                        true => service.reopen_for_lookups(&principal, command.clone(), &schema).await,
                        false => Ok((dataset.clone(), scan.clone())),
                    };
                    let (dataset, scan) = match opened {
                        Ok(opened) => opened,
                        Err(status) => {
                            let _ = sender.send(Err(status)).await;
                            return;
                        }
                    };
                    let schema = schema.clone();
                    let answers = sender.clone();
                    let outcome =
                        run_blocking(move || send_rows(&*dataset, scan, &schema, &batch, question, &answers)).await;
                    if let Err(status) = outcome {
                        // Sending fails only if the client has disconnected.
                        let _ = sender.send(Err(status)).await;
                        return;
                    }
                    question += 1;
                }
                next = upload.next().await;
            }
        });
        let chunks = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|chunk: Result<FlightStreamChunk, Status>| (chunk, receiver))
        });
        Ok(chunks.boxed())
    }

    /// Opens the dataset of the exchange again, with the current access rights of the principal.
    async fn reopen_for_lookups(
        &self,
        principal: &Principal,
        command: DatasetCommand,
        schema: &SchemaRef,
    ) -> Result<(Arc<dyn Dataset>, Scan), Status> {
        let name = command.dataset.clone();
        let (dataset, scan) = self.open_for_lookups(principal, command).await?;
        if projected_schema(&*dataset, &scan)? != *schema {
            return Err(dataset_status(DatasetError::Changed { name }));
        }
        Ok((dataset, scan))
    }

    async fn open_for_lookups(
        &self,
        principal: &Principal,
        command: DatasetCommand,
    ) -> Result<(Arc<dyn Dataset>, Scan), Status> {
        if command.regions.is_some() {
            return Err(Status::invalid_argument("the command of an exchange has no regions; send them as batches"));
        }
        let name = command.dataset.clone();
        let (dataset, scan) = self.open_scan(principal, command).await?;
        if !dataset.has_regions() {
            let problem = format!("{name} has no index for regions; use SQL");
            return Err(dataset_status(DatasetError::InvalidRequest { problem }));
        }
        Ok((dataset, scan))
    }
}

/// Sends the rows of one lookup as one or more batches. The metadata of the last batch marks it as last.
fn send_rows(
    dataset: &dyn Dataset,
    mut scan: Scan,
    schema: &SchemaRef,
    regions: &RecordBatch,
    lookup: u64,
    answers: &mpsc::Sender<Result<FlightStreamChunk, Status>>,
) -> Result<(), Status> {
    scan.regions = Some(parse_regions(regions)?);
    let send = |batch: RecordBatch, is_last: bool| {
        let metadata = serde_json::to_vec(&LookupMetadata { lookup, is_last });
        let metadata = metadata.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?;
        let chunk = FlightStreamChunk { batch: Some(batch), app_metadata: Bytes::from(metadata) };
        answers.blocking_send(Ok(chunk)).map_err(|_| Status::cancelled("the client has disconnected"))
    };
    // Send each batch only after the next one was read, so that the last batch can be marked.
    let mut held: Option<RecordBatch> = None;
    for part in dataset.parts(&scan, 1).map_err(dataset_status)? {
        for batch in dataset.read(&scan, &part).map_err(dataset_status)? {
            if let Some(batch) = held.replace(batch.map_err(dataset_status)?) {
                send(batch, false)?;
            }
        }
    }
    send(held.unwrap_or_else(|| RecordBatch::new_empty(schema.clone())), true)
}

/// Parses regions from the columns `contig`, `start` and `end`, which are 0-based and half-open.
fn parse_regions(batch: &RecordBatch) -> Result<Vec<Region>, Status> {
    if batch.num_rows() > MAX_REGIONS {
        return Err(Status::invalid_argument(format!(
            "a batch may have at most {MAX_REGIONS} regions; send several batches"
        )));
    }
    let column = |name: &str, wanted: DataType| -> Result<ArrayRef, Status> {
        let missing = || {
            let problem = format!(
                "regions need the columns contig (text), start and end (numbers, 0-based); {name} has another type or \
                 is missing"
            );
            Status::invalid_argument(problem)
        };
        let column = batch.column_by_name(name).ok_or_else(missing)?;
        arrow_cast::cast(column, &wanted).map_err(|_| missing())
    };
    let contigs = column("contig", DataType::Utf8)?;
    let (starts, ends) = (column("start", DataType::Int64)?, column("end", DataType::Int64)?);
    let contigs: &StringArray = contigs.as_string();
    let (starts, ends) = (starts.as_primitive::<Int64Type>(), ends.as_primitive::<Int64Type>());
    (0..batch.num_rows())
        .map(|row| {
            let present = contigs.is_valid(row) && starts.is_valid(row) && ends.is_valid(row);
            let (start, end) = (starts.value(row), ends.value(row).min(i64::from(Region::OPEN_END)));
            if !present || start < 0 || start >= end {
                return Err(Status::invalid_argument(format!(
                    "region {row} of the batch is invalid: expected a contig, and a start before an end"
                )));
            }
            Ok(Region { contig: contigs.value(row).to_owned(), start: start as u32, end: end as u32 })
        })
        .collect()
}
