//! The client of all scenarios: data by godwit's client, the other calls by the stock one.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use arrow_array::RecordBatch;
use arrow_flight::{
    Action, BasicAuth, CancelFlightInfoRequest, CancelStatus, Empty, FlightClient, FlightDescriptor, FlightEndpoint,
    FlightInfo, RenewFlightEndpointRequest, Ticket,
};
use bytes::Bytes;
use futures_util::TryStreamExt;
use godwit_flight::{Address, Client, ConnectionSecurity, FlightError, TransportOptions};
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use crate::data;
use crate::server::{AUTH_HEADER, MIDDLEWARE_HEADER, PASSWORD, REUSE_CONNECTION, USER, numbered_batch, ordered_batch};
use crate::session_messages::{self, CloseResult, OptionValue, Options, SetResult, Texts, Value};

/// Both clients of one server.
pub struct Clients {
    pub ours: Client,
    pub stock: FlightClient,
}

/// Runs the client's part of a scenario.
///
/// # Panics
/// If the server does not behave as specified.
pub async fn run_scenario(scenario: &str, address: &Address) {
    let endpoint = tonic::transport::Endpoint::new(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.expect("the server is there");
    let ours = Client::connect(address, ConnectionSecurity::default(), TransportOptions::default())
        .await
        .expect("the server is there");
    let mut clients = Clients { ours, stock: FlightClient::new(channel) };
    match scenario {
        "" => clients.round_trip().await,
        "auth:basic_proto" => clients.authenticate().await,
        "middleware" => clients.send_headers().await,
        "ordered" => clients.read_in_order().await,
        "expiration_time:do_get" => clients.read_expiring().await,
        "expiration_time:list_actions" => clients.list_actions().await,
        "expiration_time:cancel_flight_info" => clients.cancel().await,
        "expiration_time:renew_flight_endpoint" => clients.renew().await,
        "location:reuse_connection" => clients.reuse_connection().await,
        "poll_flight_info" => clients.poll().await,
        "app_metadata_flight_info_endpoint" => clients.read_metadata().await,
        "flight_sql" => clients.run_sql_scenario().await,
        "flight_sql:extension" => clients.run_extension_scenario().await,
        "flight_sql:ingestion" => clients.ingest().await,
        "session_options" => clients.set_options().await,
        other => panic!("no scenario {other}"),
    }
}

/// Downloads batches and their metadata.
pub async fn download(client: &Client, ticket: &Ticket) -> Result<Vec<(RecordBatch, Bytes)>, FlightError> {
    let mut batches = client.download(ticket.ticket.clone()).await?;
    let mut found = Vec::new();
    while let Some(item) = batches.next().await? {
        found.push(item);
    }
    Ok(found)
}

pub fn ticket(endpoint: &FlightEndpoint) -> &Ticket {
    endpoint.ticket.as_ref().expect("an endpoint has a ticket")
}

fn expiration_time(endpoint: &FlightEndpoint) -> Option<SystemTime> {
    endpoint
        .expiration_time
        .map(|time| SystemTime::UNIX_EPOCH + Duration::new(time.seconds.unsigned_abs(), time.nanos.unsigned_abs()))
}

impl Clients {
    async fn info(&mut self, command: &'static str) -> FlightInfo {
        self.stock.get_flight_info(FlightDescriptor::new_cmd(command)).await.expect("there is information")
    }

    async fn run_action(&mut self, name: &str, body: Vec<u8>) -> Bytes {
        let answers = self.stock.do_action(Action::new(name, body)).await.expect("the action is taken");
        let answers: Vec<Bytes> = answers.try_collect().await.expect("the action is answered");
        assert_eq!(answers.len(), 1, "{name}");
        answers[0].clone()
    }

    /// Uploads, requests flight info, and downloads again.
    async fn round_trip(&mut self) {
        for (name, batches) in [("types", data::batches(&[7, 0, 500])), ("growing", data::growing_dictionary(5))] {
            let descriptor = FlightDescriptor::new_path(vec![name.into()]);
            let (mut sender, answers) = self.ours.upload(&descriptor, &batches[0].schema()).expect("a schema");
            let sending = async {
                for (index, batch) in batches.iter().enumerate() {
                    sender.send(batch, index.to_string().as_bytes()).await?;
                }
                sender.finish().await
            };
            let taking = async {
                let (mut answers, mut said) = (answers.await?, Vec::new());
                while let Some(answer) = answers.next().await? {
                    said.push(String::from_utf8_lossy(&answer).into_owned());
                }
                Ok::<_, FlightError>(said)
            };
            let (sent, said) = tokio::join!(sending, taking);
            sent.expect("all is sent");
            let indices: Vec<String> = (0..batches.len()).map(|index| index.to_string()).collect();
            assert_eq!(said.expect("each batch is answered"), indices);
            let info = self.stock.get_flight_info(descriptor).await.expect("it is known");
            assert_eq!(info.total_records, batches.iter().map(RecordBatch::num_rows).sum::<usize>() as i64);
            let found = download(&self.ours, ticket(&info.endpoint[0])).await.expect("it can be had");
            let (found, said): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            assert!(found == batches, "{name} came back otherwise");
            assert_eq!(said, indices);
        }
    }

    async fn authenticate(&mut self) {
        let refused = match self.stock.do_action(Action::new("", "")).await {
            Ok(answers) => answers.try_collect::<Vec<_>>().await.expect_err("a call without a token is rejected"),
            Err(error) => error,
        };
        let code = |error| tonic::Status::from(error).code();
        assert_eq!(code(refused), Code::Unauthenticated);
        let basic = BasicAuth { username: USER.into(), password: PASSWORD.into() };
        let token = self.stock.handshake(basic.encode_to_vec()).await.expect("the password is right");
        self.stock.metadata_mut().insert_bin(AUTH_HEADER, MetadataValue::from_bytes(&token));
        assert_eq!(self.run_action("", Vec::new()).await, USER);
    }

    async fn send_headers(&mut self) {
        let request = |command: &'static str| {
            let mut request = Request::new(FlightDescriptor::new_cmd(command));
            request.metadata_mut().insert(MIDDLEWARE_HEADER, MetadataValue::from_static("expected value"));
            request
        };
        let client = self.stock.inner_mut();
        let refused = client.get_flight_info(request("")).await.expect_err("it must fail");
        assert_eq!(refused.metadata().get(MIDDLEWARE_HEADER).expect("the header comes back"), "expected value");
        let answered = client.get_flight_info(request("success")).await.expect("it must succeed");
        assert_eq!(answered.metadata().get(MIDDLEWARE_HEADER).expect("the header comes back"), "expected value");
    }

    async fn read_in_order(&mut self) {
        let info = self.info("ordered").await;
        assert!(info.ordered);
        let mut found = Vec::new();
        for endpoint in &info.endpoint {
            assert!(endpoint.location.is_empty());
            found.extend(download(&self.ours, ticket(endpoint)).await.expect("it can be had"));
        }
        let found: Vec<Vec<_>> = found.iter().map(|(batch, _)| batch.columns().to_vec()).collect();
        let expected = ["1", "2", "3"].map(|ticket| ordered_batch(ticket).expect("there is one").columns().to_vec());
        assert_eq!(found, expected);
    }

    async fn read_expiring(&mut self) {
        let info = self.info("expiration_time").await;
        let expiring: Vec<bool> = info.endpoint.iter().map(|endpoint| expiration_time(endpoint).is_some()).collect();
        assert_eq!(expiring, [false, true, true]);
        for (index, endpoint) in info.endpoint.iter().enumerate() {
            let found = download(&self.ours, ticket(endpoint)).await.expect("it is in time");
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].0.columns(), numbered_batch(index as u32).columns());
        }
        let again = download(&self.ours, ticket(&info.endpoint[0])).await;
        assert!(matches!(again, Err(FlightError::Status { .. })), "what does not expire can be had once");
    }

    async fn list_actions(&mut self) {
        let answer = self.stock.inner_mut().list_actions(Empty {}).await.expect("they are listed").into_inner();
        let actions: Vec<_> = answer.try_collect().await.expect("they are listed");
        let mut names: Vec<&str> = actions.iter().map(|action| action.r#type.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["CancelFlightInfo", "RenewFlightEndpoint"]);
    }

    async fn cancel(&mut self) {
        let info = self.info("expiration_time").await;
        let result = self.stock.cancel_flight_info(CancelFlightInfoRequest::new(info.clone())).await;
        assert_eq!(result.expect("it can be cancelled").status(), CancelStatus::Cancelled);
        for endpoint in &info.endpoint {
            let refused = download(&self.ours, ticket(endpoint)).await;
            assert!(matches!(refused, Err(FlightError::Status { .. })), "what is cancelled cannot be had");
        }
    }

    async fn renew(&mut self) {
        let info = self.info("expiration_time").await;
        for endpoint in info.endpoint.iter().filter(|endpoint| endpoint.expiration_time.is_some()) {
            let renewed = self.stock.renew_flight_endpoint(RenewFlightEndpointRequest::new(endpoint.clone())).await;
            assert!(expiration_time(&renewed.expect("it can be renewed")) > expiration_time(endpoint));
        }
    }

    async fn reuse_connection(&mut self) {
        let info = self.info("reuse").await;
        let locations: Vec<&str> = info
            .endpoint
            .iter()
            .flat_map(|endpoint| &endpoint.location)
            .map(|location| location.uri.as_str())
            .collect();
        assert_eq!((info.endpoint.len(), locations), (1, vec![REUSE_CONNECTION]));
    }

    async fn poll(&mut self) {
        let first = self.stock.poll_flight_info(FlightDescriptor::new_cmd("heavy query")).await.expect("it is begun");
        assert!(first.expiration_time.is_some());
        assert!(first.progress.is_some_and(|progress| (0.0..1.0).contains(&progress)), "{first:?}");
        let next = first.flight_descriptor.expect("it is not done");
        let second = self.stock.poll_flight_info(next).await.expect("it goes on");
        assert!(second.flight_descriptor.is_none() && second.expiration_time.is_none(), "{second:?}");
        assert_eq!(second.progress, Some(1.0));
    }

    async fn read_metadata(&mut self) {
        let info = self.info("foobar").await;
        assert_eq!(info.app_metadata, "foobar");
        assert_eq!(info.endpoint.len(), 1);
        assert_eq!(info.endpoint[0].app_metadata, "foobar");
    }

    async fn set_options(&mut self) {
        // The first response names the session.
        let first = self.stock.inner_mut().do_action(Action::new("GetSessionOptions", "")).await.expect("it is taken");
        let cookie = first.metadata().get("set-cookie").expect("a session is begun").to_str().expect("text").to_owned();
        let answers: Vec<arrow_flight::Result> = first.into_inner().try_collect().await.expect("it is answered");
        assert_eq!(Options::decode(&answers[0].body[..]).expect("options"), Options::default());
        let named = cookie.split(';').next().expect("a cookie has a value");
        self.stock.add_header("cookie", named).expect("the cookie is a header");
        let option = |value| OptionValue { value };
        let texts = Texts { values: ["a", "b", " ", "(づ｡◕‿‿◕｡)づ"].map(String::from).to_vec() };
        let kept = HashMap::from([
            ("int".to_owned(), option(Some(Value::Int(123)))),
            ("double".to_owned(), option(Some(Value::Double(456.0)))),
            ("texts".to_owned(), option(Some(Value::Texts(texts)))),
        ]);
        let mut wanted = kept.clone();
        wanted.insert("lol_invalid".into(), option(Some(Value::Bool(true))));
        wanted.insert("wrong".into(), option(Some(Value::Text("lol_invalid".into()))));
        let answer = self.run_action("SetSessionOptions", Options { options: wanted }.encode_to_vec()).await;
        let errors = SetResult::decode(answer).expect("a result").errors;
        let mut errors: Vec<(&str, i32)> = errors.iter().map(|(name, error)| (name.as_str(), error.value)).collect();
        errors.sort_unstable();
        assert_eq!(
            errors,
            [("lol_invalid", session_messages::INVALID_NAME), ("wrong", session_messages::INVALID_VALUE)]
        );
        let answer = self.run_action("GetSessionOptions", Vec::new()).await;
        assert_eq!(Options::decode(answer).expect("options").options, kept);
        let none = HashMap::from([("int".to_owned(), option(None))]);
        self.run_action("SetSessionOptions", Options { options: none }.encode_to_vec()).await;
        let answer = self.run_action("GetSessionOptions", Vec::new()).await;
        let left = Options::decode(answer).expect("options").options;
        assert!(left.len() == 2 && !left.contains_key("int"), "{left:?}");
        let answer = self.run_action("CloseSession", Vec::new()).await;
        assert_eq!(CloseResult::decode(answer).expect("a result").status, session_messages::CLOSED);
    }
}
