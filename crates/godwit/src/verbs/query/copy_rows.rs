//! `godwit query "COPY (SELECT ..) TO 'FILE'"`: writes the rows of a query to a file of records, with its index and its
//! manifest. With `--at`, a server runs the query, and this process writes the file.

use arrow_schema::SchemaRef;
use godwit_cli::cli::{LogLevel, QueryArgs, RowFormatName};
use godwit_cli::failure::{Failure, print};
use godwit_dataset::DatasetError;
use godwit_flight::{Client, Code, FlightError};
use godwit_model::ErrorKind;
use godwit_query::{CopyStatement, RecordFile, RecordHeader, RemoteRows, find_dataset};

use super::statement_files::option_files;
use super::{DirectoryDatasets, open_datasets, read_parameters};
use crate::plural::pluralize;
use crate::verbs::credentials::{connect, server_failure};
use crate::verbs::output_check::check_output;
use crate::verbs::row_output::OutputRows;

/// Number of threads that read the datasets. A single thread keeps the order of the rows.
const READER_THREADS: usize = 1;

/// Writes the rows of a `COPY` statement, and reports their number.
pub(super) async fn copy_rows(args: &QueryArgs, copy: &CopyStatement) -> Result<(), Failure> {
    if args.out.is_some() || args.format != RowFormatName::Table {
        let problem = "COPY names the file and its format; remove --out and --format";
        return Err(Failure::new(ErrorKind::Usage, problem.to_owned()));
    }
    check_output("TO", &copy.path, &option_files(args))?;
    let names = args.header_from.as_ref().map_or(&copy.tables[..], std::slice::from_ref);
    let is_optional = args.header_from.is_none();
    let parameters = read_parameters(args)?;
    let (schemas, rows) = match &args.at {
        Some(url) => {
            let client = connect(url, &args.access).await?;
            let schemas = remote_schemas(&client, names, is_optional).await?;
            let rows = RemoteRows::query_server(client, &copy.query, &parameters).await.map_err(server_failure)?;
            (schemas, OutputRows::Remote(Box::new(rows)))
        }
        None => {
            let datasets = open_datasets(args, READER_THREADS)?;
            datasets.check_output("TO", &copy.path, &copy.tables)?;
            if let Some(name) = &args.header_from {
                datasets.check_output("TO", &copy.path, std::slice::from_ref(name))?;
            }
            let schemas = local_schemas(&datasets, names, is_optional)?;
            (schemas, OutputRows::Local(datasets.query(&copy.query, &parameters).await?))
        }
    };
    let header = RecordHeader::select(copy.format, &schemas)?;
    let values = parameters.texts().into_iter();
    let values = values.map(|(name, value)| format!(" --parameter {:?}", format!("{name}={value}")));
    let command = format!("godwit query {:?}{}", args.statement, values.collect::<String>());
    let mut rows = rows;
    let mut file = RecordFile::create(copy, &header, rows.schema(), &command)?;
    while let Some(batch) = rows.next().await? {
        file.write(&batch)?;
    }
    let records = file.finish(&args.statement)?;
    if args.common.quiet || args.common.json || args.common.log < LogLevel::Info {
        return Ok(());
    }
    print(&format!("wrote {} to {}\n", pluralize(records, "record"), copy.path.display()))
}

/// Returns the schemas of datasets. If `is_optional` is true, omits names that are not datasets, such as those of common
/// table expressions; the engine reports a table that does not exist.
fn local_schemas(
    datasets: &DirectoryDatasets<'_>,
    names: &[String],
    is_optional: bool,
) -> Result<Vec<SchemaRef>, Failure> {
    let catalog = datasets.authorized_catalog();
    let mut schemas = Vec::new();
    for name in names {
        match find_dataset(&*catalog, name) {
            Ok((_, dataset)) => schemas.push(dataset.schema()),
            Err(DatasetError::NotFound { .. } | DatasetError::InvalidRequest { .. }) if is_optional => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(schemas)
}

/// Returns the schemas of datasets of a server, as [`local_schemas`] does for those of a directory.
async fn remote_schemas(client: &Client, names: &[String], is_optional: bool) -> Result<Vec<SchemaRef>, Failure> {
    let mut schemas = Vec::new();
    for name in names {
        match client.dataset_schema(name).await {
            Ok(schema) => schemas.push(schema),
            Err(FlightError::Status { status, .. })
                if is_optional && matches!(status.code(), Code::NotFound | Code::InvalidArgument) => {}
            Err(error) => return Err(server_failure(error)),
        }
    }
    Ok(schemas)
}
