//! The two ends of the network of a run, talking to each other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_exchange::{
    ExchangeError, Gift, Head, Incoming, Item, Keys, Node, NodeId, Order, Orders, Report, Share, Shelf, Ticket,
    bytes_batch,
};
use godwit_flight::{Code, FlightError};
use godwit_model::BlockId;
use serde_json::json;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(150);
const BLOCK: BlockId = BlockId { lane: 1, ordinal: 7 };

/// Hands out the number of shares asked for, a batch each, and fails after the third.
struct Numbers;

impl Shelf for Numbers {
    fn open(&self, ticket: &Ticket) -> io::Result<Item> {
        let Ticket::Slices { shares, .. } = ticket else { return Err(io::ErrorKind::NotFound.into()) };
        let batches = shares.clone().into_iter().map(|share| match share.0 {
            3.. => Err(io::Error::other("the disk is gone")),
            number => Ok((bytes_batch::of_bytes(vec![number as u8; 3_000_000]), Bytes::from(number.to_string()))),
        });
        Ok(Item { schema: bytes_batch::schema(), batches: Box::new(batches) })
    }
}

struct Run {
    head: Head,
    keys: Keys,
    _directory: tempfile::TempDir,
}

impl Run {
    fn open() -> Self {
        let directory = tempfile::tempdir().expect("scratch space");
        let keys = keys(directory.path(), "secret");
        let head = Head::open(SocketAddr::new(HERE, 0), keys.server.clone(), Arc::new(Numbers)).expect("it can listen");
        Self { head, keys, _directory: directory }
    }

    fn join(&mut self) -> (Node, NodeId, Orders) {
        let node = Node::join(self.head.address(), self.keys.clone(), "1.2.3", "one").expect("it is let in");
        match self.next() {
            Incoming::Joined { node: id, version, name, orders } => {
                assert_eq!((version.as_str(), name.as_str()), ("1.2.3", "one"));
                (node, id, orders)
            }
            _ => panic!("something else came first"),
        }
    }

    fn next(&mut self) -> Incoming {
        self.head.next(PATIENCE).expect("something is on its way")
    }
}

fn keys(directory: &Path, token: &str) -> Keys {
    Keys::make(directory).expect("a certificate can be made");
    Keys::of_run(token, directory).expect("it can be read")
}

#[test]
fn reports_gifts_orders_and_the_end_arrive() {
    let mut run = Run::open();
    let (node, id, orders) = run.join();
    assert!(orders.give(&Order::Welcome { node: id, job: json!({"a": 1}) }));
    assert!(matches!(node.next_order().unwrap(), Order::Welcome { node, job } if node == id && job["a"] == 1));
    node.say(Report::Wants).unwrap();
    assert!(matches!(run.next(), Incoming::Said(from, Report::Wants) if from == id));
    // Pieces of several batches, of none, and of a few bytes.
    let pieces = [vec![1; 5_000_000], vec![], vec![2; 3]];
    std::thread::scope(|scope| {
        let giving = scope.spawn(|| {
            let buffers = pieces.iter().map(Buffer::from_slice_ref).collect();
            node.give(id, Gift::Part { part: 3, bytes: [9, 1], kept: false }, buffers)
        });
        let Incoming::Gave(from, Gift::Part { part: 3, bytes: [9, 1], kept: false }, found) = run.next() else {
            panic!("no gift")
        };
        assert_eq!(from, id);
        assert!(found.iter().map(|piece| piece.as_slice()).eq(pieces.iter().map(Vec::as_slice)));
        giving.join().unwrap().unwrap();
    });
    drop(node);
    assert!(matches!(run.next(), Incoming::Lost(from, _) if from == id));
}

#[test]
fn downloads_come_in_order_and_tell_when_they_break_off() {
    let mut run = Run::open();
    let (node, ..) = run.join();
    let fetch = |shares: &[u16]| {
        let ticket = Ticket::Slices { block: BLOCK, shares: shares.iter().copied().map(Share).collect() };
        let mut incoming = node.fetch(run.head.address(), &ticket)?;
        let mut found = Vec::new();
        while let Some((batch, said)) = incoming.next_batch()? {
            assert!(bytes_batch::bytes(&batch).iter().all(|byte| u16::from(*byte) == shares[found.len()]));
            found.push(String::from_utf8(said.to_vec()).unwrap());
        }
        Ok::<_, ExchangeError>(found)
    };
    assert_eq!(fetch(&[2, 0, 1]).unwrap(), ["2", "0", "1"]);
    let error = fetch(&[0, 3]).unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert!(matches!(node.get(&Ticket::Verdicts), Err(ExchangeError::Flight(_))), "there are none");
}

#[test]
fn who_was_given_up_gives_nothing_any_more() {
    let mut run = Run::open();
    let (first, id, _) = run.join();
    drop(first);
    assert!(matches!(run.next(), Incoming::Lost(..)));
    let (second, other, _) = run.join();
    assert_ne!(id, other);
    let refused =
        second.give(id, Gift::Part { part: 0, bytes: [0, 0], kept: false }, vec![Buffer::from_slice_ref([1u8; 10])]);
    let refused = refused.unwrap_err();
    let ExchangeError::Flight(FlightError::Status { status, .. }) = &refused else { panic!("{refused}") };
    assert_eq!(status.code(), Code::FailedPrecondition, "{refused}");
}

#[test]
fn nobody_joins_without_token_and_certificate_of_the_run() {
    let mut run = Run::open();
    let elsewhere = tempfile::tempdir().unwrap();
    let other_certificate = keys(elsewhere.path(), "secret");
    let joined = Node::join(run.head.address(), other_certificate, "1.2.3", "stranger");
    assert!(joined.and_then(|node| node.next_order().map(drop)).is_err());
    let mut other_token = run.keys.clone();
    other_token.client.token = keys(elsewhere.path(), "guessed").client.token;
    let joined = Node::join(run.head.address(), other_token, "1.2.3", "stranger");
    assert!(joined.and_then(|node| node.next_order().map(drop)).is_err());
    assert!(run.head.next(Duration::from_millis(300)).is_none(), "a stranger was heard");
}

#[test]
fn a_node_that_waits_for_orders_can_be_woken() {
    let mut run = Run::open();
    let (node, _, _orders) = run.join();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| node.next_order());
        node.leave();
        assert!(matches!(waiting.join().unwrap(), Err(ExchangeError::HeadLost)));
    });
}
