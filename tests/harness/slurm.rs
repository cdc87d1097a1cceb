//! A SLURM cluster for tests: `slurm/cluster.sh`, and somebody who takes it down whatever becomes of the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::patience::wait_until;
use crate::tool::{Tool, succeed};

/// Clusters are here, for the paths of sockets are short.
const PLACE: &str = "/tmp";
/// What their names start with; then come the number of the owning process, and one of its own.
const PREFIX: &str = "godwit-slurm-";
/// More than the machine has, so that jobs of tests that run at the same time need not wait for each other.
const CPUS: &str = "32";

/// A running cluster.
pub struct Cluster {
    directory: PathBuf,
    mode: String,
    /// Takes the cluster down when its standard input closes: when this value is dropped or its process ends.
    guard: Child,
}

/// Skips the calling test where no cluster can be made.
#[macro_export]
macro_rules! needs_slurm {
    () => {
        if !$crate::slurm::is_installed() {
            $crate::skip!("missing-tool", "SLURM and munge are not installed");
        }
    };
}

/// Whether clusters can be made here.
pub fn is_installed() -> bool {
    ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun"]
        .iter()
        .all(|program| Tool::find(program).is_some() || Path::new("/usr/sbin").join(program).exists())
}

/// The cluster of four nodes that tests share. They must not do anything to its nodes.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start(4))
}

impl Cluster {
    /// A cluster with that many nodes, called `gw1` and so on.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start(nodes: u32) -> Self {
        Self::start_with(nodes, &[])
    }

    /// As [`Cluster::start`], with further options of `cluster.sh up`.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn start_with(nodes: u32, options: &[&str]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        remove_leftovers();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = Path::new(PLACE).join(format!("{PREFIX}{}-{number}", std::process::id()));
        // In a group of its own, so that an interrupt at the terminal does not reach it.
        let guard = std::os::unix::process::CommandExt::process_group(&mut script("guard", &directory), 0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the cluster's guard can be started");
        succeed(
            script("up", &directory)
                .arg(nodes.to_string())
                .args(["--cpus", CPUS, "--mode", &wanted_mode()])
                .args(options),
        );
        let environment = succeed(&mut script("env", &directory));
        let environment = String::from_utf8_lossy(&environment.stdout).into_owned();
        let mode = environment.rsplit("GODWIT_CLUSTER_MODE=").next().unwrap_or_default().trim().to_owned();
        Self { directory, mode, guard }
    }

    /// Its `slurm.conf`.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("etc/slurm.conf")
    }

    /// The scratch space of its nodes: one name, a directory of its own on each, where nodes are namespaces.
    pub fn scratch(&self) -> PathBuf {
        self.directory.join("scratch")
    }

    /// Removes what is in the scratch space of a node that has no power.
    ///
    /// # Panics
    /// When it cannot be removed.
    pub fn empty_scratch(&self, node: &str) {
        let directory = self.directory.join("local").join(node);
        for name in crate::scratch::names(&directory) {
            std::fs::remove_dir_all(directory.join(name)).expect("it can be removed");
        }
    }

    /// Whether nodes are namespaces of their own, with all that can happen to such.
    pub fn has_own_nodes(&self) -> bool {
        self.mode == "netns"
    }

    /// Has something happen to a node: `cluster.sh VERB NODE`.
    ///
    /// # Panics
    /// When it cannot.
    pub fn strike(&self, verb: &str, node: &str) {
        self.strike_with(verb, node, None);
    }

    /// As [`Cluster::strike`], for what takes an argument besides.
    ///
    /// # Panics
    /// When it cannot.
    pub fn strike_with(&self, verb: &str, node: &str, argument: Option<&str>) {
        succeed(script(verb, &self.directory).arg(node).args(argument));
    }

    /// Has a controller that does not run forget all jobs.
    ///
    /// # Panics
    /// When its notes cannot be removed.
    pub fn lose_memory(&self) {
        let state = self.directory.join("state");
        for name in crate::scratch::names(&state).iter().filter(|name| name.starts_with("job_state")) {
            std::fs::remove_file(state.join(name)).expect("it can be removed");
        }
    }

    /// Waits until the controller has written down what it knows of this job, which it does within five seconds: what came after
    /// that, it forgets when it dies.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_until_saved(&self, job: &str) {
        let notes = self.directory.join("state/job_state");
        let written = || std::fs::metadata(&notes).and_then(|notes| notes.modified()).ok();
        let before = written();
        // It writes only where something has changed.
        succeed(self.command("scontrol").args(["update", "--quiet", &format!("JobId={job}"), "Comment=seen"]));
        wait_until("the controller's notes", || written() != before);
    }

    /// One of SLURM's programs, for this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Tool::need(program).command();
        command.env("SLURM_CONF", self.configuration());
        command
    }

    /// What `scontrol show job` says.
    ///
    /// # Panics
    /// When it knows no such job.
    pub fn show(&self, job: &str) -> String {
        let output = succeed(self.command("scontrol").args(["show", "job", "--oneliner", job]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // It has nothing to tell; what it leaves, a later run removes.
        let _ = self.guard.wait();
    }
}

/// How nodes are made: `GODWIT_TEST_CLUSTER`, or as is possible here.
fn wanted_mode() -> String {
    std::env::var("GODWIT_TEST_CLUSTER").unwrap_or_else(|_| "auto".to_owned())
}

fn script(verb: &str, directory: &Path) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/slurm/cluster.sh"));
    command.arg(verb).arg("--dir").arg(directory);
    command
}

/// Takes down clusters whose owners ended together with their guards.
fn remove_leftovers() {
    let Ok(entries) = std::fs::read_dir(PLACE) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(owner) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()) else { continue };
        if entry.path().is_dir() && !Path::new("/proc").join(owner).exists() {
            // Its guard may be at it just now.
            let _ = script("down", &entry.path()).output();
        }
    }
}
