//! The SLURM settings of a site, which apply to all jobs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The SLURM settings of a site, a table of a configuration file. Every setting has a default; unknown names are
/// rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmProfile {
    /// Account that is charged for the jobs (`--account`).
    pub account: Option<String>,
    /// Partition of the jobs (`--partition`).
    pub partition: Option<String>,
    /// Quality of service of the jobs (`--qos`).
    pub qos: Option<String>,
    /// Required features of the hosts (`--constraint`).
    pub constraint: Option<String>,
    /// Time limit in SLURM's format (`--time`), such as `4:00:00` or `1-12`, for jobs that have no time limit of their
    /// own.
    pub time: Option<String>,
    /// The sbatch option that requests memory.
    pub memory: MemoryRequest,
    /// Number of seconds before the time limit at which a job stops, saves its progress and is requeued. SLURM may send
    /// the signal up to a minute too early. The default of 300 suffices to write the largest partition.
    pub stop_before_limit_s: u32,
    /// Additional arguments of `sbatch`, such as `--gres=gpu:1`.
    pub extra_arguments: Vec<String>,
    /// Additional arguments of the `srun` command that starts the workers.
    pub step_arguments: Vec<String>,
    /// Bash commands that the batch script runs before it starts the workers, such as `module load bwa`.
    pub setup: Vec<String>,
    /// Path of the cluster's SLURM configuration (`SLURM_CONF`), if SLURM's programs do not find it by default.
    pub configuration: Option<PathBuf>,
}

/// The sbatch option that requests memory. Sites accept `--mem`, `--mem-per-cpu`, or none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryRequest {
    /// `--mem`: memory per host, which is the memory of a worker.
    #[default]
    PerNode,
    /// `--mem-per-cpu`: memory of a worker divided by its number of processors, rounded up.
    PerCpu,
    /// No memory option, for sites that assign whole hosts to jobs.
    None,
}

impl Default for SlurmProfile {
    fn default() -> Self {
        Self {
            account: None,
            partition: None,
            qos: None,
            constraint: None,
            time: None,
            memory: MemoryRequest::default(),
            stop_before_limit_s: 300,
            extra_arguments: Vec::new(),
            step_arguments: Vec::new(),
            setup: Vec::new(),
            configuration: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_what_differs_and_nothing_else() {
        let read = |text: &str| serde_json::from_str::<SlurmProfile>(text);
        assert_eq!(read("{}").unwrap(), SlurmProfile::default());
        let profile = read(r#"{"account": "lab", "memory": "per-cpu", "setup": ["module load bwa"]}"#).unwrap();
        assert_eq!((profile.account.as_deref(), profile.memory), (Some("lab"), MemoryRequest::PerCpu));
        assert_eq!(profile.setup, ["module load bwa"]);
        assert!(read(r#"{"acount": "lab"}"#).is_err(), "a slip must not be passed over");
    }
}
