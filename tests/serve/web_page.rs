//! The web page of a server: its requests, by curl, and the page itself in Chromium.

use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch, skip};
use serde_json::Value;

use super::http_client::{HttpResponse, get, path_text, run_guide_page};
use crate::run::formats::{aligned_sample, python_with};

/// The names of Chromium's program.
const CHROMIUM_PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];

/// Returns the text that a browser shows, by line.
fn browser_output(served: &DataServer, words: &[&str]) -> Option<Vec<String>> {
    let program = CHROMIUM_PROGRAMS.into_iter().find_map(Tool::find)?;
    let pictures = scratch::root().join("page-pictures");
    std::fs::create_dir_all(&pictures).expect("it can be made");
    let mut command = python_with("browser").expect("tools/python-packages.sh made it").command();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/browser/page.py"));
    let url = format!("http://{}/", served.address);
    command.arg(program.command().get_program()).args([&url, path_text(&pictures)]).args(words);
    let told = run_checked(&mut command).stdout;
    Some(String::from_utf8(told).expect("it is text").lines().map(str::to_owned).collect())
}

fn response_json(answer: &HttpResponse) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Sends a request of the page to a server.
fn post_question(served: &DataServer, path: &str, question: &str, words: &[&str]) -> HttpResponse {
    let header = ["--header", "content-type: application/json", "--data", question];
    get(served, path, &[&header[..], words].concat())
}

/// Starts a server with a table of people, a table that is hidden from bob, and tokens for alice and bob.
pub fn start_server_with_policy() -> (DataServer, [String; 2]) {
    let directory = scratch::directory("page-rules");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("people.csv"), "subject,age\nann,34\nbea,61\n").expect("it can be written");
    std::fs::write(root.join("secret.csv"), "hidden\ntreasure\n").expect("it can be written");
    let [tokens, policy] = ["tokens", "policy.toml"].map(|name| directory.join(name));
    let rules = "[[rule]]\nname = 'all'\nwho = ['alice']\ndatasets = ['**']\n\
        [[rule]]\nname = 'some'\nwho = ['bob']\ndatasets = ['people.csv']\nshow = ['age']\n\
        where = [{ column = 'age', at_most = 50 }]\n";
    std::fs::write(&policy, rules).expect("it can be written");
    let token = |name: &str| {
        let told = godwit().args(["token", name, "--tokens", path_text(&tokens)]).run_ok().stdout;
        told.trim().to_owned()
    };
    let callers = [token("alice"), token("bob")];
    (DataServer::start(&root, &["--tokens", path_text(&tokens), "--policy", path_text(&policy)]), callers)
}

#[test]
fn the_page_and_its_requests_are_answered_for_authorized_users() {
    needs!("curl");
    let (served, [alice, bob]) = start_server_with_policy();
    let page = get(&served, "/", &[]);
    assert!(page.status == 200 && page.body.contains("<title>godwit</title>"), "{page:?}");
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(get(&served, "/site/page.js", &[]).header("x-content-type-options"), Some("nosniff"));
    assert_eq!(get(&served, "/api/me", &[]).status, 401);
    assert!(!page.body.contains("people") && !page.body.contains("secret"));
    let bearer = |token: &str| format!("authorization: Bearer {token}");
    let names = |token: &str| -> Vec<String> {
        let told = response_json(&get(&served, "/api/datasets", &["--header", &bearer(token)]));
        let datasets = told["datasets"].as_array().expect("a list").iter();
        datasets.map(|dataset| dataset["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&alice), ["people.csv", "secret.csv"]);
    assert_eq!(names(&bob), ["people.csv"]);
    let by_bob = |path: &str, question: &str| post_question(&served, path, question, &["--header", &bearer(&bob)]);
    let described = response_json(&by_bob("/api/dataset", r#"{"name": "people.csv"}"#));
    assert_eq!(described["columns"].as_array().map(Vec::len), Some(1), "{described}");
    assert_eq!(by_bob("/api/dataset", r#"{"name": "secret.csv"}"#).status, 404);
    let found = response_json(&by_bob("/api/query", r#"{"sql": "SELECT * FROM people"}"#));
    assert_eq!(found["rows"].to_string(), r#"[["34"]]"#, "{found}");
    let refused = by_bob("/api/query", r#"{"sql": "SELECT * FROM secret"}"#);
    assert!((400..500).contains(&refused.status) && !refused.body.contains("treasure"), "{refused:?}");
    assert_eq!(response_json(&get(&served, "/api/me", &["--header", &bearer(&bob)]))["name"], "bob");
    // The server rejects a request that is not JSON, because a form of another web site could send it.
    let header = bearer(&alice);
    let form = get(&served, "/api/query", &["--header", &header, "--data", r#"{"sql": "SELECT 1"}"#]);
    assert_eq!(form.status, 400, "{form:?}");
    let other = get(&served, "/api/me", &["--header", &header, "--header", "origin: https://example.org"]);
    assert_eq!(other.header("access-control-allow-origin"), None);
    assert_eq!(get(&served, "/api/me", &["--header", &header, "--request", "POST"]).status, 405);
    assert_eq!(get(&served, "/api/nothing", &["--header", &header]).status, 404);
}

#[test]
fn rows_are_bounded_and_are_those_of_the_query() {
    needs!("curl");
    let directory = scratch::directory("page-rows");
    std::fs::write(directory.join("x.bed"), "chr1\t5\t9\nchr1\t7\t19\nchr2\t1\t2\n").expect("it can be written");
    let served = DataServer::start(&directory, &[]);
    let query = |question: &str| post_question(&served, "/api/query", question, &[]);
    let two =
        response_json(&query(r#"{"sql": "SELECT contig, position FROM \"x.bed\" ORDER BY position DESC", "rows": 2}"#));
    assert_eq!(two["rows"].to_string(), r#"[["chr1","7"],["chr1","5"]]"#);
    assert_eq!(two["more"], true);
    let all = response_json(&query(r#"{"sql": "SELECT count(*) AS n, NULL AS none FROM \"x.bed\""}"#));
    assert_eq!((all["rows"].to_string().as_str(), &all["more"]), (r#"[["3",null]]"#, &Value::Bool(false)));
    assert_eq!(all["columns"][0]["name"], "n");
    // Null values count for the size limit of a response, too.
    let nulls = (0..500).map(|at| format!("NULL AS c{at}")).collect::<Vec<_>>().join(", ");
    let wide = format!(r#"{{"sql": "SELECT {nulls} FROM generate_series(1, 200000)"}}"#);
    let answer = query(&wide);
    assert_eq!((answer.status, answer.body.len() < 20_000_000), (200, true), "{} bytes", answer.body.len());
    assert_eq!(response_json(&answer)["more"], true);
    for wrong in [r#"{"sql": "DROP TABLE x"}"#, r#"{"sql": "nonsense"}"#, "{}", "no JSON"] {
        let refused = query(wrong);
        assert!(
            refused.status >= 400 && response_json(&refused)["error"].as_str().is_some_and(|it| !it.is_empty()),
            "{refused:?}"
        );
    }
}

#[test]
fn a_reader_in_a_browser_sees_datasets_plots_and_rows() {
    needs!("bwa", "samtools", "bcftools", "python3");
    let (sample, out) = aligned_sample();
    let root = scratch::directory("page-browser");
    for name in ["sample.bam", "sample.bam.bai"] {
        std::os::unix::fs::symlink(out.join(name), root.join(name)).expect("a link can be made");
    }
    let calls = root.join("calls.vcf.gz");
    let reference = sample.godwit_indexed_reference();
    let bam = root.join("sample.bam");
    let called = godwit().args([
        "call",
        "--reference",
        path_text(reference),
        "--reads",
        path_text(&bam),
        "--out",
        path_text(&calls),
    ]);
    called.run_ok();
    let served = DataServer::start(&root, &["--reference", path_text(reference)]);
    let Some(told) = browser_output(&served, &["datasets", "sample.bam", "calls.vcf.gz"]) else {
        skip!("browser", "Chromium is not installed");
    };
    let reads = Tool::require("samtools").run(["view", "-c", path_text(&bam)]).stdout;
    let reads = String::from_utf8(reads).expect("it is text").trim().to_owned();
    let half = told.len() / 2;
    assert_eq!(told[..half], told[half..], "light and dark show the same");
    assert!(told[0].contains("Kind reads") && told[0].contains("Size"), "{told:?}");
    assert!(told[1].starts_with("Depth along the region, from") && told[2].starts_with("Mapping quality"), "{told:?}");
    assert!(told[3].contains("Kind variants"), "{told:?}");
    assert_eq!(told[4], format!("{reads} null"));
    assert!(told[5].contains("nowhere"), "{told:?}");
    let told = browser_output(&served, &["keyboard", "sample.bam"]).expect("it was there a moment ago");
    assert_eq!(told[0], "Skip to the dataset");
    assert_eq!(told[2..], ["main", "0 without a name", "0 pixels too wide"], "{told:?}");
    let told = browser_output(&served, &["accessibility_violations", "sample.bam"]).expect("it was there a moment ago");
    let (audits, spoiled): (Vec<&String>, Vec<&String>) = told.iter().partition(|line| !line.contains("spoiled"));
    assert!(audits.len() == 10 && audits.iter().all(|line| line.ends_with(": True []")), "{audits:#?}");
    assert!(spoiled.len() == 2 && spoiled.iter().all(|line| line.contains("html-has-lang")), "{spoiled:#?}");
}

#[test]
fn a_reader_in_a_browser_shows_a_token_and_sees_what_the_rules_let_him() {
    needs!("python3");
    let (served, [_, bob]) = start_server_with_policy();
    let Some(told) = browser_output(&served, &["check_authentication", &bob, "people.csv"]) else {
        skip!("browser", "Chromium is not installed");
    };
    assert_eq!(told[0], "0 datasets");
    assert!(told[1].contains("Signed in as bob") && told[1].contains("rules"), "{told:?}");
    assert_eq!((told[2].as_str(), told[4].as_str()), ("people.csv", "age"), "{told:?}");
}

#[test]
fn every_command_of_the_page_about_the_page_works() {
    needs!("bwa", "samtools", "bash", "curl");
    let (_, out) = aligned_sample();
    let root = scratch::directory("page-guide");
    for (name, link) in [("sample.bam", "S.bam"), ("sample.bam.bai", "S.bam.bai")] {
        std::os::unix::fs::symlink(out.join(name), root.join(link)).expect("a link can be made");
    }
    run_guide_page("page.md", &DataServer::start(&root, &[]), &root);
}
