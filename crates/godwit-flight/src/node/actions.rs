//! What a node does when it is told to, by name.

use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    Any, ProstMessageExt,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightEndpoint, IpcMessage,
    RenewFlightEndpointRequest, SchemaAsIpc, Ticket,
};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use tonic::{Code, Status};

use super::{Node, blocking, refused};
use crate::error_reason::ErrorReason;
use crate::files::FILES_MARK;
use crate::gate::Caller;
use crate::pool::{self, PURPOSE, PoolState};
use crate::server::GRANTED_ONLY;
use crate::tickets::Claim;

const CREATE_PREPARED: &str = "CreatePreparedStatement";
const CLOSE_PREPARED: &str = "ClosePreparedStatement";
const CANCEL: &str = "CancelFlightInfo";
const RENEW: &str = "RenewFlightEndpoint";
const STATUS: &str = "Status";
pub(super) const DROP: &str = "DropDataset";

/// What a server tells of itself.
#[derive(Serialize)]
struct NodeStatus {
    program: &'static str,
    version: &'static str,
    uptime_s: u64,
    open_streams: usize,
    open_uploads: usize,
    prepared_statements: usize,
    writable: bool,
    sql: bool,
    /// The name of who asks; empty where nobody is asked for one.
    caller: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<PoolState>,
}

/// Names and meanings.
pub(super) fn types() -> Vec<ActionType> {
    let of = |name: &str, meaning: &str| ActionType { r#type: name.to_owned(), description: meaning.to_owned() };
    vec![
        of(CREATE_PREPARED, "Names a statement, to run it more than once, with values for its parameters (Flight SQL)"),
        of(CLOSE_PREPARED, "Forgets a prepared statement (Flight SQL)"),
        of(
            CANCEL,
            "Ends what flight info was given for, also rows that are being fetched; its tickets are good no more",
        ),
        of(RENEW, "Makes a ticket good for as long again"),
        of(STATUS, "Says in JSON what the server is and does"),
        of(pool::STATUS, "Says in JSON how busy a node of a pool is"),
        of(pool::GRANT, "Says which nodes of a pool to use, in this order; the body is JSON with an id"),
        of(DROP, "Removes a dataset that was put by a client; the body is its name"),
    ]
}

impl Node {
    pub(super) async fn act(&self, caller: &Caller, action: Action) -> Result<Vec<arrow_flight::Result>, Status> {
        let is_pools = caller.purpose().is_none_or(|purpose| purpose == PURPOSE);
        if is_pools && let Some(answer) = self.act_in_pool(&action).await {
            return answer.map(|body| vec![arrow_flight::Result { body: body.into() }]);
        }
        if caller.purpose() == Some(PURPOSE) {
            return Err(Status::permission_denied(GRANTED_ONLY));
        }
        let what = self.what_is_to_be_done(&action);
        let done = self.do_it(caller, action).await;
        self.ended(caller, "DoAction", what, done).await
    }

    async fn do_it(&self, caller: &Caller, action: Action) -> Result<Vec<arrow_flight::Result>, Status> {
        if action.r#type.starts_with(FILES_MARK) {
            let messages = self.files()?.act(caller.clone(), action.r#type, action.body).await?;
            return Ok(messages.into_iter().map(|body| arrow_flight::Result { body }).collect());
        }
        if caller.purpose().is_some() {
            return Err(Status::permission_denied(GRANTED_ONLY));
        }
        let body = match action.r#type.as_str() {
            CREATE_PREPARED => Some(self.create_prepared(caller, &action.body).await?),
            CLOSE_PREPARED => {
                let request: ActionClosePreparedStatementRequest = unpacked(&action.body)?;
                self.inner.statements.close(caller, &request.prepared_statement_handle);
                None
            }
            CANCEL => Some(self.cancel(caller, &action.body)?),
            RENEW => Some(self.renew(caller, &action.body)?),
            STATUS => Some(self.status(caller)?),
            DROP => {
                self.drop_dataset(caller, action.body).await?;
                None
            }
            "BeginTransaction"
            | "EndTransaction"
            | "BeginSavepoint"
            | "EndSavepoint"
            | "CreatePreparedSubstraitPlan"
            | "CancelQuery" => return Err(refused(&action.r#type)),
            other => {
                let problem = format!("there is no action {other:?}; ListActions has them all");
                return Err(ErrorReason::UnknownAction.status(Code::Unimplemented, problem));
            }
        };
        Ok(body.into_iter().map(|body| arrow_flight::Result { body: body.into() }).collect())
    }

    /// What is asked of a node of a pool, where it is one and that is asked.
    async fn act_in_pool(&self, action: &Action) -> Option<Result<Vec<u8>, Status>> {
        let pool = self.inner.pool.as_ref()?;
        match action.r#type.as_str() {
            pool::STATUS => Some(pool.status(action.body.is_empty())),
            pool::GRANT => Some(pool.grant(&action.body).await),
            _ => None,
        }
    }

    async fn create_prepared(&self, caller: &Caller, body: &Bytes) -> Result<Vec<u8>, Status> {
        let request: ActionCreatePreparedStatementRequest = unpacked(body)?;
        if request.transaction_id.is_some_and(|id| !id.is_empty()) {
            return Err(refused("a transaction"));
        }
        let description = self.describe(caller, request.query.clone()).await?;
        let schema = description.schema.clone();
        let handle = self.inner.statements.add(caller, request.query, schema).map_err(|error| *error)?;
        let result = ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.into(),
            dataset_schema: schema_bytes(&description.schema)?,
            parameter_schema: schema_bytes(&description.parameters)?,
        };
        Ok(result.as_any().encode_to_vec())
    }

    fn cancel(&self, caller: &Caller, body: &Bytes) -> Result<Vec<u8>, Status> {
        let request = CancelFlightInfoRequest::decode(body.clone()).map_err(|_| not_understood())?;
        let tickets = request.info.iter().flat_map(|info| &info.endpoint).map(|endpoint| {
            let ticket = endpoint.ticket.as_ref().map(|ticket| &ticket.ticket[..]).unwrap_or_default();
            Claim::check(ticket, &self.inner.key, caller).map_err(|error| *error)
        });
        for claim in tickets.collect::<Result<Vec<_>, _>>()? {
            self.inner.running.end(claim.id, claim.expires_unix_s);
        }
        Ok(CancelFlightInfoResult::new(CancelStatus::Cancelled).encode_to_vec())
    }

    fn status(&self, caller: &Caller) -> Result<Vec<u8>, Status> {
        let inner = &self.inner;
        let state = NodeStatus {
            program: "godwit",
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: inner.started.elapsed().as_secs(),
            open_streams: inner.running.count(),
            open_uploads: inner.options.uploads.max(1) - inner.uploads.available_permits(),
            prepared_statements: inner.statements.count(),
            writable: inner.catalog.is_writable(),
            sql: inner.engine.is_some(),
            caller: caller.name().to_owned(),
            pool: inner.pool.as_ref().map(|pool| pool.state()),
        };
        serde_json::to_vec(&state).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
    }

    async fn drop_dataset(&self, caller: &Caller, name: Bytes) -> Result<(), Status> {
        let name = String::from_utf8(name.into()).map_err(|_| not_understood())?;
        let catalog = self.catalog(caller);
        blocking(move || Ok(catalog.remove(&name)?)).await
    }

    fn renew(&self, caller: &Caller, body: &Bytes) -> Result<Vec<u8>, Status> {
        let request = RenewFlightEndpointRequest::decode(body.clone()).map_err(|_| not_understood())?;
        let endpoint = request.endpoint.unwrap_or_default();
        let ticket = endpoint.ticket.as_ref().map(|ticket| &ticket.ticket[..]).unwrap_or_default();
        let old = Claim::check(ticket, &self.inner.key, caller).map_err(|error| *error)?;
        let fresh =
            Claim { expires_unix_s: Claim::new(caller, self.inner.options.ticket_lifetime).expires_unix_s, ..old };
        let renewed = FlightEndpoint { ticket: Some(Ticket::new(fresh.sign(&self.inner.key))), ..endpoint };
        Ok(renewed.encode_to_vec())
    }
}

fn not_understood() -> Status {
    Status::invalid_argument("the body of the action is not understood")
}

/// The message in an action of Flight SQL.
fn unpacked<M: ProstMessageExt>(body: &Bytes) -> Result<M, Status> {
    let any = Any::decode(body.clone()).map_err(|_| not_understood())?;
    any.unpack().ok().flatten().ok_or_else(not_understood)
}

fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    message.map(|message| message.0).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}
