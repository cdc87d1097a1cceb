//! Both ends of the network of a run, against each other.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_cluster::{
    ClusterCredentials, CommandSender, ConnectionError, DownloadBatches, DownloadSource, HeadEndpoint, HeadEvent,
    JobMessages, WorkerConnection, bytes_batch,
};
use godwit_fleet::WorkerId;
use godwit_flight::{Code, FlightError};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const EVENT_TIMEOUT: Duration = Duration::from_secs(150);

/// The messages of a test: the task, commands and events are numbers, uploads have names.
enum TestMessages {}

impl JobMessages for TestMessages {
    const NAME: &'static str = "test";
    type Task = BTreeMap<String, u32>;
    type Command = u32;
    type Event = u32;
    type Upload = String;
    type Ticket = Vec<u16>;
}

/// The task of a test, as the worker receives it: with the name of the job.
#[derive(Debug, PartialEq, serde::Deserialize)]
struct TestTask {
    work: String,
    a: u32,
}

/// A source that returns the requested numbers, a batch each, and fails for numbers from 3.
struct NumberSource;

impl DownloadSource for NumberSource {
    type Ticket = Vec<u16>;

    fn open(&self, ticket: &Vec<u16>) -> io::Result<DownloadBatches> {
        if ticket.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let batches = ticket.clone().into_iter().map(|number| match number {
            3.. => Err(io::Error::other("the disk is gone")),
            number => {
                Ok((bytes_batch::batch_from_bytes(vec![number as u8; 3_000_000]), Bytes::from(number.to_string())))
            }
        });
        Ok(DownloadBatches { schema: bytes_batch::schema(), batches: Box::new(batches) })
    }
}

struct TestCluster {
    head: HeadEndpoint<TestMessages>,
    credentials: ClusterCredentials,
    _directory: tempfile::TempDir,
}

impl TestCluster {
    fn open() -> Self {
        let directory = tempfile::tempdir().expect("scratch space");
        let credentials = test_credentials(directory.path(), "secret");
        let head = HeadEndpoint::listen(
            SocketAddr::new(LOCALHOST, 0),
            credentials.server_access.clone(),
            Arc::new(NumberSource),
        )
        .expect("it can listen");
        Self { head, credentials, _directory: directory }
    }

    fn join(&mut self) -> (WorkerConnection, WorkerId, CommandSender<TestMessages>) {
        let node = WorkerConnection::join(self.head.address(), self.credentials.clone(), "1.2.3", "one")
            .expect("it is let in");
        match self.next_event() {
            HeadEvent::WorkerJoined { worker: id, version, name, commands } => {
                assert_eq!((version.as_str(), name.as_str()), ("1.2.3", "one"));
                (node, id, commands)
            }
            _ => panic!("something else came first"),
        }
    }

    fn next_event(&mut self) -> HeadEvent<TestMessages> {
        self.head.next_event(EVENT_TIMEOUT).expect("something is on its way")
    }
}

fn test_credentials(directory: &Path, token: &str) -> ClusterCredentials {
    ClusterCredentials::create_certificate(directory).expect("a certificate can be made");
    ClusterCredentials::load(token, directory).expect("it can be read")
}

#[test]
fn events_uploads_commands_and_the_disconnection_arrive() {
    let mut run = TestCluster::open();
    let (node, id, orders) = run.join();
    assert!(orders.accept(id, &BTreeMap::from([("a".to_owned(), 1)])));
    let (accepted, task) = node.wait_for_task::<TestTask>().unwrap();
    assert_eq!((accepted, task), (id, TestTask { work: "test".to_owned(), a: 1 }));
    let endpoint = node.endpoint::<TestMessages>(id);
    assert!(orders.send(&5));
    assert_eq!(endpoint.next_command().unwrap(), Some(5));
    orders.finish();
    assert_eq!(endpoint.next_command().unwrap(), None);
    endpoint.send_event(7).unwrap();
    assert!(matches!(run.next_event(), HeadEvent::Reported(from, 7) if from == id));
    // A piece of several batches, an empty one, and one of a few bytes.
    let pieces = [vec![1; 5_000_000], vec![], vec![2; 3]];
    std::thread::scope(|scope| {
        let giving = scope.spawn(|| {
            let buffers = pieces.iter().map(Buffer::from_slice_ref).collect();
            endpoint.upload("part".to_owned(), buffers)
        });
        let HeadEvent::Uploaded(from, description, found) = run.next_event() else { panic!("no upload") };
        assert_eq!((from, description.as_str()), (id, "part"));
        assert!(found.iter().map(|piece| piece.as_slice()).eq(pieces.iter().map(Vec::as_slice)));
        giving.join().unwrap().unwrap();
    });
    drop(node);
    assert!(matches!(run.next_event(), HeadEvent::WorkerLost(from, _) if from == id));
}

#[test]
fn downloads_arrive_in_order_and_fail_when_the_source_fails() {
    let mut run = TestCluster::open();
    let (node, id, _) = run.join();
    let endpoint = node.endpoint::<TestMessages>(id);
    let fetch = |shares: &[u16]| {
        let mut incoming = endpoint.download_from_worker(run.head.address(), &shares.to_vec())?;
        let mut found = Vec::new();
        while let Some((batch, said)) = incoming.next_batch()? {
            assert!(bytes_batch::batch_as_bytes(&batch).iter().all(|byte| u16::from(*byte) == shares[found.len()]));
            found.push(String::from_utf8(said.to_vec()).unwrap());
        }
        Ok::<_, ConnectionError>(found)
    };
    assert_eq!(fetch(&[2, 0, 1]).unwrap(), ["2", "0", "1"]);
    let error = fetch(&[0, 3]).unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert!(matches!(endpoint.download_from_head(&Vec::new()), Err(ConnectionError::Flight(_))), "there are none");
}

#[test]
fn uploads_of_a_disconnected_worker_are_rejected() {
    let mut run = TestCluster::open();
    let (first, id, _) = run.join();
    drop(first);
    assert!(matches!(run.next_event(), HeadEvent::WorkerLost(..)));
    let (second, other, _) = run.join();
    assert_ne!(id, other);
    let lost = second.endpoint::<TestMessages>(id);
    let refused = lost.upload("part".to_owned(), vec![Buffer::from_slice_ref([1u8; 10])]);
    let refused = refused.unwrap_err();
    let ConnectionError::Flight(FlightError::Status { status, .. }) = &refused else { panic!("{refused}") };
    assert_eq!(status.code(), Code::FailedPrecondition, "{refused}");
}

#[test]
fn workers_without_token_and_certificate_of_the_run_are_rejected() {
    let mut run = TestCluster::open();
    let elsewhere = tempfile::tempdir().unwrap();
    let other_certificate = test_credentials(elsewhere.path(), "secret");
    let joined = WorkerConnection::join(run.head.address(), other_certificate, "1.2.3", "stranger");
    assert!(joined.and_then(|node| node.wait_for_task::<TestTask>().map(drop)).is_err());
    let mut other_token = run.credentials.clone();
    other_token.client_access.token = test_credentials(elsewhere.path(), "guessed").client_access.token;
    let joined = WorkerConnection::join(run.head.address(), other_token, "1.2.3", "stranger");
    assert!(joined.and_then(|node| node.wait_for_task::<TestTask>().map(drop)).is_err());
    assert!(run.head.next_event(Duration::from_millis(300)).is_none(), "a stranger was heard");
}

#[test]
fn a_worker_that_waits_for_commands_can_be_woken() {
    let mut run = TestCluster::open();
    let (node, id, _orders) = run.join();
    let endpoint = node.endpoint::<TestMessages>(id);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| endpoint.next_command());
        endpoint.stop_waiting_for_commands();
        assert!(matches!(waiting.join().unwrap(), Err(ConnectionError::HeadLost)));
    });
}
