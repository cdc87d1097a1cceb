//! `--on slurm`: the same command as a job, whose nodes do the work.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_fleet::launcher::{MemoryRequest, Slurm, SlurmProfile};
use godwit_fleet::{Ending, FleetError, JobHandle, JobSpec, JobStatus, Launcher};
use godwit_pipeline::PipelineError;

use super::node::cores;
use super::spread::{finished_mark, last_error};
use crate::cli::AlignArgs;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;

/// How often SLURM is asked; sites dislike more.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How long a job may take to end once its work is done.
const LEAVING: Duration = Duration::from_secs(10);
/// How long a job that SLURM does not know may be missing before it counts as lost.
const MISSING: Duration = Duration::from_secs(60);

/// A job and who submits it.
pub struct SlurmJob {
    slurm: Slurm,
    job: JobSpec,
}

/// What SLURM is asked for, and how memory.
fn profile(args: &AlignArgs) -> SlurmProfile {
    let slurm = &args.place.slurm;
    SlurmProfile {
        account: slurm.slurm_account.clone(),
        partition: slurm.slurm_partition.clone(),
        qos: slurm.slurm_qos.clone(),
        constraint: slurm.slurm_constraint.clone(),
        time: slurm.slurm_time.clone(),
        memory: if slurm.slurm_mem_per_cpu { MemoryRequest::PerCpu } else { MemoryRequest::PerNode },
        extra_arguments: slurm.slurm_argument.clone(),
        setup: slurm.slurm_setup.clone(),
        ..SlurmProfile::default()
    }
}

impl SlurmJob {
    /// The job of this command line.
    pub fn new(args: &AlignArgs) -> Result<Self, Failure> {
        let machine =
            |what: &'static str| move |error| Failure::new(Exit::Machine, format!("cannot find {what}: {error}"));
        let program = std::env::current_exe().map_err(machine("this program"))?;
        let mut command: Vec<OsString> = vec![program.into()];
        // What is configured here and now holds for the job, wherever and whenever it starts.
        let configured = args.common.configured.iter().map(OsString::from);
        command.extend(in_allocation(std::env::args_os().skip(1).chain(configured)));
        let job = JobSpec {
            name: format!("godwit-{}", safe_name(&args.sample)),
            command,
            nodes: args.place.nodes,
            cpus_per_node: args.common.threads.unwrap_or_else(|| cores() as u32),
            memory_bytes_per_node: args.place.slurm.slurm_memory,
            time_limit: None,
            working_directory: std::env::current_dir().map_err(machine("the working directory"))?,
            environment: Vec::new(),
            job_directory: std::path::absolute(args.out.join("slurm")).map_err(machine("the output directory"))?,
        };
        Ok(Self { slurm: Slurm::new(profile(args)), job })
    }

    /// What would be submitted.
    pub fn render(&self) -> Result<String, Failure> {
        Ok(self.slurm.render(&self.job).map_err(PipelineError::from)?)
    }

    /// Submits the job, and waits for its end unless that is not wanted.
    pub fn run(&self, wait: bool, progress: &Progress, cancelled: &AtomicBool) -> Result<(), Failure> {
        let first = self.attempts().max().map_or(0, |last| last + 1);
        let handle = self.slurm.submit(&self.job).map_err(PipelineError::from)?;
        let place = self.job.job_directory.display();
        progress.say(&format!("submitted job {}; its script and logs are in {place}", handle.id));
        if wait { self.wait(&handle, first, progress, cancelled) } else { Ok(()) }
    }

    /// Numbers of the attempts that were made with this directory.
    fn attempts(&self) -> impl Iterator<Item = u64> {
        let entries = std::fs::read_dir(self.job.job_directory.join("attempts")).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
    }

    /// Whether an attempt from that number on has left word that the run is whole.
    fn is_finished(&self, first: u64) -> bool {
        let directory = &self.job.job_directory;
        self.attempts().filter(|attempt| *attempt >= first).any(|attempt| finished_mark(directory, attempt).exists())
    }

    fn wait(&self, handle: &JobHandle, first: u64, progress: &Progress, cancelled: &AtomicBool) -> Result<(), Failure> {
        let (mut told, mut missing_since, mut finished_since) = (String::new(), None, None);
        loop {
            if cancelled.load(Ordering::Relaxed) {
                self.slurm.cancel(handle).map_err(PipelineError::from)?;
                let message = format!("interrupted; job {} was cancelled", handle.id);
                return Err(Failure::new(Exit::Interrupted, message));
            }
            if self.is_finished(first) && finished_since.get_or_insert_with(Instant::now).elapsed() > LEAVING {
                // A node that was lost cannot tell SLURM that it has ended.
                return Ok(self.slurm.cancel(handle).map_err(PipelineError::from)?);
            }
            let mut now = None;
            match self.slurm.status(handle) {
                Ok(JobStatus::Ended { .. }) if self.is_finished(first) => return Ok(()),
                Ok(JobStatus::Ended { how }) => return self.ended(handle, &how),
                Ok(JobStatus::Running { headless: true, .. }) => {
                    // The others work for nobody; SLURM would let them run for ever.
                    match self.slurm.requeue(handle) {
                        Ok(()) => now = Some("lost the node that led it; queued again".to_owned()),
                        // It has gone on by itself since it was asked after; what it does now is asked next.
                        Err(FleetError::Refused { .. } | FleetError::Silent { .. }) => {}
                        Err(error) => return Err(PipelineError::from(error).into()),
                    }
                }
                Ok(JobStatus::Pending { reason }) => now = Some(format!("waits ({reason})")),
                Ok(JobStatus::Running { nodes, .. }) => now = Some(format!("runs on {}", nodes.join(", "))),
                Ok(JobStatus::Unknown { why }) => {
                    let since = *missing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > MISSING {
                        let message = format!("job {} is lost: {why}; submit it again", handle.id);
                        return Err(Failure::new(Exit::Remote, message));
                    }
                }
                // That says nothing of the job.
                Err(FleetError::Silent { .. }) => {}
                Err(error) => return Err(PipelineError::from(error).into()),
            }
            if let Some(now) = now {
                missing_since = None;
                if now != told {
                    progress.say(&format!("job {} {now}", handle.id));
                    told = now;
                }
            }
            let until = Instant::now() + ASK_AGAIN;
            while Instant::now() < until && !cancelled.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    fn ended(&self, handle: &JobHandle, how: &Ending) -> Result<(), Failure> {
        let logs = self.job.job_directory.join("logs");
        let failed = |exit, what: &str| {
            let message = format!("job {} {what}; its logs are in {}", handle.id, logs.display());
            Err(Failure::new(exit, message))
        };
        match how {
            Ending::Succeeded => Ok(()),
            Ending::Cancelled => failed(Exit::Interrupted, "was cancelled"),
            Ending::TimeLimit => failed(Exit::Remote, "ran into its time limit; give it more with --slurm-time"),
            Ending::NodeLost => failed(Exit::Remote, "lost its nodes"),
            Ending::Preempted => failed(Exit::Remote, "had to make room"),
            Ending::Failed { what, exit_code } => match last_error(&self.job, 0) {
                Some(message) => Err(Failure::new(Exit::of_code(*exit_code), message)),
                None => failed(Exit::of_code(*exit_code), &format!("failed: {what}")),
            },
        }
    }
}

/// The same words for the nodes of the job: they are in the allocation already, and read no configuration.
fn in_allocation(mut words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut found: Vec<OsString> = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--dry-run" | "--no-wait" | "--no-config") => {}
            Some("--config") => drop(words.next()),
            Some(config) if config.starts_with("--config=") => {}
            Some("--on=slurm") => found.push("--on=allocation".into()),
            Some("slurm") if found.last().is_some_and(|last| last == "--on") => found.push("allocation".into()),
            _ => found.push(word),
        }
    }
    found.push("--no-config".into());
    found
}

/// A sample's name with what SLURM does not take replaced.
fn safe_name(sample: &str) -> String {
    sample
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_runs_the_same_command_in_its_allocation() {
        let of = |line: &str| {
            let words = in_allocation(line.split(' ').map(OsString::from));
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            of("align --on slurm --nodes 4 --sample slurm"),
            "align --on allocation --nodes 4 --sample slurm --no-config"
        );
        assert_eq!(
            of("align --config f --config=g --dry-run --no-wait --on=slurm"),
            "align --on=allocation --no-config"
        );
    }

    #[test]
    fn names_of_jobs_are_plain() {
        assert_eq!(safe_name("NA 12878/β"), "NA_12878__");
    }
}
