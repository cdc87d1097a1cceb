//! `godwit run` with reads in a pool. The run fetches the reads of each sample, waits while no member responds, and
//! removes the reads when their sample is finished.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch, skip};

use super::cohort_runs::{assert_same_variants, report, run_samples, samples, write_sheet};
use super::server_pool::{ServerPool, path_text};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;
const EXIT_REMOTE: i32 = 6;

/// Writes a sample sheet with reads in the pool, and another one with the same reads on the local disk.
fn write_sheets(pool: &ServerPool, count: usize) -> (PathBuf, PathBuf) {
    let here = write_sheet(&pool.root, count);
    let lines: String = (0..count)
        .map(|sample| {
            format!(
                "s{sample},{},{}\n",
                ServerPool::url(&format!("s{sample}_1.fq")),
                ServerPool::url(&format!("s{sample}_2.fq"))
            )
        })
        .collect();
    let there = pool.client_directory.join("sheet.csv");
    fs::write(&there, format!("sample,fastq_1,fastq_2\n{lines}")).expect("it can be written");
    (here, there)
}

fn run_from_pool(pool: &ServerPool, sheet: &Path, out: &Path, wait: &str) -> GodwitCommand {
    run_samples(sheet, out).args(["--pool", path_text(&pool.description), "--wait", wait])
}

/// Returns the names of all files below a directory that belong to fetched reads.
fn remaining_read_files(out: &Path) -> Vec<String> {
    let below = scratch::entry_names(out).into_iter().map(|name| out.join(name)).filter(|path| path.is_dir());
    below.flat_map(|sample| scratch::entry_names(&sample)).filter(|name| name.contains("godwit-reads")).collect()
}

#[test]
fn reads_in_a_pool_are_fetched_and_gone_when_their_sample_is_done() {
    needs!("bcftools", "bgzip", "python3");
    // Start only one of the two pool members.
    let mut pool = ServerPool::new_stopped("run-pool", "round-robin", 2, &[]);
    pool.start_member(1);
    let (here, there) = write_sheets(&pool, 2);
    let [alone, out, spread] = ["alone", "out", "spread"].map(|name| pool.client_directory.join(name));
    run_samples(&here, &alone).run_ok();
    run_from_pool(&pool, &there, &out, "60s").run_ok();
    assert_same_variants(&alone, &out, 2);
    assert_eq!(remaining_read_files(&out), [] as [&str; 0]);
    let told = report(&out);
    for sample in samples(&told) {
        let steps: Vec<&str> =
            sample["steps"].as_array().expect("a list").iter().filter_map(|step| step["step"].as_str()).collect();
        assert_eq!(steps, ["fetch", "align", "call"], "{told}");
    }
    run_from_pool(&pool, &there, &spread, "60s").args(["--on", "local", "--nodes", "2"]).run_ok();
    assert_same_variants(&alone, &spread, 2);
    // Stop all servers. The resumed run must not fetch the reads of finished samples again.
    pool.members[1] = None;
    run_from_pool(&pool, &there, &out, "1s").arg("--resume").run_ok();
    let told = report(&out);
    for sample in samples(&told) {
        assert!(sample["steps"].as_array().expect("a list").iter().all(|step| step["done_before"] == true), "{told}");
    }
    // A sample without one of its outputs is not finished, nor is one whose line of the sheet has changed.
    fs::remove_file(out.join("s0/s0.vcf.gz")).expect("it was written");
    let sheet = fs::read_to_string(&there).expect("it was written");
    let sheet = sheet.replace("fastq_2\n", "fastq_2,library\n").replace(".fq\ns1", ".fq,\ns1").trim_end().to_owned();
    fs::write(&there, sheet + ",other\n").expect("it can be written");
    let failed = run_from_pool(&pool, &there, &out, "1s").arg("--resume").run();
    failed.assert_rejected(&[EXIT_REMOTE], &["2 of 2 samples failed", "s0_1.fq", "s1_1.fq"]);
}

#[test]
fn what_is_written_of_each_sample_is_stored_in_a_pool_whole_and_once() {
    needs!("bcftools", "bgzip", "python3");
    let pool = ServerPool::start("run-store", "round-robin", 2, &["--writable"]);
    let (_, there) = write_sheets(&pool, 2);
    let (out, stored) = (pool.client_directory.join("out"), pool.root.join("runs/mine"));
    let run = |more: &[&str]| {
        run_from_pool(&pool, &there, &out, "60s").args(["--store", &ServerPool::url("runs/mine")]).args(more)
    };
    run(&["--on", "local", "--nodes", "2"]).run_ok();
    for sample in 0..2 {
        for name in scratch::entry_names(&out.join(format!("s{sample}"))) {
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
    // The report contains the health of both members for the whole run, and the page shows it.
    let moments = told["storage"].as_array().expect("a list");
    assert!(moments.iter().all(|moment| moment["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2)), "{told}");
    assert!(moments.iter().any(|moment| moment["nodes"][0]["healthy"] == true), "{told}");
    let page = fs::read_to_string(out.join("report.html")).expect("it was written");
    assert!(page.contains("Storage throughput") && page.contains("Connections to storage"), "{page}");
    // Remove a stored file from the pool. The resumed run stores it again and repeats no other step.
    fs::remove_file(stored.join("s1/s1.bam")).expect("it is there");
    run(&["--resume"]).run_ok();
    assert!(fs::read(out.join("s1/s1.bam")).expect("read") == fs::read(stored.join("s1/s1.bam")).expect("read"));
    let here = run_from_pool(&pool, &there, &out, "1s").args(["--store", "runs"]).run();
    here.assert_rejected(&[EXIT_USAGE], &["--store runs", "godwit+pool://NAME/DIR"]);
}

#[test]
fn a_full_store_fails_its_samples_and_says_so() {
    needs!("bcftools", "bgzip", "python3");
    // Mount a file system of one megabyte, so that the disk of the server becomes full.
    let pool = ServerPool::new_stopped("run-store-full", "round-robin", 1, &["--writable"]);
    let Some(_disk) = TmpfsMount::mount_at(&pool.root, "1m") else {
        skip!("small-disk", "file systems cannot be mounted here")
    };
    let here = write_sheet(&pool.client_directory, 1);
    let mut pool = pool;
    pool.start_member(0);
    fs::write(pool.root.join("fills"), vec![7; 1_000_000]).expect("it can be written");
    let out = pool.client_directory.join("out");
    let run = || run_from_pool(&pool, &here, &out, "60s").args(["--store", &ServerPool::url("runs")]);
    let failed = run().run();
    failed.assert_rejected(
        &[EXIT_MACHINE, EXIT_REMOTE],
        &["1 of 1 sample failed", "s0", "godwit+pool://storage/runs", "space"],
    );
    assert!(out.join("s0/s0.bam").exists() && !pool.root.join("runs/s0/s0.bam").exists());
    fs::remove_file(pool.root.join("fills")).expect("it is there");
    run().arg("--resume").run_ok();
    assert!(pool.root.join("runs/s0/s0.bam").exists());
}

/// A mounted file system in memory of the given size. It is unmounted when the value is dropped.
struct TmpfsMount(PathBuf);

impl TmpfsMount {
    fn mount_at(path: &Path, bytes: &str) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(path);
        mount.output().ok().filter(|done| done.status.success()).map(|_| Self(path.to_owned()))
    }
}

impl Drop for TmpfsMount {
    fn drop(&mut self) {
        // Unmount lazily: a server that is being killed may still have open files, and the kernel unmounts the file
        // system after it has exited.
        let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn what_rules_refuse_fails_its_sample_and_no_other() {
    needs!("bcftools", "bgzip", "python3");
    let directory = scratch::directory("run-pool-rules");
    let [tokens, token, secret, policy] = ["tokens", "token", "secret", "policy.toml"].map(|name| directory.join(name));
    fs::write(&token, godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout)
        .expect("written");
    fs::write(&secret, "0123456789abcdef0123456789abcdef\n").expect("it can be written");
    let rule = "[[rule]]\nname = 'her own'\nwho = ['alice']\ndatasets = ['s0_*']\n";
    fs::write(&policy, rule).expect("it can be written");
    let words = [
        "--tokens",
        path_text(&tokens),
        "--pool-secret",
        path_text(&secret),
        "--policy",
        path_text(&policy),
        "--writable",
    ];
    let mut pool = ServerPool::new_stopped("run-pool-ruled", "round-robin", 1, &words);
    pool.start_member(0);
    let (here, there) = write_sheets(&pool, 2);
    let [alone, out, stored] = ["alone", "out", "stored"].map(|name| pool.client_directory.join(name));
    run_samples(&here, &alone).run_ok();
    let by_alice = |sheet, out| run_from_pool(&pool, sheet, out, "60s").args(["--token-file", path_text(&token)]);
    // The policy hides files that alice may not read, so they do not exist for her.
    by_alice(&there, &out)
        .run()
        .assert_rejected(&[EXIT_USAGE], &["1 of 2 samples failed", "s1", "s1_1.fq does not exist"]);
    assert_same_variants(&alone, &out, 1);
    assert!(!out.join("s1/s1.bam").exists());
    // The policy does not permit alice to write. The run keeps its results locally and reports the files that are
    // missing in the pool.
    let refused = by_alice(&here, &stored).args(["--store", &ServerPool::url("runs")]).run();
    refused.assert_rejected(&[EXIT_USAGE], &["2 of 2 samples failed", "s0", "no rule permits alice to write runs/s0"]);
    assert_same_variants(&alone, &stored, 2);
    assert!(!pool.root.join("runs").exists());
}

#[test]
fn a_run_waits_for_a_pool_as_long_as_it_is_told_to() {
    needs!("bcftools", "bgzip", "python3");
    let mut pool = ServerPool::new_stopped("run-pool-down", "round-robin", 2, &[]);
    let (here, there) = write_sheets(&pool, 1);
    let [alone, out] = ["alone", "out"].map(|name| pool.client_directory.join(name));
    run_samples(&here, &alone).run_ok();
    let waits = "no member of the pool storage answers; waiting up to";
    let gone = run_from_pool(&pool, &there, &out, "1s").run();
    assert!(gone.stderr.contains(waits), "{}", gone.describe());
    gone.assert_rejected(
        &[EXIT_REMOTE],
        &["1 of 1 sample failed", "s0_1.fq", "none of its 2 members answered", "--resume"],
    );
    assert!(!out.join("s0/s0.bam").exists());
    let said = pool.client_directory.join("said");
    let running = run_from_pool(&pool, &there, &out, "300s").arg("--resume");
    let running = running.stderr(fs::File::create(&said).expect("it can be made")).spawn();
    wait_until("it waits", || fs::read_to_string(&said).is_ok_and(|said| said.contains(waits)));
    pool.start_member(1);
    let done = running.wait_with_output();
    assert!(done.status.success(), "{}", fs::read_to_string(&said).unwrap_or_default());
    assert_same_variants(&alone, &out, 1);
}

#[test]
fn addresses_that_cannot_be_are_refused_before_anything_is_fetched() {
    needs!("bcftools");
    let pool = ServerPool::new_stopped("run-pool-wrong", "round-robin", 1, &[]);
    let (here, _) = write_sheets(&pool, 1);
    let out = pool.client_directory.join("out");
    for (address, words) in [
        ("http://storage/a.fq", &["sample a", "the scheme http is not supported"][..]),
        ("godwit+pool://storage", &["sample a", "does not name a file"]),
        ("godwit+pool://other/a.fq", &["sample a", "describes the pool storage"]),
    ] {
        let sheet = pool.client_directory.join("wrong.csv");
        fs::write(&sheet, format!("sample,fastq_1\na,{address}\n")).expect("it can be written");
        run_from_pool(&pool, &sheet, &out, "1s").run().assert_rejected(&[EXIT_INPUT], words);
    }
    run_samples(&here, Path::new("godwit+pool://storage/out"))
        .run()
        .assert_rejected(&[EXIT_USAGE], &["--out", "--store"]);
    assert!(!out.exists());
}
