use futures_util::StreamExt;
use godwit_flight::{Address, ConnectionSecurity, Routes, Server};

use super::*;

async fn serve(data: impl DataPlane) -> Address {
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let server = Server::bind(&any, data, Routes::default(), ConnectionSecurity::default(), transport_options()).await;
    let server = server.expect("a port is free");
    let address = server.address().clone();
    tokio::spawn(server.serve());
    address
}

async fn client(address: &Address) -> Client {
    Client::connect(address, ConnectionSecurity::default(), transport_options()).await.expect("a server is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_worker_receives_its_slice_of_every_other_and_its_own() {
    for (slice_bytes, message_bytes) in [(1_000_003, 4096), (1, 256), (300_000, 300_000), (70_000, 1 << 30)] {
        let slices: Vec<SliceSource> = (0..3).map(SliceSource::new).collect();
        let mut addresses = Vec::new();
        for node in &slices {
            node.generate(3, slice_bytes);
            addresses.push(serve(node.clone()).await);
        }
        for receiver in 0..3u32 {
            let mut peers = Vec::new();
            for address in
                addresses.iter().enumerate().filter(|(giver, _)| *giver as u32 != receiver).map(|found| found.1)
            {
                peers.push(client(address).await);
            }
            let node = ShuffleWorker { slices: slices[receiver as usize].clone(), peers };
            let request = SliceRequest { receiver, slice_bytes, message_bytes };
            let arrived = node.fetch_slices(request).await.expect("peers serve");
            assert_eq!(arrived.iter().map(|slice| slice.bytes()).collect::<Vec<_>>(), [slice_bytes; 3]);
            verify_slices(arrived).await.expect("what came is what was made");
            assert_eq!(node.fetch_and_verify(request).await.expect("it still is"), 2 * slice_bytes);
        }
    }
}

/// A data plane that damages outgoing slices.
struct FaultyDataPlane {
    slices: SliceSource,
    fault: Fault,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    DroppedMessage,
    WrongSlice,
    MissingChecksum,
    FlippedBit,
}

impl DataPlane for FaultyDataPlane {
    async fn download(&self, _: Principal, ticket: Bytes) -> Result<Download, Status> {
        let lie = self.fault;
        let ticket = match lie {
            Fault::WrongSlice => Bytes::from_static(b"shuffle/1/10000/1000"),
            _ => ticket,
        };
        let download = self.slices.download(Principal::default(), ticket).await?;
        let batches = download.batches.enumerate().filter_map(move |(index, item)| {
            let item = item.map(|(batch, app_metadata)| match (lie, index) {
                (Fault::DroppedMessage, 3) => None,
                (Fault::MissingChecksum, _) => Some((batch, Bytes::new())),
                (Fault::FlippedBit, 3) => {
                    let column = batch.column(0).to_data().buffers()[0].as_slice()[..1000].to_vec();
                    let mut bytes: Vec<u8> = column;
                    bytes[500] ^= 1;
                    let column = arrow_array::UInt8Array::from(bytes);
                    let changed = arrow_array::RecordBatch::try_new(batch.schema(), vec![std::sync::Arc::new(column)]);
                    Some((changed.expect("a column of the same type"), app_metadata))
                }
                _ => Some((batch, app_metadata)),
            });
            std::future::ready(item.transpose())
        });
        Ok(Download { schema: download.schema, batches: Box::pin(batches) })
    }

    async fn upload(&self, _: Principal, _: Upload) -> Result<PutResultStream, Status> {
        Err(Status::unimplemented("not here"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_sends_something_else_is_refused_by_name() {
    let request = SliceRequest { receiver: 0, slice_bytes: 10_000, message_bytes: 1000 };
    for fault in [Fault::DroppedMessage, Fault::WrongSlice, Fault::MissingChecksum, Fault::FlippedBit] {
        let address = serve(FaultyDataPlane { slices: SliceSource::new(1), fault }).await;
        let node = ShuffleWorker { slices: SliceSource::new(0), peers: vec![client(&address).await] };
        let refused = |outcome: Result<(), FlightError>| match outcome {
            Err(FlightError::Checksum { peer }) => assert_eq!(peer, address.to_string(), "{fault:?}"),
            other => panic!("{fault:?}: {other:?}"),
        };
        refused(verify_slices(node.fetch_slices(request).await.expect("it serves")).await);
        refused(node.fetch_and_verify(request).await.map(drop));
    }
}

#[test]
fn tickets_are_read_as_they_are_written_and_others_are_not() {
    let request = SliceRequest { receiver: 3, slice_bytes: 1000, message_bytes: 64 };
    assert_eq!(SliceRequest::parse(request.to_ticket().as_bytes()), Some(request));
    for wrong in ["", "shuffle/1/2", "shuffle/1/2/3/4", "fixed/4/65536/1/0/1", "shuffle/1/0/3", "shuffle/-1/2/3"] {
        assert_eq!(SliceRequest::parse(wrong.as_bytes()), None, "{wrong}");
    }
    let over = format!("shuffle/1/{}/1", MAX_SLICE_BYTES + 1);
    assert_eq!(SliceRequest::parse(over.as_bytes()), None);
}

#[test]
fn slices_of_another_length_are_dropped() {
    let slices = SliceSource::new(1);
    slices.generate(3, 100);
    assert_eq!(slices.slices.lock().len(), 3);
    slices.get_or_generate(SliceRequest { receiver: 7, slice_bytes: 200, message_bytes: 0 });
    assert_eq!(slices.slices.lock().len(), 1);
}
