//! `godwit run` on reads that lie in a pool: fetched sample by sample, waited for while no node answers, and gone when they are done with.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{Godwit, godwit};
use godwit_tests::patience::wait_until;
use godwit_tests::{needs, scratch, skip};

use super::cohort::{assert_same_variants, report, run, samples, sheet};
use super::pool::{Pool, text};

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const MACHINE: i32 = 4;
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
fn what_is_written_of_each_sample_is_stored_in_a_pool_whole_and_once() {
    needs!("bcftools", "bgzip", "python3");
    let pool = Pool::start("run-store", "round-robin", 2, &["--writable"]);
    let (_, there) = sheets(&pool, 2);
    let (out, stored) = (pool.mine.join("out"), pool.root.join("runs/mine"));
    let run = |more: &[&str]| pooled(&pool, &there, &out, "60s").args(["--store", &Pool::url("runs/mine")]).args(more);
    run(&["--on", "local", "--nodes", "2"]).succeeds();
    for sample in 0..2 {
        for name in scratch::names(&out.join(format!("s{sample}"))) {
            let (here, there) = (out.join(format!("s{sample}/{name}")), stored.join(format!("s{sample}/{name}")));
            assert_eq!(there.exists(), !name.starts_with(".godwit"), "{name}");
            assert!(!there.is_file() || fs::read(&here).expect("read") == fs::read(&there).expect("read"), "{name}");
        }
    }
    for name in ["run.json", "report.html"] {
        assert_eq!(fs::read(out.join(name)).expect("read"), fs::read(stored.join(name)).expect("read"));
    }
    let told = report(&out);
    for sample in samples(&told) {
        let steps: Vec<&str> =
            sample["steps"].as_array().expect("a list").iter().filter_map(|step| step["step"].as_str()).collect();
        assert_eq!(steps, ["fetch", "align", "call", "store"], "{told}");
    }
    // Both nodes were seen all along, and the page has what they did.
    let moments = told["storage"].as_array().expect("a list");
    assert!(moments.iter().all(|moment| moment["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)), "{told}");
    assert!(moments.iter().any(|moment| moment["nodes"][0]["healthy"] == true), "{told}");
    let page = fs::read_to_string(out.join("report.html")).expect("it was written");
    assert!(page.contains("Storage throughput") && page.contains("Connections to storage"), "{page}");
    // What is missing there is stored again, without doing anything else again.
    fs::remove_file(stored.join("s1/s1.bam")).expect("it is there");
    run(&["--resume"]).succeeds();
    assert!(fs::read(out.join("s1/s1.bam")).expect("read") == fs::read(stored.join("s1/s1.bam")).expect("read"));
    let here = pooled(&pool, &there, &out, "1s").args(["--store", "runs"]).run();
    here.refuses(&[USAGE], &["--store runs", "godwit+pool://NAME/DIR"]);
}

#[test]
fn a_full_store_fails_its_samples_and_says_so() {
    needs!("bcftools", "bgzip", "python3");
    // A device of its own, which is full after a megabyte.
    let pool = Pool::describe("run-store-full", "round-robin", 1, &["--writable"]);
    let Some(_disk) = SmallDisk::at(&pool.root, "1m") else {
        skip!("small-disk", "file systems cannot be mounted here")
    };
    let here = sheet(&pool.mine, 1);
    let mut pool = pool;
    pool.start_node(0);
    fs::write(pool.root.join("fills"), vec![7; 1_000_000]).expect("it can be written");
    let out = pool.mine.join("out");
    let run = || pooled(&pool, &here, &out, "60s").args(["--store", &Pool::url("runs")]);
    let failed = run().run();
    failed.refuses(&[MACHINE, REMOTE], &["1 of 1 samples failed", "s0", "godwit+pool://storage/runs", "space"]);
    assert!(out.join("s0/s0.bam").exists() && !pool.root.join("runs/s0/s0.bam").exists());
    fs::remove_file(pool.root.join("fills")).expect("it is there");
    run().arg("--resume").succeeds();
    assert!(pool.root.join("runs/s0/s0.bam").exists());
}

/// A file system of so many bytes, in memory, for as long as it is held; `None` where nobody may mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(path: &Path, bytes: &str) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(path);
        mount.output().ok().filter(|done| done.status.success()).map(|_| Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A server that is being killed may still have it open: it goes when that is gone.
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn what_rules_refuse_fails_its_sample_and_no_other() {
    needs!("bcftools", "bgzip", "python3");
    let directory = scratch::directory("run-pool-rules");
    let [tokens, token, secret, policy] = ["tokens", "token", "secret", "policy.toml"].map(|name| directory.join(name));
    fs::write(&token, godwit().args(["token", "alice", "--tokens", text(&tokens)]).succeeds().stdout).expect("written");
    fs::write(&secret, "0123456789abcdef0123456789abcdef\n").expect("it can be written");
    let rule = "[[rule]]\nname = 'her own'\nwho = ['alice']\ndatasets = ['s0_*']\n";
    fs::write(&policy, rule).expect("it can be written");
    let words = ["--tokens", text(&tokens), "--pool-secret", text(&secret), "--policy", text(&policy), "--writable"];
    let mut pool = Pool::describe("run-pool-ruled", "round-robin", 1, &words);
    pool.start_node(0);
    let (here, there) = sheets(&pool, 2);
    let [alone, out, stored] = ["alone", "out", "stored"].map(|name| pool.mine.join(name));
    run(&here, &alone).succeeds();
    let by_alice = |sheet, out| pooled(&pool, sheet, out, "60s").args(["--token-file", text(&token)]);
    // What she may not see is not there for her.
    by_alice(&there, &out).run().refuses(&[USAGE], &["1 of 2 samples failed", "s1", "there is no s1_1.fq"]);
    assert_same_variants(&alone, &out, 1);
    assert!(!out.join("s1/s1.bam").exists());
    // She may write nowhere: what was worked out is here, and the run says what is missing there.
    let refused = by_alice(&here, &stored).args(["--store", &Pool::url("runs")]).run();
    refused.refuses(&[USAGE], &["2 of 2 samples failed", "s0", "no rule lets alice write runs/s0"]);
    assert_same_variants(&alone, &stored, 2);
    assert!(!pool.root.join("runs").exists());
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
    run(&here, Path::new("godwit+pool://storage/out")).run().refuses(&[USAGE], &["--out", "--store"]);
    let words = ["run", "--reference", "godwit+pool://storage/ref.fa", "--samples", text(&here), "--out", text(&out)];
    pool.godwit(&words).run().refuses(&[USAGE], &["--reference", "godwit copy"]);
    assert!(!out.exists());
}
