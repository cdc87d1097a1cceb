//! Ten thousand tickets that a node did not give to who shows them: none is taken.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use arrow_flight::flight_service_server::FlightService as _;
use arrow_flight::{Action, CancelFlightInfoRequest, FlightDescriptor, FlightInfo};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use godwit_flight::{
    BatchReader, Caller, Catalog, DataPlane as _, Dataset, DatasetError, FileUse, FileVerdict, Kind, Node, NodeOptions,
    Part, Rules, Scan,
};
use prost::Message as _;
use tonic::{Request, Status};

const TICKETS: usize = 10_000;
/// `gw1.` and the signature.
const HEAD_BYTES: usize = 36;

/// Numbers, in a state that may change.
#[derive(Debug)]
struct Numbers {
    from: i64,
    version: u64,
}

impl Numbers {
    fn batch(&self) -> RecordBatch {
        let numbers = Int64Array::from_iter_values(self.from..self.from + 4);
        RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).expect("one column")
    }
}

impl Dataset for Numbers {
    fn kind(&self) -> Kind {
        Kind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.batch().schema()
    }

    fn rows(&self) -> Option<u64> {
        Some(4)
    }

    fn bytes(&self) -> u64 {
        32
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        false
    }

    fn parts(&self, _: &Scan, _: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(vec![Part { stretches: vec![(0, 4)] }])
    }

    fn read(&self, _: &Scan, _: &Part) -> Result<BatchReader, DatasetError> {
        Ok(Box::new(std::iter::once(Ok(self.batch()))))
    }
}

/// What somebody may see, in its state.
#[derive(Debug, Default)]
struct Seen(BTreeMap<&'static str, (i64, u64)>);

impl Catalog for Seen {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        Ok(self.0.keys().map(|name| (*name).to_owned()).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        match self.0.get(name) {
            Some(&(from, version)) => Ok(Arc::new(Numbers { from, version })),
            None => Err(DatasetError::NotFound { name: name.to_owned() }),
        }
    }
}

/// Alice sees everything, bob his own, whose state changes.
#[derive(Debug, Default)]
struct Own {
    version: Mutex<u64>,
}

impl Rules for Own {
    fn view(&self, caller: &Caller, _: &Arc<dyn Catalog>) -> Arc<dyn Catalog> {
        let version = *self.version.lock().expect("nobody panics while it is held");
        let own = [("bob/own.csv", (100, version))];
        let all = [("alice/own.csv", (200, 1)), ("secret.csv", (300, 1))];
        Arc::new(Seen(match caller.name() {
            "alice" => own.into_iter().chain(all).collect(),
            "bob" => own.into(),
            _ => BTreeMap::new(),
        }))
    }

    fn file(&self, _: &Caller, _: &str, _: FileUse) -> FileVerdict {
        FileVerdict::Hidden
    }
}

/// Pseudo-random numbers from a seed (xorshift64*).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    fn of<'a>(&mut self, from: &'a [Vec<u8>]) -> &'a [u8] {
        let at = self.below(from.len());
        &from[at]
    }
}

fn node(rules: Arc<Own>, lifetime: Duration) -> Node {
    let options = NodeOptions { rules: Some(rules), ticket_lifetime: lifetime, ..NodeOptions::default() };
    Node::new(Arc::new(Seen::default()), None, options)
}

fn of<T>(caller: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Caller::named(caller));
    request
}

async fn info(node: &Node, caller: &str, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    node.get_flight_info(of(caller, descriptor)).await.map(tonic::Response::into_inner)
}

/// Tickets for a dataset and for a column of it.
async fn given(node: &Node, caller: &str, name: &str) -> (Vec<FlightInfo>, Vec<Vec<u8>>) {
    let command = format!("{{\"dataset\":{name:?},\"columns\":[\"number\"]}}");
    let mut infos = Vec::new();
    for descriptor in [FlightDescriptor::new_path(vec![name.to_owned()]), FlightDescriptor::new_cmd(command)] {
        infos.push(info(node, caller, descriptor).await.expect("it is there"));
    }
    let tickets = infos.iter().flat_map(|info| &info.endpoint).filter_map(|endpoint| endpoint.ticket.as_ref());
    let tickets = tickets.map(|ticket| ticket.ticket.to_vec()).collect();
    (infos, tickets)
}

async fn rows(node: &Node, caller: &str, ticket: &[u8]) -> Result<usize, Status> {
    let download = node.download(Caller::named(caller), Bytes::copy_from_slice(ticket)).await?;
    let batches: Vec<_> = download.batches.try_collect().await?;
    Ok(batches.iter().map(|(batch, _)| batch.num_rows()).sum())
}

/// Another body behind the signature of a ticket, or behind one that is none: later, of somebody else, of what is above or beside.
fn forged(draw: &mut Draw, ticket: &[u8]) -> Vec<u8> {
    let (head, body) = ticket.split_at(HEAD_BYTES);
    let other = ["../own.csv", "/etc/passwd", "bob/../secret.csv", "alice/own.csv", "secret.csv", "bob//own.csv"];
    let other = other[draw.below(other.len())];
    let named = |name: &str| [&[name.len() as u8], name.as_bytes()].concat();
    let changes = [
        (b"bob".to_vec(), b"alice".to_vec()),
        (b"\x03bob".to_vec(), b"\x05alice".to_vec()),
        (named("bob/own.csv"), named(other)),
        (body[..1].to_vec(), b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x08".to_vec()),
    ];
    let (old, new) = &changes[draw.below(changes.len())];
    let at = body.windows(old.len()).position(|window| window == old).expect("it is in every ticket of his");
    let body = [&body[..at], new, &body[at + old.len()..]].concat();
    let random = [b"gw1.".to_vec(), draw.bytes(32)].concat();
    let head = [head.to_vec(), [b"gw1.".to_vec(), vec![0; 32]].concat(), random, b"gw1.".to_vec()];
    [draw.of(&head).to_vec(), body].concat()
}

fn flipped(draw: &mut Draw, ticket: &[u8]) -> Vec<u8> {
    let mut changed = ticket.to_vec();
    // As many as one, so that none is undone.
    let at = draw.below(changed.len());
    changed[at] ^= 1 << draw.below(8);
    changed
}

/// Bytes that were never a ticket.
fn raw(draw: &mut Draw) -> Vec<u8> {
    let paths = ["../policy.toml", "bob/../../etc/passwd", "/etc/passwd", "secret.csv", "alice/own.csv"];
    let path = paths[draw.below(paths.len())];
    let length = draw.below(200);
    let kinds = [
        draw.bytes(length),
        [b"gw1.".to_vec(), draw.bytes(length)].concat(),
        [b"gws1.".to_vec(), draw.bytes(length)].concat(),
        format!("{{\"dataset\":{path:?}}}").into_bytes(),
        format!("godwit.files.read{{\"spans\":[{{\"file\":0,\"path\":{path:?},\"start\":0,\"end\":1}}]}}").into_bytes(),
        path.as_bytes().to_vec(),
    ];
    draw.of(&kinds).to_vec()
}

/// Tickets that were good, and are not any more or not here.
struct Old {
    ended: Vec<Vec<u8>>,
    changed: Vec<Vec<u8>>,
    late: Vec<Vec<u8>>,
    elsewhere: Vec<Vec<u8>>,
}

async fn old(node: &Node, rules: &Arc<Own>) -> (Old, Node) {
    let (changed, late_node) = (given(node, "bob", "bob/own.csv").await.1, self::node(rules.clone(), Duration::ZERO));
    *rules.version.lock().expect("nobody panics while it is held") += 1;
    let late = given(&late_node, "bob", "bob/own.csv").await.1;
    let (infos, ended) = given(node, "bob", "bob/own.csv").await;
    for info in infos {
        let body = CancelFlightInfoRequest { info: Some(info) }.encode_to_vec();
        let done = node.do_action(of("bob", Action::new("CancelFlightInfo", body))).await.expect("it is his");
        done.into_inner().try_collect::<Vec<_>>().await.expect("it is done");
    }
    let other = self::node(rules.clone(), Duration::from_secs(3600));
    let elsewhere = given(&other, "bob", "bob/own.csv").await.1;
    // Seconds are counted whole.
    tokio::time::sleep(Duration::from_secs(2)).await;
    (Old { ended, changed, late, elsewhere }, late_node)
}

#[tokio::test]
async fn ten_thousand_tickets_that_were_not_given_are_refused() {
    let rules = Arc::new(Own::default());
    let node = node(rules.clone(), Duration::from_secs(3600));
    let (old, late_node) = old(&node, &rules).await;
    let (_, of_bob) = given(&node, "bob", "bob/own.csv").await;
    let (_, of_alice) = given(&node, "alice", "alice/own.csv").await;
    let (_, same_of_alice) = given(&node, "alice", "bob/own.csv").await;
    for (caller, tickets) in [("bob", &of_bob), ("alice", &of_alice), ("alice", &same_of_alice)] {
        for ticket in tickets {
            assert_eq!(rows(&node, caller, ticket).await.expect("what is given is taken"), 4);
        }
    }
    let mut draw = Draw(0x6F64_7769_7421);
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..TICKETS {
        let own = draw.of(&of_bob).to_vec();
        let (kind, at, ticket) = match number % 10 {
            0 => ("flipped", &node, flipped(&mut draw, &own)),
            1 => ("cut", &node, own[..draw.below(own.len())].to_vec()),
            2 => {
                let more = 1 + draw.below(9);
                ("longer", &node, [own, draw.bytes(more)].concat())
            }
            3 => ("spliced", &node, [&own[..HEAD_BYTES], &draw.of(&of_alice)[HEAD_BYTES..]].concat()),
            4 => ("forged", &node, forged(&mut draw, &own)),
            5 => ("another's", &node, draw.of(if number % 20 < 10 { &of_alice } else { &same_of_alice }).to_vec()),
            6 => ("another server's", &node, draw.of(&old.elsewhere).to_vec()),
            7 if number % 20 < 10 => ("ended", &node, draw.of(&old.ended).to_vec()),
            7 => ("of what has changed", &node, draw.of(&old.changed).to_vec()),
            8 => ("late", &late_node, draw.of(&old.late).to_vec()),
            _ => ("no ticket", &node, raw(&mut draw)),
        };
        let taken = rows(at, "bob", &ticket).await;
        assert!(taken.is_err(), "{kind}: {ticket:?} gave {taken:?}");
        *refused.entry(kind).or_default() += 1;
    }
    assert_eq!((refused.values().sum::<usize>(), refused.len()), (TICKETS, 11), "{refused:?}");
    for caller in ["alice", "bob"] {
        for name in ["../secret.csv", "/secret.csv", "bob/../secret.csv", "./secret.csv", "secret.csv/"] {
            assert!(info(&node, caller, FlightDescriptor::new_path(vec![name.to_owned()])).await.is_err(), "{name}");
        }
    }
    assert!(info(&node, "bob", FlightDescriptor::new_path(vec!["secret.csv".to_owned()])).await.is_err());
    assert_eq!(rows(&node, "bob", &of_bob[0]).await.expect("what is given is still taken"), 4);
}
