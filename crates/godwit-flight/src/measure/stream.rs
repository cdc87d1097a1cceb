//! The bytes of a workload over a socket as it is, without Flight: what Flight is measured against.
//!
//! The client writes a line, `WORKLOAD/STREAM/STREAMS`; the server writes how many rows and bytes follow (64 bits each, little
//! endian) and then the buffers of the batches, one after the other, from where they lie. The client reads them into one
//! buffer again and again: it keeps nothing, as a receiver that does not work.

use std::io;

use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use bytes::Buf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::transfer::over_all;
use super::{BARE_STREAMS, Measuring, Transferred, Workload, parse_share};
use crate::client::Client;
use crate::error::FlightError;
use crate::segments::Segments;
use crate::tls::{ClientTls, ServerTls};
use crate::transport::{Access, Address, Listener, Socket, Tuning};

/// Longest line that is taken, bytes.
const LINE_LIMIT_BYTES: usize = 256;
/// What is read at once: as much as an HTTP/2 frame of ours has.
const READ_BYTES: usize = 1 << 20;

/// Serves bare streams of what a [`Measuring`] has.
pub struct BareStreams {
    listener: Listener,
    address: Address,
    tls: Option<ServerTls>,
    tuning: Tuning,
}

impl BareStreams {
    /// Takes a place beside that of a server: any port of the same interface, or the same path with `.bare` behind it.
    ///
    /// # Errors
    /// [`FlightError::Listen`].
    pub async fn bind(beside: &Address, tls: Option<ServerTls>, tuning: Tuning) -> Result<Self, FlightError> {
        let wanted = match beside {
            Address::Tcp(address) => Address::Tcp((address.ip(), 0).into()),
            Address::Unix(path) => Address::Unix(path.with_added_extension("bare")),
        };
        let (listener, address) = Listener::bind(&wanted).await?;
        Ok(Self { listener, address, tls, tuning })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves until the future is dropped.
    pub async fn serve(self, data: Measuring) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let accepted = self.listener.accept(&self.tuning).await;
            while connections.try_join_next().is_some() {}
            let Some(socket) = accepted else { continue };
            let (data, tls) = (data.clone(), self.tls.clone());
            // Whoever went away, or asked for something else, is not told: the stream is shorter than it should be.
            connections.spawn(async move {
                let mut socket = socket.accept(tls.as_ref()).await?;
                let line = read_line(&mut socket).await?;
                let (workload, stream, streams) = parse_share(&line).map_err(io::Error::other)?;
                let batches = data.batches(workload).await.map_err(io::Error::other)?;
                let share = || batches.iter().skip(stream).step_by(streams.max(1));
                let rows: usize = share().map(RecordBatch::num_rows).sum();
                let bytes: usize = share().map(|batch| buffers(batch).remaining()).sum();
                socket.write_all(&[(rows as u64).to_le_bytes(), (bytes as u64).to_le_bytes()].concat()).await?;
                for batch in share() {
                    socket.write_all_buf(&mut buffers(batch)).await?;
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
            _ if line.len() == LINE_LIMIT_BYTES => return Err(io::ErrorKind::InvalidData.into()),
            byte => line.push(byte),
        }
    }
}

/// All buffers of a batch, where they lie.
fn buffers(batch: &RecordBatch) -> Segments {
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

/// Takes the workload as bare streams over several connections at once, a share each, from the server that `client` is
/// connected to.
///
/// # Errors
/// [`FlightError`].
pub async fn stream(
    client: &Client,
    at: &Address,
    access: &Access<ClientTls>,
    workload: Workload,
    streams: usize,
) -> Result<Transferred, FlightError> {
    let address = find(client, at).await?;
    let mut sockets = Vec::new();
    for _ in 0..streams {
        let socket = Socket::connect(&address, access.tls.as_ref(), &Tuning::default()).await;
        sockets.push(socket.map_err(|source| FlightError::Connect { address: address.to_string(), source })?);
    }
    over_all(sockets, |stream, mut socket| {
        let peer = address.to_string();
        async move {
            let taking = take(&mut socket, format!("{workload}/{stream}/{streams}\n"));
            taking.await.map_err(|source| FlightError::Broken { peer, source })
        }
    })
    .await
}

async fn take(socket: &mut Socket, line: String) -> io::Result<Transferred> {
    socket.write_all(line.as_bytes()).await?;
    let (rows, bytes) = (socket.read_u64_le().await?, socket.read_u64_le().await?);
    let mut buffer = vec![0; READ_BYTES];
    let mut left = bytes;
    while left > 0 {
        match socket.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => left = left.saturating_sub(read as u64),
        }
    }
    Ok(Transferred { rows, bytes, ..Transferred::default() })
}

/// Asks a server where its bare streams are. One that listens on all interfaces says so; the one it was reached at will do.
async fn find(client: &Client, at: &Address) -> Result<Address, FlightError> {
    const NOWHERE: FlightError = FlightError::Malformed { problem: "it does not say where bare streams are" };
    let mut told = client.download(BARE_STREAMS).await?;
    while told.next().await?.is_some() {}
    let found = told.schema().and_then(|schema| schema.metadata().get(BARE_STREAMS)).ok_or(NOWHERE)?;
    match (at, found.strip_prefix("unix:")) {
        (Address::Unix(_), Some(path)) => Ok(Address::Unix(path.into())),
        (Address::Tcp(at), None) => {
            let found: std::net::SocketAddr = found.parse().map_err(|_| NOWHERE)?;
            Ok(Address::Tcp((at.ip(), found.port()).into()))
        }
        _ => Err(NOWHERE),
    }
}
