//! The locations of endpoints in flight info, if a pool of servers has the same data.

use arrow_flight::FlightEndpoint;
use tonic::metadata::MetadataMap;

use super::DatasetService;
use crate::lease_header::{MEMBER_LEASE_HEADER, MemberLeaseId};

/// The kind of client that requests flight info.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// A client that the pool assigned to this member, and that therefore downloads from this member.
    Leased,
    /// A client without support for pools, which downloads from the locations in the flight info.
    WithoutPool,
    /// A client that lists datasets, and may not download any.
    Listing,
}

impl ClientKind {
    /// Determines the kind of client by the headers of its request.
    pub(super) fn from_metadata(headers: &MetadataMap) -> Self {
        if headers.contains_key(MEMBER_LEASE_HEADER) { Self::Leased } else { Self::WithoutPool }
    }
}

/// The locations of the parts of a dataset.
pub(super) struct EndpointLocations {
    /// Locations of pool members, the preferred one first; empty without a pool.
    locations: Vec<String>,
    /// True if the parts are distributed over the locations.
    is_rotated: bool,
}

impl EndpointLocations {
    /// Adds the locations to the endpoint of a part. If `is_rotated`, the list starts with a different location for
    /// each part.
    pub(super) fn add_to_endpoint(&self, part: usize, endpoint: FlightEndpoint) -> FlightEndpoint {
        let count = self.locations.len();
        let first = if self.is_rotated { part % count.max(1) } else { 0 };
        let locations = self.locations.iter().cycle().skip(first).take(count);
        locations.fold(endpoint, |endpoint, location| endpoint.with_location(location))
    }
}

impl DatasetService {
    /// Returns the locations for a client. `id` identifies the lease; the ticket that the client sends later contains
    /// it.
    pub(super) async fn endpoint_locations(&self, client: ClientKind, id: MemberLeaseId) -> EndpointLocations {
        let locations = match (&self.inner.pool, client) {
            (Some(pool), ClientKind::Leased) => pool.locations_from_self(),
            (Some(pool), ClientKind::WithoutPool) => pool.lease_locations(id).await,
            (Some(_), ClientKind::Listing) | (None, _) => Vec::new(),
        };
        EndpointLocations { locations, is_rotated: client == ClientKind::WithoutPool }
    }
}
