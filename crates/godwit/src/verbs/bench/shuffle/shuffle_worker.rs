//! A worker of a shuffle. It runs one command for each step, so that all workers start each step together.

use std::time::Instant;

use godwit_cli::failure::Failure;
use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server};
use godwit_model::ErrorKind;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::super::{new_runtime, parse_address};
use super::slice_transfer::{
    ReceivedSlice, ShuffleWorker, SliceRequest, SliceSource, transport_options, verify_slices,
};

/// A command to a worker, which starts one step of a round.
#[derive(Clone, Deserialize, Serialize)]
pub enum ShuffleCommand {
    /// Connects to the workers at the addresses `peers`.
    Connect { peers: Vec<String> },
    /// Generates a slice for each of `takers` workers. With `ask_peers`, also requests the peers to generate theirs.
    Make { takers: u32, slice_bytes: u64, ask_peers: bool },
    /// Fetches a slice from every other worker concurrently.
    Transfer { slice_bytes: u64, message_bytes: u64 },
    /// Verifies the checksums of the received slices.
    Verify,
    /// Fetches the slices again, and verifies each slice while further slices arrive.
    Overlap { slice_bytes: u64, message_bytes: u64 },
}

/// Duration and volume of one step on one worker.
#[derive(Deserialize, Serialize)]
pub struct StepTiming {
    /// Duration of the step, in seconds.
    pub seconds: f64,
    /// Number of bytes received from other workers.
    pub fetched_bytes: u64,
}

/// The failure of a step, in the form that a worker process sends to the measuring process.
#[derive(Deserialize, Serialize)]
pub struct StepFailure {
    exit: i32,
    message: String,
}

impl From<StepFailure> for Failure {
    fn from(refused: StepFailure) -> Self {
        Self::new(ErrorKind::of_exit_code(Some(refused.exit)), refused.message)
    }
}

/// State of a worker during the measurement: its slices, connections and received slices.
pub struct ShuffleSession {
    index: u32,
    node: ShuffleWorker,
    received: Vec<ReceivedSlice>,
}

impl ShuffleSession {
    /// Creates the state of a worker without slices and connections.
    pub fn new(index: u32) -> Self {
        Self { index, node: ShuffleWorker { slices: SliceSource::new(index), peers: Vec::new() }, received: Vec::new() }
    }

    /// Runs a command and returns its timing.
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
                // The worker's own slice is among the received ones, but did not cross the network.
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

/// Runs as a worker process: reads commands from stdin, one per line, and prints the timings, until stdin is closed.
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
            // This thread runs until stdin is closed or the process exits.
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let _ = sender.blocking_send(line);
            }
        });
        while let Some(line) = lines.recv().await {
            let order = serde_json::from_str(&line)
                .map_err(|error| Failure::new(ErrorKind::Usage, format!("{line} is not a command: {error}")))?;
            let done = tokio::select! {
                done = session.run_command(order) => done,
                // Stdin was closed, so the process that measures has exited.
                _ = lines.recv() => return Ok(()),
            };
            let answer =
                done.map_err(|failure| StepFailure { exit: failure.kind.exit_code(), message: failure.message });
            let answer = serde_json::to_string(&answer).expect("numbers and text can be written as JSON");
            super::super::super::print(&format!("{answer}\n"))?;
        }
        Ok(())
    })
}
