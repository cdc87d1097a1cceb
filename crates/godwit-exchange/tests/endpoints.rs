//! Both ends of the network of a run, against each other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_exchange::{
    ClusterCredentials, Command, CommandSender, DownloadBatches, DownloadSource, DownloadTicket, ExchangeError,
    HeadEndpoint, HeadEvent, ShardId, WorkerEndpoint, WorkerEvent, WorkerId, WorkerUpload, bytes_batch,
};
use godwit_flight::{Code, FlightError};
use godwit_model::BlockId;
use serde_json::json;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const EVENT_TIMEOUT: Duration = Duration::from_secs(150);
const BLOCK: BlockId = BlockId { lane: 1, ordinal: 7 };

/// A source that returns the requested number of slices, a batch each, and fails after the third.
struct NumberSource;

impl DownloadSource for NumberSource {
    fn open(&self, ticket: &DownloadTicket) -> io::Result<DownloadBatches> {
        let DownloadTicket::Slices { shards, .. } = ticket else { return Err(io::ErrorKind::NotFound.into()) };
        let batches = shards.clone().into_iter().map(|share| match share.0 {
            3.. => Err(io::Error::other("the disk is gone")),
            number => {
                Ok((bytes_batch::batch_from_bytes(vec![number as u8; 3_000_000]), Bytes::from(number.to_string())))
            }
        });
        Ok(DownloadBatches { schema: bytes_batch::schema(), batches: Box::new(batches) })
    }
}

struct TestCluster {
    head: HeadEndpoint,
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

    fn join(&mut self) -> (WorkerEndpoint, WorkerId, CommandSender) {
        let node =
            WorkerEndpoint::join(self.head.address(), self.credentials.clone(), "1.2.3", "one").expect("it is let in");
        match self.next_event() {
            HeadEvent::WorkerJoined { worker: id, version, name, commands } => {
                assert_eq!((version.as_str(), name.as_str()), ("1.2.3", "one"));
                (node, id, commands)
            }
            _ => panic!("something else came first"),
        }
    }

    fn next_event(&mut self) -> HeadEvent {
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
    assert!(orders.send(&Command::AcceptWorker { worker: id, job: json!({"a": 1}) }));
    assert!(
        matches!(node.next_command().unwrap(), Command::AcceptWorker { worker, job } if worker == id && job["a"] == 1)
    );
    node.send_event(WorkerEvent::WorkRequested).unwrap();
    assert!(matches!(run.next_event(), HeadEvent::Reported(from, WorkerEvent::WorkRequested) if from == id));
    // Upload a piece of several batches, an empty piece, and a piece of a few bytes.
    let pieces = [vec![1; 5_000_000], vec![], vec![2; 3]];
    std::thread::scope(|scope| {
        let giving = scope.spawn(|| {
            let buffers = pieces.iter().map(Buffer::from_slice_ref).collect();
            node.upload(id, WorkerUpload::WrittenPart { part: 3, bytes: [9, 1], from_checkpoint: false }, buffers)
        });
        let HeadEvent::Uploaded(
            from,
            WorkerUpload::WrittenPart { part: 3, bytes: [9, 1], from_checkpoint: false },
            found,
        ) = run.next_event()
        else {
            panic!("no gift")
        };
        assert_eq!(from, id);
        assert!(found.iter().map(|piece| piece.as_slice()).eq(pieces.iter().map(Vec::as_slice)));
        giving.join().unwrap().unwrap();
    });
    drop(node);
    assert!(matches!(run.next_event(), HeadEvent::WorkerLost(from, _) if from == id));
}

#[test]
fn downloads_arrive_in_order_and_fail_when_the_source_fails() {
    let mut run = TestCluster::open();
    let (node, ..) = run.join();
    let fetch = |shares: &[u16]| {
        let ticket = DownloadTicket::Slices { block: BLOCK, shards: shares.iter().copied().map(ShardId).collect() };
        let mut incoming = node.download_from_worker(run.head.address(), &ticket)?;
        let mut found = Vec::new();
        while let Some((batch, said)) = incoming.next_batch()? {
            assert!(bytes_batch::batch_as_bytes(&batch).iter().all(|byte| u16::from(*byte) == shares[found.len()]));
            found.push(String::from_utf8(said.to_vec()).unwrap());
        }
        Ok::<_, ExchangeError>(found)
    };
    assert_eq!(fetch(&[2, 0, 1]).unwrap(), ["2", "0", "1"]);
    let error = fetch(&[0, 3]).unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert!(
        matches!(node.download_from_head(&DownloadTicket::Duplicates), Err(ExchangeError::Flight(_))),
        "there are none"
    );
}

#[test]
fn uploads_of_a_disconnected_worker_are_rejected() {
    let mut run = TestCluster::open();
    let (first, id, _) = run.join();
    drop(first);
    assert!(matches!(run.next_event(), HeadEvent::WorkerLost(..)));
    let (second, other, _) = run.join();
    assert_ne!(id, other);
    let refused = second.upload(
        id,
        WorkerUpload::WrittenPart { part: 0, bytes: [0, 0], from_checkpoint: false },
        vec![Buffer::from_slice_ref([1u8; 10])],
    );
    let refused = refused.unwrap_err();
    let ExchangeError::Flight(FlightError::Status { status, .. }) = &refused else { panic!("{refused}") };
    assert_eq!(status.code(), Code::FailedPrecondition, "{refused}");
}

#[test]
fn workers_without_token_and_certificate_of_the_run_are_rejected() {
    let mut run = TestCluster::open();
    let elsewhere = tempfile::tempdir().unwrap();
    let other_certificate = test_credentials(elsewhere.path(), "secret");
    let joined = WorkerEndpoint::join(run.head.address(), other_certificate, "1.2.3", "stranger");
    assert!(joined.and_then(|node| node.next_command().map(drop)).is_err());
    let mut other_token = run.credentials.clone();
    other_token.client_access.token = test_credentials(elsewhere.path(), "guessed").client_access.token;
    let joined = WorkerEndpoint::join(run.head.address(), other_token, "1.2.3", "stranger");
    assert!(joined.and_then(|node| node.next_command().map(drop)).is_err());
    assert!(run.head.next_event(Duration::from_millis(300)).is_none(), "a stranger was heard");
}

#[test]
fn a_worker_that_waits_for_commands_can_be_woken() {
    let mut run = TestCluster::open();
    let (node, _, _orders) = run.join();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| node.next_command());
        node.stop_waiting_for_commands();
        assert!(matches!(waiting.join().unwrap(), Err(ExchangeError::HeadLost)));
    });
}
