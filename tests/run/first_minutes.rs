//! Errors that users meet in their first minutes: a wrong path, no index, a read group in another form, no permission, a full
//! disk. Each names the file and the problem, with the exit code of the contract.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{self, GodwitCommand, godwit, godwit_at};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch, skip};

use super::bad_input::TmpfsMount;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;

/// A directory with an indexed reference `ref.fa`, reads `r1.fq` and `r2.fq`, their alignment `out` and variants `S.vcf.gz`.
fn first_files() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = scratch::directory("first-minutes");
        run_in(&directory, "demo --pairs 500 --out demo").run_ok();
        fs::copy(directory.join("demo/reference.fa"), directory.join("ref.fa")).expect("the demo made it");
        run_in(&directory, "index ref.fa").run_ok();
        run_in(&directory, "simulate --reference ref.fa --pairs 500 --out reads").run_ok();
        for mate in [1, 2] {
            let from = directory.join(format!("reads_L001_R{mate}.fastq"));
            fs::rename(from, directory.join(format!("r{mate}.fq"))).expect("simulate wrote it");
        }
        run_in(&directory, "align --reference ref.fa --reads r1.fq r2.fq --sample S --out out").run_ok();
        run_in(&directory, "call --reference ref.fa --reads out --out S.vcf.gz").run_ok();
        directory
    })
}

/// Returns a command line of godwit in a directory. Arguments are separated by blanks.
fn run_in(directory: &Path, words: &str) -> GodwitCommand {
    godwit().current_dir(directory).args(words.split(' '))
}

#[test]
fn a_wrong_path_is_named_by_every_verb() {
    needs!("bwa", "bcftools");
    let directory = first_files();
    let cases = [
        ("index nowhere.fa", "the reference nowhere.fa is missing"),
        ("align --reference nowhere.fa --reads r1.fq --sample S --out o", "the reference nowhere.fa is missing"),
        (
            "align --reference ref.fa --reads r1.fq nowhere.fq --sample S --out o",
            "the file of reads nowhere.fq is missing",
        ),
        ("markdup nowhere.bam --out m.bam", "the input nowhere.bam is missing"),
        ("call --reference nowhere.fa --reads out --out x.vcf.gz", "the reference nowhere.fa is missing"),
        ("call --reference ref.fa --reads nowhere.bam --out x.vcf.gz", "the file of reads nowhere.bam is missing"),
        ("run --reference ref.fa --samples nowhere.csv --out o", "the sample sheet nowhere.csv is missing"),
        ("verify nowhere.bam", "the file nowhere.bam is missing"),
        ("compare S.vcf.gz nowhere.vcf --reference ref.fa", "cannot read nowhere.vcf: No such file"),
        ("variants nowhere.vcf --out x.parquet", "cannot read nowhere.vcf: No such file"),
        ("query SELECT/**/1 --data nowhere", "cannot read nowhere: No such file"),
        ("serve --root nowhere --listen 127.0.0.1:0", "cannot read nowhere: No such file"),
    ];
    for (words, message) in cases {
        run_in(directory, words).run().assert_rejected(&[EXIT_MACHINE], &[message]);
    }
    let misspelled = run_in(directory, "algin").run();
    misspelled.assert_rejected(&[EXIT_USAGE], &["'algin'", "'align'"]);
}

#[test]
fn a_missing_index_is_named_with_the_command_that_creates_it() {
    needs!("bwa", "bcftools");
    let directory = first_files();
    let plain = scratch::directory("no-index");
    fs::copy(directory.join("ref.fa"), plain.join("ref.fa")).expect("it was written");
    fs::copy(directory.join("out/S.bam"), plain.join("S.bam")).expect("it was written");
    for mate in ["r1.fq", "r2.fq"] {
        fs::copy(directory.join(mate), plain.join(mate)).expect("it was written");
    }
    let align = run_in(&plain, "align --reference ref.fa --reads r1.fq r2.fq --sample S --out o").run();
    align.assert_rejected(&[EXIT_MACHINE], &["is missing", "`godwit index ref.fa`"]);
    let call = run_in(&plain, "call --reference ref.fa --reads S.bam --out x.vcf.gz").run();
    call.assert_rejected(&[EXIT_MACHINE], &["S.bam.bai is missing", "`samtools index S.bam`"]);
}

#[test]
fn a_read_group_in_another_form_is_rejected_with_the_form_that_works() {
    needs!("bwa");
    let directory = first_files();
    let align = "align --reference ref.fa --reads r1.fq r2.fq --sample S --out other --read-group";
    for (read_group, problem) in
        [("ID:x", "does not start with @RG and a tab (write \\t)"), ("@RG\\tSM:S", "has no ID")]
    {
        run_in(directory, &format!("{align} {read_group}"))
            .run()
            .assert_rejected(&[EXIT_USAGE], &["the read group", problem]);
    }
}

#[test]
fn reads_without_read_groups_are_marked_and_called() {
    needs!("bwa", "bcftools", "samtools", "bash");
    let directory = first_files();
    let script = "samtools view -h out/S.bam | grep -v ^@RG | sed 's/\\tRG:Z:[^\\t]*//' | samtools view -bo plain.bam - && samtools index plain.bam";
    let mut bash = Tool::require("bash").command();
    run_checked(bash.current_dir(directory).args(["-euc", script]));
    let marked = run_in(directory, "markdup plain.bam --out marked.bam").run_ok();
    assert!(marked.stderr.ends_with("godwit: wrote marked.bam\n"), "{}", marked.describe());
    run_in(directory, "call --reference ref.fa --reads plain.bam --out plain.vcf.gz").run_ok();
}

/// Returns a command line of godwit for which permissions count: root keeps its files in a new user namespace, but not its
/// privilege to write everywhere. `None` if such a namespace cannot be created.
fn unprivileged_in(directory: &Path, words: &str) -> Option<GodwitCommand> {
    // SAFETY: geteuid only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return Some(run_in(directory, words));
    }
    let unshare = Tool::find("unshare")?;
    let works = unshare.command().args(["--user", "true"]).output().is_ok_and(|output| output.status.success());
    let command = godwit_at(Path::new("unshare")).arg("--user").arg(binary::path());
    works.then(|| command.current_dir(directory).args(words.split(' ')))
}

#[test]
fn a_missing_permission_is_named_by_every_verb() {
    needs!("bwa", "bcftools");
    let directory = first_files();
    let (locked, secret) = (directory.join("locked"), directory.join("secret.fq"));
    fs::create_dir_all(&locked).expect("the scratch directory can be written to");
    fs::copy(directory.join("ref.fa"), locked.join("ref.fa")).expect("it was written");
    fs::copy(directory.join("r1.fq"), &secret).expect("it was written");
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    set_mode(&locked, 0o500);
    set_mode(&secret, 0o000);
    let cases = [
        ("demo --pairs 500 --out locked/demo", "locked/demo"),
        ("index locked/ref.fa", "locked/ref.fa"),
        ("align --reference ref.fa --reads r1.fq r2.fq --sample S --out locked/out", "locked/out"),
        ("align --reference ref.fa --reads secret.fq --sample S --out o", "secret.fq"),
        ("markdup out/S.bam --out locked/m.bam", "locked/m.bam"),
        ("call --reference ref.fa --reads out --out locked/x.vcf.gz", "locked/"),
    ];
    let finished: Option<Vec<_>> =
        cases.iter().map(|(words, path)| Some((unprivileged_in(directory, words)?.run(), *path))).collect();
    // The next run of the tests removes the directory.
    set_mode(&locked, 0o700);
    let Some(finished) = finished else {
        skip!("user-namespaces", "unshare --user does not work here");
    };
    for (finished, path) in finished {
        finished.assert_rejected(&[EXIT_MACHINE], &[path, "Permission denied"]);
    }
}

#[test]
fn a_full_disk_is_named_by_every_verb() {
    needs!("bwa", "bcftools");
    let directory = first_files();
    let cases = [
        ("64k", "demo --pairs 500 --out DISK/demo", "reference.fa"),
        ("64k", "align --reference ref.fa --reads r1.fq r2.fq --sample S --out DISK/out", "out"),
        ("64k", "markdup out/S.bam --out DISK/m.bam", "m"),
        ("4k", "call --reference ref.fa --reads out --out DISK/x.vcf.gz", "x.vcf.gz"),
        ("1m", "index DISK/ref.fa", "ref.fa"),
    ];
    for (size, words, path) in cases {
        let Some(disk) = TmpfsMount::new(size) else {
            skip!("small-disk", "file systems cannot be mounted here");
        };
        if words.starts_with("index") {
            fs::copy(directory.join("ref.fa"), disk.0.join("ref.fa")).expect("it fits");
        }
        let words = words.replace("DISK", disk.0.to_str().expect("scratch paths are text"));
        run_in(directory, &words).run().assert_rejected(&[EXIT_MACHINE], &[path, "No space left"]);
    }
}
