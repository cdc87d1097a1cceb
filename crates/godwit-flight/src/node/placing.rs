//! Where clients are told to fetch what they asked for, where several servers have it.

use arrow_flight::FlightEndpoint;
use tonic::metadata::MetadataMap;

use super::Node;
use crate::pool::{GRANT_HEADER, GrantId};

/// Who asks where something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// A client that a pool sent here: it fetches here.
    Seated,
    /// One that knows nothing of pools: it fetches from the locations it is told.
    Stock,
    /// One that looks at what there is, and may fetch nothing.
    Looking,
}

impl Asker {
    /// Who sends these headers.
    pub(super) fn of(headers: &MetadataMap) -> Self {
        if headers.contains_key(GRANT_HEADER) { Self::Seated } else { Self::Stock }
    }
}

/// Where the parts of something are.
pub(super) struct Places {
    /// In the order of the pool's policy; none where there is no pool.
    locations: Vec<String>,
    /// Whether parts are spread over them.
    spread: bool,
}

impl Places {
    /// An endpoint with the locations of a part. Each part begins with another one.
    pub(super) fn of(&self, part: usize, endpoint: FlightEndpoint) -> FlightEndpoint {
        let count = self.locations.len();
        let first = if self.spread { part % count.max(1) } else { 0 };
        let locations = self.locations.iter().cycle().skip(first).take(count);
        locations.fold(endpoint, |endpoint, location| endpoint.with_location(location))
    }
}

impl Node {
    /// Where something is; `id`: a number that is shown where it is fetched.
    pub(super) async fn places(&self, asker: Asker, id: GrantId) -> Places {
        let locations = match (&self.inner.pool, asker) {
            (Some(pool), Asker::Seated) => pool.locations_from_here(),
            (Some(pool), Asker::Stock) => pool.locations_for(id).await,
            (Some(_), Asker::Looking) | (None, _) => Vec::new(),
        };
        Places { locations, spread: asker == Asker::Stock }
    }
}
