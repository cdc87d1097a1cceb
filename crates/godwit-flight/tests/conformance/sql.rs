//! The scenarios of Flight SQL, those with updates, transactions, plans and bulk ingestion: a server that answers as Arrow's own
//! servers for these tests do, on godwit's data plane, and what client and server expect of each other.

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
use godwit_flight::{Answers, Download, Upload, server_info_batch, server_info_schema};
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
/// What an update changes: a statement or one that is prepared, outside of a transaction or in one.
pub const UPDATED: [[i64; 2]; 2] = [[10_000, 15_000], [20_000, 25_000]];

pub fn plan() -> SubstraitPlan {
    SubstraitPlan { plan: Bytes::from_static(b"plan"), version: "version".to_owned() }
}

/// Columns of a query, outside of a transaction or in one.
pub fn columns(in_transaction: bool) -> SchemaRef {
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

/// What the server says of itself where it is asked for all of it.
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

/// What is asked of it in the scenario of extensions.
pub fn extensions() -> Vec<u32> {
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

/// What is ingested, and how.
pub fn ingestion() -> CommandStatementIngest {
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

pub fn ingested_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("test_field", DataType::Int64, true)]))
}

fn keys(names: &[(&str, bool)]) -> SchemaRef {
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
    keys(&[
        ("catalog_name", true),
        ("db_schema_name", true),
        ("table_name", false),
        ("column_name", false),
        ("key_sequence", false),
        ("key_name", true),
    ])
}

pub fn foreign_keys() -> SchemaRef {
    keys(&[
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

fn expect<T: PartialEq + std::fmt::Debug>(given: T, expected: T) -> Result<(), Status> {
    let wrong = || Status::invalid_argument(format!("expected {expected:?}, got {given:?}"));
    (given == expected).then_some(()).ok_or_else(wrong)
}

fn command(bytes: &[u8]) -> Result<Command, Status> {
    let unknown = |_| Status::invalid_argument("no command of Flight SQL");
    Command::try_from(Any::decode(bytes).map_err(|_| Status::invalid_argument("no message"))?).map_err(unknown)
}

fn in_transaction(id: Option<&Bytes>) -> Result<bool, Status> {
    match id.filter(|id| !id.is_empty()) {
        Some(id) => expect(&id[..], TRANSACTION).map(|()| true),
        None => Ok(false),
    }
}

/// Whether a handle of a prepared statement is of a transaction; it must be one of those given out.
fn of_transaction(handle: &[u8], prepared: &str) -> Result<bool, Status> {
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

fn handle(what: &str, in_transaction: bool) -> String {
    format!("{what}{} HANDLE", if in_transaction { " WITH TXN" } else { "" })
}

/// Filters of the listing of tables, which must be the scenario's.
fn expect_tables(command: &CommandGetTables) -> Result<(), Status> {
    let patterns = [&command.catalog, &command.db_schema_filter_pattern, &command.table_name_filter_pattern];
    let expected = ["catalog", "db_schema_filter_pattern", "table_filter_pattern"];
    expect(patterns.map(Option::as_deref), expected.map(Some))?;
    expect((&command.table_types[..], command.include_schema), (&["table".into(), "view".into()][..], true))
}

/// Columns of what a command asks for, which must ask as the scenario says where it is asked for flight info.
fn schema_of(command: &Command, is_info: bool) -> Result<SchemaRef, Status> {
    let table = |catalog: &Option<String>, schema: &Option<String>, table: &str| {
        expect((catalog.as_deref(), schema.as_deref(), table), (Some("catalog"), Some("db_schema"), "table"))
    };
    Ok(match command {
        Command::CommandGetCatalogs(command) => command.into_builder().schema(),
        Command::CommandGetDbSchemas(command) => {
            if is_info {
                let given = (command.catalog.as_deref(), command.db_schema_filter_pattern.as_deref());
                expect(given, (Some("catalog"), Some("db_schema_filter_pattern")))?;
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
                expect(given.map(Option::as_deref), expected.map(Some))?;
                expect([&command.pk_table, &command.fk_table].map(String::as_str), ["pk_table", "fk_table"])?;
            }
            foreign_keys()
        }
        Command::CommandGetXdbcTypeInfo(command) => {
            command.into_builder(&XdbcTypeInfoDataBuilder::new().build().expect("none is one")).schema()
        }
        Command::CommandGetSqlInfo(_) => server_info_schema(),
        Command::CommandStatementQuery(query) => {
            expect(query.query.as_str(), SELECT)?;
            columns(in_transaction(query.transaction_id.as_ref())?)
        }
        Command::CommandStatementSubstraitPlan(query) => {
            expect(query.plan.clone().unwrap_or_default(), plan())?;
            columns(in_transaction(query.transaction_id.as_ref())?)
        }
        Command::CommandPreparedStatementQuery(query) => {
            columns(of_transaction(&query.prepared_statement_handle, PREPARED_SELECT)?)
        }
        Command::TicketStatementQuery(ticket) => columns(of_transaction(&ticket.statement_handle, SELECT)?),
        other => return Err(Status::unimplemented(other.type_url())),
    })
}

/// Flight info for a command.
pub fn info(descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    let command = command(&descriptor.cmd)?;
    let schema = schema_of(&command, true)?;
    let ticket = match &command {
        Command::CommandStatementQuery(query) => handle(SELECT, query.transaction_id.is_some()),
        Command::CommandStatementSubstraitPlan(query) => handle("PLAN", query.transaction_id.is_some()),
        _ => String::new(),
    };
    let ticket = match ticket.is_empty() {
        true => descriptor.cmd.clone(),
        false => TicketStatementQuery { statement_handle: ticket.into() }.as_any().encode_to_vec().into(),
    };
    let info = FlightInfo::new().try_with_schema(&schema).map_err(|error| Status::internal(error.to_string()))?;
    Ok(info.with_descriptor(descriptor).with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket))))
}

/// The columns of what a command asks for, as a message.
pub fn schema(descriptor: &FlightDescriptor) -> Result<Bytes, Status> {
    schema_bytes(&*schema_of(&command(&descriptor.cmd)?, false)?)
}

fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    message.map(|message| message.0).map_err(|error| Status::internal(error.to_string()))
}

/// The rows of a ticket: none, but what the server says of itself.
pub fn download(ticket: &[u8]) -> Result<Download, Status> {
    let command = command(ticket)?;
    let schema = schema_of(&command, false)?;
    let batches: Vec<RecordBatch> = match command {
        Command::CommandGetSqlInfo(command) if command.info.len() > 2 => {
            vec![server_info_batch(command, &server_info()).map_err(|status| *status)?]
        }
        _ => Vec::new(),
    };
    let batches = batches.into_iter().map(|batch| Ok((batch, Bytes::new())));
    Ok(Download { schema, batches: Box::pin(stream::iter(batches.collect::<Vec<_>>())) })
}

/// Updates, values of parameters, and tables.
pub async fn upload(mut upload: Upload) -> Result<Answers, Status> {
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
            expect(update.query.as_str(), UPDATE)?;
            updated(0, in_transaction(update.transaction_id.as_ref())?)
        }
        Command::CommandStatementSubstraitPlan(update) => {
            expect(update.plan.unwrap_or_default(), plan())?;
            updated(0, in_transaction(update.transaction_id.as_ref())?)
        }
        Command::CommandPreparedStatementUpdate(update) => {
            updated(1, of_transaction(&update.prepared_statement_handle, PREPARED_UPDATE)?)
        }
        Command::CommandPreparedStatementQuery(query) => {
            of_transaction(&query.prepared_statement_handle, PREPARED_SELECT)?;
            expect(upload.schema(), Some(&columns(false)))?;
            let prepared_statement_handle = Some(query.prepared_statement_handle);
            DoPutPreparedStatementResult { prepared_statement_handle }.encode_to_vec()
        }
        Command::CommandStatementIngest(given) => {
            expect(given, ingestion())?;
            expect(upload.schema(), Some(&ingested_columns()))?;
            DoPutUpdateResult { record_count: rows }.encode_to_vec()
        }
        other => return Err(Status::unimplemented(other.type_url())),
    };
    Ok(Box::pin(stream::iter([Ok(Bytes::from(answer))])))
}

fn unpacked<M: ProstMessageExt>(action: &Action) -> Result<M, Status> {
    let wrong = || Status::invalid_argument(format!("no {}", M::type_url()));
    Any::decode(&action.body[..]).map_err(|_| wrong())?.unpack().ok().flatten().ok_or_else(wrong)
}

fn prepared(what: &str, in_transaction: bool) -> Vec<u8> {
    let prepared_statement_handle = handle(what, in_transaction).into();
    let result = ActionCreatePreparedStatementResult { prepared_statement_handle, ..Default::default() };
    result.as_any().encode_to_vec()
}

/// Statements, transactions and savepoints; `None` where nothing is answered.
pub fn act(action: &Action) -> Result<Option<Vec<u8>>, Status> {
    let body = match action.r#type.as_str() {
        "CreatePreparedStatement" => {
            let request: ActionCreatePreparedStatementRequest = unpacked(action)?;
            expect([PREPARED_SELECT, PREPARED_UPDATE].contains(&request.query.as_str()), true)?;
            prepared(&request.query, in_transaction(request.transaction_id.as_ref())?)
        }
        "CreatePreparedSubstraitPlan" => {
            let request: ActionCreatePreparedSubstraitPlanRequest = unpacked(action)?;
            expect(request.plan.unwrap_or_default(), plan())?;
            prepared("PLAN", in_transaction(request.transaction_id.as_ref())?)
        }
        "ClosePreparedStatement" => {
            let request: ActionClosePreparedStatementRequest = unpacked(action)?;
            let handle = &request.prepared_statement_handle;
            of_transaction(handle, PREPARED_SELECT).or_else(|_| of_transaction(handle, PREPARED_UPDATE))?;
            return Ok(None);
        }
        "BeginTransaction" => {
            unpacked::<ActionBeginTransactionRequest>(action)?;
            ActionBeginTransactionResult { transaction_id: Bytes::from_static(TRANSACTION) }.as_any().encode_to_vec()
        }
        "EndTransaction" => {
            let request: ActionEndTransactionRequest = unpacked(action)?;
            expect(&request.transaction_id[..], TRANSACTION)?;
            return Ok(None);
        }
        "BeginSavepoint" => {
            let request: ActionBeginSavepointRequest = unpacked(action)?;
            expect((&request.transaction_id[..], request.name.as_str()), (TRANSACTION, SAVEPOINT_NAME))?;
            ActionBeginSavepointResult { savepoint_id: Bytes::from_static(SAVEPOINT) }.as_any().encode_to_vec()
        }
        "EndSavepoint" => {
            let request: ActionEndSavepointRequest = unpacked(action)?;
            expect(&request.savepoint_id[..], SAVEPOINT)?;
            return Ok(None);
        }
        "CancelQuery" => {
            let request: ActionCancelQueryRequest = unpacked(action)?;
            let info = FlightInfo::decode(request.info).map_err(|error| Status::invalid_argument(error.to_string()))?;
            let ticket = info.endpoint.first().and_then(|endpoint| endpoint.ticket.clone()).unwrap_or_default();
            let Command::TicketStatementQuery(ticket) = command(&ticket.ticket)? else {
                return Err(Status::invalid_argument("no ticket of a statement"));
            };
            expect(&ticket.statement_handle[..], b"PLAN HANDLE")?;
            // CANCEL_RESULT_CANCELLED (FlightSql.proto, ActionCancelQueryResult).
            ActionCancelQueryResult { result: 1 }.as_any().encode_to_vec()
        }
        other => return Err(Status::invalid_argument(format!("no action {other}"))),
    };
    Ok(Some(body))
}

/// A command as a descriptor.
pub fn asks(command: &impl ProstMessageExt) -> FlightDescriptor {
    FlightDescriptor::new_cmd(command.as_any().encode_to_vec())
}

/// The actions that end a transaction or a savepoint: what becomes of it (FlightSql.proto).
pub const KEEP: i32 = sql::EndTransaction::Commit as i32;
/// It is undone.
pub const UNDO: i32 = sql::EndTransaction::Rollback as i32;
