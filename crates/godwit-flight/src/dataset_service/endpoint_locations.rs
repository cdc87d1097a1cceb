//! The locations of endpoints, where several servers have the same data.

use arrow_flight::FlightEndpoint;
use tonic::metadata::MetadataMap;

use super::DatasetService;
use crate::pool::{MEMBER_LEASE_HEADER, MemberLeaseId};

/// The kind of client that requests locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// A client that a pool assigned to this member: it fetches here.
    Leased,
    /// A client that does not know pools: it fetches from the given locations.
    WithoutPool,
    /// A client that lists datasets, and may fetch none.
    Listing,
}

impl ClientKind {
    /// Determines the kind by the headers.
    pub(super) fn from_metadata(headers: &MetadataMap) -> Self {
        if headers.contains_key(MEMBER_LEASE_HEADER) { Self::Leased } else { Self::WithoutPool }
    }
}

/// The locations of the parts of a dataset.
pub(super) struct EndpointLocations {
    /// Locations in the order of the pool's policy; empty without a pool.
    locations: Vec<String>,
    /// True if parts are distributed over them.
    is_rotated: bool,
}

impl EndpointLocations {
    /// Adds the locations of a part to an endpoint. The list starts at another location for each part.
    pub(super) fn add_to_endpoint(&self, part: usize, endpoint: FlightEndpoint) -> FlightEndpoint {
        let count = self.locations.len();
        let first = if self.is_rotated { part % count.max(1) } else { 0 };
        let locations = self.locations.iter().cycle().skip(first).take(count);
        locations.fold(endpoint, |endpoint, location| endpoint.with_location(location))
    }
}

impl DatasetService {
    /// Returns the locations for a client; `id` identifies the lease, and is sent with the fetch.
    pub(super) async fn endpoint_locations(&self, client: ClientKind, id: MemberLeaseId) -> EndpointLocations {
        let locations = match (&self.inner.pool, client) {
            (Some(pool), ClientKind::Leased) => pool.locations_from_self(),
            (Some(pool), ClientKind::WithoutPool) => pool.lease_locations(id).await,
            (Some(_), ClientKind::Listing) | (None, _) => Vec::new(),
        };
        EndpointLocations { locations, is_rotated: client == ClientKind::WithoutPool }
    }
}
