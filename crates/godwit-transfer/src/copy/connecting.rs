//! Connections that are made while it is found out what is to be copied.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use godwit_flight::{Client, FlightError};

use super::ahead::{Ahead, Guess};
use super::sources::Mirror;
use super::{CopyOptions, RelayWay};
use crate::control::Control;
use crate::session::StreamId;
use crate::task::Task;
use crate::tune;

/// A connection, and what it was asked for ahead.
pub(crate) struct Made {
    pub(crate) client: Client,
    pub(crate) ahead: Option<Ahead>,
}

impl From<Client> for Made {
    fn from(client: Client) -> Self {
        Self { client, ahead: None }
    }
}

/// Connections that are being made. They end with the copy.
pub(crate) type Connecting = HashMap<StreamId, Task<Result<Made, FlightError>>>;

/// A server that has not answered for so long is far away.
const IS_FAR: Duration = Duration::from_millis(5);

/// Connections that are made beside the first one, before it is known how many there are to be. Those that are not wanted end.
#[derive(Default)]
pub(super) struct Early {
    connecting: Connecting,
    guess: Option<Guess>,
}

impl Early {
    /// Begins to make them where the first connection takes its time: each then costs no round trip. They ask for what is
    /// guessed.
    pub(super) fn begin(control: &Arc<Control>, options: &CopyOptions, guess: Option<Guess>) -> Self {
        if control.is_pool() || options.relay.is_some() {
            return Self::default();
        }
        let streams = tune::streams(options.mode, options.streams, tune::FAR);
        let connecting = (1..streams).map(|stream| {
            let (control, guess) = (control.clone(), guess.clone());
            let connecting = async move {
                tokio::time::sleep(IS_FAR).await;
                let client = control.another().await?;
                let ahead = guess.and_then(|guess| guess.ask(&client, stream));
                Ok(Made { client, ahead })
            };
            (stream, Task::spawn(connecting))
        });
        Self { connecting: connecting.collect(), guess }
    }

    /// The first connection is made, over a path of that round-trip time: it asks for what is guessed, too.
    pub(super) fn first(&mut self, control: &Control, rtt: Duration) {
        let Some(client) = control.current().filter(|_| rtt >= IS_FAR) else { return };
        let Some(ahead) = self.guess.as_ref().and_then(|guess| guess.ask(&client, 0)) else { return };
        let made = Made { client, ahead: Some(ahead) };
        self.connecting.insert(0, Task::spawn(std::future::ready(Ok(made))));
    }

    /// Those that are among so many connections over a path of that round-trip time, and what they were asked for.
    pub(super) fn of(mut self, streams: u32, rtt: Duration) -> (Connecting, Option<Guess>) {
        self.connecting.retain(|stream, _| *stream < streams && !tune::is_near(rtt));
        let is_asked = self.connecting.contains_key(&0);
        (self.connecting, self.guess.filter(|_| is_asked))
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
    for stream in 1..streams {
        let control = servers[stream as usize % servers.len()].clone();
        let connect = || Task::spawn(async move { Ok(control.another().await?.into()) });
        early.entry(stream).or_insert_with(connect);
    }
    early
}
