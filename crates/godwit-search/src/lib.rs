//! Sequence search over virtual partitions of a database, with the bytes of the unpartitioned program.
//!
//! In: the command line of a BLAST+ program. Out: the file that this program would have written, made by several workers. A
//! [`Search`] cuts the database into ranges of sequences, none of which is copied, hands them to workers, each of which is a
//! process with the NCBI engine (`worker/`), routes the hits of the preliminary search to the owners of queries, and lets the
//! owners write their reports to their places in one file. Owners also say what they print as rows, of which a table is made. Why the result is the same is told in
//! `docs/decisions/0016-partition-blast-before-the-traceback.md`.
//!
//! For DIAMOND and MMseqs2 workers take pieces of the queries instead (`bulk`).
//!
//! It does *not* align anything itself, and reads neither databases nor reports.

mod aside;
mod bulk;
mod command_line;
mod coordinator;
mod error;
mod hits;
mod jobs;
mod journal;
mod layout;
mod place;
mod plan;
mod protocol;
mod summary;
mod thresholds;
mod work;
mod worker;

pub use bulk::{BulkSearch, Prepared, Tool, serve};
pub use command_line::{Program, SearchCommand};
pub use coordinator::{Search, SearchOptions, Step};
pub use error::{Blame, SearchError};
pub use place::{LocalPlace, Place, Said};
pub use plan::Plan;
pub use summary::{CpuSeconds, Summary, WallSeconds};
pub use worker::{Ending, Engine, WorkerProcess};
