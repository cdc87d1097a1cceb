//! Datasets below a directory or in a bucket: what files are there, and their rows as Arrow batches.
//!
//! [`Root`] is the [`Catalog`](godwit_flight::Catalog) of a directory or a bucket. Names are paths below it. Which file is what goes by
//! its name, as users see it; what is in it is looked at when it is opened. What clients put is kept beside it, as Parquet; no
//! other file is written. Nothing is asked of who reads or puts. [`Pages`] gives out the files of reads and variants as they are, sequences,
//! and a page for browsers, over plain HTTP.

mod batches;
mod bucket;
mod htsget;
mod listing;
mod live;
mod packed;
mod pages;
mod puts;
mod reads;
mod refget;
mod region_lookup;
mod root;
mod site;
mod store;
mod streamed_reads;
mod tables;
mod variants;
mod whole_files;

pub use listing::SkippedEntry;
pub use live::{LiveReads, LiveRuns};
pub use pages::{Pages, PagesOptions};
pub use puts::Temporary;
pub use root::Root;
pub use streamed_reads::CramAccess;
