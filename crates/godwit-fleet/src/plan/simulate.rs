//! The cohort goes through its steps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::shared_storage::{Ordered, SharedStorage, Waited};
use super::{Balancer, Facility, Workload};
use crate::scheduler::{Ended, Scheduler};

/// How a cohort fared.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Hours of each step, mean over the samples.
    pub hours: Vec<f64>,
    /// From the first sample's start to the last one's end, hours.
    pub makespan: f64,
    /// Hours that samples waited for a slot, mean.
    pub queued: f64,
    /// What streams of storage waited for, hours of all samples.
    pub waited: Waited,
}

impl Outcome {
    /// Hours of a sample from its first step to its last, mean.
    pub fn total(&self) -> f64 {
        self.hours.iter().sum()
    }
}

/// Something that happens at a time: a sample has computed.
type Computed = Reverse<(Ordered, usize)>;

struct Cohort<'a> {
    workload: &'a Workload,
    balancer: &'a mut dyn Balancer,
    storage: SharedStorage,
    scheduler: Scheduler,
    computing: BinaryHeap<Computed>,
    samples: Vec<Sample>,
    hours: Vec<f64>,
    queued: f64,
}

#[derive(Clone, Debug, Default)]
struct Sample {
    step: usize,
    /// When the step began.
    since: f64,
}

/// Lets `samples` samples go through a workload on a facility.
///
/// # Panics
/// If the facility or the workload has nothing in it.
pub fn simulate(samples: usize, workload: &Workload, facility: &Facility, balancer: &mut dyn Balancer) -> Outcome {
    assert!(facility.nodes * facility.samples_per_node * facility.storage_nodes > 0 && !workload.steps.is_empty());
    let mut cohort = Cohort {
        workload,
        balancer,
        storage: SharedStorage::new(facility.storage_nodes, facility.disk_share, workload.steps.len()),
        scheduler: Scheduler::new(samples, facility.nodes, facility.samples_per_node, 1),
        computing: BinaryHeap::new(),
        samples: vec![Sample::default(); samples],
        hours: vec![0.0; workload.steps.len()],
        queued: 0.0,
    };
    cohort.admit(0.0);
    let mut now = 0.0;
    while let Some(next) = cohort.next_event() {
        now = next;
        for (sample, storage_node) in cohort.storage.advance(now) {
            cohort.balancer.ended(storage_node);
            cohort.step_done(sample, now);
        }
        while let Some(Reverse((Ordered(at), sample))) = cohort.computing.peek().copied()
            && at <= now
        {
            cohort.computing.pop();
            cohort.computed(sample, now);
        }
    }
    let mean = |hours: f64| hours / samples.max(1) as f64;
    Outcome {
        hours: cohort.hours.iter().map(|hours| mean(*hours)).collect(),
        makespan: now,
        queued: mean(cohort.queued),
        waited: cohort.storage.waited,
    }
}

impl Cohort<'_> {
    fn next_event(&self) -> Option<f64> {
        let computed = self.computing.peek().map(|Reverse((Ordered(at), _))| *at);
        [computed, self.storage.next_end()].into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Gives slots to the samples that wait, in their order.
    fn admit(&mut self, now: f64) {
        while let Some((sample, _)) = self.scheduler.start() {
            self.queued += now;
            self.samples[sample] = Sample { step: 0, since: now };
            self.compute(sample, now);
        }
    }

    fn compute(&mut self, sample: usize, now: f64) {
        let step = &self.workload.steps[self.samples[sample].step];
        let hours = step.compute * self.pace(sample);
        self.computing.push(Reverse((Ordered(now + hours), sample)));
    }

    /// How long a sample takes, in those of the mean: samples are spread evenly, neighbours far from each other.
    fn pace(&self, sample: usize) -> f64 {
        /// The golden ratio's fraction: multiples of it fill 0 to 1 evenly, however many there are.
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        1.0 + self.workload.spread * (2.0 * (sample as f64 * GOLDEN).fract() - 1.0)
    }

    fn computed(&mut self, sample: usize, now: f64) {
        let kind = self.samples[sample].step;
        let step = &self.workload.steps[kind];
        if step.volume == 0.0 {
            return self.step_done(sample, now);
        }
        let storage_node = self.balancer.grant();
        self.storage.start(sample, storage_node, kind, (step.volume, step.cap));
    }

    fn step_done(&mut self, sample: usize, now: f64) {
        let state = &mut self.samples[sample];
        self.hours[state.step] += now - state.since;
        state.step += 1;
        state.since = now;
        if state.step < self.workload.steps.len() {
            return self.compute(sample, now);
        }
        self.scheduler.ended(sample, Ended::Done);
        self.admit(now);
    }
}
