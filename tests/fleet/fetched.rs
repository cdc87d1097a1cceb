//! `godwit run` on reads that lie in a pool: fetched sample by sample, waited for while no node answers, and gone when they are done with.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::Godwit;
use godwit_tests::patience::wait_until;
use godwit_tests::{needs, scratch};

use super::cohort::{assert_same_variants, report, run, samples, sheet};
use super::pool::{Pool, text};

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const REMOTE: i32 = 6;

/// A sheet whose reads lie in the pool, and the same one with reads that lie here.
fn sheets(pool: &Pool, count: usize) -> (PathBuf, PathBuf) {
    let here = sheet(&pool.root, count);
    let lines: String = (0..count)
        .map(|sample| {
            format!("s{sample},{},{}\n", Pool::url(&format!("s{sample}_1.fq")), Pool::url(&format!("s{sample}_2.fq")))
        })
        .collect();
    let there = pool.mine.join("sheet.csv");
    fs::write(&there, format!("sample,fastq_1,fastq_2\n{lines}")).expect("it can be written");
    (here, there)
}

fn pooled(pool: &Pool, sheet: &Path, out: &Path, wait: &str) -> Godwit {
    run(sheet, out).args(["--pool", text(&pool.file), "--wait", wait])
}

/// Names of all that is below a directory and belongs to reads that were fetched.
fn left_of_reads(out: &Path) -> Vec<String> {
    let below = scratch::names(out).into_iter().map(|name| out.join(name)).filter(|path| path.is_dir());
    below.flat_map(|sample| scratch::names(&sample)).filter(|name| name.contains("godwit-reads")).collect()
}

#[test]
fn reads_in_a_pool_are_fetched_and_gone_when_their_sample_is_done() {
    needs!("bcftools", "bgzip", "python3");
    // Of two nodes one is never there.
    let mut pool = Pool::describe("run-pool", "round-robin", 2, &[]);
    pool.start_node(1);
    let (here, there) = sheets(&pool, 2);
    let [alone, out, spread] = ["alone", "out", "spread"].map(|name| pool.mine.join(name));
    run(&here, &alone).succeeds();
    pooled(&pool, &there, &out, "60s").succeeds();
    assert_same_variants(&alone, &out, 2);
    assert_eq!(left_of_reads(&out), [] as [&str; 0]);
    let told = report(&out);
    for sample in samples(&told) {
        let steps: Vec<&str> =
            sample["steps"].as_array().expect("a list").iter().filter_map(|step| step["step"].as_str()).collect();
        assert_eq!(steps, ["fetch", "align", "call"], "{told}");
    }
    pooled(&pool, &there, &spread, "60s").args(["--on", "local", "--nodes", "2"]).succeeds();
    assert_same_variants(&alone, &spread, 2);
    // What is done is not fetched again: there is nobody to fetch it from.
    pool.nodes[1] = None;
    pooled(&pool, &there, &out, "1s").arg("--resume").succeeds();
    let told = report(&out);
    for sample in samples(&told) {
        assert!(sample["steps"].as_array().expect("a list").iter().all(|step| step["done_before"] == true), "{told}");
    }
}

#[test]
fn a_run_waits_for_a_pool_as_long_as_it_is_told_to() {
    needs!("bcftools", "bgzip", "python3");
    let mut pool = Pool::describe("run-pool-down", "round-robin", 2, &[]);
    let (here, there) = sheets(&pool, 1);
    let [alone, out] = ["alone", "out"].map(|name| pool.mine.join(name));
    run(&here, &alone).succeeds();
    let waits = "no node of the pool storage answers; waiting up to";
    let gone = pooled(&pool, &there, &out, "1s").run();
    assert!(gone.stderr.contains(waits), "{}", gone.report());
    gone.refuses(&[REMOTE], &["1 of 1 samples failed", "s0_1.fq", "none of its 2 nodes answered", "--resume"]);
    assert!(!out.join("s0/s0.bam").exists());
    let said = pool.mine.join("said");
    let running = pooled(&pool, &there, &out, "300s").arg("--resume");
    let running = running.stderr(fs::File::create(&said).expect("it can be made")).start();
    wait_until("it waits", || fs::read_to_string(&said).is_ok_and(|said| said.contains(waits)));
    pool.start_node(1);
    let done = running.finish();
    assert!(done.status.success(), "{}", fs::read_to_string(&said).unwrap_or_default());
    assert_same_variants(&alone, &out, 1);
}

#[test]
fn addresses_that_cannot_be_are_refused_before_anything_is_fetched() {
    needs!("bcftools");
    let pool = Pool::describe("run-pool-wrong", "round-robin", 1, &[]);
    let (here, _) = sheets(&pool, 1);
    let out = pool.mine.join("out");
    for (address, words) in [
        ("http://storage/a.fq", &["sample a", "http is not spoken"][..]),
        ("godwit+pool://storage", &["sample a", "names no file"]),
        ("godwit+pool://other/a.fq", &["sample a", "describes the pool storage"]),
    ] {
        let sheet = pool.mine.join("wrong.csv");
        fs::write(&sheet, format!("sample,fastq_1\na,{address}\n")).expect("it can be written");
        pooled(&pool, &sheet, &out, "1s").run().refuses(&[INPUT], words);
    }
    run(&here, Path::new("godwit+pool://storage/out")).run().refuses(&[USAGE], &["--out", "godwit copy"]);
    let words = ["run", "--reference", "godwit+pool://storage/ref.fa", "--samples", text(&here), "--out", text(&out)];
    pool.godwit(&words).run().refuses(&[USAGE], &["--reference", "godwit copy"]);
    assert!(!out.exists());
}
