//! The workers of a shuffle: several local processes, or this process together with remote peers.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use tokio::runtime::Runtime;

use super::super::process_cpu_seconds;
use super::shuffle_worker::{ShuffleCommand, ShuffleSession, StepFailure, StepTiming};

/// Workers that run the same step at the same time.
pub enum WorkerPool {
    /// Each worker is a local process.
    Processes(WorkerProcesses),
    /// This process is the only worker that is measured; the remote peers only send slices.
    ThisProcess { session: Box<ShuffleSession>, runtime: Runtime, peers: Vec<String> },
}

impl WorkerPool {
    /// Connects every worker to all other workers.
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

    /// Runs a command on every worker, and returns the timings when all workers have finished.
    pub fn run_step(&mut self, order: &ShuffleCommand) -> Result<Vec<StepTiming>, Failure> {
        match self {
            Self::Processes(processes) => processes.send_commands(&vec![order.clone(); processes.children.len()]),
            Self::ThisProcess { session, runtime, .. } => {
                Ok(vec![runtime.block_on(session.run_command(order.clone()))?])
            }
        }
    }

    /// Returns the CPU time of all local workers so far, in seconds. The CPU time of remote peers is unknown.
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

/// Worker processes of this program.
pub struct WorkerProcesses {
    children: Vec<Child>,
    addresses: Vec<String>,
    /// Receiver of the lines that workers print, each with the number of the worker; `None` if the worker has exited.
    lines: mpsc::Receiver<(usize, Option<String>)>,
}

impl WorkerProcesses {
    /// Starts `nodes` worker processes, and waits until each has printed its address.
    pub fn start(nodes: u32) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start a worker: {error}"));
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
                // Ignore errors of sending: the receiver is dropped if the measurement has failed.
                for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                    let _ = sender.send((node, Some(line)));
                }
                let _ = sender.send((node, None));
            });
        }
        processes.addresses = processes.read_line_of_each(Ok)?;
        Ok(processes)
    }

    /// Waits for a line from each worker, and returns the parsed lines. Returns the first failure without waiting for
    /// the others.
    fn read_line_of_each<T>(&self, read: impl Fn(String) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
        let mut found: Vec<Option<T>> = self.children.iter().map(|_| None).collect();
        while found.iter().any(Option::is_none) {
            match self.lines.recv() {
                Ok((node, Some(line))) => found[node] = Some(read(line)?),
                Ok((node, None)) => {
                    return Err(Failure::new(
                        ErrorKind::Machine,
                        format!("worker {node} exited unexpectedly; see above"),
                    ));
                }
                Err(_) => return Err(Failure::new(ErrorKind::Machine, "all workers exited unexpectedly".into())),
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn send_commands(&mut self, orders: &[ShuffleCommand]) -> Result<Vec<StepTiming>, Failure> {
        for (child, order) in self.children.iter_mut().zip(orders) {
            let order = serde_json::to_string(order).expect("numbers and text can be written as JSON");
            // Ignore the error: `read_line_of_each` reports a worker that has exited.
            let _ = child.stdin.as_mut().map(|stdin| writeln!(stdin, "{order}"));
        }
        self.read_line_of_each(|line| {
            let answer: Result<Result<StepTiming, StepFailure>, _> = serde_json::from_str(&line);
            let wrong = |error| Failure::new(ErrorKind::Bug, format!("invalid response {line} of a worker: {error}"));
            Ok(answer.map_err(wrong)??)
        })
    }
}

impl Drop for WorkerProcesses {
    fn drop(&mut self) {
        // Kill the workers: they have no state that needs a clean exit.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
