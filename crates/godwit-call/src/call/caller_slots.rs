//! The number of concurrent callers, by the threads and the memory of the job.

use godwit_engines::caller::Caller;
use godwit_pipeline::PipelineError;
use godwit_pipeline::host_resources;
use serde::{Deserialize, Serialize};

use super::CallOptions;

/// Command-line option for the memory of one caller process.
const CALLER_MEMORY_OPTION: &str = "--caller-memory";

/// Limits of threads and memory for all caller processes of a godwit process together, and for each of them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CallerBudget {
    pub(super) threads: usize,
    #[serde(rename = "threads_each")]
    pub(super) threads_per_caller: usize,
    /// Memory of all callers together; `None` for half of the host's memory.
    pub(super) memory_bytes: Option<u64>,
    /// Memory of each caller; `None` for the default of the program.
    #[serde(rename = "memory_each")]
    pub(super) memory_per_caller_bytes: Option<u64>,
    /// Number of godwit processes that share the host.
    #[serde(rename = "shared_by")]
    pub(super) host_processes: u32,
}

impl CallerBudget {
    pub(super) fn from_options(options: &CallOptions) -> Self {
        Self {
            threads: options.threads,
            threads_per_caller: options.caller_threads,
            memory_bytes: options.memory_bytes,
            memory_per_caller_bytes: options.caller_memory_bytes,
            host_processes: 1,
        }
    }
}

/// Number of caller processes that run at the same time, and the memory of each.
#[derive(Clone, Copy)]
pub(super) struct CallerSlots {
    pub(super) count: usize,
    pub(super) memory_per_caller_bytes: u64,
}

impl CallerSlots {
    /// Returns the slots of a budget for a variant caller.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if the memory of the budget does not suffice for one caller.
    pub(super) fn for_caller(budget: &CallerBudget, caller: &dyn Caller) -> Result<Self, PipelineError> {
        Self::new(budget, caller.capabilities().memory_bytes, (caller.name(), CALLER_MEMORY_OPTION))
    }

    /// Returns the slots of a budget. `default_bytes` is the memory of a caller if the budget sets none; `name` and
    /// `option` are the caller and its memory option.
    pub(super) fn new(
        budget: &CallerBudget,
        default_bytes: u64,
        (name, option): (&str, &str),
    ) -> Result<Self, PipelineError> {
        let bytes_per_caller = budget.memory_per_caller_bytes.unwrap_or(default_bytes);
        let by_threads = (budget.threads / budget.threads_per_caller.max(1)).max(1);
        let memory = match budget.memory_bytes {
            Some(bytes) if bytes < bytes_per_caller => {
                let least = bytes_per_caller.div_ceil(1 << 20);
                let problem =
                    format!("--memory is less than one {name} needs; give at least {least}M, or set {option}");
                return Err(PipelineError::Options { problem });
            }
            Some(bytes) => bytes,
            // At least one caller runs, even if memory seems too small: its default memory is only an estimate.
            None => host_resources::memory_bytes().unwrap_or(u64::MAX) / 2 / u64::from(budget.host_processes.max(1)),
        };
        let by_memory = usize::try_from(memory / bytes_per_caller.max(1)).unwrap_or(usize::MAX).max(1);
        Ok(Self { count: by_threads.min(by_memory), memory_per_caller_bytes: bytes_per_caller })
    }
}
