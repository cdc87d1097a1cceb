//! Answers Flight SQL requests for metadata about tables, with the schemas of the specification.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, RecordBatch, UnionArray};
use arrow_flight::sql::metadata::{GetCatalogsBuilder, SqlInfoData};
use arrow_flight::sql::{Command, CommandGetSqlInfo};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use godwit_dataset::Catalog;
use tonic::Status;

use super::server_info::{XDBC_TYPES, sql_info};
use crate::error::dataset_status;

/// Name of the only SQL catalog.
pub const SQL_CATALOG: &str = "godwit";
/// Name of the only SQL schema in the catalog.
pub const SQL_SCHEMA: &str = "data";
/// The table type of all tables.
const TABLE_TYPE: &str = "TABLE";

fn internal_error(error: arrow_flight::error::FlightError) -> Box<Status> {
    Box::new(Status::internal(format!("a bug in godwit: {error}")))
}

/// Returns the schema of the response to a metadata command; `None` for other commands.
pub(crate) fn metadata_schema(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(command) => command.into_builder().schema(),
        Command::CommandGetDbSchemas(command) => command.clone().into_builder().schema(),
        Command::CommandGetTables(command) => command.clone().into_builder().schema(),
        Command::CommandGetTableTypes(command) => command.into_builder().schema(),
        Command::CommandGetSqlInfo(_) => server_info_schema(),
        Command::CommandGetXdbcTypeInfo(command) => command.into_builder(&XDBC_TYPES).schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys_schema(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => foreign_keys_schema(),
        _ => return None,
    })
}

/// Returns the schema of the response to `CommandGetSqlInfo`. No member of its union is nullable, as in arrow-go 18; in
/// arrow-flight 59 two members are nullable.
pub fn server_info_schema() -> SchemaRef {
    let built = CommandGetSqlInfo::default().into_builder(sql_info(false)).schema();
    let fields = built.fields().iter().map(|field| match field.data_type() {
        DataType::Union(members, mode) => {
            let not_nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(false));
            let members = members.iter().map(|(id, field)| (id, not_nullable(field))).collect();
            Arc::new(field.as_ref().clone().with_data_type(DataType::Union(members, *mode)))
        }
        _ => field.clone(),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns the server properties that a `CommandGetSqlInfo` requests.
///
/// # Errors
/// A status if the response cannot be built.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use arrow_flight::sql::metadata::SqlInfoDataBuilder;
/// use arrow_flight::sql::{CommandGetSqlInfo, SqlInfo};
/// use godwit_flight::{server_info_batch, server_info_schema};
///
/// let mut info = SqlInfoDataBuilder::new();
/// info.append(SqlInfo::FlightSqlServerName, "godwit");
/// let batch = server_info_batch(CommandGetSqlInfo::default(), &info.build()?)?;
/// assert_eq!((batch.num_rows(), batch.schema()), (1, server_info_schema()));
/// # Ok(())
/// # }
/// ```
pub fn server_info_batch(command: CommandGetSqlInfo, info: &SqlInfoData) -> Result<RecordBatch, Box<Status>> {
    let built = command.into_builder(info).build().map_err(internal_error)?;
    let schema = server_info_schema();
    let bug = |error: ArrowError| Box::new(Status::internal(format!("a bug in godwit: {error}")));
    let columns = built.columns().iter().zip(schema.fields()).map(|(column, field)| match field.data_type() {
        DataType::Union(members, _) => {
            let (_, ids, offsets, values) = column.as_union().clone().into_parts();
            Ok(Arc::new(UnionArray::try_new(members.clone(), ids, offsets, values)?) as ArrayRef)
        }
        _ => Ok(column.clone()),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(bug)?;
    RecordBatch::try_new(schema.clone(), columns).map_err(bug)
}

/// Returns the rows of the response to a metadata command. Datasets are opened only if the client requests their
/// columns; a dataset that cannot be opened is listed without columns.
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
            let names = catalog.names().map_err(|error| Box::new(dataset_status(error)))?;
            for name in names {
                let opened = if with_columns { catalog.open(&name).ok() } else { None };
                if with_columns && opened.is_none() {
                    continue;
                }
                let schema = opened.map_or_else(|| Arc::new(Schema::empty()), |dataset| dataset.schema());
                let columns = Schema::new(schema.fields().clone());
                tables.append(SQL_CATALOG, SQL_SCHEMA, &name, TABLE_TYPE, &columns).map_err(internal_error)?;
            }
            tables.build()
        }
        Command::CommandGetTableTypes(command) => {
            let mut types = command.into_builder();
            types.append(TABLE_TYPE);
            types.build()
        }
        Command::CommandGetSqlInfo(command) => {
            return server_info_batch(command, sql_info(catalog.is_writable()));
        }
        Command::CommandGetXdbcTypeInfo(command) => command.into_builder(&XDBC_TYPES).build(),
        Command::CommandGetPrimaryKeys(_) => return Ok(RecordBatch::new_empty(primary_keys_schema())),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => {
            return Ok(RecordBatch::new_empty(foreign_keys_schema()));
        }
        other => return Err(Box::new(Status::unimplemented(format!("{} is not supported", other.type_url())))),
    }
    .map_err(internal_error)
}

fn text_field(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

/// Returns the schema of the response to `CommandGetPrimaryKeys`. The response is always empty, because datasets have
/// no keys.
fn primary_keys_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text_field("catalog_name", true),
        text_field("db_schema_name", true),
        text_field("table_name", false),
        text_field("column_name", false),
        text_field("key_name", true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// Returns the schema of the responses to `CommandGetImportedKeys`, `CommandGetExportedKeys` and
/// `CommandGetCrossReference`.
fn foreign_keys_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text_field("pk_catalog_name", true),
        text_field("pk_db_schema_name", true),
        text_field("pk_table_name", false),
        text_field("pk_column_name", false),
        text_field("fk_catalog_name", true),
        text_field("fk_db_schema_name", true),
        text_field("fk_table_name", false),
        text_field("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text_field("fk_key_name", true),
        text_field("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}
