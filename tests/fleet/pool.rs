//! A pool of servers: who is sent where, and what is refused.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use godwit_tests::binary::{Godwit, Running, godwit};
use godwit_tests::patience::wait_until;
use godwit_tests::processes::signal;
use godwit_tests::served::Served;
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch};

use crate::run::formats::{lines, run_python};
use crate::serve::web::ask;
pub(super) use crate::transfer::copies::text;

/// A pool on this machine. Every node has an address of its own, known before it is started, which no other test has: all of
/// 127.0.0.0/8 is this machine.
pub(super) struct Pool {
    pub(super) root: PathBuf,
    pub(super) mine: PathBuf,
    pub(super) file: PathBuf,
    words: Vec<String>,
    addresses: Vec<String>,
    pub(super) nodes: Vec<Option<Served>>,
}

static POOLS: AtomicU32 = AtomicU32::new(0);

impl Pool {
    /// A pool of so many nodes, of which none is started.
    pub(super) fn describe(label: &str, policy: &str, count: usize, words: &[&str]) -> Self {
        let directory = scratch::directory(label);
        let (root, mine, file) = (directory.join("root"), directory.join("mine"), directory.join("pool.toml"));
        for made in [&root, &mine] {
            fs::create_dir(made).expect("it can be made");
        }
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (100 + std::process::id() % 100, std::process::id() / 100 % 250);
        let address = |node: usize| format!("127.{high}.{low}.{}:8815", 1 + 8 * number + node as u32);
        let addresses: Vec<String> = (0..count).map(address).collect();
        let nodes: String =
            addresses.iter().map(|address| format!("\n[[node]]\nurl = \"grpc+tcp://{address}\"\n")).collect();
        fs::write(&file, format!("name = \"storage\"\npolicy = \"{policy}\"\n{nodes}")).expect("it can be written");
        let own = ["--pool".to_owned(), text(&file).to_owned()];
        let words = own.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect();
        Self { root, mine, file, words, addresses, nodes: (0..count).map(|_| None).collect() }
    }

    /// A pool whose nodes are all there, and know it.
    pub(super) fn start(label: &str, policy: &str, count: usize, words: &[&str]) -> Self {
        let mut pool = Self::describe(label, policy, count, words);
        (0..count).for_each(|node| pool.start_node(node));
        pool.wait_until_seen(&vec![true; count]);
        pool
    }

    pub(super) fn start_node(&mut self, node: usize) {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        self.nodes[node] = Some(Served::start_at(&self.root, &self.addresses[node], &words));
    }

    pub(super) fn process_of(&self, node: usize) -> u32 {
        self.nodes[node].as_ref().expect("it was started").process_id()
    }

    /// Waits until every node that is there sees which of all are.
    pub(super) fn wait_until_seen(&self, healthy: &[bool]) {
        let expected: String = healthy.iter().map(|there| if *there { '1' } else { '0' }).collect();
        for (node, _) in healthy.iter().enumerate().filter(|(_, there)| **there) {
            run_python("pool_client.py", Path::new("-"), &[&self.addresses[node], "wait_until_health_is", &expected]);
        }
    }

    pub(super) fn url(path: &str) -> String {
        format!("godwit+pool://storage/{path}")
    }

    /// A verb that is told of the pool.
    pub(super) fn godwit(&self, words: &[&str]) -> Godwit {
        godwit().args(words).args(["--pool", text(&self.file)])
    }

    /// Which node a process has connections to; the one with most where it has several.
    pub(super) fn node_of(&self, process: u32) -> Option<usize> {
        let mut each: BTreeMap<usize, usize> = BTreeMap::new();
        for peer in peers_of(process) {
            let node = self.addresses.iter().position(|address| *address == peer);
            if let Some(node) = node {
                *each.entry(node).or_default() += 1;
            }
        }
        each.into_iter().max_by_key(|(_, count)| *count).map(|(node, _)| node)
    }
}

/// Addresses of the other ends of a process's connections over IPv4, which clients of gRPC make by sockets of IPv6 (proc_pid_net(5)).
fn peers_of(process: u32) -> Vec<String> {
    const ESTABLISHED: &str = "01";
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let sockets: Vec<String> = descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    let table = |name: &str| fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
    let table = [table("tcp"), table("tcp6")].concat();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (remote, state, inode) = (fields.get(2)?, fields.get(3)?, fields.get(9)?);
        if *state != ESTABLISHED || !sockets.iter().any(|socket| socket == inode) {
            return None;
        }
        let (address, port) = remote.split_once(':')?;
        // In the order of the machine, which is little-endian where these tests run.
        let address = address.strip_prefix("0000000000000000FFFF0000").unwrap_or(address);
        let octets = u32::from_str_radix(address, 16).ok()?.to_le_bytes().map(|octet| octet.to_string());
        Some(format!("{}:{}", octets.join("."), u16::from_str_radix(port, 16).ok()?))
    };
    table.lines().filter_map(row).collect()
}

/// Copies that are slow enough to be at work at the same time.
pub(super) fn slow_copies(pool: &Pool, label: &str, count: usize) -> Vec<Running> {
    let copy = |number: usize| {
        let target = pool.mine.join(format!("{label}-{number}"));
        let words = ["copy", &Pool::url("f"), text(&target), "--streams", "1", "--rate", "10M", "--mode", "fast"];
        pool.godwit(&words).start()
    };
    (0..count).map(copy).collect()
}

/// Copies of each node, once all are at work.
pub(super) fn settled(pool: &Pool, label: &str, copies: &[Running]) -> Vec<usize> {
    let is_at_work = |number: usize| pool.mine.join(format!(".{label}-{number}.godwit-journal")).exists();
    wait_until("all copies are at work", || (0..copies.len()).all(is_at_work));
    let mut each = vec![0; pool.nodes.len()];
    for copy in copies {
        let mut node = None;
        wait_until("it has a connection", || {
            node = pool.node_of(copy.process_id());
            node.is_some()
        });
        each[node.expect("it was waited for")] += 1;
    }
    each
}

/// Ends copies that are of no more use.
pub(super) fn end(copies: Vec<Running>) {
    for copy in copies {
        signal(copy.process_id(), libc::SIGKILL);
        copy.finish();
    }
}

#[test]
fn clients_that_begin_at_once_are_spread_evenly() {
    needs!("python3");
    for policy in ["round-robin", "connections"] {
        let pool = Pool::start("pool-burst", policy, 3, &[]);
        fs::write(pool.root.join("f"), vec![7; 40_000_000]).expect("it can be written");
        let copies = slow_copies(&pool, "a", 12);
        let each = settled(&pool, "a", &copies);
        // Equal where the first node answers in time, as simulations show; on a machine that is too busy for that others decide, too.
        assert!(each.iter().all(|count| (3..=5).contains(count)), "{policy}: {each:?}");
        end(copies);
    }
}

#[test]
fn a_node_of_half_the_network_gets_less() {
    needs!("python3");
    let pool = Pool::describe("pool-capacity", "throughput", 3, &[]);
    let text = fs::read_to_string(&pool.file).expect("it was written");
    let nodes: Vec<String> = text
        .split_inclusive("8815\"\n")
        .zip(["8G", "8G", "2G"])
        .map(|(node, capacity)| format!("{node}capacity = \"{capacity}\"\n"))
        .collect();
    fs::write(&pool.file, nodes.concat()).expect("it can be written");
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_node(node));
    pool.wait_until_seen(&[true; 3]);
    fs::write(pool.root.join("f"), vec![7; 40_000_000]).expect("it can be written");
    let copies = slow_copies(&pool, "a", 9);
    let each = settled(&pool, "a", &copies);
    end(copies);
    assert!(each[2] <= 2, "{each:?}");
}

#[test]
fn stock_clients_are_told_all_nodes_and_a_ticket_is_good_at_each() {
    needs!("python3");
    let pool = Pool::start("pool-stock", "round-robin", 3, &[]);
    let rows: String = (0..5000).map(|row| format!("chr1\t{row}\t{}\n", row + 5)).collect();
    fs::write(pool.root.join("a.bed"), rows).expect("it can be written");
    let told =
        lines(&run_python("pool_client.py", Path::new("-"), &[&pool.addresses[1], "fetch_from_members", "a.bed"]));
    let first: Vec<&String> = told.iter().filter(|line| line.starts_with("first ")).collect();
    // Six clients, one after the other: each node comes first twice.
    for address in &pool.addresses {
        assert_eq!(first.iter().filter(|line| line.ends_with(address.as_str())).count(), 2, "{told:?}");
    }
    assert_eq!(told.iter().filter(|line| *line == "rows 5000 5000 5000").count(), 6, "{told:?}");
}

#[test]
fn a_ticket_of_htsget_leads_to_the_node_that_is_granted_which_takes_it() {
    needs!("python3", "curl", "bwa", "samtools");
    let pool = Pool::describe("pool-htsget", "round-robin", 3, &[]);
    let (_, out) = crate::run::formats::aligned();
    fs::copy(out.join("sample.bam"), pool.root.join("s.bam")).expect("it can be copied");
    fs::copy(out.join("sample.bam.bai"), pool.root.join("s.bam.bai")).expect("it can be copied");
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_node(node));
    pool.wait_until_seen(&[true; 3]);
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..6 {
        let served = pool.nodes[1].as_ref().expect("it was started");
        let ticket = ask(served, "/reads/s.bam?referenceName=chr1", &[]).body;
        let ticket: serde_json::Value = serde_json::from_str(&ticket).expect("it is JSON");
        let urls = ticket["htsget"]["urls"].as_array().expect("a list");
        let place = |url: &serde_json::Value| url["url"].as_str().expect("text").to_owned();
        let here: Vec<&serde_json::Value> = urls.iter().filter(|url| place(url).starts_with("http")).collect();
        assert!(here.iter().all(|url| place(url) == place(here[0])), "{ticket}");
        let bearer = format!("authorization: {}", here[0]["headers"]["Authorization"].as_str().expect("text"));
        let data = ["--header", &bearer, "--output", "/dev/null"];
        assert_eq!(curl_status(&place(here[0]), &data), "200");
        let host = place(here[0]).trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        *places.entry(host).or_default() += 1;
    }
    let expected: BTreeMap<String, usize> = pool.addresses.iter().map(|address| (address.clone(), 2)).collect();
    assert_eq!(places, expected);
}

fn curl_status(url: &str, words: &[&str]) -> String {
    let mut curl = Tool::need("curl").command();
    let done = succeed(curl.args(["--silent", "--write-out", "%{http_code}"]).args(words).arg(url));
    String::from_utf8(done.stdout).expect("it is text")
}

#[test]
fn the_name_of_a_pool_has_the_addresses_of_nodes_that_are_there_in_turns() {
    needs!("python3");
    let mut pool = Pool::describe("pool-names", "round-robin", 3, &[]);
    let host = |address: &str| address.split(':').next().unwrap_or_default().to_owned();
    let responder = format!("{}:5353", host(&pool.addresses[0]));
    pool.start_node(1);
    pool.start_node(2);
    pool.words.extend(["--dns".to_owned(), responder.clone()]);
    pool.start_node(0);
    pool.wait_until_seen(&[true; 3]);
    let asked = |name: &str, count: &str| {
        lines(&run_python("pool_client.py", Path::new("-"), &[&responder, "resolve_name", name, count]))
    };
    let told = asked("storage", "6");
    for address in &pool.addresses {
        assert_eq!(told.iter().filter(|line| line.starts_with(&format!("0 {}", host(address)))).count(), 2, "{told:?}");
    }
    assert!(told.iter().all(|line| line.split(' ').count() == 4), "{told:?}");
    assert_eq!(asked("elsewhere", "1"), ["5"]);
    pool.nodes[2] = None;
    pool.wait_until_seen(&[true, true, false]);
    let told = asked("Storage", "4");
    assert!(
        told.iter().all(|line| line.split(' ').count() == 3 && !line.contains(&host(&pool.addresses[2]))),
        "{told:?}"
    );
}

#[test]
fn a_pool_lets_in_who_has_a_token_and_nodes_by_their_secret() {
    needs!("python3");
    let directory = scratch::directory("pool-secret");
    let [tokens, token, secret, short] = ["tokens", "token", "secret", "short"].map(|name| directory.join(name));
    fs::write(&token, godwit().args(["token", "alice", "--tokens", text(&tokens)]).succeeds().stdout).expect("written");
    fs::write(&secret, "0123456789abcdef0123456789abcdef\n").expect("it can be written");
    fs::write(&short, "0123\n").expect("it can be written");
    let mut pool = Pool::describe("pool-tokens", "connections", 2, &["--tokens", text(&tokens)]);
    let serve = |more: &[&str]| {
        let words = ["serve", "--root", text(&pool.root), "--listen", "127.0.0.1:0", "--pool", text(&pool.file)];
        godwit().args(words).args(["--tokens", text(&tokens)]).args(more).run()
    };
    serve(&[]).refuses(&[2], &["--pool-secret"]);
    serve(&["--pool-secret", text(&short)]).refuses(&[3], &["short", "32"]);
    pool.words.extend(["--pool-secret".to_owned(), text(&secret).to_owned()]);
    (0..2).for_each(|node| pool.start_node(node));
    fs::write(pool.root.join("f"), "content").expect("it can be written");
    let target = pool.mine.join("f");
    pool.godwit(&["copy", &Pool::url("f"), text(&target), "--wait", "5s"]).run().refuses(&[6], &["token"]);
    let words = ["copy", &Pool::url("f"), text(&target), "--token-file", text(&token)];
    // The second one by itself gives what the first one would.
    pool.godwit(&words).succeeds();
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "content");
    pool.nodes[0] = None;
    pool.godwit(&["query", "--at", &Pool::url(""), "SELECT 1", "--token-file", text(&token)]).succeeds();
}

#[test]
fn nodes_that_talk_nonsense_are_done_without() {
    needs!("python3");
    let mut pool = Pool::describe("pool-nonsense", "connections", 2, &[]);
    let liar = TcpListener::bind(&pool.addresses[0]).expect("the address is free");
    std::thread::spawn(move || {
        for connection in liar.incoming() {
            let Ok(mut connection) = connection else { return };
            std::thread::spawn(move || while connection.write_all(&[0x42; 4096]).is_ok() {});
        }
    });
    pool.start_node(1);
    pool.wait_until_seen(&[false, true]);
    fs::write(pool.root.join("f"), "content").expect("it can be written");
    let target = pool.mine.join("f");
    pool.godwit(&["copy", &Pool::url("f"), text(&target)]).succeeds();
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "content");
}

#[test]
fn what_cannot_be_a_pool_is_told() {
    let directory = scratch::directory("pool-refusals");
    let file = directory.join("pool.toml");
    fs::write(&file, "name = \"s\"\n\n[[node]]\nurl = \"grpc+tcp://127.0.0.1:1\"\n").expect("it can be written");
    let copy = |words: &[&str]| godwit().arg("copy").args(words).args(["--pool", text(&file), "--wait", "1s"]).run();
    copy(&["godwit+pool://other/f", "f"]).refuses(&[2], &["pool s, not other"]);
    copy(&["godwit+pool://s/f", "grpc+tcp://127.0.0.1:2/"]).refuses(&[2], &["by way of this machine"]);
    copy(&["godwit+pool://s/f", "f", "--relay", "grpc+tcp://127.0.0.1:2"]).refuses(&[2], &["--relay"]);
    copy(&["grpc+tcp://127.0.0.1:2/f", "f", "--also-from", "godwit+pool://s/f"]).refuses(&[2], &["not a pool"]);
    fs::write(&file, "name = \"s\"\npolicy = \"any\"\n").expect("it can be written");
    copy(&["godwit+pool://s/f", "f"]).refuses(&[2], &["line 2", "round-robin, connections, cpu, throughput"]);
    fs::remove_file(&file).expect("it is there");
    copy(&["godwit+pool://s/f", "f"]).refuses(&[4], &["pool.toml"]);
    godwit().args(["copy", "godwit+pool://no.such.name.invalid/f", "f"]).run().refuses(&[6], &["no.such.name.invalid"]);
}
