//! Copies through a relay, and the blocks that it caches.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitProcess, godwit};
use godwit_tests::data_server::{DataServer, own_loopback_host};
use godwit_tests::processes::send_signal;
use godwit_tests::scratch;
use godwit_tests::wait::wait_until;

use super::copies::{path_text, pseudorandom_bytes, server_url};

/// The size of the copied file in bytes.
const FILE_BYTES: usize = 24_000_000;
/// The maximum number of bytes that a server sends in addition to the blocks.
const MAX_OVERHEAD_BYTES: u64 = 1_000_000;

/// The source server of the copies, with its directories and credentials.
struct RelayFixture {
    directory: PathBuf,
    root: PathBuf,
    client_directory: PathBuf,
    server: DataServer,
    /// The file with a token that the server accepts.
    token: PathBuf,
}

impl RelayFixture {
    fn new(label: &str, words: &[&str]) -> Self {
        let directory = scratch::directory(label);
        let [root, client_directory, between] = ["root", "mine", "between"].map(|name| directory.join(name));
        for made in [&root, &client_directory, &between] {
            fs::create_dir(made).expect("it can be made");
        }
        let tokens = directory.join("tokens");
        let token = create_token("alice", &directory);
        let server =
            DataServer::start_restartable(&root, &[&["--tokens", path_text(&tokens), "--writable"], words].concat());
        Self { directory, root, client_directory, server, token }
    }

    fn restart_server(&mut self) {
        let address = self.server.address.clone();
        let tokens = self.directory.join("tokens");
        send_signal(self.server.process_id(), libc::SIGKILL);
        wait_until("its end", || TcpStream::connect(&address).is_err());
        self.server = DataServer::start_at(&self.root, &address, &["--tokens", path_text(&tokens), "--writable"]);
    }

    /// Starts a relay that accepts the same tokens.
    fn start_relay(&self, at: &str, words: &[&str]) -> DataServer {
        let tokens = self.directory.join("tokens");
        let words = [&["--relay", "--tokens", path_text(&tokens)], words].concat();
        DataServer::start_at(&self.directory.join("between"), at, &words)
    }

    fn start_caching_relay(&self) -> DataServer {
        self.start_relay(
            "127.0.0.1:0",
            &["--relay-cache", path_text(&self.cache_directory()), "--relay-cache-size", "256M"],
        )
    }

    fn cache_directory(&self) -> PathBuf {
        self.directory.join("cache")
    }

    fn start_copy(&self, relay: &DataServer, from: &str, to: &str, words: &[&str]) -> GodwitProcess {
        let copy = godwit().args([
            "copy",
            from,
            to,
            "--relay",
            &server_url(relay, ""),
            "--token-file",
            path_text(&self.token),
        ]);
        copy.args(["--mode", "fast", "--streams", "3", "--json"]).args(words).spawn()
    }

    /// Copies a file from the source server, and compares it with the source.
    fn copy_and_verify(&self, relay: &DataServer, name: &str, to: &str) {
        let target = self.client_directory.join(to);
        let done = self.start_copy(relay, &server_url(&self.server, name), path_text(&target), &[]).wait_with_output();
        assert!(done.status.success(), "{}", done.describe());
        let (sent, came) = (fs::read(self.root.join(name)), fs::read(&target));
        assert!(sent.expect("it is there") == came.expect("it is there"), "{to}");
    }

    /// Returns the bytes that the server has sent in downloads.
    fn sent_bytes(&self) -> u64 {
        let token = fs::read_to_string(&self.token).expect("it is there");
        let mut stream = TcpStream::connect(&self.server.address).expect("it is there");
        let (host, token) = (&self.server.address, token.trim());
        let asked = format!(
            "GET /metrics HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).expect("it listens");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("it answers");
        let line = told.lines().find_map(|line| line.strip_prefix("godwit_sent_bytes_total{verb=\"DoGet\"} "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| panic!("{told}"))
    }
}

fn create_token(name: &str, directory: &Path) -> PathBuf {
    let token = directory.join(format!("{name}.token"));
    let made = godwit().args(["token", name, "--tokens", path_text(&directory.join("tokens"))]).run_ok().stdout;
    fs::write(&token, made).expect("it can be written");
    token
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).expect("it is there").map(|entry| entry.expect("it is").path());
    let below = listed.map(|path| if path.is_dir() { files_below(&path) } else { vec![path] });
    below.flatten().collect()
}

#[test]
fn an_upload_through_a_relay_goes_on_whichever_of_the_three_is_killed() {
    for killed in ["client", "relay", "far server"] {
        let mut far = RelayFixture::new(&format!("relay-kill-{}", killed.replace(' ', "-")), &[]);
        let mut relay = far.start_relay(&format!("{}:0", own_loopback_host()), &[]);
        fs::write(far.client_directory.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
        let (from, to) = (path_text(&far.client_directory.join("f")).to_owned(), server_url(&far.server, "f"));
        let running = far.start_copy(&relay, &from, &to, &["--rate", "200M"]);
        let journal = far.root.join(".f.godwit-journal");
        let recorded = || fs::metadata(&journal).map_or(0, |journal| journal.len().saturating_sub(200) / 48);
        wait_until("some blocks are there", || recorded() > 4);
        let done = match killed {
            "client" => {
                send_signal(running.process_id(), libc::SIGKILL);
                running.wait_with_output();
                assert!(!far.root.join("f").exists());
                far.start_copy(&relay, &from, &to, &[]).wait_with_output()
            }
            "relay" => {
                let address = relay.address.clone();
                send_signal(relay.process_id(), libc::SIGKILL);
                wait_until("its end", || TcpStream::connect(&address).is_err());
                drop(relay);
                assert!(!far.root.join("f").exists());
                relay = far.start_relay(&address, &[]);
                running.wait_with_output()
            }
            // The server has lost its delegation keys.
            _ => {
                far.restart_server();
                running.wait_with_output()
            }
        };
        assert!(done.status.success(), "{killed}: {}", done.describe());
        assert!(fs::read(far.root.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES), "{killed}");
        drop(relay);
    }
}

#[test]
fn a_download_through_a_relay_goes_on_when_the_far_server_is_started_anew() {
    let mut far = RelayFixture::new("relay-anew", &[]);
    let relay = far.start_caching_relay();
    fs::write(far.root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let running = far.start_copy(
        &relay,
        &server_url(&far.server, "f"),
        path_text(&far.client_directory.join("f")),
        &["--rate", "200M"],
    );
    let journal = far.client_directory.join(".f.godwit-journal");
    wait_until("some blocks are there", || fs::metadata(&journal).is_ok_and(|journal| journal.len() > 400));
    far.restart_server();
    let done = running.wait_with_output();
    assert!(done.status.success(), "{}", done.describe());
    assert!(fs::read(far.client_directory.join("f")).expect("it is there") == pseudorandom_bytes(FILE_BYTES));
}

#[test]
fn receivers_of_one_file_have_it_cross_the_long_way_once() {
    let far = RelayFixture::new("relay-once", &[]);
    fs::write(far.root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let relay = far.start_caching_relay();
    // Two copies at the same time.
    let both = ["one", "two"].map(|name| {
        far.start_copy(&relay, &server_url(&far.server, "f"), path_text(&far.client_directory.join(name)), &[])
    });
    for (running, name) in both.into_iter().zip(["one", "two"]) {
        let done = running.wait_with_output();
        assert!(done.status.success(), "{}", done.describe());
        assert!(
            fs::read(far.client_directory.join(name)).expect("it is there") == pseudorandom_bytes(FILE_BYTES),
            "{name}"
        );
    }
    let once = far.sent_bytes();
    assert!((FILE_BYTES as u64..FILE_BYTES as u64 + MAX_OVERHEAD_BYTES).contains(&once), "{once}");
    // A later copy, and one after the relay was restarted.
    far.copy_and_verify(&relay, "f", "three");
    drop(relay);
    let relay = far.start_caching_relay();
    far.copy_and_verify(&relay, "f", "four");
    assert!(far.sent_bytes() - once < MAX_OVERHEAD_BYTES, "{}", far.sent_bytes() - once);
    // A changed source is not served from the cache.
    let mut changed = pseudorandom_bytes(FILE_BYTES);
    changed[FILE_BYTES / 2] ^= 1;
    fs::write(far.root.join("f"), &changed).expect("it can be written");
    far.copy_and_verify(&relay, "f", "five");
    let twice = far.sent_bytes();
    // Damaged cached blocks are fetched again.
    let blocks = files_below(&far.cache_directory().join("blocks"));
    assert!(blocks.len() > 90, "{}", blocks.len());
    for path in blocks {
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[0] ^= 1;
        fs::write(&path, bytes).expect("it can be written");
    }
    far.copy_and_verify(&relay, "f", "six");
    assert!(far.sent_bytes() - twice >= FILE_BYTES as u64, "{}", far.sent_bytes() - twice);
    far.copy_and_verify(&relay, "f", "seven");
    assert!(far.sent_bytes() - twice < FILE_BYTES as u64 + MAX_OVERHEAD_BYTES, "{}", far.sent_bytes() - twice);
}

#[test]
fn a_relay_whose_disk_is_full_sends_on_what_it_cannot_keep() {
    let far = RelayFixture::new("relay-full", &[]);
    fs::write(far.root.join("f"), pseudorandom_bytes(FILE_BYTES)).expect("it can be written");
    let relay = far.start_caching_relay();
    // Less than the shortest block.
    let limit = libc::rlimit { rlim_cur: 100_000, rlim_max: 100_000 };
    // SAFETY: the limits are read from a live value, and the previous ones are not requested.
    let set =
        unsafe { libc::prlimit(relay.process_id() as libc::pid_t, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    far.copy_and_verify(&relay, "f", "one");
    far.copy_and_verify(&relay, "f", "two");
    assert!(far.sent_bytes() >= 2 * FILE_BYTES as u64, "{}", far.sent_bytes());
    let (code, said) = relay.stop(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("godwit: warning:") && said.contains("cannot write to"), "{said}");
}

#[test]
fn unauthorized_clients_get_nothing_of_a_file_from_a_relays_cache() {
    let directory = scratch::directory("relay-rules");
    let policy = directory.join("policy.toml");
    let rule = |name: &str, files: &str| {
        format!("[[rule]]\nname = \"{name}\"\nwho = [\"{name}\"]\ndatasets = [\"{files}\"]\n\n")
    };
    fs::write(&policy, rule("alice", "**") + &rule("bob", "open/**")).expect("it can be written");
    let audit = directory.join("audit");
    let mut far = RelayFixture::new("relay-denied", &["--policy", path_text(&policy), "--audit", path_text(&audit)]);
    fs::create_dir(far.root.join("open")).expect("it can be made");
    fs::write(far.root.join("secret"), pseudorandom_bytes(3_000_000)).expect("it can be written");
    fs::write(far.root.join("open/f"), pseudorandom_bytes(2_000_000)).expect("it can be written");
    let bob = create_token("bob", &far.directory);
    // The relay is started after bob's token exists; the far server reads its list again.
    let relay = far.start_caching_relay();
    far.copy_and_verify(&relay, "secret", "one");
    far.copy_and_verify(&relay, "open/f", "two");
    let sent = far.sent_bytes();
    far.token = bob;
    wait_until("bob is let in", || {
        far.start_copy(&relay, &server_url(&far.server, "open/f"), path_text(&far.client_directory.join("b")), &[])
            .wait_with_output()
            .status
            .success()
    });
    let denied = far
        .start_copy(&relay, &server_url(&far.server, "secret"), path_text(&far.client_directory.join("x")), &[])
        .wait_with_output();
    denied.assert_rejected(&[2], &["secret"]);
    assert!(!far.client_directory.join("x").exists() && !far.client_directory.join(".x.godwit-part").exists());
    far.token = far.directory.join("alice.token");
    assert!(far.sent_bytes() - sent < MAX_OVERHEAD_BYTES, "{}", far.sent_bytes() - sent);
    // Blocks served by the relay are in the far server's record, under the name of the principal that received them.
    let record = fs::read_to_string(&audit).expect("it is there");
    let had = |who: &str, what: &str| {
        record.lines().any(|line| line.contains(&format!("\"{who}\"")) && line.contains("DoGet") && line.contains(what))
    };
    assert!(had("bob", "open/f") && had("alice", "secret") && !had("bob", "secret"), "{record}");
    godwit().args(["audit", "verify", path_text(&audit)]).run_ok();
}

#[test]
fn what_a_relay_keeps_goes_with_relaying_and_is_not_shared_by_processes() {
    let far = RelayFixture::new("relay-words", &[]);
    let cache = far.cache_directory();
    let serve = |words: &[&str]| {
        let root = path_text(&far.root);
        godwit().args(["serve", "--root", root, "--listen", "127.0.0.1:0"]).args(words).run()
    };
    serve(&["--relay-cache", path_text(&cache)]).assert_rejected(&[2], &["--relay"]);
    serve(&["--relay", "--relay-cache", path_text(&cache), "--relay-cache-size", "1M"])
        .assert_rejected(&[2], &["256M"]);
    let _relay = far.start_caching_relay();
    serve(&["--relay", "--relay-cache", path_text(&cache)]).assert_rejected(&[2], &["another server"]);
    fs::write(far.directory.join("file"), "x").expect("it can be written");
    serve(&["--relay", "--relay-cache", path_text(&far.directory.join("file"))]).assert_rejected(&[4], &["file"]);
}
