//! The data model of godwit: types of genomes, records and regions, and the Arrow schemas of data that crates or
//! processes exchange.
//!
//! This crate does not do I/O, start threads or contain async code. Positions are 0-based and intervals half-open
//! ([`Interval`]); 1-based positions occur only in text that is parsed or printed.

mod batch_split;
mod block;
mod error_causes;
mod error_kind;
pub mod flags;
mod genome;
mod interval;
pub mod ipc;
pub mod panics;
mod partition;
mod pattern;
mod ploidy;
mod record;
mod region;
pub mod region_grid;
pub mod schema;
mod signature;
mod suggestion;

pub use batch_split::{batch_bytes, split_batch};
pub use block::{BlockId, RecordId};
pub use error_causes::{is_system_failure, message_with_causes};
pub use error_kind::ErrorKind;
pub use genome::{Contig, Genome, GenomeError};
pub use interval::{ContigId, Interval};
pub use partition::PartitionPlan;
pub use pattern::{GlobPattern, GlobPatternError};
pub use ploidy::{PloidyError, PloidyTable};
pub use record::{BASE_LETTERS, CigarOp, RawRecord, RecordError, SortKey, Tag, iter_packed_tags, reg2bin};
pub use region::{IntervalSet, Region, RegionError};
pub use signature::{
    DuplicateCounts, EndSignature, NO_READ_GROUP, Orientation, PairSignature, ReadLocation, end_flags, pair_flags,
};
pub use suggestion::{did_you_mean, nearest_name};
