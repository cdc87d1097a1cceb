//! Tests of both ends against each other and against stock ones.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BinaryArray, DictionaryArray, Int64Array, RecordBatch, StringArray};
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightClient, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt, stream};
use godwit_auth::Token;
use godwit_dataset::Principal;
use godwit_flight::{
    Address, BatchItem, Client, ClientTls, ConnectionSecurity, DataPlane, Download, ExchangeStream, FlightError,
    FlightStreamChunk, PutResultStream, Server, ServerTls, TlsError, TransportOptions, Upload,
};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::pb::health_check_response::ServingStatus as HealthStatus;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

#[path = "flight/connection_limits.rs"]
mod connection_limits;

type Reply<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Makes batches with numbers, strings, nulls and a dictionary that grows.
fn batches(count: usize, rows: usize) -> Vec<RecordBatch> {
    let batch = |index: usize| {
        let from = (index * rows) as i64;
        let numbers = Int64Array::from_iter_values(from..from + rows as i64);
        let names = StringArray::from_iter((0..rows).map(|row| (row % 7 != 3).then(|| format!("read{index}/{row}"))));
        let records = BinaryArray::from_iter_values((0..rows).map(|row| vec![row as u8; row % 50]));
        let groups: DictionaryArray<Int32Type> =
            (0..rows).map(|row| ["a", "b", "c"][(row + index) % (1 + index % 3)]).collect();
        let columns: [(&str, ArrayRef, bool); 4] = [
            ("number", Arc::new(numbers), false),
            ("name", Arc::new(names), true),
            ("record", Arc::new(records), false),
            ("group", Arc::new(groups), false),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
    };
    (0..count).map(batch).collect()
}

/// Sends what tickets name: `COUNTxROWS`, `empty`, `fails` (after one batch), `endless`; receives uploads and answers each
/// batch with its metadata and rows.
struct Plane;

impl DataPlane for Plane {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        let text = String::from_utf8_lossy(&ticket).into_owned();
        let schema: SchemaRef = batches(1, 1)[0].schema();
        let items: Vec<Result<BatchItem, Status>> = match (text.as_str(), text.split_once('x')) {
            ("empty", _) => Vec::new(),
            ("fails", _) => {
                vec![Ok((batches(1, 10).remove(0), Bytes::new())), Err(Status::data_loss("a block is damaged"))]
            }
            ("endless", _) => {
                let batch = batches(1, 100_000).remove(0);
                let batches = stream::repeat_with(move || Ok((batch.clone(), Bytes::new())));
                return Ok(Download { schema, batches: Box::pin(batches) });
            }
            (_, Some((count, rows))) => {
                let parse = |text: &str| text.parse().map_err(|_| Status::invalid_argument("no number"));
                let batches = batches(parse(count)?, parse(rows)?).into_iter().enumerate();
                batches.map(|(index, batch)| Ok((batch, Bytes::from(index.to_string())))).collect()
            }
            _ => return Err(Status::not_found(format!("no data {text}; ask for 3x100"))),
        };
        Ok(Download { schema, batches: Box::pin(stream::iter(items)) })
    }

    async fn upload(&self, _: Principal, upload: Upload) -> Result<PutResultStream, Status> {
        Ok(Box::pin(stream::try_unfold(upload, |mut upload| async move {
            let Some(item) = upload.next().await? else { return Ok(None) };
            let rows = item.batch.map_or(0, |batch| batch.num_rows());
            let name = upload.descriptor().map(|descriptor| descriptor.path.join("/")).unwrap_or_default();
            let metadata = String::from_utf8_lossy(&item.app_metadata).into_owned();
            Ok(Some((Bytes::from(format!("{name} {metadata} {rows}")), upload)))
        })))
    }

    /// Echoes everything; `refuse` is an error after the first.
    async fn exchange(&self, _: Principal, upload: Upload) -> Result<ExchangeStream, Status> {
        Ok(Box::pin(stream::try_unfold(upload, |mut upload| async move {
            let Some(chunk) = upload.next().await? else { return Ok(None) };
            match &chunk.app_metadata[..] {
                b"refuse" => Err(Status::failed_precondition("it was asked to")),
                _ => Ok(Some((chunk, upload))),
            }
        })))
    }
}

/// A stock service that has only a schema, and `DoGet` and `DoPut` as in stock servers.
struct Stock;

#[tonic::async_trait]
impl FlightService for Stock {
    type HandshakeStream = Reply<HandshakeResponse>;
    type ListFlightsStream = Reply<FlightInfo>;
    type DoGetStream = Reply<FlightData>;
    type DoPutStream = Reply<PutResult>;
    type DoExchangeStream = Reply<FlightData>;
    type DoActionStream = Reply<arrow_flight::Result>;
    type ListActionsStream = Reply<ActionType>;

    async fn list_flights(&self, _: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        let info = FlightInfo::new().with_descriptor(FlightDescriptor::new_path(vec!["one".into()]));
        Ok(Response::new(Box::pin(stream::iter([Ok(info)]))))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let download = Plane.download(Principal::default(), request.into_inner().ticket).await?;
        let batches = download.batches.map_ok(|(batch, _)| batch).map_err(Into::into);
        let encoder = arrow_flight::encode::FlightDataEncoderBuilder::new().with_schema(download.schema);
        Ok(Response::new(Box::pin(encoder.build(batches).map_err(Into::into))))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        let messages = request.into_inner().map_err(Into::into);
        let batches = arrow_flight::decode::FlightRecordBatchStream::new_from_flight_data(messages);
        let answers = batches.map_ok(|batch| PutResult { app_metadata: batch.num_rows().to_string().into() });
        Ok(Response::new(Box::pin(answers.map_err(Into::into))))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        Err(Status::unimplemented("handshake"))
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        Err(Status::unimplemented("get_flight_info"))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(Status::unimplemented("poll_flight_info"))
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        Err(Status::unimplemented("get_schema"))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }

    async fn do_action(&self, _: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        Err(Status::unimplemented("do_action"))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        Err(Status::unimplemented("list_actions"))
    }
}

/// Starts our server on any port, or at `address`.
async fn serve(address: Option<Address>, security: ConnectionSecurity<ServerTls>) -> Address {
    let address = address.unwrap_or(Address::Tcp(([127, 0, 0, 1], 0).into()));
    let rest = tonic::service::Routes::new(FlightServiceServer::new(Stock));
    let server = Server::bind(&address, Plane, rest, security, TransportOptions::default()).await.expect("a free port");
    let address = server.address().clone();
    tokio::spawn(server.serve());
    address
}

async fn connect(address: &Address) -> Client {
    Client::connect(address, ConnectionSecurity::default(), TransportOptions::default())
        .await
        .expect("the server is there")
}

fn url(address: &Address) -> String {
    format!("http://{address}")
}

/// Starts a stock server on any port.
async fn serve_stock() -> Address {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = Address::Tcp(listener.local_addr().expect("it has an address"));
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(FlightServiceServer::new(Stock));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn stock_client(address: &Address) -> FlightClient {
    let endpoint = tonic::transport::Endpoint::new(url(address)).expect("an address");
    FlightClient::new(endpoint.connect().await.expect("the server is there"))
}

async fn download(client: &Client, ticket: &str) -> Result<Vec<(RecordBatch, Bytes)>, FlightError> {
    let mut batches = client.download(ticket.to_owned()).await?;
    let mut found = Vec::new();
    while let Some(item) = batches.next().await? {
        found.push(item);
    }
    assert!(batches.schema().is_some(), "a download has a schema, with or without batches");
    Ok(found)
}

#[tokio::test]
async fn what_is_downloaded_is_what_was_there_over_tcp_and_unix_sockets() {
    let directory = tempfile::tempdir().unwrap();
    for address in [None, Some(Address::Unix(directory.path().join("socket")))] {
        let client = connect(&serve(address, ConnectionSecurity::default()).await).await;
        for (ticket, expected) in [("5x1000", batches(5, 1000)), ("2x200000", batches(2, 200_000)), ("empty", vec![])] {
            let found = download(&client, ticket).await.unwrap();
            let metadata: Vec<Bytes> = (0..expected.len()).map(|index| index.to_string().into()).collect();
            let (batches, found_metadata): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            assert!(batches == expected, "{ticket}");
            assert_eq!(found_metadata, metadata);
        }
    }
}

#[tokio::test]
async fn a_stock_client_downloads_uploads_and_lists() {
    let mut client = stock_client(&serve(None, ConnectionSecurity::default()).await).await;
    let found: Vec<RecordBatch> = client.do_get(Ticket::new("3x5000")).await.unwrap().try_collect().await.unwrap();
    assert!(found == batches(3, 5000));
    let descriptor = FlightDescriptor::new_path(vec!["a".into(), "b".into()]);
    let messages = arrow_flight::encode::FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor))
        .build(stream::iter(batches(2, 30).into_iter().map(Ok)));
    let answers: Vec<PutResult> = client.do_put(messages).await.unwrap().try_collect().await.unwrap();
    let answers: Vec<&[u8]> = answers.iter().map(|answer| &answer.app_metadata[..]).collect();
    assert_eq!(answers, [b"a/b  30", b"a/b  30"]);
    let flights: Vec<FlightInfo> = client.list_flights(Bytes::new()).await.unwrap().try_collect().await.unwrap();
    assert_eq!(flights.len(), 1);
}

#[tokio::test]
async fn our_client_talks_to_a_stock_server() {
    let client = connect(&serve_stock().await).await;
    let found = download(&client, "4x20000").await.unwrap();
    let found: Vec<RecordBatch> = found.into_iter().map(|(batch, _)| batch).collect();
    // Stock encoders expand dictionaries; the values are the same.
    let plain = |batch: &RecordBatch| batch.project(&[0, 1, 2]).unwrap();
    assert!(found.iter().map(plain).eq(batches(4, 20_000).iter().map(plain)));
    assert!(
        matches!(download(&client, "fails").await, Err(FlightError::Status { status, .. }) if status.code() == Code::DataLoss)
    );
    assert_eq!(upload(&client, 3, 100).await.unwrap(), ["100", "100", "100"]);
}

async fn upload(client: &Client, count: usize, rows: usize) -> Result<Vec<String>, FlightError> {
    let batches = batches(count, rows);
    let descriptor = FlightDescriptor::new_path(vec!["x".into()]);
    let (mut sender, answers) = client.upload(&descriptor, &batches[0].schema())?;
    let sending = async {
        for (index, batch) in batches.iter().enumerate() {
            sender.send(batch, format!("m{index}").as_bytes()).await?;
        }
        sender.finish().await
    };
    let taking = async {
        let mut answers = answers.await?;
        let mut found = Vec::new();
        while let Some(answer) = answers.next().await? {
            found.push(String::from_utf8_lossy(&answer).into_owned());
        }
        Ok::<_, FlightError>(found)
    };
    let (sent, taken) = tokio::join!(sending, taking);
    sent.and(taken)
}

#[tokio::test]
async fn each_batch_of_an_upload_is_answered() {
    let client = connect(&serve(None, ConnectionSecurity::default()).await).await;
    assert_eq!(upload(&client, 3, 50_000).await.unwrap(), ["x m0 50000", "x m1 50000", "x m2 50000"]);
}

/// Sends metadata alone, then every batch with or without metadata, and returns the received messages.
async fn exchange(
    client: &Client,
    batches: &[RecordBatch],
    app_metadata: &[u8],
) -> Result<Vec<FlightStreamChunk>, FlightError> {
    let descriptor = FlightDescriptor::new_cmd("echo");
    let (mut sender, given) = client.exchange(&descriptor, &batches[0].schema())?;
    let sending = async {
        sender.send_metadata(app_metadata).await?;
        for (index, batch) in batches.iter().enumerate() {
            let app_metadata = if index % 2 == 0 { Vec::new() } else { index.to_string().into_bytes() };
            sender.send(batch, &app_metadata).await?;
        }
        sender.finish().await
    };
    let taking = async {
        let mut given = given.await?;
        let mut chunks = Vec::new();
        while let Some(chunk) = given.next_chunk().await? {
            chunks.push(chunk);
        }
        Ok::<_, FlightError>(chunks)
    };
    let (sent, taken) = tokio::join!(sending, taking);
    taken.and_then(|chunks| sent.map(|()| chunks))
}

#[tokio::test]
async fn exchanged_batches_return_with_their_metadata_from_our_server_and_a_stock_one() {
    let ours = serve(None, ConnectionSecurity::default()).await;
    let stock = serve_stock().await;
    // More than the windows of both directions hold, so that neither end may wait until the other is done.
    let batches = batches(40, 20_000);
    for address in [ours, stock] {
        let chunks = exchange(&connect(&address).await, &batches, b"first").await.unwrap();
        let first = &chunks[0];
        assert!(first.batch.is_none() && first.app_metadata == b"first"[..]);
        assert!(chunks[1..].iter().map(|chunk| chunk.batch.as_ref().unwrap()).eq(&batches));
        let app_metadata: Vec<&[u8]> = chunks[1..].iter().map(|chunk| &chunk.app_metadata[..]).collect();
        assert_eq!(app_metadata[..4], [&b""[..], b"1", b"", b"3"]);
    }
}

#[tokio::test]
async fn a_stock_client_exchanges_and_a_failure_in_an_exchange_reaches_the_client() {
    let address = serve(None, ConnectionSecurity::default()).await;
    let sent = batches(3, 5000);
    let messages = arrow_flight::encode::FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(FlightDescriptor::new_cmd("echo")))
        .build(stream::iter(sent.clone().into_iter().map(Ok)));
    let given = stock_client(&address).await.do_exchange(messages).await.unwrap();
    let given: Vec<RecordBatch> = given.try_collect().await.unwrap();
    let plain = |batch: &RecordBatch| batch.project(&[0, 1, 2]).unwrap();
    assert!(given.iter().map(plain).eq(sent.iter().map(plain)));
    let refused = exchange(&connect(&address).await, &sent, b"refuse").await;
    assert!(matches!(refused, Err(FlightError::Status { status, .. }) if status.code() == Code::FailedPrecondition));
}

/// A data plane with the methods that it must have.
struct MinimalPlane;

impl DataPlane for MinimalPlane {
    async fn download(&self, _: Principal, _: Bytes) -> Result<Download, Status> {
        Err(Status::not_found("this server has no data"))
    }

    async fn upload(&self, _: Principal, _: Upload) -> Result<PutResultStream, Status> {
        Err(Status::unimplemented("this server stores no data"))
    }
}

#[tokio::test]
async fn a_server_without_exchange_returns_unimplemented() {
    let (rest, any) = (tonic::service::Routes::default(), Address::Tcp(([127, 0, 0, 1], 0).into()));
    let server = Server::bind(&any, MinimalPlane, rest, ConnectionSecurity::default(), TransportOptions::default())
        .await
        .unwrap();
    let address = server.address().clone();
    tokio::spawn(server.serve());
    let refused = exchange(&connect(&address).await, &batches(1, 10), b"anything").await;
    assert!(matches!(refused, Err(FlightError::Status { status, .. }) if status.code() == Code::Unimplemented));
}

#[tokio::test]
async fn failures_reach_the_client_with_code_and_message() {
    let address = serve(None, ConnectionSecurity::default()).await;
    let client = connect(&address).await;
    for (ticket, code, words) in
        [("nonsense", Code::NotFound, "ask for 3x100"), ("fails", Code::DataLoss, "a block is damaged")]
    {
        let Err(FlightError::Status { status, peer }) = download(&client, ticket).await else { panic!("{ticket}") };
        assert_eq!((status.code(), peer), (code, address.to_string()));
        assert!(status.message().contains(words), "{status}");
    }
    let mut stock = stock_client(&address).await;
    let failed = stock.do_get(Ticket::new("fails")).await.unwrap().try_collect::<Vec<_>>().await;
    assert!(failed.unwrap_err().to_string().contains("a block is damaged"));
}

#[tokio::test]
async fn a_refused_call_ends_with_its_headers() {
    let token = Token::new("s3cret").unwrap();
    let open = serve(None, ConnectionSecurity::default()).await;
    let closed = serve(None, ConnectionSecurity { token: Some(token), tls: None }).await;
    for (address, method, code) in [(&open, "Handshake", "12"), (&open, "DoGet", "3"), (&closed, "DoGet", "16")] {
        let stream = tokio::net::TcpStream::connect(address.to_string()).await.unwrap();
        let executor = hyper_util::rt::TokioExecutor::new();
        let handshake = hyper::client::conn::http2::handshake(executor, hyper_util::rt::TokioIo::new(stream));
        let (mut requests, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post(format!("http://godwit/arrow.flight.protocol.FlightService/{method}"))
            .header("content-type", "application/grpc")
            .body(tonic::body::Body::empty());
        let response = requests.send_request(request.unwrap()).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], code, "{method}");
        assert!(http_body::Body::is_end_stream(response.body()), "{method}");
    }
}

#[tokio::test]
async fn calls_without_the_token_are_rejected() {
    let token = Token::new("s3cret").unwrap();
    let address = serve(None, ConnectionSecurity { token: Some(token.clone()), tls: None }).await;
    for wrong in [None, Token::new("s3cre"), Token::new("s3cretx")] {
        let client =
            Client::connect(&address, ConnectionSecurity { token: wrong, tls: None }, TransportOptions::default())
                .await
                .unwrap();
        let Err(FlightError::Status { status, .. }) = download(&client, "1x1").await else { panic!("let in") };
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    let mut stock = stock_client(&address).await;
    assert!(stock.list_flights(Bytes::new()).await.is_err());
    let client =
        Client::connect(&address, ConnectionSecurity { token: Some(token), tls: None }, TransportOptions::default())
            .await
            .unwrap();
    assert_eq!(download(&client, "1x1").await.unwrap().len(), 1);
    stock.add_header("authorization", "Bearer s3cret").unwrap();
    assert!(stock.list_flights(Bytes::new()).await.is_ok());
}

#[tokio::test]
async fn a_missing_server_and_an_address_in_use_return_different_errors() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    drop(listener);
    let refused = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await;
    assert!(matches!(refused, Err(FlightError::Connect { .. })));
    let taken = serve(None, ConnectionSecurity::default()).await;
    let rest = tonic::service::Routes::default();
    let second = Server::bind(&taken, Plane, rest, ConnectionSecurity::default(), TransportOptions::default()).await;
    assert!(matches!(second, Err(FlightError::Listen { .. })));
}

#[tokio::test]
async fn a_download_that_is_dropped_stops_and_leaves_the_connection_fit() {
    let client = connect(&serve(None, ConnectionSecurity::default()).await).await;
    for _ in 0..20 {
        let mut batches = client.download("endless").await.unwrap();
        assert!(batches.next().await.unwrap().is_some());
    }
    assert_eq!(download(&client, "2x10").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused() {
    let client = connect(&serve(None, ConnectionSecurity::default()).await).await;
    let options = TransportOptions { message_limit_bytes: 10_000, ..TransportOptions::default() };
    let small =
        Client::connect(&serve(None, ConnectionSecurity::default()).await, ConnectionSecurity::default(), options)
            .await
            .unwrap();
    assert!(matches!(download(&small, "1x100000").await, Err(FlightError::TooLarge { .. })));
    assert_eq!(download(&client, "1x100000").await.unwrap().len(), 1);
}

/// Creates a self-signed certificate for `localhost`, and its key.
fn create_identity(directory: &std::path::Path, name: &str) -> (std::path::PathBuf, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate can be made");
    let (certificate, key) = (directory.join(format!("{name}.pem")), directory.join(format!("{name}.key")));
    std::fs::write(&certificate, made.cert.pem()).expect("it can be written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("it can be written");
    (certificate, key)
}

#[tokio::test]
async fn encrypted_connections_carry_the_same_data_and_trust_only_known_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let ((certificate, key), (other, other_key)) =
        (create_identity(directory.path(), "server"), create_identity(directory.path(), "other"));
    let tls = ServerTls::from_files(&certificate, &key, Some(&other)).unwrap();
    let address = serve(None, ConnectionSecurity { token: None, tls: Some(tls) }).await;
    let known = Some((other.as_path(), other_key.as_path()));
    let connect = async |authority: &std::path::Path, name: &str, identity| {
        let tls = ClientTls::from_files(authority, name, identity).unwrap();
        let client =
            Client::connect(&address, ConnectionSecurity { token: None, tls: Some(tls) }, TransportOptions::default())
                .await?;
        download(&client, "3x40000").await
    };
    let found = connect(&certificate, "localhost", known).await.unwrap();
    assert!(found.into_iter().map(|(batch, _)| batch).eq(batches(3, 40_000)));
    for (authority, name) in [(&other, "localhost"), (&certificate, "elsewhere")] {
        let refused = connect(authority, name, known).await;
        assert!(matches!(refused, Err(FlightError::UntrustedCertificate { .. })), "{name}: {refused:?}");
    }
    let unknown = connect(&certificate, "localhost", None).await;
    assert!(matches!(unknown, Err(FlightError::Connect { .. } | FlightError::Connection { .. })));
    let plain = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await.unwrap();
    let refused = download(&plain, "1x1").await;
    assert!(matches!(refused, Err(FlightError::TlsRequired { .. })), "without TLS: {refused:?}");
}

#[test]
fn files_that_hold_no_certificate_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = create_identity(directory.path(), "server");
    let missing = directory.path().join("missing.pem");
    for (certificate, key, named) in
        [(&missing, &key, &missing), (&key, &key, &key), (&certificate, &certificate, &certificate)]
    {
        let Err(TlsError::File { path, .. }) = ServerTls::from_files(certificate, key, None) else { panic!("taken") };
        assert_eq!(&path, named);
    }
    let (_, other_key) = create_identity(directory.path(), "other");
    assert!(matches!(
        ServerTls::from_files(&certificate, &other_key, None),
        Err(TlsError::UnusableCertificates { .. })
    ));
    assert!(matches!(ClientTls::from_files(&certificate, "no name", None), Err(TlsError::InvalidServerName { .. })));
}

/// The client is that of another crate: a stock implementation of gRPC's health checking protocol.
#[tokio::test]
async fn health_checks_are_answered_without_a_token_until_the_server_stops() {
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let security = ConnectionSecurity { token: Some(Token::new("a-token-that-is-long-enough").unwrap()), tls: None };
    let rest = tonic::service::Routes::new(FlightServiceServer::new(Stock));
    let server = Server::bind(&any, Plane, rest, security, TransportOptions::default()).await.expect("a free port");
    let address = server.address().clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let drained = tokio::spawn(server.serve_until(async move { drop(stopped.await) }, Duration::from_secs(60)));
    let channel = tonic::transport::Endpoint::new(url(&address)).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel);
    let of = |service: &str| HealthCheckRequest { service: service.into() };
    for service in ["", "arrow.flight.protocol.FlightService"] {
        let answer = health.check(of(service)).await.expect("no token is asked for").into_inner();
        assert_eq!(answer.status(), HealthStatus::Serving);
    }
    assert_eq!(health.check(of("another")).await.unwrap_err().code(), Code::NotFound);
    // Other calls are rejected without a token.
    let refused = download(&connect(&address).await, "1x1").await.unwrap_err();
    assert!(refused.to_string().contains("token"), "{refused}");
    let mut watched = health.watch(of("")).await.unwrap().into_inner();
    assert_eq!(watched.message().await.unwrap().expect("it is told at once").status(), HealthStatus::Serving);
    stop.send(()).unwrap();
    assert_eq!(watched.message().await.unwrap().expect("the end is told").status(), HealthStatus::NotServing);
    assert!(watched.message().await.unwrap().is_none());
    assert_eq!(drained.await.unwrap(), 0, "a watch kept its connection open");
}

#[tokio::test]
async fn an_http_health_check_succeeds_without_grpc() {
    let guarded = ConnectionSecurity { token: Token::new("a-token"), tls: None };
    let Address::Tcp(address) = serve(None, guarded).await else { panic!("it is served over TCP") };
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let socket = hyper_util::rt::TokioIo::new(socket);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, socket).await.unwrap();
    tokio::spawn(connection);
    for (method, code, text) in [
        ("GET", 200, "SERVING\n"),
        ("HEAD", 200, ""),
        ("POST", 405, "this path accepts only the methods GET and HEAD\n"),
    ] {
        let request = http::Request::builder().method(method).uri(format!("http://{address}/healthz"));
        let response = sender.send_request(request.body(String::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), code, "{method}");
        let mut body = std::pin::pin!(response.into_body());
        let mut read = Vec::new();
        while let Some(frame) =
            std::future::poll_fn(|context| http_body::Body::poll_frame(body.as_mut(), context)).await
        {
            read.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
        }
        assert_eq!(read, text.as_bytes(), "{method}");
    }
}
