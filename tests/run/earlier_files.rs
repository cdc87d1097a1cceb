//! Files that an earlier version wrote: each is read, and written again with the same contents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};
use serde_json::Value;

/// Returns a copy of the files: commands write beside their inputs.
fn earlier_files() -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/earlier_files");
    let copy = scratch::directory("earlier").join("files");
    run_checked(Command::new("cp").arg("-r").arg(golden).arg(&copy));
    copy
}

fn godwit_in(directory: &Path, args: &[&str]) -> GodwitCommand {
    godwit().current_dir(directory).args(args)
}

#[test]
fn packed_genomes_of_an_earlier_version_are_unpacked_and_packed_to_the_same_bytes() {
    let files = earlier_files();
    let genome = scratch::read(&files.join("genome.fa"));
    godwit_in(&files, &["unpack", "--reference", "reference.fa", "genome.gwp", "unpacked.fa"]).run_ok();
    assert!(scratch::read(&files.join("unpacked.fa")) == genome);
    godwit_in(&files, &["collection", "extract", "--reference", "reference.fa", "collection", "first", "first.fa"])
        .run_ok();
    assert!(scratch::read(&files.join("first.fa")) == genome);
    godwit_in(&files, &["pack", "--reference", "reference.fa", "genome.fa", "again.gwp"]).run_ok();
    assert!(scratch::read(&files.join("again.gwp")) == scratch::read(&files.join("genome.gwp")));
}

#[test]
fn outputs_and_manifests_of_an_earlier_version_are_verified_and_queried() {
    let files = earlier_files();
    godwit_in(&files, &["verify", "out"]).run_ok();
    for dataset in ["old.bam", "old.parquet", "old.arrow"] {
        let statement = format!("SELECT count(*) AS n FROM \"{dataset}\"");
        let counted = godwit_in(&files, &["query", &statement, "--data", "out", "--format", "csv"]).run_ok();
        assert_eq!(counted.stdout, "n\n132\n", "{dataset}");
    }
    // Change a byte of the BAM: `verify` must compare the checksum and not only parse the manifest.
    let mut bam = scratch::read(&files.join("out/old.bam"));
    bam[3000] ^= 1;
    fs::write(files.join("out/old.bam"), bam).expect("the copy can be written");
    godwit_in(&files, &["verify", "out"]).run().assert_rejected(&[3], &["old.bam"]);
}

#[test]
fn audit_logs_of_an_earlier_version_are_verified() {
    let files = earlier_files();
    let last = "90a36152e8cef9bcd8eb954a522cb8714ff568f930960f4c2e18d94b4b63e3d4";
    let verified = godwit_in(&files, &["audit", "verify", "audit.jsonl"]).run_ok();
    assert!(verified.stdout.contains("6 lines") && verified.stdout.contains(last), "{}", verified.describe());
}

#[test]
fn a_copy_that_an_earlier_version_started_is_resumed() {
    let files = earlier_files();
    let root = files.join("root");
    let mut lines: String = (0..60_000).map(|number| format!("line {number}\n")).collect();
    lines.truncate(300_000);
    fs::create_dir(&root).expect("the copy can be written");
    fs::write(root.join("lines.txt"), &lines).expect("the copy can be written");
    let served = DataServer::start(&root, &[]);
    let url = format!("grpc+tcp://{}/lines.txt", served.address);
    let copied = godwit_in(&files, &["copy", &url, "copy/", "--json"]).run_ok();
    // The journal lists only the second block, which has the bytes after the first 256 KiB.
    assert!(copied.stderr.contains("\"kept_bytes\":37856,"), "{}", copied.describe());
    assert_eq!(scratch::entry_names(&files.join("copy")), ["lines.txt"]);
    assert!(scratch::read(&files.join("copy/lines.txt")) == lines.as_bytes());
}

/// Returns the lines that do not contain the version of the program that wrote them.
fn lines_without_version(text: Vec<u8>) -> Vec<String> {
    let text = String::from_utf8(text).expect("it is text");
    text.lines()
        .filter(|line| !line.starts_with("@PG\tID:godwit") && !line.starts_with("# godwit "))
        .map(str::to_owned)
        .collect()
}

/// Adds the paths of all keys of a JSON document; list entries share the path of the list.
fn collect_keys(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}/{name}");
                collect_keys(value, &path, keys);
                keys.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_keys(item, path, keys)),
        _ => {}
    }
}

#[test]
fn alignments_have_the_records_and_reports_the_keys_of_an_earlier_version() {
    needs!("bwa", "samtools");
    let files = earlier_files();
    godwit_in(&files, &["index", "reference.fa"]).run_ok();
    let json = |path: &str| serde_json::from_slice::<Value>(&scratch::read(&files.join(path))).expect("it is JSON");
    let align = "align --reference reference.fa --reads r1.fastq r2.fastq --sample old --quiet --partitions 3 \
                 --format bam,parquet,arrow --metrics off --out again";
    godwit_in(&files, &align.split_whitespace().collect::<Vec<_>>()).run_ok();
    for name in ["old.duplicates.txt", "old.flagstat.txt", "old.idxstats.txt"] {
        let text = |directory: &str| lines_without_version(scratch::read(&files.join(directory).join(name)));
        assert_eq!(text("again"), text("out"), "{name}");
    }
    let records = |directory: &str| {
        let bam = files.join(directory).join("old.bam");
        lines_without_version(
            Tool::require("samtools").run(["view".as_ref(), "--no-PG".as_ref(), "-h".as_ref(), bam.as_os_str()]).stdout,
        )
    };
    assert_eq!(records("again"), records("out"));
    for name in ["run.json", "old.manifest.json"] {
        let keys = |directory: &str| {
            let mut keys = BTreeSet::new();
            collect_keys(&json(&format!("{directory}/{name}")), "", &mut keys);
            keys
        };
        let missing: Vec<String> = keys("out").difference(&keys("again")).cloned().collect();
        assert_eq!(missing, Vec::<String>::new(), "{name}");
    }
    // The identity of a job contains the version: `--resume` must not continue a job of another version.
    let identity = |directory: &str| json(&format!("{directory}/old.manifest.json"))["identity"].clone();
    assert_ne!(identity("again"), identity("out"));
}
