//! Datasets below a directory: what files are there, and their rows as Arrow batches.
//!
//! [`Root`] is the [`Catalog`](godwit_flight::Catalog) of a directory. Names are paths below it. Which file is what goes by
//! its name, as users see it; what is in it is looked at when it is opened. Nothing is written, and nothing is asked of who
//! reads.

mod batches;
mod reads;
mod region_lookup;
mod root;
mod streamed_reads;
mod tables;
mod variants;
mod whole_files;

pub use root::Root;
pub use streamed_reads::CramAccess;
