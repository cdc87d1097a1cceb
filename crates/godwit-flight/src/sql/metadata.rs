//! What clients ask about tables: batches of the shapes that the specification says.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::sql::Command;
use arrow_flight::sql::metadata::GetCatalogsBuilder;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use tonic::Status;

use super::server_info::{TYPES, server};
use crate::dataset::Catalog;

/// The one catalog that all tables are in.
pub const SQL_CATALOG: &str = "godwit";
/// The one schema in it.
pub const SQL_SCHEMA: &str = "data";
/// What tables are.
const TABLE_TYPE: &str = "TABLE";

fn failed(error: arrow_flight::error::FlightError) -> Box<Status> {
    Box::new(Status::internal(format!("a bug in godwit: {error}")))
}

/// The columns of the answer to a command that asks for metadata; `None` for any other command.
pub(crate) fn metadata_schema(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(command) => command.into_builder().schema(),
        Command::CommandGetDbSchemas(command) => command.clone().into_builder().schema(),
        Command::CommandGetTables(command) => command.clone().into_builder().schema(),
        Command::CommandGetTableTypes(command) => command.into_builder().schema(),
        Command::CommandGetSqlInfo(command) => command.clone().into_builder(server(false)).schema(),
        Command::CommandGetXdbcTypeInfo(command) => command.into_builder(&TYPES).schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => foreign_keys(),
        _ => return None,
    })
}

/// The answer to a command that asks for metadata. Files are opened where their columns are asked for; one that cannot be
/// opened has none.
pub(crate) fn metadata_batch(command: Command, catalog: &dyn Catalog) -> Result<RecordBatch, Box<Status>> {
    match command {
        Command::CommandGetCatalogs(_) => {
            let mut catalogs = GetCatalogsBuilder::new();
            catalogs.append(SQL_CATALOG);
            catalogs.build()
        }
        Command::CommandGetDbSchemas(command) => {
            let mut schemas = command.into_builder();
            schemas.append(SQL_CATALOG, SQL_SCHEMA);
            schemas.build()
        }
        Command::CommandGetTables(command) => {
            let with_columns = command.include_schema;
            let mut tables = command.into_builder();
            let names = catalog.names().map_err(|error| Box::new(Status::from(error)))?;
            for name in names {
                let opened = if with_columns { catalog.open(&name).ok() } else { None };
                if with_columns && opened.is_none() {
                    continue;
                }
                let schema = opened.map_or_else(|| Arc::new(Schema::empty()), |dataset| dataset.schema());
                let columns = Schema::new(schema.fields().clone());
                tables.append(SQL_CATALOG, SQL_SCHEMA, &name, TABLE_TYPE, &columns).map_err(failed)?;
            }
            tables.build()
        }
        Command::CommandGetTableTypes(command) => {
            let mut types = command.into_builder();
            types.append(TABLE_TYPE);
            types.build()
        }
        Command::CommandGetSqlInfo(command) => command.into_builder(server(catalog.is_writable())).build(),
        Command::CommandGetXdbcTypeInfo(command) => command.into_builder(&TYPES).build(),
        Command::CommandGetPrimaryKeys(_) => return Ok(RecordBatch::new_empty(primary_keys())),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => {
            return Ok(RecordBatch::new_empty(foreign_keys()));
        }
        other => return Err(Box::new(Status::unimplemented(format!("{} is not answered here", other.type_url())))),
    }
    .map_err(failed)
}

fn text(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

/// Columns of `CommandGetPrimaryKeys`. Files have no keys.
fn primary_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        text("key_name", true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// Columns of `CommandGetImportedKeys` and its like.
fn foreign_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}
