//! Datasets as tables.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, ScanArgs, ScanResult, SchemaProvider, Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use godwit_flight::{Catalog, Dataset, DatasetError, SQL_SCHEMA};

use crate::bounds::{regions_of, says_where};
use crate::scan::{DatasetExec, without_metadata};

/// All datasets.
#[derive(Clone, Debug)]
pub(crate) struct Tables(pub(crate) Arc<dyn Catalog>);

impl Tables {
    /// The dataset of a name: its own, or that of its file without directories and endings, where only one has it.
    pub(crate) fn find(&self, name: &str) -> Result<(String, Arc<dyn Dataset>), DatasetError> {
        match self.0.open(name) {
            Ok(dataset) => Ok((name.to_owned(), dataset)),
            Err(DatasetError::NotFound { .. }) => {
                let mut names = self.0.names()?;
                names.retain(|found| stem(found) == name);
                match &names[..] {
                    [one] => Ok((one.clone(), self.0.open(one)?)),
                    [] => Err(DatasetError::NotFound { name: name.to_owned() }),
                    several => Err(DatasetError::Refused {
                        problem: format!(
                            "{name} may be any of {}; write the path, in double quotes",
                            several.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
                        ),
                    }),
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// A file name without what comes before and behind it.
fn stem(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.split('.').next().unwrap_or(file)
}

/// A dataset as a table. The engine's own reader of Parquet leaves out pages and reads only the rows it needs.
pub(crate) fn provider(name: &str, dataset: Arc<dyn Dataset>) -> Result<Arc<dyn TableProvider>> {
    let Some(files) = dataset.parquet_files() else {
        let schema = without_metadata(&dataset.schema());
        return Ok(Arc::new(DatasetTable { name: name.to_owned(), dataset, schema }));
    };
    let urls: Result<Vec<_>> = match dataset.parquet_urls() {
        Some(urls) => urls.iter().map(ListingTableUrl::parse).collect(),
        None => files.iter().map(|file| url_of(file)).collect(),
    };
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension("");
    let config = ListingTableConfig::new_with_multi_paths(urls?)
        .with_listing_options(options)
        .with_schema(without_metadata(&dataset.schema()));
    Ok(Arc::new(ParquetTable { files: ListingTable::try_new(config)?, dataset }))
}

/// The dataset that a table was made of; `None` for other tables.
pub(crate) fn dataset_of<'t>(table: &'t (dyn TableProvider + 'static)) -> Option<&'t Arc<dyn Dataset>> {
    let of_parquet = table.downcast_ref::<ParquetTable>().map(|table| &table.dataset);
    of_parquet.or_else(|| table.downcast_ref::<DatasetTable>().map(|table| &table.dataset))
}

/// A dataset of Parquet files, which the engine reads itself.
#[derive(Debug)]
struct ParquetTable {
    files: ListingTable,
    dataset: Arc<dyn Dataset>,
}

#[async_trait]
impl TableProvider for ParquetTable {
    fn schema(&self) -> SchemaRef {
        self.files.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.files.scan(session, projection, filters, limit).await
    }

    async fn scan_with_args<'a>(&self, session: &dyn Session, args: ScanArgs<'a>) -> Result<ScanResult> {
        self.files.scan_with_args(session, args).await
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.files.supports_filters_pushdown(filters)
    }
}

/// The address of a file of this machine.
fn url_of(file: &Path) -> Result<ListingTableUrl> {
    let path = std::path::absolute(file)?;
    let text = path.to_str().ok_or_else(|| {
        DataFusionError::Plan(format!("{} is no UTF-8; rename it to ask it with SQL", path.display()))
    })?;
    ListingTableUrl::parse(percent_encoded(text))
}

/// A path as a URL in which nothing is a pattern.
fn percent_encoded(path: &str) -> String {
    let mut url = "file://".to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url += &format!("%{byte:02X}");
        }
    }
    url
}

/// A dataset that is read by its own reader.
#[derive(Debug)]
struct DatasetTable {
    name: String,
    dataset: Arc<dyn Dataset>,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for DatasetTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let regions = if self.dataset.has_regions() { regions_of(filters) } else { None };
        let partitions = session.config().target_partitions();
        let columns = projection.unwrap_or(&all);
        Ok(Arc::new(DatasetExec::new(self.dataset.clone(), &self.name, columns, regions, partitions)?))
    }

    /// What is said of places is a hint: the engine applies all conditions itself.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            if self.dataset.has_regions() && says_where(filter) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }
}

impl CatalogProvider for Tables {
    fn schema_names(&self) -> Vec<String> {
        vec![SQL_SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == SQL_SCHEMA).then(|| Arc::new(self.clone()) as _)
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.0.names().unwrap_or_default()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.find(name) {
            Ok((name, dataset)) => provider(&name, dataset).map(Some),
            Err(DatasetError::NotFound { .. }) => Ok(None),
            Err(error) => Err(DataFusionError::External(error.into())),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }
}
