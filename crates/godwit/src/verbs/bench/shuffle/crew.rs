//! Those who shuffle: processes of this machine, or this one against peers elsewhere.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use tokio::runtime::Runtime;

use super::super::process_seconds;
use super::node::{Done, Order, Refused, Session};
use crate::failure::{Exit, Failure};

/// Nodes that carry out orders together.
pub enum Crew {
    /// Each a process of its own.
    Processes(Processes),
    /// One node here; its peers only serve.
    Here { session: Box<Session>, runtime: Runtime, peers: Vec<String> },
}

impl Crew {
    /// Has every node connect to all others.
    pub fn connect(&mut self) -> Result<Vec<Done>, Failure> {
        match self {
            Self::Processes(processes) => {
                let others = |node: usize| {
                    let addresses = processes.addresses.iter().enumerate();
                    addresses.filter(|(other, _)| *other != node).map(|(_, address)| address.clone()).collect()
                };
                let orders: Vec<Order> =
                    (0..processes.addresses.len()).map(|node| Order::Connect { peers: others(node) }).collect();
                processes.carry_out(&orders)
            }
            Self::Here { peers, .. } => {
                let order = Order::Connect { peers: peers.clone() };
                self.all(&order)
            }
        }
    }

    /// Has every node carry out a step; returns when the last one has.
    pub fn all(&mut self, order: &Order) -> Result<Vec<Done>, Failure> {
        match self {
            Self::Processes(processes) => processes.carry_out(&vec![order.clone(); processes.children.len()]),
            Self::Here { session, runtime, .. } => Ok(vec![runtime.block_on(session.carry_out(order.clone()))?]),
        }
    }

    /// CPU time of all nodes so far; of peers elsewhere nothing is known.
    pub fn cpu_seconds(&self) -> f64 {
        match self {
            Self::Processes(processes) => {
                let stat = |child: &Child| PathBuf::from(format!("/proc/{}/stat", child.id()));
                processes.children.iter().filter_map(|child| process_seconds(&stat(child))).sum()
            }
            Self::Here { .. } => process_seconds(Path::new("/proc/self/stat")).unwrap_or_default(),
        }
    }
}

/// Processes of this program, one to a node.
pub struct Processes {
    children: Vec<Child>,
    addresses: Vec<String>,
    /// Lines that nodes print; `None` where one has ended.
    lines: mpsc::Receiver<(usize, Option<String>)>,
}

impl Processes {
    /// Starts them.
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
                // Nobody listens any more where the measurement has failed.
                for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                    let _ = sender.send((node, Some(line)));
                }
                let _ = sender.send((node, None));
            });
        }
        processes.addresses = processes.line_of_each(Ok)?;
        Ok(processes)
    }

    /// Waits for a line of each node; the first failure ends it.
    fn line_of_each<T>(&self, read: impl Fn(String) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
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

    fn carry_out(&mut self, orders: &[Order]) -> Result<Vec<Done>, Failure> {
        for (child, order) in self.children.iter_mut().zip(orders) {
            let order = serde_json::to_string(order).expect("numbers and text can be written as JSON");
            // One that has ended is found below.
            let _ = child.stdin.as_mut().map(|stdin| writeln!(stdin, "{order}"));
        }
        self.line_of_each(|line| {
            let answer: Result<Result<Done, Refused>, _> = serde_json::from_str(&line);
            let wrong = |error| Failure::new(Exit::Bug, format!("a node answers {line}: {error}"));
            Ok(answer.map_err(wrong)??)
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // They keep nothing that would have to be put away.
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
