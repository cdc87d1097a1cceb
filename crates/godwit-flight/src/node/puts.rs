//! What clients upload: datasets, files, and values for prepared statements.

use arrow_array::RecordBatch;
use arrow_flight::FlightDescriptor;
use arrow_flight::sql::{
    Command, CommandPreparedStatementQuery, CommandStatementIngest, DoPutPreparedStatementResult, DoPutUpdateResult,
    TableExistsOption, TableNotExistOption,
};
use bytes::Bytes;
use futures_util::stream;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::Status;

use super::{Asked, BATCHES_AHEAD, DatasetCommand, Node, asked, blocking, refused};
use crate::access::outcome_of;
use crate::codec::Chunk;
use crate::dataset::{DatasetError, Existing, Put, Stored};
use crate::files::FILES_MARK;
use crate::gate::Caller;
use crate::pool::PURPOSE;
use crate::server::{Answers, GRANTED_ONLY, Upload};
use crate::sql::{SQL_CATALOG, SQL_SCHEMA};

/// What goes to the thread that writes.
enum Given {
    Batch(RecordBatch),
    /// The upload is whole.
    End,
}

impl Node {
    pub(super) async fn take(&self, caller: &Caller, mut upload: Upload) -> Result<Answers, Status> {
        if caller.purpose() == Some(PURPOSE) {
            return Err(Status::permission_denied(GRANTED_ONLY));
        }
        let first = upload.next().await?;
        let descriptor: Option<FlightDescriptor> = upload.descriptor().cloned();
        let descriptor = descriptor.ok_or_else(|| Status::invalid_argument("an upload has to say what it is"))?;
        let what = self.what_is_described(caller, &descriptor);
        // What is written stays, so it is recorded before.
        let recorded = self.begin(caller, "DoPut", what).await?;
        let taken = self.take_described(caller, descriptor, first, upload).await;
        match (recorded, taken) {
            (None, taken) => taken,
            (Some(recorded), Ok(answers)) => Ok(recorded.touching(caller).answers(answers)),
            (Some(recorded), Err(status)) => {
                recorded.touching(caller).end(outcome_of(&status)).await?;
                Err(status)
            }
        }
    }

    async fn take_described(
        &self,
        caller: &Caller,
        descriptor: FlightDescriptor,
        first: Option<Chunk>,
        upload: Upload,
    ) -> Result<Answers, Status> {
        if descriptor.cmd.starts_with(FILES_MARK.as_bytes()) {
            return self.files()?.take(caller.clone(), descriptor.cmd, first, upload).await;
        }
        if caller.purpose().is_some() {
            return Err(Status::permission_denied(GRANTED_ONLY));
        }
        let answer = match asked(&descriptor)? {
            Asked::Dataset(command) => {
                let stored = self.store(caller, put_of(command)?, first, upload).await?;
                serde_json::to_vec(&stored).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?
            }
            Asked::Sql(command) => match *command {
                Command::CommandStatementIngest(ingest) => {
                    let stored = self.store(caller, put_of_ingestion(ingest)?, first, upload).await?;
                    DoPutUpdateResult { record_count: stored.rows as i64 }.encode_to_vec()
                }
                Command::CommandPreparedStatementQuery(query) => self.bind(caller, query, first, upload).await?,
                other => return Err(refused(other.type_url())),
            },
        };
        Ok(Box::pin(stream::iter([Ok(Bytes::from(answer))])))
    }

    /// Gives the batches of an upload to the catalog, on a thread that may wait for a disk. Nothing is kept of an upload that
    /// does not end well.
    async fn store(
        &self,
        caller: &Caller,
        put: Put,
        first: Option<Chunk>,
        mut upload: Upload,
    ) -> Result<Stored, Status> {
        let schema = upload.schema().cloned().ok_or_else(|| Status::invalid_argument("the upload has no schema"))?;
        let catalog = self.catalog(caller);
        let place = self.inner.uploads.clone().acquire_owned().await;
        let place = place.map_err(|_| Status::unavailable("the server is ending"))?;
        let (sender, mut receiver) = mpsc::channel(BATCHES_AHEAD);
        let writing = tokio::spawn(blocking(move || {
            let _place = place;
            let mut writer = catalog.put(&put, schema)?;
            loop {
                match receiver.blocking_recv() {
                    Some(Given::Batch(batch)) => writer.write(&batch)?,
                    Some(Given::End) => return Ok(writer.commit()?),
                    None => {
                        let problem = format!("the upload of {} broke off", put.name);
                        return Err(DatasetError::Refused { problem }.into());
                    }
                }
            }
        }));
        let mut next = first;
        while let Some(chunk) = next {
            if let Some(batch) = chunk.batch.filter(|batch| batch.num_rows() > 0)
                && sender.send(Given::Batch(batch)).await.is_err()
            {
                break;
            }
            next = upload.next().await?;
        }
        // Where the thread has ended before, it says why.
        let _ = sender.send(Given::End).await;
        writing.await.unwrap_or_else(|error| Err(Status::internal(format!("a bug in godwit: {error}"))))
    }

    /// Values for a prepared statement.
    async fn bind(
        &self,
        caller: &Caller,
        query: CommandPreparedStatementQuery,
        first: Option<Chunk>,
        mut upload: Upload,
    ) -> Result<Vec<u8>, Status> {
        let one_row = || Status::invalid_argument("a query takes one row of parameters");
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
        self.inner.statements.bind(caller, &handle, values).map_err(|error| *error)?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) }.encode_to_vec())
    }
}

fn put_of(command: DatasetCommand) -> Result<Put, Status> {
    if command.columns.is_some() || command.regions.is_some() || command.parts.is_some() {
        let problem = "columns, regions and parts are asked for, not put; leave them out";
        return Err(Status::invalid_argument(problem));
    }
    let DatasetCommand { dataset: name, put, temporary, upload, .. } = command;
    let is_name = |upload: &String| {
        (8..=64).contains(&upload.len()) && upload.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if !upload.as_ref().is_none_or(is_name) {
        return Err(Status::invalid_argument("an upload is named by 8 to 64 hexadecimal digits"));
    }
    Ok(Put { name, existing: put.unwrap_or_default(), must_exist: false, temporary, upload })
}

/// What Flight SQL's bulk ingestion asks for (`FlightSql.proto`, `CommandStatementIngest`).
fn put_of_ingestion(ingest: CommandStatementIngest) -> Result<Put, Status> {
    if ingest.transaction_id.as_ref().is_some_and(|id| !id.is_empty()) {
        return Err(refused("a transaction"));
    }
    let elsewhere = |given: &Option<String>, ours| given.as_ref().is_some_and(|name| !name.is_empty() && name != ours);
    if elsewhere(&ingest.catalog, SQL_CATALOG) || elsewhere(&ingest.schema, SQL_SCHEMA) {
        let problem = format!("tables are in catalog {SQL_CATALOG} and schema {SQL_SCHEMA}; there are no others");
        return Err(Status::invalid_argument(problem));
    }
    let options = ingest.table_definition_options.unwrap_or_default();
    let existing = match options.if_exists() {
        TableExistsOption::Append => Existing::Append,
        TableExistsOption::Replace => Existing::Replace,
        TableExistsOption::Unspecified | TableExistsOption::Fail => Existing::Create,
    };
    // Whoever appends to what is not there is told, unless it is said to be made.
    let must_exist = match options.if_not_exist() {
        TableNotExistOption::Fail => true,
        TableNotExistOption::Unspecified => existing == Existing::Append,
        TableNotExistOption::Create => false,
    };
    Ok(Put { name: ingest.table, existing, must_exist, temporary: ingest.temporary, upload: None })
}
