//! Programs that look for mistakes in servers: h2spec in HTTP/2, SSLyze and testssl.sh in TLS. `cargo xtask scanners` installs and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::web::text;
use crate::run::formats::python_with;

/// Letters in a header, so that five of them do not fit into a frame of the size that a server allows here (h2spec asks for more than
/// 16 KiB and does not look at what is allowed).
const LONG_HEADER: &str = "1000000";

fn h2spec() -> PathBuf {
    let fetch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/scanners/fetch.sh");
    let told = String::from_utf8(succeed(&mut Command::new(fetch)).stdout).expect("a path is text");
    PathBuf::from(told.trim())
}

/// Cases that failed, and how many there were.
fn failed_cases(served: &Served, words: &[&str]) -> (Vec<String>, usize) {
    let report = scratch::directory("h2spec").join("report.xml");
    let (host, port) = served.address.rsplit_once(':').expect("an address has a port");
    let mut command = Command::new(h2spec());
    command.args(["-h", host, "-p", port, "-P", "/healthz", "-o", "5", "-j", text(&report)]).args(words);
    // Cases that fail are in the report, and why is in what it prints.
    let told = command.output().expect("h2spec starts");
    let found = std::fs::read_to_string(&report).expect("h2spec writes its report");
    let cases = found.matches("<testcase ").count();
    let failed = found.split("<testcase ").skip(1).filter(|case| case.contains("<failure") || case.contains("<error"));
    let failed: Vec<String> = failed.map(|case| case.lines().next().unwrap_or_default().to_owned()).collect();
    assert!(cases > 0, "{}", String::from_utf8_lossy(&told.stdout));
    (failed, cases)
}

#[test]
#[ignore = "it builds a program in Go; cargo xtask scanners"]
fn h2spec_finds_no_mistake() {
    needs!("go");
    let root = scratch::directory("scanned");
    let served = Served::start(&root, &[]);
    let (failed, cases) = failed_cases(&served, &[]);
    let long = failed.iter().filter(|case| !case.contains("exceeds the SETTINGS_MAX_FRAME_SIZE")).collect::<Vec<_>>();
    assert!(long.is_empty() && cases > 140, "of {cases}: {failed:#?}");
    let (failed, cases) = failed_cases(&served, &["http2/4.2/3", "--max-header-length", LONG_HEADER]);
    assert!(failed.is_empty() && cases == 1, "of {cases}: {failed:#?}");
}

/// A certificate for this machine that another one signed, the latter, and the key.
fn signed_certificate(directory: &Path) -> [PathBuf; 3] {
    let [authority, certificate, key] = ["ca.pem", "server.pem", "server.key"].map(|name| directory.join(name));
    let script = r#"
        openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=Test CA" -addext keyUsage=critical,keyCertSign,cRLSign \
            -keyout ca.key -out ca.pem
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr
        printf '%s\n' subjectAltName=DNS:localhost,IP:127.0.0.1 basicConstraints=critical,CA:FALSE keyUsage=critical,digitalSignature \
            extendedKeyUsage=serverAuth crlDistributionPoints=URI:http://localhost/crl > extensions
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 90 -extfile extensions -out server.pem"#;
    let mut command: Command = Tool::need("bash").command();
    succeed(command.args(["-euc", script]).current_dir(directory));
    [authority, certificate, key]
}

/// A server that encrypts, and the certificate of who signed its own.
fn encrypted() -> (Served, PathBuf) {
    let directory = scratch::directory("scanned-tls");
    let [authority, certificate, key] = signed_certificate(&directory);
    let tokens = directory.join("tokens.txt");
    godwit().args(["token", "alice", "--tokens", text(&tokens)]).succeeds();
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    let words = ["--tls-cert", text(&certificate), "--tls-key", text(&key), "--tokens", text(&tokens)];
    (Served::start(&root, &words), authority)
}

/// The address with the name that the certificate has.
fn by_name(served: &Served) -> String {
    served.address.replace("127.0.0.1", "localhost")
}

#[test]
#[ignore = "it installs packages of Python; cargo xtask scanners"]
fn sslyze_finds_what_mozilla_calls_intermediate() {
    needs!("openssl");
    let (served, authority) = encrypted();
    let mut command = python_with("scanners").expect("cargo xtask scanners made it").command();
    command.args(["-m", "sslyze", "--mozilla_config=intermediate", "--certinfo_ca_file", text(&authority)]);
    let told = succeed(command.arg(by_name(&served))).stdout;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("OK - Compliant"), "{told}");
}

#[test]
#[ignore = "it takes minutes; cargo xtask scanners"]
fn testssl_finds_nothing() {
    needs!("openssl", "testssl");
    let (served, authority) = encrypted();
    let found = authority.with_file_name("found.json");
    let mut command: Command = Tool::need("testssl").command();
    command.args(["--quiet", "--color", "0", "--severity", "MEDIUM", "--add-ca", text(&authority), "--jsonfile"]);
    let told = succeed(command.arg(&found).arg(by_name(&served)));
    let found: Value =
        serde_json::from_slice(&std::fs::read(&found).expect("it writes what it found")).expect("it is JSON");
    let found: Vec<&Value> = found.as_array().into_iter().flatten().filter(|one| one["severity"] != "WARN").collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(String::from_utf8_lossy(&told.stdout).contains("TLS 1.3"), "it looked at nothing");
}
