//! Reads Parquet files by DataFusion, without the bounds of columns of floating-point numbers.
//!
//! The minimum and the maximum of a column ignore NaN (parquet.thrift, `ColumnOrder`). DataFusion 55 treats them as bounds
//! of all values: it replaces NaN by the value of a column whose bounds are equal, answers `min` and `max` from them, and
//! skips row groups and pages with NaN. Comparisons order NaN above or below all numbers, by its sign, so neither bound
//! is one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

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
use datafusion::object_store::path::Path as StorePath;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::basic::{LogicalType, Type as PhysicalType};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaDataBuilder};
use datafusion::parquet::file::page_index::column_index::ColumnIndexMetaData;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

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
        let readers = NanSafeReaderFactory { readers, unbounded: Arc::default() };
        let source = source.clone().with_parquet_file_reader_factory(Arc::new(readers));
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

/// For each file: the metadata that was read, and the same without bounds, as long as a reader uses them.
type UnboundedMetadata = Mutex<HashMap<StorePath, (Weak<ParquetMetaData>, Weak<ParquetMetaData>)>>;

/// A factory of readers of Parquet files, whose metadata have no bounds of floating-point numbers.
#[derive(Debug)]
struct NanSafeReaderFactory {
    readers: Arc<dyn ParquetFileReaderFactory>,
    /// The readers of the parts of a file share its metadata, which are large for tables of many columns.
    unbounded: Arc<UnboundedMetadata>,
}

impl ParquetFileReaderFactory for NanSafeReaderFactory {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let location = file.object_meta.location.clone();
        let reader = self.readers.create_reader(partition_index, file, metadata_size_hint, metrics)?;
        Ok(Box::new(NanSafeReader { reader, location, unbounded: self.unbounded.clone() }))
    }
}

struct NanSafeReader {
    reader: Box<dyn AsyncFileReader + Send>,
    location: StorePath,
    unbounded: Arc<UnboundedMetadata>,
}

impl AsyncFileReader for NanSafeReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.reader.get_bytes(range)
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.reader.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let found = self.reader.get_metadata(options).await?;
            let mut unbounded = self.unbounded.lock();
            if let Some((source, made)) = unbounded.get(&self.location)
                && std::ptr::eq(source.as_ptr(), Arc::as_ptr(&found))
                && let Some(made) = made.upgrade()
            {
                return Ok(made);
            }
            let made = without_float_bounds(&found)?;
            unbounded.insert(self.location.clone(), (Arc::downgrade(&found), Arc::downgrade(&made)));
            Ok(made)
        }
        .boxed()
    }
}

/// Removes the statistics and the page index of all columns of floating-point numbers.
fn without_float_bounds(metadata: &Arc<ParquetMetaData>) -> ParquetResult<Arc<ParquetMetaData>> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let is_float: Vec<bool> = columns
        .iter()
        .map(|column| {
            matches!(column.physical_type(), PhysicalType::FLOAT | PhysicalType::DOUBLE)
                || column.logical_type_ref() == Some(&LogicalType::Float16)
        })
        .collect();
    if !is_float.contains(&true) {
        return Ok(metadata.clone());
    }
    let mut builder = ParquetMetaData::clone(metadata).into_builder();
    let mut page_index = builder.take_column_index();
    for columns in page_index.iter_mut().flatten() {
        for (index, _) in columns.iter_mut().zip(&is_float).filter(|(_, is_float)| **is_float) {
            *index = ColumnIndexMetaData::NONE;
        }
    }
    let without_bounds = |mut group: RowGroupMetaDataBuilder| {
        let columns = group.take_columns().into_iter().zip(&is_float);
        let columns: ParquetResult<Vec<_>> = columns
            .map(|(column, is_float)| if *is_float { without_column_bounds(column) } else { Ok(column) })
            .collect();
        group.set_column_metadata(columns?).build()
    };
    let groups: ParquetResult<Vec<_>> =
        builder.take_row_groups().into_iter().map(|group| without_bounds(group.into_builder())).collect();
    Ok(Arc::new(builder.set_row_groups(groups?).set_column_index(page_index).build()))
}

fn without_column_bounds(column: ColumnChunkMetaData) -> ParquetResult<ColumnChunkMetaData> {
    let builder = column.into_builder().clear_statistics();
    builder.set_column_index_offset(None).set_column_index_length(None).build()
}
