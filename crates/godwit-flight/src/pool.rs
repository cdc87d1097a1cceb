//! Several nodes that give the same data: which one a stream goes to, and what becomes of it when that node is lost.
//!
//! [`Picker`] decides: reports of nodes, requests and the time go in, a node for each request comes out. [`Membership`] is a server's
//! side: it asks the other nodes how they are, and answers clients that ask which node to use. [`Pool`] is a client's side, and
//! [`PooledRows`] rows that are read on from another node where one is lost.
//!
//! What nodes store, and how they come to have the same, is not known here.

mod machine;
mod membership;
mod messages;
mod meter;
mod names;
mod picker;
mod resume;
mod rows;
mod seats;

pub use membership::{Member, Membership, MembershipOptions};
pub(crate) use messages::{GRANT, PURPOSE, STATUS};
pub use messages::{MemberState, PoolState};
pub use meter::Meter;
pub(crate) use meter::{ConnectionUse, GRANT_HEADER, grant_header};
pub use names::answer_names;
pub use picker::{GrantId, Load, Picker, Policy};
pub(crate) use resume::{Come, RESUME_MARK, Resumption, resumed};
pub use rows::PooledRows;
pub use seats::{Pool, PoolNotice, Seat, Waiting};

#[cfg(test)]
mod tests;
