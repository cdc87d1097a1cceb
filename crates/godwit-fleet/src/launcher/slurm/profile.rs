//! Settings of a site for every job.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of a site, as a table of a configuration file. All have defaults; unknown names are rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlurmProfile {
    /// Account that is charged: `--account`.
    pub account: Option<String>,
    /// `--partition`.
    pub partition: Option<String>,
    /// `--qos`.
    pub qos: Option<String>,
    /// `--constraint`.
    pub constraint: Option<String>,
    /// `--time` in SLURM's format (`4:00:00`, `1-12`), for jobs without a time limit.
    pub time: Option<String>,
    /// The option that requests memory.
    pub memory: MemoryRequest,
    /// Seconds before the time limit at which the job stops, stores its progress, and is requeued. SLURM may signal up to a
    /// minute early. 300 is enough for the largest partition to be written.
    pub stop_before_limit_s: u32,
    /// Further arguments of `sbatch`, one each: `--gres=gpu:1`.
    pub extra_arguments: Vec<String>,
    /// Further arguments of the `srun` that starts the workers.
    pub step_arguments: Vec<String>,
    /// Lines of bash before the workers start, as in `module load bwa`.
    pub setup: Vec<String>,
    /// The cluster's configuration (`SLURM_CONF`), where SLURM's programs do not find it by default.
    pub configuration: Option<PathBuf>,
}

/// The option that requests memory; sites allow one or the other, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryRequest {
    /// `--mem`.
    #[default]
    PerNode,
    /// `--mem-per-cpu`: the memory of a worker, divided by its processors and rounded up.
    PerCpu,
    /// None, for sites that assign whole hosts.
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
