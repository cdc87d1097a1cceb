//! The nouns of godwit and every Arrow schema that crosses a process or crate border.
//!
//! No I/O, no async, no threads: everything here is a value. Positions are 0-based and half-open
//! ([`Locus`], [`Span`]); 1-based numbers exist only where text is read or printed.

mod block;
mod causes;
pub mod flags;
mod genome;
pub mod ipc;
mod nearest;
pub mod panics;
mod partition;
mod pattern;
mod ploidy;
mod record;
mod region;
pub mod region_grid;
pub mod schema;
mod signature;
mod span;

pub use block::{BlockId, RecordId};
pub use causes::{is_system_failure, with_causes};
pub use genome::{Contig, Genome, GenomeError};
pub use nearest::{nearest, suggestion};
pub use partition::{PartitionId, PartitionPlan};
pub use pattern::{Pattern, PatternError};
pub use ploidy::{PloidyError, PloidyTable};
pub use record::{BASE_LETTERS, CigarOp, RawRecord, RecordError, SortKey, Tag, packed_tags, reg2bin};
pub use region::{Region, RegionError, SpanSet};
pub use signature::{
    DuplicateCounts, EndSignature, NO_READ_GROUP, Orientation, PairSignature, ReadLocation, end_flags, pair_flags,
};
pub use span::{ContigId, Locus, Span};
