//! The progress of statements, which clients request by `PollFlightInfo`.
//!
//! A statement runs while its rows are downloaded, and the server does not store them. So the first response has the
//! ticket of all rows, and for a statement of the SQL engine a descriptor for further polls. A poll reports how much of
//! the statement is done while a download of the ticket runs. If no download runs, the response has no descriptor,
//! which ends polling.

use std::time::Duration;

use arrow_flight::{FlightDescriptor, FlightInfo, PollInfo};
use bytes::Bytes;
use godwit_dataset::Principal;
use prost::Message as _;
use tokio::time::Instant;
use tonic::Status;

use super::DatasetService;
use crate::tickets::TicketClaims;

/// Prefix of the command of descriptors for polls. The flight info of the statement follows.
const POLL_PREFIX: &[u8] = b"gwp1.";
/// Maximum time that a poll waits for progress, or for the start of a download.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Time between two checks of the progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Change of the progress that a poll waits for.
const MIN_CHANGE: f32 = 0.01;

/// Returns the encoded flight info in a descriptor for polls; `None` for other descriptors.
pub(super) fn polled_info(descriptor: &FlightDescriptor) -> Option<Bytes> {
    descriptor.cmd.starts_with(POLL_PREFIX).then(|| descriptor.cmd.slice(POLL_PREFIX.len()..))
}

impl DatasetService {
    /// Returns the first response for this flight info.
    pub(super) fn first_poll(&self, principal: &Principal, info: FlightInfo) -> Result<PollInfo, Status> {
        let is_computed = self.engine_statement_ticket(principal, &info).is_ok();
        poll_info(info, is_computed.then_some(0.0))
    }

    /// Returns the response to a further poll, after the progress has changed or some time has passed.
    pub(super) async fn poll_again(&self, principal: &Principal, encoded: Bytes) -> Result<PollInfo, Status> {
        let info = FlightInfo::decode(encoded);
        let info = info.map_err(|_| Status::invalid_argument("the descriptor to poll cannot be parsed"))?;
        let ticket_id = self.engine_statement_ticket(principal, &info)?;
        let until = Instant::now() + MAX_WAIT;
        let mut first = None;
        loop {
            let current = self.inner.streams.progress(ticket_id);
            let has_changed = match (first, current) {
                (Some(first), Some(current)) => current - first >= MIN_CHANGE,
                (Some(_), None) => true,
                (None, _) => false,
            };
            if has_changed || Instant::now() >= until {
                return poll_info(info, current);
            }
            first = first.or(current);
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Returns the identifier of the ticket of a statement that the SQL engine runs.
    fn engine_statement_ticket(&self, principal: &Principal, info: &FlightInfo) -> Result<u64, Status> {
        let ticket = info.endpoint.first().and_then(|endpoint| endpoint.ticket.as_ref());
        let ticket = ticket.map(|ticket| &ticket.ticket[..]).unwrap_or_default();
        let claims = TicketClaims::verify(ticket, &self.inner.ticket_key, principal).map_err(|error| *error)?;
        match (&claims.part, &claims.statement) {
            (None, Some(_)) => Ok(claims.id),
            _ => Err(Status::invalid_argument("the descriptor to poll has no ticket of a statement")),
        }
    }
}

/// Returns a response that reports this progress of a running statement, or the end of polling.
fn poll_info(info: FlightInfo, progress: Option<f32>) -> Result<PollInfo, Status> {
    let command = [POLL_PREFIX, &info.encode_to_vec()].concat();
    let poll = PollInfo::new().with_info(info);
    let poll = match progress {
        Some(_) => poll.with_descriptor(FlightDescriptor::new_cmd(command)),
        None => poll,
    };
    let poll = poll.try_with_progress(progress.map_or(1.0, f64::from));
    poll.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use arrow_array::RecordBatch;
    use arrow_flight::sql::{Command, CommandStatementQuery};
    use arrow_schema::Schema;
    use godwit_dataset::{Catalog, Dataset, DatasetError};

    use super::super::endpoint_locations::ClientKind;
    use super::*;
    use crate::call_streams::StatusFuture;
    use crate::dataset_service::DatasetServiceOptions;
    use crate::server::DataPlane as _;
    use crate::sql::{SqlEngine, StatementDescription, StatementProgress, StatementResult};

    /// An engine that executes statements without end, and reports this percentage as their progress.
    struct EndlessEngine(Arc<AtomicU32>);

    impl SqlEngine for EndlessEngine {
        fn describe_statement(
            &self,
            _: &Principal,
            _: String,
            _: Option<RecordBatch>,
        ) -> StatusFuture<'_, StatementDescription> {
            let schema = Arc::new(Schema::empty());
            Box::pin(async { Ok(StatementDescription { schema: schema.clone(), parameters: schema }) })
        }

        fn execute(
            &self,
            _: &Principal,
            _: String,
            _: Option<RecordBatch>,
            progress: StatementProgress,
        ) -> StatusFuture<'_, StatementResult> {
            let done = self.0.clone();
            progress.provide(move || done.load(Ordering::Relaxed) as f32 / 100.0);
            Box::pin(std::future::pending())
        }
    }

    #[derive(Debug)]
    struct NoDatasets;

    impl Catalog for NoDatasets {
        fn names(&self) -> Result<Vec<String>, DatasetError> {
            Ok(Vec::new())
        }

        fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
            Err(DatasetError::NotFound { name: name.to_owned() })
        }
    }

    #[tokio::test]
    async fn polls_report_the_progress_of_a_running_download_to_its_principal() {
        let done = Arc::new(AtomicU32::new(25));
        let engine = Arc::new(EndlessEngine(done.clone()));
        let service = DatasetService::new(Arc::new(NoDatasets), Some(engine), DatasetServiceOptions::default());
        let principal = Principal::default();
        let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
        let command = Command::CommandStatementQuery(query).into_any().encode_to_vec();
        let info = service.build_flight_info(&principal, FlightDescriptor::new_cmd(command), ClientKind::Listing);
        let info = info.await.unwrap();
        let ticket = info.endpoint[0].ticket.clone().unwrap().ticket;
        let poll = service.first_poll(&principal, info.clone()).unwrap();
        assert_eq!((poll.progress, poll.info.as_ref()), (Some(0.0), Some(&info)));
        let next = polled_info(&poll.flight_descriptor.unwrap()).unwrap();
        let poll = service.poll_again(&principal, next.clone()).await.unwrap();
        assert_eq!((poll.progress, poll.flight_descriptor, poll.info), (Some(1.0), None, Some(info)));
        let poll_twice = async {
            for percentage in [25, 75] {
                done.store(percentage, Ordering::Relaxed);
                let poll = service.poll_again(&principal, next.clone()).await.unwrap();
                assert_eq!(poll.progress, Some(f64::from(percentage) / 100.0));
                assert_eq!(polled_info(&poll.flight_descriptor.unwrap()), Some(next.clone()));
            }
        };
        tokio::select! {
            _ = service.download(principal.clone(), ticket) => panic!("the statement does not end"),
            () = poll_twice => {}
        }
        let other = Principal::named("other principal");
        assert_eq!(service.poll_again(&other, next.clone()).await.unwrap_err().code(), tonic::Code::PermissionDenied);
        for wrong in [Bytes::new(), Bytes::from_static(b"\xFF"), next.slice(..next.len() / 2)] {
            assert!(service.poll_again(&principal, wrong).await.is_err());
        }
    }
}
