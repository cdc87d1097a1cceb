//! `godwit index`: the files it creates, and the files it repairs.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

/// Exit codes of the command-line contract.
const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;
/// The extension of bwa-mem3's FM-index, after the reference's path and a dot.
const FM_INDEX_SUFFIX: &str = "bwt.2bit.64";

/// Writes a reference of two contigs in a directory of its own.
fn reference(label: &str, seed: u64) -> PathBuf {
    let path = scratch::directory(label).join("ref.fa");
    let mut random = Random::new(seed);
    let mut bases = |count| (0..count).map(|_| ['A', 'C', 'G', 'T'][random.below(4)]).collect::<String>();
    fs::write(&path, format!(">one\n{}\n>two\n{}\n", bases(30_000), bases(2_001))).expect("scratch can be written to");
    path
}

fn index(reference: &Path, words: &[&str]) -> GodwitOutput {
    godwit().arg("index").arg(reference).args(words).run()
}

fn assert_built(reference: &Path, words: &[&str]) {
    let finished = godwit().arg("index").arg(reference).args(words).run_ok();
    assert!(finished.stderr.contains("indexed"), "{}", finished.describe());
}

fn assert_current(reference: &Path, words: &[&str]) {
    let finished = godwit().arg("index").arg(reference).args(words).run_ok();
    assert!(finished.stderr.contains("is current"), "{}", finished.describe());
}

fn read(reference: &Path, extension: &str) -> Vec<u8> {
    fs::read(reference.with_added_extension(extension)).expect("it is there")
}

fn file_names(reference: &Path) -> Vec<String> {
    scratch::entry_names(reference.parent().expect("it lies in a directory"))
}

#[test]
fn the_indexes_of_bwa_and_bwa_mem3_are_made_once() {
    needs!("bwa");
    let reference = reference("both-indexes", 1);
    assert_built(&reference, &[]);
    let all = ["amb", "ann", "bwt", FM_INDEX_SUFFIX, "fai", "pac", "sa"].map(|extension| format!("ref.fa.{extension}"));
    let expected: Vec<String> = std::iter::once("ref.fa".to_owned()).chain(all).collect();
    assert_eq!(file_names(&reference), expected);
    assert_current(&reference, &[]);
    // Remove the FM-index of bwa-mem3, but keep the index of bwa.
    fs::remove_file(reference.with_added_extension(FM_INDEX_SUFFIX)).expect("it is there");
    assert_current(&reference, &["--aligner", "bwa"]);
    assert_built(&reference, &[]);
    assert_eq!(file_names(&reference), expected);
}

#[test]
fn contig_names_that_sam_does_not_permit_are_rejected() {
    needs!("bwa");
    let bases = String::from_utf8(Random::new(6).bases(3_000)).expect("bases are letters");
    let directory = scratch::directory("sam-names");
    let reads = directory.join("r.fq");
    fs::write(&reads, format!("@r\n{}\n+\n{}\n", &bases[..100], "I".repeat(100))).expect("scratch can be written to");
    for (number, name) in ["*", "=", "=a", "a,b", "a(1)", "a\"b", "{a}"].into_iter().enumerate() {
        let reference = scratch::directory(&format!("sam-name-{number}")).join("ref.fa");
        fs::write(&reference, format!(">one\n{bases}\n>{name} x\n{bases}\n")).expect("scratch can be written to");
        let words = ["contig 2", &format!("{name:?}"), "rename it"];
        index(&reference, &[]).assert_rejected(&[EXIT_INPUT], &words);
        assert_eq!(file_names(&reference), ["ref.fa"], "no file is written");
        if number == 0 {
            // An index of bwa itself does not make the name valid.
            Tool::require("bwa").run(["index".as_ref(), reference.as_os_str()]);
            let align = godwit().arg("align").arg("--reference").arg(&reference).arg("--reads").arg(&reads);
            let align = align.args(["--sample", "s", "--aligner", "bwa", "--out"]).arg(directory.join("out"));
            align.run().assert_rejected(&[EXIT_INPUT], &words);
        }
    }
    let reference = scratch::directory("sam-names-of-hla").join("ref.fa");
    fs::write(&reference, format!(">HLA-A*01:01:01:01\n{bases}\n>gi|1|a=b;c\n{bases}\n"))
        .expect("scratch can be written to");
    assert_built(&reference, &[]);
}

#[test]
fn the_memory_of_the_index_decides_how_many_samples_it_has() {
    needs!("bwa");
    let reference = reference("index-memory", 2);
    index(&reference, &["--index-memory", "9K"]).assert_rejected(&[EXIT_USAGE], &["--index-memory", "at least"]);
    assert_eq!(file_names(&reference), ["ref.fa"], "it is refused before any work");
    let mut sizes = Vec::new();
    for memory in ["90K", "115K", "1G"] {
        assert_built(&reference, &["--index-memory", memory]);
        assert_current(&reference, &["--index-memory", memory]);
        assert_current(&reference, &[]);
        sizes.push(read(&reference, FM_INDEX_SUFFIX).len());
    }
    let rows = 2 * 32_001 + 1;
    let expected =
        [32, 8, 2].map(|stride| 56 + 64 * (rows / 64 + 1) + 5 * (rows / stride + 1) + if stride == 8 { 0 } else { 8 });
    assert_eq!(sizes, expected);
    index(&reference, &["--aligner", "bwa", "--index-memory", "1G"])
        .assert_rejected(&[EXIT_USAGE], &["--index-memory", "bwa"]);
}

#[test]
fn an_index_that_is_cut_off_or_of_another_reference_is_made_anew() {
    needs!("bwa");
    let (reference, other) = (reference("mended", 3), reference("other", 4));
    assert_built(&reference, &[]);
    assert_built(&other, &[]);
    let whole = read(&reference, FM_INDEX_SUFFIX);
    for broken in [&whole[..whole.len() - 9], &read(&other, FM_INDEX_SUFFIX), b""] {
        fs::write(reference.with_added_extension(FM_INDEX_SUFFIX), broken).expect("it can be written");
        assert_built(&reference, &[]);
        assert!(read(&reference, FM_INDEX_SUFFIX) == whole);
    }
    // Replace the reference: the index must be built again.
    fs::copy(&other, &reference).expect("it can be copied");
    assert_built(&reference, &[]);
    for extension in ["bwt", "sa", "pac", FM_INDEX_SUFFIX] {
        assert!(read(&reference, extension) == read(&other, extension), "{extension}");
    }
}

#[test]
fn an_index_of_bwa_whose_content_is_damaged_is_made_anew() {
    needs!("bwa");
    let reference = reference("damaged", 5);
    assert_built(&reference, &[]);
    let whole = read(&reference, FM_INDEX_SUFFIX);
    for (extension, byte) in [("sa", 800), ("bwt", 9000)] {
        let bytes = read(&reference, extension);
        let mut changed = bytes.clone();
        changed[byte] ^= 4;
        fs::write(reference.with_added_extension(extension), changed).expect("it can be written");
        fs::remove_file(reference.with_added_extension(FM_INDEX_SUFFIX)).expect("it is there");
        assert_built(&reference, &[]);
        assert!(read(&reference, extension) == bytes && read(&reference, FM_INDEX_SUFFIX) == whole, "{extension}");
    }
}

#[test]
fn an_index_that_cannot_be_written_leaves_nothing_behind() {
    needs!("bwa");
    let reference = reference("no-room", 6);
    assert_built(&reference, &["--aligner", "bwa"]);
    let before = file_names(&reference);
    let finished = godwit().arg("index").arg(&reference).limit_file_size(80_000).run();
    finished.assert_rejected(&[EXIT_MACHINE], &[FM_INDEX_SUFFIX, "File too large"]);
    assert_eq!(file_names(&reference), before);
}

#[test]
fn doctor_reports_what_loading_an_index_takes() {
    needs!("bwa");
    let reference = reference("doctor-index", 7);
    assert_built(&reference, &["--index-memory", "1G"]);
    let findings = godwit().args(["doctor", "--json"]).arg("--reference").arg(&reference).run_ok().stdout;
    let findings: serde_json::Value = serde_json::from_str(&findings).expect("it is JSON");
    let all = findings["findings"].as_array().expect("it is a list");
    let found = |what: &str| {
        let finding = all.iter().find(|finding| finding["what"] == what).expect("it is looked at");
        assert_eq!(finding["state"], "fine", "{finding}");
        finding["found"].as_str().expect("it is text").to_owned()
    };
    let mem3 = found("bwa-mem3 index");
    for words in ["current, 2 contigs", "every 2 rows", "K in memory", "read in "] {
        assert!(mem3.contains(words), "{words}: {mem3}");
    }
    assert!(found("bwa index").contains(" in memory"));
}
