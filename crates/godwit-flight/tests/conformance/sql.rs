//! The scenarios of Flight SQL, including updates, transactions, plans and bulk ingestion: a server that responds as Arrow's
//! own servers for these tests do, on godwit's data plane, and the expectations of client and server.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{
    self, ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    ActionCreatePreparedSubstraitPlanRequest, ActionEndSavepointRequest, ActionEndTransactionRequest, Any, Command,
    CommandGetTables, CommandStatementIngest, DoPutPreparedStatementResult, DoPutUpdateResult, ProstMessageExt,
    SqlInfo, SqlSupportedTransaction, SubstraitPlan, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
    TicketStatementQuery,
};
use arrow_flight::{Action, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures_util::stream;
use godwit_flight::{Download, PutResultStream, Upload, server_info_batch, server_info_schema};
use prost::Message;
use tonic::Status;

pub const SELECT: &str = "SELECT STATEMENT";
pub const UPDATE: &str = "UPDATE STATEMENT";
pub const PREPARED_SELECT: &str = "SELECT PREPARED STATEMENT";
pub const PREPARED_UPDATE: &str = "UPDATE PREPARED STATEMENT";
pub const TRANSACTION: &[u8] = b"transaction_id";
pub const SAVEPOINT: &[u8] = b"savepoint_id";
pub const SAVEPOINT_NAME: &str = "savepoint_name";
pub const INGESTED_ROWS: i64 = 3;
/// Rows that an update changes: by a plain or prepared statement, outside of a transaction or in one.
pub const UPDATED: [[i64; 2]; 2] = [[10_000, 15_000], [20_000, 25_000]];

pub fn substrait_plan() -> SubstraitPlan {
    SubstraitPlan { plan: Bytes::from_static(b"plan"), version: "version".to_owned() }
}

/// Returns the columns of a query, outside of a transaction or in one.
pub fn query_schema(in_transaction: bool) -> SchemaRef {
    let (name, kind) = if in_transaction { ("pkey", DataType::Int32) } else { ("id", DataType::Int64) };
    let said = [
        ("TABLE_NAME", "test"),
        ("IS_AUTO_INCREMENT", "1"),
        ("IS_CASE_SENSITIVE", "0"),
        ("TYPE_NAME", "type_test"),
        ("SCHEMA_NAME", "schema_test"),
        ("IS_SEARCHABLE", "1"),
        ("CATALOG_NAME", "catalog_test"),
        ("PRECISION", "100"),
        ("REMARKS", "test column"),
    ];
    let said = said.map(|(key, value)| (format!("ARROW:FLIGHT:SQL:{key}"), value.to_owned()));
    Arc::new(Schema::new(vec![Field::new(name, kind, true).with_metadata(said.into())]))
}

/// Returns the server's complete description.
pub fn server_info() -> SqlInfoData {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerSql, false);
    info.append(SqlInfo::FlightSqlServerSubstrait, true);
    info.append(SqlInfo::FlightSqlServerSubstraitMinVersion, "min_version");
    info.append(SqlInfo::FlightSqlServerSubstraitMaxVersion, "max_version");
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::Savepoint as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 42i32);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 7i32);
    info.build().expect("each is there once")
}

/// Returns the codes that the scenario of extensions requests.
pub fn extension_info_codes() -> Vec<u32> {
    let asked = [
        SqlInfo::FlightSqlServerSql,
        SqlInfo::FlightSqlServerSubstrait,
        SqlInfo::FlightSqlServerSubstraitMinVersion,
        SqlInfo::FlightSqlServerSubstraitMaxVersion,
        SqlInfo::FlightSqlServerTransaction,
        SqlInfo::FlightSqlServerCancel,
        SqlInfo::FlightSqlServerStatementTimeout,
        SqlInfo::FlightSqlServerTransactionTimeout,
    ];
    asked.map(|info| info as u32).to_vec()
}

/// Returns the command of the bulk ingestion.
pub fn ingest_command() -> CommandStatementIngest {
    let mut options = TableDefinitionOptions::default();
    options.set_if_not_exist(TableNotExistOption::Create);
    options.set_if_exists(TableExistsOption::Replace);
    CommandStatementIngest {
        table_definition_options: Some(options),
        table: "test_table".to_owned(),
        schema: Some("test_schema".to_owned()),
        catalog: Some("test_catalog".to_owned()),
        temporary: true,
        transaction_id: Some(Bytes::from_static(b"123")),
        options: [("key1", "val1"), ("key2", "val2")].map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
    }
}

pub fn ingested_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("test_field", DataType::Int64, true)]))
}

fn keys_schema(names: &[(&str, bool)]) -> SchemaRef {
    let field = |(name, nullable): &(&str, bool)| {
        let kind = match *name {
            "key_sequence" => DataType::Int32,
            "update_rule" | "delete_rule" => DataType::UInt8,
            _ => DataType::Utf8,
        };
        Field::new(*name, kind, *nullable)
    };
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

pub fn primary_keys() -> SchemaRef {
    keys_schema(&[
        ("catalog_name", true),
        ("db_schema_name", true),
        ("table_name", false),
        ("column_name", false),
        ("key_sequence", false),
        ("key_name", true),
    ])
}

pub fn foreign_keys() -> SchemaRef {
    keys_schema(&[
        ("pk_catalog_name", true),
        ("pk_db_schema_name", true),
        ("pk_table_name", false),
        ("pk_column_name", false),
        ("fk_catalog_name", true),
        ("fk_db_schema_name", true),
        ("fk_table_name", false),
        ("fk_column_name", false),
        ("key_sequence", false),
        ("fk_key_name", true),
        ("pk_key_name", true),
        ("update_rule", false),
        ("delete_rule", false),
    ])
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(given: T, expected: T) -> Result<(), Status> {
    let wrong = || Status::invalid_argument(format!("expected {expected:?}, got {given:?}"));
    (given == expected).then_some(()).ok_or_else(wrong)
}

fn command(bytes: &[u8]) -> Result<Command, Status> {
    let unknown = |_| Status::invalid_argument("no command of Flight SQL");
    Command::try_from(Any::decode(bytes).map_err(|_| Status::invalid_argument("no message"))?).map_err(unknown)
}

fn in_transaction(id: Option<&Bytes>) -> Result<bool, Status> {
    match id.filter(|id| !id.is_empty()) {
        Some(id) => expect_equal(&id[..], TRANSACTION).map(|()| true),
        None => Ok(false),
    }
}

/// Reports whether a handle of a prepared statement belongs to a transaction; it must be one of the issued handles.
fn is_transaction_handle(handle: &[u8], prepared: &str) -> Result<bool, Status> {
    let handle = String::from_utf8_lossy(handle);
    let known = [format!("{prepared} HANDLE"), "PLAN HANDLE".to_owned()];
    let known_in = [format!("{prepared} WITH TXN HANDLE"), "PLAN WITH TXN HANDLE".to_owned()];
    if known.iter().any(|known| *known == handle) {
        Ok(false)
    } else {
        let wrong = || Status::invalid_argument(format!("no handle {handle}"));
        known_in.iter().any(|known| *known == handle).then_some(true).ok_or_else(wrong)
    }
}

fn statement_handle(what: &str, in_transaction: bool) -> String {
    format!("{what}{} HANDLE", if in_transaction { " WITH TXN" } else { "" })
}

/// Checks the filters of the listing of tables against the scenario.
fn expect_tables(command: &CommandGetTables) -> Result<(), Status> {
    let patterns = [&command.catalog, &command.db_schema_filter_pattern, &command.table_name_filter_pattern];
    let expected = ["catalog", "db_schema_filter_pattern", "table_filter_pattern"];
    expect_equal(patterns.map(Option::as_deref), expected.map(Some))?;
    expect_equal((&command.table_types[..], command.include_schema), (&["table".into(), "view".into()][..], true))
}

/// Returns the columns of a command's result; requests for flight info must be those of the scenario.
fn command_schema(command: &Command, is_info: bool) -> Result<SchemaRef, Status> {
    let table = |catalog: &Option<String>, schema: &Option<String>, table: &str| {
        expect_equal((catalog.as_deref(), schema.as_deref(), table), (Some("catalog"), Some("db_schema"), "table"))
    };
    Ok(match command {
        Command::CommandGetCatalogs(command) => command.into_builder().schema(),
        Command::CommandGetDbSchemas(command) => {
            if is_info {
                let given = (command.catalog.as_deref(), command.db_schema_filter_pattern.as_deref());
                expect_equal(given, (Some("catalog"), Some("db_schema_filter_pattern")))?;
            }
            command.clone().into_builder().schema()
        }
        Command::CommandGetTables(command) => {
            if is_info {
                expect_tables(command)?;
            }
            command.clone().into_builder().schema()
        }
        Command::CommandGetTableTypes(command) => command.into_builder().schema(),
        Command::CommandGetPrimaryKeys(command) => {
            if is_info {
                table(&command.catalog, &command.db_schema, &command.table)?;
            }
            primary_keys()
        }
        Command::CommandGetExportedKeys(command) => {
            if is_info {
                table(&command.catalog, &command.db_schema, &command.table)?;
            }
            foreign_keys()
        }
        Command::CommandGetImportedKeys(command) => {
            if is_info {
                table(&command.catalog, &command.db_schema, &command.table)?;
            }
            foreign_keys()
        }
        Command::CommandGetCrossReference(command) => {
            if is_info {
                let given = [&command.pk_catalog, &command.pk_db_schema, &command.fk_catalog, &command.fk_db_schema];
                let expected = ["pk_catalog", "pk_db_schema", "fk_catalog", "fk_db_schema"];
                expect_equal(given.map(Option::as_deref), expected.map(Some))?;
                expect_equal([&command.pk_table, &command.fk_table].map(String::as_str), ["pk_table", "fk_table"])?;
            }
            foreign_keys()
        }
        Command::CommandGetXdbcTypeInfo(command) => {
            command.into_builder(&XdbcTypeInfoDataBuilder::new().build().expect("none is one")).schema()
        }
        Command::CommandGetSqlInfo(_) => server_info_schema(),
        Command::CommandStatementQuery(query) => {
            expect_equal(query.query.as_str(), SELECT)?;
            query_schema(in_transaction(query.transaction_id.as_ref())?)
        }
        Command::CommandStatementSubstraitPlan(query) => {
            expect_equal(query.plan.clone().unwrap_or_default(), substrait_plan())?;
            query_schema(in_transaction(query.transaction_id.as_ref())?)
        }
        Command::CommandPreparedStatementQuery(query) => {
            query_schema(is_transaction_handle(&query.prepared_statement_handle, PREPARED_SELECT)?)
        }
        Command::TicketStatementQuery(ticket) => query_schema(is_transaction_handle(&ticket.statement_handle, SELECT)?),
        other => return Err(Status::unimplemented(other.type_url())),
    })
}

/// Returns flight info for a command.
pub fn info(descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    let command = command(&descriptor.cmd)?;
    let schema = command_schema(&command, true)?;
    let ticket = match &command {
        Command::CommandStatementQuery(query) => statement_handle(SELECT, query.transaction_id.is_some()),
        Command::CommandStatementSubstraitPlan(query) => statement_handle("PLAN", query.transaction_id.is_some()),
        _ => String::new(),
    };
    let ticket = match ticket.is_empty() {
        true => descriptor.cmd.clone(),
        false => TicketStatementQuery { statement_handle: ticket.into() }.as_any().encode_to_vec().into(),
    };
    let info = FlightInfo::new().try_with_schema(&schema).map_err(|error| Status::internal(error.to_string()))?;
    Ok(info.with_descriptor(descriptor).with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket))))
}

/// Returns the columns of a command's result, as a message.
pub fn schema(descriptor: &FlightDescriptor) -> Result<Bytes, Status> {
    schema_bytes(&*command_schema(&command(&descriptor.cmd)?, false)?)
}

fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    message.map(|message| message.0).map_err(|error| Status::internal(error.to_string()))
}

/// Returns the rows of a ticket: none, except for the server's description.
pub fn download(ticket: &[u8]) -> Result<Download, Status> {
    let command = command(ticket)?;
    let schema = command_schema(&command, false)?;
    let batches: Vec<RecordBatch> = match command {
        Command::CommandGetSqlInfo(command) if command.info.len() > 2 => {
            vec![server_info_batch(command, &server_info()).map_err(|status| *status)?]
        }
        _ => Vec::new(),
    };
    let batches = batches.into_iter().map(|batch| Ok((batch, Bytes::new())));
    Ok(Download { schema, batches: Box::pin(stream::iter(batches.collect::<Vec<_>>())) })
}

/// Receives updates, values of parameters, and tables.
pub async fn upload(mut upload: Upload) -> Result<PutResultStream, Status> {
    let mut rows = 0;
    while let Some(chunk) = upload.next().await? {
        rows += chunk.batch.map_or(0, |batch| batch.num_rows() as i64);
    }
    let descriptor = upload.descriptor().ok_or_else(|| Status::invalid_argument("it has to say what it is"))?;
    let updated = |prepared: usize, in_transaction: bool| {
        DoPutUpdateResult { record_count: UPDATED[prepared][usize::from(in_transaction)] }.encode_to_vec()
    };
    let answer = match command(&descriptor.cmd)? {
        Command::CommandStatementUpdate(update) => {
            expect_equal(update.query.as_str(), UPDATE)?;
            updated(0, in_transaction(update.transaction_id.as_ref())?)
        }
        Command::CommandStatementSubstraitPlan(update) => {
            expect_equal(update.plan.unwrap_or_default(), substrait_plan())?;
            updated(0, in_transaction(update.transaction_id.as_ref())?)
        }
        Command::CommandPreparedStatementUpdate(update) => {
            updated(1, is_transaction_handle(&update.prepared_statement_handle, PREPARED_UPDATE)?)
        }
        Command::CommandPreparedStatementQuery(query) => {
            is_transaction_handle(&query.prepared_statement_handle, PREPARED_SELECT)?;
            expect_equal(upload.schema(), Some(&query_schema(false)))?;
            let prepared_statement_handle = Some(query.prepared_statement_handle);
            DoPutPreparedStatementResult { prepared_statement_handle }.encode_to_vec()
        }
        Command::CommandStatementIngest(given) => {
            expect_equal(given, ingest_command())?;
            expect_equal(upload.schema(), Some(&ingested_schema()))?;
            DoPutUpdateResult { record_count: rows }.encode_to_vec()
        }
        other => return Err(Status::unimplemented(other.type_url())),
    };
    Ok(Box::pin(stream::iter([Ok(Bytes::from(answer))])))
}

fn unpack_request<M: ProstMessageExt>(action: &Action) -> Result<M, Status> {
    let wrong = || Status::invalid_argument(format!("no {}", M::type_url()));
    Any::decode(&action.body[..]).map_err(|_| wrong())?.unpack().ok().flatten().ok_or_else(wrong)
}

fn prepared_statement_result(what: &str, in_transaction: bool) -> Vec<u8> {
    let prepared_statement_handle = statement_handle(what, in_transaction).into();
    let result = ActionCreatePreparedStatementResult { prepared_statement_handle, ..Default::default() };
    result.as_any().encode_to_vec()
}

/// Runs the actions of statements, transactions and savepoints; `None` where there is no response.
pub fn run_action(action: &Action) -> Result<Option<Vec<u8>>, Status> {
    let body = match action.r#type.as_str() {
        "CreatePreparedStatement" => {
            let request: ActionCreatePreparedStatementRequest = unpack_request(action)?;
            expect_equal([PREPARED_SELECT, PREPARED_UPDATE].contains(&request.query.as_str()), true)?;
            prepared_statement_result(&request.query, in_transaction(request.transaction_id.as_ref())?)
        }
        "CreatePreparedSubstraitPlan" => {
            let request: ActionCreatePreparedSubstraitPlanRequest = unpack_request(action)?;
            expect_equal(request.plan.unwrap_or_default(), substrait_plan())?;
            prepared_statement_result("PLAN", in_transaction(request.transaction_id.as_ref())?)
        }
        "ClosePreparedStatement" => {
            let request: ActionClosePreparedStatementRequest = unpack_request(action)?;
            let handle = &request.prepared_statement_handle;
            is_transaction_handle(handle, PREPARED_SELECT)
                .or_else(|_| is_transaction_handle(handle, PREPARED_UPDATE))?;
            return Ok(None);
        }
        "BeginTransaction" => {
            unpack_request::<ActionBeginTransactionRequest>(action)?;
            ActionBeginTransactionResult { transaction_id: Bytes::from_static(TRANSACTION) }.as_any().encode_to_vec()
        }
        "EndTransaction" => {
            let request: ActionEndTransactionRequest = unpack_request(action)?;
            expect_equal(&request.transaction_id[..], TRANSACTION)?;
            return Ok(None);
        }
        "BeginSavepoint" => {
            let request: ActionBeginSavepointRequest = unpack_request(action)?;
            expect_equal((&request.transaction_id[..], request.name.as_str()), (TRANSACTION, SAVEPOINT_NAME))?;
            ActionBeginSavepointResult { savepoint_id: Bytes::from_static(SAVEPOINT) }.as_any().encode_to_vec()
        }
        "EndSavepoint" => {
            let request: ActionEndSavepointRequest = unpack_request(action)?;
            expect_equal(&request.savepoint_id[..], SAVEPOINT)?;
            return Ok(None);
        }
        "CancelQuery" => {
            let request: ActionCancelQueryRequest = unpack_request(action)?;
            let info = FlightInfo::decode(request.info).map_err(|error| Status::invalid_argument(error.to_string()))?;
            let ticket = info.endpoint.first().and_then(|endpoint| endpoint.ticket.clone()).unwrap_or_default();
            let Command::TicketStatementQuery(ticket) = command(&ticket.ticket)? else {
                return Err(Status::invalid_argument("no ticket of a statement"));
            };
            expect_equal(&ticket.statement_handle[..], b"PLAN HANDLE")?;
            // CANCEL_RESULT_CANCELLED (FlightSql.proto, ActionCancelQueryResult).
            ActionCancelQueryResult { result: 1 }.as_any().encode_to_vec()
        }
        other => return Err(Status::invalid_argument(format!("no action {other}"))),
    };
    Ok(Some(body))
}

/// Wraps a command in a descriptor.
pub fn command_descriptor(command: &impl ProstMessageExt) -> FlightDescriptor {
    FlightDescriptor::new_cmd(command.as_any().encode_to_vec())
}

/// The actions that end a transaction or a savepoint: commit (FlightSql.proto).
pub const COMMIT: i32 = sql::EndTransaction::Commit as i32;
/// Roll back.
pub const ROLLBACK: i32 = sql::EndTransaction::Rollback as i32;
