//! Simulates the steps of all samples of a cohort.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::shared_storage::{OrderedF64, SharedStorage, StorageWait};
use super::{Facility, StorageBalancer, Workload};
use crate::scheduler::{ItemOutcome, Scheduler};

/// The result of the simulation of a cohort.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationResult {
    /// Duration of each step in hours, as the mean over all samples.
    pub step_hours: Vec<f64>,
    /// Hours from the start of the first sample to the end of the last sample.
    pub makespan_hours: f64,
    /// Hours that a sample waited for a slot on a compute host, as the mean over all samples.
    pub queued_hours: f64,
    /// Hours during which transfers were slowed down, by bottleneck, as the sum over all samples.
    pub storage_wait: StorageWait,
}

impl SimulationResult {
    /// Returns the hours from the start of a sample to its end, as the mean over all samples.
    pub fn total_hours(&self) -> f64 {
        self.step_hours.iter().sum()
    }
}

/// The time at which a sample ends the computation of its current step, and the index of the sample.
type ComputeEnd = Reverse<(OrderedF64, usize)>;

struct CohortSimulation<'a> {
    workload: &'a Workload,
    balancer: &'a mut dyn StorageBalancer,
    storage: SharedStorage,
    scheduler: Scheduler,
    compute_ends: BinaryHeap<ComputeEnd>,
    samples: Vec<SampleState>,
    step_hours: Vec<f64>,
    queued_hours: f64,
}

#[derive(Clone, Debug, Default)]
struct SampleState {
    step: usize,
    /// Time at which the current step started, hours.
    step_start_hours: f64,
}

/// Simulates a cohort of `samples` samples, each with the steps of `workload`, on a facility.
///
/// # Panics
/// If the facility has no hosts, slots or storage servers, or the workload has no steps.
pub fn simulate(
    samples: usize,
    workload: &Workload,
    facility: &Facility,
    balancer: &mut dyn StorageBalancer,
) -> SimulationResult {
    assert!(
        facility.compute_hosts * facility.samples_per_host * facility.storage_servers > 0 && !workload.steps.is_empty()
    );
    let mut cohort = CohortSimulation {
        workload,
        balancer,
        storage: SharedStorage::new(facility.storage_servers, facility.disk_network_ratio, workload.steps.len()),
        scheduler: Scheduler::new(samples, facility.compute_hosts, facility.samples_per_host, 1),
        compute_ends: BinaryHeap::new(),
        samples: vec![SampleState::default(); samples],
        step_hours: vec![0.0; workload.steps.len()],
        queued_hours: 0.0,
    };
    cohort.start_waiting_samples(0.0);
    let mut now = 0.0;
    while let Some(next) = cohort.next_event() {
        now = next;
        for (sample, storage_node) in cohort.storage.advance_to(now) {
            cohort.balancer.release_server(storage_node);
            cohort.finish_step(sample, now);
        }
        while let Some(Reverse((OrderedF64(at), sample))) = cohort.compute_ends.peek().copied()
            && at <= now
        {
            cohort.compute_ends.pop();
            cohort.finish_compute(sample, now);
        }
    }
    let mean = |hours: f64| hours / samples.max(1) as f64;
    SimulationResult {
        step_hours: cohort.step_hours.iter().map(|hours| mean(*hours)).collect(),
        makespan_hours: now,
        queued_hours: mean(cohort.queued_hours),
        storage_wait: cohort.storage.wait,
    }
}

impl CohortSimulation<'_> {
    fn next_event(&self) -> Option<f64> {
        let computed = self.compute_ends.peek().map(|Reverse((OrderedF64(at), _))| *at);
        [computed, self.storage.next_end()].into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Starts waiting samples, in the order of their indexes, as long as slots are free.
    fn start_waiting_samples(&mut self, now: f64) {
        while let Some((sample, _)) = self.scheduler.start_next() {
            self.queued_hours += now;
            self.samples[sample] = SampleState { step: 0, step_start_hours: now };
            self.start_compute(sample, now);
        }
    }

    fn start_compute(&mut self, sample: usize, now: f64) {
        let step = &self.workload.steps[self.samples[sample].step];
        let hours = step.compute_hours * self.duration_factor(sample);
        self.compute_ends.push(Reverse((OrderedF64(now + hours), sample)));
    }

    /// Returns the compute time of a sample relative to the mean. The factors are spread evenly, and those of
    /// consecutive samples differ much.
    fn duration_factor(&self, sample: usize) -> f64 {
        /// The fractional part of the golden ratio. The fractional parts of its multiples fill the interval from 0 to 1
        /// evenly, whatever their number.
        const GOLDEN_RATIO_FRACTION: f64 = 0.618_033_988_749_894_9;
        1.0 + self.workload.variation * (2.0 * (sample as f64 * GOLDEN_RATIO_FRACTION).fract() - 1.0)
    }

    fn finish_compute(&mut self, sample: usize, now: f64) {
        let kind = self.samples[sample].step;
        let step = &self.workload.steps[kind];
        if step.volume_hours == 0.0 {
            return self.finish_step(sample, now);
        }
        let storage_node = self.balancer.assign_server();
        self.storage.start_stream(sample, storage_node, kind, (step.volume_hours, step.max_rate));
    }

    fn finish_step(&mut self, sample: usize, now: f64) {
        let state = &mut self.samples[sample];
        self.step_hours[state.step] += now - state.step_start_hours;
        state.step += 1;
        state.step_start_hours = now;
        if state.step < self.workload.steps.len() {
            return self.start_compute(sample, now);
        }
        self.scheduler.finish_item(sample, ItemOutcome::Done);
        self.start_waiting_samples(now);
    }
}
