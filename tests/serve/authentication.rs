//! Authentication of clients, and the errors of a server that cannot start.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use crate::run::formats::{run_python, to_lines};

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// Creates a self-signed certificate for this machine, and its key.
pub fn self_signed_certificate(directory: &Path) -> (PathBuf, PathBuf) {
    self_signed_certificate_for(directory, "DNS:localhost,IP:127.0.0.1")
}

/// Creates a self-signed certificate for these names, and its key.
pub fn self_signed_certificate_for(directory: &Path, names: &str) -> (PathBuf, PathBuf) {
    let (certificate, key) = (directory.join("server.pem"), directory.join("server.key"));
    let mut openssl: Command = Tool::require("openssl").command();
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args([
        "-addext",
        &format!("subjectAltName={names}"),
        // rustls rejects a server certificate that is marked as the certificate of an authority.
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-out",
        path_text(&certificate),
        "-keyout",
        path_text(&key),
    ]);
    run_checked(&mut openssl);
    (certificate, key)
}

/// Creates a root with one table, and a file with one token. Returns root, file and token.
pub fn root_with_token() -> (PathBuf, PathBuf, String) {
    let directory = scratch::directory("access");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\n").expect("it can be written");
    let tokens = directory.join("tokens.txt");
    let told = godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout;
    (root, tokens, told.trim().to_owned())
}

/// Runs a pyarrow client with a trusted certificate and a request header, and returns its output.
pub fn pyarrow_client_output(served: &DataServer, words: &[&str]) -> String {
    let words: Vec<&str> =
        [served.address.as_str(), "query_authenticated"].into_iter().chain(words.iter().copied()).collect();
    to_lines(&run_python("flight_clients.py", Path::new("-"), &words)).join(";")
}

#[test]
fn only_clients_with_a_token_are_accepted() {
    needs!("python3");
    use std::os::unix::fs::PermissionsExt as _;
    let (root, tokens, token) = root_with_token();
    let kept = std::fs::read_to_string(&tokens).expect("it is there");
    assert!(kept.starts_with("alice ") && !kept.contains(&token), "{kept}");
    assert_eq!(std::fs::metadata(&tokens).expect("it is there").permissions().mode() & 0o777, 0o600);
    let served = DataServer::start(&root, &["--tokens", path_text(&tokens)]);
    assert_eq!(pyarrow_client_output(&served, &["-", &format!("Bearer {token}")]), "a.bed;1");
    assert!(pyarrow_client_output(&served, &["-", "Bearer nonsense"]).starts_with("FlightUnauthenticatedError"));
    assert!(pyarrow_client_output(&served, &["-", "-"]).starts_with("FlightUnauthenticatedError"));
}

#[test]
fn an_encrypted_server_is_asked_with_its_certificate() {
    needs!("python3", "openssl");
    let (root, tokens, token) = root_with_token();
    let (certificate, key) = self_signed_certificate(root.parent().expect("it is in a directory"));
    let words = ["--tls-cert", path_text(&certificate), "--tls-key", path_text(&key), "--tokens", path_text(&tokens)];
    let served = DataServer::start(&root, &words);
    assert!(served.ready_line.contains("grpc+tls://"), "{}", served.ready_line);
    assert_eq!(pyarrow_client_output(&served, &[path_text(&certificate), &format!("Bearer {token}")]), "a.bed;1");
}

#[test]
fn what_keeps_a_server_from_starting_is_told() {
    needs!("openssl");
    let (root, tokens, _) = root_with_token();
    let serve = || godwit().args(["serve", "--root", path_text(&root)]);
    serve().args(["--listen", "0.0.0.0:0"]).run().assert_rejected(&[2], &["--tls-cert", "--tokens", "--insecure"]);
    serve()
        .args(["--listen", "0.0.0.0:0", "--tokens", path_text(&tokens)])
        .run()
        .assert_rejected(&[2], &["--tls-cert"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has one").to_string();
    serve().args(["--listen", &address]).run().assert_rejected(&[4], &[&address, "another address"]);
    serve().args(["--listen", "nonsense"]).run().assert_rejected(&[2], &["nonsense", "HOST:PORT"]);
    godwit().args(["serve", "--root", "/nowhere"]).run().assert_rejected(&[4], &["/nowhere"]);
    let (certificate, key) = self_signed_certificate(&scratch::directory("bad-certificate"));
    let tls = |certificate: &Path, key: &Path| {
        serve()
            .args(["--listen", "127.0.0.1:0", "--tls-cert", path_text(certificate), "--tls-key", path_text(key)])
            .run()
    };
    tls(&key, &key).assert_rejected(&[4], &["server.key", "certificate"]);
    tls(&certificate, &certificate).assert_rejected(&[4], &["server.pem", "private key"]);
    tls(Path::new("/nowhere.pem"), &key).assert_rejected(&[4], &["/nowhere.pem"]);
    std::fs::write(&tokens, "alice\n").expect("it can be written");
    serve().args(["--tokens", path_text(&tokens)]).run().assert_rejected(&[3], &["tokens.txt", "line 1"]);
    std::fs::write(&tokens, "# nobody\n").expect("it can be written");
    serve().args(["--tokens", path_text(&tokens)]).run().assert_rejected(&[3], &["tokens.txt", "godwit token"]);
}

#[test]
fn doctor_reports_whether_a_server_accepts_the_client_and_its_principal() {
    needs!("openssl");
    let (root, tokens, token) = root_with_token();
    let directory = root.parent().expect("it is in a directory");
    let (certificate, key) = self_signed_certificate(directory);
    let words = ["--tls-cert", path_text(&certificate), "--tls-key", path_text(&key), "--tokens", path_text(&tokens)];
    let served = DataServer::start(&root, &words);
    let (good, bad) = (directory.join("good"), directory.join("bad"));
    std::fs::write(&good, &token).expect("it can be written");
    std::fs::write(&bad, "nonsense").expect("it can be written");
    let doctor = |scheme: &str, words: &[&str]| {
        let url = format!("{scheme}://{}", served.address.replace("127.0.0.1", "localhost"));
        godwit().args(["doctor", "--json", "--rate", "1gbit", "--at", &url]).args(words)
    };
    let told = doctor("grpc+tls", &["--ca", path_text(&certificate), "--token-file", path_text(&good)]).run_ok().stdout;
    let told: serde_json::Value = serde_json::from_str(&told).expect("it is JSON");
    let found = |what: &str| {
        let findings = told["findings"].as_array().expect("a list");
        let finding = findings.iter().find(|finding| finding["what"].as_str().is_some_and(|it| it.contains(what)));
        finding.unwrap_or_else(|| panic!("nothing about {what}")).clone()
    };
    assert_eq!(found("authenticated as")["found"], "alice");
    assert_eq!(found("program")["state"], "fine");
    assert!(found("program")["found"].as_str().is_some_and(|found| found.contains("read only")));
    assert!(found("grpc+tls://localhost")["found"].as_str().is_some_and(|found| found.contains("with TLS")));
    // doctor measures the round-trip time to the server and uses it for its advice about the path.
    assert!(found("path")["found"].as_str().is_some_and(|found| found.contains("fill 1000 Mbit/s")));
    doctor("grpc+tls", &["--ca", path_text(&certificate), "--token-file", path_text(&bad)])
        .run()
        .assert_rejected(&[6], &["token"]);
    let untrusted = ["is not trusted", "certificate of its authority with --ca"];
    doctor("grpc+tls", &["--token-file", path_text(&good)]).run().assert_rejected(&[6], &untrusted);
    let url = format!("grpc+tls://{}", served.address.replace("127.0.0.1", "localhost"));
    godwit().args(["query", "SELECT 1", "--at", &url]).run().assert_rejected(&[6], &untrusted);
    let copy = godwit().args(["copy", &format!("{url}/a.bed")]).arg(scratch::directory("untrusted").join("a.bed"));
    copy.run().assert_rejected(&[6], &untrusted);
    doctor("grpc+tcp", &["--token-file", path_text(&good)]).run().assert_rejected(&[6], &["localhost", "check"]);
    godwit().args(["doctor", "--at", "https://localhost"]).run().assert_rejected(&[2], &["grpc+tls://"]);
    let nobody = godwit().args(["doctor", "--at", "grpc+tcp://127.0.0.1:9"]).run();
    nobody.assert_rejected(&[6], &["127.0.0.1:9", "check the address, and that a server is running"]);
}

/// Returns the output of openssl for `input` on its standard input.
fn openssl_output(words: &[&str], input: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = Tool::require("openssl").command().args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().expect("openssl can be started");
    child.stdin.take().expect("it is piped").write_all(input).expect("it reads");
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut child.stdout.take().expect("it is piped"), &mut out).expect("it writes");
    assert!(child.wait().expect("it ends").success(), "openssl {words:?}");
    out
}

/// Encodes bytes by RFC 4648 §5, without padding.
fn base64url(bytes: &[u8]) -> String {
    let text = String::from_utf8(openssl_output(&["base64", "-A"], bytes)).expect("it is text");
    text.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// An issuer that signs tokens.
pub struct TokenIssuer {
    key: PathBuf,
}

impl TokenIssuer {
    /// Creates an issuer with a new key.
    pub fn new(directory: &Path) -> Self {
        let key = directory.join("key.pem");
        openssl_output(
            &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path_text(&key)],
            b"",
        );
        Self { key }
    }

    /// Returns the JSON Web Key Set of the issuer.
    pub fn jwks(&self) -> String {
        let modulus = openssl_output(&["rsa", "-in", path_text(&self.key), "-modulus", "-noout"], b"");
        let modulus = String::from_utf8(modulus).expect("it is text");
        let digits = modulus.trim().strip_prefix("Modulus=").expect("openssl names it");
        let modulus = base64url(&hex::decode(digits).expect("it is hexadecimal"));
        format!("{{\"keys\":[{{\"kty\":\"RSA\",\"kid\":\"k\",\"use\":\"sig\",\"n\":\"{modulus}\",\"e\":\"AQAB\"}}]}}")
    }

    /// Returns a header value with a token for `name`, which expires at `end`, in seconds since 1970.
    pub fn token(&self, name: &str, audience: &str, end: u64) -> String {
        let claims = format!("{{\"iss\":\"login\",\"aud\":\"{audience}\",\"email\":\"{name}\",\"exp\":{end}}}");
        format!("Bearer {}", self.sign("{\"alg\":\"RS256\",\"kid\":\"k\"}", &claims))
    }

    /// Returns a signed token with the given header and claims.
    fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
        let mark = openssl_output(&["dgst", "-sha256", "-sign", path_text(&self.key)], signed.as_bytes());
        format!("{signed}.{}", base64url(&mark))
    }
}

#[test]
fn clients_with_a_token_signed_by_an_issuer_are_accepted_under_its_name() {
    needs!("python3", "openssl");
    let (root, _, _) = root_with_token();
    let directory = root.parent().expect("it is in a directory");
    let (keys, policy) = (directory.join("jwks.json"), directory.join("policy.toml"));
    let signer = TokenIssuer::new(directory);
    std::fs::write(&keys, signer.jwks()).expect("it can be written");
    std::fs::write(&policy, "[[rule]]\nname = 'one'\nwho = ['alice@example.org']\ndatasets = ['a.bed']\n")
        .expect("it can be written");
    let token = |name: &str, audience: &str, end: u64| signer.token(name, audience, end);
    let words =
        ["--jwks", path_text(&keys), "--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwt-name", "email"];
    let served = DataServer::start(&root, &[&words[..], &["--policy", path_text(&policy)]].concat());
    let far = 4_000_000_000;
    assert_eq!(pyarrow_client_output(&served, &["-", &token("alice@example.org", "godwit", far)]), "a.bed;1");
    let nothing = pyarrow_client_output(&served, &["-", &token("bob@example.org", "godwit", far)]);
    assert!(!nothing.contains("a.bed;1"), "{nothing}");
    for wrong in [
        token("alice@example.org", "another", far),
        token("alice@example.org", "godwit", 1_000_000_000),
        token("alice@example.org", "godwit", far).replace("Bearer e", "Bearer f"),
        "-".to_owned(),
    ] {
        assert!(pyarrow_client_output(&served, &["-", &wrong]).starts_with("FlightUnauthenticatedError"), "{wrong}");
    }
    let serve = |words: &[&str]| godwit().args(["serve", "--root", path_text(&root)]).args(words).run();
    serve(&["--jwks", path_text(&keys)]).assert_rejected(&[2], &["--jwt-issuer"]);
    let words = ["--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwks"];
    serve(&[&words[..], &[path_text(&policy)]].concat()).assert_rejected(&[3], &["policy.toml", "Key Set"]);
}

/// Returns the time in seconds since 1970.
fn unix_time() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("it is after 1970").as_secs()
}

#[test]
fn a_handshake_exchanges_a_password_for_a_bearers_token_that_ends_with_it() {
    needs!("python3", "openssl");
    let (root, tokens, token) = root_with_token();
    let directory = root.parent().expect("it is in a directory");
    let signer = TokenIssuer::new(directory);
    let (keys, given) = (directory.join("jwks.json"), directory.join("given.txt"));
    std::fs::write(&keys, signer.jwks()).expect("it can be written");
    let issuer =
        ["--jwks", path_text(&keys), "--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwt-name", "email"];
    let words = [&["--tokens", path_text(&tokens)][..], &issuer].concat();
    let served = DataServer::start(&root, &words);
    let signed = signer.token("carol", "godwit", unix_time() + 600).replace("Bearer ", "");
    let mine = [format!("alice:{token}"), format!("carol:{signed}")];
    let others = [format!("bob:{token}"), "alice:nonsense".to_owned(), "alice:".to_owned(), format!("bob:{signed}")];
    let callers: Vec<&str> = mine.iter().chain(&others).map(String::as_str).collect();
    let words = [&[served.address.as_str(), "authenticate_by_handshake", path_text(&given)][..], &callers].concat();
    let told = to_lines(&run_python("flight_clients.py", Path::new("-"), &words));
    let refused = "FlightUnauthenticatedError";
    let expected = [
        "alice a.bed 1".to_owned(),
        format!("alice {refused}"),
        "carol a.bed 1".to_owned(),
        format!("carol {refused}"),
        format!("bob {refused}"),
        format!("alice {refused}"),
        format!("alice {refused}"),
        format!("bob {refused}"),
    ];
    assert_eq!(told, expected);
    // Send the session to another server, which did not issue it, after its token was removed.
    let given = std::fs::read_to_string(&given).expect("it is there");
    let sessions: Vec<&str> = given.lines().collect();
    assert_eq!(sessions.len(), 2);
    let other = DataServer::start(&root, &["--tokens", path_text(&tokens)]);
    assert!(sessions.iter().all(|session| pyarrow_client_output(&other, &["-", session]).starts_with(refused)));
    godwit().args(["token", "dora", "--tokens", path_text(&directory.join("new.txt"))]).run_ok();
    std::fs::rename(directory.join("new.txt"), &tokens).expect("it can be renamed");
    wait_until("alice's session has ended", || {
        pyarrow_client_output(&served, &["-", sessions[0]]).starts_with(refused)
    });
    assert_eq!(pyarrow_client_output(&served, &["-", sessions[1]]), "a.bed;1", "carol's has not");
}

#[test]
fn a_passport_shows_what_its_visas_grant() {
    needs!("python3", "openssl", "curl");
    let (root, _, _) = root_with_token();
    let directory = root.parent().expect("it is in a directory");
    std::fs::write(root.join("b.bed"), "chr1\t5\t9\n").expect("it can be written");
    let folder = |name: &str| {
        let folder = directory.join(name);
        std::fs::create_dir(&folder).expect("it can be made");
        folder
    };
    let (broker, issuer) = (TokenIssuer::new(&folder("broker")), TokenIssuer::new(&folder("issuer")));
    let [keys, visa_keys, visas, policy] =
        ["jwks.json", "visa-jwks.json", "visas.toml", "policy.toml"].map(|name| directory.join(name));
    std::fs::write(&keys, broker.jwks()).expect("it can be written");
    std::fs::write(&visa_keys, issuer.jwks()).expect("it can be written");
    let trusted = "[[issuer]]\nname = 'https://visas.example.org'\nkeys = 'visa-jwks.json'\njku = 'https://visas.example.org/jwks'\n";
    std::fs::write(&visas, trusted).expect("it can be written");
    let study = "[visas.study]\ntype = 'ControlledAccessGrants'\nvalue = 'https://ega-archive.org/datasets/EGAD1'\nsource = 'https://dac'\n\
        by = ['dac']\n[[rule]]\nname = 'study'\nwho = ['visa:study']\ndatasets = ['a.bed']\n";
    std::fs::write(&policy, study).expect("it can be written");
    let words = ["--jwks", path_text(&keys), "--jwt-issuer", "https://broker", "--jwt-audience", "godwit"];
    let words = [&words[..], &["--visas", path_text(&visas), "--policy", path_text(&policy)]].concat();
    let served = DataServer::start(&root, &words);
    let visa = |signer: &TokenIssuer, value: &str, end: u64| {
        let header = "{\"alg\":\"RS256\",\"kid\":\"k\",\"typ\":\"JWT\",\"jku\":\"https://visas.example.org/jwks\"}";
        let object = serde_json::json!({ "type": "ControlledAccessGrants", "asserted": unix_time(), "source": "https://dac",
            "by": "dac", "value": format!("https://ega-archive.org/datasets/{value}") });
        let claims = serde_json::json!({ "iss": "https://visas.example.org", "sub": "u1", "iat": unix_time(), "exp": end,
            "ga4gh_visa_v1": object });
        signer.sign(header, &claims.to_string())
    };
    let passport = |signer: &TokenIssuer, visas: &[String], end: u64| {
        let claims = serde_json::json!({ "iss": "https://broker", "sub": "alice", "iat": unix_time(), "exp": end, "ga4gh_passport_v1": visas });
        let header = "{\"alg\":\"RS256\",\"kid\":\"k\",\"typ\":\"vnd.ga4gh.passport+jwt\"}";
        signer.sign(header, &claims.to_string())
    };
    let far = unix_time() + 600;
    let seen = |passport: &str| pyarrow_client_output(&served, &["-", &format!("Bearer {passport}")]);
    let good = passport(&broker, &[visa(&issuer, "EGAD2", far), visa(&issuer, "EGAD1", far)], far);
    assert_eq!(seen(&good), "a.bed;1");
    for (what, visas) in [
        ("no visa", vec![]),
        ("one of another dataset", vec![visa(&issuer, "EGAD2", far)]),
        ("one that has ended", vec![visa(&issuer, "EGAD1", unix_time() - 100)]),
        ("one that the broker signed", vec![visa(&broker, "EGAD1", far)]),
    ] {
        assert_eq!(seen(&passport(&broker, &visas, far)), "", "{what}");
    }
    let refused = "FlightUnauthenticatedError";
    let own = [visa(&issuer, "EGAD1", far)];
    assert_eq!(seen(&passport(&issuer, &own, far)), refused, "a passport that the broker did not sign");
    assert_eq!(seen(&passport(&broker, &own, unix_time() - 100)), refused, "one that has ended");
    // A passport that was exchanged for a session gives the same access as the passport.
    let given = directory.join("given.txt");
    let words = [served.address.as_str(), "authenticate_by_handshake", path_text(&given), &format!("alice:{good}")];
    assert_eq!(to_lines(&run_python("flight_clients.py", Path::new("-"), &words))[0], "alice a.bed 1");
    let test = |rest: &[&str]| {
        let words =
            ["policy", "test", "--policy", path_text(&policy), "--data", path_text(&root), "--dataset", "a.bed"];
        godwit().args(words).args(rest).run()
    };
    assert!(test(&["--as", "alice", "--visa", "study"]).stdout.contains("by rule 1, \"study\""));
    test(&["--as", "alice"]).assert_rejected(&[4], &["a.bed"]);
    test(&["--visa", "other"]).assert_rejected(&[2], &["--visa other"]);
    std::fs::write(&visas, "[[issuer]]\nname = 'x'\n").expect("it can be written");
    let serve = godwit().args(["serve", "--root", path_text(&root), "--listen", "127.0.0.1:0"]);
    let words = ["--jwks", path_text(&keys), "--jwt-issuer", "i", "--jwt-audience", "a", "--visas", path_text(&visas)];
    serve.args(words).run().assert_rejected(&[3], &["visas.toml", "keys"]);
}
