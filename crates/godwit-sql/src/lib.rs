//! SQL over the datasets of a [`Catalog`](godwit_dataset::Catalog), by DataFusion.
//!
//! [`QueryEngine`] runs an SQL query and returns record batches. A dataset is a table with the name of the dataset. The
//! functions `reads('x.bam')` and `variants('x.vcf.gz')` also return a dataset, or the union of all datasets that match
//! a pattern. Conditions on positions use the index of a dataset, and only the columns that a query needs are decoded.
//! Joins of overlapping intervals have their own execution plan. Only queries are accepted: a statement cannot access
//! files, settings or the network. [`serve_statements`] runs statements for the process that started this one.
//!
//! # Examples
//!
//! The genes that overlap a peak, from two CSV files:
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use std::path::PathBuf;
//! # use datafusion::arrow::datatypes::SchemaRef;
//! # use godwit_dataset::{BatchReader, Catalog, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
//! # use godwit_columnar::csv::{CsvError, CsvFile};
//! # use godwit_io::random_access::LocalFile;
//! use std::fs;
//! use std::sync::Arc;
//!
//! use godwit_query::{RowFormat, RowWriter};
//! use godwit_sql::{QueryEngine, QueryResources};
//!
//! # #[derive(Debug)]
//! # struct Table(CsvFile);
//! # impl Dataset for Table {
//! #     fn kind(&self) -> DatasetKind {
//! #         DatasetKind::Table
//! #     }
//! #     fn schema(&self) -> SchemaRef {
//! #         self.0.schema().clone()
//! #     }
//! #     fn bytes(&self) -> u64 {
//! #         0
//! #     }
//! #     fn version(&self) -> u64 {
//! #         0
//! #     }
//! #     fn has_regions(&self) -> bool {
//! #         false
//! #     }
//! #     fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
//! #         Ok(vec![ScanPart::default()])
//! #     }
//! #     fn read(&self, scan: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
//! #         let failed = |error: CsvError| DatasetError::Data(error.into());
//! #         let mut rows = self.0.batches(scan.columns.as_deref()).map_err(failed)?;
//! #         Ok(Box::new(std::iter::from_fn(move || rows.next_batch().map_err(failed).transpose())))
//! #     }
//! # }
//! # #[derive(Debug)]
//! # struct CsvDirectory(PathBuf);
//! # impl Catalog for CsvDirectory {
//! #     fn names(&self) -> Result<Vec<String>, DatasetError> {
//! #         let mut names = Vec::new();
//! #         for entry in fs::read_dir(&self.0).map_err(|error| DatasetError::Local(error.into()))? {
//! #             let entry = entry.map_err(|error| DatasetError::Local(error.into()))?;
//! #             names.push(entry.file_name().to_string_lossy().into_owned());
//! #         }
//! #         names.sort();
//! #         Ok(names)
//! #     }
//! #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
//! #         let file = LocalFile::open(&self.0.join(name));
//! #         let file = file.map_err(|_| DatasetError::NotFound { name: name.to_owned() })?;
//! #         let file = CsvFile::open(Arc::new(file), b',').map_err(|error| DatasetError::Data(error.into()))?;
//! #         Ok(Arc::new(Table(file)))
//! #     }
//! # }
//! let directory = tempfile::tempdir()?;
//! let (genes, peaks) = (directory.path().join("genes.csv"), directory.path().join("peaks.csv"));
//! fs::write(genes, "name,contig,position,end_position\nA,chr1,100,200\nB,chr1,300,400\n")?;
//! fs::write(peaks, "name,contig,position,end_position\np1,chr1,150,160\np2,chr2,150,160\n")?;
//!
//! let limits = QueryResources { memory_bytes: 64 << 20, threads: 1, scratch_directory: None };
//! let engine = QueryEngine::new(Arc::new(CsvDirectory(directory.path().to_owned())), &limits)?;
//! let mut rows = engine.query("SELECT name, name_2 FROM overlaps('genes.csv', 'peaks.csv')").await?;
//! let mut csv = RowWriter::new(RowFormat::Csv, rows.schema(), Vec::new())?;
//! while let Some(batch) = rows.next().await? {
//!     csv.write(batch)?;
//! }
//! assert_eq!(String::from_utf8(csv.finish()?)?, "name,name_2\nA,p1\n");
//! # Ok(())
//! # }
//! ```

mod chain_index;
mod comparison_operator;
mod contig_source;
mod coverage;
mod coverage_windows;
mod dataset_table;
mod decimal_literals;
mod distinct_from;
mod engine;
mod error;
mod error_messages;
mod filter_expression;
mod filter_function;
mod flight_sql;
mod functions;
mod genotype_dataset;
mod genotypes;
mod gff_attributes;
mod insert_sizes;
mod interval_functions;
mod interval_index;
mod interval_join;
mod interval_join_rule;
mod liftover;
mod mismatches;
mod number_text;
mod parameter_types;
mod parquet_format;
mod pileup;
mod position_blocks;
mod posix_pattern;
mod read_filter;
mod read_sweep;
mod region_pushdown;
mod scan;
mod scan_progress;
mod statement_parameters;
mod statement_server;
mod table_functions;
mod variant_expression;
mod variant_filter;

pub use engine::{QueryEngine, QueryResources, Rows};
pub use error::QueryError;
pub use statement_server::serve_statements;
