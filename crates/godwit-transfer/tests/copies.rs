//! Copies between two ends in one process, over real sockets: what arrives is what was there, whatever happens on the way.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use godwit_flight::{
    Access, Address, Catalog, Client, Dataset, DatasetError, FlightError, Gate, Node, NodeOptions, Server, Tuning,
};
use godwit_transfer::place::Place;
use godwit_transfer::tune::CopyMode;
use godwit_transfer::{
    Compression, CopyEvent, CopyObserver, CopyOptions, CopySummary, Credentials, Files, FilesOptions, Links,
    RELAY_CACHE_LEAST_BYTES, References, RelayCache, TransferError, copy,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[path = "copies/trees.rs"]
mod trees;

const MIB: usize = 1 << 20;

/// A server of files alone.
#[derive(Debug)]
struct NoDatasets;

impl Catalog for NoDatasets {
    fn names(&self) -> Result<Vec<String>, DatasetError> {
        Ok(Vec::new())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
        Err(DatasetError::NotFound { name: name.to_owned() })
    }
}

struct Serving {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn start(root: &Path, at: &str) -> Self {
        Self::with(root, at, FilesOptions { writable: true, ..FilesOptions::default() }).await
    }

    async fn with(root: &Path, at: &str, options: FilesOptions) -> Self {
        let files = Arc::new(Files::new(root.to_owned(), options).unwrap());
        let node = Node::with_files(Arc::new(NoDatasets), None, Some(files), NodeOptions::default());
        let wanted = Address::Tcp(at.parse().unwrap());
        let routes = node.routes();
        let server = loop {
            let bound =
                Server::bind_guarded(&wanted, node.clone(), routes.clone(), Gate::Open, None, Tuning::default());
            match bound.await {
                Ok(server) => break server,
                // The place of one that has just ended.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let Address::Tcp(address) = *server.address() else { panic!("it is TCP") };
        Self { address, task: tokio::spawn(server.serve()) }
    }

    fn place(&self, path: &str) -> Place {
        place(self.address, path)
    }

    async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

fn place(address: SocketAddr, path: &str) -> Place {
    Place::parse(&format!("grpc+tcp://{address}/{path}")).unwrap()
}

/// Ends a copy, or does something, when so many bytes are there.
#[derive(Default)]
struct Watch {
    events: Mutex<Vec<CopyEvent>>,
    stop_at: AtomicU64,
    cancelled: AtomicBool,
}

impl CopyObserver for Watch {
    fn event(&self, event: &CopyEvent) {
        if let CopyEvent::Copying { bytes, .. } = event {
            let stop_at = self.stop_at.load(Ordering::Relaxed);
            if stop_at > 0 && *bytes >= stop_at {
                self.cancelled.store(true, Ordering::Relaxed);
            }
        }
        self.events.lock().unwrap().push(event.clone());
    }
}

impl Watch {
    /// Bytes at the destination by the last report.
    fn copied_bytes(&self) -> u64 {
        let events = self.events.lock().unwrap();
        let of_last = |event: &CopyEvent| match event {
            CopyEvent::Copying { bytes, .. } => Some(*bytes),
            _ => None,
        };
        events.iter().rev().find_map(of_last).unwrap_or(0)
    }
}

fn options() -> CopyOptions {
    CopyOptions {
        check: Vec::new(),
        mode: CopyMode::Fast,
        bits_per_s: None,
        streams: Some(3),
        compress: Compression::None,
        include: Vec::new(),
        exclude: Vec::new(),
        sync: false,
        dry_run: false,
        patience: Duration::from_secs(20),
        strict: false,
        also_from: Vec::new(),
        relay: None,
        links: Links::Follow,
    }
}

async fn copied(from: &Place, to: &Place, options: &CopyOptions) -> Result<CopySummary, TransferError> {
    watched(from, to, options, &Watch::default()).await
}

async fn watched(from: &Place, to: &Place, options: &CopyOptions, watch: &Watch) -> Result<CopySummary, TransferError> {
    copy(std::slice::from_ref(from), to, &Credentials::default(), options, watch, &watch.cancelled).await
}

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    let mut bytes = vec![0; count];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

fn here(path: &Path) -> Place {
    Place::Here(path.to_owned())
}

/// Paths below a directory with content, mode and time.
fn tree(directory: &Path) -> Vec<(PathBuf, Vec<u8>, u32, i64)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::metadata(&path).unwrap();
        let content = if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let below = path.strip_prefix(directory).unwrap().to_owned();
        found.push((below, content, metadata.mode() & 0o777, metadata.mtime()));
    }
    found.sort();
    found
}

fn directories() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (there, mine) = (directory.path().join("there"), directory.path().join("mine"));
    fs::create_dir(&there).unwrap();
    fs::create_dir(&mine).unwrap();
    (directory, there, mine)
}

/// A directory of files of all kinds of sizes.
fn fill(directory: &Path) {
    fs::create_dir_all(directory.join("a/b")).unwrap();
    fs::create_dir(directory.join("empty")).unwrap();
    let sizes = [0, 1, 100, MIB - 1, MIB, MIB + 1, 3 * MIB, 5 * MIB + 12_345];
    for (seed, size) in (0..).zip(sizes) {
        fs::write(directory.join(format!("a/file{size}")), bytes(seed, size)).unwrap();
    }
    for number in 0..300 {
        fs::write(directory.join(format!("a/b/{number}")), bytes(number, (number * 37 % 5000) as usize)).unwrap();
    }
    fs::set_permissions(directory.join("a/file100"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(directory.join("a/b"), fs::Permissions::from_mode(0o750)).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(directory.join("a/file1")).unwrap().set_times(fs::FileTimes::new().set_modified(old)).unwrap();
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test);
}

#[test]
fn a_directory_arrives_as_it_is_both_ways_and_not_twice() {
    run(async {
        let (_keep, there, mine) = directories();
        fill(&there.join("d"));
        let served = Serving::start(&there, "127.0.0.1:0").await;
        let target = mine.join("d");
        let first = copied(&served.place("d"), &here(&target), &options()).await.unwrap();
        assert_eq!((first.files, first.same, first.kept_bytes), (308, 0, 0));
        assert_eq!(tree(&there.join("d")), tree(&target));
        let again = copied(&served.place("d"), &here(&target), &options()).await.unwrap();
        assert_eq!((again.files, again.same), (0, 308));
        // And back, to another place, compressed.
        let packed = CopyOptions { compress: Compression::Zstd, ..options() };
        let back = copied(&here(&target), &served.place("back"), &packed).await.unwrap();
        assert_eq!(back.files, 308);
        assert_eq!(tree(&target), tree(&there.join("back")));
        let again = copied(&here(&target), &served.place("back"), &options()).await.unwrap();
        assert_eq!((again.files, again.same), (0, 308));
        // Into a directory, one file.
        copied(&served.place("d/a/file1"), &here(&mine), &options()).await.unwrap();
        assert_eq!(fs::read(mine.join("file1")).unwrap(), bytes(1, 1));
    });
}

/// A copy that is stopped on the way, both ways; then another goes on with what is there.
async fn stopped(downloads: bool, change: impl Fn(&Path)) -> (CopySummary, Vec<u8>, Vec<u8>) {
    let (_keep, there, mine) = directories();
    let size = 48 * MIB + 321;
    let (source, target) =
        if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
    fs::write(&source, bytes(9, size)).unwrap();
    let served = Serving::start(&there, "127.0.0.1:0").await;
    let (from, to) = match downloads {
        true => (served.place("f"), here(&target)),
        false => (here(&source), served.place("f")),
    };
    let watch = Watch { stop_at: AtomicU64::new(12 << 20), ..Watch::default() };
    // Slow enough to be seen on its way.
    let slow = CopyOptions { bits_per_s: Some(300_000_000), ..options() };
    let stopped = watched(&from, &to, &slow, &watch).await;
    assert!(matches!(stopped, Err(TransferError::Interrupted)), "{stopped:?}");
    assert!(!target.exists());
    change(&source);
    let summary = copied(&from, &to, &options()).await.unwrap();
    let names = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(target.parent().unwrap()), ["f"], "nothing is left behind");
    (summary, fs::read(&source).unwrap(), fs::read(&target).unwrap())
}

#[test]
fn a_copy_that_was_stopped_goes_on_and_sends_nothing_twice() {
    for downloads in [true, false] {
        run(async {
            let (summary, expected, found) = stopped(downloads, |_| {}).await;
            assert!(expected == found);
            assert!(summary.kept_bytes >= 12 << 20, "{summary:?}");
        });
    }
}

#[test]
fn what_did_not_change_of_a_changed_source_is_kept() {
    for downloads in [true, false] {
        run(async {
            let (summary, expected, found) = stopped(downloads, |source| {
                let mut content = fs::read(source).unwrap();
                content[5] ^= 1;
                fs::write(source, content).unwrap();
            })
            .await;
            assert!(expected == found);
            assert!(summary.kept_bytes >= 8 << 20, "{summary:?}");
        });
    }
}

#[test]
fn a_server_that_is_started_anew_is_gone_on_with() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let size = 24 * MIB + 5;
            let (source, target) =
                if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
            fs::write(&source, bytes(3, size)).unwrap();
            let first = Serving::start(&there, "127.0.0.1:0").await;
            let address = first.address;
            let (from, to) = match downloads {
                true => (place(address, "f"), here(&target)),
                false => (here(&source), place(address, "f")),
            };
            let slow = CopyOptions { bits_per_s: Some(200_000_000), ..options() };
            let copying = tokio::spawn(async move { copied(&from, &to, &slow).await });
            tokio::time::sleep(Duration::from_millis(400)).await;
            first.end().await;
            let second = Serving::start(&there, &address.to_string()).await;
            let summary = copying.await.unwrap().unwrap();
            assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap(), "{summary:?}");
            second.end().await;
        });
    }
}

/// A way to a server on which a bit is flipped now and then.
async fn flipping(server: SocketAddr, every_bytes: u64, flips: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (passed, flipped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(server).await.unwrap();
            let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
            for (mut from, mut to) in [(client_in, server_out), (server_in, client_out)] {
                let (passed, flipped) = (passed.clone(), flipped.clone());
                tokio::spawn(async move {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut buffer).await {
                        let before = passed.fetch_add(count as u64, Ordering::Relaxed);
                        let due = (before + count as u64) / every_bytes;
                        if count > 1000 && flipped.fetch_max(due.min(flips), Ordering::Relaxed) < due.min(flips) {
                            buffer[count / 2] ^= 4;
                        }
                        if to.write_all(&buffer[..count]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    address
}

#[test]
fn bits_that_flip_on_the_way_cost_their_blocks_and_are_never_written() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (source, target) =
                if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
            fs::write(&source, bytes(5, 40 * MIB)).unwrap();
            let served = Serving::start(&there, "127.0.0.1:0").await;
            let way = flipping(served.address, 6 << 20, 5).await;
            let (from, to) = match downloads {
                true => (place(way, "f"), here(&target)),
                false => (here(&source), place(way, "f")),
            };
            let summary = copied(&from, &to, &options()).await.unwrap();
            assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap());
            assert!(summary.damaged > 0, "{summary:?}");
        });
    }
}

#[test]
fn a_source_that_changes_meanwhile_is_told_and_gets_no_name() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (source, target) =
                if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
            fs::write(&source, bytes(5, 24 * MIB)).unwrap();
            let served = Serving::start(&there, "127.0.0.1:0").await;
            let (from, to) = match downloads {
                true => (served.place("f"), here(&target)),
                false => (here(&source), served.place("f")),
            };
            let slow = CopyOptions { bits_per_s: Some(200_000_000), ..options() };
            let copying = tokio::spawn(async move { copied(&from, &to, &slow).await });
            tokio::time::sleep(Duration::from_millis(300)).await;
            fs::OpenOptions::new().write(true).open(&source).unwrap().set_len(3 << 20).unwrap();
            let outcome = copying.await.unwrap();
            assert!(matches!(outcome, Err(TransferError::Changed { .. })), "{outcome:?}");
            assert!(!target.exists());
        });
    }
}

#[test]
fn selections_dry_runs_and_mirrors() {
    run(async {
        let (_keep, there, mine) = directories();
        fill(&there.join("d"));
        let served = Serving::start(&there, "127.0.0.1:0").await;
        let only = CopyOptions { include: vec!["file*".into()], exclude: vec!["file0".into()], ..options() };
        let watch = Watch::default();
        let dry = CopyOptions { dry_run: true, ..only.clone() };
        watched(&served.place("d"), &here(&mine.join("d")), &dry, &watch).await.unwrap();
        assert!(!mine.join("d").exists());
        let told = watch.events.lock().unwrap().iter().filter(|event| matches!(event, CopyEvent::Would { .. })).count();
        // Seven files, the directory and the one in it.
        assert_eq!(told, 9);
        let summary = copied(&served.place("d"), &here(&mine.join("d")), &only).await.unwrap();
        assert_eq!(summary.files, 7);
        assert!(!mine.join("d/a/b").exists() && !mine.join("d/a/file0").exists());
        // Wildcards of the server's side.
        let some = copied(&served.place("d/a/file1*"), &here(&mine.join("some")), &options()).await.unwrap();
        assert_eq!(some.files, 5);
        let none = copied(&served.place("d/*.bam"), &here(&mine.join("none")), &options()).await;
        assert!(matches!(none, Err(TransferError::NotFound { .. })), "{none:?}");
        // A mirror loses what its source does not have.
        fs::write(mine.join("d/surplus"), "x").unwrap();
        fs::create_dir(mine.join("d/more")).unwrap();
        fs::write(mine.join("d/more/surplus"), "x").unwrap();
        let mirror = CopyOptions { sync: true, ..options() };
        let summary = copied(&served.place("d"), &here(&mine.join("d")), &mirror).await.unwrap();
        assert_eq!(summary.removed, 3);
        assert_eq!(tree(&there.join("d")), tree(&mine.join("d")));
        fs::remove_file(mine.join("d/a/file100")).unwrap();
        copied(&here(&mine.join("d")), &served.place("d"), &mirror).await.unwrap();
        assert_eq!(tree(&there.join("d")), tree(&mine.join("d")));
    });
}

#[test]
fn paths_outside_the_root_and_hidden_ones_are_refused() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::write(mine.join("f"), "x").unwrap();
        fs::write(there.join(".secret"), "x").unwrap();
        let served = Serving::start(&there, "127.0.0.1:0").await;
        for path in ["../mine/f", ".secret", "a/../../mine/f"] {
            let read = copied(&served.place(path), &here(&mine.join("got")), &options()).await;
            assert!(matches!(read, Err(TransferError::Refused { .. })), "{path}: {read:?}");
            let written = copied(&here(&mine.join("f")), &served.place(path), &options()).await;
            assert!(matches!(written, Err(TransferError::Refused { .. })), "{path}: {written:?}");
        }
        // What is hidden is not listed either.
        let summary = copied(&served.place(""), &here(&mine.join("all")), &options()).await.unwrap();
        assert_eq!(summary.files, 0);
    });
}

#[test]
fn one_server_fetches_from_another_what_it_was_granted() {
    run(async {
        let (_keep, one, other) = directories();
        fill(&one.join("d"));
        let (from, to) = (Serving::start(&one, "127.0.0.1:0").await, Serving::start(&other, "127.0.0.1:0").await);
        let summary = copied(&from.place("d"), &to.place("kept/"), &options()).await.unwrap();
        assert_eq!(summary.files, 308);
        assert_eq!(tree(&one.join("d")), tree(&other.join("kept/d")));
        let again = copied(&from.place("d/a/file*"), &to.place("kept/d/a/"), &options()).await.unwrap();
        assert_eq!((again.files, again.same), (0, 8));
        // Who has it fetched sees how far it is.
        fs::write(one.join("long"), bytes(1, 24 * MIB)).unwrap();
        let watch = Watch::default();
        let slow = CopyOptions { bits_per_s: Some(100_000_000), ..options() };
        watched(&from.place("long"), &to.place("long"), &slow, &watch).await.unwrap();
        {
            let events = watch.events.lock().unwrap();
            assert!(matches!(events[0], CopyEvent::Started { files: 1, bytes: 25_165_824, .. }), "{:?}", events[0]);
            assert!(events.iter().any(|event| matches!(event, CopyEvent::Copying { bytes: 1.., .. })), "{events:?}");
        }
        let refused = copied(&from.place("../x"), &to.place("x"), &options()).await;
        assert!(matches!(refused, Err(TransferError::Refused { .. })), "{refused:?}");
    });
}

#[test]
fn polite_and_fair_copies_arrive_too() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::write(there.join("f"), bytes(2, 4 * MIB + 3)).unwrap();
        let served = Serving::start(&there, "127.0.0.1:0").await;
        for mode in [CopyMode::Polite, CopyMode::Fair] {
            let target = mine.join(format!("{mode:?}"));
            let manner = CopyOptions { mode, streams: None, ..options() };
            copied(&served.place("f"), &here(&target), &manner).await.unwrap();
            copied(&here(&target), &served.place(&format!("{mode:?}")), &manner).await.unwrap();
            assert!(fs::read(there.join(format!("{mode:?}"))).unwrap() == bytes(2, 4 * MIB + 3));
        }
    });
}

/// Ends a server when so many bytes are there.
struct Ends {
    at: u64,
    server: Mutex<Option<Serving>>,
    ended: AtomicBool,
}

impl CopyObserver for Ends {
    fn event(&self, event: &CopyEvent) {
        if let CopyEvent::Copying { bytes, .. } = event
            && *bytes >= self.at
            && let Some(server) = self.server.lock().unwrap().take()
        {
            server.task.abort();
            self.ended.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_file_comes_from_several_servers_and_those_that_end_are_done_without() {
    for ends in [0, 1] {
        run(async {
            let (_keep, there, mine) = directories();
            let names = ["one", "two", "three"];
            for name in names {
                fs::create_dir(there.join(name)).unwrap();
                fs::write(there.join(name).join("f"), bytes(7, 48 * MIB + 99)).unwrap();
            }
            let mut servers = Vec::new();
            for name in names {
                servers.push(Serving::start(&there.join(name), "127.0.0.1:0").await);
            }
            let places: Vec<_> = servers.iter().map(|server| server.place("f")).collect();
            let slow = CopyOptions { bits_per_s: Some(300_000_000), also_from: places[1..].to_vec(), ..options() };
            let ends =
                Ends { at: 12 << 20, server: Mutex::new(Some(servers.remove(ends))), ended: AtomicBool::new(false) };
            let never = AtomicBool::new(false);
            let target = here(&mine.join("f"));
            copy(&places[..1], &target, &Credentials::default(), &slow, &ends, &never).await.unwrap();
            assert!(ends.ended.load(Ordering::Relaxed));
            assert!(fs::read(mine.join("f")).unwrap() == bytes(7, 48 * MIB + 99));
            // One that is gone already is told of.
            let watch = Watch::default();
            let again = watched(&places[0], &here(&mine.join("again")), &slow, &watch).await.unwrap();
            assert_eq!((again.files, again.damaged), (1, 0));
            let events = watch.events.lock().unwrap();
            assert!(matches!(events[0], CopyEvent::Warning { .. }), "{:?}", events[0]);
            assert!(events.iter().any(|event| matches!(event, CopyEvent::Started { servers: 2, .. })));
        });
    }
}

#[test]
fn a_server_with_other_bytes_or_files_spoils_nothing() {
    run(async {
        let (_keep, there, mine) = directories();
        for name in ["good", "bad"] {
            fs::create_dir_all(there.join(name).join("d")).unwrap();
        }
        let content = bytes(1, 24 * MIB + 1);
        let mut other = content.clone();
        for at in (0..other.len()).step_by(3 * MIB) {
            other[at] ^= 1;
        }
        for (name, long) in [("good", &content), ("bad", &other)] {
            fs::write(there.join(name).join("d/long"), long).unwrap();
            // Of the same size, written at another time.
            fs::write(there.join(name).join("d/short"), name.repeat(12).get(..30).unwrap()).unwrap();
        }
        fs::write(there.join("good/d/only"), bytes(3, 5 * MIB)).unwrap();
        fs::write(there.join("bad/d/surplus"), "x").unwrap();
        let good = Serving::start(&there.join("good"), "127.0.0.1:0").await;
        let bad = Serving::start(&there.join("bad"), "127.0.0.1:0").await;
        let both = CopyOptions { also_from: vec![bad.place("d")], ..options() };
        copied(&good.place("d"), &here(&mine.join("d")), &both).await.unwrap();
        assert_eq!(tree(&there.join("good/d")), tree(&mine.join("d")));
        // It is said what it is not for.
        let into = here(&mine);
        let pattern = copied(&good.place("d/*"), &into, &both).await;
        let up = copied(&here(&mine.join("d")), &good.place("up"), &both).await;
        let between = copied(&good.place("d"), &bad.place("x"), &both).await;
        for refused in [pattern, up, between] {
            assert!(matches!(refused, Err(TransferError::Refused { .. })), "{refused:?}");
        }
    });
}

#[test]
fn blocks_come_through_a_server_in_between_that_lets_them() {
    run(async {
        let (_keep, there, mine) = directories();
        fill(&there.join("d"));
        fs::create_dir(there.join("relay")).unwrap();
        let source = Serving::start(&there, "127.0.0.1:0").await;
        let relay = Serving::with(&there.join("relay"), "127.0.0.1:0", relaying(None)).await;
        for (name, compress) in [("none", Compression::None), ("zstd", Compression::Zstd)] {
            let target = mine.join(name);
            let through = CopyOptions { relay: Some(relay.place("")), compress, ..options() };
            copied(&source.place("d"), &here(&target), &through).await.unwrap();
            assert_eq!(tree(&there.join("d")), tree(&target));
        }
        // Bits that flip on the way to the relay are found at the end of it.
        let (content, size) = (bytes(5, 40 * MIB), 40 * MIB);
        fs::write(there.join("f"), &content).unwrap();
        let way = flipping(source.address, 6 << 20, 4).await;
        let through = CopyOptions { relay: Some(relay.place("")), ..options() };
        let summary = copied(&place(way, "f"), &here(&mine.join("f")), &through).await.unwrap();
        assert!(fs::read(mine.join("f")).unwrap() == content, "{size}");
        assert!(summary.damaged > 0, "{summary:?}");
        // Who was not told to relay does not; nothing comes past it.
        let no_relay = CopyOptions { relay: Some(source.place("")), ..options() };
        let refused = copied(&source.place("f"), &here(&mine.join("g")), &no_relay).await;
        assert!(
            matches!(&refused, Err(TransferError::Refused { problem }) if problem.contains("--relay")),
            "{refused:?}"
        );
    });
}

#[test]
fn genomes_come_as_they_are_whatever_bits_flip_on_the_way() {
    run(async {
        let (_keep, there, mine) = directories();
        let letters: Vec<u8> = bytes(3, 3 * MIB).iter().map(|byte| b"ACGT"[usize::from(byte & 3)]).collect();
        // Half of the reference, and a half that nobody knows.
        let genome = [b">g\n", &letters[..MIB], b"\n>h\n", &letters[2 * MIB..], b"\n"].concat();
        fs::write(there.join("g.fa"), &genome).unwrap();
        for end in [&there, &mine] {
            fs::write(end.join("ref.fa"), [b">r\n", &letters[..2 * MIB], b"\n"].concat()).unwrap();
        }
        let references = vec![there.join("ref.fa")];
        let writable = FilesOptions { writable: true, references, threads: 2, ..FilesOptions::default() };
        let served = Serving::with(&there, "127.0.0.1:0", writable).await;
        let compress = Compression::Delta(Arc::new(References::new(vec![mine.join("ref.fa")], 2)));
        let packed = CopyOptions { compress, ..options() };
        let summary = copied(&served.place("g.fa"), &here(&mine.join("g.fa")), &packed).await.unwrap();
        assert_eq!((summary.files, summary.packed_files, summary.packed_bytes), (1, 1, genome.len() as u64));
        assert!(summary.packed_sent_bytes < MIB as u64 / 3, "{summary:?}");
        for number in 1..=6 {
            let way = flipping(served.address, 40_000 * number, 2).await;
            let (down, up) = (mine.join(format!("{number}.fa")), format!("up{number}.fa"));
            copied(&place(way, "g.fa"), &here(&down), &packed).await.unwrap();
            assert!(fs::read(&down).unwrap() == genome, "{number}");
            let way = flipping(served.address, 40_000 * number, 2).await;
            copied(&here(&down), &place(way, &up), &packed).await.unwrap();
            assert!(fs::read(there.join(&up)).unwrap() == genome, "{number}");
        }
        let left = fs::read_dir(&there).unwrap().chain(fs::read_dir(&mine).unwrap());
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.as_encoded_bytes().ends_with(b"-part")), "{left:?}");
    });
}

/// As [`fill`], but few: each file of a block is made durable by itself.
fn fill_with_few(directory: &Path) {
    fs::create_dir_all(directory.join("a/empty")).unwrap();
    let sizes = [0, 1, 100, 5000, MIB - 1, MIB, MIB + 1, 3 * MIB, 5 * MIB + 12_345];
    for (seed, size) in (0..).zip(sizes) {
        fs::write(directory.join(format!("a/file{size}")), bytes(seed, size)).unwrap();
    }
}

fn relaying(cache: Option<Arc<RelayCache>>) -> FilesOptions {
    FilesOptions { relays: true, relay_cache: cache, ..FilesOptions::default() }
}

fn cache_in(directory: &Path) -> Arc<RelayCache> {
    let opened = RelayCache::open(directory, RELAY_CACHE_LEAST_BYTES, |text| panic!("{text}"));
    Arc::new(opened.unwrap())
}

#[test]
fn files_are_sent_through_a_relay() {
    run(async {
        let (_keep, there, mine) = directories();
        fill_with_few(&mine.join("d"));
        fs::create_dir(there.join("relay")).unwrap();
        let far = Serving::start(&there, "127.0.0.1:0").await;
        let relay = Serving::with(&there.join("relay"), "127.0.0.1:0", relaying(None)).await;
        for (name, compress) in [("none", Compression::None), ("zstd", Compression::Zstd)] {
            let through = CopyOptions { relay: Some(relay.place("")), compress, ..options() };
            copied(&here(&mine.join("d")), &far.place(name), &through).await.unwrap();
            assert_eq!(tree(&mine.join("d")), tree(&there.join(name)));
        }
        // Bits that flip on the way to the relay are found behind it.
        fs::write(mine.join("f"), bytes(5, 40 * MIB)).unwrap();
        let way = flipping(relay.address, 6 << 20, 4).await;
        let through = CopyOptions { relay: Some(place(way, "")), ..options() };
        let summary = copied(&here(&mine.join("f")), &far.place("f"), &through).await.unwrap();
        assert!(fs::read(there.join("f")).unwrap() == bytes(5, 40 * MIB));
        assert!(summary.damaged > 0, "{summary:?}");
        // What was sent before is not sent again: blocks of an earlier state are kept.
        let mut content = bytes(5, 40 * MIB);
        content[7 * MIB] ^= 1;
        fs::write(mine.join("f"), &content).unwrap();
        fs::remove_file(there.join("f")).unwrap();
        let through = CopyOptions { relay: Some(relay.place("")), ..options() };
        copied(&here(&mine.join("f")), &far.place("f"), &through).await.unwrap();
        assert!(fs::read(there.join("f")).unwrap() == content);
        let no_relay = CopyOptions { relay: Some(far.place("")), ..options() };
        let refused = copied(&here(&mine.join("f")), &far.place("g"), &no_relay).await;
        assert!(
            matches!(&refused, Err(TransferError::Refused { problem }) if problem.contains("--relay")),
            "{refused:?}"
        );
        let between = copied(&far.place("f"), &relay.place("f"), &through).await;
        assert!(
            matches!(&between, Err(TransferError::Refused { problem }) if problem.contains("--relay")),
            "{between:?}"
        );
    });
}

/// A copy through a relay, while one of the two servers ends and is started again: it goes on.
async fn through_broken_halves(downloads: bool, ends_relay: bool) {
    let (_keep, there, mine) = directories();
    let (source, target) =
        if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
    fs::write(&source, bytes(3, 32 * MIB + 5)).unwrap();
    fs::create_dir(there.join("relay")).unwrap();
    let start = async |relay: bool, at: &str| match relay {
        true => Serving::with(&there.join("relay"), at, relaying(None)).await,
        false => Serving::start(&there, at).await,
    };
    let (far, relay) = (start(false, "127.0.0.1:0").await, start(true, "127.0.0.1:0").await);
    let (from, to) = match downloads {
        true => (far.place("f"), here(&target)),
        false => (here(&source), far.place("f")),
    };
    let slow = CopyOptions { relay: Some(relay.place("")), bits_per_s: Some(250_000_000), ..options() };
    let kept = if ends_relay { relay.address } else { far.address };
    let server = Mutex::new(Some(if ends_relay { relay } else { far }));
    let ends = Ends { at: 8 << 20, server, ended: AtomicBool::new(false) };
    let never = AtomicBool::new(false);
    let credentials = Credentials::default();
    let again = async {
        while !ends.ended.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        start(ends_relay, &kept.to_string()).await
    };
    let copying = copy(std::slice::from_ref(&from), &to, &credentials, &slow, &ends, &never);
    let (outcome, _again) = tokio::join!(copying, again);
    outcome.unwrap();
    assert!(
        fs::read(&target).unwrap() == bytes(3, 32 * MIB + 5),
        "downloads: {downloads}, ends the relay: {ends_relay}"
    );
}

#[test]
fn copies_through_a_relay_go_on_when_either_half_breaks() {
    for (downloads, ends_relay) in [(true, true), (true, false), (false, true), (false, false)] {
        run(through_broken_halves(downloads, ends_relay));
    }
}

/// Passes bytes on, and counts those that come back.
async fn counting(to: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let count = counted.clone();
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(to).await else { return };
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let back = async move {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                        count.fetch_add(read as u64, Ordering::Relaxed);
                        if to_client.write_all(&buffer[..read]).await.is_err() {
                            break;
                        }
                    }
                };
                tokio::join!(tokio::io::copy(&mut from_client, &mut to_server), back).0.ok();
            });
        }
    });
    (address, count)
}

#[test]
fn several_receivers_of_a_directory_have_it_cross_the_far_half_once() {
    run(async {
        let (_keep, there, mine) = directories();
        fill_with_few(&there.join("d"));
        fs::write(there.join("d/long"), bytes(9, 48 * MIB + 9)).unwrap();
        let size: u64 = tree(&there.join("d")).iter().map(|(_, content, ..)| content.len() as u64).sum();
        fs::create_dir(there.join("relay")).unwrap();
        let far = Serving::start(&there, "127.0.0.1:0").await;
        let (way, crossed) = counting(far.address).await;
        let cache = mine.join("cache");
        let relay = Serving::with(&there.join("relay"), "127.0.0.1:0", relaying(Some(cache_in(&cache)))).await;
        let copy_as = async |name: &str, compress: Compression| {
            let through = CopyOptions { relay: Some(relay.place("")), compress, ..options() };
            copied(&place(way, "d"), &here(&mine.join(name)), &through).await.unwrap();
            assert_eq!(tree(&there.join("d")), tree(&mine.join(name)), "{name}");
        };
        tokio::join!(
            copy_as("one", Compression::None),
            copy_as("two", Compression::None),
            copy_as("three", Compression::Zstd),
            copy_as("four", Compression::None)
        );
        let once = crossed.load(Ordering::Relaxed);
        assert!(once < size + size / 8, "{once} of {size}");
        copy_as("five", Compression::Zstd).await;
        let more = crossed.load(Ordering::Relaxed) - once;
        assert!(more < size / 8, "{more} of {size}");
    });
}

#[test]
fn receivers_that_come_and_go_leave_what_is_right_whatever_the_cache_loses() {
    run(async {
        let (_keep, there, mine) = directories();
        let size = 24 * MIB + 77;
        fs::write(there.join("f"), bytes(11, size)).unwrap();
        fs::create_dir(there.join("relay")).unwrap();
        let far = Serving::start(&there, "127.0.0.1:0").await;
        let cache = mine.join("cache");
        let relay = Serving::with(&there.join("relay"), "127.0.0.1:0", relaying(Some(cache_in(&cache)))).await;
        let copying = (0..6_u64).map(|number| {
            let (from, to) = (far.place("f"), here(&mine.join(format!("f{number}"))));
            // Some are slower than others.
            let bits_per_s = (number % 3 == 1).then_some(400_000_000);
            let through = CopyOptions { relay: Some(relay.place("")), bits_per_s, ..options() };
            tokio::spawn(async move {
                // Some are stopped on the way and begin again.
                let watch =
                    Watch { stop_at: AtomicU64::new(if number % 2 == 0 { 4 << 20 } else { 0 }), ..Watch::default() };
                let first = watched(&from, &to, &through, &watch).await;
                match first {
                    Err(TransferError::Interrupted) => copied(&from, &to, &through).await.unwrap(),
                    first => first.unwrap(),
                }
            })
        });
        let copying: Vec<_> = copying.collect();
        // Meanwhile blocks go from under them.
        let losing = async {
            for round in 0..40_u8 {
                for block in files_below(&cache.join("blocks")) {
                    if round % 2 == 0 {
                        let _ = fs::remove_file(block);
                    } else {
                        let _ = fs::write(block, "damaged");
                    }
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        losing.await;
        for copying in copying {
            copying.await.unwrap();
        }
        for number in 0..6 {
            assert!(fs::read(mine.join(format!("f{number}"))).unwrap() == bytes(11, size), "{number}");
        }
    });
}

/// Starts copies one right after the other, aborts each after some bytes, and lets the last one end.
async fn aborted_again_and_again(from: Place, to: Place) {
    let slow = CopyOptions { bits_per_s: Some(400_000_000), ..options() };
    for least_bytes in [0, 1, 1 << 20, 4 << 20, 8 << 20, 12 << 20] {
        let watch = Arc::new(Watch::default());
        let copying = tokio::spawn({
            let (from, to, slow, watch) = (from.clone(), to.clone(), slow.clone(), Arc::clone(&watch));
            async move { watched(&from, &to, &slow, &watch).await }
        });
        while !copying.is_finished() && watch.copied_bytes() < least_bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        copying.abort();
        match copying.await {
            Ok(finished) => drop(finished.unwrap()),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    copied(&from, &to, &options()).await.unwrap();
}

#[test]
fn a_copy_that_was_aborted_starts_again_at_once_in_the_same_process() {
    run(async {
        let (_keep, there, mine) = directories();
        let content = bytes(12, 16 * MIB + 5);
        fs::write(there.join("f"), &content).unwrap();
        let server = Serving::start(&there, "127.0.0.1:0").await;
        aborted_again_and_again(server.place("f"), here(&mine.join("f"))).await;
        assert!(fs::read(mine.join("f")).unwrap() == content);
        aborted_again_and_again(here(&mine.join("f")), server.place("g")).await;
        assert!(fs::read(there.join("g")).unwrap() == content);
    });
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(directory) else { return Vec::new() };
    let below = listed.map(|entry| entry.unwrap().path()).map(|path| match path.is_dir() {
        true => files_below(&path),
        false => vec![path],
    });
    below.flatten().collect()
}

#[test]
fn what_is_kept_is_given_to_nobody_whom_its_server_does_not_let_have_it() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::write(there.join("secret"), bytes(4, 3 * MIB)).unwrap();
        fs::write(there.join("other"), bytes(5, 3 * MIB)).unwrap();
        fs::create_dir(there.join("relay")).unwrap();
        let far = Serving::with(&there, "127.0.0.1:0", FilesOptions::default()).await;
        let cache = cache_in(&mine.join("cache"));
        let relay = Serving::with(&there.join("relay"), "127.0.0.1:0", relaying(Some(cache))).await;
        let through = CopyOptions { relay: Some(relay.place("")), ..options() };
        copied(&far.place("secret"), &here(&mine.join("secret")), &through).await.unwrap();
        // Who knows all names and numbers, and was granted something else.
        let client = async |at: SocketAddr| {
            let access = Access { token: None, tls: None };
            Client::connect(&Address::Tcp(at), access, Tuning::default()).await.unwrap()
        };
        let (to_far, to_relay) = (client(far.address).await, client(relay.address).await);
        let act = async |kind: &str, body: &str| {
            let answer = to_far.act(kind, body.as_bytes().to_vec()).await.unwrap();
            String::from_utf8(answer[0].to_vec()).unwrap()
        };
        let listed = act("godwit.files.list", r#"{"path":"secret"}"#).await;
        let version = listed.split("\"version\":").nth(1).unwrap().split('}').next().unwrap().to_owned();
        let asked = async |token: &str| {
            let span = format!(r#"{{"file":0,"path":"secret","state":{{"version":{version}}},"start":0,"end":3}}"#);
            let manner = r#"{"mode":"fast","bytes_per_s":null,"compress":false}"#;
            let ticket = format!(
                r#"godwit.files.relay {{"from":"grpc+tcp://{}","token":{token},"lane":"x","read":{{"spans":[{span}],"manner":{manner}}}}}"#,
                far.address
            );
            let mut batches = to_relay.download(ticket.into_bytes()).await?;
            let mut rows = 0;
            while let Some((batch, _)) = batches.next().await? {
                rows += batch.num_rows();
            }
            Ok::<usize, FlightError>(rows)
        };
        let granted = act("godwit.files.grant", r#"{"path":"secret"}"#).await;
        assert_eq!(asked(&granted).await.unwrap(), 3);
        let other = act("godwit.files.grant", r#"{"path":"other"}"#).await;
        let refused = asked(&other).await.unwrap_err();
        assert!(godwit_model::with_causes(&refused).contains("was not granted"), "{refused:?}");
        // A file that is another by now, or gone, is not given in its earlier state.
        fs::write(there.join("secret"), bytes(6, 3 * MIB)).unwrap();
        assert_eq!(asked(&granted).await.unwrap(), 0);
        fs::remove_file(there.join("secret")).unwrap();
        assert_eq!(asked(&granted).await.unwrap(), 0);
    });
}
