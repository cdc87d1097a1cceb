//! The tonic service for all Flight calls except DoGet, DoPut and DoExchange.

use std::pin::Pin;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use arrow_schema::Schema;
use futures_util::{Stream, StreamExt as _, stream};
use godwit_dataset::Principal;
use tonic::{Request, Response, Status, Streaming};

use super::actions::encode_schema;
use super::endpoint_locations::ClientKind;
use super::polling::polled_info;
use super::{DatasetCommand, DatasetService, flight_info_with_schema, run_blocking};
use crate::error::dataset_status;
use godwit_auth::{Session, request_token};

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Returns the principal that the server has authenticated before it forwarded the request.
fn request_principal<T>(request: &Request<T>) -> Principal {
    request.extensions().get().cloned().unwrap_or_default()
}

/// Returns the error for DoGet, DoPut and DoExchange, which the server never forwards to this service.
fn data_plane_only() -> Status {
    Status::internal("a bug in godwit: a data call reached the metadata service")
}

#[tonic::async_trait]
impl FlightService for DatasetService {
    type HandshakeStream = ResponseStream<HandshakeResponse>;
    type ListFlightsStream = ResponseStream<FlightInfo>;
    type DoGetStream = ResponseStream<FlightData>;
    type DoPutStream = ResponseStream<PutResult>;
    type DoExchangeStream = ResponseStream<FlightData>;
    type DoActionStream = ResponseStream<arrow_flight::Result>;
    type ListActionsStream = ResponseStream<ActionType>;

    /// Returns a session token for the credential of the client, which may be a password. The client sends this token
    /// as bearer token in later calls. If no session can be issued, returns the token of the request.
    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let session =
            Session::issue(&request_principal(&request)).map(|session| session.to_token(&self.inner.ticket_key));
        let headers = request.metadata().clone().into_headers();
        let token = session.or_else(|| String::from_utf8(request_token(&headers)?).ok());
        let mut messages = request.into_inner();
        let first = messages.message().await?.unwrap_or_default();
        let answer = HandshakeResponse { protocol_version: first.protocol_version, payload: first.payload };
        let mut response = Response::new(Box::pin(stream::iter([Ok(answer)])) as ResponseStream<_>);
        if let Some(shown) = token.and_then(|token| format!("Bearer {token}").parse().ok()) {
            response.metadata_mut().insert("authorization", shown);
        }
        Ok(response)
    }

    /// Lists datasets whose names begin with the expression of the criteria. A dataset that cannot be opened is listed
    /// without columns, and with the error message.
    async fn list_flights(&self, request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let principal = request_principal(&request);
        let prefix = String::from_utf8_lossy(&request.into_inner().expression).into_owned();
        let catalog = self.authorized_catalog(&principal);
        let listed = run_blocking(move || catalog.names().map_err(dataset_status)).await;
        let mut names = self.record_outcome(&principal, "ListFlights", prefix.clone(), listed).await?;
        names.retain(|name| name.starts_with(&prefix));
        let service = self.clone();
        let infos = stream::iter(names).then(move |name| {
            let (service, principal) = (service.clone(), principal.clone());
            async move {
                let descriptor = FlightDescriptor::new_path(vec![name.clone()]);
                let command = DatasetCommand { dataset: name, ..DatasetCommand::default() };
                match service.dataset_info(&principal, descriptor.clone(), command, ClientKind::Listing).await {
                    Ok(info) => Ok(info),
                    Err(status) => {
                        let info = flight_info_with_schema(descriptor, &Schema::empty())?;
                        Ok(info.with_app_metadata(status.message().to_owned()))
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(infos)))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let (principal, client) = (request_principal(&request), ClientKind::from_metadata(request.metadata()));
        Ok(Response::new(self.flight_info(&principal, "GetFlightInfo", request.into_inner(), client).await?))
    }

    /// Returns the complete flight info to the first poll. Further polls get the progress of the statement while a client
    /// downloads its rows.
    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        let (principal, client) = (request_principal(&request), ClientKind::from_metadata(request.metadata()));
        let descriptor = request.into_inner();
        if let Some(encoded) = polled_info(&descriptor) {
            return Ok(Response::new(self.poll_again(&principal, encoded).await?));
        }
        let info = self.flight_info(&principal, "PollFlightInfo", descriptor, client).await?;
        Ok(Response::new(self.first_poll(&principal, info)?))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let principal = request_principal(&request);
        let resource = self.descriptor_resource(&principal, request.get_ref());
        let schema = self.descriptor_schema(&principal, request.get_ref()).await;
        let schema = self.record_outcome(&principal, "GetSchema", resource, schema).await?;
        Ok(Response::new(SchemaResult { schema: encode_schema(&schema)? }))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let principal = request_principal(&request);
        let results = self.run_action(&principal, request.into_inner()).await?;
        Ok(Response::new(Box::pin(stream::iter(results.into_iter().map(Ok)))))
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Ok(Response::new(Box::pin(stream::iter(super::actions::action_types().into_iter().map(Ok)))))
    }

    async fn do_get(&self, _request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        Err(data_plane_only())
    }

    async fn do_put(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(data_plane_only())
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(data_plane_only())
    }
}
