//! Ten thousand tickets that a server did not issue to the principal: none is accepted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use arrow_flight::flight_service_server::FlightService as _;
use arrow_flight::{Action, CancelFlightInfoRequest, FlightDescriptor, FlightInfo};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use godwit_dataset::{
    Authorizer, BatchReader, Catalog, Dataset, DatasetError, DatasetKind, FileAccess, FileAuthorization, Principal,
    Scan, ScanPart,
};
use godwit_flight::{DataPlane as _, DatasetService, DatasetServiceOptions};
use parking_lot::Mutex;
use prost::Message as _;
use tonic::{Request, Status};

const TICKETS: usize = 10_000;
/// Bytes of `gw1.` and the signature.
const HEAD_BYTES: usize = 36;

/// A dataset of numbers, in a version that may change.
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
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
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

    fn parts(&self, _: &Scan, _: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(vec![ScanPart { ranges: vec![(0, 4)] }])
    }

    fn read(&self, _: &Scan, _: &ScanPart) -> Result<BatchReader, DatasetError> {
        Ok(Box::new(std::iter::once(Ok(self.batch()))))
    }
}

/// The datasets that a principal sees, in their versions.
#[derive(Debug, Default)]
struct FixedCatalog(BTreeMap<&'static str, (i64, u64)>);

impl Catalog for FixedCatalog {
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

/// Alice sees everything, Bob his own dataset, whose version changes.
#[derive(Debug, Default)]
struct TestAuthorizer {
    version: Mutex<u64>,
}

impl Authorizer for TestAuthorizer {
    fn authorized_catalog(&self, principal: &Principal, _: &Arc<dyn Catalog>) -> Arc<dyn Catalog> {
        let version = *self.version.lock();
        let own = [("bob/own.csv", (100, version))];
        let all = [("alice/own.csv", (200, 1)), ("secret.csv", (300, 1))];
        Arc::new(FixedCatalog(match principal.name() {
            "alice" => own.into_iter().chain(all).collect(),
            "bob" => own.into(),
            _ => BTreeMap::new(),
        }))
    }

    fn authorize_file(&self, _: &Principal, _: &str, _: FileAccess) -> FileAuthorization {
        FileAuthorization::Hidden
    }
}

/// A pseudorandom number generator (xorshift64*).
struct XorShift64Star(u64);

impl XorShift64Star {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }

    fn choose<'a>(&mut self, from: &'a [Vec<u8>]) -> &'a [u8] {
        let at = self.below(from.len());
        &from[at]
    }
}

fn node(rules: Arc<TestAuthorizer>, lifetime: Duration) -> DatasetService {
    let options = DatasetServiceOptions {
        authorizer: Some(rules),
        ticket_lifetime: lifetime,
        ..DatasetServiceOptions::default()
    };
    DatasetService::new(Arc::new(FixedCatalog::default()), None, options)
}

fn request_as<T>(principal: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Principal::named(principal));
    request
}

async fn info(node: &DatasetService, principal: &str, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    node.get_flight_info(request_as(principal, descriptor)).await.map(tonic::Response::into_inner)
}

/// Issues tickets for a dataset and for a column of it.
async fn issue_tickets(node: &DatasetService, principal: &str, name: &str) -> (Vec<FlightInfo>, Vec<Vec<u8>>) {
    let command = format!("{{\"dataset\":{name:?},\"columns\":[\"number\"]}}");
    let mut infos = Vec::new();
    for descriptor in [FlightDescriptor::new_path(vec![name.to_owned()]), FlightDescriptor::new_cmd(command)] {
        infos.push(info(node, principal, descriptor).await.expect("it is there"));
    }
    let tickets = infos.iter().flat_map(|info| &info.endpoint).filter_map(|endpoint| endpoint.ticket.as_ref());
    let tickets = tickets.map(|ticket| ticket.ticket.to_vec()).collect();
    (infos, tickets)
}

async fn count_rows(node: &DatasetService, principal: &str, ticket: &[u8]) -> Result<usize, Status> {
    let download = node.download(Principal::named(principal), Bytes::copy_from_slice(ticket)).await?;
    let batches: Vec<_> = download.batches.try_collect().await?;
    Ok(batches.iter().map(|(batch, _)| batch.num_rows()).sum())
}

/// Makes a ticket with another body behind a signature, valid or not: later, of another principal, of a parent or sibling.
fn forge_ticket(draw: &mut XorShift64Star, ticket: &[u8]) -> Vec<u8> {
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
    [draw.choose(&head).to_vec(), body].concat()
}

fn flip_bit(draw: &mut XorShift64Star, ticket: &[u8]) -> Vec<u8> {
    let mut changed = ticket.to_vec();
    // One byte only, so that no change is undone.
    let at = draw.below(changed.len());
    changed[at] ^= 1 << draw.below(8);
    changed
}

/// Makes bytes that were never a ticket.
fn random_ticket(draw: &mut XorShift64Star) -> Vec<u8> {
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
    draw.choose(&kinds).to_vec()
}

/// Tickets that were valid, and are not any more or not here.
struct RejectedTickets {
    cancelled: Vec<Vec<u8>>,
    changed: Vec<Vec<u8>>,
    expired: Vec<Vec<u8>>,
    of_other_server: Vec<Vec<u8>>,
}

async fn collect_rejected_tickets(
    node: &DatasetService,
    rules: &Arc<TestAuthorizer>,
) -> (RejectedTickets, DatasetService) {
    let (changed, late_node) =
        (issue_tickets(node, "bob", "bob/own.csv").await.1, self::node(rules.clone(), Duration::ZERO));
    *rules.version.lock() += 1;
    let expired = issue_tickets(&late_node, "bob", "bob/own.csv").await.1;
    let (infos, cancelled) = issue_tickets(node, "bob", "bob/own.csv").await;
    for info in infos {
        let body = CancelFlightInfoRequest { info: Some(info) }.encode_to_vec();
        let done = node.do_action(request_as("bob", Action::new("CancelFlightInfo", body))).await.expect("it is his");
        done.into_inner().try_collect::<Vec<_>>().await.expect("it is done");
    }
    let other = self::node(rules.clone(), Duration::from_secs(3600));
    let of_other_server = issue_tickets(&other, "bob", "bob/own.csv").await.1;
    // Expiry is in whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    (RejectedTickets { cancelled, changed, expired, of_other_server }, late_node)
}

#[tokio::test]
async fn ten_thousand_tickets_that_were_not_issued_are_rejected() {
    let rules = Arc::new(TestAuthorizer::default());
    let node = node(rules.clone(), Duration::from_secs(3600));
    let (old, late_node) = collect_rejected_tickets(&node, &rules).await;
    let (_, of_bob) = issue_tickets(&node, "bob", "bob/own.csv").await;
    let (_, of_alice) = issue_tickets(&node, "alice", "alice/own.csv").await;
    let (_, same_of_alice) = issue_tickets(&node, "alice", "bob/own.csv").await;
    for (principal, tickets) in [("bob", &of_bob), ("alice", &of_alice), ("alice", &same_of_alice)] {
        for ticket in tickets {
            assert_eq!(count_rows(&node, principal, ticket).await.expect("what is given is taken"), 4);
        }
    }
    let mut draw = XorShift64Star(0x6F64_7769_7421);
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for number in 0..TICKETS {
        let own = draw.choose(&of_bob).to_vec();
        let (kind, at, ticket) = match number % 10 {
            0 => ("flipped", &node, flip_bit(&mut draw, &own)),
            1 => ("cut", &node, own[..draw.below(own.len())].to_vec()),
            2 => {
                let more = 1 + draw.below(9);
                ("longer", &node, [own, draw.bytes(more)].concat())
            }
            3 => ("spliced", &node, [&own[..HEAD_BYTES], &draw.choose(&of_alice)[HEAD_BYTES..]].concat()),
            4 => ("forged", &node, forge_ticket(&mut draw, &own)),
            5 => ("another's", &node, draw.choose(if number % 20 < 10 { &of_alice } else { &same_of_alice }).to_vec()),
            6 => ("another server's", &node, draw.choose(&old.of_other_server).to_vec()),
            7 if number % 20 < 10 => ("ended", &node, draw.choose(&old.cancelled).to_vec()),
            7 => ("of what has changed", &node, draw.choose(&old.changed).to_vec()),
            8 => ("late", &late_node, draw.choose(&old.expired).to_vec()),
            _ => ("no ticket", &node, random_ticket(&mut draw)),
        };
        let taken = count_rows(at, "bob", &ticket).await;
        assert!(taken.is_err(), "{kind}: {ticket:?} gave {taken:?}");
        *refused.entry(kind).or_default() += 1;
    }
    assert_eq!((refused.values().sum::<usize>(), refused.len()), (TICKETS, 11), "{refused:?}");
    for principal in ["alice", "bob"] {
        for name in ["../secret.csv", "/secret.csv", "bob/../secret.csv", "./secret.csv", "secret.csv/"] {
            assert!(info(&node, principal, FlightDescriptor::new_path(vec![name.to_owned()])).await.is_err(), "{name}");
        }
    }
    assert!(info(&node, "bob", FlightDescriptor::new_path(vec!["secret.csv".to_owned()])).await.is_err());
    assert_eq!(count_rows(&node, "bob", &of_bob[0]).await.expect("what is given is still taken"), 4);
}
