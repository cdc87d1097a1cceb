//! Copies between two ends in one process, over real sockets: received files equal their sources, whatever fails on the way.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use godwit_auth::Authenticator;
use godwit_dataset::{Catalog, Dataset, DatasetError, Principal};
use godwit_delta::ReferenceStore;
use godwit_flight::{
    Address, Client, ConnectionSecurity, DatasetService, DatasetServiceOptions, Download, FileInfo, FileService,
    FlightError, FlightStreamChunk, PutResultStream, Server, Status, StatusFuture, TransportOptions, Upload,
};
use godwit_transfer::location::Location;
use godwit_transfer::tcp_tuning::CopyMode;
use godwit_transfer::{
    Compression, CopyEvent, CopyObserver, CopyOptions, CopySummary, Credentials, DirectoryFileService,
    FileServiceOptions, LinkPolicy, RELAY_CACHE_MIN_BYTES, RelayCache, TransferError, copy,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[path = "copies/directory_trees.rs"]
mod directory_trees;
#[path = "copies/mirrors.rs"]
mod mirrors;
#[path = "copies/relays.rs"]
mod relays;
#[path = "copies/synchronization.rs"]
mod synchronization;

const MIB: usize = 1 << 20;

/// A catalog without datasets: the server has files only.
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

/// Returns an address on a loopback host that no other server of these tests has. Its port is free.
///
/// On one host, a server that another test starts could get the port of a server that this test has stopped.
fn own_address() -> SocketAddr {
    static HOSTS: AtomicU16 = AtomicU16::new(1);
    let [high, low] = HOSTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    SocketAddr::from(([127, 50, high, low], 0))
}

struct DataServer {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl DataServer {
    async fn start(root: &Path) -> Self {
        Self::start_at(root, own_address()).await
    }

    async fn start_at(root: &Path, address: SocketAddr) -> Self {
        let options = FileServiceOptions { writable: true, ..FileServiceOptions::default() };
        Self::start_with(root, address, options).await
    }

    async fn start_with(root: &Path, address: SocketAddr, options: FileServiceOptions) -> Self {
        Self::start_service(Arc::new(DirectoryFileService::new(root.to_owned(), options)), address).await
    }

    async fn start_service(files: Arc<dyn FileService>, address: SocketAddr) -> Self {
        let node =
            DatasetService::with_files(Arc::new(NoDatasets), None, Some(files), DatasetServiceOptions::default());
        let (routes, address) = (node.routes(), Address::Tcp(address));
        let server = loop {
            let bound = Server::bind_with_auth(
                &address,
                node.clone(),
                routes.clone(),
                Authenticator::Disabled,
                None,
                TransportOptions::default(),
            );
            match bound.await {
                Ok(server) => break server,
                // The port of a server that has just ended.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let Address::Tcp(address) = *server.address() else { panic!("it is TCP") };
        Self { address, task: tokio::spawn(server.serve()) }
    }

    fn location(&self, path: &str) -> Location {
        remote_location(self.address, path)
    }

    async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

fn remote_location(address: SocketAddr, path: &str) -> Location {
    Location::parse(&format!("grpc+tcp://{address}/{path}")).unwrap()
}

/// An observer that cancels the copy, or calls a function, when a given number of bytes is copied.
#[derive(Default)]
struct RecordingObserver {
    events: Mutex<Vec<CopyEvent>>,
    stop_at: AtomicU64,
    cancelled: AtomicBool,
}

impl CopyObserver for RecordingObserver {
    fn on_event(&self, event: &CopyEvent) {
        if let CopyEvent::Progress { bytes, .. } = event {
            let stop_at = self.stop_at.load(Ordering::Relaxed);
            if stop_at > 0 && *bytes >= stop_at {
                self.cancelled.store(true, Ordering::Relaxed);
            }
        }
        self.events.lock().push(event.clone());
    }
}

impl RecordingObserver {
    /// Returns the bytes at the destination by the last report.
    fn copied_bytes(&self) -> u64 {
        let events = self.events.lock();
        let of_last = |event: &CopyEvent| match event {
            CopyEvent::Progress { bytes, .. } => Some(*bytes),
            _ => None,
        };
        events.iter().rev().find_map(of_last).unwrap_or(0)
    }
}

/// An observer that stops a server when a given number of bytes is copied.
struct ServerStopper {
    stop_at_bytes: u64,
    server: Mutex<Option<DataServer>>,
    ended: AtomicBool,
}

impl CopyObserver for ServerStopper {
    fn on_event(&self, event: &CopyEvent) {
        if let CopyEvent::Progress { bytes, .. } = event
            && *bytes >= self.stop_at_bytes
            && let Some(server) = self.server.lock().take()
        {
            server.task.abort();
            self.ended.store(true, Ordering::Relaxed);
        }
    }
}

fn options() -> CopyOptions {
    CopyOptions {
        checksum_lists: Vec::new(),
        mode: CopyMode::Fast,
        bits_per_s: None,
        streams: Some(3),
        compression: Compression::None,
        include: Vec::new(),
        exclude: Vec::new(),
        sync: false,
        dry_run: false,
        idle_timeout: Duration::from_secs(20),
        reject_hidden: false,
        mirrors: Vec::new(),
        relay: None,
        link_policy: LinkPolicy::Follow,
    }
}

fn relay_options(cache: Option<Arc<RelayCache>>) -> FileServiceOptions {
    FileServiceOptions { relay_enabled: true, relay_cache: cache, ..FileServiceOptions::default() }
}

async fn run_copy(from: &Location, to: &Location, options: &CopyOptions) -> Result<CopySummary, TransferError> {
    run_observed_copy(from, to, options, &RecordingObserver::default()).await
}

async fn run_observed_copy(
    from: &Location,
    to: &Location,
    options: &CopyOptions,
    watch: &RecordingObserver,
) -> Result<CopySummary, TransferError> {
    copy(std::slice::from_ref(from), to, &Credentials::default(), options, watch, &watch.cancelled).await
}

fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    let mut bytes = vec![0; count];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

fn local_location(path: &Path) -> Location {
    Location::Local(path.to_owned())
}

/// Returns the source and the destination of a copy of the directory `d` from a server to `mine`, or in the reverse
/// direction.
fn ends_of_copy(downloads: bool, served: &DataServer, mine: &Path) -> (Location, Location) {
    let (remote, local) = (served.location("d"), local_location(&mine.join("d")));
    if downloads { (remote, local) } else { (local, remote) }
}

/// Returns the paths below a directory with content, mode and time.
fn directory_contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>, u32, i64)> {
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

/// Fills a directory with files of all kinds of sizes.
fn fill_directory(directory: &Path) {
    fs::create_dir_all(directory.join("a/b")).unwrap();
    fs::create_dir(directory.join("empty")).unwrap();
    let sizes = [0, 1, 100, MIB - 1, MIB, MIB + 1, 3 * MIB, 5 * MIB + 12_345];
    for (seed, size) in (0..).zip(sizes) {
        fs::write(directory.join(format!("a/file{size}")), random_bytes(seed, size)).unwrap();
    }
    for number in 0..300 {
        fs::write(directory.join(format!("a/b/{number}")), random_bytes(number, (number * 37 % 5000) as usize))
            .unwrap();
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
        fill_directory(&there.join("d"));
        let served = DataServer::start(&there).await;
        let target = mine.join("d");
        let first = run_copy(&served.location("d"), &local_location(&target), &options()).await.unwrap();
        assert_eq!((first.files, first.up_to_date_files, first.resumed_bytes), (308, 0, 0));
        assert_eq!(directory_contents(&there.join("d")), directory_contents(&target));
        let again = run_copy(&served.location("d"), &local_location(&target), &options()).await.unwrap();
        assert_eq!((again.files, again.up_to_date_files), (0, 308));
        // And back, to another directory, compressed.
        let packed = CopyOptions { compression: Compression::Zstd, ..options() };
        let back = run_copy(&local_location(&target), &served.location("back"), &packed).await.unwrap();
        assert_eq!(back.files, 308);
        assert_eq!(directory_contents(&target), directory_contents(&there.join("back")));
        let again = run_copy(&local_location(&target), &served.location("back"), &options()).await.unwrap();
        assert_eq!((again.files, again.up_to_date_files), (0, 308));
        // One file, into a directory.
        run_copy(&served.location("d/a/file1"), &local_location(&mine), &options()).await.unwrap();
        assert_eq!(fs::read(mine.join("file1")).unwrap(), random_bytes(1, 1));
    });
}

/// Stops a download or upload, and then resumes it.
async fn stop_and_resume(downloads: bool, change: impl Fn(&Path)) -> (CopySummary, Vec<u8>, Vec<u8>) {
    let (_keep, there, mine) = directories();
    let size = 48 * MIB + 321;
    let (source, target) =
        if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
    fs::write(&source, random_bytes(9, size)).unwrap();
    let served = DataServer::start(&there).await;
    let (from, to) = match downloads {
        true => (served.location("f"), local_location(&target)),
        false => (local_location(&source), served.location("f")),
    };
    let watch = RecordingObserver { stop_at: AtomicU64::new(12 << 20), ..RecordingObserver::default() };
    // Slow enough to be stopped in time.
    let slow = CopyOptions { bits_per_s: Some(300_000_000), ..options() };
    let stopped = run_observed_copy(&from, &to, &slow, &watch).await;
    assert!(matches!(stopped, Err(TransferError::Interrupted)), "{stopped:?}");
    assert!(!target.exists());
    change(&source);
    let summary = run_copy(&from, &to, &options()).await.unwrap();
    let names = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(target.parent().unwrap()), ["f"], "nothing is left behind");
    (summary, fs::read(&source).unwrap(), fs::read(&target).unwrap())
}

#[test]
fn a_stopped_copy_resumes_and_sends_nothing_twice() {
    for downloads in [true, false] {
        run(async {
            let (summary, expected, found) = stop_and_resume(downloads, |_| {}).await;
            assert!(expected == found);
            assert!(summary.resumed_bytes >= 12 << 20, "{summary:?}");
        });
    }
}

#[test]
fn what_did_not_change_of_a_changed_source_is_kept() {
    for downloads in [true, false] {
        run(async {
            let (summary, expected, found) = stop_and_resume(downloads, |source| {
                let mut content = fs::read(source).unwrap();
                content[5] ^= 1;
                fs::write(source, content).unwrap();
            })
            .await;
            assert!(expected == found);
            assert!(summary.resumed_bytes >= 8 << 20, "{summary:?}");
        });
    }
}

#[test]
fn a_copy_resumes_after_its_server_restarts() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let size = 24 * MIB + 5;
            let (source, target) =
                if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
            fs::write(&source, random_bytes(3, size)).unwrap();
            let first = DataServer::start(&there).await;
            let address = first.address;
            let (from, to) = match downloads {
                true => (remote_location(address, "f"), local_location(&target)),
                false => (local_location(&source), remote_location(address, "f")),
            };
            let slow = CopyOptions { bits_per_s: Some(200_000_000), ..options() };
            let copying = tokio::spawn(async move { run_copy(&from, &to, &slow).await });
            tokio::time::sleep(Duration::from_millis(400)).await;
            first.stop().await;
            let second = DataServer::start_at(&there, address).await;
            let summary = copying.await.unwrap().unwrap();
            assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap(), "{summary:?}");
            second.stop().await;
        });
    }
}

/// Starts a proxy to a server that flips some bits.
async fn bit_flipping_proxy(server: SocketAddr, every_bytes: u64, flips: u64) -> SocketAddr {
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
                        // Requests are shorter: a bit that flips in one of them is an error of the protocol.
                        if count > 16_384 && flipped.fetch_max(due.min(flips), Ordering::Relaxed) < due.min(flips) {
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
            fs::write(&source, random_bytes(5, 40 * MIB)).unwrap();
            let served = DataServer::start(&there).await;
            let way = bit_flipping_proxy(served.address, 6 << 20, 5).await;
            let (from, to) = match downloads {
                true => (remote_location(way, "f"), local_location(&target)),
                false => (local_location(&source), remote_location(way, "f")),
            };
            let summary = run_copy(&from, &to, &options()).await.unwrap();
            assert!(fs::read(&source).unwrap() == fs::read(&target).unwrap());
            assert!(summary.damaged_blocks > 0, "{summary:?}");
        });
    }
}

#[test]
fn a_source_that_changes_during_the_copy_is_reported_and_not_committed() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (source, target) =
                if downloads { (there.join("f"), mine.join("f")) } else { (mine.join("f"), there.join("f")) };
            fs::write(&source, random_bytes(5, 24 * MIB)).unwrap();
            let served = DataServer::start(&there).await;
            let (from, to) = match downloads {
                true => (served.location("f"), local_location(&target)),
                false => (local_location(&source), served.location("f")),
            };
            let slow = CopyOptions { bits_per_s: Some(200_000_000), ..options() };
            let copying = tokio::spawn(async move { run_copy(&from, &to, &slow).await });
            tokio::time::sleep(Duration::from_millis(300)).await;
            fs::OpenOptions::new().write(true).open(&source).unwrap().set_len(3 << 20).unwrap();
            let outcome = copying.await.unwrap();
            assert!(matches!(outcome, Err(TransferError::SourceChanged { .. })), "{outcome:?}");
            assert!(!target.exists());
        });
    }
}

#[test]
fn selections_dry_runs_and_mirrors() {
    run(async {
        let (_keep, there, mine) = directories();
        fill_directory(&there.join("d"));
        let served = DataServer::start(&there).await;
        let only = CopyOptions { include: vec!["file*".into()], exclude: vec!["file0".into()], ..options() };
        let watch = RecordingObserver::default();
        let dry = CopyOptions { dry_run: true, ..only.clone() };
        run_observed_copy(&served.location("d"), &local_location(&mine.join("d")), &dry, &watch).await.unwrap();
        assert!(!mine.join("d").exists());
        let told = watch.events.lock().iter().filter(|event| matches!(event, CopyEvent::DryRunAction { .. })).count();
        // Seven files, the directory and the one in it.
        assert_eq!(told, 9);
        let summary = run_copy(&served.location("d"), &local_location(&mine.join("d")), &only).await.unwrap();
        assert_eq!(summary.files, 7);
        assert!(!mine.join("d/a/b").exists() && !mine.join("d/a/file0").exists());
        // Globs are expanded at the server.
        let some =
            run_copy(&served.location("d/a/file1*"), &local_location(&mine.join("some")), &options()).await.unwrap();
        assert_eq!(some.files, 5);
        let none = run_copy(&served.location("d/*.bam"), &local_location(&mine.join("none")), &options()).await;
        assert!(matches!(none, Err(TransferError::NotFound { .. })), "{none:?}");
        // A mirror removes what its source lacks.
        fs::write(mine.join("d/surplus"), "x").unwrap();
        fs::create_dir(mine.join("d/more")).unwrap();
        fs::write(mine.join("d/more/surplus"), "x").unwrap();
        let mirror = CopyOptions { sync: true, ..options() };
        let summary = run_copy(&served.location("d"), &local_location(&mine.join("d")), &mirror).await.unwrap();
        assert_eq!(summary.removed_files, 3);
        assert_eq!(directory_contents(&there.join("d")), directory_contents(&mine.join("d")));
        fs::remove_file(mine.join("d/a/file100")).unwrap();
        run_copy(&local_location(&mine.join("d")), &served.location("d"), &mirror).await.unwrap();
        assert_eq!(directory_contents(&there.join("d")), directory_contents(&mine.join("d")));
    });
}

/// A service that does not permit clients to list its files.
struct UnlistableFiles(DirectoryFileService);

impl FileService for UnlistableFiles {
    fn run_action(&self, principal: Principal, action: String, body: Bytes) -> StatusFuture<'_, Vec<Bytes>> {
        match action.ends_with(".list") {
            true => Box::pin(async { Err(Status::permission_denied("listing files is not permitted")) }),
            false => self.0.run_action(principal, action, body),
        }
    }

    fn authenticate_scoped_token(&self, token: &[u8]) -> Option<Principal> {
        self.0.authenticate_scoped_token(token)
    }

    fn file_info(&self, principal: Principal, command: Bytes) -> StatusFuture<'_, FileInfo> {
        self.0.file_info(principal, command)
    }

    fn download(&self, principal: Principal, ticket: Bytes) -> StatusFuture<'_, Download> {
        self.0.download(principal, ticket)
    }

    fn upload(
        &self,
        principal: Principal,
        command: Bytes,
        first: Option<FlightStreamChunk>,
        upload: Upload,
    ) -> StatusFuture<'_, PutResultStream> {
        self.0.upload(principal, command, first, upload)
    }
}

#[test]
fn a_directory_that_cannot_be_listed_is_not_taken_for_an_absent_one() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::create_dir(there.join("d")).unwrap();
        fs::write(there.join("d/surplus"), "x").unwrap();
        fs::create_dir(mine.join("d")).unwrap();
        fs::write(mine.join("d/file"), "x").unwrap();
        let options = FileServiceOptions { writable: true, ..FileServiceOptions::default() };
        let files = UnlistableFiles(DirectoryFileService::new(there.clone(), options));
        let served = DataServer::start_service(Arc::new(files), own_address()).await;
        let mirror = CopyOptions { sync: true, ..self::options() };
        let copied = run_copy(&local_location(&mine.join("d")), &served.location("d"), &mirror).await;
        let permitted = |error: &TransferError| error.to_string().contains("listing files is not permitted");
        assert!(copied.as_ref().is_err_and(permitted), "{copied:?}");
        // Without --sync, the copy does not need the list.
        run_copy(&local_location(&mine.join("d")), &served.location("d"), &self::options()).await.unwrap();
        assert!(there.join("d/surplus").exists() && there.join("d/file").exists());
    });
}

#[test]
fn paths_outside_the_root_and_hidden_ones_are_refused() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::write(mine.join("f"), "x").unwrap();
        fs::write(there.join(".secret"), "x").unwrap();
        let served = DataServer::start(&there).await;
        for path in ["../mine/f", ".secret", "a/../../mine/f"] {
            let read = run_copy(&served.location(path), &local_location(&mine.join("got")), &options()).await;
            assert!(matches!(read, Err(TransferError::Rejected { .. })), "{path}: {read:?}");
            let written = run_copy(&local_location(&mine.join("f")), &served.location(path), &options()).await;
            assert!(matches!(written, Err(TransferError::Rejected { .. })), "{path}: {written:?}");
        }
        // Hidden files are not listed.
        let summary = run_copy(&served.location(""), &local_location(&mine.join("all")), &options()).await.unwrap();
        assert_eq!(summary.files, 0);
    });
}

#[test]
fn one_server_fetches_from_another_with_a_delegation_token() {
    run(async {
        let (_keep, one, other) = directories();
        fill_directory(&one.join("d"));
        let (from, to) = (DataServer::start(&one).await, DataServer::start(&other).await);
        let summary = run_copy(&from.location("d"), &to.location("kept/"), &options()).await.unwrap();
        assert_eq!(summary.files, 308);
        assert_eq!(directory_contents(&one.join("d")), directory_contents(&other.join("kept/d")));
        let again = run_copy(&from.location("d/a/file*"), &to.location("kept/d/a/"), &options()).await.unwrap();
        assert_eq!((again.files, again.up_to_date_files), (0, 8));
        // The client sees the progress.
        fs::write(one.join("long"), random_bytes(1, 24 * MIB)).unwrap();
        let watch = RecordingObserver::default();
        let slow = CopyOptions { bits_per_s: Some(100_000_000), ..options() };
        run_observed_copy(&from.location("long"), &to.location("long"), &slow, &watch).await.unwrap();
        {
            let events = watch.events.lock();
            assert!(matches!(events[0], CopyEvent::Started { files: 1, bytes: 25_165_824, .. }), "{:?}", events[0]);
            assert!(events.iter().any(|event| matches!(event, CopyEvent::Progress { bytes: 1.., .. })), "{events:?}");
        }
        let refused = run_copy(&from.location("../x"), &to.location("x"), &options()).await;
        assert!(matches!(refused, Err(TransferError::Rejected { .. })), "{refused:?}");
    });
}

#[test]
fn polite_and_fair_copies_arrive_too() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::write(there.join("f"), random_bytes(2, 4 * MIB + 3)).unwrap();
        let served = DataServer::start(&there).await;
        for mode in [CopyMode::Polite, CopyMode::Fair] {
            let target = mine.join(format!("{mode:?}"));
            let manner = CopyOptions { mode, streams: None, ..options() };
            run_copy(&served.location("f"), &local_location(&target), &manner).await.unwrap();
            run_copy(&local_location(&target), &served.location(&format!("{mode:?}")), &manner).await.unwrap();
            assert!(fs::read(there.join(format!("{mode:?}"))).unwrap() == random_bytes(2, 4 * MIB + 3));
        }
    });
}

#[test]
fn genomes_come_as_they_are_whatever_bits_flip_on_the_way() {
    run(async {
        let (_keep, there, mine) = directories();
        let letters: Vec<u8> = random_bytes(3, 3 * MIB).iter().map(|byte| b"ACGT"[usize::from(byte & 3)]).collect();
        // Half of the reference, and a half that is unlike it.
        let genome = [b">g\n", &letters[..MIB], b"\n>h\n", &letters[2 * MIB..], b"\n"].concat();
        fs::write(there.join("g.fa"), &genome).unwrap();
        for end in [&there, &mine] {
            fs::write(end.join("ref.fa"), [b">r\n", &letters[..2 * MIB], b"\n"].concat()).unwrap();
        }
        let references = vec![there.join("ref.fa")];
        let writable = FileServiceOptions { writable: true, references, threads: 2, ..FileServiceOptions::default() };
        let served = DataServer::start_with(&there, own_address(), writable).await;
        let compression = Compression::Delta(Arc::new(ReferenceStore::new(vec![mine.join("ref.fa")], 2)));
        let packed = CopyOptions { compression, ..options() };
        let summary = run_copy(&served.location("g.fa"), &local_location(&mine.join("g.fa")), &packed).await.unwrap();
        assert_eq!((summary.files, summary.delta_files, summary.delta_bytes), (1, 1, genome.len() as u64));
        assert!(summary.delta_sent_bytes < MIB as u64 / 3, "{summary:?}");
        for number in 1..=6 {
            let way = bit_flipping_proxy(served.address, 40_000 * number, 2).await;
            let (down, up) = (mine.join(format!("{number}.fa")), format!("up{number}.fa"));
            run_copy(&remote_location(way, "g.fa"), &local_location(&down), &packed).await.unwrap();
            assert!(fs::read(&down).unwrap() == genome, "{number}");
            let way = bit_flipping_proxy(served.address, 40_000 * number, 2).await;
            run_copy(&local_location(&down), &remote_location(way, &up), &packed).await.unwrap();
            assert!(fs::read(there.join(&up)).unwrap() == genome, "{number}");
        }
        let left = fs::read_dir(&there).unwrap().chain(fs::read_dir(&mine).unwrap());
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| name.as_encoded_bytes().ends_with(b"-part")), "{left:?}");
    });
}

/// Starts copies one after the other, aborts each after some bytes, and completes the last one.
async fn abort_and_resume_repeatedly(from: Location, to: Location) {
    let slow = CopyOptions { bits_per_s: Some(400_000_000), ..options() };
    for least_bytes in [0, 1, 1 << 20, 4 << 20, 8 << 20, 12 << 20] {
        let watch = Arc::new(RecordingObserver::default());
        let copying = tokio::spawn({
            let (from, to, slow, watch) = (from.clone(), to.clone(), slow.clone(), Arc::clone(&watch));
            async move { run_observed_copy(&from, &to, &slow, &watch).await }
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
    run_copy(&from, &to, &options()).await.unwrap();
}

#[test]
fn a_copy_that_was_aborted_starts_again_at_once_in_the_same_process() {
    run(async {
        let (_keep, there, mine) = directories();
        let content = random_bytes(12, 16 * MIB + 5);
        fs::write(there.join("f"), &content).unwrap();
        let server = DataServer::start(&there).await;
        abort_and_resume_repeatedly(server.location("f"), local_location(&mine.join("f"))).await;
        assert!(fs::read(mine.join("f")).unwrap() == content);
        abort_and_resume_repeatedly(local_location(&mine.join("f")), server.location("g")).await;
        assert!(fs::read(there.join("g")).unwrap() == content);
    });
}
