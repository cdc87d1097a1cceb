//! One node of a shuffle: carries out what it is ordered, step by step, so that all nodes begin each step together.

use std::time::Instant;

use godwit_flight::measure::shuffle::{Arrived, Node, Slices, Wanted, tuning, verify};
use godwit_flight::{Access, Address, Client, Routes, Server};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::super::{parse_address, threads};
use crate::failure::{Exit, Failure};

/// A step.
#[derive(Clone, Deserialize, Serialize)]
pub enum Order {
    /// Connect to all others.
    Connect { peers: Vec<String> },
    /// Make a slice for each of so many nodes; with `ask_peers`, have the others make what they lack meanwhile.
    Make { takers: u32, slice_bytes: u64, ask_peers: bool },
    /// Fetch slices from all others at once.
    Transfer { slice_bytes: u64, message_bytes: u64 },
    /// Compare what came with its checksums.
    Verify,
    /// Fetch again, and verify what came while more comes.
    Overlap { slice_bytes: u64, message_bytes: u64 },
}

/// How a step went.
#[derive(Deserialize, Serialize)]
pub struct Done {
    /// How long it took.
    pub seconds: f64,
    /// Bytes that came from others.
    pub fetched_bytes: u64,
}

/// Why a step failed, between processes.
#[derive(Deserialize, Serialize)]
pub struct Refused {
    exit: i32,
    message: String,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::new(Exit::of_code(Some(refused.exit)), refused.message)
    }
}

/// A node at work.
pub struct Session {
    index: u32,
    node: Node,
    arrived: Vec<Arrived>,
}

impl Session {
    /// A node that has nothing yet.
    pub fn new(index: u32) -> Self {
        Self { index, node: Node { slices: Slices::of(index), peers: Vec::new() }, arrived: Vec::new() }
    }

    /// Carries out a step.
    pub async fn carry_out(&mut self, order: Order) -> Result<Done, Failure> {
        let started = Instant::now();
        let wanted = |slice_bytes, message_bytes| Wanted { taker: self.index, slice_bytes, message_bytes };
        let mut fetched_bytes = 0;
        match order {
            Order::Connect { peers } => {
                self.node.peers.clear();
                for peer in peers {
                    let address = parse_address(&peer)?;
                    self.node.peers.push(Client::connect(&address, Access::default(), tuning()).await?);
                }
            }
            Order::Make { takers, slice_bytes, ask_peers } => {
                let slices = self.node.slices.clone();
                let making = tokio::task::spawn_blocking(move || slices.make(takers, slice_bytes));
                if ask_peers {
                    self.node.prepare(wanted(slice_bytes, 0)).await?;
                }
                making.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            }
            Order::Transfer { slice_bytes, message_bytes } => {
                self.arrived = self.node.fetch(wanted(slice_bytes, message_bytes)).await?;
                let bytes: u64 = self.arrived.iter().map(Arrived::bytes).sum();
                // Its own slice is among them.
                fetched_bytes = bytes - slice_bytes;
            }
            Order::Verify => verify(std::mem::take(&mut self.arrived)).await?,
            Order::Overlap { slice_bytes, message_bytes } => {
                fetched_bytes = self.node.fetch_verifying(wanted(slice_bytes, message_bytes)).await?;
            }
        }
        Ok(Done { seconds: started.elapsed().as_secs_f64(), fetched_bytes })
    }
}

/// Takes orders from stdin, a line each, until it is closed.
pub fn run(index: u32) -> Result<(), Failure> {
    threads()?.block_on(async {
        let mut session = Session::new(index);
        let any = Address::Tcp(([127, 0, 0, 1], 0).into());
        let slices = session.node.slices.clone();
        let server = Server::bind(&any, slices, Routes::default(), Access::default(), tuning()).await?;
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
                done = session.carry_out(order) => done,
                // Whoever gave the order is gone.
                _ = lines.recv() => return Ok(()),
            };
            let answer = done.map_err(|failure| Refused { exit: failure.exit as i32, message: failure.message });
            let answer = serde_json::to_string(&answer).expect("numbers and text can be written as JSON");
            super::super::super::print(&format!("{answer}\n"))?;
        }
        Ok(())
    })
}
