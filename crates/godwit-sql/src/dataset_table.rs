//! Provides the datasets of a catalog as DataFusion tables.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, ScanArgs, ScanResult, SchemaProvider, Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use godwit_dataset::{Catalog, Dataset, DatasetError, percent_encode_path};
use godwit_flight::SQL_SCHEMA;
use godwit_query::{find_dataset, without_metadata};

use crate::parquet_format::NanSafeParquetFormat;
use crate::region_pushdown::{constrains_region, regions_of_filters};
use crate::scan::DatasetExec;

/// The names of the table functions that the engine registers.
pub(crate) const TABLE_FUNCTIONS: [&str; 11] = [
    "reads",
    "variants",
    "genotypes",
    "overlaps",
    "nearest",
    "coverage",
    "coverage_windows",
    "pileup",
    "mismatches",
    "insert_sizes",
    "liftover",
];

/// The datasets of a catalog as a DataFusion schema, in which each dataset is a table.
#[derive(Clone, Debug)]
pub(crate) struct TableCatalog(pub(crate) Arc<dyn Catalog>);

impl TableCatalog {
    /// Finds a dataset by its name, or by its file name without directories and suffixes.
    pub(crate) fn find_dataset(&self, name: &str) -> Result<(String, Arc<dyn Dataset>), DatasetError> {
        find_dataset(&*self.0, name)
    }
}

/// Creates a table for a dataset. Parquet files are read by DataFusion's own reader, which skips pages and rows that
/// are not needed.
pub(crate) fn table_provider(name: &str, dataset: Arc<dyn Dataset>) -> Result<Arc<dyn TableProvider>> {
    let Some(files) = dataset.parquet_files() else {
        let schema = without_metadata(&dataset.schema());
        return Ok(Arc::new(DatasetTable { name: name.to_owned(), dataset, schema }));
    };
    let urls: Result<Vec<_>> = match dataset.parquet_urls() {
        Some(urls) => urls.iter().map(ListingTableUrl::parse).collect(),
        None => files.iter().map(|file| file_url(file)).collect(),
    };
    let options = ListingOptions::new(Arc::new(NanSafeParquetFormat::default())).with_file_extension("");
    let config = ListingTableConfig::new_with_multi_paths(urls?)
        .with_listing_options(options)
        .with_schema(without_metadata(&dataset.schema()));
    Ok(Arc::new(ParquetTable { files: ListingTable::try_new(config)?, dataset }))
}

/// Returns the dataset of a table; `None` if the table was not created from a dataset.
pub(crate) fn dataset_of_table<'t>(table: &'t (dyn TableProvider + 'static)) -> Option<&'t Arc<dyn Dataset>> {
    let of_parquet = table.downcast_ref::<ParquetTable>().map(|table| &table.dataset);
    of_parquet.or_else(|| table.downcast_ref::<DatasetTable>().map(|table| &table.dataset))
}

/// A table of Parquet files, which DataFusion reads itself.
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

/// Returns the `file://` URL of a local file.
fn file_url(file: &Path) -> Result<ListingTableUrl> {
    let path = std::path::absolute(file)?;
    let text = path.to_str().ok_or_else(|| {
        DataFusionError::Plan(format!("{} is not valid UTF-8; rename the file to query it with SQL", path.display()))
    })?;
    ListingTableUrl::parse(format!("file://{}", percent_encode_path(text)))
}

/// A table of a dataset that is read by [`Dataset::read`].
#[derive(Debug)]
pub(crate) struct DatasetTable {
    pub(crate) name: String,
    pub(crate) dataset: Arc<dyn Dataset>,
    pub(crate) schema: SchemaRef,
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
        let regions = if self.dataset.has_regions() { regions_of_filters(filters) } else { None };
        let partitions = session.config().target_partitions();
        let columns = projection.unwrap_or(&all);
        Ok(Arc::new(DatasetExec::new(self.dataset.clone(), &self.name, columns, regions, partitions)?))
    }

    /// Conditions on positions select regions to read, but possibly more rows than match. DataFusion therefore still
    /// applies all conditions.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            if self.dataset.has_regions() && constrains_region(filter) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }
}

impl CatalogProvider for TableCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SQL_SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        (name == SQL_SCHEMA).then(|| Arc::new(self.clone()) as _)
    }
}

#[async_trait]
impl SchemaProvider for TableCatalog {
    fn table_names(&self) -> Vec<String> {
        self.0.names().unwrap_or_default()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.find_dataset(name) {
            Ok((name, dataset)) => table_provider(&name, dataset).map(Some),
            Err(DatasetError::NotFound { .. }) => Ok(None),
            // DataFusion also requests a table under the name of each table function of the statement. Several datasets
            // whose file names start with `reads.` must not stop `FROM reads('S.bam')`.
            Err(DatasetError::InvalidRequest { .. }) if TABLE_FUNCTIONS.contains(&name) => Ok(None),
            Err(error) => Err(DataFusionError::External(error.into())),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.find_dataset(name).is_ok()
    }
}
