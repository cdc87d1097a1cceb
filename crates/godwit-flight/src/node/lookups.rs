//! Regions in, rows out: lookups that go on over one exchange.
//!
//! A client that looks up thousands of places one after the other need not ask for flight info each time. It sends batches of
//! regions, each batch a question, and gets the rows of each question in the order of the dataset, each row once.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, ArrayRef, RecordBatch, StringArray};
use arrow_flight::FlightDescriptor;
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_model::Region;
use serde::Serialize;
use tokio::sync::mpsc;
use tonic::Status;

use super::{Asked, BATCHES_AHEAD, DatasetCommand, Node, asked, blocking, scanned_schema};
use crate::codec::Chunk;
use crate::dataset::{Dataset, DatasetError, Scan};
use crate::gate::Caller;
use crate::server::{Chunks, Upload};

/// Regions of a question, at most.
const MOST_REGIONS: usize = 100_000;

/// What is said beside the rows of an answer.
#[derive(Serialize)]
struct Said {
    /// Which question it is an answer to, counted from 0.
    question: u64,
    /// Whether it is the last batch of that answer.
    last: bool,
}

impl Node {
    pub(super) async fn look_up(&self, caller: &Caller, mut taken: Upload) -> Result<Chunks, Status> {
        let first = taken.next().await?;
        let descriptor = taken.descriptor().cloned();
        let descriptor = descriptor.ok_or_else(|| Status::invalid_argument("an exchange has to say what it is"))?;
        let what = self.what_is_described(caller, &descriptor);
        let started = self.answer_questions(caller, &descriptor, first, taken).await;
        let (chunks, recorded) = self.begun(caller, "DoExchange", what, started).await?;
        Ok(match recorded {
            Some(recorded) => recorded.chunks(chunks),
            None => chunks,
        })
    }

    async fn answer_questions(
        &self,
        caller: &Caller,
        descriptor: &FlightDescriptor,
        first: Option<Chunk>,
        mut taken: Upload,
    ) -> Result<Chunks, Status> {
        let Asked::Dataset(command) = asked(descriptor)? else {
            return Err(Status::unimplemented("regions of a dataset are exchanged here; SQL is asked with DoGet"));
        };
        let (dataset, scan) = self.open_for_lookups(caller, command.clone()).await?;
        let (node, caller) = (self.clone(), caller.clone());
        let schema = scanned_schema(&*dataset, &scan)?;
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
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
                    // Rules may be others than when the exchange began.
                    let opened = match node.inner.options.rules.is_some() {
                        true => node.opened_again(&caller, command.clone(), &schema).await,
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
                    let answered = blocking(move || answer(&*dataset, scan, &schema, &batch, question, &answers)).await;
                    if let Err(status) = answered {
                        // Whoever asked is gone, or is told.
                        let _ = sender.send(Err(status)).await;
                        return;
                    }
                    question += 1;
                }
                next = taken.next().await;
            }
        });
        let chunks = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|chunk: Result<Chunk, Status>| (chunk, receiver))
        });
        Ok(chunks.boxed())
    }

    /// The same as when an exchange began, as its caller may see it now.
    async fn opened_again(
        &self,
        caller: &Caller,
        command: DatasetCommand,
        schema: &SchemaRef,
    ) -> Result<(Arc<dyn Dataset>, Scan), Status> {
        let name = command.dataset.clone();
        let (dataset, scan) = self.open_for_lookups(caller, command).await?;
        if scanned_schema(&*dataset, &scan)? != *schema {
            return Err(DatasetError::Changed { name }.into());
        }
        Ok((dataset, scan))
    }

    async fn open_for_lookups(
        &self,
        caller: &Caller,
        command: DatasetCommand,
    ) -> Result<(Arc<dyn Dataset>, Scan), Status> {
        if command.regions.is_some() {
            return Err(Status::invalid_argument("regions come as batches here, not with the command"));
        }
        let name = command.dataset.clone();
        let (dataset, scan) = self.open(caller, command).await?;
        if !dataset.has_regions() {
            let problem = format!("{name} is not looked up by regions; ask it with SQL");
            return Err(DatasetError::Refused { problem }.into());
        }
        Ok((dataset, scan))
    }
}

/// Sends the rows of one question: one batch or more, the last of which says that it is.
fn answer(
    dataset: &dyn Dataset,
    mut scan: Scan,
    schema: &SchemaRef,
    regions: &RecordBatch,
    question: u64,
    answers: &mpsc::Sender<Result<Chunk, Status>>,
) -> Result<(), Status> {
    scan.regions = Some(regions_of(regions)?);
    let send = |batch: RecordBatch, last: bool| {
        let said = serde_json::to_vec(&Said { question, last });
        let said = said.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?;
        let chunk = Chunk { batch: Some(batch), app_metadata: Bytes::from(said) };
        answers.blocking_send(Ok(chunk)).map_err(|_| Status::cancelled("nobody takes the answers"))
    };
    // One batch behind, to know the last one.
    let mut held: Option<RecordBatch> = None;
    for part in dataset.parts(&scan, 1)? {
        for batch in dataset.read(&scan, &part)? {
            if let Some(batch) = held.replace(batch?) {
                send(batch, false)?;
            }
        }
    }
    send(held.unwrap_or_else(|| RecordBatch::new_empty(schema.clone())), true)
}

/// The regions in columns `contig`, `start` and `end`: 0-based, half-open.
fn regions_of(batch: &RecordBatch) -> Result<Vec<Region>, Status> {
    if batch.num_rows() > MOST_REGIONS {
        return Err(Status::invalid_argument(format!("a batch has at most {MOST_REGIONS} regions; send several")));
    }
    let column = |name: &str, wanted: DataType| -> Result<ArrayRef, Status> {
        let missing = || {
            let problem =
                format!("regions have columns contig (text), start and end (numbers, 0-based); {name} is not so");
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
                    "region {row} of the batch is none: a contig, and a start before an end, are expected"
                )));
            }
            Ok(Region { contig: contigs.value(row).to_owned(), start: start as u32, end: end as u32 })
        })
        .collect()
}
