//! Copies by way of a server in between, and what that keeps.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{Running, godwit};
use godwit_tests::patience::wait_until;
use godwit_tests::processes::signal;
use godwit_tests::scratch;
use godwit_tests::served::Served;

use super::copies::{content, text, url};

/// Bytes of the file that is copied.
const BYTES: usize = 24_000_000;
/// What comes beside blocks, at most.
const BESIDE: u64 = 1_000_000;

/// A far server, and what is around it.
struct Far {
    directory: PathBuf,
    root: PathBuf,
    mine: PathBuf,
    served: Served,
    /// The file with a token that it lets in, and words that show it.
    token: PathBuf,
}

impl Far {
    fn new(label: &str, words: &[&str]) -> Self {
        let directory = scratch::directory(label);
        let [root, mine, between] = ["root", "mine", "between"].map(|name| directory.join(name));
        for made in [&root, &mine, &between] {
            fs::create_dir(made).expect("it can be made");
        }
        let tokens = directory.join("tokens");
        let token = token_of("alice", &directory);
        let served = Served::start(&root, &[&["--tokens", text(&tokens), "--writable"], words].concat());
        Self { directory, root, mine, served, token }
    }

    fn again(&mut self) {
        let address = self.served.address.clone();
        let tokens = self.directory.join("tokens");
        signal(self.served.process_id(), libc::SIGKILL);
        wait_until("its end", || TcpStream::connect(&address).is_err());
        self.served = Served::start_at(&self.root, &address, &["--tokens", text(&tokens), "--writable"]);
    }

    /// A relay, which lets in the same.
    fn relay(&self, at: &str, words: &[&str]) -> Served {
        let tokens = self.directory.join("tokens");
        let words = [&["--relay", "--tokens", text(&tokens)], words].concat();
        Served::start_at(&self.directory.join("between"), at, &words)
    }

    fn caching(&self) -> Served {
        self.relay("127.0.0.1:0", &["--relay-cache", text(&self.cache()), "--relay-cache-size", "256M"])
    }

    fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    fn start(&self, relay: &Served, from: &str, to: &str, words: &[&str]) -> Running {
        let copy = godwit().args(["copy", from, to, "--relay", &url(relay, ""), "--token-file", text(&self.token)]);
        copy.args(["--mode", "fast", "--streams", "3", "--json"]).args(words).start()
    }

    /// Copies a file of the far server, and looks at what came.
    fn fetch(&self, relay: &Served, name: &str, to: &str) {
        let target = self.mine.join(to);
        let done = self.start(relay, &url(&self.served, name), text(&target), &[]).finish();
        assert!(done.status.success(), "{}", done.report());
        let (sent, came) = (fs::read(self.root.join(name)), fs::read(&target));
        assert!(sent.expect("it is there") == came.expect("it is there"), "{to}");
    }

    /// Bytes of downloads that it has sent.
    fn sent(&self) -> u64 {
        let token = fs::read_to_string(&self.token).expect("it is there");
        let mut stream = TcpStream::connect(&self.served.address).expect("it is there");
        let (host, token) = (&self.served.address, token.trim());
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

fn token_of(name: &str, directory: &Path) -> PathBuf {
    let token = directory.join(format!("{name}.token"));
    let made = godwit().args(["token", name, "--tokens", text(&directory.join("tokens"))]).succeeds().stdout;
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
        let mut far = Far::new(&format!("relay-kill-{}", killed.replace(' ', "-")), &[]);
        let mut relay = far.relay("127.0.0.1:0", &[]);
        fs::write(far.mine.join("f"), content(BYTES)).expect("it can be written");
        let (from, to) = (text(&far.mine.join("f")).to_owned(), url(&far.served, "f"));
        let running = far.start(&relay, &from, &to, &["--rate", "200M"]);
        let journal = far.root.join(".f.godwit-journal");
        let recorded = || fs::metadata(&journal).map_or(0, |journal| journal.len().saturating_sub(200) / 48);
        wait_until("some blocks are there", || recorded() > 4);
        let done = match killed {
            "client" => {
                signal(running.process_id(), libc::SIGKILL);
                running.finish();
                assert!(!far.root.join("f").exists());
                far.start(&relay, &from, &to, &[]).finish()
            }
            "relay" => {
                let address = relay.address.clone();
                signal(relay.process_id(), libc::SIGKILL);
                wait_until("its end", || TcpStream::connect(&address).is_err());
                drop(relay);
                assert!(!far.root.join("f").exists());
                relay = far.relay(&address, &[]);
                running.finish()
            }
            // It knows nothing any more of what it granted.
            _ => {
                far.again();
                running.finish()
            }
        };
        assert!(done.status.success(), "{killed}: {}", done.report());
        assert!(fs::read(far.root.join("f")).expect("it is there") == content(BYTES), "{killed}");
        drop(relay);
    }
}

#[test]
fn a_download_through_a_relay_goes_on_when_the_far_server_is_started_anew() {
    let mut far = Far::new("relay-anew", &[]);
    let relay = far.caching();
    fs::write(far.root.join("f"), content(BYTES)).expect("it can be written");
    let running = far.start(&relay, &url(&far.served, "f"), text(&far.mine.join("f")), &["--rate", "200M"]);
    let journal = far.mine.join(".f.godwit-journal");
    wait_until("some blocks are there", || fs::metadata(&journal).is_ok_and(|journal| journal.len() > 400));
    far.again();
    let done = running.finish();
    assert!(done.status.success(), "{}", done.report());
    assert!(fs::read(far.mine.join("f")).expect("it is there") == content(BYTES));
}

#[test]
fn receivers_of_one_file_have_it_cross_the_long_way_once() {
    let far = Far::new("relay-once", &[]);
    fs::write(far.root.join("f"), content(BYTES)).expect("it can be written");
    let relay = far.caching();
    // Two at once.
    let both = ["one", "two"].map(|name| far.start(&relay, &url(&far.served, "f"), text(&far.mine.join(name)), &[]));
    for (running, name) in both.into_iter().zip(["one", "two"]) {
        let done = running.finish();
        assert!(done.status.success(), "{}", done.report());
        assert!(fs::read(far.mine.join(name)).expect("it is there") == content(BYTES), "{name}");
    }
    let once = far.sent();
    assert!((BYTES as u64..BYTES as u64 + BESIDE).contains(&once), "{once}");
    // One later, and one after the relay was started anew.
    far.fetch(&relay, "f", "three");
    drop(relay);
    let relay = far.caching();
    far.fetch(&relay, "f", "four");
    assert!(far.sent() - once < BESIDE, "{}", far.sent() - once);
    // A source that changed is not given as it was.
    let mut changed = content(BYTES);
    changed[BYTES / 2] ^= 1;
    fs::write(far.root.join("f"), &changed).expect("it can be written");
    far.fetch(&relay, "f", "five");
    let twice = far.sent();
    // What was damaged where it is kept is fetched again.
    let blocks = files_below(&far.cache().join("blocks"));
    assert!(blocks.len() > 23, "{}", blocks.len());
    for path in blocks {
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[0] ^= 1;
        fs::write(&path, bytes).expect("it can be written");
    }
    far.fetch(&relay, "f", "six");
    assert!(far.sent() - twice >= BYTES as u64, "{}", far.sent() - twice);
    far.fetch(&relay, "f", "seven");
    assert!(far.sent() - twice < BYTES as u64 + BESIDE, "{}", far.sent() - twice);
}

#[test]
fn a_relay_whose_disk_is_full_sends_on_what_it_cannot_keep() {
    let far = Far::new("relay-full", &[]);
    fs::write(far.root.join("f"), content(BYTES)).expect("it can be written");
    let relay = far.caching();
    let limit = libc::rlimit { rlim_cur: 500_000, rlim_max: 500_000 };
    // SAFETY: the limits are read from a place that is there, and those before are not asked for.
    let set =
        unsafe { libc::prlimit(relay.process_id() as libc::pid_t, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    far.fetch(&relay, "f", "one");
    far.fetch(&relay, "f", "two");
    // The last block is small enough to be kept.
    assert!(far.sent() > 2 * BYTES as u64 - 2 * BESIDE, "{}", far.sent());
    let (code, said) = relay.end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("godwit: warning:") && said.contains("cannot be written"), "{said}");
}

#[test]
fn who_may_not_have_a_file_gets_none_of_what_a_relay_keeps_of_it() {
    let directory = scratch::directory("relay-rules");
    let policy = directory.join("policy.toml");
    let rule = |name: &str, files: &str| {
        format!("[[rule]]\nname = \"{name}\"\nwho = [\"{name}\"]\ndatasets = [\"{files}\"]\n\n")
    };
    fs::write(&policy, rule("alice", "**") + &rule("bob", "open/**")).expect("it can be written");
    let audit = directory.join("audit");
    let mut far = Far::new("relay-denied", &["--policy", text(&policy), "--audit", text(&audit)]);
    fs::create_dir(far.root.join("open")).expect("it can be made");
    fs::write(far.root.join("secret"), content(3_000_000)).expect("it can be written");
    fs::write(far.root.join("open/f"), content(2_000_000)).expect("it can be written");
    let bob = token_of("bob", &far.directory);
    // The relay is started after bob is known; the far server reads its list again.
    let relay = far.caching();
    far.fetch(&relay, "secret", "one");
    far.fetch(&relay, "open/f", "two");
    let sent = far.sent();
    far.token = bob;
    wait_until("bob is let in", || {
        far.start(&relay, &url(&far.served, "open/f"), text(&far.mine.join("b")), &[]).finish().status.success()
    });
    let denied = far.start(&relay, &url(&far.served, "secret"), text(&far.mine.join("x")), &[]).finish();
    denied.refuses(&[2], &["secret"]);
    assert!(!far.mine.join("x").exists() && !far.mine.join(".x.godwit-part").exists());
    far.token = far.directory.join("alice.token");
    assert!(far.sent() - sent < BESIDE, "{}", far.sent() - sent);
    // What came from the relay is in the far server's record, under the name of who had it.
    let record = fs::read_to_string(&audit).expect("it is there");
    let had = |who: &str, what: &str| {
        record.lines().any(|line| line.contains(&format!("\"{who}\"")) && line.contains("DoGet") && line.contains(what))
    };
    assert!(had("bob", "open/f") && had("alice", "secret") && !had("bob", "secret"), "{record}");
    godwit().args(["audit", "verify", text(&audit)]).succeeds();
}

#[test]
fn what_a_relay_keeps_goes_with_relaying_and_is_not_shared_by_processes() {
    let far = Far::new("relay-words", &[]);
    let cache = far.cache();
    let serve = |words: &[&str]| {
        let root = text(&far.root);
        godwit().args(["serve", "--root", root, "--listen", "127.0.0.1:0"]).args(words).run()
    };
    serve(&["--relay-cache", text(&cache)]).refuses(&[2], &["--relay"]);
    serve(&["--relay", "--relay-cache", text(&cache), "--relay-cache-size", "1M"]).refuses(&[2], &["256M"]);
    let _relay = far.caching();
    serve(&["--relay", "--relay-cache", text(&cache)]).refuses(&[2], &["another server"]);
    fs::write(far.directory.join("file"), "x").expect("it can be written");
    serve(&["--relay", "--relay-cache", text(&far.directory.join("file"))]).refuses(&[4], &["file"]);
}
