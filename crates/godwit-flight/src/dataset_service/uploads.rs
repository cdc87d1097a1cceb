//! Receives uploads of clients (`DoPut`): datasets, files, and parameter values for prepared statements.

use arrow_array::RecordBatch;
use arrow_flight::FlightDescriptor;
use arrow_flight::sql::{
    Command, CommandPreparedStatementQuery, CommandStatementIngest, DoPutPreparedStatementResult, DoPutUpdateResult,
    TableExistsOption, TableNotExistOption,
};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::stream;
use godwit_dataset::{Catalog, DatasetError, Principal, PutRequest, PutSummary, WriteMode};
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::Status;

use super::{
    BATCH_QUEUE_LENGTH, DatasetCommand, DatasetService, DescriptorCommand, parse_descriptor, run_blocking, unsupported,
};
use crate::access_recorder::status_outcome;
use crate::call_streams::PutResultStream;
use crate::codec::FlightStreamChunk;
use crate::error::dataset_status;
use crate::file_service::FILES_PREFIX;
use crate::pool::POOL_SCOPE;
use crate::server::{OUT_OF_SCOPE, Upload};
use crate::sql::{SQL_CATALOG, SQL_SCHEMA};

/// A message to the thread that writes an uploaded dataset.
enum WriterMessage {
    Batch(RecordBatch),
    /// The upload is complete and must be committed.
    Commit,
}

impl DatasetService {
    pub(super) async fn receive_upload(
        &self,
        principal: &Principal,
        mut upload: Upload,
    ) -> Result<PutResultStream, Status> {
        if principal.scope() == Some(POOL_SCOPE) {
            return Err(Status::permission_denied(OUT_OF_SCOPE));
        }
        let first = upload.next().await?;
        let descriptor: Option<FlightDescriptor> = upload.descriptor().cloned();
        let descriptor = descriptor.ok_or_else(|| Status::invalid_argument("DoPut requires a descriptor"))?;
        let resource = self.descriptor_resource(principal, &descriptor);
        // Record the access before the dataset is written, because a write cannot be undone.
        let recorded = self.record_start(principal, "DoPut", resource).await?;
        let taken = self.dispatch_upload(principal, descriptor, first, upload).await;
        match (recorded, taken) {
            (None, taken) => taken,
            (Some(recorded), Ok(answers)) => Ok(recorded.with_datasets_of(principal).record_upload(answers)),
            (Some(recorded), Err(status)) => {
                recorded.with_datasets_of(principal).finish(status_outcome(&status)).await?;
                Err(status)
            }
        }
    }

    async fn dispatch_upload(
        &self,
        principal: &Principal,
        descriptor: FlightDescriptor,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> Result<PutResultStream, Status> {
        if descriptor.cmd.starts_with(FILES_PREFIX.as_bytes()) {
            return self.file_service()?.upload(principal.clone(), descriptor.cmd, first, upload).await;
        }
        if principal.scope().is_some() {
            return Err(Status::permission_denied(OUT_OF_SCOPE));
        }
        let answer = match parse_descriptor(&descriptor)? {
            DescriptorCommand::Dataset(command) => {
                let stored = self.store_dataset(principal, put_request(command)?, first, upload).await?;
                serde_json::to_vec(&stored).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?
            }
            DescriptorCommand::Sql(command) => match *command {
                Command::CommandStatementIngest(ingest) => {
                    let stored = self.store_dataset(principal, put_request_from_ingest(ingest)?, first, upload).await?;
                    DoPutUpdateResult { record_count: stored.rows as i64 }.encode_to_vec()
                }
                Command::CommandPreparedStatementQuery(query) => {
                    self.bind_parameters(principal, query, first, upload).await?
                }
                other => return Err(unsupported(other.type_url())),
            },
        };
        Ok(Box::pin(stream::iter([Ok(Bytes::from(answer))])))
    }

    /// Writes the batches of an upload to the catalog, on a thread that may block on file access. If the upload fails,
    /// nothing is stored.
    async fn store_dataset(
        &self,
        principal: &Principal,
        put: PutRequest,
        first: Option<FlightStreamChunk>,
        mut upload: Upload,
    ) -> Result<PutSummary, Status> {
        let schema = upload.schema().cloned().ok_or_else(|| Status::invalid_argument("the upload has no schema"))?;
        let catalog = self.authorized_catalog(principal);
        let upload_slot = self.inner.upload_slots.clone().acquire_owned().await;
        let upload_slot = upload_slot.map_err(|_| Status::unavailable("the server is shutting down"))?;
        let (sender, receiver) = mpsc::channel(BATCH_QUEUE_LENGTH);
        let writing = tokio::spawn(run_blocking(move || {
            let _upload_slot = upload_slot;
            write_dataset(&*catalog, &put, schema, receiver).map_err(dataset_status)
        }));
        let mut next = first;
        while let Some(chunk) = next {
            if let Some(batch) = chunk.batch.filter(|batch| batch.num_rows() > 0)
                && sender.send(WriterMessage::Batch(batch)).await.is_err()
            {
                break;
            }
            next = upload.next().await?;
        }
        // If sending fails, the writer thread has ended early, and its result below contains the error.
        let _ = sender.send(WriterMessage::Commit).await;
        writing.await.unwrap_or_else(|error| Err(Status::internal(format!("a bug in godwit: {error}"))))
    }

    /// Receives parameter values for a prepared statement.
    async fn bind_parameters(
        &self,
        principal: &Principal,
        query: CommandPreparedStatementQuery,
        first: Option<FlightStreamChunk>,
        mut upload: Upload,
    ) -> Result<Vec<u8>, Status> {
        let one_row = || Status::invalid_argument("the parameters of a query must be a single row");
        let mut values = first.and_then(|chunk| chunk.batch);
        while let Some(chunk) = upload.next().await? {
            if let Some(batch) = chunk.batch.filter(|batch| batch.num_rows() > 0) {
                if values.as_ref().is_some_and(|values| values.num_rows() > 0) {
                    return Err(one_row());
                }
                values = Some(batch);
            }
        }
        if values.as_ref().is_some_and(|values| values.num_rows() > 1) {
            return Err(one_row());
        }
        let handle = query.prepared_statement_handle;
        self.inner.prepared_statements.bind(principal, &handle, values).map_err(|error| *error)?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) }.encode_to_vec())
    }
}

/// Writes the batches of an upload to the catalog. Commits the dataset only if the message [`WriterMessage::Commit`]
/// arrives.
fn write_dataset(
    catalog: &dyn Catalog,
    put: &PutRequest,
    schema: SchemaRef,
    mut messages: mpsc::Receiver<WriterMessage>,
) -> Result<PutSummary, DatasetError> {
    let mut writer = catalog.open_writer(put, schema)?;
    loop {
        match messages.blocking_recv() {
            Some(WriterMessage::Batch(batch)) => writer.write(&batch)?,
            Some(WriterMessage::Commit) => return writer.commit(),
            None => {
                let problem = format!("the upload of {} was interrupted", put.name);
                return Err(DatasetError::InvalidRequest { problem });
            }
        }
    }
}

fn put_request(command: DatasetCommand) -> Result<PutRequest, Status> {
    if command.columns.is_some() || command.regions.is_some() || command.max_parts.is_some() {
        let problem = "columns, regions and parts are not valid in uploads; omit them";
        return Err(Status::invalid_argument(problem));
    }
    let DatasetCommand { dataset: name, write_mode, temporary, upload_id, .. } = command;
    let is_name = |upload: &String| {
        (8..=64).contains(&upload.len()) && upload.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if !upload_id.as_ref().is_none_or(is_name) {
        return Err(Status::invalid_argument("an upload identifier has 8 to 64 hexadecimal digits"));
    }
    Ok(PutRequest { name, write_mode: write_mode.unwrap_or_default(), must_exist: false, temporary, upload_id })
}

/// Converts the Flight SQL command for bulk ingestion (`CommandStatementIngest` in `FlightSql.proto`) to a request to
/// write a dataset.
fn put_request_from_ingest(ingest: CommandStatementIngest) -> Result<PutRequest, Status> {
    if ingest.transaction_id.as_ref().is_some_and(|id| !id.is_empty()) {
        return Err(unsupported("a transaction"));
    }
    let elsewhere = |given: &Option<String>, ours| given.as_ref().is_some_and(|name| !name.is_empty() && name != ours);
    if elsewhere(&ingest.catalog, SQL_CATALOG) || elsewhere(&ingest.schema, SQL_SCHEMA) {
        let problem = format!("all tables are in catalog {SQL_CATALOG} and schema {SQL_SCHEMA}");
        return Err(Status::invalid_argument(problem));
    }
    let options = ingest.table_definition_options.unwrap_or_default();
    let write_mode = match options.if_exists() {
        TableExistsOption::Append => WriteMode::Append,
        TableExistsOption::Replace => WriteMode::Replace,
        TableExistsOption::Unspecified | TableExistsOption::Fail => WriteMode::Create,
    };
    // Appending to a table that does not exist must fail unless the client requests its creation.
    let must_exist = match options.if_not_exist() {
        TableNotExistOption::Fail => true,
        TableNotExistOption::Unspecified => write_mode == WriteMode::Append,
        TableNotExistOption::Create => false,
    };
    Ok(PutRequest { name: ingest.table, write_mode, must_exist, temporary: ingest.temporary, upload_id: None })
}
