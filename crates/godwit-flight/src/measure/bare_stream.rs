//! Transfers the bytes of a workload over a plain socket, without Flight, as the baseline of the measurements.
//!
//! The client writes a line `WORKLOAD/STREAM/STREAMS`. The server writes the numbers of rows and bytes (64 bits each,
//! little endian), and then the Arrow buffers of all batches without a copy. The client reads all bytes into the same
//! buffer and does not process them.

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

/// Maximum length of the line that the client sends, bytes.
const MAX_LINE_BYTES: usize = 256;
/// Size of the read buffer, bytes; equal to the default size of HTTP/2 frames.
const READ_BUFFER_BYTES: usize = 1 << 20;

/// A server that sends the workloads of a [`WorkloadDataPlane`] over plain sockets, without Flight.
pub struct BareStreamServer {
    listener: Listener,
    address: Address,
    tls: Option<ServerTls>,
    options: TransportOptions,
}

impl BareStreamServer {
    /// Binds an address next to that of a Flight server: a free port of the same network interface, or the same socket
    /// path with the suffix `.bare`.
    ///
    /// # Errors
    /// [`FlightError::Listen`] if the address cannot be bound.
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

    /// Returns the address of the server.
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
            // The server does not send errors. The client detects a failure because it receives too few bytes.
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

/// Returns all Arrow buffers of a batch, without a copy.
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

/// Receives a workload without Flight, over several connections at once, which each transfer an equal part. `client` is
/// connected to the Flight server, which returns the address for bare streams.
///
/// # Errors
/// [`FlightError`] if a connection fails or the server sends too few bytes.
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

/// Requests the address of the server for bare streams. An unspecified address, such as 0.0.0.0, is replaced by the IP
/// address of the Flight server.
async fn find_bare_stream_address(client: &Client, at: &Address) -> Result<Address, FlightError> {
    const NO_ADDRESS: FlightError =
        FlightError::Malformed { problem: "the server does not report the address of bare streams" };
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
