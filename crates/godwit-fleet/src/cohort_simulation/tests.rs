use super::*;

struct RoundRobin {
    servers: usize,
    next: usize,
}

impl StorageBalancer for RoundRobin {
    fn assign_server(&mut self) -> usize {
        self.next = (self.next + 1) % self.servers;
        self.next
    }

    fn release_server(&mut self, _: usize) {}
}

fn facility(compute_hosts: usize, storage_servers: usize) -> Facility {
    Facility { compute_hosts, samples_per_host: 3, storage_servers, disk_network_ratio: 0.5 }
}

fn round_robin(servers: usize) -> RoundRobin {
    RoundRobin { servers, next: 0 }
}

fn close(measured: f64, predicted: f64) -> bool {
    (predicted / measured - 1.0).abs() <= 0.1
}

/// Compares hours and genomes per day of all published columns, those that were fitted and those that were not.
#[test]
fn the_published_experiment_is_predicted_within_a_tenth() {
    let workload = published_workload();
    for (samples, nodes, hours, genomes) in
        [(15, 5, 12.5, 29.0), (30, 10, 13.0, 53.0), (60, 20, 14.1, 96.0), (90, 30, 16.0, 129.0), (120, 40, 17.1, 156.0)]
    {
        let outcome = simulate(samples, &workload, &facility(nodes, 3), &mut SingleServerBalancer);
        let per_day = samples as f64 * 24.0 / outcome.makespan_hours;
        eprintln!(
            "{samples} samples: {:.2} h, measured {hours}; {per_day:.0} a day, measured {genomes}",
            outcome.total_hours()
        );
        assert!(close(hours, outcome.total_hours()) && close(genomes, per_day), "{samples} samples: {outcome:?}");
        assert_eq!(outcome.queued_hours, 0.0);
    }
    let balanced = simulate(120, &workload, &facility(40, 3), &mut round_robin(3));
    let per_day = 120.0 * 24.0 / balanced.makespan_hours;
    eprintln!(
        "120 balanced: {:.2} h, measured 15.0; {per_day:.0} a day, measured 185; {:?}",
        balanced.total_hours(),
        balanced.step_hours
    );
    assert!(close(15.0, balanced.total_hours()) && close(185.0, per_day), "{balanced:?}");
}

#[test]
fn a_sample_alone_takes_its_own_hours() {
    let workload = Workload { variation: 0.0, ..published_workload() };
    let outcome = simulate(1, &workload, &facility(1, 3), &mut SingleServerBalancer);
    assert!((outcome.total_hours() - workload.unshared_hours()).abs() < 1e-9, "{outcome:?}");
    assert_eq!(outcome.storage_wait, Default::default());
}

#[test]
fn samples_wait_for_slots() {
    let workload = Workload {
        steps: vec![WorkloadStep { name: "all".into(), compute_hours: 2.0, volume_hours: 0.0, max_rate: 1.0 }],
        variation: 0.0,
    };
    let outcome = simulate(7, &workload, &facility(1, 1), &mut SingleServerBalancer);
    assert_eq!((outcome.makespan_hours, outcome.step_hours[0]), (6.0, 2.0));
    assert_eq!(outcome.queued_hours, (3.0 * 2.0 + 4.0) / 7.0);
}

#[test]
fn nothing_to_do_takes_no_time() {
    let outcome = simulate(0, &published_workload(), &facility(1, 1), &mut SingleServerBalancer);
    assert_eq!((outcome.makespan_hours, outcome.total_hours()), (0.0, 0.0));
}
