//! Where the nodes of a run are started.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use godwit_pipeline::{Launch, PipelineError, PlannedNodes, Spread};

use crate::cli::{AlignArgs, Place};
use crate::failure::{Exit, Failure};

/// How long nodes have to end by themselves.
const GRACE: Duration = Duration::from_secs(3);

/// Processes of this machine.
pub struct LocalNodes {
    program: PathBuf,
    nodes: u32,
    threads: usize,
    temp: Option<PathBuf>,
    children: Mutex<Vec<Child>>,
}

/// What starts the nodes, where the run is spread.
pub fn launch(args: &AlignArgs) -> Result<Option<LocalNodes>, Failure> {
    let Some(Place::Local) = args.place.on else { return Ok(None) };
    let failed = |error| Failure::new(Exit::Machine, format!("cannot find this program: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let threads = node_threads(args);
    let (nodes, temp, children) = (args.place.nodes, args.common.temp.clone(), Mutex::default());
    Ok(Some(LocalNodes { program, nodes, threads, temp, children }))
}

/// Threads of each node: those asked for, else its share of the cores.
fn node_threads(args: &AlignArgs) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    args.common.threads.map_or((cores / args.place.nodes as usize).max(1), |threads| threads as usize)
}

/// The nodes that a run would start, where it is spread.
pub fn planned(args: &AlignArgs) -> Option<PlannedNodes> {
    args.place.on.map(|Place::Local| PlannedNodes { nodes: args.place.nodes, threads: node_threads(args) })
}

/// How the run is spread.
pub fn spread<'l>(args: &AlignArgs, launch: &'l LocalNodes) -> Spread<'l> {
    Spread { nodes: args.place.nodes, address: IpAddr::V4(Ipv4Addr::LOCALHOST), one_machine: true, launch }
}

impl Launch for LocalNodes {
    fn start(&self, rendezvous: &Path) -> Result<(), PipelineError> {
        for _ in 0..self.nodes {
            let mut command = Command::new(&self.program);
            command.arg("node").arg("--rendezvous").arg(rendezvous).args(["--threads", &self.threads.to_string()]);
            if let Some(temp) = &self.temp {
                command.arg("--temp").arg(temp);
            }
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            let failed = |source| PipelineError::File { action: "start", path: self.program.clone(), source };
            self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child.map_err(failed)?);
        }
        Ok(())
    }

    fn ended(&self) -> Option<String> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = children.iter_mut().all(|child| !matches!(child.try_wait(), Ok(None)));
        ended.then(|| "all of them ended; see what they said above".to_owned())
    }

    fn stop(&self) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + GRACE;
        for child in children.iter_mut() {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            // Those that ended are not there to be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
        children.clear();
    }
}
