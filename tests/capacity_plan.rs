//! Predictions for facilities, compared with the hours of a published experiment and with bounds that must hold.

use std::fs;

use godwit_tests::binary::godwit;
use godwit_tests::scratch;
use serde_json::Value;

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;

fn run_plan(arguments: &str) -> Value {
    let told = godwit().arg("plan").args(arguments.split_whitespace()).arg("--json").run_ok().stdout;
    serde_json::from_str(&told).expect("JSON")
}

fn number_field(plan: &Value, name: &str) -> f64 {
    plan[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {plan}"))
}

/// K. Yoon, "Understanding the Role of Dell EMC Isilon SmartConnect in Genomics Workloads", 2016, table 3; fitted on 3, 30, 90.
#[test]
fn what_was_published_is_predicted_within_a_tenth() {
    for (cohort, hours, genomes) in [
        ("--samples 60 --nodes 20 --storage-nodes 3 --balance none", 14.1, 96.0),
        ("--samples 120 --nodes 40 --storage-nodes 3 --balance none", 17.1, 156.0),
        ("--samples 120 --nodes 40 --storage-nodes 3 --balance round-robin", 15.0, 185.0),
        ("--samples 120 --nodes 40 --storage-nodes 3 --balance connections", 15.0, 185.0),
    ] {
        let plan = run_plan(cohort);
        let (total, per_day) = (number_field(&plan, "total_hours"), number_field(&plan, "genomes_per_day"));
        assert!((total / hours - 1.0).abs() < 0.1 && (per_day / genomes - 1.0).abs() < 0.1, "{cohort}: {plan}");
    }
}

#[test]
fn the_bottleneck_is_named_and_mended() {
    let one = run_plan("--samples 120 --nodes 40 --storage-nodes 3 --balance none");
    let bottleneck = one["bottleneck"].as_str().expect("a text");
    assert!(bottleneck.contains("the only storage server in use") && bottleneck.contains("2 are idle"), "{one}");
    let needed = number_field(&one, "storage_nodes_needed");
    assert!(needed > 3.0, "{one}");
    let enough = run_plan(&format!("--samples 120 --nodes 40 --storage-nodes {needed}"));
    assert!(enough["bottleneck"].as_str().expect("a text").starts_with("none; the longest step is"), "{enough}");
    assert!(number_field(&enough, "total_hours") <= number_field(&enough, "alone_hours") / 0.95, "{enough}");
    let short = run_plan(&format!("--samples 120 --nodes 40 --storage-nodes {}", needed - 1.0));
    assert!(number_field(&short, "total_hours") > number_field(&short, "alone_hours") / 0.95, "{short}");
    let queue = run_plan("--samples 120 --nodes 4 --storage-nodes 20");
    assert!(queue["bottleneck"].as_str().expect("a text").starts_with("compute hosts: a sample waits"), "{queue}");
}

#[test]
fn ten_thousand_samples_on_a_thousand_hosts_are_planned() {
    let plan = run_plan("--samples 10000 --nodes 1000 --storage-nodes 60");
    // The time of all samples is at least the number of rounds that the slots require times the time of a single
    // sample. Waiting for storage at most doubles it.
    let rounds = (10_000.0_f64 / 3_000.0).floor();
    let (alone, makespan) = (number_field(&plan, "alone_hours"), number_field(&plan, "makespan_hours"));
    assert!(makespan > rounds * alone && makespan < 8.0 * alone, "{plan}");
    assert!(number_field(&plan, "storage_nodes_needed") > 60.0, "{plan}");
}

#[test]
fn a_run_of_ones_own_says_what_steps_cost() {
    let directory = scratch::directory("plan");
    let report = directory.join("run.json");
    let step = |step: &str, seconds: f64, bytes: u64| serde_json::json!({"step": step, "seconds": seconds, "file_bytes": bytes});
    let sample = serde_json::json!({"sample": "one", "steps": [step("align", 7200.0, 450_000_000_000), step("call", 3600.0, 0)]});
    let failed = serde_json::json!({"sample": "two", "steps": [step("align", 1.0, 1)], "error": "no"});
    let run = serde_json::json!({"verb": "run", "samples": [sample, failed], "cohort": [step("genotype", 360.0, 0)]});
    fs::write(&report, run.to_string()).expect("written");
    let from = format!("--from {} --storage-rate 1G", report.display());
    // Sending 450 GB takes an hour at 1 Gbit/s. The disks read at half of that rate.
    let alone = run_plan(&format!("--samples 1 --nodes 1 --storage-nodes 2 {from}"));
    assert_eq!((number_field(&alone, "total_hours"), number_field(&alone, "cohort_hours")), (3.0, 0.1), "{alone}");
    let larger = run_plan(&format!("--samples 1 --nodes 1 --storage-nodes 2 --scale 3 {from}"));
    assert_eq!((number_field(&larger, "total_hours"), number_field(&larger, "makespan_hours")), (9.0, 9.3), "{larger}");
    let four = run_plan(&format!("--samples 4 --nodes 2 --storage-nodes 2 --balance none {from}"));
    // Four streams, of an hour each without contention, go through one storage server. Its network is as fast as the
    // disks of both servers together.
    assert!((number_field(&four, "total_hours") - 6.0).abs() < 1e-6, "{four}");
    assert!((number_field(&four, "makespan_hours") - 6.4).abs() < 1e-6, "{four}");
    let told = godwit().args(["plan", "--samples", "4", "--nodes", "2", "--storage-nodes", "2"]).run_ok().stdout;
    assert!(told.contains("HaplotypeCaller") && told.contains("genomes per day: "), "{told}");
}

#[test]
fn what_cannot_be_planned_is_said() {
    let directory = scratch::directory("plan-refused");
    let usual = ["plan", "--samples", "4", "--nodes", "2", "--storage-nodes", "2"];
    let from = |name: &str| directory.join(name).display().to_string();
    fs::write(directory.join("text.json"), "no JSON").expect("written");
    fs::write(directory.join("empty.json"), r#"{"verb": "run", "samples": []}"#).expect("written");
    godwit()
        .args(usual)
        .args(["--from", &from("missing.json")])
        .run()
        .assert_rejected(&[EXIT_MACHINE], &["missing.json"]);
    godwit()
        .args(usual)
        .args(["--from", &from("text.json")])
        .run()
        .assert_rejected(&[EXIT_INPUT], &["text.json", "not a run.json"]);
    godwit()
        .args(usual)
        .args(["--from", &from("empty.json")])
        .run()
        .assert_rejected(&[EXIT_INPUT], &["contains no finished sample"]);
    godwit().args(usual).args(["--scale", "2"]).run().assert_rejected(&[EXIT_USAGE], &["--from"]);
    godwit().args(usual).args(["--disk-share", "0"]).run().assert_rejected(&[EXIT_USAGE], &["--disk-share"]);
    godwit()
        .args(["plan", "--samples", "0", "--nodes", "2", "--storage-nodes", "2"])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["--samples"]);
}
