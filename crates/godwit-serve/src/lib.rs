//! Serves the files below a directory or in a bucket as datasets: lists them and reads their rows as Arrow batches.
//!
//! [`DatasetRoot`] is the [`Catalog`](godwit_dataset::Catalog) of a directory or a bucket. The name of a dataset is its
//! path below this root. A listing derives the format from the file name; opening a dataset also examines the content.
//! Datasets that clients put are stored below the root as Parquet, and no other files are written. [`DatasetRoot`] does
//! not check access. [`HttpService`] serves files of reads and variants unchanged, sequences, and a web page, over
//! plain HTTP.

mod bam_dataset;
mod batch_reader;
mod bbi_dataset;
mod bucket;
mod dataset_root;
mod file_index;
mod file_snapshot;
mod file_store;
mod gwp_dataset;
mod health_check;
mod htsget;
mod http_request;
mod http_service;
mod listing;
mod puts;
mod read_error;
mod refget;
mod sam_cram_dataset;
mod site;
mod table_datasets;
mod unfinished_job_dataset;
mod unindexed_dataset;
mod vcf_dataset;

pub use dataset_root::DatasetRoot;
pub use health_check::HealthCheck;
pub use http_service::{HttpService, HttpServiceOptions};
pub use listing::SkippedEntry;
pub use puts::TemporaryDatasets;
pub use sam_cram_dataset::CramOptions;
pub use unfinished_job_dataset::{UnfinishedJobReads, UnfinishedJobs};
