//! The SQL properties (`CommandGetSqlInfo`) and data types (`CommandGetXdbcTypeInfo`) that the server reports to
//! clients.

use std::sync::LazyLock;

use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Nullable, Searchable, SqlInfo, SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction, XdbcDataType,
};

/// Returns the SQL properties of a server whose datasets are writable or read-only.
pub(super) fn sql_info(is_writable: bool) -> &'static SqlInfoData {
    static READ_ONLY: LazyLock<SqlInfoData> = LazyLock::new(|| build_sql_info(false));
    static WRITABLE: LazyLock<SqlInfoData> = LazyLock::new(|| build_sql_info(true));
    if is_writable { &WRITABLE } else { &READ_ONLY }
}

fn build_sql_info(is_writable: bool) -> SqlInfoData {
    let mut info = SqlInfoDataBuilder::new();
    info.append(SqlInfo::FlightSqlServerName, "godwit");
    info.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    info.append(SqlInfo::FlightSqlServerArrowVersion, "1.5");
    info.append(SqlInfo::FlightSqlServerReadOnly, !is_writable);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerBulkIngestion, is_writable);
    info.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, false);
    info.append(SqlInfo::SqlDdlTable, false);
    // Names are case-sensitive, quoted or not. The specification has no value for this.
    info.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32);
    info.append(SqlInfo::SqlQuotedIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedAtEnd as i32);
    info.append(SqlInfo::SqlAllTablesAreSelectable, true);
    info.append(SqlInfo::SqlSupportsColumnAliasing, true);
    info.append(SqlInfo::SqlNullPlusNullIsNull, true);
    info.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    info.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    info.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    info.append(SqlInfo::SqlTransactionsSupported, false);
    info.append(SqlInfo::SqlCatalogTerm, "catalog");
    info.append(SqlInfo::SqlSchemaTerm, "schema");
    info.append(SqlInfo::SqlProcedureTerm, "procedure");
    info.build().expect("each of them is there once, with the type that the specification says")
}

/// The data types of columns, numbered as in `java.sql.Types` of JDBC.
pub(super) static XDBC_TYPES: LazyLock<XdbcTypeInfoData> = LazyLock::new(|| {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, size, quote) in [
        ("BOOLEAN", XdbcDataType::XdbcBit, 1, None),
        ("TINYINT", XdbcDataType::XdbcTinyint, 3, None),
        ("SMALLINT", XdbcDataType::XdbcSmallint, 5, None),
        ("INTEGER", XdbcDataType::XdbcInteger, 10, None),
        ("BIGINT", XdbcDataType::XdbcBigint, 19, None),
        ("FLOAT", XdbcDataType::XdbcReal, 7, None),
        ("DOUBLE", XdbcDataType::XdbcDouble, 15, None),
        ("VARCHAR", XdbcDataType::XdbcVarchar, i32::MAX, Some("'")),
        ("VARBINARY", XdbcDataType::XdbcVarbinary, i32::MAX, Some("'")),
        ("DATE", XdbcDataType::XdbcDate, 10, Some("'")),
        ("TIMESTAMP", XdbcDataType::XdbcTimestamp, 29, Some("'")),
    ] {
        types.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type,
            column_size: Some(size),
            literal_prefix: quote.map(str::to_owned),
            literal_suffix: quote.map(str::to_owned),
            create_params: None,
            nullable: Nullable::NullabilityNullable,
            case_sensitive: quote.is_some(),
            searchable: Searchable::Full,
            unsigned_attribute: Some(false),
            fixed_prec_scale: false,
            auto_increment: Some(false),
            local_type_name: Some(name.to_owned()),
            minimum_scale: None,
            maximum_scale: None,
            sql_data_type: data_type,
            datetime_subcode: None,
            num_prec_radix: quote.is_none().then_some(10),
            interval_precision: None,
        });
    }
    types.build().expect("the rows are of one shape")
});
