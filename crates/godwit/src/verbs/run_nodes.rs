//! `godwit run --on`: a job for each sample, which runs the same command for that sample alone.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use godwit_fleet::launcher::{Local, Slurm, Ssh};
use godwit_fleet::{Ending, FleetError, JobHandle, JobSpec, JobStatus, Launcher};
use godwit_formats::with_causes;
use godwit_pipeline::{JobEnd, PipelineError, SampleJob, SampleNodes};

use super::node::cores;
use super::slurm_job::{profile, safe_name};
use super::spread::last_error;
use crate::cli::{Place, RunArgs};
use crate::failure::{Exit, Failure};

/// How often processes are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How often SLURM is asked; sites dislike more.
const ASK_SLURM: Duration = Duration::from_secs(2);
/// How long a job that nobody knows may be missing before it counts as lost.
const MISSING: Duration = Duration::from_secs(60);

/// The nodes of a run and the jobs on them.
pub struct RunNodes {
    place: Place,
    /// One for all nodes, or one for each.
    launchers: Vec<Box<dyn Launcher>>,
    command: Vec<OsString>,
    /// Whether `--resume` is among its words.
    resumes: bool,
    directory: PathBuf,
    nodes: usize,
    each: usize,
    threads: u32,
    memory_bytes: Option<u64>,
    jobs: Mutex<HashMap<usize, Job>>,
}

/// The job of a sample.
struct Job {
    launcher: usize,
    spec: JobSpec,
    handle: JobHandle,
    /// Since when nobody knows it.
    missing: Option<Instant>,
}

impl RunNodes {
    /// The nodes that options name.
    pub fn new(args: &RunArgs, place: Place) -> Result<Self, Failure> {
        let (nodes, each) = (args.place.nodes as usize, args.per_node as usize);
        let launchers: Vec<Box<dyn Launcher>> = match place {
            Place::Local => vec![Box::new(Local::new())],
            Place::Slurm => vec![Box::new(Slurm::new(profile(&args.place)))],
            Place::Ssh => {
                let (hosts, options) = (args.place.hosts.clone().unwrap_or_default(), &args.place.ssh_option);
                let of = |node| Box::new(Ssh::new(&hosts, options.clone()).from_place(node)) as Box<dyn Launcher>;
                (0..nodes).map(of).collect()
            }
            Place::Allocation => {
                let problem = "godwit run leads its jobs from where it is started: use --on local, ssh or slurm";
                return Err(Failure::new(Exit::Usage, problem.to_owned()));
            }
        };
        if args.place.slurm.no_wait {
            let problem = "godwit run starts samples as others end, so it waits for them; leave --no-wait out";
            return Err(Failure::new(Exit::Usage, problem.to_owned()));
        }
        let missing = |error| Failure::new(Exit::Machine, format!("cannot find where this is run: {error}"));
        let (program, directory) =
            std::env::current_exe().and_then(|program| Ok((program, std::env::current_dir()?))).map_err(missing)?;
        let shared_by = if place == Place::Local { nodes * each } else { each };
        let threads = args.common.threads.unwrap_or_else(|| (cores() / shared_by).max(1) as u32);
        let mut words: Vec<OsString> = args.common.configured.iter().map(OsString::from).collect();
        words.push("--no-config".into());
        if args.common.threads.is_none() {
            words.extend(["--threads".into(), threads.to_string().into()]);
        }
        let line = without_configuration(std::env::args_os().skip(1).collect());
        let mut command = vec![program.into()];
        command.extend(crate::cli::with_words(line, &words));
        let jobs = Mutex::default();
        let (resumes, memory_bytes) = (args.resume, args.place.slurm.slurm_memory);
        Ok(Self { place, launchers, command, resumes, directory, nodes, each, threads, memory_bytes, jobs })
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<usize, Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spec(&self, job: &SampleJob<'_>) -> JobSpec {
        let mut words: Vec<OsString> = vec!["--one-sample".into(), job.name.into()];
        // What an earlier start did is gone on with.
        words.extend((job.again && !self.resumes).then(|| OsString::from("--resume")));
        JobSpec {
            name: format!("godwit-{}", safe_name(job.name)),
            command: crate::cli::with_words(self.command.clone(), &words),
            nodes: 1,
            cpus_per_node: self.threads,
            memory_bytes_per_node: self.memory_bytes,
            time_limit: None,
            working_directory: self.directory.clone(),
            environment: Vec::new(),
            job_directory: job.directory.to_owned(),
        }
    }
}

impl SampleNodes for RunNodes {
    fn nodes(&self) -> usize {
        self.nodes
    }

    fn each(&self) -> usize {
        self.each
    }

    fn name(&self, node: usize) -> String {
        match self.place {
            Place::Slurm => "a node of SLURM".to_owned(),
            _ => format!("node {node}"),
        }
    }

    fn interval(&self) -> Duration {
        if self.place == Place::Slurm { ASK_SLURM } else { LOOK_AGAIN }
    }

    fn start(&self, job: &SampleJob<'_>) -> Result<(), PipelineError> {
        let launcher = job.node.min(self.launchers.len() - 1);
        let spec = self.spec(job);
        // A start that failed before told why there.
        let _ = std::fs::remove_file(spec.error_path(0));
        let handle = self.launchers[launcher].submit(&spec)?;
        self.jobs().insert(job.sample, Job { launcher, spec, handle, missing: None });
        Ok(())
    }

    fn ended(&self, sample: usize) -> Option<JobEnd> {
        let mut jobs = self.jobs();
        let job = jobs.get_mut(&sample)?;
        let ended = match self.launchers[job.launcher].status(&job.handle) {
            Ok(JobStatus::Ended { how }) => Some(end_of(job, &how)),
            Ok(JobStatus::Unknown { why }) => {
                let since = *job.missing.get_or_insert_with(Instant::now);
                (since.elapsed() > MISSING).then_some(JobEnd::Gone { why })
            }
            Ok(JobStatus::Pending { .. } | JobStatus::Running { .. }) => {
                job.missing = None;
                None
            }
            // That says nothing of the job.
            Err(FleetError::Silent { .. }) => None,
            Err(error) => Some(JobEnd::Gone { why: with_causes(&error) }),
        };
        if ended.is_some() {
            jobs.remove(&sample);
        }
        ended
    }

    fn cancel(&self) {
        for (_, job) in self.jobs().drain() {
            // Processes end with this one; a job of SLURM that cannot be cancelled now is the user's to see.
            let _ = self.launchers[job.launcher].cancel(&job.handle);
        }
    }
}

fn end_of(job: &Job, how: &Ending) -> JobEnd {
    let gone = |why: &str| JobEnd::Gone { why: format!("job {} {why}", job.handle.id) };
    match how {
        Ending::Succeeded => JobEnd::Exited { code: Some(0), said: "it ended and left no outcome".to_owned() },
        Ending::Failed { what, exit_code } => {
            let said = last_error(&job.spec, 0).unwrap_or_else(|| what.clone());
            JobEnd::Exited { code: *exit_code, said }
        }
        Ending::Cancelled => gone("was cancelled"),
        Ending::TimeLimit => gone("ran into its time limit; give it more with --slurm-time"),
        Ending::NodeLost => gone("lost its node"),
        Ending::Preempted => gone("had to make room"),
    }
}

/// The words of a command line without those that say where options are read from: what they say is among the words by then.
fn without_configuration(line: Vec<OsString>) -> Vec<OsString> {
    let mut words = line.into_iter();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--no-config") => {}
            Some("--config") => drop(words.next()),
            Some(config) if config.starts_with("--config=") => {}
            _ => found.push(word),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_no_configuration_of_their_own() {
        let of = |line: &str| {
            let words = without_configuration(line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("run --config f --out o --no-config --config=g --on local"), "run --out o --on local");
    }
}
