use super::*;

struct RoundRobin {
    nodes: usize,
    next: usize,
}

impl Balancer for RoundRobin {
    fn grant(&mut self) -> usize {
        self.next = (self.next + 1) % self.nodes;
        self.next
    }

    fn ended(&mut self, _: usize) {}
}

fn facility(nodes: usize, storage_nodes: usize) -> Facility {
    Facility { nodes, samples_per_node: 3, storage_nodes, disk_share: 0.5 }
}

fn round_robin(nodes: usize) -> RoundRobin {
    RoundRobin { nodes, next: 0 }
}

fn close(measured: f64, predicted: f64) -> bool {
    (predicted / measured - 1.0).abs() <= 0.1
}

/// The columns of the table that the workload was not fitted on, and those that it was: hours and genomes per day.
#[test]
fn the_published_experiment_is_predicted_within_a_tenth() {
    let workload = published();
    for (samples, nodes, hours, genomes) in
        [(15, 5, 12.5, 29.0), (30, 10, 13.0, 53.0), (60, 20, 14.1, 96.0), (90, 30, 16.0, 129.0), (120, 40, 17.1, 156.0)]
    {
        let outcome = simulate(samples, &workload, &facility(nodes, 3), &mut OneForAll);
        let per_day = samples as f64 * 24.0 / outcome.makespan;
        eprintln!(
            "{samples} samples: {:.2} h, measured {hours}; {per_day:.0} a day, measured {genomes}",
            outcome.total()
        );
        assert!(close(hours, outcome.total()) && close(genomes, per_day), "{samples} samples: {outcome:?}");
        assert_eq!(outcome.queued, 0.0);
    }
    let balanced = simulate(120, &workload, &facility(40, 3), &mut round_robin(3));
    let per_day = 120.0 * 24.0 / balanced.makespan;
    eprintln!(
        "120 balanced: {:.2} h, measured 15.0; {per_day:.0} a day, measured 185; {:?}",
        balanced.total(),
        balanced.hours
    );
    assert!(close(15.0, balanced.total()) && close(185.0, per_day), "{balanced:?}");
}

#[test]
fn a_sample_alone_takes_its_own_hours() {
    let workload = Workload { spread: 0.0, ..published() };
    let outcome = simulate(1, &workload, &facility(1, 3), &mut OneForAll);
    assert!((outcome.total() - workload.alone()).abs() < 1e-9, "{outcome:?}");
    assert_eq!(outcome.waited, Default::default());
}

#[test]
fn samples_wait_for_slots() {
    let workload =
        Workload { steps: vec![Step { name: "all".into(), compute: 2.0, volume: 0.0, cap: 1.0 }], spread: 0.0 };
    let outcome = simulate(7, &workload, &facility(1, 1), &mut OneForAll);
    assert_eq!((outcome.makespan, outcome.hours[0]), (6.0, 2.0));
    assert_eq!(outcome.queued, (3.0 * 2.0 + 4.0) / 7.0);
}

#[test]
fn nothing_to_do_takes_no_time() {
    let outcome = simulate(0, &published(), &facility(1, 1), &mut OneForAll);
    assert_eq!((outcome.makespan, outcome.total()), (0.0, 0.0));
}
