//! Conformance and security scanners: h2spec for HTTP/2, SSLyze and testssl.sh for TLS. `cargo xtask scanners` installs
//! and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::http_client::path_text;
use crate::run::formats::python_with;

/// The length of a header of which five do not fit into a frame of the size that a server allows here (h2spec requires
/// more than 16 KiB and does not read the allowed size).
const LONG_HEADER_BYTES: &str = "1000000";

fn h2spec_path() -> PathBuf {
    let fetch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/scanners/fetch.sh");
    let told = String::from_utf8(run_checked(&mut Command::new(fetch)).stdout).expect("a path is text");
    PathBuf::from(told.trim())
}

/// Returns the cases that failed, and the number of all.
fn failed_cases(served: &DataServer, words: &[&str]) -> (Vec<String>, usize) {
    let report = scratch::directory("h2spec").join("report.xml");
    let (host, port) = served.address.rsplit_once(':').expect("an address has a port");
    let mut command = Command::new(h2spec_path());
    command.args(["-h", host, "-p", port, "-P", "/healthz", "-o", "5", "-j", path_text(&report)]).args(words);
    // h2spec writes failed cases to the report and their reasons to its output.
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
    let served = DataServer::start(&root, &[]);
    let (failed, cases) = failed_cases(&served, &[]);
    let long = failed.iter().filter(|case| !case.contains("exceeds the SETTINGS_MAX_FRAME_SIZE")).collect::<Vec<_>>();
    assert!(long.is_empty() && cases > 140, "of {cases}: {failed:#?}");
    let (failed, cases) = failed_cases(&served, &["http2/4.2/3", "--max-header-length", LONG_HEADER_BYTES]);
    assert!(failed.is_empty() && cases == 1, "of {cases}: {failed:#?}");
}

/// Creates a CA, and a certificate for this machine that the CA signed. Returns the CA's certificate, the server's, and
/// its key.
fn ca_signed_certificate(directory: &Path) -> [PathBuf; 3] {
    let [authority, certificate, key] = ["ca.pem", "server.pem", "server.key"].map(|name| directory.join(name));
    let script = r#"
        openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=Test CA" -addext keyUsage=critical,keyCertSign,cRLSign \
            -keyout ca.key -out ca.pem
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr
        printf '%s\n' subjectAltName=DNS:localhost,IP:127.0.0.1 basicConstraints=critical,CA:FALSE keyUsage=critical,digitalSignature \
            extendedKeyUsage=serverAuth crlDistributionPoints=URI:http://localhost/crl > extensions
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 90 -extfile extensions -out server.pem"#;
    let mut command: Command = Tool::require("bash").command();
    run_checked(command.args(["-euc", script]).current_dir(directory));
    [authority, certificate, key]
}

/// Starts a server with TLS. Returns it with the certificate of the CA that signed its own.
fn start_tls_server() -> (DataServer, PathBuf) {
    let directory = scratch::directory("scanned-tls");
    let [authority, certificate, key] = ca_signed_certificate(&directory);
    let tokens = directory.join("tokens.txt");
    godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok();
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    let words = ["--tls-cert", path_text(&certificate), "--tls-key", path_text(&key), "--tokens", path_text(&tokens)];
    (DataServer::start(&root, &words), authority)
}

/// Returns the address with the host name of the certificate.
fn address_with_host_name(served: &DataServer) -> String {
    served.address.replace("127.0.0.1", "localhost")
}

#[test]
#[ignore = "it installs packages of Python; cargo xtask scanners"]
fn sslyze_finds_what_mozilla_calls_intermediate() {
    needs!("openssl");
    let (served, authority) = start_tls_server();
    let mut command = python_with("scanners").expect("cargo xtask scanners made it").command();
    command.args(["-m", "sslyze", "--mozilla_config=intermediate", "--certinfo_ca_file", path_text(&authority)]);
    let told = run_checked(command.arg(address_with_host_name(&served))).stdout;
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("OK - Compliant"), "{told}");
}

#[test]
#[ignore = "it takes minutes; cargo xtask scanners"]
fn testssl_finds_nothing() {
    needs!("openssl", "testssl");
    let (served, authority) = start_tls_server();
    let found = authority.with_file_name("found.json");
    let mut command: Command = Tool::require("testssl").command();
    command.args(["--quiet", "--color", "0", "--severity", "MEDIUM", "--add-ca", path_text(&authority), "--jsonfile"]);
    let told = run_checked(command.arg(&found).arg(address_with_host_name(&served)));
    let found: Value =
        serde_json::from_slice(&std::fs::read(&found).expect("it writes what it found")).expect("it is JSON");
    let found: Vec<&Value> = found.as_array().into_iter().flatten().filter(|one| one["severity"] != "WARN").collect();
    assert!(found.is_empty(), "{found:#?}");
    assert!(String::from_utf8_lossy(&told.stdout).contains("TLS 1.3"), "it looked at nothing");
}
