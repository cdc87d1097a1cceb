//! Connections that are made while it is found out what is to be copied.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::sources::Mirror;
use super::{CopyOptions, RelayWay};
use crate::control::Control;
use crate::session::StreamId;
use crate::tune;

/// Connections that are being made.
pub(crate) type Connecting =
    HashMap<StreamId, tokio::task::JoinHandle<Result<godwit_flight::Client, godwit_flight::FlightError>>>;

/// A server that has not answered for so long is far away.
const IS_FAR: Duration = Duration::from_millis(5);

/// Connections that are made beside the first one, before it is known how many there are to be. Those that are not wanted end.
#[derive(Default)]
pub(super) struct Early(Connecting);

impl Early {
    /// Begins to make them where the first connection takes its time: each then costs no round trip.
    pub(super) fn begin(control: &Arc<Control>, options: &CopyOptions) -> Self {
        if control.is_pool() || options.relay.is_some() {
            return Self::default();
        }
        let streams = |rtt| tune::streams(options.mode, options.streams, rtt);
        let (few, many) = (streams(IS_FAR), streams(tune::LONG));
        let connecting = (1..many).map(|stream| {
            let control = control.clone();
            // A connection takes two round trips, one of TCP and one of TLS.
            let wait = if stream < few { IS_FAR } else { 2 * tune::LONG };
            let connecting = async move {
                tokio::time::sleep(wait).await;
                control.another().await
            };
            (stream, tokio::spawn(connecting))
        });
        Self(connecting.collect())
    }

    /// Those that are among so many connections over a path of that round-trip time.
    pub(super) fn of(mut self, streams: u32, rtt: Duration) -> Connecting {
        let mut wanted = std::mem::take(&mut self.0);
        self.0 = wanted.extract_if(|stream, _| *stream >= streams || tune::is_near(rtt)).collect();
        wanted
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        self.0.values().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Begins to make all connections but the first and those that are being made: their handshakes take as long as it takes to find
/// out what is to be copied.
pub(super) fn connect_more(
    streams: u32,
    control: &Arc<Control>,
    mirrors: &[Mirror],
    relay: Option<&RelayWay>,
    mut early: Connecting,
) -> Connecting {
    let servers: Vec<_> = match relay {
        Some(relay) => vec![&relay.control],
        None => [control].into_iter().chain(mirrors.iter().map(|mirror| &mirror.control)).collect(),
    };
    let connecting = (1..streams).map(|stream| {
        let control = servers[stream as usize % servers.len()].clone();
        let connecting = early.remove(&stream);
        (stream, connecting.unwrap_or_else(|| tokio::spawn(async move { control.another().await })))
    });
    connecting.collect()
}
