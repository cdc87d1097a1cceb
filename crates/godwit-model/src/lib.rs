//! The nouns of godwit and every Arrow schema that crosses a process or crate border.
//!
//! No I/O, no async, no threads: everything here is a value. Positions are 0-based and half-open
//! ([`Locus`], [`Span`]); 1-based numbers exist only where text is read or printed.

mod block;
pub mod flags;
mod genome;
mod partition;
mod record;
pub mod schema;
mod signature;
mod span;

pub use block::{BlockId, RecordId};
pub use genome::{Contig, Genome, GenomeError};
pub use partition::{PartitionId, PartitionPlan};
pub use record::{BASE_LETTERS, CigarOp, RawRecord, RecordError, SortKey, Tag, reg2bin};
pub use signature::{
    DuplicateCounts, EndSignature, NO_READ_GROUP, Orientation, PairSignature, ReadLocation, end_flags, pair_flags,
};
pub use span::{ContigId, Locus, Span};
