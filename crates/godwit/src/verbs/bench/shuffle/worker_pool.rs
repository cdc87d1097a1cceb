//! The workers of a shuffle: local processes, or this process with remote peers.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use tokio::runtime::Runtime;

use super::super::process_cpu_seconds;
use super::shuffle_worker::{ShuffleCommand, ShuffleSession, StepFailure, StepTiming};
use crate::failure::{Exit, Failure};

/// Workers that run commands together.
pub enum WorkerPool {
    /// Each worker is a process.
    Processes(WorkerProcesses),
    /// One local worker; its peers only serve.
    ThisProcess { session: Box<ShuffleSession>, runtime: Runtime, peers: Vec<String> },
}

impl WorkerPool {
    /// Connects every worker to all others.
    pub fn connect(&mut self) -> Result<Vec<StepTiming>, Failure> {
        match self {
            Self::Processes(processes) => {
                let others = |node: usize| {
                    let addresses = processes.addresses.iter().enumerate();
                    addresses.filter(|(other, _)| *other != node).map(|(_, address)| address.clone()).collect()
                };
                let orders: Vec<ShuffleCommand> = (0..processes.addresses.len())
                    .map(|node| ShuffleCommand::Connect { peers: others(node) })
                    .collect();
                processes.send_commands(&orders)
            }
            Self::ThisProcess { peers, .. } => {
                let order = ShuffleCommand::Connect { peers: peers.clone() };
                self.run_step(&order)
            }
        }
    }

    /// Runs a command on every worker; returns when the last one has finished.
    pub fn run_step(&mut self, order: &ShuffleCommand) -> Result<Vec<StepTiming>, Failure> {
        match self {
            Self::Processes(processes) => processes.send_commands(&vec![order.clone(); processes.children.len()]),
            Self::ThisProcess { session, runtime, .. } => {
                Ok(vec![runtime.block_on(session.run_command(order.clone()))?])
            }
        }
    }

    /// Returns the CPU time of all workers so far, in seconds; that of remote peers is unknown.
    pub fn cpu_seconds(&self) -> f64 {
        match self {
            Self::Processes(processes) => {
                let stat = |child: &Child| PathBuf::from(format!("/proc/{}/stat", child.id()));
                processes.children.iter().filter_map(|child| process_cpu_seconds(&stat(child))).sum()
            }
            Self::ThisProcess { .. } => process_cpu_seconds(Path::new("/proc/self/stat")).unwrap_or_default(),
        }
    }
}

/// Processes of this program, one per worker.
pub struct WorkerProcesses {
    children: Vec<Child>,
    addresses: Vec<String>,
    /// Lines that workers print; `None` if a worker has exited.
    lines: mpsc::Receiver<(usize, Option<String>)>,
}

impl WorkerProcesses {
    /// Starts the processes.
    pub fn start(nodes: u32) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot start a node: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let (sender, lines) = mpsc::channel();
        let mut processes = Self { children: Vec::new(), addresses: Vec::new(), lines };
        for node in 0..nodes as usize {
            let mut command = Command::new(&program);
            command.args(["bench", "shuffle", "--node", &node.to_string()]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
            let stdout = child.stdout.take();
            processes.children.push(child);
            let sender = sender.clone();
            std::thread::spawn(move || {
                // The receiver is gone if the measurement has failed.
                for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                    let _ = sender.send((node, Some(line)));
                }
                let _ = sender.send((node, None));
            });
        }
        processes.addresses = processes.read_line_of_each(Ok)?;
        Ok(processes)
    }

    /// Waits for a line of each worker; stops at the first failure.
    fn read_line_of_each<T>(&self, read: impl Fn(String) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
        let mut found: Vec<Option<T>> = self.children.iter().map(|_| None).collect();
        while found.iter().any(Option::is_none) {
            match self.lines.recv() {
                Ok((node, Some(line))) => found[node] = Some(read(line)?),
                Ok((node, None)) => {
                    return Err(Failure::new(
                        Exit::Machine,
                        format!("node {node} has ended before its time; see above"),
                    ));
                }
                Err(_) => return Err(Failure::new(Exit::Machine, "all nodes have ended before their time".into())),
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn send_commands(&mut self, orders: &[ShuffleCommand]) -> Result<Vec<StepTiming>, Failure> {
        for (child, order) in self.children.iter_mut().zip(orders) {
            let order = serde_json::to_string(order).expect("numbers and text can be written as JSON");
            // A worker that has exited is noticed below.
            let _ = child.stdin.as_mut().map(|stdin| writeln!(stdin, "{order}"));
        }
        self.read_line_of_each(|line| {
            let answer: Result<Result<StepTiming, StepFailure>, _> = serde_json::from_str(&line);
            let wrong = |error| Failure::new(Exit::Bug, format!("a node answers {line}: {error}"));
            Ok(answer.map_err(wrong)??)
        })
    }
}

impl Drop for WorkerProcesses {
    fn drop(&mut self) {
        // They have no state that would need a clean exit.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
