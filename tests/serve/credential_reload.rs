//! A server whose tokens, keys and certificates change while it runs, and the messages to its operator.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::processes::{is_running, send_signal};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::authentication::{TokenIssuer, pyarrow_client_output, root_with_token, self_signed_certificate};
use super::http_client::path_text;
use crate::run::formats::python_with;

/// The signal on which a server reads its credentials again.
const SIGHUP: i32 = 1;

/// Replaces a file atomically.
fn replace_file(path: &Path, contents: &str) {
    let aside = path.with_extension("aside");
    std::fs::write(&aside, contents).expect("it can be written");
    std::fs::rename(&aside, path).expect("it can be renamed");
}

/// Counts the entries of the record about reloaded credentials with this outcome.
fn recorded_reloads(audit: &Path, outcome: &str) -> usize {
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
    let (root, tokens, alice) = root_with_token();
    let audit = tokens.with_file_name("audit");
    let served = DataServer::start(&root, &["--tokens", path_text(&tokens), "--audit", path_text(&audit)]);
    let is_in = |token: &str| pyarrow_client_output(&served, &["-", &format!("Bearer {token}")]) == "a.bed;1";
    assert!(is_in(&alice));
    let others = tokens.with_file_name("others.txt");
    let bob = godwit().args(["token", "bob", "--tokens", path_text(&others)]).run_ok().stdout.trim().to_owned();
    let of_bob = std::fs::read_to_string(&others).expect("it is there");
    replace_file(&tokens, &of_bob);
    wait_until("bob is let in", || is_in(&bob));
    assert!(!is_in(&alice), "a token that was taken away is none");
    // An invalid token file does not change the tokens in force.
    replace_file(&tokens, "bob\n");
    wait_until("the failure is recorded", || recorded_reloads(&audit, "line 1") > 0);
    assert!(is_in(&bob));
    // A token file without tokens is valid and removes all tokens.
    replace_file(&tokens, "# nobody\n");
    wait_until("nobody is let in", || !is_in(&bob));
    assert!(
        pyarrow_client_output(&served, &["-", "-"]).starts_with("FlightUnauthenticatedError"),
        "an empty list does not open the server"
    );
    let (code, said) = served.stop(15);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("reloaded") && said.contains("line 1") && said.contains("no client can authenticate"),
        "{said}"
    );
    assert!(recorded_reloads(&audit, "in force") >= 2);
    godwit().args(["audit", "verify", path_text(&audit)]).run_ok();
}

#[test]
fn a_renewed_certificate_is_presented_to_the_next_connection() {
    needs!("python3", "openssl");
    let (root, tokens, token) = root_with_token();
    let directory = tokens.parent().expect("it is in a directory");
    let (shown, key) = self_signed_certificate(directory);
    let (fresh, fresh_key) = self_signed_certificate(&scratch::directory("renewed"));
    let words = ["--tls-cert", path_text(&shown), "--tls-key", path_text(&key), "--tokens", path_text(&tokens)];
    let served = DataServer::start(&root, &words);
    let is_trusted = |authority: &Path| {
        pyarrow_client_output(&served, &[path_text(authority), &format!("Bearer {token}")]) == "a.bed;1"
    };
    assert!(is_trusted(&shown) && !is_trusted(&fresh));
    let read = |path: &Path| std::fs::read_to_string(path).expect("it is there");
    // After the first replacement, the certificate does not match the key yet.
    replace_file(&shown, &read(&fresh));
    replace_file(&key, &read(&fresh_key));
    wait_until("the new certificate is shown", || is_trusted(&fresh));
    assert!(is_running(served.process_id()));
}

/// A web server that publishes a key set.
struct JwksServer {
    child: Child,
    url: String,
}

impl JwksServer {
    fn start(directory: &Path, certificate: &Path, key: &Path) -> Self {
        let script = "import functools, http.server, ssl, sys\n\
            handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])\n\
            server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)\n\
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
            context.load_cert_chain(sys.argv[2], sys.argv[3])\n\
            server.socket = context.wrap_socket(server.socket, server_side=True)\n\
            print(server.server_address[1], flush=True)\n\
            server.serve_forever()\n";
        let mut command = Tool::require("python3").command();
        command.args(["-c", script, path_text(directory), path_text(certificate), path_text(key)]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it can be started");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it says its port");
        Self { child, url: format!("https://localhost:{}/keys.json", port.trim()) }
    }
}

impl Drop for JwksServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_of_an_issuer_are_fetched_and_fetched_again() {
    needs!("python3", "openssl");
    let (root, _, _) = root_with_token();
    let published = scratch::directory("published");
    let (shown, key) = self_signed_certificate(&scratch::directory("publisher"));
    let old = TokenIssuer::new(&scratch::directory("signer"));
    let keys = published.join("keys.json");
    std::fs::write(&keys, old.jwks()).expect("it can be written");
    let publisher = JwksServer::start(&published, &shown, &key);
    let far = 4_000_000_000;
    let of_issuer = ["--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwt-name", "email", "--jwks"];
    let audit = published.with_extension("audit");
    let words = [&of_issuer[..], &[&publisher.url, "--ca", path_text(&shown), "--audit", path_text(&audit)]].concat();
    let served = DataServer::start(&root, &words);
    let is_in = |signer: &TokenIssuer| {
        pyarrow_client_output(&served, &["-", &signer.token("alice", "godwit", far)]) == "a.bed;1"
    };
    let new = TokenIssuer::new(&scratch::directory("next-signer"));
    assert!(is_in(&old) && !is_in(&new));
    replace_file(&keys, &new.jwks());
    send_signal(served.process_id(), SIGHUP);
    wait_until("the new keys are known", || is_in(&new));
    assert!(!is_in(&old));
    // If the server cannot read the keys, the loaded keys stay in force.
    std::fs::remove_file(&keys).expect("it is there");
    send_signal(served.process_id(), SIGHUP);
    wait_until("the failure is recorded", || recorded_reloads(&audit, "404") > 0);
    assert!(is_in(&new));
    // When the keys are readable again, the server loads the new keys.
    let before = recorded_reloads(&audit, "in force");
    replace_file(&keys, &new.jwks());
    send_signal(served.process_id(), SIGHUP);
    wait_until("the keys were had", || recorded_reloads(&audit, "in force") > before);
    let record = std::fs::read_to_string(&audit).expect("it is there");
    let outcomes = record.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let outcomes: Vec<String> = outcomes
        .filter(|line| line["call"] == "Identities")
        .map(|line| if line["outcome"] == "in force" { "fine" } else { "failed" }.to_owned())
        .collect();
    assert_eq!(outcomes, ["fine", "failed", "fine"], "{record}");
    std::fs::remove_file(&keys).expect("it is there");
    let (code, said) = served.stop(15);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("reloaded"), "{said}");

    let serve = |words: &[&str]| godwit().args(["serve", "--root", path_text(&root)]).args(of_issuer).args(words).run();
    serve(&[&publisher.url, "--ca", path_text(&shown)]).assert_rejected(&[4], &["404", &publisher.url]);
    serve(&[&publisher.url]).assert_rejected(&[4], &[&publisher.url, "certificate"]);
    serve(&["http://localhost/keys"]).assert_rejected(&[2], &["https://"]);
    serve(&["https://localhost:9/keys"]).assert_rejected(&[4], &["https://localhost:9/keys"]);
}

#[test]
fn the_service_manager_is_notified() {
    let (root, tokens, _) = root_with_token();
    let socket = scratch::directory("service").join("notify");
    let heard = UnixDatagram::bind(&socket).expect("it can be bound");
    heard.set_read_timeout(Some(godwit_tests::wait::WAIT_TIMEOUT)).expect("it can be set");
    let hear = || {
        let mut said = [0; 64];
        let count = heard.recv(&mut said).expect("something is said");
        String::from_utf8_lossy(&said[..count]).into_owned()
    };
    let settings = [("NOTIFY_SOCKET", path_text(&socket))];
    let served = DataServer::start_with(&root, "127.0.0.1:0", &["--tokens", path_text(&tokens)], &settings);
    assert_eq!(hear(), "READY=1");
    send_signal(served.process_id(), SIGHUP);
    let (code, said) = served.stop(15);
    assert_eq!((code, hear()), (Some(0), "STOPPING=1".to_owned()), "{said}");
}

#[test]
fn the_file_of_the_image_has_no_fault_that_a_linter_knows_and_names_what_there_is() {
    needs!("python3");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join("packaging/Containerfile");
    let python = python_with("container").expect("tools/python-packages.sh made it");
    let directory = Path::new(python.command().get_program()).parent().expect("it is in a directory").to_owned();
    run_checked(std::process::Command::new(directory.join("hadolint")).arg(&path));
    let text = std::fs::read_to_string(path).expect("it is there");
    // The image contains the package that `cargo xtask release` writes.
    assert!(text.contains("COPY godwit_*_amd64.deb") && root.join("xtask/src/release").exists());
    // Find the command line in the first comment of the file.
    let line = text.lines().find(|line| line.contains(" serve --root")).expect("it has one");
    let help = godwit().args(["serve", "--help"]).run_ok().stdout;
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
    let unit = unit.replace("/usr/local/bin/godwit", path_text(&program)).replace("User=godwit", "User=root");
    let path = scratch::directory("unit").join("godwit.service");
    std::fs::write(&path, &unit).expect("it can be written");
    let mut verify = Tool::require("systemd-analyze").command();
    let told = run_checked(verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path));
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!said.contains("godwit.service"), "{said}");
    let template = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/godwit-mount@.service");
    let mount = std::fs::read_to_string(template).expect("it is there");
    let path = path.with_file_name("godwit-mount@x.service");
    std::fs::write(&path, mount.replace("/usr/local/bin/godwit", path_text(&program))).expect("it can be written");
    let mut verify = Tool::require("systemd-analyze").command();
    let told = run_checked(verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&path));
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!said.contains("godwit-mount"), "{said}");
    // Every option of its command line is an option of `serve`.
    let line = unit.split("SERVE_OPTIONS=").nth(1).expect("it has one").split("\nExecReload").next().expect("it ends");
    let help = godwit().args(["serve", "--help"]).run_ok().stdout;
    for option in line.split_whitespace().filter(|word| word.starts_with("--")) {
        assert!(help.contains(option), "{option}");
    }
}
