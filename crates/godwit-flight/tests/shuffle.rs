//! Shuffles between nodes of one process, honest and not.

use bytes::Bytes;
use futures_util::StreamExt;
use godwit_flight::measure::shuffle::{Node, Slices, Wanted, tuning, verify};
use godwit_flight::server::Answers;
use godwit_flight::{
    Access, Address, Caller, Client, DataPlane, Download, FlightError, Routes, Server, Status, Upload,
};

async fn serve(data: impl DataPlane) -> Address {
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let server = Server::bind(&any, data, Routes::default(), Access::default(), tuning()).await;
    let server = server.expect("a port is free");
    let address = server.address().clone();
    tokio::spawn(server.serve());
    address
}

async fn client(address: &Address) -> Client {
    Client::connect(address, Access::default(), tuning()).await.expect("a server is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_gets_its_slice_of_every_other_and_its_own() {
    for (slice_bytes, message_bytes) in [(1_000_003, 4096), (1, 256), (300_000, 300_000), (70_000, 1 << 30)] {
        let slices: Vec<Slices> = (0..3).map(Slices::of).collect();
        let mut addresses = Vec::new();
        for node in &slices {
            node.make(3, slice_bytes);
            addresses.push(serve(node.clone()).await);
        }
        for taker in 0..3u32 {
            let mut peers = Vec::new();
            for address in addresses.iter().enumerate().filter(|(giver, _)| *giver as u32 != taker).map(|found| found.1)
            {
                peers.push(client(address).await);
            }
            let node = Node { slices: slices[taker as usize].clone(), peers };
            let wanted = Wanted { taker, slice_bytes, message_bytes };
            let arrived = node.fetch(wanted).await.expect("peers serve");
            assert_eq!(arrived.iter().map(|slice| slice.bytes()).collect::<Vec<_>>(), [slice_bytes; 3]);
            verify(arrived).await.expect("what came is what was made");
            assert_eq!(node.fetch_verifying(wanted).await.expect("it still is"), 2 * slice_bytes);
        }
    }
}

/// Does something to slices on their way out.
struct Lying {
    slices: Slices,
    lie: Lie,
}

#[derive(Clone, Copy, Debug)]
enum Lie {
    DropsAMessage,
    SendsTheSliceOfAnother,
    LeavesTheChecksumOut,
    ChangesABit,
}

impl DataPlane for Lying {
    async fn download(&self, _: Caller, ticket: Bytes) -> Result<Download, Status> {
        let lie = self.lie;
        let ticket = match lie {
            Lie::SendsTheSliceOfAnother => Bytes::from_static(b"shuffle/1/10000/1000"),
            _ => ticket,
        };
        let download = self.slices.download(Caller::default(), ticket).await?;
        let batches = download.batches.enumerate().filter_map(move |(index, item)| {
            let item = item.map(|(batch, said)| match (lie, index) {
                (Lie::DropsAMessage, 3) => None,
                (Lie::LeavesTheChecksumOut, _) => Some((batch, Bytes::new())),
                (Lie::ChangesABit, 3) => {
                    let column = batch.column(0).to_data().buffers()[0].as_slice()[..1000].to_vec();
                    let mut bytes: Vec<u8> = column;
                    bytes[500] ^= 1;
                    let column = arrow_array::UInt8Array::from(bytes);
                    let changed = arrow_array::RecordBatch::try_new(batch.schema(), vec![std::sync::Arc::new(column)]);
                    Some((changed.expect("a column of the same type"), said))
                }
                _ => Some((batch, said)),
            });
            std::future::ready(item.transpose())
        });
        Ok(Download { schema: download.schema, batches: Box::pin(batches) })
    }

    async fn upload(&self, _: Caller, _: Upload) -> Result<Answers, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_sends_something_else_is_refused_by_name() {
    let wanted = Wanted { taker: 0, slice_bytes: 10_000, message_bytes: 1000 };
    for lie in [Lie::DropsAMessage, Lie::SendsTheSliceOfAnother, Lie::LeavesTheChecksumOut, Lie::ChangesABit] {
        let address = serve(Lying { slices: Slices::of(1), lie }).await;
        let node = Node { slices: Slices::of(0), peers: vec![client(&address).await] };
        let refused = |outcome: Result<(), FlightError>| match outcome {
            Err(FlightError::Checksum { peer }) => assert_eq!(peer, address.to_string(), "{lie:?}"),
            other => panic!("{lie:?}: {other:?}"),
        };
        refused(verify(node.fetch(wanted).await.expect("it serves")).await);
        refused(node.fetch_verifying(wanted).await.map(drop));
    }
}
