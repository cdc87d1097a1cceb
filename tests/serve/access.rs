//! Who is let in, and what is said when a server cannot be started.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

use crate::run::formats::{lines, run_python};

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// A certificate for this machine that signs itself, and its key.
fn certificate(directory: &Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = (directory.join("server.pem"), directory.join("server.key"));
    let mut openssl: Command = Tool::need("openssl").command();
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        // Rustls takes no certificate of an authority for that of a server.
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-out",
        text(&certificate),
        "-keyout",
        text(&key),
    ]);
    succeed(&mut openssl);
    (certificate, key)
}

/// A root with one table, and a file with one token, which is returned.
fn guarded() -> (PathBuf, PathBuf, String) {
    let directory = scratch::directory("access");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\n").expect("it can be written");
    let tokens = directory.join("tokens.txt");
    let told = godwit().args(["token", "alice", "--tokens", text(&tokens)]).succeeds().stdout;
    (root, tokens, told.trim().to_owned())
}

fn asked(served: &Served, words: &[&str]) -> String {
    let words: Vec<&str> = [served.address.as_str(), "guarded"].into_iter().chain(words.iter().copied()).collect();
    lines(&run_python("flight_clients.py", Path::new("-"), &words)).join(";")
}

#[test]
fn only_who_has_a_token_is_let_in() {
    needs!("python3");
    use std::os::unix::fs::PermissionsExt as _;
    let (root, tokens, token) = guarded();
    let kept = std::fs::read_to_string(&tokens).expect("it is there");
    assert!(kept.starts_with("alice ") && !kept.contains(&token), "{kept}");
    assert_eq!(std::fs::metadata(&tokens).expect("it is there").permissions().mode() & 0o777, 0o600);
    let served = Served::start(&root, &["--tokens", text(&tokens)]);
    assert_eq!(asked(&served, &["-", &format!("Bearer {token}")]), "a.bed;1");
    assert!(asked(&served, &["-", "Bearer nonsense"]).starts_with("FlightUnauthenticatedError"));
    assert!(asked(&served, &["-", "-"]).starts_with("FlightUnauthenticatedError"));
}

#[test]
fn an_encrypted_server_is_asked_with_its_certificate() {
    needs!("python3", "openssl");
    let (root, tokens, token) = guarded();
    let (certificate, key) = certificate(root.parent().expect("it is in a directory"));
    let words = ["--tls-cert", text(&certificate), "--tls-key", text(&key), "--tokens", text(&tokens)];
    let served = Served::start(&root, &words);
    assert!(served.greeting.contains("grpc+tls://"), "{}", served.greeting);
    assert_eq!(asked(&served, &[text(&certificate), &format!("Bearer {token}")]), "a.bed;1");
}

#[test]
fn what_keeps_a_server_from_starting_is_told() {
    needs!("openssl");
    let (root, tokens, _) = guarded();
    let serve = || godwit().args(["serve", "--root", text(&root)]);
    serve().args(["--listen", "0.0.0.0:0"]).run().refuses(&[2], &["--tls-cert", "--tokens", "--insecure"]);
    serve().args(["--listen", "0.0.0.0:0", "--tokens", text(&tokens)]).run().refuses(&[2], &["--tls-cert"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has one").to_string();
    serve().args(["--listen", &address]).run().refuses(&[4], &[&address, "another address"]);
    serve().args(["--listen", "nonsense"]).run().refuses(&[2], &["nonsense", "HOST:PORT"]);
    godwit().args(["serve", "--root", "/nowhere"]).run().refuses(&[4], &["/nowhere"]);
    let (certificate, key) = certificate(&scratch::directory("bad-certificate"));
    let tls = |certificate: &Path, key: &Path| {
        serve().args(["--listen", "127.0.0.1:0", "--tls-cert", text(certificate), "--tls-key", text(key)]).run()
    };
    tls(&key, &key).refuses(&[4], &["server.key", "certificate"]);
    tls(&certificate, &certificate).refuses(&[4], &["server.pem", "private key"]);
    tls(Path::new("/nowhere.pem"), &key).refuses(&[4], &["/nowhere.pem"]);
    std::fs::write(&tokens, "alice\n").expect("it can be written");
    serve().args(["--tokens", text(&tokens)]).run().refuses(&[3], &["tokens.txt", "line 1"]);
    std::fs::write(&tokens, "# nobody\n").expect("it can be written");
    serve().args(["--tokens", text(&tokens)]).run().refuses(&[3], &["tokens.txt", "godwit token"]);
}

#[test]
fn doctor_says_whether_a_server_lets_us_in_and_as_whom() {
    needs!("openssl");
    let (root, tokens, token) = guarded();
    let directory = root.parent().expect("it is in a directory");
    let (certificate, key) = certificate(directory);
    let words = ["--tls-cert", text(&certificate), "--tls-key", text(&key), "--tokens", text(&tokens)];
    let served = Served::start(&root, &words);
    let (good, bad) = (directory.join("good"), directory.join("bad"));
    std::fs::write(&good, &token).expect("it can be written");
    std::fs::write(&bad, "nonsense").expect("it can be written");
    let doctor = |scheme: &str, words: &[&str]| {
        let url = format!("{scheme}://{}", served.address.replace("127.0.0.1", "localhost"));
        godwit().args(["doctor", "--json", "--rate", "1gbit", "--at", &url]).args(words)
    };
    let told = doctor("grpc+tls", &["--ca", text(&certificate), "--token-file", text(&good)]).succeeds().stdout;
    let told: serde_json::Value = serde_json::from_str(&told).expect("it is JSON");
    let found = |what: &str| {
        let findings = told["findings"].as_array().expect("a list");
        let finding = findings.iter().find(|finding| finding["what"].as_str().is_some_and(|it| it.contains(what)));
        finding.unwrap_or_else(|| panic!("nothing about {what}")).clone()
    };
    assert_eq!(found("who asks")["found"], "alice");
    assert_eq!(found("program")["state"], "fine");
    assert!(found("program")["found"].as_str().is_some_and(|found| found.contains("read only")));
    assert!(found("grpc+tls://localhost")["found"].as_str().is_some_and(|found| found.contains("with TLS")));
    // The round-trip time is taken from the server.
    assert!(found("path")["found"].as_str().is_some_and(|found| found.contains("fill 1000 Mbit/s")));
    doctor("grpc+tls", &["--ca", text(&certificate), "--token-file", text(&bad)]).run().refuses(&[6], &["token"]);
    doctor("grpc+tls", &["--token-file", text(&good)]).run().refuses(&[6], &["certificate", "--ca"]);
    doctor("grpc+tcp", &["--token-file", text(&good)]).run().refuses(&[6], &["localhost", "check"]);
    godwit().args(["doctor", "--at", "https://localhost"]).run().refuses(&[2], &["grpc+tls://"]);
    let nobody = godwit().args(["doctor", "--at", "grpc+tcp://127.0.0.1:9"]).run();
    nobody.refuses(&[6], &["127.0.0.1:9", "is a server running"]);
}
