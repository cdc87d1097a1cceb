//! A server whose tokens, keys and certificates change while it runs, and what whoever started it is told.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use godwit_tests::binary::godwit;
use godwit_tests::patience::wait_until;
use godwit_tests::processes::{is_running, signal};
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::access::{Signer, asked, certificate, guarded};
use super::web::text;
use crate::run::formats::python_with;

/// What is read again when a server is told to.
const HANGUP: i32 = 1;

/// Puts a file in place of another at once.
fn replace(path: &Path, contents: &str) {
    let aside = path.with_extension("aside");
    std::fs::write(&aside, contents).expect("it can be written");
    std::fs::rename(&aside, path).expect("it can be renamed");
}

/// Lines of the record about who is let in.
fn recorded(audit: &Path, outcome: &str) -> usize {
    let text = std::fs::read_to_string(audit).expect("it is there");
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = |line: &Value| {
        line["call"] == "Identities" && line["outcome"].as_str().is_some_and(|found| found.contains(outcome))
    };
    lines.filter(found).count()
}

#[test]
fn tokens_that_change_let_others_in_and_are_recorded() {
    needs!("python3");
    let (root, tokens, alice) = guarded();
    let audit = tokens.with_file_name("audit");
    let served = Served::start(&root, &["--tokens", text(&tokens), "--audit", text(&audit)]);
    let is_in = |token: &str| asked(&served, &["-", &format!("Bearer {token}")]) == "a.bed;1";
    assert!(is_in(&alice));
    let others = tokens.with_file_name("others.txt");
    let bob = godwit().args(["token", "bob", "--tokens", text(&others)]).succeeds().stdout.trim().to_owned();
    let of_bob = std::fs::read_to_string(&others).expect("it is there");
    replace(&tokens, &of_bob);
    wait_until("bob is let in", || is_in(&bob));
    assert!(!is_in(&alice), "a token that was taken away is none");
    // What is no list of tokens changes nothing.
    replace(&tokens, "bob\n");
    wait_until("the failure is recorded", || recorded(&audit, "line 1") > 0);
    assert!(is_in(&bob));
    // Whoever takes all tokens away means it.
    replace(&tokens, "# nobody\n");
    wait_until("nobody is let in", || !is_in(&bob));
    assert!(
        asked(&served, &["-", "-"]).starts_with("FlightUnauthenticatedError"),
        "an empty list does not open the server"
    );
    let (code, said) = served.end(15);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("read again") && said.contains("line 1") && said.contains("nobody is let in"), "{said}");
    assert!(recorded(&audit, "in force") >= 2);
    godwit().args(["audit", "verify", text(&audit)]).succeeds();
}

#[test]
fn a_certificate_that_is_renewed_is_shown_to_whoever_connects_next() {
    needs!("python3", "openssl");
    let (root, tokens, token) = guarded();
    let directory = tokens.parent().expect("it is in a directory");
    let (shown, key) = certificate(directory);
    let (fresh, fresh_key) = certificate(&scratch::directory("renewed"));
    let words = ["--tls-cert", text(&shown), "--tls-key", text(&key), "--tokens", text(&tokens)];
    let served = Served::start(&root, &words);
    let is_trusted = |authority: &Path| asked(&served, &[text(authority), &format!("Bearer {token}")]) == "a.bed;1";
    assert!(is_trusted(&shown) && !is_trusted(&fresh));
    let read = |path: &Path| std::fs::read_to_string(path).expect("it is there");
    // Between the two, certificate and key do not belong together.
    replace(&shown, &read(&fresh));
    replace(&key, &read(&fresh_key));
    wait_until("the new certificate is shown", || is_trusted(&fresh));
    assert!(is_running(served.process_id()));
}

/// A web server that publishes keys.
struct Publisher {
    child: Child,
    url: String,
}

impl Publisher {
    fn start(directory: &Path, certificate: &Path, key: &Path) -> Self {
        let script = "import functools, http.server, ssl, sys\n\
            handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])\n\
            server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)\n\
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
            context.load_cert_chain(sys.argv[2], sys.argv[3])\n\
            server.socket = context.wrap_socket(server.socket, server_side=True)\n\
            print(server.server_address[1], flush=True)\n\
            server.serve_forever()\n";
        let mut command = Tool::need("python3").command();
        command.args(["-c", script, text(directory), text(certificate), text(key)]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it can be started");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it says its port");
        Self { child, url: format!("https://localhost:{}/keys.json", port.trim()) }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_of_an_issuer_are_fetched_and_fetched_again() {
    needs!("python3", "openssl");
    let (root, _, _) = guarded();
    let published = scratch::directory("published");
    let (shown, key) = certificate(&scratch::directory("publisher"));
    let old = Signer::new(&scratch::directory("signer"));
    let keys = published.join("keys.json");
    std::fs::write(&keys, old.keys()).expect("it can be written");
    let publisher = Publisher::start(&published, &shown, &key);
    let far = 4_000_000_000;
    let of_issuer = ["--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwt-name", "email", "--jwks"];
    let audit = published.with_extension("audit");
    let words = [&of_issuer[..], &[&publisher.url, "--ca", text(&shown), "--audit", text(&audit)]].concat();
    let served = Served::start(&root, &words);
    let is_in = |signer: &Signer| asked(&served, &["-", &signer.token("alice", "godwit", far)]) == "a.bed;1";
    let new = Signer::new(&scratch::directory("next-signer"));
    assert!(is_in(&old) && !is_in(&new));
    replace(&keys, &new.keys());
    signal(served.process_id(), HANGUP);
    wait_until("the new keys are known", || is_in(&new));
    assert!(!is_in(&old));
    // Where they cannot be had, those that are known stay.
    std::fs::remove_file(&keys).expect("it is there");
    signal(served.process_id(), HANGUP);
    wait_until("the failure is recorded", || recorded(&audit, "404") > 0);
    assert!(is_in(&new));
    // It is over when they can be had, and not before.
    let before = recorded(&audit, "in force");
    replace(&keys, &new.keys());
    signal(served.process_id(), HANGUP);
    wait_until("the keys were had", || recorded(&audit, "in force") > before);
    let record = std::fs::read_to_string(&audit).expect("it is there");
    let outcomes = record.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let outcomes: Vec<String> = outcomes
        .filter(|line| line["call"] == "Identities")
        .map(|line| if line["outcome"] == "in force" { "fine" } else { "failed" }.to_owned())
        .collect();
    assert_eq!(outcomes, ["fine", "failed", "fine"], "{record}");
    std::fs::remove_file(&keys).expect("it is there");
    let (code, said) = served.end(15);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("read again"), "{said}");

    let serve = |words: &[&str]| godwit().args(["serve", "--root", text(&root)]).args(of_issuer).args(words).run();
    serve(&[&publisher.url, "--ca", text(&shown)]).refuses(&[4], &["404", &publisher.url]);
    serve(&[&publisher.url]).refuses(&[4], &[&publisher.url, "certificate"]);
    serve(&["http://localhost/keys"]).refuses(&[2], &["https://"]);
    serve(&["https://localhost:9/keys"]).refuses(&[4], &["https://localhost:9/keys"]);
}

#[test]
fn whoever_started_it_as_a_service_is_told() {
    let (root, tokens, _) = guarded();
    let socket = scratch::directory("service").join("notify");
    let heard = UnixDatagram::bind(&socket).expect("it can be bound");
    heard.set_read_timeout(Some(godwit_tests::patience::PATIENCE)).expect("it can be set");
    let hear = || {
        let mut said = [0; 64];
        let count = heard.recv(&mut said).expect("something is said");
        String::from_utf8_lossy(&said[..count]).into_owned()
    };
    let settings = [("NOTIFY_SOCKET", text(&socket))];
    let served = Served::start_with(&root, "127.0.0.1:0", &["--tokens", text(&tokens)], &settings);
    assert_eq!(hear(), "READY=1");
    signal(served.process_id(), HANGUP);
    let (code, said) = served.end(15);
    assert_eq!((code, hear()), (Some(0), "STOPPING=1".to_owned()), "{said}");
}

#[test]
fn the_file_of_the_image_has_no_fault_that_a_linter_knows_and_names_what_there_is() {
    needs!("python3");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join("packaging/Containerfile");
    let python = python_with("container").expect("tools/python-packages.sh made it");
    let directory = Path::new(python.command().get_program()).parent().expect("it is in a directory").to_owned();
    succeed(std::process::Command::new(directory.join("hadolint")).arg(&path));
    let text = std::fs::read_to_string(path).expect("it is there");
    for named in ["tools/install-dependencies.sh", "./install"] {
        assert!(text.contains(named) && root.join(named).exists(), "{named}");
    }
    // The command line that stands in its head.
    let line = text.lines().find(|line| line.contains(" serve --root")).expect("it has one");
    let help = godwit().args(["serve", "--help"]).succeeds().stdout;
    for option in line.split_whitespace().filter(|word| word.starts_with("--")) {
        assert!(help.contains(option), "{option}");
    }
}

#[test]
fn the_service_file_is_one_that_systemd_takes() {
    needs!("systemd-analyze");
    let packaged = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/godwit.service");
    let unit = std::fs::read_to_string(packaged).expect("it is there");
    let program = godwit_tests::binary::path();
    let unit = unit.replace("/usr/local/bin/godwit", text(&program)).replace("User=godwit", "User=root");
    let path = scratch::directory("unit").join("godwit.service");
    std::fs::write(&path, &unit).expect("it can be written");
    let mut verify = Tool::need("systemd-analyze").command();
    let told = succeed(verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path));
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!said.contains("godwit.service"), "{said}");
    // Every option of its command line is one of ours.
    let line = unit.split("ExecStart=").nth(1).expect("it has one").split("\nExecReload").next().expect("it ends");
    let help = godwit().args(["serve", "--help"]).succeeds().stdout;
    for option in line.split_whitespace().filter(|word| word.starts_with("--")) {
        assert!(help.contains(option), "{option}");
    }
}
