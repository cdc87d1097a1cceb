//! Reading and writing of Crypt4GH files, compared with the Python package crypt4gh: each program reads the files of
//! the other, but only with a key.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, sam, scratch};

use super::http_client::{path_text, python_output, shell_blocks};
use crate::run::formats::{aligned_sample, python_with};

/// The passphrase that protects the script's keys.
const PASSPHRASE: &str = "a passphrase of several words";
const PASSPHRASE_VARIABLE: &str = "C4GH_PASSPHRASE";
const EXIT_INPUT: i32 = 3;
const EXIT_USAGE: i32 = 2;

fn run_crypt4gh_package(words: &[&str]) {
    let mut command = python_with("crypt4gh").expect("tools/python-packages.sh made it").command();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/crypt4gh/crypt4gh_package.py"));
    run_checked(command.args(words));
}

/// Returns the path of a key; the keys of several owners are made once.
fn key_path(name: &str) -> String {
    static KEYS: OnceLock<PathBuf> = OnceLock::new();
    let directory = KEYS.get_or_init(|| {
        let directory = scratch::directory("crypt4gh-keys");
        run_crypt4gh_package(&["keys", path_text(&directory), "plain", "plain-other", "locked", "pbkdf2"]);
        directory
    });
    path_text(&directory.join(name)).to_owned()
}

fn markdup(input: &Path, out: &Path, words: &[&str]) -> GodwitCommand {
    let command = godwit().args(["markdup", path_text(input), "--out", path_text(out), "--duplicates", "none"]);
    command.args(words).env(PASSPHRASE_VARIABLE, PASSPHRASE)
}

#[test]
fn what_godwit_encrypts_the_package_decrypts_and_the_other_way_round() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    let (plain, directory) = (out.join("sample.bam"), scratch::directory("crypt4gh-ways"));
    let [expected, encrypted, decrypted] =
        ["expected.bam", "mine.bam.c4gh", "mine.bam"].map(|name| directory.join(name));
    markdup(&plain, &expected, &[]).run_ok();
    let for_two = ["--c4gh-recipient", &key_path("locked.pub"), "--c4gh-recipient", &key_path("pbkdf2.pub")];
    markdup(&plain, &encrypted, &for_two).run_ok();
    assert!(!directory.join("mine.bam").exists(), "nothing is left in the clear");
    for reader in ["locked.sec", "pbkdf2.sec"] {
        run_crypt4gh_package(&["decrypt", path_text(&encrypted), path_text(&decrypted), &key_path(reader)]);
        assert!(std::fs::read(&decrypted).expect("it is there") == std::fs::read(&expected).expect("it is there"));
    }
    // The index of an encrypted BAM equals the index of the decrypted BAM.
    let indexes = ["expected.bam.bai", "mine.bam.c4gh.bai"].map(|name| std::fs::read(directory.join(name)));
    let [index, found] = indexes.map(|read| read.expect("it is there"));
    assert!(index == found);
    godwit().args(["verify", path_text(&directory.join("mine.manifest.json"))]).run_ok();

    let theirs = directory.join("theirs.c4gh");
    run_crypt4gh_package(&[
        "encrypt",
        path_text(&plain),
        path_text(&theirs),
        &key_path("plain.pub"),
        &key_path("locked.pub"),
        &key_path("pbkdf2.pub"),
    ]);
    for reader in ["plain.sec", "locked.sec", "pbkdf2.sec"] {
        let again = directory.join(format!("{reader}.bam"));
        markdup(&theirs, &again, &["--c4gh-key", &key_path(reader)]).run_ok();
        sam::assert_same(&expected, &again);
    }
}

#[test]
fn encrypted_reads_are_aligned_as_plain_ones_are() {
    needs!("bwa", "samtools", "bcftools", "python3");
    let (sample, _) = aligned_sample();
    let directory = scratch::directory("crypt4gh-reads");
    let encrypted: Vec<PathBuf> = sample.lanes[1]
        .reads
        .iter()
        .map(|path| {
            let to = directory.join(format!("{}.c4gh", path.file_name().and_then(|name| name.to_str()).expect("text")));
            run_crypt4gh_package(&["encrypt", path_text(path), path_text(&to), &key_path("plain.pub")]);
            to
        })
        .collect();
    let align = |reads: &[PathBuf], out: &str, words: &[&str]| {
        let command =
            godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference()).arg("--reads").args(reads);
        let command = command.args(["--sample", "s", "--block-bases", "100000", "--out"]).arg(directory.join(out));
        command.args(["--read-group", "@RG\\tID:a\\tSM:s"]).args(words).run()
    };
    let plain = align(&sample.lanes[1].reads, "plain", &[]);
    assert_eq!(plain.status.code(), Some(0), "{}", plain.describe());
    let found = align(&encrypted, "encrypted", &["--c4gh-key", &key_path("plain.sec")]);
    assert_eq!(found.status.code(), Some(0), "{}", found.describe());
    let bam = |out: &str| std::fs::read(directory.join(out).join("s.bam")).expect("it is there");
    assert!(bam("plain") == bam("encrypted"));
    // Encrypt the output of this run.
    let both = ["--c4gh-key", &key_path("plain.sec"), "--c4gh-recipient", &key_path("plain.pub")];
    let found = align(&encrypted, "both", &both);
    assert_eq!(found.status.code(), Some(0), "{}", found.describe());
    let back = directory.join("back.bam");
    run_crypt4gh_package(&[
        "decrypt",
        path_text(&directory.join("both/s.bam.c4gh")),
        path_text(&back),
        &key_path("plain.sec"),
    ]);
    assert!(std::fs::read(&back).expect("it is there") == bam("plain"));
    assert!(!directory.join("both/s.bam").exists());
    // Run the same reads from a sample sheet.
    let run = |reads: &[PathBuf], out: &str, words: &[&str]| {
        let sheet = directory.join(format!("{out}.csv"));
        let [one, two] = [&reads[0], &reads[1]].map(|path| path_text(path));
        std::fs::write(&sheet, format!("sample,fastq_1,fastq_2\ns,{one},{two}\n")).expect("it can be written");
        let command =
            godwit().args(["run", "--reference"]).arg(sample.godwit_indexed_reference()).arg("--samples").arg(&sheet);
        command.args(["--block-bases", "100000", "--out"]).arg(directory.join(out)).args(words).run()
    };
    let plain = run(&sample.lanes[1].reads, "run-plain", &[]);
    assert_eq!(plain.status.code(), Some(0), "{}", plain.describe());
    let found = run(&encrypted, "run-encrypted", &["--c4gh-key", &key_path("plain.sec")]);
    assert_eq!(found.status.code(), Some(0), "{}", found.describe());
    let made = |out: &str| std::fs::read(directory.join(out).join("s/s.bam")).expect("it is there");
    assert!(made("run-plain") == made("run-encrypted"));
    align(&encrypted, "none", &[]).assert_rejected(&[EXIT_INPUT], &["--c4gh-key"]);
    align(&encrypted, "other", &["--c4gh-key", &key_path("plain-other.sec")])
        .assert_rejected(&[EXIT_INPUT], &["encrypted for other keys"]);
    align(&encrypted, "call", &["--call", "--c4gh-recipient", &key_path("plain.pub")])
        .assert_rejected(&[EXIT_USAGE], &["--call"]);
    align(&encrypted, "table", &["--format", "parquet", "--c4gh-recipient", &key_path("plain.pub")])
        .assert_rejected(&[EXIT_USAGE], &["BAM and CRAM"]);
}

#[test]
fn variants_of_encrypted_reads_are_those_of_the_reads() {
    needs!("bwa", "samtools", "bcftools", "python3");
    let (sample, out) = aligned_sample();
    let directory = scratch::directory("crypt4gh-called");
    let (plain, encrypted) = (out.join("sample.bam"), directory.join("aligned/s.bam.c4gh"));
    std::fs::create_dir(directory.join("aligned")).expect("it can be made");
    run_crypt4gh_package(&["encrypt", path_text(&plain), path_text(&encrypted), &key_path("plain.pub")]);
    std::fs::copy(out.join("sample.bam.bai"), directory.join("aligned/s.bam.c4gh.bai")).expect("it can be copied");
    let call = |reads: &Path, name: &str, words: &[&str]| {
        let command =
            godwit().args(["call", "--reference"]).arg(sample.godwit_indexed_reference()).arg("--reads").arg(reads);
        command.arg("--out").arg(directory.join(name)).args(words).run()
    };
    let records = |name: &str| {
        let told = run_checked(Tool::require("bcftools").command().args(["view", "-H"]).arg(directory.join(name)));
        String::from_utf8(told.stdout).expect("it is text")
    };
    let expected = call(&plain, "plain.vcf.gz", &[]);
    assert_eq!(expected.status.code(), Some(0), "{}", expected.describe());
    assert!(!records("plain.vcf.gz").is_empty());
    let both = ["--c4gh-key", &key_path("plain.sec"), "--c4gh-recipient", &key_path("plain.pub")];
    for (reads, name) in [(encrypted.clone(), "file"), (directory.join("aligned"), "directory")] {
        let found = call(&reads, &format!("{name}.vcf.gz"), &both);
        assert_eq!(found.status.code(), Some(0), "{}", found.describe());
        let made = directory.join(format!("{name}.vcf.gz.c4gh"));
        run_crypt4gh_package(&[
            "decrypt",
            path_text(&made),
            path_text(&directory.join("back.vcf.gz")),
            &key_path("plain.sec"),
        ]);
        assert_eq!(records("back.vcf.gz"), records("plain.vcf.gz"));
        assert!(directory.join(format!("{name}.vcf.gz.c4gh.tbi")).exists());
    }
    call(&encrypted, "none.vcf.gz", &[]).assert_rejected(&[EXIT_INPUT], &["--c4gh-key"]);
    // No temporary file with decrypted data may remain.
    let left: Vec<_> = std::fs::read_dir(&directory)
        .expect("it is there")
        .map(|entry| entry.expect("it is there").file_name())
        .collect();
    assert!(!left.iter().any(|name| name == "file.vcf.gz" || name.to_string_lossy().contains("clear")), "{left:?}");
}

#[test]
fn changed_and_cut_files_are_errors_and_leave_no_output() {
    needs!("bwa", "samtools", "python3");
    let (_, out) = aligned_sample();
    let directory = scratch::directory("crypt4gh-damage");
    let encrypted = directory.join("reads.bam.c4gh");
    run_crypt4gh_package(&[
        "encrypt",
        path_text(&out.join("sample.bam")),
        path_text(&encrypted),
        &key_path("plain.pub"),
    ]);
    let whole = std::fs::read(&encrypted).expect("it is there");
    let header = 16 + 4 + 4 + 32 + 12 + 40 + 16;
    let segment = (64 << 10) + 28;
    let first_rest = header + (whole.len() - header) / segment * segment;
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let mut swapped = whole.clone();
    swapped[header..header + 2 * segment].rotate_left(segment);
    for (what, bytes, word) in [
        ("the key of the data", flipped(90), "encrypted for other keys"),
        ("the first segment", flipped(header + 5000), "segment 0"),
        ("a segment within", flipped(header + segment + 77), "segment 1"),
        ("the last byte", flipped(whole.len() - 1), "changed or damaged"),
        ("a byte that is missing", whole[..whole.len() - 1].to_vec(), "changed or damaged"),
        ("an end within a segment", whole[..first_rest + 9].to_vec(), "truncated"),
        // Crypt4GH cannot detect that segments at the end are missing, but BGZF inside it can.
        ("segments that are missing", whole[..first_rest].to_vec(), "truncated"),
        ("segments in another order", swapped, "damaged"),
    ] {
        let damaged = directory.join("damaged.bam.c4gh");
        std::fs::write(&damaged, bytes).expect("it can be written");
        let made = directory.join("made.bam");
        let outcome = markdup(&damaged, &made, &["--c4gh-key", &key_path("plain.sec")]).run();
        outcome.assert_rejected(&[EXIT_INPUT], &[word]);
        assert!(!made.exists(), "{what}");
    }
    let made = directory.join("made.bam");
    let refused = |words: &[&str], code: i32, word: &str| {
        markdup(&encrypted, &made, words).run().assert_rejected(&[code], &[word])
    };
    refused(&["--c4gh-key", &key_path("plain.pub")], EXIT_INPUT, "not a secret key");
    let locked = godwit().args([
        "markdup",
        path_text(&encrypted),
        "--out",
        path_text(&made),
        "--c4gh-key",
        &key_path("locked.sec"),
    ]);
    locked.run().assert_rejected(&[EXIT_USAGE], &[PASSPHRASE_VARIABLE]);
    let passphrase = directory.join("passphrase");
    std::fs::write(&passphrase, "another one\n").expect("it can be written");
    refused(
        &["--c4gh-key", &key_path("locked.sec"), "--c4gh-passphrase", path_text(&passphrase)],
        EXIT_USAGE,
        "does not unlock",
    );
    std::fs::write(&passphrase, format!("{PASSPHRASE}\n")).expect("it can be written");
    // The passphrase is right, but the file is encrypted for another recipient.
    refused(
        &["--c4gh-key", &key_path("locked.sec"), "--c4gh-passphrase", path_text(&passphrase)],
        EXIT_INPUT,
        "for other keys",
    );
}

#[test]
fn every_command_of_the_page_about_encrypted_files_works() {
    needs!("bwa", "samtools", "python3", "bash");
    let (sample, _) = aligned_sample();
    let directory = scratch::directory("crypt4gh-guide");
    std::fs::copy(&sample.reference, directory.join("ref.fa")).expect("it can be copied");
    for (at, reads) in sample.lanes[1].reads.iter().enumerate() {
        let name = format!("reads_L001_R{}.fastq.gz", at + 1);
        std::fs::copy(reads, directory.join(name)).expect("it can be copied");
    }
    // Use the programs of the Python package crypt4gh.
    let python = python_with("crypt4gh").expect("tools/python-packages.sh made it");
    let python = python.command().get_program().to_str().expect("it is text").to_owned();
    for (name, module) in [("crypt4gh", "crypt4gh"), ("crypt4gh-keygen", "crypt4gh.keys")] {
        scratch::write_executable(&directory.join(name), &format!("#!/bin/sh\nexec {python} -m {module} \"$@\"\n"));
    }
    let bin = godwit_tests::binary::path().parent().expect("the binary lies in a directory").to_owned();
    let path = format!("{}:{}:{}", directory.display(), bin.display(), std::env::var("PATH").unwrap_or_default());
    let blocks = shell_blocks("crypt4gh.md");
    assert_eq!(blocks.len(), 4);
    let mut last = String::new();
    for block in &blocks {
        let mut command = Tool::require("bash").command();
        let command = command.args(["-euo", "pipefail", "-c", block]).current_dir(&directory);
        let told = run_checked(command.env("PATH", &path).env("XDG_CONFIG_HOME", &directory)).stdout;
        last = String::from_utf8(told).expect("it is text");
    }
    // The last line contains the counts of reads and variants.
    let counts: Vec<u64> = last.split_whitespace().map_while(|count| count.parse().ok()).collect();
    assert!(counts.len() == 2 && counts[0] > 0, "{last}");
    assert!(directory.join("S.vcf.gz.c4gh.tbi").exists() && !directory.join("S.vcf.gz").exists());
    assert!(directory.join("out/S.bam.c4gh.bai").exists() && !directory.join("out/S.bam").exists());
}

/// Encrypts a file with the public key of that name.
fn encrypt(plain: &Path, encrypted: &Path, key: &str) {
    run_crypt4gh_package(&["encrypt", path_text(plain), path_text(encrypted), &key_path(key)]);
}

#[test]
fn a_server_with_a_key_shows_what_is_in_encrypted_files_and_one_without_shows_none() {
    needs!("bwa", "samtools", "bcftools", "python3", "curl");
    let (_, out) = aligned_sample();
    let root = scratch::directory("crypt4gh-served");
    let plain = root.join("plain.bam");
    std::fs::copy(out.join("sample.bam"), &plain).expect("it can be copied");
    std::fs::copy(out.join("sample.bam.bai"), root.join("plain.bam.bai")).expect("it can be copied");
    encrypt(&plain, &root.join("secret.bam.c4gh"), "locked.pub");
    std::fs::copy(out.join("sample.bam.bai"), root.join("secret.bam.c4gh.bai")).expect("it can be copied");
    let vcf = "##fileformat=VCFv4.2\n##contig=<ID=chr1>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\nchr1\t7\t.\tA\tC\t.\t.\t.\n";
    std::fs::write(root.join(".v"), vcf).expect("it can be written");
    encrypt(&root.join(".v"), &root.join("v.vcf.c4gh"), "locked.pub");
    // Encrypt the file with a data edit list that removes its first record.
    std::fs::write(root.join(".bed"), "chr1\t1\t2\nchr1\t5\t9\n").expect("it can be written");
    encrypt(&root.join(".bed"), &root.join(".bed.c4gh"), "plain.pub");
    let [bed, shown] = [".bed.c4gh", "part.bed.c4gh"].map(|name| root.join(name));
    run_crypt4gh_package(&["rearrange", path_text(&bed), path_text(&shown), &key_path("plain.sec"), "9", "18"]);

    let passphrase = root.join(".passphrase");
    std::fs::write(&passphrase, PASSPHRASE).expect("it can be written");
    let (locked, open) = (key_path("locked.sec"), key_path("plain.sec"));
    let keys = ["--c4gh-key", &locked, "--c4gh-key", &open, "--c4gh-passphrase", path_text(&passphrase)];
    let served = DataServer::start(&root, &keys);
    assert!(served.ready_line.starts_with("4 datasets"), "{}", served.ready_line);
    let at = |served: &DataServer, sql: &str| {
        let url = format!("grpc+tcp://{}", served.address);
        godwit().args(["query", sql, "--at", &url, "--format", "csv"]).run()
    };
    let query = |sql: &str| at(&served, sql).stdout;
    for sql in [
        "SELECT count(*) n, sum(position) s, min(name) a FROM reads('FILE') WHERE region('chr1:100-9000')",
        "SELECT name, position, flags FROM reads('FILE') WHERE region('chr1:100-2000')",
        "SELECT count(*) n FROM reads('FILE')",
    ] {
        let [expected, found] = ["plain.bam", "secret.bam.c4gh"].map(|file| query(&sql.replace("FILE", file)));
        assert!(expected == found && expected.lines().count() > 1, "{sql}: {expected} {found}");
    }
    assert_eq!(query("SELECT position FROM \"v.vcf.c4gh\""), "position\n6\n");
    assert_eq!(query("SELECT contig, position FROM \"part.bed.c4gh\""), "contig,position\nchr1,5\n");
    let part = root.join(".part.bam");
    let url = format!("http://{}/reads/secret.bam.c4gh", served.address);
    python_output(&["fetch_by_htsget_package", &url, "BAM", path_text(&part), "", "chr1", "100", "9000"]);
    let records = |file: &Path, words: &[&str]| {
        let told = Tool::require("samtools").run([&["view", path_text(file)], words].concat()).stdout;
        String::from_utf8(told).expect("it is text")
    };
    let (sent, all) = (records(&part, &[]), records(&plain, &["chr1"]));
    assert!(!sent.is_empty() && sent.lines().all(|line| all.contains(line)), "{sent}");
    drop(served);

    let here = godwit().args(["query", "SELECT count(*) n FROM \"part.bed.c4gh\"", "--data", path_text(&root)]);
    assert_eq!(here.args(["--c4gh-key", &open, "--format", "csv"]).run_ok().stdout, "n\n1\n");
    let without = DataServer::start(&root, &[]);
    assert!(without.ready_line.starts_with("1 dataset "), "{}", without.ready_line);
    at(&without, "SELECT count(*) FROM reads('secret.bam.c4gh')")
        .assert_rejected(&[EXIT_USAGE, EXIT_INPUT, 6], &["secret.bam.c4gh"]);
    // A server with the key of another recipient lists the dataset, but cannot open it.
    let other = DataServer::start(&root, &["--c4gh-key", &key_path("plain-other.sec")]);
    at(&other, "SELECT count(*) FROM reads('secret.bam.c4gh')")
        .assert_rejected(&[EXIT_USAGE, EXIT_INPUT, 6], &["encrypted for other keys"]);
}
