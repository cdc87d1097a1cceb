//! Sequences by their digests, over refget: with GA4GH's own compliance suite, with samtools that decodes CRAM by them,
//! and against `samtools faidx` of the files.

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::http_client::{HttpResponse, get, path_text, python_output, run_guide_page};
use crate::run::formats::aligned_sample;

/// Returns the MD5 of a sequence, as SAM headers have it.
pub fn md5_of(bases: &str) -> String {
    let mut command = Tool::require("md5sum").command();
    let path = scratch::directory("refget-md5").join("bases");
    std::fs::write(&path, bases).expect("it can be written");
    String::from_utf8(run_checked(command.arg(&path)).stdout).expect("it is text")[..32].to_owned()
}

#[test]
fn the_compliance_suite_of_ga4gh_finds_nothing_wrong() {
    needs!("python3");
    let directory = scratch::directory("refget-suite");
    python_output(&["write_refget_sequences", path_text(&directory)]);
    let served = DataServer::start(&directory, &[]);
    let told = python_output(&["run_refget_suite", &format!("http://{}/", served.address)]);
    let results: Vec<(&str, &str)> = told.lines().filter_map(|line| line.split_once(' ')).collect();
    let failed: Vec<&(&str, &str)> = results.iter().filter(|(result, _)| *result == "-1").collect();
    assert!(failed.is_empty(), "{failed:?}");
    let passed = results.iter().filter(|(result, _)| *result == "1").count();
    assert!(passed >= 27, "{passed} tests of {} passed: {told}", results.len());
    // All skipped compliance tests must be about circular sequences, which the server does not support.
    for (_, name) in results.iter().filter(|(result, _)| *result == "0") {
        assert!(name.contains("circular"), "{name} was left out");
    }
}

#[test]
fn samtools_decodes_cram_by_sequences_of_the_server() {
    needs!("bwa", "samtools");
    let (sample, out) = aligned_sample();
    let reference = sample.godwit_indexed_reference();
    let served = DataServer::start(&out, &["--reference", path_text(reference)]);
    let cram = out.join("sample.cram");
    // The path of the reference in the CRAM header does not exist, so samtools must fetch the sequences from the
    // server.
    let moved = scratch::directory("refget-cram").join("elsewhere.cram");
    let header = Tool::require("samtools").run(["view", "--no-PG", "-H", path_text(&cram)]).stdout;
    let header = String::from_utf8(header).expect("it is text");
    let bare: Vec<String> = header
        .lines()
        .map(|line| line.split('\t').filter(|field| !field.starts_with("UR:")).collect::<Vec<_>>().join("\t"))
        .collect();
    let bare_path = moved.with_extension("sam");
    std::fs::write(&bare_path, bare.join("\n") + "\n").expect("it can be written");
    let reheaded = Tool::require("samtools").run(["reheader", "--no-PG", path_text(&bare_path), path_text(&cram)]);
    std::fs::write(&moved, reheaded.stdout).expect("it can be written");
    let view = |path: &str| {
        let mut command = Tool::require("samtools").command();
        command.env("REF_PATH", path).env("REF_CACHE", moved.with_extension("cache"));
        command.args(["view", "--no-PG", path_text(&moved)]);
        command
    };
    let expected =
        Tool::require("samtools").run(["view", "--no-PG", "-T", path_text(reference), path_text(&moved)]).stdout;
    let found = run_checked(&mut view(&format!("http://{}/sequence/%s", served.address))).stdout;
    assert!(!found.is_empty() && found == expected, "the reads are others");
    let _ = std::fs::remove_dir_all(moved.with_extension("cache"));
    let without = view(&format!("http://{}/nothing/%s", served.address)).output().expect("samtools can be started");
    assert!(!without.status.success(), "samtools found the sequences elsewhere");
}

#[test]
fn letters_are_those_of_faidx() {
    needs!("samtools", "curl");
    let directory = scratch::directory("refget-faidx");
    let mut random = Random::new(31);
    let fasta = directory.join("genome.fa");
    let mut written = String::new();
    for (name, bases, width) in [("one", 5000_usize, 61_usize), ("two", 70, 70), ("three", 3, 10)] {
        let letters = String::from_utf8(random.bases(bases)).expect("bases are letters");
        // Write the first half of the sequence in lower case (soft-masked).
        let letters = letters[..bases / 2].to_ascii_lowercase() + &letters[bases / 2..];
        written += &format!(">{name} of a test\n");
        for line in letters.as_bytes().chunks(width) {
            written += &format!("{}\n", String::from_utf8_lossy(line));
        }
    }
    std::fs::write(&fasta, written).expect("it can be written");
    let faidx = |region: &str| {
        let told = Tool::require("samtools").run(["faidx", "--length", "0", path_text(&fasta), region]).stdout;
        let told = String::from_utf8(told).expect("it is text");
        told.lines().skip(1).collect::<String>().to_ascii_uppercase()
    };
    let served = DataServer::start(&directory, &[]);
    let bases = faidx("one");
    let digest = md5_of(&bases);
    let path = format!("/sequence/{digest}");
    assert_eq!(get(&served, &path, &[]).body, bases);
    for _ in 0..30 {
        let start = random.between(0, 4900) as usize;
        let end = start + random.between(1, 99) as usize;
        let expected = faidx(&format!("one:{}-{end}", start + 1));
        assert_eq!(get(&served, &format!("{path}?start={start}&end={end}"), &[]).body, expected);
        let range = format!("range: bytes={start}-{}", end - 1);
        let part = get(&served, &path, &["--header", &range]);
        assert_eq!((part.status, &part.body), (206, &expected));
        assert_eq!(part.header("content-range").unwrap_or_default(), format!("bytes {start}-{}/5000", end - 1));
    }
    let told = get(&served, &format!("{path}/metadata"), &[]);
    let told: Value = serde_json::from_str(&told.body).expect("it is JSON");
    let told = &told["metadata"];
    assert_eq!((told["length"].as_u64(), told["md5"].as_str()), (Some(5000), Some(&*digest)));
    assert_eq!(told["aliases"][0]["alias"], "one");
    let by_sha = told["ga4gh"].as_str().expect("it is text").to_owned();
    assert_eq!(get(&served, &format!("/sequence/ga4gh:{by_sha}?start=7&end=9"), &[]).body, bases[7..9]);
    // Replace a file: the server must serve its new sequences.
    std::fs::write(&fasta, ">one\nACGT\n").expect("it can be written");
    assert_eq!(get(&served, &path, &[]).status, 404);
    assert_eq!(get(&served, &format!("/sequence/{}", md5_of("ACGT")), &[]).body, "ACGT");
    assert_eq!(get(&served, &format!("/sequence/md5%3A{}", md5_of("ACGT")), &[]).body, "ACGT");
    let refused = get(&served, "/sequence/x", &["--request", "POST", "--data", "x"]);
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn references_are_had_as_files_with_their_index() {
    needs!("bwa", "samtools", "curl");
    let (sample, out) = aligned_sample();
    let reference = sample.godwit_indexed_reference();
    let served = DataServer::start(&out, &["--reference", path_text(reference)]);
    let file = std::fs::read_to_string(reference).expect("it is there");
    assert!(get(&served, "/references/0.fa", &[]).body == file, "all of it");
    let part = get(&served, "/references/0.fa", &["--header", "range: bytes=70-199"]);
    assert_eq!((part.status, part.body.as_str()), (206, &file[70..200]));
    let tag = part.header("etag").expect("a file has a tag").to_owned();
    let same = get(&served, "/references/0.fa", &["--header", &format!("if-none-match: \"x\", {tag}")]);
    assert_eq!((same.status, same.body.as_str(), same.header("etag")), (304, "", Some(tag.as_str())));
    let known = ["--http2-prior-knowledge", "--header", &format!("if-none-match: {tag}")];
    assert_eq!(get(&served, "/references/0.fa", &known).header("content-length"), None, "the file has another length");
    let index_tag = get(&served, "/references/0.fa.fai", &["--header", "if-none-match: \"x\""]);
    assert_eq!((index_tag.status, index_tag.header("etag")), (200, Some(tag.as_str())));
    let rest = |tag: &str| {
        get(&served, "/references/0.fa", &["--header", "range: bytes=70-199", "--header", &format!("if-range: {tag}")])
    };
    assert_eq!(rest(&tag).status, 206);
    let whole = rest("\"x\"");
    assert_eq!((whole.status, whole.body == file), (200, true), "of a file that is another, all of it");
    let copied = scratch::directory("refget-fai").join("reference.fa");
    std::fs::copy(reference, &copied).expect("it can be copied");
    Tool::require("samtools").run(["faidx", path_text(&copied)]);
    let index = std::fs::read_to_string(copied.with_extension("fa.fai")).expect("samtools made it");
    assert_eq!(get(&served, "/references/0.fa.fai", &[]).body, index);
    assert_eq!(get(&served, "/references/", &[]).body, r#"{"references":[0]}"#);
    for none in ["/references/1.fa", "/references/0", "/references/-1.fa", "/references/x.fa.fai"] {
        assert_eq!(get(&served, none, &[]).status, 404, "{none}");
    }
}

#[test]
fn sequences_of_hidden_files_are_not_there_and_accesses_are_recorded() {
    needs!("curl");
    let directory = scratch::directory("refget-rules");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    let [reference, tokens, policy, audit] =
        ["reference.fa", "tokens", "policy.toml", "audit"].map(|name| directory.join(name));
    std::fs::write(&reference, ">chr\nAAAACCCC\n").expect("it can be written");
    std::fs::write(root.join("shown.fa"), ">a\nACGT\n").expect("it can be written");
    std::fs::write(root.join("hidden.fa"), ">b\nGATTACA\n").expect("it can be written");
    let rules = "[[rule]]\nname = 'all'\nwho = ['alice']\ndatasets = ['**']\n\
        [[rule]]\nname = 'some'\nwho = ['bob']\ndatasets = ['shown.fa']\n";
    std::fs::write(&policy, rules).expect("it can be written");
    let token =
        |name: &str| godwit().args(["token", name, "--tokens", path_text(&tokens)]).run_ok().stdout.trim().to_owned();
    let (alice, bob) = (token("alice"), token("bob"));
    let words = [
        "--tokens",
        path_text(&tokens),
        "--policy",
        path_text(&policy),
        "--audit",
        path_text(&audit),
        "--reference",
        path_text(&reference),
    ];
    let served = DataServer::start(&root, &words);
    let asked = |token: &str, bases: &str| -> HttpResponse {
        let header = format!("authorization: Bearer {token}");
        get(&served, &format!("/sequence/{}", md5_of(bases)), &["--header", &header])
    };
    for (who, bases, status) in [
        (&alice, "ACGT", 200),
        (&alice, "GATTACA", 200),
        (&alice, "AAAACCCC", 200),
        (&bob, "ACGT", 200),
        (&bob, "AAAACCCC", 200),
        (&bob, "GATTACA", 404),
        (&"nobody".to_owned(), "ACGT", 401),
    ] {
        let answer = asked(who, bases);
        assert_eq!(answer.status, status, "{bases}: {answer:?}");
        assert_eq!(answer.body == bases, status == 200, "{answer:?}");
    }
    served.stop(15);
    godwit().args(["audit", "verify", path_text(&audit)]).run_ok();
    let recorded = std::fs::read_to_string(&audit).expect("it is there");
    let lines: Vec<Value> = recorded.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |who: &str, outcome: &str| {
        let said = |line: &&Value| line["outcome"].as_str().is_some_and(|said| said.starts_with(outcome));
        lines.iter().filter(|line| line["call"] == "Refget" && line["who"] == who).filter(said).count()
    };
    assert_eq!(
        (of("alice", "begun"), of("alice", "done"), of("bob", "done"), of("bob", "404")),
        (3, 3, 2, 1),
        "{recorded}"
    );
    assert!(recorded.contains("\"hidden.fa\"") && recorded.contains("\"some\""), "{recorded}");
}

#[test]
fn every_command_of_the_page_about_refget_works() {
    needs!("bwa", "samtools", "bash", "curl");
    let (sample, out) = aligned_sample();
    let root = scratch::directory("refget-guide");
    std::os::unix::fs::symlink(out.join("sample.cram"), root.join("S.cram")).expect("a link can be made");
    let served = DataServer::start(&root, &["--reference", path_text(sample.godwit_indexed_reference())]);
    run_guide_page("refget.md", &served, &root);
}
