//! The page of a server: what it asks for, by curl, and the page itself in Chromium.

use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch, skip};
use serde_json::Value;

use super::web::{Answer, ask, run_page, text};
use crate::run::formats::{aligned, python_with};

/// Programs that Chromium is known by.
const CHROMIUM: [&str; 2] = ["chromium", "chromium-browser"];

/// What a reader in a browser sees, a line each.
fn read(served: &Served, words: &[&str]) -> Option<Vec<String>> {
    let program = CHROMIUM.into_iter().find_map(Tool::find)?;
    let pictures = scratch::root().join("page-pictures");
    std::fs::create_dir_all(&pictures).expect("it can be made");
    let mut command = python_with("browser").expect("tools/python-packages.sh made it").command();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/browser/page.py"));
    let url = format!("http://{}/", served.address);
    command.arg(program.command().get_program()).args([&url, text(&pictures)]).args(words);
    let told = succeed(&mut command).stdout;
    Some(String::from_utf8(told).expect("it is text").lines().map(str::to_owned).collect())
}

fn json(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Sends a question to the page's side of a server.
fn sent(served: &Served, path: &str, question: &str, words: &[&str]) -> Answer {
    let header = ["--header", "content-type: application/json", "--data", question];
    ask(served, path, &[&header[..], words].concat())
}

/// A table of people, and one that is hidden from bob, with tokens for both.
fn ruled() -> (Served, [String; 2]) {
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
        let told = godwit().args(["token", name, "--tokens", text(&tokens)]).succeeds().stdout;
        told.trim().to_owned()
    };
    let callers = [token("alice"), token("bob")];
    (Served::start(&root, &["--tokens", text(&tokens), "--policy", text(&policy)]), callers)
}

#[test]
fn the_page_and_what_it_asks_are_answered_to_who_may_ask() {
    needs!("curl");
    let (served, [alice, bob]) = ruled();
    let page = ask(&served, "/", &[]);
    assert!(page.status == 200 && page.body.contains("<title>godwit</title>"), "{page:?}");
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.contains("script-src 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(ask(&served, "/site/page.js", &[]).header("x-content-type-options"), Some("nosniff"));
    assert_eq!(ask(&served, "/api/me", &[]).status, 401);
    assert!(!page.body.contains("people") && !page.body.contains("secret"));
    let bearer = |token: &str| format!("authorization: Bearer {token}");
    let names = |token: &str| -> Vec<String> {
        let told = json(&ask(&served, "/api/datasets", &["--header", &bearer(token)]));
        let datasets = told["datasets"].as_array().expect("a list").iter();
        datasets.map(|dataset| dataset["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&alice), ["people.csv", "secret.csv"]);
    assert_eq!(names(&bob), ["people.csv"]);
    let by_bob = |path: &str, question: &str| sent(&served, path, question, &["--header", &bearer(&bob)]);
    let described = json(&by_bob("/api/dataset", r#"{"name": "people.csv"}"#));
    assert_eq!(described["columns"].as_array().map(Vec::len), Some(1), "{described}");
    assert_eq!(by_bob("/api/dataset", r#"{"name": "secret.csv"}"#).status, 404);
    let found = json(&by_bob("/api/query", r#"{"sql": "SELECT * FROM people"}"#));
    assert_eq!(found["rows"].to_string(), r#"[["34"]]"#, "{found}");
    let refused = by_bob("/api/query", r#"{"sql": "SELECT * FROM secret"}"#);
    assert!((400..500).contains(&refused.status) && !refused.body.contains("treasure"), "{refused:?}");
    assert_eq!(json(&ask(&served, "/api/me", &["--header", &bearer(&bob)]))["name"], "bob");
    // A form of another site sends no JSON.
    let header = bearer(&alice);
    let form = ask(&served, "/api/query", &["--header", &header, "--data", r#"{"sql": "SELECT 1"}"#]);
    assert_eq!(form.status, 400, "{form:?}");
    let other = ask(&served, "/api/me", &["--header", &header, "--header", "origin: https://example.org"]);
    assert_eq!(other.header("access-control-allow-origin"), None);
    assert_eq!(ask(&served, "/api/me", &["--header", &header, "--request", "POST"]).status, 405);
    assert_eq!(ask(&served, "/api/nothing", &["--header", &header]).status, 404);
}

#[test]
fn rows_are_bounded_and_are_those_of_the_query() {
    needs!("curl");
    let directory = scratch::directory("page-rows");
    std::fs::write(directory.join("x.bed"), "chr1\t5\t9\nchr1\t7\t19\nchr2\t1\t2\n").expect("it can be written");
    let served = Served::start(&directory, &[]);
    let query = |question: &str| sent(&served, "/api/query", question, &[]);
    let two = json(&query(r#"{"sql": "SELECT contig, position FROM \"x.bed\" ORDER BY position DESC", "rows": 2}"#));
    assert_eq!(two["rows"].to_string(), r#"[["chr1","7"],["chr1","5"]]"#);
    assert_eq!(two["more"], true);
    let all = json(&query(r#"{"sql": "SELECT count(*) AS n, NULL AS none FROM \"x.bed\""}"#));
    assert_eq!((all["rows"].to_string().as_str(), &all["more"]), (r#"[["3",null]]"#, &Value::Bool(false)));
    assert_eq!(all["columns"][0]["name"], "n");
    // Rows of nothing count, too: an answer is bounded whatever is in it.
    let nulls = (0..500).map(|at| format!("NULL AS c{at}")).collect::<Vec<_>>().join(", ");
    let wide = format!(r#"{{"sql": "SELECT {nulls} FROM generate_series(1, 200000)"}}"#);
    let answer = query(&wide);
    assert_eq!((answer.status, answer.body.len() < 20_000_000), (200, true), "{} bytes", answer.body.len());
    assert_eq!(json(&answer)["more"], true);
    for wrong in [r#"{"sql": "DROP TABLE x"}"#, r#"{"sql": "nonsense"}"#, "{}", "no JSON"] {
        let refused = query(wrong);
        assert!(
            refused.status >= 400 && json(&refused)["error"].as_str().is_some_and(|it| !it.is_empty()),
            "{refused:?}"
        );
    }
}

#[test]
fn a_reader_in_a_browser_sees_datasets_plots_and_rows() {
    needs!("bwa", "samtools", "bcftools", "python3");
    let (sample, out) = aligned();
    let root = scratch::directory("page-browser");
    for name in ["sample.bam", "sample.bam.bai"] {
        std::os::unix::fs::symlink(out.join(name), root.join(name)).expect("a link can be made");
    }
    let calls = root.join("calls.vcf.gz");
    let reference = sample.indexed_by_godwit();
    let bam = root.join("sample.bam");
    let called = godwit().args(["call", "--reference", text(reference), "--reads", text(&bam), "--out", text(&calls)]);
    called.succeeds();
    let served = Served::start(&root, &["--reference", text(reference)]);
    let Some(told) = read(&served, &["datasets", "sample.bam", "calls.vcf.gz"]) else {
        skip!("browser", "Chromium is not installed");
    };
    let reads = Tool::need("samtools").run(["view", "-c", text(&bam)]).stdout;
    let reads = String::from_utf8(reads).expect("it is text").trim().to_owned();
    let half = told.len() / 2;
    assert_eq!(told[..half], told[half..], "light and dark show the same");
    assert!(told[0].contains("Kind reads") && told[0].contains("Size"), "{told:?}");
    assert!(told[1].starts_with("Depth along the region, from") && told[2].starts_with("Mapping quality"), "{told:?}");
    assert!(told[3].contains("Kind variants"), "{told:?}");
    assert_eq!(told[4], format!("{reads} null"));
    assert!(told[5].contains("nowhere"), "{told:?}");
    let told = read(&served, &["keyboard", "sample.bam"]).expect("it was there a moment ago");
    assert_eq!(told[0], "Skip to the dataset");
    assert_eq!(told[2..], ["main", "0 without a name", "0 pixels too wide"], "{told:?}");
    let told = read(&served, &["accessibility_violations", "sample.bam"]).expect("it was there a moment ago");
    let (audits, spoiled): (Vec<&String>, Vec<&String>) = told.iter().partition(|line| !line.contains("spoiled"));
    assert!(audits.len() == 10 && audits.iter().all(|line| line.ends_with(": True []")), "{audits:#?}");
    assert!(spoiled.len() == 2 && spoiled.iter().all(|line| line.contains("html-has-lang")), "{spoiled:#?}");
}

#[test]
fn a_reader_in_a_browser_shows_a_token_and_sees_what_the_rules_let_him() {
    needs!("python3");
    let (served, [_, bob]) = ruled();
    let Some(told) = read(&served, &["check_authentication", &bob, "people.csv"]) else {
        skip!("browser", "Chromium is not installed");
    };
    assert_eq!(told[0], "0 datasets");
    assert!(told[1].contains("Signed in as bob") && told[1].contains("rules"), "{told:?}");
    assert_eq!((told[2].as_str(), told[4].as_str()), ("people.csv", "age"), "{told:?}");
}

#[test]
fn every_command_of_the_page_about_the_page_works() {
    needs!("bwa", "samtools", "bash", "curl");
    let (_, out) = aligned();
    let root = scratch::directory("page-guide");
    for (name, link) in [("sample.bam", "S.bam"), ("sample.bam.bai", "S.bam.bai")] {
        std::os::unix::fs::symlink(out.join(name), root.join(link)).expect("a link can be made");
    }
    run_page("page.md", &Served::start(&root, &[]), &root);
}
