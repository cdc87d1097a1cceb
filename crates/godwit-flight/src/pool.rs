//! A pool of servers with the same data: load balancing, and failover when a pool member is lost.
//!
//! [`LoadBalancer`] selects a member for each request, from the loads that the members report. [`Membership`] runs in
//! each server of the pool: it probes the other members and assigns clients to members. [`Pool`] is used by clients.
//! [`PooledRows`] are the rows of a download that continues at another member when its member is lost.
//!
//! This module does not keep the data of the members equal; the operator of the pool is responsible for that.

mod connection_counter;
mod dns;
mod host_load;
mod load_balancer;
mod member_lease;
mod membership;
mod messages;
mod pooled_rows;
mod resume;

pub use crate::lease_header::MemberLeaseId;
pub use connection_counter::ConnectionCounter;
pub(crate) use connection_counter::ConnectionUse;
pub use dns::serve_dns;
pub use load_balancer::{BalancingPolicy, Load, LoadBalancer};
pub use member_lease::{MemberLease, Pool, PoolNotice, WaitOptions};
pub use membership::{Member, Membership, MembershipOptions};
pub use messages::{MemberState, PoolState};
pub(crate) use messages::{POOL_LEASE_ACTION, POOL_SCOPE, POOL_STATUS_ACTION};
pub use pooled_rows::PooledRows;
pub(crate) use resume::resume_download;

#[cfg(test)]
mod tests;
