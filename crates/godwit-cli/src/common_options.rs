//! The values of the options that all verbs have.

use godwit_pipeline::JobOptions;

use crate::cli::{CommonArgs, JobMetrics, MarkingArgs};

impl CommonArgs {
    /// Returns the requested number of threads (`--threads`), or the number of cores by default.
    pub fn thread_count(&self) -> usize {
        match self.threads {
            Some(threads) => threads as usize,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Converts the common options and the options of duplicate marking to options of a job.
    pub fn job_options(&self, marking: &MarkingArgs, metrics: JobMetrics) -> JobOptions {
        JobOptions {
            threads: self.thread_count(),
            memory_bytes: self.memory,
            temp: self.temp.clone(),
            partitions: marking.partitions,
            duplicates: marking.duplicates.into(),
            optical_distance: marking.optical_distance,
            marking: marking.marking_options(),
            python_step: None,
            recalibration: None,
            recipients: Vec::new(),
            metrics: metrics.is_on,
            picard_metrics: metrics.picard,
            command: command_line(&self.configured_flags),
            // This path also works if the executable was removed or replaced by another version.
            godwit_program: "/proc/self/exe".into(),
        }
    }
}

/// Returns the command line for reports, including the options from configuration files and the environment.
pub fn command_line(configured: &[String]) -> Vec<String> {
    let given = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    given.chain(configured.iter().cloned()).collect()
}
