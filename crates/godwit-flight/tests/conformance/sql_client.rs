//! The client of the scenarios of Flight SQL.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch, new_null_array};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    ActionCreatePreparedSubstraitPlanRequest, ActionEndSavepointRequest, ActionEndTransactionRequest, Any,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementQuery,
    CommandStatementSubstraitPlan, CommandStatementUpdate, DoPutPreparedStatementResult, DoPutUpdateResult,
    ProstMessageExt, SqlInfo,
};
use arrow_flight::{Action, FlightInfo};
use arrow_schema::{DataType, Schema, SchemaRef, UnionFields};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use godwit_flight::{FlightError, server_info_batch, server_info_schema};
use prost::Message as _;

use crate::client::{Clients, download, ticket};
use crate::sql::{
    COMMIT, INGESTED_ROWS, PREPARED_SELECT, PREPARED_UPDATE, ROLLBACK, SAVEPOINT, SAVEPOINT_NAME, SELECT, TRANSACTION,
    UPDATE, UPDATED, command_descriptor, extension_info_codes, foreign_keys, ingest_command, ingested_schema,
    primary_keys, query_schema, server_info, substrait_plan,
};

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Checks that columns have the same names, types, nullability and metadata. Fields within a map or a list may have other
/// names: Arrow does not fix them (Columnar Format 1.5, "Map Layout").
fn assert_same_schema(told: &Schema, expected: &Schema) {
    assert_eq!(told.fields().len(), expected.fields().len(), "{told:?}, not {expected:?}");
    for (one, other) in told.fields().iter().zip(expected.fields()) {
        assert_eq!((one.name(), one.is_nullable()), (other.name(), other.is_nullable()));
        assert_eq!(one.metadata(), other.metadata());
        match (one.data_type(), other.data_type()) {
            (DataType::Union(one, mode), DataType::Union(other, other_mode)) => {
                let members = |fields: &UnionFields| -> Vec<_> {
                    fields.iter().map(|(id, field)| (id, field.name().clone(), field.is_nullable())).collect()
                };
                assert_eq!((members(one), mode), (members(other), other_mode));
                for ((_, one), (_, other)) in one.iter().zip(other.iter()) {
                    assert!(one.data_type().equals_datatype(other.data_type()), "{one:?}, not {other:?}");
                }
            }
            (one, other) => assert_eq!(one, other),
        }
    }
}

fn transaction(is_in: bool) -> Option<Bytes> {
    is_in.then(|| Bytes::from_static(TRANSACTION))
}

impl Clients {
    async fn info_of(&mut self, command: &impl ProstMessageExt) -> FlightInfo {
        self.stock.get_flight_info(command_descriptor(command)).await.expect("there is information")
    }

    /// Checks the columns of a command's result, in its schema and in its rows.
    async fn expect_schema(&mut self, command: &impl ProstMessageExt, expected: &SchemaRef) {
        let info = self.info_of(command).await;
        let mut batches = self.ours.download(ticket(&info.endpoint[0]).ticket.clone()).await.expect("it can be had");
        while batches.next().await.expect("it can be read").is_some() {}
        assert_same_schema(batches.schema().expect("rows have columns"), expected);
        let told = self.stock.get_schema(command_descriptor(command)).await.expect("it has a schema");
        assert_same_schema(&told, expected);
    }

    /// Uploads a batch, and returns the response.
    async fn put(&mut self, command: &impl ProstMessageExt, batch: &RecordBatch) -> Bytes {
        let (mut sender, answers) = self.ours.upload(&command_descriptor(command), &batch.schema()).expect("a schema");
        let sending = async {
            sender.send(batch, &[]).await?;
            sender.finish().await
        };
        let taking = async {
            let mut answers = answers.await?;
            let first = answers.next().await?;
            while answers.next().await?.is_some() {}
            Ok::<_, FlightError>(first.unwrap_or_default())
        };
        let (sent, said) = tokio::join!(sending, taking);
        let said = said.expect("it is answered");
        sent.expect("all is sent");
        said
    }

    async fn expect_update_count(&mut self, command: &impl ProstMessageExt, expected: i64) {
        let said = self.put(command, &RecordBatch::new_empty(query_schema(false))).await;
        assert_eq!(DoPutUpdateResult::decode(said).expect("a number of rows").record_count, expected);
    }

    async fn run_sql_action(&mut self, name: &str, request: &impl ProstMessageExt) -> Option<Any> {
        let action = Action::new(name, request.as_any().encode_to_vec());
        let answers = self.stock.do_action(action).await.expect("the action is taken");
        let answers: Vec<Bytes> = answers.try_collect().await.expect("the action is answered");
        answers.into_iter().next().map(|answer| Any::decode(answer).expect("a message"))
    }

    async fn run_sql_action_for<M: ProstMessageExt>(&mut self, name: &str, request: &impl ProstMessageExt) -> M {
        let answer = self.run_sql_action(name, request).await.expect("there is an answer");
        answer.unpack().expect("it can be read").expect("it is of the right kind")
    }

    pub async fn run_sql_scenario(&mut self) {
        self.check_table_metadata().await;
        self.check_key_metadata().await;
        self.expect_schema(
            &CommandStatementQuery { query: SELECT.to_owned(), transaction_id: None },
            &query_schema(false),
        )
        .await;
        let update = CommandStatementUpdate { query: UPDATE.to_owned(), transaction_id: None };
        self.expect_update_count(&update, UPDATED[0][0]).await;
        self.run_prepared_statements(false, false).await;
    }

    async fn check_table_metadata(&mut self) {
        let catalogs = CommandGetCatalogs {};
        self.expect_schema(&catalogs, &catalogs.into_builder().schema()).await;
        let schemas = CommandGetDbSchemas {
            catalog: text("catalog"),
            db_schema_filter_pattern: text("db_schema_filter_pattern"),
        };
        self.expect_schema(&schemas, &schemas.clone().into_builder().schema()).await;
        let tables = CommandGetTables {
            catalog: text("catalog"),
            db_schema_filter_pattern: text("db_schema_filter_pattern"),
            table_name_filter_pattern: text("table_filter_pattern"),
            table_types: vec!["table".to_owned(), "view".to_owned()],
            include_schema: true,
        };
        self.expect_schema(&tables, &tables.clone().into_builder().schema()).await;
        let types = CommandGetTableTypes {};
        self.expect_schema(&types, &types.into_builder().schema()).await;
        let types = CommandGetXdbcTypeInfo { data_type: None };
        let none = arrow_flight::sql::metadata::XdbcTypeInfoDataBuilder::new().build().expect("none is one");
        self.expect_schema(&types, &types.into_builder(&none).schema()).await;
        let info = [SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerReadOnly].map(|info| info as u32).to_vec();
        let info = CommandGetSqlInfo { info };
        self.expect_schema(&info, &server_info_schema()).await;
    }

    async fn check_key_metadata(&mut self) {
        let (catalog, db_schema, table) = (text("catalog"), text("db_schema"), "table".to_owned());
        let keys =
            CommandGetPrimaryKeys { catalog: catalog.clone(), db_schema: db_schema.clone(), table: table.clone() };
        self.expect_schema(&keys, &primary_keys()).await;
        let keys =
            CommandGetExportedKeys { catalog: catalog.clone(), db_schema: db_schema.clone(), table: table.clone() };
        self.expect_schema(&keys, &foreign_keys()).await;
        self.expect_schema(&CommandGetImportedKeys { catalog, db_schema, table }, &foreign_keys()).await;
        let keys = CommandGetCrossReference {
            pk_catalog: text("pk_catalog"),
            pk_db_schema: text("pk_db_schema"),
            pk_table: "pk_table".to_owned(),
            fk_catalog: text("fk_catalog"),
            fk_db_schema: text("fk_db_schema"),
            fk_table: "fk_table".to_owned(),
        };
        self.expect_schema(&keys, &foreign_keys()).await;
    }

    async fn create_prepared_statement(&mut self, query: Option<&str>, in_transaction: bool) -> Bytes {
        let transaction_id = transaction(in_transaction);
        let result: ActionCreatePreparedStatementResult = match query {
            Some(query) => {
                let request = ActionCreatePreparedStatementRequest { query: query.to_owned(), transaction_id };
                self.run_sql_action_for("CreatePreparedStatement", &request).await
            }
            None => {
                let request = ActionCreatePreparedSubstraitPlanRequest { plan: Some(substrait_plan()), transaction_id };
                self.run_sql_action_for("CreatePreparedSubstraitPlan", &request).await
            }
        };
        result.prepared_statement_handle
    }

    async fn close_prepared_statement(&mut self, prepared_statement_handle: Bytes) {
        self.run_sql_action(
            "ClosePreparedStatement",
            &ActionClosePreparedStatementRequest { prepared_statement_handle },
        )
        .await;
    }

    /// Runs a query and an update, prepared from text or from a plan, with a parameter and without.
    async fn run_prepared_statements(&mut self, from_plan: bool, in_transaction: bool) {
        let from = |text: &'static str| (!from_plan).then_some(text);
        let handle = self.create_prepared_statement(from(PREPARED_SELECT), in_transaction).await;
        let query = CommandPreparedStatementQuery { prepared_statement_handle: handle.clone() };
        let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let values = RecordBatch::try_new(query_schema(false), vec![one]).expect("one column");
        let said = DoPutPreparedStatementResult::decode(self.put(&query, &values).await).expect("a handle");
        // Servers before Arrow 17 return nothing.
        assert!(said.prepared_statement_handle.is_none_or(|told| told == handle));
        self.expect_schema(&query, &query_schema(in_transaction)).await;
        self.close_prepared_statement(handle).await;
        let handle = self.create_prepared_statement(from(PREPARED_UPDATE), in_transaction).await;
        let update = CommandPreparedStatementUpdate { prepared_statement_handle: handle.clone() };
        self.expect_update_count(&update, UPDATED[1][usize::from(in_transaction)]).await;
        self.close_prepared_statement(handle).await;
    }

    pub async fn run_extension_scenario(&mut self) {
        self.read_server_info().await;
        let query = CommandStatementSubstraitPlan { plan: Some(substrait_plan()), transaction_id: None };
        self.expect_schema(&query, &query_schema(false)).await;
        let info = self.info_of(&query).await.encode_to_vec().into();
        let result: ActionCancelQueryResult =
            self.run_sql_action_for("CancelQuery", &ActionCancelQueryRequest { info }).await;
        assert_eq!(result.result, 1);
        self.expect_update_count(&query, UPDATED[0][0]).await;
        self.run_prepared_statements(true, false).await;
        self.run_transaction_scenario().await;
    }

    async fn read_server_info(&mut self) {
        let info = self.info_of(&CommandGetSqlInfo { info: extension_info_codes() }).await;
        let found = download(&self.ours, ticket(&info.endpoint[0])).await.expect("it can be had");
        let [(batch, _)] = &found[..] else { panic!("one batch, not {}", found.len()) };
        let names = batch.column(0).as_primitive::<arrow_array::types::UInt32Type>();
        let values = batch.column(1).as_union();
        let told: Vec<(u32, String)> =
            (0..batch.num_rows()).map(|row| (names.value(row), format!("{:?}", values.value(row)))).collect();
        let expected =
            server_info_batch(CommandGetSqlInfo { info: extension_info_codes() }, &server_info()).expect("a batch");
        let (names, values) =
            (expected.column(0).as_primitive::<arrow_array::types::UInt32Type>(), expected.column(1).as_union());
        let mut told = told;
        told.sort();
        let mut expected: Vec<(u32, String)> =
            (0..expected.num_rows()).map(|row| (names.value(row), format!("{:?}", values.value(row)))).collect();
        expected.sort();
        assert_eq!(told, expected);
    }

    async fn begin_transaction(&mut self) {
        let result: ActionBeginTransactionResult =
            self.run_sql_action_for("BeginTransaction", &ActionBeginTransactionRequest {}).await;
        assert_eq!(&result.transaction_id[..], TRANSACTION);
    }

    async fn begin_savepoint(&mut self) {
        let (transaction_id, name) = (Bytes::from_static(TRANSACTION), SAVEPOINT_NAME.to_owned());
        let result: ActionBeginSavepointResult =
            self.run_sql_action_for("BeginSavepoint", &ActionBeginSavepointRequest { transaction_id, name }).await;
        assert_eq!(&result.savepoint_id[..], SAVEPOINT);
    }

    async fn end_transaction(&mut self, action: i32) {
        let transaction_id = Bytes::from_static(TRANSACTION);
        self.run_sql_action("EndTransaction", &ActionEndTransactionRequest { transaction_id, action }).await;
    }

    async fn end_savepoint(&mut self, action: i32) {
        let savepoint_id = Bytes::from_static(SAVEPOINT);
        self.run_sql_action("EndSavepoint", &ActionEndSavepointRequest { savepoint_id, action }).await;
    }

    async fn run_transaction_scenario(&mut self) {
        self.begin_transaction().await;
        self.begin_savepoint().await;
        let transaction_id = transaction(true);
        let query = CommandStatementQuery { query: SELECT.to_owned(), transaction_id: transaction_id.clone() };
        self.expect_schema(&query, &query_schema(true)).await;
        let by_plan =
            CommandStatementSubstraitPlan { plan: Some(substrait_plan()), transaction_id: transaction_id.clone() };
        self.expect_schema(&by_plan, &query_schema(true)).await;
        let update = CommandStatementUpdate { query: UPDATE.to_owned(), transaction_id };
        self.expect_update_count(&update, UPDATED[0][1]).await;
        self.expect_update_count(&by_plan, UPDATED[0][1]).await;
        self.run_prepared_statements(false, true).await;
        self.run_prepared_statements(true, true).await;
        self.end_savepoint(ROLLBACK).await;
        self.begin_savepoint().await;
        self.end_savepoint(COMMIT).await;
        self.end_transaction(COMMIT).await;
        self.begin_transaction().await;
        self.end_transaction(ROLLBACK).await;
    }

    pub async fn ingest(&mut self) {
        let rows = new_null_array(&DataType::Int64, INGESTED_ROWS as usize);
        assert_eq!(rows.null_count(), INGESTED_ROWS as usize);
        let batch = RecordBatch::try_new(ingested_schema(), vec![rows]).expect("one column");
        let said = self.put(&ingest_command(), &batch).await;
        assert_eq!(DoPutUpdateResult::decode(said).expect("a number of rows").record_count, INGESTED_ROWS);
    }
}
