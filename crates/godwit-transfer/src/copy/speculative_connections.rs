//! Connections that are opened before the list of entries, and so the number of connections, is known.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use godwit_flight::{Client, FlightError};

use super::mirrors::Mirror;
use super::prefetch::{Prefetch, PrefetchDownload};
use super::{CopyOptions, RelayRoute};
use crate::abort_on_drop::AbortOnDropTask;
use crate::control_client::ControlClient;
use crate::tcp_tuning;
use godwit_transfer_session::StreamId;

/// A connection, and the download of the blocks that were requested over it in advance.
pub(crate) struct StreamConnection {
    pub(crate) client: Client,
    pub(crate) prefetch: Option<PrefetchDownload>,
}

impl From<Client> for StreamConnection {
    fn from(client: Client) -> Self {
        Self { client, prefetch: None }
    }
}

/// Tasks that open connections, by stream. Dropping them aborts them.
pub(crate) type PendingConnections = HashMap<StreamId, AbortOnDropTask<Result<StreamConnection, FlightError>>>;

/// Smallest round-trip time at which connections are opened in advance.
const FAR_PATH_MIN_RTT: Duration = Duration::from_millis(5);

/// Connections that are opened in parallel with the first one, before their number is known. Excess connections are
/// closed.
#[derive(Default)]
pub(super) struct SpeculativeConnections {
    pending: PendingConnections,
    prefetch: Option<Prefetch>,
}

impl SpeculativeConnections {
    /// Starts to open further connections if the first one is not open after 5 ms, so that they do not cost another
    /// round trip. Each connection requests its share of the prefetched blocks.
    pub(super) fn start(control: &Arc<ControlClient>, options: &CopyOptions, prefetch: Option<Prefetch>) -> Self {
        if control.is_pool() || options.relay.is_some() {
            return Self::default();
        }
        let streams = tcp_tuning::stream_count(options.mode, options.streams, tcp_tuning::MAX_RTT);
        let connecting = (1..streams).map(|stream| {
            let (control, guess) = (control.clone(), prefetch.clone());
            let connecting = async move {
                tokio::time::sleep(FAR_PATH_MIN_RTT).await;
                let client = control.open_connection().await?;
                let prefetch = guess.and_then(|guess| guess.request_blocks(&client, stream));
                Ok(StreamConnection { client, prefetch })
            };
            (stream, AbortOnDropTask::spawn(connecting))
        });
        Self { pending: connecting.collect(), prefetch }
    }

    /// Requests the first connection's share of the prefetched blocks, and adds that connection, if the round-trip time
    /// is long enough.
    pub(super) fn add_first_connection(&mut self, control: &ControlClient, rtt: Duration) {
        let Some(client) = control.current_client().filter(|_| rtt >= FAR_PATH_MIN_RTT) else { return };
        let Some(ahead) = self.prefetch.as_ref().and_then(|guess| guess.request_blocks(&client, 0)) else { return };
        let made = StreamConnection { client, prefetch: Some(ahead) };
        self.pending.insert(0, AbortOnDropTask::spawn(std::future::ready(Ok(made))));
    }

    /// Returns the connections of a copy with `streams` connections over a path with round-trip time `rtt`, and their
    /// prefetch.
    pub(super) fn into_pending(mut self, streams: u32, rtt: Duration) -> (PendingConnections, Option<Prefetch>) {
        self.pending.retain(|stream, _| *stream < streams && !tcp_tuning::is_near_path(rtt));
        let is_asked = self.pending.contains_key(&0);
        (self.pending, self.prefetch.filter(|_| is_asked))
    }
}

/// Starts to open all connections except the first and the pending ones. Their handshakes run while the entries are
/// listed.
pub(super) fn connect_remaining_streams(
    streams: u32,
    control: &Arc<ControlClient>,
    mirrors: &[Mirror],
    relay: Option<&RelayRoute>,
    mut early: PendingConnections,
) -> PendingConnections {
    let servers: Vec<_> = match relay {
        Some(relay) => vec![&relay.control],
        None => [control].into_iter().chain(mirrors.iter().map(|mirror| &mirror.control)).collect(),
    };
    for stream in 1..streams {
        let control = servers[stream as usize % servers.len()].clone();
        let connect = || AbortOnDropTask::spawn(async move { Ok(control.open_connection().await?.into()) });
        early.entry(stream).or_insert_with(connect);
    }
    early
}
