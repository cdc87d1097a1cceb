//! The Flight actions (`DoAction`) of the data server.

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
use godwit_dataset::Principal;
use prost::Message;
use serde::Serialize;
use tonic::{Code, Status};

use super::{DatasetService, run_blocking, unsupported};
use crate::action_names::{
    CANCEL_FLIGHT_INFO, CLOSE_PREPARED_STATEMENT, CREATE_PREPARED_STATEMENT, DROP_DATASET, RENEW_FLIGHT_ENDPOINT,
    SERVER_STATUS,
};
use crate::error::dataset_status;
use crate::error_reason::ErrorReason;
use crate::file_service::FILES_PREFIX;
use crate::pool::{self, POOL_SCOPE, PoolState};
use crate::server::OUT_OF_SCOPE;
use crate::tickets::{BoundStatement, TicketClaims};

/// The response to the action `Status`.
#[derive(Serialize)]
struct ServerStatus {
    program: &'static str,
    version: &'static str,
    uptime_s: u64,
    open_streams: usize,
    open_uploads: usize,
    prepared_statements: usize,
    writable: bool,
    sql: bool,
    /// Name of the principal that requests the status; empty if authentication is disabled.
    #[serde(rename = "caller")]
    principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<PoolState>,
}

/// Returns the names and descriptions of all actions, for `ListActions`.
pub(super) fn action_types() -> Vec<ActionType> {
    let of = |name: &str, meaning: &str| ActionType { r#type: name.to_owned(), description: meaning.to_owned() };
    vec![
        of(
            CREATE_PREPARED_STATEMENT,
            "Creates a prepared statement, to be run repeatedly with values for its parameters (Flight SQL)",
        ),
        of(CLOSE_PREPARED_STATEMENT, "Closes a prepared statement (Flight SQL)"),
        of(CANCEL_FLIGHT_INFO, "Cancels flight info and its running downloads; its tickets become invalid"),
        of(RENEW_FLIGHT_ENDPOINT, "Renews a ticket for the same lifetime"),
        of(SERVER_STATUS, "Returns the status of the server as JSON"),
        of(pool::POOL_STATUS_ACTION, "Returns the load of a pool member as JSON"),
        of(pool::POOL_LEASE_ACTION, "Returns the pool members to use, in this order; the body is JSON with an id"),
        of(DROP_DATASET, "Removes a dataset that a client uploaded; the body is its name"),
    ]
}

impl DatasetService {
    pub(super) async fn run_action(
        &self,
        principal: &Principal,
        action: Action,
    ) -> Result<Vec<arrow_flight::Result>, Status> {
        let is_pools = principal.scope().is_none_or(|purpose| purpose == POOL_SCOPE);
        if is_pools && let Some(answer) = self.run_pool_action(&action).await {
            return answer.map(|body| vec![arrow_flight::Result { body: body.into() }]);
        }
        if principal.scope() == Some(POOL_SCOPE) {
            return Err(Status::permission_denied(OUT_OF_SCOPE));
        }
        let resource = self.action_resource(&action);
        let done = self.dispatch_action(principal, action).await;
        self.record_outcome(principal, "DoAction", resource, done).await
    }

    async fn dispatch_action(
        &self,
        principal: &Principal,
        action: Action,
    ) -> Result<Vec<arrow_flight::Result>, Status> {
        if action.r#type.starts_with(FILES_PREFIX) {
            let messages = self.file_service()?.run_action(principal.clone(), action.r#type, action.body).await?;
            return Ok(messages.into_iter().map(|body| arrow_flight::Result { body }).collect());
        }
        if principal.scope().is_some() {
            return Err(Status::permission_denied(OUT_OF_SCOPE));
        }
        let body = match action.r#type.as_str() {
            CREATE_PREPARED_STATEMENT => Some(self.create_prepared_statement(principal, &action.body).await?),
            CLOSE_PREPARED_STATEMENT => {
                let request: ActionClosePreparedStatementRequest = unpack_request(&action.body)?;
                self.inner.prepared_statements.close(principal, &request.prepared_statement_handle);
                None
            }
            CANCEL_FLIGHT_INFO => Some(self.cancel_flight_info(principal, &action.body)?),
            RENEW_FLIGHT_ENDPOINT => Some(self.renew_endpoint(principal, &action.body)?),
            SERVER_STATUS => Some(self.server_status(principal)?),
            DROP_DATASET => {
                self.drop_dataset(principal, action.body).await?;
                None
            }
            "BeginTransaction"
            | "EndTransaction"
            | "BeginSavepoint"
            | "EndSavepoint"
            | "CreatePreparedSubstraitPlan"
            | "CancelQuery" => return Err(unsupported(&action.r#type)),
            other => {
                let problem = format!("action {other:?} does not exist; see ListActions");
                return Err(ErrorReason::UnknownAction.status(Code::Unimplemented, problem));
            }
        };
        Ok(body.into_iter().map(|body| arrow_flight::Result { body: body.into() }).collect())
    }

    /// Runs a pool action, such as a lease request. `None` for other actions, and if the server is not a pool member.
    async fn run_pool_action(&self, action: &Action) -> Option<Result<Vec<u8>, Status>> {
        let pool = self.inner.pool.as_ref()?;
        match action.r#type.as_str() {
            pool::POOL_STATUS_ACTION => Some(pool.encode_status(action.body.is_empty())),
            pool::POOL_LEASE_ACTION => Some(pool.encode_lease(&action.body).await),
            _ => None,
        }
    }

    async fn create_prepared_statement(&self, principal: &Principal, body: &Bytes) -> Result<Vec<u8>, Status> {
        let request: ActionCreatePreparedStatementRequest = unpack_request(body)?;
        if request.transaction_id.is_some_and(|id| !id.is_empty()) {
            return Err(unsupported("a transaction"));
        }
        let statement = BoundStatement { sql: request.query, parameters: Vec::new() };
        let description = self.describe_statement(principal, &statement).await?;
        let schema = description.schema.clone();
        let handle = self.inner.prepared_statements.add(principal, statement.sql, schema).map_err(|error| *error)?;
        let result = ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.into(),
            dataset_schema: encode_schema(&description.schema)?,
            parameter_schema: encode_schema(&description.parameters)?,
        };
        Ok(result.as_any().encode_to_vec())
    }

    fn cancel_flight_info(&self, principal: &Principal, body: &Bytes) -> Result<Vec<u8>, Status> {
        let request = CancelFlightInfoRequest::decode(body.clone()).map_err(|_| invalid_body_status())?;
        let tickets = request.info.iter().flat_map(|info| &info.endpoint).map(|endpoint| {
            let ticket = endpoint.ticket.as_ref().map(|ticket| &ticket.ticket[..]).unwrap_or_default();
            TicketClaims::verify(ticket, &self.inner.ticket_key, principal).map_err(|error| *error)
        });
        for claim in tickets.collect::<Result<Vec<_>, _>>()? {
            self.inner.streams.cancel(claim.id, claim.expires_unix_s);
        }
        Ok(CancelFlightInfoResult::new(CancelStatus::Cancelled).encode_to_vec())
    }

    fn server_status(&self, principal: &Principal) -> Result<Vec<u8>, Status> {
        let inner = &self.inner;
        let state = ServerStatus {
            program: "godwit",
            version: env!("CARGO_PKG_VERSION"),
            uptime_s: inner.started.elapsed().as_secs(),
            open_streams: inner.streams.open_streams(),
            open_uploads: inner.options.max_uploads.max(1) - inner.upload_slots.available_permits(),
            prepared_statements: inner.prepared_statements.count(),
            writable: inner.catalog.is_writable(),
            sql: inner.sql_engine.is_some(),
            principal: principal.name().to_owned(),
            pool: inner.pool.as_ref().map(|pool| pool.pool_state()),
        };
        serde_json::to_vec(&state).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
    }

    async fn drop_dataset(&self, principal: &Principal, name: Bytes) -> Result<(), Status> {
        let name = String::from_utf8(name.into()).map_err(|_| invalid_body_status())?;
        let catalog = self.authorized_catalog(principal);
        run_blocking(move || catalog.remove(&name).map_err(dataset_status)).await
    }

    fn renew_endpoint(&self, principal: &Principal, body: &Bytes) -> Result<Vec<u8>, Status> {
        let request = RenewFlightEndpointRequest::decode(body.clone()).map_err(|_| invalid_body_status())?;
        let endpoint = request.endpoint.unwrap_or_default();
        let ticket = endpoint.ticket.as_ref().map(|ticket| &ticket.ticket[..]).unwrap_or_default();
        let old = TicketClaims::verify(ticket, &self.inner.ticket_key, principal).map_err(|error| *error)?;
        let fresh = TicketClaims {
            expires_unix_s: TicketClaims::new(principal, self.inner.options.ticket_lifetime).expires_unix_s,
            ..old
        };
        let renewed = FlightEndpoint { ticket: Some(Ticket::new(fresh.sign(&self.inner.ticket_key))), ..endpoint };
        Ok(renewed.encode_to_vec())
    }
}

fn invalid_body_status() -> Status {
    Status::invalid_argument("the body of the action cannot be parsed")
}

/// Decodes the protobuf message in the body of a Flight SQL action.
fn unpack_request<M: ProstMessageExt>(body: &Bytes) -> Result<M, Status> {
    let any = Any::decode(body.clone()).map_err(|_| invalid_body_status())?;
    any.unpack().ok().flatten().ok_or_else(invalid_body_status)
}

/// Encodes a schema as an Arrow IPC message.
pub(super) fn encode_schema(schema: &Schema) -> Result<Bytes, Status> {
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    message.map(|message| message.0).map_err(|error| Status::internal(format!("a bug in godwit: {error}")))
}
