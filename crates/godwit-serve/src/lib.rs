//! Datasets below a directory or in a bucket: which files exist, and their rows as Arrow batches.
//!
//! [`DatasetRoot`] is the [`Catalog`](godwit_flight::Catalog) of a directory or a bucket. Names are paths below it. The
//! file name decides the type; the content is read when a dataset is opened. Datasets that clients put are stored beside it
//! as Parquet; no other file is written. Access is not checked here. [`HttpService`] serves files of reads and variants
//! unchanged, sequences, and a web page, over plain HTTP.

mod bam_dataset;
mod batch_reader;
mod bucket;
mod dataset_root;
mod file_index;
mod file_store;
mod gwp_dataset;
mod htsget;
mod http_service;
mod listing;
mod puts;
mod refget;
mod sam_cram_dataset;
mod site;
mod table_datasets;
mod unfinished_job_dataset;
mod unindexed_dataset;
mod vcf_dataset;

pub use dataset_root::DatasetRoot;
pub use http_service::{HttpService, HttpServiceOptions};
pub use listing::SkippedEntry;
pub use puts::TemporaryDatasets;
pub use sam_cram_dataset::CramOptions;
pub use unfinished_job_dataset::{UnfinishedJobReads, UnfinishedJobs};
