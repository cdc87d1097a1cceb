//! Reads Parquet files by DataFusion, without the bounds of columns of floating-point numbers.
//!
//! The minimum and the maximum of a column ignore NaN (parquet.thrift, `ColumnOrder`). DataFusion 55 treats them as bounds
//! of all values: it replaces NaN by the value of a column whose bounds are equal, answers `min` and `max` from them, and
//! skips row groups and pages with NaN. Comparisons order NaN above or below all numbers, by its sign, so neither bound
//! is one.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::file_format::{FileFormat, FileMeta};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::basic::{LogicalType, Type as PhysicalType};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use datafusion::parquet::file::page_index::column_index::ColumnIndexMetaData;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// The Parquet format of DataFusion, without bounds of columns of floating-point numbers.
#[derive(Debug, Default)]
pub(crate) struct NanSafeParquetFormat(ParquetFormat);

#[async_trait]
impl FileFormat for NanSafeParquetFormat {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        self.0.infer_schema(state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        let found = self.infer_stats_and_ordering(state, store, table_schema, object).await?;
        Ok(found.statistics)
    }

    async fn infer_stats_and_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        let mut found = self.0.infer_stats_and_ordering(state, store, table_schema.clone(), object).await?;
        for (field, column) in table_schema.fields().iter().zip(&mut found.statistics.column_statistics) {
            if may_have_floats(field.data_type()) {
                (column.min_value, column.max_value) = (Precision::Absent, Precision::Absent);
            }
        }
        Ok(found)
    }

    async fn create_physical_plan(&self, state: &dyn Session, conf: FileScanConfig) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.0.create_physical_plan(state, conf).await?;
        let scan = plan.downcast_ref::<DataSourceExec>().and_then(DataSourceExec::downcast_to_file_source);
        let Some((conf, source)): Option<(_, &ParquetSource)> = scan else {
            return internal_err!("the plan of a Parquet file is not a scan");
        };
        let Some(readers) = source.parquet_file_reader_factory().cloned() else {
            return internal_err!("the scan of a Parquet file has no readers");
        };
        let source = source.clone().with_parquet_file_reader_factory(Arc::new(NanSafeReaderFactory(readers)));
        let conf = FileScanConfigBuilder::from(conf.clone()).with_source(Arc::new(source)).build();
        Ok(DataSourceExec::from_data_source(conf))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(table_schema)
    }
}

/// Returns whether values of a type may be, or contain, floating-point numbers.
fn may_have_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => may_have_floats(values),
        data_type => data_type.is_floating() || data_type.is_nested(),
    }
}

/// A factory of readers of Parquet files, whose metadata have no bounds of floating-point numbers.
#[derive(Debug)]
struct NanSafeReaderFactory(Arc<dyn ParquetFileReaderFactory>);

impl ParquetFileReaderFactory for NanSafeReaderFactory {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let reader = self.0.create_reader(partition_index, file, metadata_size_hint, metrics)?;
        Ok(Box::new(NanSafeReader(reader)))
    }
}

struct NanSafeReader(Box<dyn AsyncFileReader + Send>);

impl AsyncFileReader for NanSafeReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.0.get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.0.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move { without_float_bounds(self.0.get_metadata(options).await?) }.boxed()
    }
}

/// Removes the statistics and the page index of all columns of floating-point numbers.
fn without_float_bounds(metadata: Arc<ParquetMetaData>) -> ParquetResult<Arc<ParquetMetaData>> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let is_float: Vec<bool> = columns
        .iter()
        .map(|column| {
            matches!(column.physical_type(), PhysicalType::FLOAT | PhysicalType::DOUBLE)
                || column.logical_type_ref() == Some(&LogicalType::Float16)
        })
        .collect();
    if !is_float.contains(&true) {
        return Ok(metadata);
    }
    let page_index = metadata.column_index().map(|groups| {
        let without = |(index, is_float): (&ColumnIndexMetaData, &bool)| match is_float {
            true => ColumnIndexMetaData::NONE,
            false => index.clone(),
        };
        groups.iter().map(|columns| columns.iter().zip(&is_float).map(without).collect()).collect()
    });
    let row_groups: ParquetResult<Vec<RowGroupMetaData>> = metadata
        .row_groups()
        .iter()
        .map(|group| {
            let columns: ParquetResult<Vec<ColumnChunkMetaData>> = group
                .columns()
                .iter()
                .zip(&is_float)
                .map(|(column, is_float)| if *is_float { without_bounds(column) } else { Ok(column.clone()) })
                .collect();
            group.clone().into_builder().set_column_metadata(columns?).build()
        })
        .collect();
    let builder = ParquetMetaData::clone(&metadata).into_builder();
    Ok(Arc::new(builder.set_row_groups(row_groups?).set_column_index(page_index).build()))
}

fn without_bounds(column: &ColumnChunkMetaData) -> ParquetResult<ColumnChunkMetaData> {
    let builder = column.clone().into_builder().clear_statistics();
    builder.set_column_index_offset(None).set_column_index_length(None).build()
}
