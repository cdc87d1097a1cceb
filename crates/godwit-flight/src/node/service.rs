//! The calls that move no data, as a tonic service.

use std::pin::Pin;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    IpcMessage, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use futures_util::{Stream, StreamExt as _, stream};
use tonic::{Request, Response, Status, Streaming};

use super::placing::Asker;
use super::{DatasetCommand, Node, blocking};
use crate::gate::{Caller, Session, shown_token};

type Reply<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Who calls, as the server found out before.
fn caller<T>(request: &Request<T>) -> Caller {
    request.extensions().get().cloned().unwrap_or_default()
}

/// Data go another way.
fn elsewhere() -> Status {
    Status::internal("a bug in godwit: data were asked of the service that has none")
}

#[tonic::async_trait]
impl FlightService for Node {
    type HandshakeStream = Reply<HandshakeResponse>;
    type ListFlightsStream = Reply<FlightInfo>;
    type DoGetStream = Reply<FlightData>;
    type DoPutStream = Reply<PutResult>;
    type DoExchangeStream = Reply<FlightData>;
    type DoActionStream = Reply<arrow_flight::Result>;
    type ListActionsStream = Reply<ActionType>;

    /// Whoever comes here was let in: what it showed, also as a password, is exchanged for a session, which is shown as a bearer's token from
    /// then on. Where there is nothing to exchange, it is told to go on with the token that it came with.
    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let session = Session::of(&caller(&request)).map(|session| session.token(&self.inner.key));
        let headers = request.metadata().clone().into_headers();
        let token = session.or_else(|| String::from_utf8(shown_token(&headers)?).ok());
        let mut messages = request.into_inner();
        let first = messages.message().await?.unwrap_or_default();
        let answer = HandshakeResponse { protocol_version: first.protocol_version, payload: first.payload };
        let mut response = Response::new(Box::pin(stream::iter([Ok(answer)])) as Reply<_>);
        if let Some(shown) = token.and_then(|token| format!("Bearer {token}").parse().ok()) {
            response.metadata_mut().insert("authorization", shown);
        }
        Ok(response)
    }

    /// Datasets whose names begin with the criteria's expression. One that cannot be opened is listed without columns, and with
    /// the reason.
    async fn list_flights(&self, request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let caller = caller(&request);
        let prefix = String::from_utf8_lossy(&request.into_inner().expression).into_owned();
        let catalog = self.catalog(&caller);
        let listed = blocking(move || Ok(catalog.names()?)).await;
        let mut names = self.ended(&caller, "ListFlights", prefix.clone(), listed).await?;
        names.retain(|name| name.starts_with(&prefix));
        let node = self.clone();
        let infos = stream::iter(names).then(move |name| {
            let (node, caller) = (node.clone(), caller.clone());
            async move {
                let descriptor = FlightDescriptor::new_path(vec![name.clone()]);
                let command = DatasetCommand { dataset: name, ..DatasetCommand::default() };
                match node.dataset_info(&caller, descriptor.clone(), command, Asker::Looking).await {
                    Ok(info) => Ok(info),
                    Err(status) => {
                        let info = FlightInfo::new().try_with_schema(&Schema::empty());
                        let info = info.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?;
                        Ok(info.with_descriptor(descriptor).with_app_metadata(status.message().to_owned()))
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(infos)))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let (caller, asker) = (caller(&request), Asker::of(request.metadata()));
        Ok(Response::new(self.told(&caller, "GetFlightInfo", request.into_inner(), asker).await?))
    }

    /// Everything is there at once: statements are run when their rows are fetched.
    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        let (caller, asker) = (caller(&request), Asker::of(request.metadata()));
        let info = self.told(&caller, "PollFlightInfo", request.into_inner(), asker).await?;
        let poll = PollInfo::new().with_info(info).try_with_progress(1.0);
        Ok(Response::new(poll.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let caller = caller(&request);
        let what = self.what_is_described(&caller, request.get_ref());
        let schema = self.schema_of(&caller, request.get_ref()).await;
        let schema = self.ended(&caller, "GetSchema", what, schema).await?;
        let message: Result<IpcMessage, _> = SchemaAsIpc::new(&schema, &IpcWriteOptions::default()).try_into();
        let message = message.map_err(|error| Status::internal(format!("a bug in godwit: {error}")))?;
        Ok(Response::new(SchemaResult { schema: message.0 }))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let caller = caller(&request);
        let results = self.act(&caller, request.into_inner()).await?;
        Ok(Response::new(Box::pin(stream::iter(results.into_iter().map(Ok)))))
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Ok(Response::new(Box::pin(stream::iter(super::actions::types().into_iter().map(Ok)))))
    }

    async fn do_get(&self, _request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        Err(elsewhere())
    }

    async fn do_put(&self, _request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        Err(elsewhere())
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(elsewhere())
    }
}
