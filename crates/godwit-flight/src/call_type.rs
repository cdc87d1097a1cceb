//! The type of a call, by which metrics and traces name it.

use godwit_dataset::web::{
    API_PREFIX, FILE_DATA_PATH, NFS_HEALTH_PATH, READS_PREFIX, REFERENCES_PREFIX, SEQUENCE_PREFIX, SITE_PREFIX,
    SQL_PATH, VARIANTS_PREFIX,
};

/// HTTP path at which the server returns its metrics.
pub(crate) const METRICS_PATH: &str = "/metrics";

/// The type of a call: an RPC or an HTTP endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum CallType {
    DoGet,
    DoPut,
    DoExchange,
    DoAction,
    GetFlightInfo,
    GetSchema,
    ListFlights,
    ListActions,
    Handshake,
    Health,
    Metrics,
    /// An htsget request for a ticket or for service information.
    Htsget,
    /// A download of file bytes by an htsget ticket.
    HtsgetData,
    /// A refget request for a sequence by its digest, or for the list of references.
    Refget,
    /// An SQL statement over plain HTTP.
    Sql,
    /// The web page of the server, or the API that the page uses.
    Page,
    /// A call of any other RPC or path.
    Other,
}

impl CallType {
    pub(crate) const ALL: [(Self, &str); 17] = [
        (Self::DoGet, "DoGet"),
        (Self::DoPut, "DoPut"),
        (Self::DoExchange, "DoExchange"),
        (Self::DoAction, "DoAction"),
        (Self::GetFlightInfo, "GetFlightInfo"),
        (Self::GetSchema, "GetSchema"),
        (Self::ListFlights, "ListFlights"),
        (Self::ListActions, "ListActions"),
        (Self::Handshake, "Handshake"),
        (Self::Health, "Health"),
        (Self::Metrics, "Metrics"),
        (Self::Htsget, "Htsget"),
        (Self::HtsgetData, "HtsgetData"),
        (Self::Refget, "Refget"),
        (Self::Sql, "Sql"),
        (Self::Page, "Page"),
        (Self::Other, "Other"),
    ];

    /// Returns the type of a call by the path of its HTTP request.
    pub(crate) fn from_path(path: &str) -> Self {
        if let Some(method) = path.strip_prefix("/arrow.flight.protocol.FlightService/") {
            let found = Self::ALL[..=Self::Handshake as usize].iter().find(|(_, name)| *name == method);
            return found.map_or(Self::Other, |(call_type, _)| *call_type);
        }
        match path {
            METRICS_PATH => Self::Metrics,
            FILE_DATA_PATH => Self::HtsgetData,
            SQL_PATH => Self::Sql,
            "/healthz" | NFS_HEALTH_PATH => Self::Health,
            health if health.starts_with("/grpc.health.v1.Health/") => Self::Health,
            page if page.starts_with(READS_PREFIX) || page.starts_with(VARIANTS_PREFIX) => Self::Htsget,
            page if page.starts_with(SEQUENCE_PREFIX) => Self::Refget,
            page if page.starts_with(REFERENCES_PREFIX) => Self::Refget,
            page if page == "/" || page.starts_with(SITE_PREFIX) || page.starts_with(API_PREFIX) => Self::Page,
            _ => Self::Other,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_types_are_named_in_the_order_of_their_numbers() {
        for (at, (call_type, name)) in CallType::ALL.iter().enumerate() {
            assert_eq!((*call_type as usize, call_type.name()), (at, *name));
        }
        assert_eq!(CallType::from_path("/arrow.flight.protocol.FlightService/DoGet"), CallType::DoGet);
        assert_eq!(CallType::from_path("/arrow.flight.protocol.FlightService/Metrics"), CallType::Other);
        assert_eq!(CallType::from_path("/reads/a/b.bam"), CallType::Htsget);
        assert_eq!(CallType::from_path("/sequence/service-info"), CallType::Refget);
        assert_eq!(CallType::from_path("/healthz/nfs"), CallType::Health);
        assert_eq!(CallType::from_path("/healthz/nfsx"), CallType::Other);
        assert_eq!(CallType::from_path("/sql"), CallType::Sql);
        assert_eq!(CallType::from_path("/sqlx"), CallType::Other);
    }
}
