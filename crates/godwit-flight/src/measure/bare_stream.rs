//! The bytes of a workload over a plain socket, without Flight: the baseline of the measurement.
//!
//! The client writes a line, `WORKLOAD/STREAM/STREAMS`; the server writes how many rows and bytes follow (64 bits each,
//! little endian) and then the buffers of the batches, one after the other, without a copy. The client reads them into one
//! buffer repeatedly: it keeps nothing and processes nothing.

use std::io;

use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use bytes::Buf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::transfer::run_transfers;
use super::{BARE_STREAMS_TICKET, TransferStats, Workload, WorkloadDataPlane, parse_stream_ticket};
use crate::client::Client;
use crate::error::FlightError;
use crate::segments::Segments;
use crate::tls::{ClientTls, ServerTls};
use crate::transport::{Address, ConnectionSecurity, Listener, Socket, TransportOptions};

/// Longest accepted line, bytes.
const MAX_LINE_BYTES: usize = 256;
/// Bytes of a read: those of our HTTP/2 frames.
const READ_BUFFER_BYTES: usize = 1 << 20;

/// A server of bare streams of a [`WorkloadDataPlane`].
pub struct BareStreamServer {
    listener: Listener,
    address: Address,
    tls: Option<ServerTls>,
    options: TransportOptions,
}

impl BareStreamServer {
    /// Binds beside a server: any port of the same interface, or the same path with the suffix `.bare`.
    ///
    /// # Errors
    /// [`FlightError::Listen`] where the address cannot be bound.
    pub async fn bind(
        beside: &Address,
        tls: Option<ServerTls>,
        options: TransportOptions,
    ) -> Result<Self, FlightError> {
        let wanted = match beside {
            Address::Tcp(address) => Address::Tcp((address.ip(), 0).into()),
            Address::Unix(path) => Address::Unix(path.with_added_extension("bare")),
        };
        let (listener, address) = Listener::bind(&wanted).await?;
        Ok(Self { listener, address, tls, options })
    }

    /// Returns its address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves until the future is dropped.
    pub async fn serve(self, data: WorkloadDataPlane) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let accepted = self.listener.accept(&self.options).await;
            while connections.try_join_next().is_some() {}
            let Some(socket) = accepted else { continue };
            let (data, tls) = (data.clone(), self.tls.clone());
            // Errors are not sent: the client sees a stream that is too short.
            connections.spawn(async move {
                let mut socket = socket.accept(tls.as_ref()).await?;
                let line = read_line(&mut socket).await?;
                let (workload, stream, streams) = parse_stream_ticket(&line).map_err(io::Error::other)?;
                let batches = data.batches(workload).await.map_err(io::Error::other)?;
                let share = || batches.iter().skip(stream).step_by(streams.max(1));
                let rows: usize = share().map(RecordBatch::num_rows).sum();
                let bytes: usize = share().map(|batch| batch_buffers(batch).remaining()).sum();
                socket.write_all(&[(rows as u64).to_le_bytes(), (bytes as u64).to_le_bytes()].concat()).await?;
                for batch in share() {
                    socket.write_all_buf(&mut batch_buffers(batch)).await?;
                }
                socket.shutdown().await
            });
        }
    }
}

async fn read_line(socket: &mut Socket) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        match socket.read_u8().await? {
            b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            _ if line.len() == MAX_LINE_BYTES => return Err(io::ErrorKind::InvalidData.into()),
            byte => line.push(byte),
        }
    }
}

/// Returns all buffers of a batch, without a copy.
fn batch_buffers(batch: &RecordBatch) -> Segments {
    fn add(data: &ArrayData, segments: &mut Segments) {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        for buffer in nulls.into_iter().chain(data.buffers()) {
            segments.push_buffer(buffer.clone());
        }
        data.child_data().iter().for_each(|child| add(child, segments));
    }
    let mut segments = Segments::default();
    batch.columns().iter().for_each(|column| add(&column.to_data(), &mut segments));
    segments
}

/// Receives the workload as bare streams over several connections at once, an equal part each, from the server of `client`.
///
/// # Errors
/// [`FlightError`] where a connection fails or a stream is too short.
pub async fn receive_bare_streams(
    client: &Client,
    at: &Address,
    security: &ConnectionSecurity<ClientTls>,
    workload: Workload,
    streams: usize,
) -> Result<TransferStats, FlightError> {
    let address = find_bare_stream_address(client, at).await?;
    let mut sockets = Vec::new();
    for _ in 0..streams {
        let socket = Socket::connect(&address, security.tls.as_ref(), &TransportOptions::default()).await;
        sockets.push(socket.map_err(|source| FlightError::Connect { address: address.to_string(), source })?);
    }
    run_transfers(sockets, |stream, mut socket| {
        let peer = address.to_string();
        async move {
            let taking = receive_stream(&mut socket, format!("{workload}/{stream}/{streams}\n"));
            taking.await.map_err(|source| FlightError::Io { peer, source })
        }
    })
    .await
}

async fn receive_stream(socket: &mut Socket, line: String) -> io::Result<TransferStats> {
    socket.write_all(line.as_bytes()).await?;
    let (rows, bytes) = (socket.read_u64_le().await?, socket.read_u64_le().await?);
    let mut buffer = vec![0; READ_BUFFER_BYTES];
    let mut left = bytes;
    while left > 0 {
        match socket.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read as u64),
        }
    }
    Ok(TransferStats { rows, bytes, ..TransferStats::default() })
}

/// Requests the address of a server's bare streams. An unspecified one is replaced by the address of the connection.
async fn find_bare_stream_address(client: &Client, at: &Address) -> Result<Address, FlightError> {
    const NO_ADDRESS: FlightError = FlightError::Malformed { problem: "it does not say where bare streams are" };
    let mut response = client.download(BARE_STREAMS_TICKET).await?;
    while response.next().await?.is_some() {}
    let found = response.schema().and_then(|schema| schema.metadata().get(BARE_STREAMS_TICKET)).ok_or(NO_ADDRESS)?;
    match (at, found.strip_prefix("unix:")) {
        (Address::Unix(_), Some(path)) => Ok(Address::Unix(path.into())),
        (Address::Tcp(at), None) => {
            let found: std::net::SocketAddr = found.parse().map_err(|_| NO_ADDRESS)?;
            Ok(Address::Tcp((at.ip(), found.port()).into()))
        }
        _ => Err(NO_ADDRESS),
    }
}
