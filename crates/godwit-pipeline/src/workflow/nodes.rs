//! Samples on several nodes at a time: each is the work of a process of its own, which leaves its outcome in a file.
//!
//! [`Scheduler`] decides which sample is started where, and whether one that failed is tried again. What starts processes, and how they are
//! asked after, is the caller's ([`SampleNodes`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use godwit_fleet::Scheduler;
use godwit_fleet::scheduler::{Ended, Verdict};
use serde::{Deserialize, Serialize};

use super::report::{SampleOutcome, Try};
use super::{WorkflowOptions, WorkflowRun};
use crate::error::{Blame, PipelineError};
use crate::observer::{Event, Observer, SampleState};
use crate::scratch::create_private_directory;
use crate::staging::write_whole;

/// How often a sample is started, at most.
const TRIES: usize = 3;
/// Where the jobs of samples are, below the output directory. No sample has such a name.
const JOBS: &str = ".godwit-run";
/// What a job leaves in its directory.
const OUTCOME: &str = "outcome.json";

/// How the process of a sample ended.
#[derive(Clone, Debug)]
pub enum JobEnd {
    /// By itself, with this status.
    Exited {
        /// Its exit status, where it had one.
        code: Option<i32>,
        /// What it said of the reason, or what is known of it.
        said: String,
    },
    /// With its node, or because somebody ended it.
    Gone {
        /// How.
        why: String,
    },
}

/// Starts the work on single samples on nodes.
pub trait SampleNodes: Sync {
    /// How many there are.
    fn nodes(&self) -> usize;
    /// How many samples each takes at a time.
    fn each(&self) -> usize;
    /// What a node is called.
    fn name(&self, node: usize) -> String;
    /// How often it is looked how samples are.
    fn interval(&self) -> Duration;

    /// Starts the work on a sample: [`run_sample`] with these options and `outcome`, below the job's directory. `again`: it was
    /// started before, so that there may be something to go on with.
    ///
    /// # Errors
    /// Where it could not be started.
    fn start(&self, job: &SampleJob<'_>) -> Result<(), PipelineError>;

    /// How the work on a sample ended, which it does once; `None` as long as it goes on.
    fn ended(&self, sample: usize) -> Option<JobEnd>;

    /// Ends all that is worked on.
    fn cancel(&self);
}

/// The work on one sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleJob<'j> {
    /// Its number in the sheet, from 0.
    pub sample: usize,
    /// Its name.
    pub name: &'j str,
    /// Where it is done.
    pub node: usize,
    /// For its script, its logs and its outcome.
    pub directory: &'j Path,
    /// Whether it was started before.
    pub again: bool,
}

/// What a process leaves of a sample.
#[derive(Debug, Serialize, Deserialize)]
struct Left {
    outcome: SampleOutcome,
    /// Whether what it failed for may be mended by another node.
    elsewhere: bool,
    blame: String,
}

impl Left {
    fn of(outcome: SampleOutcome, error: Option<&PipelineError>) -> Self {
        let blame = error.map(PipelineError::blame);
        let elsewhere = blame.is_some_and(may_be_the_node);
        Self { outcome, elsewhere, blame: blame.map(Blame::outcome_text).unwrap_or_default().to_owned() }
    }
}

/// Whether a failure may lie with the node that it happened on.
fn may_be_the_node(blame: Blame) -> bool {
    match blame {
        Blame::Machine | Blame::Engine | Blame::Remote | Blame::Interrupted => true,
        Blame::Usage | Blame::Input | Blame::Bug => false,
    }
}

/// Does the work on one sample of the sheet, and leaves its outcome in `directory` for the process that leads the run.
///
/// # Errors
/// What the sample failed for, which is in the outcome, too.
pub fn run_sample(
    options: &WorkflowOptions,
    name: &str,
    directory: &Path,
    observer: &dyn Observer,
    cancelled: &std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> Result<(), PipelineError> {
    let samples = super::samples_of(options)?;
    let Some(sample) = samples.iter().find(|sample| sample.name == name) else {
        let problem = format!("the sheet has no sample {name:?} any more");
        return Err(PipelineError::Options { problem });
    };
    let run = WorkflowRun::new(options, &samples, observer, cancelled)?;
    let mut outcome = SampleOutcome::of(sample);
    let done = run.sample_fetched(sample, &mut outcome);
    if let Err(error @ PipelineError::Interrupted) = done {
        return Err(error);
    }
    outcome.error = done.as_ref().err().map(super::in_one_line);
    let left = serde_json::to_vec_pretty(&Left::of(outcome, done.as_ref().err())).map_err(std::io::Error::other);
    let path = directory.join(OUTCOME);
    let written = left.and_then(|left| write_whole(&path, &left));
    written.map_err(PipelineError::file("write", &path))?;
    done
}

/// What became of a sample whose process ended.
struct Judged {
    outcome: SampleOutcome,
    how: Ended,
    blame: Blame,
}

impl WorkflowRun<'_> {
    fn job_directory(&self, sample: usize) -> PathBuf {
        self.options.out.join(JOBS).join(&self.samples[sample].name)
    }

    /// Works on all samples, as many at a time as nodes take.
    pub(super) fn samples_on(&mut self, nodes: &dyn SampleNodes) -> Result<(), PipelineError> {
        let worked = self.work_on(nodes);
        // Whatever happens, nothing goes on unseen.
        nodes.cancel();
        worked
    }

    fn work_on(&mut self, nodes: &dyn SampleNodes) -> Result<(), PipelineError> {
        let jobs = self.options.out.join(JOBS);
        create_private_directory(&jobs).map_err(PipelineError::file("create", &jobs))?;
        let mut scheduler = Scheduler::new(self.samples.len(), nodes.nodes(), nodes.each(), TRIES);
        let mut outcomes: Vec<SampleOutcome> = self.samples.iter().map(SampleOutcome::of).collect();
        let mut working = BTreeMap::new();
        while !scheduler.is_over() {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(PipelineError::Interrupted);
            }
            while let Some((sample, node)) = scheduler.start() {
                let failed = self.start(nodes, sample, node, !outcomes[sample].tries.is_empty());
                working.insert(sample, (node, failed.err()));
            }
            let known: Vec<usize> = working.keys().copied().collect();
            for sample in known {
                let failed = working.get_mut(&sample).and_then(|(_, failed)| failed.take());
                let ended = match failed {
                    Some(error) => Some(JobEnd::Gone { why: super::in_one_line(&error) }),
                    None => nodes.ended(sample),
                };
                let Some(ended) = ended else { continue };
                let (node, _) = working.remove(&sample).unwrap_or_default();
                let judged = self.judge(sample, ended);
                let verdict = scheduler.ended(sample, judged.how);
                self.settle(&mut outcomes[sample], judged, verdict, nodes.name(node));
            }
            if scheduler.is_over() {
                break;
            }
            std::thread::sleep(nodes.interval());
        }
        self.report.samples = outcomes;
        Ok(())
    }

    fn start(&self, nodes: &dyn SampleNodes, sample: usize, node: usize, again: bool) -> Result<(), PipelineError> {
        let (name, directory) = (&*self.samples[sample].name, self.job_directory(sample));
        create_private_directory(&directory).map_err(PipelineError::file("create", &directory))?;
        let before = directory.join(OUTCOME);
        match std::fs::remove_file(&before) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(PipelineError::file("remove", &before)(error));
            }
            _ => {}
        }
        let directory = std::path::absolute(&directory).map_err(PipelineError::file("find", &directory))?;
        nodes.start(&SampleJob { sample, name, node, directory: &directory, again })?;
        self.tell(name, SampleState::Started, Some(&nodes.name(node)));
        Ok(())
    }

    /// Tells how far a sample is, and on which node.
    pub(super) fn tell(&self, sample: &str, state: SampleState, node: Option<&str>) {
        self.observer.event(&Event::Sample { sample: sample.to_owned(), state, node: node.map(str::to_owned) });
    }

    /// What a process left, and what its end says where it left nothing.
    fn judge(&self, sample: usize, ended: JobEnd) -> Judged {
        let left = std::fs::read(self.job_directory(sample).join(OUTCOME)).ok();
        let left: Option<Left> = left.and_then(|left| serde_json::from_slice(&left).ok());
        let (code, said) = match ended {
            JobEnd::Exited { code, said } => (code, said),
            JobEnd::Gone { why } => (None, why),
        };
        let blame = Blame::of_exit_code(code);
        match left {
            Some(Left { outcome, .. }) if outcome.error.is_none() => {
                Judged { outcome, how: Ended::Done, blame: Blame::Bug }
            }
            Some(Left { outcome, elsewhere, .. }) => {
                Judged { outcome, how: if elsewhere { Ended::Lost } else { Ended::Failed }, blame }
            }
            None => {
                let how = if may_be_the_node(blame) { Ended::Lost } else { Ended::Failed };
                let error = Some(said);
                Judged { outcome: SampleOutcome { error, ..SampleOutcome::of(&self.samples[sample]) }, how, blame }
            }
        }
    }

    fn settle(&mut self, outcome: &mut SampleOutcome, judged: Judged, verdict: Verdict, node: String) {
        let Judged { outcome: found, blame, .. } = judged;
        let mut tries = std::mem::take(&mut outcome.tries);
        found.steps.iter().for_each(|step| self.tell_step(&found.sample, step));
        let Some(cause) = found.error.clone() else {
            self.tell(&found.sample, SampleState::Done, Some(&node));
            *outcome = SampleOutcome { tries, node: Some(node), ..found };
            return;
        };
        tries.push(Try { node: node.clone(), cause: cause.clone() });
        let name = &found.sample;
        let message = match verdict {
            Verdict::Again => format!("{name} failed on {node} and is tried again: {cause}"),
            Verdict::Over => format!("{name} failed: {cause}"),
        };
        self.observer.event(&Event::Warning { message });
        if verdict == Verdict::Over {
            self.tell(&found.sample, SampleState::Failed, Some(&node));
            self.blame.get_or_insert(blame);
        }
        *outcome = SampleOutcome { tries, node: Some(node), ..found };
    }
}
