//! A SLURM cluster for tests: `slurm/cluster.sh`, and a guard process that removes it however the test ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tool::{Tool, run_checked};
use crate::wait::wait_until;

/// The directory of the test clusters. Its path is short, because the length of socket paths is limited.
const CLUSTER_ROOT: &str = "/tmp";
/// The prefix of the directory name of a cluster. The id of the owning process and the number of the cluster follow it.
const DIRECTORY_PREFIX: &str = "godwit-slurm-";
/// More CPUs than the machine has, so that jobs of tests that run at the same time do not wait for each other.
const CPUS_PER_HOST: &str = "32";

/// A running cluster.
pub struct SlurmCluster {
    directory: PathBuf,
    mode: String,
    /// Removes the cluster when its standard input closes: when this value is dropped or its process ends.
    guard: Child,
}

/// Skips the calling test if no SLURM cluster can be started on this machine.
#[macro_export]
macro_rules! needs_slurm {
    () => {
        if !$crate::slurm::is_installed() {
            $crate::skip!("missing-tool", "SLURM and munge are not installed");
        }
    };
}

/// Skips the calling test where the hosts of the cluster are not namespaces, so that they cannot lose power.
#[macro_export]
macro_rules! needs_host_namespaces {
    ($cluster:expr) => {
        if !$cluster.has_host_namespaces() {
            $crate::skip!("network-namespaces", "the hosts of the SLURM cluster are processes, not namespaces");
        }
    };
}

/// Reports whether SLURM clusters can be started on this machine.
pub fn is_installed() -> bool {
    ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun"]
        .iter()
        .all(|program| Tool::find(program).is_some() || Path::new("/usr/sbin").join(program).exists())
}

/// Returns the cluster of four hosts that tests share. They must not change the state of its hosts.
pub fn shared_cluster() -> &'static SlurmCluster {
    static SHARED: OnceLock<SlurmCluster> = OnceLock::new();
    SHARED.get_or_init(|| SlurmCluster::start(4))
}

impl SlurmCluster {
    /// Starts a cluster with this number of hosts, which are named `gw1`, `gw2`, and so on.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(nodes: u32) -> Self {
        Self::start_with(nodes, &[])
    }

    /// Starts a cluster as [`SlurmCluster::start`] does, with further options of `cluster.sh up`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_with(nodes: u32, options: &[&str]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        remove_leftovers();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = Path::new(CLUSTER_ROOT).join(format!("{DIRECTORY_PREFIX}{}-{number}", std::process::id()));
        // Start the guard in its own process group, so that Ctrl-C on the terminal does not interrupt it.
        let guard = std::os::unix::process::CommandExt::process_group(&mut script("guard", &directory), 0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the cluster's guard can be started");
        run_checked(
            script("up", &directory)
                .arg(nodes.to_string())
                .args(["--cpus", CPUS_PER_HOST, "--mode", &requested_mode()])
                .args(options),
        );
        let environment = run_checked(&mut script("env", &directory));
        let environment = String::from_utf8_lossy(&environment.stdout).into_owned();
        let mode = environment.rsplit("GODWIT_CLUSTER_MODE=").next().unwrap_or_default().trim().to_owned();
        Self { directory, mode, guard }
    }

    /// Returns the path of its `slurm.conf`.
    pub fn slurm_conf(&self) -> PathBuf {
        self.directory.join("etc/slurm.conf")
    }

    /// Returns the scratch space of its hosts: one path, which is a separate directory on each host where hosts are
    /// namespaces.
    pub fn scratch(&self) -> PathBuf {
        self.directory.join("scratch")
    }

    /// Removes the content of the scratch space of a host that is powered off.
    ///
    /// # Panics
    /// When it cannot be removed.
    pub fn clear_scratch(&self, node: &str) {
        let directory = self.directory.join("local").join(node);
        for name in crate::scratch::entry_names(&directory) {
            std::fs::remove_dir_all(directory.join(name)).expect("it can be removed");
        }
    }

    /// Returns an address of this machine that the hosts of the cluster reach.
    ///
    /// # Panics
    /// When the configuration cannot be read.
    pub fn gateway_address(&self) -> String {
        let text = std::fs::read_to_string(self.slurm_conf()).expect("the cluster has a configuration");
        let subnet = text.lines().find_map(|line| line.strip_prefix("SlurmctldHost=head(")?.strip_suffix(".250)"));
        subnet.map_or("127.0.0.1".to_owned(), |subnet| format!("{subnet}.254"))
    }

    /// Reports whether hosts are namespaces, into which all kinds of faults can be injected.
    pub fn has_host_namespaces(&self) -> bool {
        self.mode == "netns"
    }

    /// Injects a fault into a host: `cluster.sh VERB HOST`.
    ///
    /// # Panics
    /// When the script fails.
    pub fn inject_fault(&self, verb: &str, node: &str) {
        self.inject_fault_with_argument(verb, node, None);
    }

    /// Injects a fault as [`SlurmCluster::inject_fault`] does, for faults that take a further argument.
    ///
    /// # Panics
    /// When the script fails.
    pub fn inject_fault_with_argument(&self, verb: &str, node: &str, argument: Option<&str>) {
        run_checked(script(verb, &self.directory).arg(node).args(argument));
    }

    /// Deletes the saved state of all jobs of a controller that is not running.
    ///
    /// # Panics
    /// When the state cannot be removed.
    pub fn delete_job_state(&self) {
        let state = self.directory.join("state");
        for name in crate::scratch::entry_names(&state).iter().filter(|name| name.starts_with("job_state")) {
            std::fs::remove_file(state.join(name)).expect("it can be removed");
        }
    }

    /// Waits until the controller has saved the state of this job, which takes up to five seconds. A killed controller
    /// loses later changes.
    ///
    /// When the state is not saved.
    pub fn wait_until_state_saved(&self, job: &str) {
        let notes = self.directory.join("state/job_state");
        let written = || std::fs::metadata(&notes).and_then(|notes| notes.modified()).ok();
        let before = written();
        // Change the comment of a job, because the controller saves its state only after a change.
        run_checked(self.command("scontrol").args(["update", "--quiet", &format!("JobId={job}"), "Comment=seen"]));
        wait_until("the controller's notes", || written() != before);
    }

    /// Returns a command line of one of SLURM's programs, for this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Tool::require(program).command();
        command.env("SLURM_CONF", self.slurm_conf());
        command
    }

    /// Returns the output of `scontrol show job`.
    ///
    /// # Panics
    /// When SLURM does not know the job.
    pub fn show_job(&self, job: &str) -> String {
        let output = run_checked(self.command("scontrol").args(["show", "job", "--oneliner", job]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // Ignore the exit status of the guard: a later run removes files that it leaves.
        let _ = self.guard.wait();
    }
}

/// Returns the mode in which hosts are simulated: the value of `GODWIT_TEST_CLUSTER`, or the best mode that this
/// machine supports.
fn requested_mode() -> String {
    std::env::var("GODWIT_TEST_CLUSTER").unwrap_or_else(|_| "auto".to_owned())
}

fn script(verb: &str, directory: &Path) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/slurm/cluster.sh"));
    command.arg(verb).arg("--dir").arg(directory);
    command
}

/// Removes clusters whose owners ended together with their guards.
fn remove_leftovers() {
    let Ok(entries) = std::fs::read_dir(CLUSTER_ROOT) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(owner) = name.strip_prefix(DIRECTORY_PREFIX).and_then(|rest| rest.split('-').next()) else { continue };
        if entry.path().is_dir() && !Path::new("/proc").join(owner).exists() {
            // Ignore errors: the guard of that cluster may remove the same directory at the same time.
            let _ = script("down", &entry.path()).output();
        }
    }
}
