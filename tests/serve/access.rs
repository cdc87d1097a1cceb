//! Who is let in, and what is said when a server cannot be started.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::patience::wait_until;
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

use crate::run::formats::{lines, run_python};

fn text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

/// A certificate for this machine that signs itself, and its key.
pub fn certificate(directory: &Path) -> (PathBuf, PathBuf) {
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
pub fn guarded() -> (PathBuf, PathBuf, String) {
    let directory = scratch::directory("access");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\n").expect("it can be written");
    let tokens = directory.join("tokens.txt");
    let told = godwit().args(["token", "alice", "--tokens", text(&tokens)]).succeeds().stdout;
    (root, tokens, told.trim().to_owned())
}

/// What a client of pyarrow finds there, with the certificate it trusts and the header it shows.
pub fn asked(served: &Served, words: &[&str]) -> String {
    let words: Vec<&str> =
        [served.address.as_str(), "query_authenticated"].into_iter().chain(words.iter().copied()).collect();
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

/// What is on stdin, by openssl.
fn by_openssl(words: &[&str], input: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = Tool::need("openssl").command().args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().expect("openssl can be started");
    child.stdin.take().expect("it is piped").write_all(input).expect("it reads");
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut child.stdout.take().expect("it is piped"), &mut out).expect("it writes");
    assert!(child.wait().expect("it ends").success(), "openssl {words:?}");
    out
}

/// RFC 4648 §5, without padding.
fn base64url(bytes: &[u8]) -> String {
    let text = String::from_utf8(by_openssl(&["base64", "-A"], bytes)).expect("it is text");
    text.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

/// Somebody who signs tokens.
pub struct Signer {
    key: PathBuf,
}

impl Signer {
    /// With a key of its own.
    pub fn new(directory: &Path) -> Self {
        let key = directory.join("key.pem");
        by_openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", text(&key)], b"");
        Self { key }
    }

    /// The set of its keys, as it publishes them.
    pub fn keys(&self) -> String {
        let modulus = by_openssl(&["rsa", "-in", text(&self.key), "-modulus", "-noout"], b"");
        let modulus = String::from_utf8(modulus).expect("it is text");
        let digits = modulus.trim().strip_prefix("Modulus=").expect("openssl names it");
        let modulus: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("it is hexadecimal"))
            .collect();
        let modulus = base64url(&modulus);
        format!("{{\"keys\":[{{\"kty\":\"RSA\",\"kid\":\"k\",\"use\":\"sig\",\"n\":\"{modulus}\",\"e\":\"AQAB\"}}]}}")
    }

    /// A token for somebody, as a header shows it; its end is in seconds since 1970.
    pub fn token(&self, name: &str, audience: &str, end: u64) -> String {
        let claims = format!("{{\"iss\":\"login\",\"aud\":\"{audience}\",\"email\":\"{name}\",\"exp\":{end}}}");
        format!("Bearer {}", self.signed("{\"alg\":\"RS256\",\"kid\":\"k\"}", &claims))
    }

    /// A token of that header and those claims.
    fn signed(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()));
        let mark = by_openssl(&["dgst", "-sha256", "-sign", text(&self.key)], signed.as_bytes());
        format!("{signed}.{}", base64url(&mark))
    }
}

#[test]
fn who_shows_a_token_that_an_issuer_signed_is_let_in_by_its_name() {
    needs!("python3", "openssl");
    let (root, _, _) = guarded();
    let directory = root.parent().expect("it is in a directory");
    let (keys, policy) = (directory.join("jwks.json"), directory.join("policy.toml"));
    let signer = Signer::new(directory);
    std::fs::write(&keys, signer.keys()).expect("it can be written");
    std::fs::write(&policy, "[[rule]]\nname = 'one'\nwho = ['alice@example.org']\ndatasets = ['a.bed']\n")
        .expect("it can be written");
    let token = |name: &str, audience: &str, end: u64| signer.token(name, audience, end);
    let words = ["--jwks", text(&keys), "--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwt-name", "email"];
    let served = Served::start(&root, &[&words[..], &["--policy", text(&policy)]].concat());
    let far = 4_000_000_000;
    assert_eq!(asked(&served, &["-", &token("alice@example.org", "godwit", far)]), "a.bed;1");
    let nothing = asked(&served, &["-", &token("bob@example.org", "godwit", far)]);
    assert!(!nothing.contains("a.bed;1"), "{nothing}");
    for wrong in [
        token("alice@example.org", "another", far),
        token("alice@example.org", "godwit", 1_000_000_000),
        token("alice@example.org", "godwit", far).replace("Bearer e", "Bearer f"),
        "-".to_owned(),
    ] {
        assert!(asked(&served, &["-", &wrong]).starts_with("FlightUnauthenticatedError"), "{wrong}");
    }
    let serve = |words: &[&str]| godwit().args(["serve", "--root", text(&root)]).args(words).run();
    serve(&["--jwks", text(&keys)]).refuses(&[2], &["--jwt-issuer"]);
    let words = ["--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwks"];
    serve(&[&words[..], &[text(&policy)]].concat()).refuses(&[3], &["policy.toml", "Key Set"]);
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("it is after 1970").as_secs()
}

#[test]
fn a_handshake_exchanges_a_password_for_a_bearers_token_that_ends_with_it() {
    needs!("python3", "openssl");
    let (root, tokens, token) = guarded();
    let directory = root.parent().expect("it is in a directory");
    let signer = Signer::new(directory);
    let (keys, given) = (directory.join("jwks.json"), directory.join("given.txt"));
    std::fs::write(&keys, signer.keys()).expect("it can be written");
    let issuer = ["--jwks", text(&keys), "--jwt-issuer", "login", "--jwt-audience", "godwit", "--jwt-name", "email"];
    let words = [&["--tokens", text(&tokens)][..], &issuer].concat();
    let served = Served::start(&root, &words);
    let signed = signer.token("carol", "godwit", now() + 600).replace("Bearer ", "");
    let mine = [format!("alice:{token}"), format!("carol:{signed}")];
    let others = [format!("bob:{token}"), "alice:nonsense".to_owned(), "alice:".to_owned(), format!("bob:{signed}")];
    let callers: Vec<&str> = mine.iter().chain(&others).map(String::as_str).collect();
    let words = [&[served.address.as_str(), "authenticate_by_handshake", text(&given)][..], &callers].concat();
    let told = lines(&run_python("flight_clients.py", Path::new("-"), &words));
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
    // Another server did not give it, and what it was given for is not good any more.
    let given = std::fs::read_to_string(&given).expect("it is there");
    let sessions: Vec<&str> = given.lines().collect();
    assert_eq!(sessions.len(), 2);
    let other = Served::start(&root, &["--tokens", text(&tokens)]);
    assert!(sessions.iter().all(|session| asked(&other, &["-", session]).starts_with(refused)));
    godwit().args(["token", "dora", "--tokens", text(&directory.join("new.txt"))]).succeeds();
    std::fs::rename(directory.join("new.txt"), &tokens).expect("it can be renamed");
    wait_until("alice's session has ended", || asked(&served, &["-", sessions[0]]).starts_with(refused));
    assert_eq!(asked(&served, &["-", sessions[1]]), "a.bed;1", "carol's has not");
}

#[test]
fn a_passport_shows_what_its_visas_grant() {
    needs!("python3", "openssl", "curl");
    let (root, _, _) = guarded();
    let directory = root.parent().expect("it is in a directory");
    std::fs::write(root.join("b.bed"), "chr1\t5\t9\n").expect("it can be written");
    let folder = |name: &str| {
        let folder = directory.join(name);
        std::fs::create_dir(&folder).expect("it can be made");
        folder
    };
    let (broker, issuer) = (Signer::new(&folder("broker")), Signer::new(&folder("issuer")));
    let [keys, visa_keys, visas, policy] =
        ["jwks.json", "visa-jwks.json", "visas.toml", "policy.toml"].map(|name| directory.join(name));
    std::fs::write(&keys, broker.keys()).expect("it can be written");
    std::fs::write(&visa_keys, issuer.keys()).expect("it can be written");
    let trusted = "[[issuer]]\nname = 'https://visas.example.org'\nkeys = 'visa-jwks.json'\njku = 'https://visas.example.org/jwks'\n";
    std::fs::write(&visas, trusted).expect("it can be written");
    let study = "[visas.study]\ntype = 'ControlledAccessGrants'\nvalue = 'https://ega-archive.org/datasets/EGAD1'\nsource = 'https://dac'\n\
        by = ['dac']\n[[rule]]\nname = 'study'\nwho = ['visa:study']\ndatasets = ['a.bed']\n";
    std::fs::write(&policy, study).expect("it can be written");
    let words = ["--jwks", text(&keys), "--jwt-issuer", "https://broker", "--jwt-audience", "godwit"];
    let words = [&words[..], &["--visas", text(&visas), "--policy", text(&policy)]].concat();
    let served = Served::start(&root, &words);
    let visa = |signer: &Signer, value: &str, end: u64| {
        let header = "{\"alg\":\"RS256\",\"kid\":\"k\",\"typ\":\"JWT\",\"jku\":\"https://visas.example.org/jwks\"}";
        let object = serde_json::json!({ "type": "ControlledAccessGrants", "asserted": now(), "source": "https://dac",
            "by": "dac", "value": format!("https://ega-archive.org/datasets/{value}") });
        let claims = serde_json::json!({ "iss": "https://visas.example.org", "sub": "u1", "iat": now(), "exp": end,
            "ga4gh_visa_v1": object });
        signer.signed(header, &claims.to_string())
    };
    let passport = |signer: &Signer, visas: &[String], end: u64| {
        let claims = serde_json::json!({ "iss": "https://broker", "sub": "alice", "iat": now(), "exp": end, "ga4gh_passport_v1": visas });
        let header = "{\"alg\":\"RS256\",\"kid\":\"k\",\"typ\":\"vnd.ga4gh.passport+jwt\"}";
        signer.signed(header, &claims.to_string())
    };
    let far = now() + 600;
    let seen = |passport: &str| asked(&served, &["-", &format!("Bearer {passport}")]);
    let good = passport(&broker, &[visa(&issuer, "EGAD2", far), visa(&issuer, "EGAD1", far)], far);
    assert_eq!(seen(&good), "a.bed;1");
    for (what, visas) in [
        ("no visa", vec![]),
        ("one of another dataset", vec![visa(&issuer, "EGAD2", far)]),
        ("one that has ended", vec![visa(&issuer, "EGAD1", now() - 100)]),
        ("one that the broker signed", vec![visa(&broker, "EGAD1", far)]),
    ] {
        assert_eq!(seen(&passport(&broker, &visas, far)), "", "{what}");
    }
    let refused = "FlightUnauthenticatedError";
    let own = [visa(&issuer, "EGAD1", far)];
    assert_eq!(seen(&passport(&issuer, &own, far)), refused, "a passport that the broker did not sign");
    assert_eq!(seen(&passport(&broker, &own, now() - 100)), refused, "one that has ended");
    // Exchanged for a session it shows the same.
    let given = directory.join("given.txt");
    let words = [served.address.as_str(), "authenticate_by_handshake", text(&given), &format!("alice:{good}")];
    assert_eq!(lines(&run_python("flight_clients.py", Path::new("-"), &words))[0], "alice a.bed 1");
    let test = |rest: &[&str]| {
        let words = ["policy", "test", "--policy", text(&policy), "--data", text(&root), "--dataset", "a.bed"];
        godwit().args(words).args(rest).run()
    };
    assert!(test(&["--as", "alice", "--visa", "study"]).stdout.contains("by rule 1, \"study\""));
    test(&["--as", "alice"]).refuses(&[4], &["a.bed"]);
    test(&["--visa", "other"]).refuses(&[2], &["--visa other"]);
    std::fs::write(&visas, "[[issuer]]\nname = 'x'\n").expect("it can be written");
    let serve = godwit().args(["serve", "--root", text(&root), "--listen", "127.0.0.1:0"]);
    let words = ["--jwks", text(&keys), "--jwt-issuer", "i", "--jwt-audience", "a", "--visas", text(&visas)];
    serve.args(words).run().refuses(&[3], &["visas.toml", "keys"]);
}
