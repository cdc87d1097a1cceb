//! A pool of servers: how clients are assigned to members, and which requests are rejected.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{self, GodwitCommand, GodwitProcess, godwit};
use godwit_tests::data_server::{DataServer, own_loopback_host};
use godwit_tests::host_network::HostNetwork;
use godwit_tests::processes::send_signal;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use crate::run::formats::{columns_script, pyarrow_python, run_python, to_lines};
use crate::serve::authentication::self_signed_certificate_for;
use crate::serve::http_client::get;
pub(super) use crate::transfer::copies::path_text;

const EXIT_REMOTE: i32 = 6;

/// A pool whose members run on this machine: each on a host of a network, or with its own address in 127.0.0.0/8, which is known
/// before the member starts and which no other test uses.
pub(super) struct ServerPool {
    pub(super) root: PathBuf,
    pub(super) client_directory: PathBuf,
    pub(super) description: PathBuf,
    server_args: Vec<String>,
    addresses: Vec<String>,
    pub(super) members: Vec<Option<DataServer>>,
    /// The hosts of the members; `None` if they have loopback addresses.
    pub(super) network: Option<HostNetwork>,
}

impl ServerPool {
    /// Creates a pool with `count` members and starts none of them.
    pub(super) fn new_stopped(label: &str, policy: &str, count: usize, words: &[&str]) -> Self {
        let addresses = (0..count).map(|_| format!("{}:8815", own_loopback_host())).collect();
        Self::with_addresses(label, policy, addresses, words)
    }

    fn with_addresses(label: &str, policy: &str, addresses: Vec<String>, words: &[&str]) -> Self {
        let directory = scratch::directory(label);
        let (root, client_directory, description) =
            (directory.join("root"), directory.join("mine"), directory.join("pool.toml"));
        for made in [&root, &client_directory] {
            fs::create_dir(made).expect("it can be made");
        }
        let nodes: String =
            addresses.iter().map(|address| format!("\n[[node]]\nurl = \"grpc+tcp://{address}\"\n")).collect();
        fs::write(&description, format!("name = \"storage\"\npolicy = \"{policy}\"\n{nodes}"))
            .expect("it can be written");
        let own = ["--pool".to_owned(), path_text(&description).to_owned()];
        let server_args = own.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect();
        Self {
            root,
            client_directory,
            description,
            server_args,
            members: addresses.iter().map(|_| None).collect(),
            addresses,
            network: None,
        }
    }

    /// Starts a pool, and waits until each member reports that all members are healthy.
    pub(super) fn start(label: &str, policy: &str, count: usize, words: &[&str]) -> Self {
        let mut pool = Self::new_stopped(label, policy, count, words);
        pool.start_members();
        pool
    }

    /// Starts a pool with a member on each host of a network, as [`Self::start`] does.
    pub(super) fn start_on_hosts(network: HostNetwork, label: &str, policy: &str, words: &[&str]) -> Self {
        let addresses = (0..network.hosts.len()).map(|host| format!("{}:8815", HostNetwork::address(host))).collect();
        // The traffic between the namespaces does not leave this machine.
        let words = [words, &["--insecure"]].concat();
        let mut pool = Self { network: Some(network), ..Self::with_addresses(label, policy, addresses, &words) };
        pool.start_members();
        pool
    }

    fn start_members(&mut self) {
        (0..self.members.len()).for_each(|node| self.start_member(node));
        self.wait_until_health_is(&vec![true; self.members.len()]);
    }

    pub(super) fn start_member(&mut self, node: usize) {
        self.start_member_with(node, &[]);
    }

    /// Starts a member with these environment variables.
    fn start_member_with(&mut self, node: usize, settings: &[(&str, &str)]) {
        let words: Vec<&str> = self.server_args.iter().map(String::as_str).collect();
        let mut command = match &self.network {
            Some(network) => network.hosts[node].command(binary::path()),
            None => Command::new(binary::path()),
        };
        command.envs(settings.iter().copied());
        self.members[node] = Some(DataServer::start_command(command, &self.root, &self.addresses[node], &words));
    }

    pub(super) fn member_process_id(&self, node: usize) -> u32 {
        self.members[node].as_ref().expect("it was started").process_id()
    }

    /// Waits until each running member reports the given health of all members.
    pub(super) fn wait_until_health_is(&self, healthy: &[bool]) {
        let expected: String = healthy.iter().map(|there| if *there { '1' } else { '0' }).collect();
        let python = pyarrow_python().expect("tools/python-packages.sh made it").command();
        for (node, _) in healthy.iter().enumerate().filter(|(_, there)| **there) {
            let mut command = match &self.network {
                Some(network) => network.clients.command(python.get_program()),
                None => Command::new(python.get_program()),
            };
            command.arg(columns_script("pool_client.py"));
            run_checked(command.args(["-", &self.addresses[node], "wait_until_health_is", &expected]));
        }
    }

    pub(super) fn url(path: &str) -> String {
        format!("godwit+pool://storage/{path}")
    }

    /// Returns a godwit command line whose environment defines the pool.
    pub(super) fn command(&self, words: &[&str]) -> GodwitCommand {
        godwit().args(words).args(["--pool", path_text(&self.description)])
    }

    /// Returns the number of connections that a process has to each member.
    pub(super) fn connections_of_process(&self, process: u32) -> Vec<usize> {
        let peers = peer_addresses(process);
        self.addresses.iter().map(|address| peers.iter().filter(|peer| *peer == address).count()).collect()
    }

    /// Returns the index of the member to which a process has the most connections.
    pub(super) fn member_of_process(&self, process: u32) -> Option<usize> {
        let each = self.connections_of_process(process).into_iter().enumerate();
        each.filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count).map(|(node, _)| node)
    }
}

/// Returns the peer addresses of a process's connections over IPv4, which gRPC clients open by IPv6 sockets
/// (proc_pid_net(5)).
fn peer_addresses(process: u32) -> Vec<String> {
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
        // The file contains addresses in the byte order of the machine. These tests run on little-endian machines.
        let address = address.strip_prefix("0000000000000000FFFF0000").unwrap_or(address);
        let octets = u32::from_str_radix(address, 16).ok()?.to_le_bytes().map(|octet| octet.to_string());
        Some(format!("{}:{}", octets.join("."), u16::from_str_radix(port, 16).ok()?))
    };
    table.lines().filter_map(row).collect()
}

/// Starts copies that are slow enough to run at the same time.
pub(super) fn start_slow_copies(pool: &ServerPool, label: &str, count: usize) -> Vec<GodwitProcess> {
    let copy = |number: usize| {
        let target = pool.client_directory.join(format!("{label}-{number}"));
        let words =
            ["copy", &ServerPool::url("f"), path_text(&target), "--streams", "1", "--rate", "10M", "--mode", "fast"];
        pool.command(&words).spawn()
    };
    (0..count).map(copy).collect()
}

/// Counts the copies of each member, once all are running.
pub(super) fn copies_per_member(pool: &ServerPool, label: &str, copies: &[GodwitProcess]) -> Vec<usize> {
    let is_at_work = |number: usize| pool.client_directory.join(format!(".{label}-{number}.godwit-journal")).exists();
    wait_until("all copies are at work", || (0..copies.len()).all(is_at_work));
    let mut each = vec![0; pool.members.len()];
    for copy in copies {
        let mut node = None;
        wait_until("it has a connection", || {
            node = pool.member_of_process(copy.process_id());
            node.is_some()
        });
        each[node.expect("it was waited for")] += 1;
    }
    each
}

/// Kills the running copies at the end of a test.
pub(super) fn kill_copies(copies: Vec<GodwitProcess>) {
    for copy in copies {
        send_signal(copy.process_id(), libc::SIGKILL);
        copy.wait_with_output();
    }
}

#[test]
fn clients_that_start_at_once_are_balanced_evenly() {
    needs!("python3");
    for policy in ["round-robin", "connections"] {
        let pool = ServerPool::start("pool-burst", policy, 3, &[]);
        fs::write(pool.root.join("f"), vec![7; 40_000_000]).expect("it can be written");
        let copies = start_slow_copies(&pool, "a", 12);
        let each = copies_per_member(&pool, "a", &copies);
        // In simulations, in which the first member responds in time, all counts are equal. On a busy machine, other
        // members also grant leases, so accept a difference of one.
        assert!(each.iter().all(|count| (3..=5).contains(count)), "{policy}: {each:?}");
        kill_copies(copies);
    }
}

#[test]
fn a_pool_member_with_half_the_bandwidth_gets_fewer_clients() {
    needs!("python3");
    let pool = ServerPool::new_stopped("pool-capacity", "throughput", 3, &[]);
    let text = fs::read_to_string(&pool.description).expect("it was written");
    let nodes: Vec<String> = text
        .split_inclusive("8815\"\n")
        .zip(["8G", "8G", "2G"])
        .map(|(node, capacity)| format!("{node}capacity = \"{capacity}\"\n"))
        .collect();
    fs::write(&pool.description, nodes.concat()).expect("it can be written");
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_member(node));
    pool.wait_until_health_is(&[true; 3]);
    fs::write(pool.root.join("f"), vec![7; 40_000_000]).expect("it can be written");
    let copies = start_slow_copies(&pool, "a", 9);
    let each = copies_per_member(&pool, "a", &copies);
    kill_copies(copies);
    assert!(each[2] <= 2, "{each:?}");
}

#[test]
fn stock_clients_receive_all_pool_members_and_each_accepts_the_ticket() {
    needs!("python3");
    let pool = ServerPool::start("pool-stock", "round-robin", 3, &[]);
    let rows: String = (0..5000).map(|row| format!("chr1\t{row}\t{}\n", row + 5)).collect();
    fs::write(pool.root.join("a.bed"), rows).expect("it can be written");
    let told =
        to_lines(&run_python("pool_client.py", Path::new("-"), &[&pool.addresses[1], "fetch_from_members", "a.bed"]));
    let first: Vec<&String> = told.iter().filter(|line| line.starts_with("first ")).collect();
    // Each of six consecutive clients starts with the next member, so each member is the first one for two clients.
    for address in &pool.addresses {
        assert_eq!(first.iter().filter(|line| line.ends_with(address.as_str())).count(), 2, "{told:?}");
    }
    assert_eq!(told.iter().filter(|line| *line == "rows 5000 5000 5000").count(), 6, "{told:?}");
}

#[test]
fn an_htsget_ticket_names_the_granted_pool_member_which_accepts_it() {
    needs!("python3", "curl", "bwa", "samtools");
    let pool = ServerPool::new_stopped("pool-htsget", "round-robin", 3, &[]);
    let (_, out) = crate::run::formats::aligned_sample();
    fs::copy(out.join("sample.bam"), pool.root.join("s.bam")).expect("it can be copied");
    fs::copy(out.join("sample.bam.bai"), pool.root.join("s.bam.bai")).expect("it can be copied");
    let mut pool = pool;
    (0..3).for_each(|node| pool.start_member(node));
    pool.wait_until_health_is(&[true; 3]);
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..6 {
        let served = pool.members[1].as_ref().expect("it was started");
        let ticket = get(served, "/reads/s.bam?referenceName=chr1", &[]).body;
        let ticket: serde_json::Value = serde_json::from_str(&ticket).expect("it is JSON");
        let urls = ticket["htsget"]["urls"].as_array().expect("a list");
        let place = |url: &serde_json::Value| url["url"].as_str().expect("text").to_owned();
        let here: Vec<&serde_json::Value> = urls.iter().filter(|url| place(url).starts_with("http")).collect();
        assert!(here.iter().all(|url| place(url) == place(here[0])), "{ticket}");
        let bearer = format!("authorization: {}", here[0]["headers"]["Authorization"].as_str().expect("text"));
        let data = ["--header", &bearer, "--output", "/dev/null"];
        assert_eq!(http_status(&place(here[0]), &data), "200");
        let host = place(here[0]).trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
        *places.entry(host).or_default() += 1;
    }
    let expected: BTreeMap<String, usize> = pool.addresses.iter().map(|address| (address.clone(), 2)).collect();
    assert_eq!(places, expected);
}

fn http_status(url: &str, words: &[&str]) -> String {
    let mut curl = Tool::require("curl").command();
    let done = run_checked(curl.args(["--silent", "--write-out", "%{http_code}"]).args(words).arg(url));
    String::from_utf8(done.stdout).expect("it is text")
}

#[test]
fn the_pool_name_resolves_to_healthy_members_in_rotation() {
    needs!("python3");
    let mut pool = ServerPool::new_stopped("pool-names", "round-robin", 3, &[]);
    let host = |address: &str| address.split(':').next().unwrap_or_default().to_owned();
    let responder = format!("{}:5353", host(&pool.addresses[0]));
    pool.start_member(1);
    pool.start_member(2);
    pool.server_args.extend(["--dns".to_owned(), responder.clone()]);
    pool.start_member(0);
    pool.wait_until_health_is(&[true; 3]);
    let asked = |name: &str, count: &str| {
        to_lines(&run_python("pool_client.py", Path::new("-"), &[&responder, "resolve_name", name, count]))
    };
    // Each healthy member is the first one of two answers.
    let check_rotation = |told: &[String], healthy: &[String]| {
        for address in healthy {
            let first = format!("0 {}", host(address));
            assert_eq!(told.iter().filter(|line| line.starts_with(&first)).count(), 2, "{told:?}");
        }
        assert!(told.iter().all(|line| line.split(' ').count() == 1 + healthy.len()), "{told:?}");
    };
    check_rotation(&asked("storage", "6"), &pool.addresses);
    assert_eq!(asked("elsewhere", "1"), ["5"]);
    pool.members[2] = None;
    pool.wait_until_health_is(&[true, true, false]);
    check_rotation(&asked("Storage", "4"), &pool.addresses[..2]);
}

#[test]
fn a_pool_authenticates_clients_by_token_and_members_by_their_secret() {
    needs!("python3");
    let directory = scratch::directory("pool-secret");
    let [tokens, token, secret, short] = ["tokens", "token", "secret", "short"].map(|name| directory.join(name));
    fs::write(&token, godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout)
        .expect("written");
    fs::write(&secret, "0123456789abcdef0123456789abcdef\n").expect("it can be written");
    fs::write(&short, "0123\n").expect("it can be written");
    let mut pool = ServerPool::new_stopped("pool-tokens", "connections", 2, &["--tokens", path_text(&tokens)]);
    let serve = |more: &[&str]| {
        let words = [
            "serve",
            "--root",
            path_text(&pool.root),
            "--listen",
            "127.0.0.1:0",
            "--pool",
            path_text(&pool.description),
        ];
        godwit().args(words).args(["--tokens", path_text(&tokens)]).args(more).run()
    };
    serve(&[]).assert_rejected(&[2], &["--pool-secret"]);
    serve(&["--pool-secret", path_text(&short)]).assert_rejected(&[3], &["short", "32"]);
    pool.server_args.extend(["--pool-secret".to_owned(), path_text(&secret).to_owned()]);
    (0..2).for_each(|node| pool.start_member(node));
    fs::write(pool.root.join("f"), "content").expect("it can be written");
    let target = pool.client_directory.join("f");
    pool.command(&["copy", &ServerPool::url("f"), path_text(&target), "--wait", "5s"])
        .run()
        .assert_rejected(&[6], &["token"]);
    let words = ["copy", &ServerPool::url("f"), path_text(&target), "--token-file", path_text(&token)];
    // If the first member is stopped, the second member serves its files too.
    pool.command(&words).run_ok();
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "content");
    pool.members[0] = None;
    pool.command(&["query", "--at", &ServerPool::url(""), "SELECT 1", "--token-file", path_text(&token)]).run_ok();
}

#[test]
fn pool_members_with_invalid_answers_are_not_used() {
    needs!("python3");
    let mut pool = ServerPool::new_stopped("pool-nonsense", "connections", 2, &[]);
    let liar = TcpListener::bind(&pool.addresses[0]).expect("the address is free");
    std::thread::spawn(move || {
        for connection in liar.incoming() {
            let Ok(mut connection) = connection else { return };
            std::thread::spawn(move || while connection.write_all(&[0x42; 4096]).is_ok() {});
        }
    });
    pool.start_member(1);
    pool.wait_until_health_is(&[false, true]);
    fs::write(pool.root.join("f"), "content").expect("it can be written");
    let target = pool.client_directory.join("f");
    pool.command(&["copy", &ServerPool::url("f"), path_text(&target)]).run_ok();
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "content");
}

#[test]
fn what_cannot_be_a_pool_is_told() {
    let directory = scratch::directory("pool-refusals");
    let file = directory.join("pool.toml");
    fs::write(&file, "name = \"s\"\n\n[[node]]\nurl = \"grpc+tcp://127.0.0.1:1\"\n").expect("it can be written");
    let copy =
        |words: &[&str]| godwit().arg("copy").args(words).args(["--pool", path_text(&file), "--wait", "1s"]).run();
    copy(&["godwit+pool://other/f", "f"]).assert_rejected(&[2], &["pool s, not other"]);
    copy(&["godwit+pool://s/f", "grpc+tcp://127.0.0.1:2/"]).assert_rejected(&[2], &["by way of this host"]);
    copy(&["godwit+pool://s/f", "f", "--relay", "grpc+tcp://127.0.0.1:2"]).assert_rejected(&[2], &["--relay"]);
    copy(&["grpc+tcp://127.0.0.1:2/f", "f", "--also-from", "godwit+pool://s/f"])
        .assert_rejected(&[2], &["do not support a pool"]);
    fs::write(&file, "name = \"s\"\npolicy = \"any\"\n").expect("it can be written");
    copy(&["godwit+pool://s/f", "f"]).assert_rejected(&[2], &["line 2", "round-robin, connections, cpu, throughput"]);
    fs::remove_file(&file).expect("it is there");
    copy(&["godwit+pool://s/f", "f"]).assert_rejected(&[4], &["pool.toml"]);
    godwit()
        .args(["copy", "godwit+pool://no.such.name.invalid/f", "f"])
        .run()
        .assert_rejected(&[6], &["no.such.name.invalid"]);
}

#[test]
fn statements_run_at_a_member_that_has_the_sql_engine_and_otherwise_fail_with_one_error() {
    needs!("python3");
    let without = [("GODWIT_SQL_PROGRAM", "/no/such/program")];
    let mut pool = ServerPool::new_stopped("pool-sql", "round-robin", 3, &[]);
    fs::write(pool.root.join("genes.csv"), "name,contig\nA,chr1\nB,chr2\nC,chr2\nD,chr3\n").expect("it can be written");
    let sql = "SELECT contig, count(*) AS genes FROM genes WHERE name <> $hidden GROUP BY contig ORDER BY contig";
    let words = ["query", sql, "--parameter", "hidden=D", "--format", "csv", "--at", &ServerPool::url("")];
    let query = |pool: &ServerPool| pool.command(&words).run();
    (0..2).for_each(|node| pool.start_member_with(node, &without));
    pool.start_member(2);
    pool.wait_until_health_is(&[true; 3]);
    for _ in 0..3 {
        let done = query(&pool);
        assert_eq!(done.stdout, "contig,genes\nchr1,1\nchr2,2\n", "{}", done.describe());
        assert!(!done.stderr.contains("lost"), "{}", done.describe());
    }
    pool.members[2] = None;
    pool.start_member_with(2, &without);
    pool.wait_until_health_is(&[true; 3]);
    let failed = query(&pool);
    failed.assert_rejected(&[EXIT_REMOTE], &["godwit-sql", "beside godwit"]);
    assert_eq!(failed.stderr.trim_end().lines().count(), 1, "{}", failed.describe());
}

#[test]
fn a_server_that_is_not_in_its_pool_file_warns() {
    let pool = ServerPool::new_stopped("pool-unlisted", "round-robin", 1, &[]);
    let words: Vec<&str> = pool.server_args.iter().map(String::as_str).collect();
    let said = pool.client_directory.join("said");
    let file = fs::File::create(&said).expect("it can be made");
    let address = format!("{}:0", own_loopback_host());
    let serve = godwit().arg("serve").arg("--root").arg(&pool.root).args(["--listen", &address]).args(words);
    let server = serve.stderr(file).end_with_this_thread().spawn();
    wait_until("the warning", || {
        fs::read_to_string(&said).is_ok_and(|said| said.contains("pool storage: this server is not one of its members"))
    });
    send_signal(server.process_id(), libc::SIGTERM);
    server.wait_with_output();
}

#[test]
fn members_with_an_untrusted_certificate_are_logged_once_by_members_and_clients() {
    needs!("openssl", "python3");
    let directory = scratch::directory("pool-untrusted");
    fs::write(directory.join("genes.csv"), "name\nA\n").expect("it can be written");
    let hosts = [own_loopback_host(), own_loopback_host()];
    let certificates = hosts.clone().map(|host| {
        let own = directory.join(&host);
        fs::create_dir(&own).expect("it can be made");
        self_signed_certificate_for(&own, &format!("IP:{host}"))
    });
    let urls = hosts.clone().map(|host| format!("grpc+tls://{host}:8815"));
    let nodes = urls.clone().map(|url| format!("\n[[node]]\nurl = \"{url}\"\n"));
    let pool = directory.join("pool.toml");
    fs::write(&pool, format!("name = \"storage\"\n{}", nodes.concat())).expect("it can be written");
    let log = |member: usize| fs::read_to_string(directory.join(format!("log{member}"))).unwrap_or_default();
    // Each member trusts only its own certificate.
    let start = |member: usize| {
        let (certificate, key) = &certificates[member];
        let file = fs::File::create(directory.join(format!("log{member}"))).expect("it can be made");
        let serve = godwit().arg("serve").arg("--root").arg(&directory).args(["--pool", path_text(&pool)]);
        let serve = serve.args(["--listen", &format!("{}:8815", hosts[member]), "--ca", path_text(certificate)]);
        let serve = serve.args(["--tls-cert", path_text(certificate), "--tls-key", path_text(key)]);
        serve.stderr(file).end_with_this_thread().spawn()
    };
    let servers = [0, 1].map(start);
    let rejected = |member: usize| format!("{} receives no new streams: the certificate of", urls[member]);
    for member in [0, 1] {
        wait_until("the other member is logged", || log(member).contains(&rejected(1 - member)));
    }
    let not_used = format!("pool storage: {} is not used: the certificate of {}", urls[0], hosts[0]);
    let query = |ca: &Path, wait: &str| {
        let words =
            ["query", "SELECT name FROM genes", "--format", "csv", "--at", &ServerPool::url(""), "--wait", wait];
        godwit().args(words).args(["--pool", path_text(&pool), "--ca", path_text(ca)]).run()
    };
    let done = query(&certificates[1].0, "60s");
    assert_eq!(done.stdout, "name\nA\n", "{}", done.describe());
    assert_eq!(done.stderr.matches(&not_used).count(), 1, "{}", done.describe());
    assert!(done.stderr.contains("--ca"), "{}", done.describe());
    let stranger = directory.join("stranger");
    fs::create_dir(&stranger).expect("it can be made");
    let stranger = self_signed_certificate_for(&stranger, "IP:127.0.0.1").0;
    query(&stranger, "60s").assert_rejected(&[EXIT_REMOTE], &["is not trusted", "--ca"]);

    let script = "import logging, sys, godwit\nlogging.basicConfig(format='%(message)s')\n\
        with godwit.connect('godwit+pool://storage', pool=sys.argv[1], ca=sys.argv[2], wait=60) as session:\n    \
        print(session.sql('SELECT name FROM genes').to_arrow()['name'].to_pylist())\n";
    let python = |ca: &Path| {
        let mut python = crate::python::python_command("columns");
        python.args(["-c", script, path_text(&pool), path_text(ca)]).output().expect("python starts")
    };
    let done = python(&certificates[1].0);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "['A']\n", "{said}");
    let not_used = format!("pool storage: {0} is not used: the certificate of {0} is not trusted", urls[0]);
    assert!(said.matches(&not_used).count() == 1 && said.contains("ca="), "{said}");
    let said = python(&stranger).stderr;
    assert!(String::from_utf8_lossy(&said).contains("RemoteError: the certificate of"), "{said:?}");

    for (member, server) in servers.into_iter().enumerate() {
        send_signal(server.process_id(), libc::SIGTERM);
        server.wait_with_output();
        assert_eq!(log(member).matches(&rejected(1 - member)).count(), 1, "{}", log(member));
    }
}
