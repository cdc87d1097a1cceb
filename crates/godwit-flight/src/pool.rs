//! Several servers of the same data as one: load balancing, and failover when a pool member is lost.
//!
//! [`LoadBalancer`] decides: reports of members, requests and the time go in; a member for each request is returned.
//! [`Membership`] is a server's side: it probes the other members, and assigns clients to members. [`Pool`] is a client's
//! side, and [`PooledRows`] are rows whose reading continues at another member when one is lost.
//!
//! What members store, and how their data are kept equal, is not known here.

mod connection_counter;
mod dns;
mod host_load;
mod load_balancer;
mod member_lease;
mod membership;
mod messages;
mod pooled_rows;
mod resume;

pub use connection_counter::ConnectionCounter;
pub(crate) use connection_counter::{ConnectionUse, MEMBER_LEASE_HEADER, format_lease_header};
pub use dns::serve_dns;
pub use load_balancer::{BalancingPolicy, Load, LoadBalancer, MemberLeaseId};
pub use member_lease::{MemberLease, Pool, PoolNotice, WaitOptions};
pub use membership::{Member, Membership, MembershipOptions};
pub use messages::{MemberState, PoolState};
pub(crate) use messages::{POOL_LEASE_ACTION, POOL_SCOPE, POOL_STATUS_ACTION};
pub use pooled_rows::PooledRows;
pub(crate) use resume::{RESUME_TICKET_PREFIX, ResumePoint, StreamProgress, resume_download};

#[cfg(test)]
mod tests;
