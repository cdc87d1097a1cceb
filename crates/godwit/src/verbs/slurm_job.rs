//! `--on slurm`: the same command as a job, whose nodes do the work.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_fleet::launcher::{MemoryRequest, Slurm, SlurmProfile};
use godwit_fleet::{Ending, FleetError, JobHandle, JobSpec, JobStatus, Launcher};
use godwit_pipeline::PipelineError;

use super::node::cores;
use super::spread::{Spreadable, finished_mark, last_error};
use crate::cli::PlaceArgs;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;

/// How often SLURM is asked; sites dislike more.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How long a job may take to end once its work is done.
const LEAVING: Duration = Duration::from_secs(10);
/// Where standard input is kept, in the job's directory.
const SPOOLED_INPUT: &str = "standard-input";
/// How long a job that SLURM does not know may be missing before it counts as lost.
const MISSING: Duration = Duration::from_secs(60);
/// How long SLURM may say nothing at all: a controller that is restarted, or moved to its backup, is back by then.
const SILENCE: Duration = Duration::from_secs(30 * 60);

/// A job and who submits it.
pub struct SlurmJob {
    slurm: Slurm,
    job: JobSpec,
    /// Where standard input goes, if reads come from there: jobs have none.
    input: Option<PathBuf>,
}

/// What SLURM is asked for, and how memory.
pub fn profile(place: &PlaceArgs) -> SlurmProfile {
    let slurm = &place.slurm;
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
    pub fn new(asked: &Spreadable) -> Result<Self, Failure> {
        let machine =
            |what: &'static str| move |error| Failure::new(Exit::Machine, format!("cannot find {what}: {error}"));
        let program = std::env::current_exe().map_err(machine("this program"))?;
        let mut command: Vec<OsString> = vec![program.into()];
        let job_directory = std::path::absolute(&asked.directory).map_err(machine("the output directory"))?;
        let spooled = job_directory.join(SPOOLED_INPUT);
        // What is configured here and now holds for the job, wherever and whenever it starts.
        let configured = asked.common.configured.iter().map(OsString::from);
        let line = crate::cli::with_words(std::env::args_os().skip(1).collect(), &configured.collect::<Vec<_>>());
        command.extend(in_allocation(line, &spooled));
        let input = asked.reads_stdin.then_some(spooled);
        let job = JobSpec {
            name: format!("godwit-{}", safe_name(&asked.name)),
            command,
            nodes: asked.place.nodes,
            cpus_per_node: asked.common.threads.unwrap_or_else(|| cores() as u32),
            memory_bytes_per_node: asked.place.slurm.slurm_memory,
            time_limit: None,
            working_directory: std::env::current_dir().map_err(machine("the working directory"))?,
            environment: Vec::new(),
            job_directory,
        };
        Ok(Self { slurm: Slurm::new(profile(asked.place)), job, input })
    }

    /// What would be submitted.
    pub fn render(&self) -> Result<String, Failure> {
        Ok(self.slurm.render(&self.job).map_err(PipelineError::from)?)
    }

    /// Submits the job, and waits for its end unless that is not wanted.
    pub fn run(&self, wait: bool, progress: &Progress, cancelled: &AtomicBool) -> Result<(), Failure> {
        if let Some(path) = &self.input {
            let failed = |error| {
                Failure::new(Exit::Machine, format!("cannot keep standard input in {}: {error}", path.display()))
            };
            spool(&self.job.job_directory, path).map_err(failed)?;
        }
        let first = self.attempts().max().map_or(0, |last| last + 1);
        let handle = self.slurm.submit(&self.job).map_err(PipelineError::from)?;
        let place = self.job.job_directory.display();
        progress.say(&format!("submitted job {}; its script and logs are in {place}", handle.id));
        if !wait {
            return Ok(());
        }
        self.wait(&handle, first, progress, cancelled)?;
        // It is there for the next start of a job that did not get to its end.
        let _ = self.input.as_ref().map(std::fs::remove_file);
        Ok(())
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
        let (mut told, mut finished_since) = (String::new(), None);
        let (mut missing, mut silent) = (Patience::new(MISSING), Patience::new(SILENCE));
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
            let status = self.slurm.status(handle);
            match &status {
                Err(FleetError::Silent { .. }) => {}
                Ok(JobStatus::Unknown { .. }) => silent.renew(),
                _ => [&mut silent, &mut missing].into_iter().for_each(Patience::renew),
            }
            match status {
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
                    if missing.is_over(Instant::now()) {
                        let message = format!("job {} is lost: {why}; submit it again", handle.id);
                        return Err(Failure::new(Exit::Remote, message));
                    }
                }
                // That says nothing of the job.
                Err(error @ FleetError::Silent { .. }) => {
                    if silent.is_over(Instant::now()) {
                        let (id, minutes) = (&handle.id, SILENCE.as_secs() / 60);
                        let message = format!(
                            "SLURM has said nothing of job {id} for {minutes} minutes ({error}); the job may run on: see \
                             whether it does, and give the same command with --resume once it does not"
                        );
                        return Err(Failure::new(Exit::Remote, message));
                    }
                    now = Some("is asked after, but SLURM does not answer".to_owned());
                }
                Err(error) => return Err(PipelineError::from(error).into()),
            }
            if let Some(now) = now.filter(|now| *now != told) {
                progress.say(&format!("job {} {now}", handle.id));
                told = now;
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

/// How long something may last.
struct Patience {
    limit: Duration,
    since: Option<Instant>,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { limit, since: None }
    }

    /// It has ended.
    fn renew(&mut self) {
        self.since = None;
    }

    /// It lasts; whether it has for too long.
    fn is_over(&mut self, now: Instant) -> bool {
        now.duration_since(*self.since.get_or_insert(now)) > self.limit
    }
}

/// Copies standard input to a file, for its owner only.
fn spool(directory: &Path, path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    std::io::copy(&mut std::io::stdin().lock(), &mut file).map(drop)
}

/// The same words for the nodes of the job: they are in the allocation already, and read no configuration. Standard input
/// is a file by then. What follows `--` is another program's.
fn in_allocation(mut line: Vec<OsString>, input: &Path) -> Vec<OsString> {
    let others = line.split_off(line.iter().position(|word| word == "--").unwrap_or(line.len()));
    let mut words = line.into_iter();
    let mut found: Vec<OsString> = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--dry-run" | "--no-wait" | "--no-config") => {}
            Some("--config") => drop(words.next()),
            Some(config) if config.starts_with("--config=") => {}
            Some("-") => found.push(input.into()),
            Some("--reads=-") => found.extend(["--reads".into(), input.into()]),
            Some("--on=slurm") => found.push("--on=allocation".into()),
            Some("slurm") if found.last().is_some_and(|last| last == "--on") => found.push("allocation".into()),
            _ => found.push(word),
        }
    }
    found.push("--no-config".into());
    found.extend(others);
    found
}

/// A sample's name with what SLURM does not take replaced.
pub fn safe_name(sample: &str) -> String {
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
            let words = in_allocation(line.split(' ').map(OsString::from).collect(), Path::new("/out/slurm/in"));
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
        assert_eq!(of("align --on slurm --reads -"), "align --on allocation --reads /out/slurm/in --no-config");
        assert_eq!(of("align --reads=- --on=slurm"), "align --reads /out/slurm/in --on=allocation --no-config");
        assert_eq!(
            of("search --on slurm -- blastp --on slurm -"),
            "search --on allocation --no-config -- blastp --on slurm -"
        );
    }

    #[test]
    fn patience_counts_from_the_first_of_what_lasts() {
        let (mut patience, start) = (Patience::new(SILENCE), Instant::now());
        assert!(!patience.is_over(start) && !patience.is_over(start + SILENCE));
        patience.renew();
        let again = start + SILENCE + ASK_AGAIN;
        assert!(!patience.is_over(again) && !patience.is_over(again + SILENCE));
        assert!(patience.is_over(again + SILENCE + ASK_AGAIN));
    }

    #[test]
    fn names_of_jobs_are_plain() {
        assert_eq!(safe_name("NA 12878/β"), "NA_12878__");
    }
}
