//! Regions of files over htsget: with htslib as the client, with the `htsget` package, and by the text of the
//! specification, against `samtools view` and `bcftools view -r` of the files themselves.
//!
//! A server may send records beside the requested ones, as this one does. So the test treats the response as a file,
//! indexes it and selects the same region from it. Everything in it has to be in the original file, in the same order.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::http_client::{curl, get, path_text, python_output, run_guide_page};
use super::regions::random_regions;
use crate::run::formats::aligned_sample;

fn tool_output(tool: &str, words: &[&str]) -> String {
    String::from_utf8(Tool::require(tool).run(words).stdout).expect("it prints text")
}

/// Converts a region such as `chr1:5-9` to htsget parameters; start and end may be missing.
fn region_parameters(region: &str) -> String {
    let Some((contig, range)) = region.split_once(':') else { return format!("referenceName={region}") };
    let (first, last) = range.split_once('-').expect("a range has both ends");
    let start = first.parse::<u64>().map(|first| format!("&start={}", first - 1)).unwrap_or_default();
    let end = last.parse::<u64>().map(|last| format!("&end={last}")).unwrap_or_default();
    format!("referenceName={contig}{start}{end}")
}

/// Checks that all lines of the first list occur in the second list, in the same order.
fn assert_within(found: &str, all: &str, what: &str) {
    let mut all = all.lines();
    for line in found.lines() {
        assert!(all.any(|other| other == line), "{what}: not in the file, or not in its order: {line}");
    }
}

/// Returns a sorted BAM with many BGZF blocks; its last reads are unplaced.
fn large_bam() -> &'static Path {
    static LARGE_BAM: OnceLock<PathBuf> = OnceLock::new();
    LARGE_BAM.get_or_init(|| {
        let directory = scratch::directory("htsget-large");
        let mut random = Random::new(23);
        let mut sam = "@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:chr1\tLN:150000\n@SQ\tSN:chr2\tLN:80000\n\
            @SQ\tSN:chr3\tLN:30000\n@SQ\tSN:chrM\tLN:6000\n@SQ\tSN:tiny\tLN:64\n"
            .to_owned();
        let mut number = 0;
        for (contig, bases, reads) in [("chr1", 150_000, 30_000), ("chr2", 80_000, 3_000), ("tiny", 64, 5)] {
            let mut positions: Vec<i64> = (0..reads).map(|_| random.between(1, bases - 40)).collect();
            positions.sort_unstable();
            for position in positions {
                number += 1;
                let bases = String::from_utf8(random.bases(30)).expect("bases are letters");
                let cigar = *random.pick(&["30M", "10M2000N20M", "5S25M", "12M1D18M"]);
                let cigar = if contig == "tiny" { "30M" } else { cigar };
                sam += &format!("r{number}\t0\t{contig}\t{position}\t60\t{cigar}\t*\t0\t0\t{bases}\t*\tNM:i:0\n");
            }
        }
        for _ in 0..4000 {
            number += 1;
            let bases = String::from_utf8(random.bases(30)).expect("bases are letters");
            sam += &format!("r{number}\t4\t*\t0\t0\t*\t*\t0\t0\t{bases}\t*\n");
        }
        std::fs::write(directory.join("large.sam"), sam).expect("it can be written");
        let bam = directory.join("large.bam");
        tool_output(
            "samtools",
            &["view", "--no-PG", "-b", "-o", path_text(&bam), path_text(&directory.join("large.sam"))],
        );
        tool_output("samtools", &["index", path_text(&bam)]);
        directory
    })
}

#[test]
fn samtools_reads_regions_of_bam_by_htsget() {
    needs!("samtools");
    let directory = large_bam();
    let served = DataServer::start(directory, &[]);
    let bam = directory.join("large.bam");
    let whole = tool_output("samtools", &["view", path_text(&bam)]);
    let header = tool_output("samtools", &["view", "--no-PG", "-H", path_text(&bam)]);
    let scratch = scratch::directory("htsget-bam");
    for (number, region) in random_regions(5, 40).iter().chain(["*".to_owned()].iter()).enumerate() {
        let url = format!("http://{}/reads/large.bam?format=BAM&{}", served.address, region_parameters(region));
        let fetched = scratch.join(format!("{number}.bam"));
        tool_output("samtools", &["view", "--no-PG", "-b", "-o", path_text(&fetched), &url]);
        tool_output("samtools", &["index", path_text(&fetched)]);
        assert_eq!(tool_output("samtools", &["view", "--no-PG", "-H", path_text(&fetched)]), header, "{region}");
        assert_within(&tool_output("samtools", &["view", path_text(&fetched)]), &whole, region);
        let expected = tool_output("samtools", &["view", path_text(&bam), region]);
        assert!(tool_output("samtools", &["view", path_text(&fetched), region]) == expected, "{region}");
        std::fs::remove_file(&fetched).expect("it is there");
    }
    let small = tool_output(
        "samtools",
        &["view", "-c", &format!("http://{}/reads/large.bam?referenceName=tiny", served.address)],
    );
    assert_eq!(small, "5\n", "what lies beside a region is not sent where its blocks are cut");
    let all = tool_output("samtools", &["view", &format!("http://{}/reads/large.bam", served.address)]);
    assert!(all == whole, "all of it");
}

#[test]
fn samtools_reads_regions_of_cram_by_htsget() {
    needs!("bwa", "samtools");
    let (sample, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    let reference = sample.godwit_indexed_reference();
    let cram = out.join("sample.cram");
    let view = |words: &[&str]| tool_output("samtools", &[&["view", "-T", path_text(reference)], words].concat());
    let whole = view(&[path_text(&cram)]);
    let scratch = scratch::directory("htsget-cram");
    for region in random_regions(7, 20).iter().chain(["*".to_owned()].iter()) {
        let url = format!("http://{}/reads/sample.cram?format=CRAM&{}", served.address, region_parameters(region));
        let fetched = scratch.join("fetched.cram");
        python_output(&["fetch_by_specification", &url, path_text(&fetched)]);
        tool_output("samtools", &["index", path_text(&fetched)]);
        assert_within(&view(&[path_text(&fetched)]), &whole, region);
        assert!(view(&[path_text(&fetched), region]) == view(&[path_text(&cram), region]), "{region}");
        assert!(view(&[&url]) == view(&[path_text(&fetched)]), "htslib reads {region} otherwise");
    }
    let header = scratch.join("header.cram");
    let url = format!("http://{}/reads/sample.cram?format=CRAM&class=header", served.address);
    assert_eq!(python_output(&["fetch_by_specification", &url, path_text(&header)]), "CRAM header header");
    assert_eq!(view(&["-H", "--no-PG", path_text(&header)]), view(&["-H", "--no-PG", path_text(&cram)]));
    assert_eq!(view(&[path_text(&header)]), "");
}

/// Returns a directory with variants on two contigs, some of which span many bases; as VCF and BCF with their indexes.
fn variants_directory() -> &'static Path {
    static VARIANTS_DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    VARIANTS_DIRECTORY.get_or_init(|| {
        let directory = scratch::directory("htsget-variants");
        let mut random = Random::new(29);
        let mut vcf = "##fileformat=VCFv4.3\n##contig=<ID=chr1,length=150000>\n##contig=<ID=chr2,length=80000>\n\
            ##contig=<ID=chr3,length=30000>\n##contig=<ID=chrM,length=6000>\n##contig=<ID=tiny,length=64>\n\
            ##INFO=<ID=END,Number=1,Type=Integer,Description=\"End\">\n\
            ##INFO=<ID=X,Number=1,Type=String,Description=\"Text that fills blocks\">\n\
            #CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
            .to_owned();
        for (contig, bases, count) in [("chr1", 150_000, 9000), ("chr2", 80_000, 2000)] {
            let mut positions: Vec<i64> = (0..count).map(|_| random.between(1, bases - 3000)).collect();
            positions.sort_unstable();
            for (number, position) in positions.into_iter().enumerate() {
                let filling = String::from_utf8(random.bases(40)).expect("bases are letters");
                let (alternative, end) = match random.below(20) {
                    0 => ("<DEL>", format!("END={};", position + random.between(1, 2900))),
                    _ => ("G", String::new()),
                };
                vcf += &format!("{contig}\t{position}\tv{number}\tA\t{alternative}\t.\t.\t{end}X={filling}\n");
            }
        }
        let plain = directory.join("v.vcf");
        std::fs::write(&plain, vcf).expect("it can be written");
        for (name, kind, index) in [("v.vcf.gz", "-Oz", "-t"), ("v.bcf", "-Ob", "-c")] {
            let file = directory.join(name);
            tool_output("bcftools", &["view", "--no-version", kind, "-o", path_text(&file), path_text(&plain)]);
            tool_output("bcftools", &["index", index, path_text(&file)]);
        }
        directory
    })
}

#[test]
fn bcftools_reads_regions_of_variants_by_htsget() {
    needs!("bcftools");
    let directory = variants_directory();
    let served = DataServer::start(directory, &[]);
    let scratch = scratch::directory("htsget-vcf");
    for (name, format, kind, index) in [("v.vcf.gz", "VCF", "-Oz", "-t"), ("v.bcf", "BCF", "-Ob", "-c")] {
        let file = directory.join(name);
        let whole = tool_output("bcftools", &["view", "-H", path_text(&file)]);
        for region in random_regions(11, 25) {
            let url =
                format!("http://{}/variants/{name}?format={format}&{}", served.address, region_parameters(&region));
            let fetched = scratch.join(name);
            tool_output("bcftools", &["view", "--no-version", kind, "-o", path_text(&fetched), &url]);
            tool_output("bcftools", &["index", "-f", index, path_text(&fetched)]);
            assert_within(&tool_output("bcftools", &["view", "-H", path_text(&fetched)]), &whole, &region);
            // Write ranges without a start as ranges from 1, because bcftools does not support them.
            let region = region.replace(":-", ":1-");
            let expected = tool_output("bcftools", &["view", "-H", "-r", &region, path_text(&file)]);
            // An index does not list a contig without records.
            let found =
                tool_output("bcftools", &["view", "-H", "-t", &region, "--targets-overlap", "1", path_text(&fetched)]);
            assert!(found == expected, "{name} {region}");
        }
        let all = scratch.join("all");
        let url = format!("http://{}/variants/{name}?format={format}", served.address);
        assert_eq!(python_output(&["fetch_by_specification", &url, path_text(&all)]), format!("{format} -"));
        assert!(
            std::fs::read(&all).expect("it is there") == std::fs::read(&file).expect("it is there"),
            "all of {name}"
        );
    }
}

#[test]
fn the_package_of_python_and_several_regions_at_once() {
    needs!("python3", "samtools");
    let directory = large_bam();
    let served = DataServer::start(directory, &[]);
    let bam = directory.join("large.bam");
    let scratch = scratch::directory("htsget-package");
    let fetched = scratch.join("fetched.bam");
    let url = format!("http://{}/reads/large.bam", served.address);
    for region in random_regions(13, 12) {
        let Some((contig, range)) = region.split_once(':') else { continue };
        let Some((first, last)) = range.split_once('-').filter(|(first, last)| !first.is_empty() && !last.is_empty())
        else {
            continue;
        };
        let start = (first.parse::<u64>().expect("it is a number") - 1).to_string();
        python_output(&["fetch_by_htsget_package", &url, "BAM", path_text(&fetched), "", contig, &start, last]);
        tool_output("samtools", &["index", path_text(&fetched)]);
        let view = |file: &Path| tool_output("samtools", &["view", path_text(file), &region]);
        assert!(view(&fetched) == view(&bam), "{region}");
    }
    python_output(&["fetch_by_htsget_package", &url, "BAM", path_text(&fetched), ""]);
    assert!(std::fs::read(&fetched).expect("it is there") == std::fs::read(&bam).expect("it is there"));
    let regions = ["chr1:500-900", "chr2:1-2000", "chr1:800-1200", "tiny"];
    let body = r#"{"format":"BAM","fields":["QNAME"],"regions":[
        {"referenceName":"chr1","start":499,"end":900},{"referenceName":"chr2","end":2000},
        {"referenceName":"chr1","start":799,"end":1200},{"referenceName":"tiny"}]}"#;
    let classes = python_output(&["fetch_by_specification", &url, path_text(&fetched), "", body]);
    assert!(classes.starts_with("BAM header body") && !classes.contains("-"), "{classes}");
    tool_output("samtools", &["index", path_text(&fetched)]);
    let view = |file: &Path| tool_output("samtools", &[&["view", "-M", path_text(file)], &regions[..]].concat());
    assert!(view(&fetched) == view(&bam));
    assert_within(
        &tool_output("samtools", &["view", path_text(&fetched)]),
        &tool_output("samtools", &["view", path_text(&bam)]),
        "regions",
    );
}

#[test]
fn questions_that_have_no_answer_are_refused_as_the_specification_says() {
    needs!("samtools", "bcftools", "curl");
    let root = scratch::directory("htsget-refused");
    for (from, name) in [
        (large_bam(), "large.bam"),
        (large_bam(), "large.bam.bai"),
        (variants_directory(), "v.vcf.gz"),
        (variants_directory(), "v.vcf"),
    ] {
        std::os::unix::fs::symlink(from.join(name), root.join(name)).expect("a link can be made");
    }
    std::fs::write(root.join("a.bed"), "chr1\t1\t2\n").expect("it can be written");
    std::fs::write(root.join("broken.bam"), b"nothing of the kind").expect("it can be written");
    let served = DataServer::start(&root, &[]);
    for (path, expected) in [
        ("/reads/none.bam", "404 NotFound"),
        ("/reads/a.bed", "404 NotFound"),
        ("/reads/v.vcf.gz", "404 NotFound"),
        ("/variants/large.bam", "404 NotFound"),
        ("/reads/..%2flarge.bam", "404 NotFound"),
        ("/reads/", "404 NotFound"),
        ("/elsewhere", "404 NotFound"),
        ("/reads/large.bam?referenceName=chr9", "404 NotFound"),
        ("/reads/large.bam?format=CRAM", "400 UnsupportedFormat"),
        ("/reads/large.bam?format=bam", "400 UnsupportedFormat"),
        ("/variants/v.vcf.gz?format=BCF", "400 UnsupportedFormat"),
        ("/variants/v.vcf", "400 UnsupportedFormat"),
        ("/variants/v.vcf.gz?referenceName=chr1", "400 InvalidInput"),
        ("/reads/large.bam?start=1", "400 InvalidInput"),
        ("/reads/large.bam?referenceName=chr1&start=x", "400 InvalidInput"),
        ("/reads/large.bam?fields=NONE", "400 InvalidInput"),
        ("/reads/large.bam?class=body", "400 InvalidInput"),
        ("/reads/large.bam?referenceName=chr1&start=9&end=5", "400 InvalidRange"),
        ("/reads/broken.bam", "500 InternalError"),
        ("/htsget/data", "401 InvalidAuthentication"),
    ] {
        let told = get(&served, path, &[]);
        assert_eq!(told.htsget_error(), expected, "{path}: {told:?}");
        assert!(told.header("content-type").is_some_and(|kind| kind.contains("htsget.v1.3.0+json")), "{told:?}");
    }
    let post = |body: &str| get(&served, "/reads/large.bam", &["--data-binary", body]).htsget_error();
    assert_eq!(post("{\"regions\":[]}"), "400 InvalidInput");
    let large = root.join("large.json");
    std::fs::write(&large, " ".repeat((1 << 20) + 1)).expect("it can be written");
    assert_eq!(post(&format!("@{}", path_text(&large))), "413 PayloadTooLarge");
    assert_eq!(
        get(&served, "/reads/large.bam?format=BAM", &["--data-binary", "{}"]).htsget_error(),
        "400 InvalidInput"
    );
    assert_eq!(get(&served, "/reads/large.bam", &["--request", "DELETE"]).htsget_error(), "400 InvalidInput");
    let forged = get(&served, "/htsget/data", &["--header", "authorization: Bearer gwh1.Z3cxLg"]);
    assert_eq!(forged.htsget_error(), "403 PermissionDenied");
    let no_index = get(&served, "/variants/v.vcf.gz?referenceName=chr1", &[]);
    assert!(no_index.body.contains("bcftools index -t v.vcf.gz"), "{no_index:?}");
    for (datatype, formats) in [("reads", "BAM CRAM"), ("variants", "VCF BCF")] {
        let told = get(&served, &format!("/{datatype}/service-info"), &[]);
        let told: Value = serde_json::from_str(&told.body).expect("it is JSON");
        assert_eq!(told["type"]["artifact"], "htsget");
        assert_eq!(told["htsget"]["formats"], serde_json::json!(formats.split(' ').collect::<Vec<_>>()));
    }
}

#[test]
fn pages_of_the_web_may_ask_where_a_token_is_asked_for() {
    needs!("samtools", "curl");
    let directory = large_bam();
    let tokens = scratch::directory("htsget-cors").join("tokens.txt");
    let told = godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout;
    let guarded = DataServer::start(directory, &["--tokens", path_text(&tokens)]);
    let origin = ["--header", "origin: https://browser.example.org"];
    let asked = ["--request", "OPTIONS", "--header", "access-control-request-headers: authorization"];
    let preflight = get(&guarded, "/reads/large.bam", &[&origin[..], &asked].concat());
    assert_eq!(preflight.status, 204, "{preflight:?}");
    let allowed = |header: &str| preflight.header(&format!("access-control-{header}")).map(str::to_owned);
    assert_eq!(allowed("allow-origin").as_deref(), Some("https://browser.example.org"));
    assert_eq!(allowed("allow-headers").as_deref(), Some("authorization"));
    assert_eq!(allowed("max-age").as_deref(), Some("2592000"));
    assert!(allowed("allow-methods").is_some_and(|methods| methods.contains("POST")));
    let refused = get(&guarded, "/reads/large.bam", &origin);
    assert_eq!(refused.htsget_error(), "401 InvalidAuthentication");
    assert_eq!(refused.header("access-control-allow-origin"), Some("https://browser.example.org"));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    let bearer = format!("authorization: Bearer {}", told.trim());
    let let_in = get(&guarded, "/reads/large.bam", &["--header", &bearer]);
    assert_eq!((let_in.status, let_in.header("access-control-allow-origin")), (200, None));
    assert!(!let_in.body.contains(told.trim()), "the caller's token is in no ticket");

    // A server without authentication must not send CORS headers. Otherwise a web page of another site could read its
    // data through the browser of the user.
    let open = DataServer::start(directory, &[]);
    let from_afar = get(&open, "/reads/large.bam", &origin);
    assert_eq!(from_afar.header("access-control-allow-origin"), None);
    let from_here = get(&open, "/reads/large.bam", &["--header", "origin: http://localhost:3000"]);
    assert_eq!(from_here.header("access-control-allow-origin"), Some("http://localhost:3000"));
    for path in ["/reads/large.bam", "/metrics"] {
        let misled = get(&open, path, &["--header", "host: rebound.example.org"]);
        assert_eq!(misled.status, 421, "{misled:?}");
        assert_eq!(get(&open, path, &["--header", "host: localhost:99"]).status, 200);
    }
    assert_eq!(get(&open, "/healthz", &["--header", "host: probe.example.org"]).body, "SERVING\n");
}

/// A server's root with reads of its own, tokens, rules and an access record.
struct PolicyServer {
    directory: PathBuf,
    bam: PathBuf,
    policy: PathBuf,
    audit: PathBuf,
    tokens: PathBuf,
}

/// The rules for alice and for bob.
const ALLOW_ALL_RULE: &str = "[[rule]]\nname = 'all'\nwho = ['alice']\ndatasets = ['**']\n";
const ALLOW_REGION_RULE: &str =
    "[[rule]]\nname = 'some'\nwho = ['bob']\ndatasets = ['*.bam']\nregions = ['chr1:1-100']\n";

impl PolicyServer {
    fn new() -> Self {
        let directory = scratch::directory("htsget-rules");
        let root = directory.join("root");
        std::fs::create_dir(&root).expect("it can be made");
        let bam = root.join("large.bam");
        std::fs::copy(large_bam().join("large.bam"), &bam).expect("it can be copied");
        tool_output("samtools", &["index", path_text(&bam)]);
        let [policy, audit, tokens] = ["policy.toml", "audit", "tokens"].map(|name| directory.join(name));
        let made = Self { directory, bam, policy, audit, tokens };
        made.write_policy(&format!("{ALLOW_ALL_RULE}{ALLOW_REGION_RULE}"));
        made
    }

    fn write_policy(&self, rules: &str) {
        let aside = self.directory.join("aside");
        std::fs::write(&aside, rules).expect("it can be written");
        std::fs::rename(&aside, &self.policy).expect("it can be renamed");
    }

    fn token(&self, name: &str) -> String {
        let told = godwit().args(["token", name, "--tokens", path_text(&self.tokens)]).run_ok().stdout;
        told.trim().to_owned()
    }

    fn serve(&self) -> DataServer {
        let words = [
            "--tokens",
            path_text(&self.tokens),
            "--policy",
            path_text(&self.policy),
            "--audit",
            path_text(&self.audit),
        ];
        DataServer::start(&self.directory.join("root"), &words)
    }

    /// Returns the entries of the record for a call, a principal and an outcome.
    fn access_records(&self, call: &str, who: &str, outcome: &str) -> Vec<Value> {
        let recorded = std::fs::read_to_string(&self.audit).expect("it is there");
        let lines = recorded.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let said = |line: &Value| line["outcome"].as_str().is_some_and(|said| said.starts_with(outcome));
        lines.filter(|line| line["call"] == call && line["who"] == who && said(line)).collect()
    }
}

#[test]
fn rules_hold_for_files_by_htsget_and_accesses_are_recorded() {
    needs!("samtools", "curl", "python3");
    let ruled = PolicyServer::new();
    let (alice, bob, carol) = (ruled.token("alice"), ruled.token("bob"), ruled.token("carol"));
    let served = ruled.serve();
    let path = "/reads/large.bam?referenceName=chr1&start=0&end=50";
    let asked = |token: &str| get(&served, path, &["--header", &format!("authorization: Bearer {token}")]);
    let seen_in_part = asked(&bob);
    assert_eq!(seen_in_part.htsget_error(), "403 PermissionDenied");
    assert!(seen_in_part.body.contains("some") && !seen_in_part.body.contains("urls"), "{seen_in_part:?}");
    assert_eq!(asked(&carol).htsget_error(), "404 NotFound");
    assert_eq!(asked("nonsense").htsget_error(), "401 InvalidAuthentication");
    assert_eq!(asked(&alice).status, 200);
    let fetched = ruled.directory.join("fetched.bam");
    let whole = format!("http://{}/reads/large.bam", served.address);
    python_output(&["fetch_by_htsget_package", &whole, "BAM", path_text(&fetched), &alice]);
    served.stop(15);
    godwit().args(["audit", "verify", path_text(&ruled.audit)]).run_ok();
    let text = std::fs::read_to_string(&ruled.audit).expect("it is there");
    assert!(!text.contains(&alice) && !text.contains("gwh1."), "{text}");
    let told = ruled.access_records("Htsget", "alice", "done");
    assert_eq!(told[0]["what"], format!("GET {path}"));
    assert_eq!(told[0]["rules"][0]["rule"], "all");
    assert_eq!(ruled.access_records("Htsget", "bob", "PermissionDenied").len(), 1, "{text}");
    assert_eq!(ruled.access_records("Htsget", "carol", "NotFound").len(), 1, "{text}");
    let (begun, done) =
        (ruled.access_records("HtsgetData", "alice", "begun"), ruled.access_records("HtsgetData", "alice", "done"));
    assert_eq!((begun.len(), done.len()), (1, 1), "{text}");
    assert_eq!(done[0]["bytes"], std::fs::metadata(&fetched).expect("it is there").len());
}

#[test]
fn tickets_end_with_the_rule_and_the_file_that_they_were_given_for() {
    needs!("samtools", "curl", "python3");
    let ruled = PolicyServer::new();
    let alice = ruled.token("alice");
    let served = ruled.serve();
    let bearer = format!("authorization: Bearer {alice}");
    let ticket = get(&served, "/reads/large.bam?referenceName=chr1", &["--header", &bearer]);
    let ticket: Value = serde_json::from_str(&ticket.body).expect("it is JSON");
    let part = &ticket["htsget"]["urls"][1];
    let (url, headers) = (part["url"].as_str().expect("it is text"), part["headers"].to_string());
    let status = || python_output(&["http_status", url, &headers]);
    assert_eq!(status(), "200");
    ruled.write_policy(ALLOW_REGION_RULE);
    wait_until("the new rules are in force", || status() == "403 PermissionDenied");
    ruled.write_policy(ALLOW_ALL_RULE);
    wait_until("the old rules are in force", || status() == "200");
    let aside = ruled.directory.join("aside.bam");
    tool_output("samtools", &["view", "--no-PG", "-b", "-o", path_text(&aside), path_text(&ruled.bam), "chr1"]);
    std::fs::rename(&aside, &ruled.bam).expect("it can be renamed");
    assert_eq!(status(), "403 PermissionDenied");
    assert!(!ruled.access_records("HtsgetData", "alice", "PermissionDenied").is_empty());
}

#[test]
fn encrypted_pages_are_had_over_both_protocols() {
    needs!("samtools", "curl", "openssl");
    let directory = scratch::directory("htsget-tls");
    let (certificate, key) = super::authentication::self_signed_certificate(&directory);
    let words = [
        "--tls-cert",
        path_text(&certificate),
        "--tls-key",
        path_text(&key),
        "--public-url",
        "https://genomes.example.org/x/",
    ];
    let served = DataServer::start(large_bam(), &words);
    let port = served.address.rsplit(':').next().expect("it has a port").to_owned();
    let url = format!("https://localhost:{port}/reads/large.bam?class=header");
    for version in ["--http1.1", "--http2"] {
        let told = curl(&url, &[version, "--cacert", path_text(&certificate)]);
        assert_eq!(told.status, 200, "{told:?}");
        let told: Value = serde_json::from_str(&told.body).expect("it is JSON");
        assert_eq!(told["htsget"]["urls"][0]["url"], "https://genomes.example.org/x/htsget/data");
    }
    godwit()
        .args(["serve", "--root", path_text(&directory), "--public-url", "nonsense"])
        .run()
        .assert_rejected(&[2], &["--public-url"]);
}

#[test]
fn every_command_of_the_page_about_htsget_works() {
    needs!("samtools", "bcftools", "bash", "python3", "curl");
    let root = scratch::directory("htsget-guide");
    let links = [(large_bam(), "large.bam", "S.bam"), (large_bam(), "large.bam.bai", "S.bam.bai")];
    let more = [(variants_directory(), "v.vcf.gz", "S.vcf.gz"), (variants_directory(), "v.vcf.gz.tbi", "S.vcf.gz.tbi")];
    for (from, name, link) in links.into_iter().chain(more) {
        std::os::unix::fs::symlink(from.join(name), root.join(link)).expect("a link can be made");
    }
    let served = DataServer::start(&root, &[]);
    run_guide_page("htsget.md", &served, &root);
}
