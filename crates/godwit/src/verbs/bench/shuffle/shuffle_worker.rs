//! A worker of a shuffle: runs commands step by step, so that all workers start each step together.

use std::time::Instant;

use godwit_flight::measure::shuffle::{
    ReceivedSlice, ShuffleWorker, SliceRequest, SliceSource, transport_options, verify_slices,
};
use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::super::{new_runtime, parse_address};
use crate::failure::{Exit, Failure};

/// A command to a worker: one step.
#[derive(Clone, Deserialize, Serialize)]
pub enum ShuffleCommand {
    /// Connects to all others.
    Connect { peers: Vec<String> },
    /// Makes a slice for each of `takers` workers; with `ask_peers`, peers make theirs meanwhile.
    Make { takers: u32, slice_bytes: u64, ask_peers: bool },
    /// Fetches slices from all others concurrently.
    Transfer { slice_bytes: u64, message_bytes: u64 },
    /// Verifies the checksums of the received slices.
    Verify,
    /// Fetches again, and verifies slices while others arrive.
    Overlap { slice_bytes: u64, message_bytes: u64 },
}

/// Result of a step of one worker.
#[derive(Deserialize, Serialize)]
pub struct StepTiming {
    /// Duration in seconds.
    pub seconds: f64,
    /// Bytes received from others.
    pub fetched_bytes: u64,
}

/// The failure of a step, serialized between processes.
#[derive(Deserialize, Serialize)]
pub struct StepFailure {
    exit: i32,
    message: String,
}

impl From<StepFailure> for Failure {
    fn from(refused: StepFailure) -> Self {
        Self::new(Exit::from_code(Some(refused.exit)), refused.message)
    }
}

/// State of a worker.
pub struct ShuffleSession {
    index: u32,
    node: ShuffleWorker,
    received: Vec<ReceivedSlice>,
}

impl ShuffleSession {
    /// Creates a worker without slices.
    pub fn new(index: u32) -> Self {
        Self { index, node: ShuffleWorker { slices: SliceSource::new(index), peers: Vec::new() }, received: Vec::new() }
    }

    /// Runs a command.
    pub async fn run_command(&mut self, order: ShuffleCommand) -> Result<StepTiming, Failure> {
        let started = Instant::now();
        let wanted = |slice_bytes, message_bytes| SliceRequest { receiver: self.index, slice_bytes, message_bytes };
        let mut fetched_bytes = 0;
        match order {
            ShuffleCommand::Connect { peers } => {
                self.node.peers.clear();
                for peer in peers {
                    let address = parse_address(&peer)?;
                    self.node
                        .peers
                        .push(Client::connect(&address, ConnectionSecurity::default(), transport_options()).await?);
                }
            }
            ShuffleCommand::Make { takers, slice_bytes, ask_peers } => {
                let slices = self.node.slices.clone();
                let making = tokio::task::spawn_blocking(move || slices.generate(takers, slice_bytes));
                if ask_peers {
                    self.node.prepare_slices(wanted(slice_bytes, 0)).await?;
                }
                making.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            }
            ShuffleCommand::Transfer { slice_bytes, message_bytes } => {
                self.received = self.node.fetch_slices(wanted(slice_bytes, message_bytes)).await?;
                let bytes: u64 = self.received.iter().map(ReceivedSlice::bytes).sum();
                // Its own slice is not fetched.
                fetched_bytes = bytes - slice_bytes;
            }
            ShuffleCommand::Verify => verify_slices(std::mem::take(&mut self.received)).await?,
            ShuffleCommand::Overlap { slice_bytes, message_bytes } => {
                fetched_bytes = self.node.fetch_and_verify(wanted(slice_bytes, message_bytes)).await?;
            }
        }
        Ok(StepTiming { seconds: started.elapsed().as_secs_f64(), fetched_bytes })
    }
}

/// Runs commands from stdin, one per line, until it is closed.
pub fn run(index: u32) -> Result<(), Failure> {
    new_runtime()?.block_on(async {
        let mut session = ShuffleSession::new(index);
        let any = Address::Tcp(([127, 0, 0, 1], 0).into());
        let slices = session.node.slices.clone();
        let server =
            Server::bind(&any, slices, Routes::default(), ConnectionSecurity::default(), transport_options()).await?;
        super::super::super::print(&format!("{}\n", server.address()))?;
        tokio::spawn(server.serve());
        let (sender, mut lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            // Ends with stdin, or with the process.
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let _ = sender.blocking_send(line);
            }
        });
        while let Some(line) = lines.recv().await {
            let order = serde_json::from_str(&line)
                .map_err(|error| Failure::new(Exit::Usage, format!("{line} is no order: {error}")))?;
            let done = tokio::select! {
                done = session.run_command(order) => done,
                // The process that sent the command has gone.
                _ = lines.recv() => return Ok(()),
            };
            let answer = done.map_err(|failure| StepFailure { exit: failure.exit as i32, message: failure.message });
            let answer = serde_json::to_string(&answer).expect("numbers and text can be written as JSON");
            super::super::super::print(&format!("{answer}\n"))?;
        }
        Ok(())
    })
}
