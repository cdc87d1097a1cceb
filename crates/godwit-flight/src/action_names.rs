//! Names of the actions (`DoAction`) that clients and the data server use.

pub(crate) const CREATE_PREPARED_STATEMENT: &str = "CreatePreparedStatement";
pub(crate) const CLOSE_PREPARED_STATEMENT: &str = "ClosePreparedStatement";
pub(crate) const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";
pub(crate) const RENEW_FLIGHT_ENDPOINT: &str = "RenewFlightEndpoint";
pub(crate) const DROP_DATASET: &str = "DropDataset";
/// The action that returns the state of the server as JSON.
pub const SERVER_STATUS: &str = "Status";
