//! Servers of the same directory, used by an independent client of NFSv3.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use godwit_dataset::{
    AccessLog, AccessLogFuture, AccessRecord, Authorizer, Catalog, FileAccess, FileAuthorization, Principal,
};
use godwit_nfs::{ClientAccess, Export, ExportOptions, FileHandle, NfsServer};
use nfs3_client::nfs3_types::mount::mountstat3;
use nfs3_client::nfs3_types::nfs3::{
    ACCESS3_MODIFY, ACCESS3_READ, ACCESS3args, COMMIT3args, CREATE3args, FSINFO3args, FSSTAT3args, GETATTR3args,
    LINK3args, LOOKUP3args, MKDIR3args, Nfs3Option, Nfs3Result, PATHCONF3args, READ3args, READDIR3args,
    READDIRPLUS3args, READLINK3args, REMOVE3args, RENAME3args, RMDIR3args, SETATTR3args, SYMLINK3args, WRITE3args,
    cookieverf3, createhow3, createverf3, diropargs3, nfs_fh3, nfspath3, nfsstat3, sattr3, stable_how, symlinkdata3,
    writeverf3,
};
use nfs3_client::nfs3_types::xdr_codec::Opaque;
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{ConnectError, MountError, Nfs3Connection, Nfs3ConnectionBuilder};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

type Client = Nfs3Connection<TokioIo<TcpStream>>;

/// Largest number of connections of the servers.
const MAX_CONNECTIONS: usize = 8;
/// Largest number of their connections from one address.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 4;

/// Rules by which files in `open` may be read and written, files in `shown` be read, and all others are hidden.
#[derive(Debug)]
struct DirectoryRules;

impl Authorizer for DirectoryRules {
    fn authorized_catalog(&self, _: &Principal, catalog: &Arc<dyn Catalog>) -> Arc<dyn Catalog> {
        catalog.clone()
    }

    fn authorize_file(&self, principal: &Principal, path: &str, access: FileAccess) -> FileAuthorization {
        let allowed = FileAuthorization::Allowed("directory".to_owned());
        match (principal.name(), path.split('/').next(), access) {
            ("cluster", Some("open"), _) | ("cluster", Some("shown"), FileAccess::Read) => allowed,
            ("cluster", Some("shown"), FileAccess::Write) => {
                FileAuthorization::Denied { problem: "read-only".to_owned() }
            }
            _ => FileAuthorization::Hidden,
        }
    }
}

#[derive(Debug, Default)]
struct MemoryLog(Mutex<Vec<AccessRecord>>);

impl AccessLog for MemoryLog {
    fn record(&self, access: AccessRecord) -> AccessLogFuture<'_> {
        self.record_in_background(access);
        Box::pin(std::future::ready(Ok(())))
    }

    fn record_in_background(&self, access: AccessRecord) {
        self.0.lock().push(access);
    }
}

/// Starts a server of a directory.
async fn start(root: &Path, access: ClientAccess, access_log: Option<Arc<dyn AccessLog>>) -> SocketAddr {
    let export = Export::open(root, ExportOptions { access, access_log, log: Arc::new(|_| ()) }).expect("it opens");
    let address = "127.0.0.1:0".parse().expect("it is an address");
    let server = NfsServer::bind(address, export, MAX_CONNECTIONS).await.expect("a port is free");
    let address = server.address().expect("it is bound");
    tokio::spawn(server.serve_until(std::future::pending()));
    address
}

/// Starts a server that permits everything.
async fn start_open(root: &Path) -> SocketAddr {
    start(root, ClientAccess::new(Box::new(|_| Some(Principal::default())), None, true), None).await
}

async fn mount(server: SocketAddr, path: &str) -> Result<Client, ConnectError> {
    let builder = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", path).connect_from_privileged_port(false);
    builder.mount_port(server.port()).nfs3_port(server.port()).mount().await
}

fn entry<'a>(directory: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: directory.clone(), name: name.as_bytes().into() }
}

/// Returns the status of a reply.
fn status<T, E>(reply: &Nfs3Result<T, E>) -> nfsstat3 {
    match reply {
        Nfs3Result::Ok(_) => nfsstat3::NFS3_OK,
        Nfs3Result::Err((status, _)) => *status,
    }
}

async fn lookup(client: &mut Client, directory: &nfs_fh3, name: &str) -> Result<nfs_fh3, nfsstat3> {
    match client.lookup(&LOOKUP3args { what: entry(directory, name) }).await.expect("the server answers") {
        Nfs3Result::Ok(found) => Ok(found.object),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

async fn create(client: &mut Client, directory: &nfs_fh3, name: &str) -> nfs_fh3 {
    let how = createhow3::GUARDED(sattr3 { mode: Nfs3Option::Some(0o640), ..sattr3::default() });
    let created =
        client.create(&CREATE3args { where_: entry(directory, name), how }).await.expect("the server answers");
    created.unwrap().obj.unwrap()
}

async fn write(client: &mut Client, file: &nfs_fh3, offset: u64, data: &[u8], stable: stable_how) -> writeverf3 {
    let count = data.len() as u32;
    let request = WRITE3args { file: file.clone(), offset, count, stable, data: Opaque::borrowed(data) };
    let written = client.write(&request).await.expect("the server answers").unwrap();
    assert_eq!((written.count, written.committed), (count, stable));
    written.verf
}

async fn commit(client: &mut Client, file: &nfs_fh3) -> writeverf3 {
    let request = COMMIT3args { file: file.clone(), offset: 0, count: 0 };
    client.commit(&request).await.expect("the server answers").unwrap().verf
}

async fn read(client: &mut Client, file: &nfs_fh3, offset: u64, count: u32) -> (Vec<u8>, bool) {
    let request = READ3args { file: file.clone(), offset, count };
    let read = client.read(&request).await.expect("the server answers").unwrap();
    assert_eq!(read.count as usize, read.data.len());
    (read.data.into_owned(), read.eof)
}

/// Reads the names of a directory, one page at each server in turn.
async fn names(clients: &mut [Client], directory: &nfs_fh3, page_bytes: u32) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    for page in 0.. {
        let (dir, cookieverf) = (directory.clone(), cookieverf3::default());
        let request = READDIR3args { dir, cookie, cookieverf, count: page_bytes };
        let at = page % clients.len();
        let page = clients[at].readdir(&request).await.expect("the server answers").unwrap().reply;
        for entry in page.entries.into_inner() {
            cookie = entry.cookie;
            names.push(String::from_utf8(entry.name.as_ref().to_vec()).expect("it is text"));
        }
        if page.eof {
            break;
        }
    }
    names
}

#[tokio::test]
async fn files_are_created_written_changed_renamed_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_open(directory.path()).await;
    let mut client = mount(server, "/").await.unwrap();
    let root = client.root_nfs_fh3();
    let where_ = entry(&root, "d");
    let made = client.mkdir(&MKDIR3args { where_, attributes: sattr3::default() }).await.unwrap().unwrap();
    let d = made.obj.unwrap();
    let file = create(&mut client, &d, "f").await;
    write(&mut client, &file, 0, b"0123456789", stable_how::FILE_SYNC).await;
    assert_eq!(fs::read(directory.path().join("d/f")).unwrap(), b"0123456789");
    assert_eq!(read(&mut client, &file, 0, 4).await, (b"0123".to_vec(), false));
    assert_eq!(read(&mut client, &file, 4, 1 << 30).await, (b"456789".to_vec(), true));
    assert_eq!(read(&mut client, &file, 99, 4).await, (Vec::new(), true));

    let mut new_attributes = sattr3 { mode: Nfs3Option::Some(0o600), size: Nfs3Option::Some(3), ..sattr3::default() };
    let guard = Nfs3Option::None;
    let set = SETATTR3args { object: file.clone(), new_attributes: new_attributes.clone(), guard };
    let found = client.setattr(&set).await.unwrap().unwrap().obj_wcc.after.unwrap();
    assert_eq!((found.size, found.mode), (3, 0o600));
    new_attributes.uid = Nfs3Option::Some(found.uid + 1);
    let set = SETATTR3args { object: file.clone(), new_attributes, guard };
    assert_eq!(status(&client.setattr(&set).await.unwrap()), nfsstat3::NFS3ERR_PERM);

    let rename = RENAME3args { from: entry(&d, "f"), to: entry(&root, "g") };
    assert_eq!(status(&client.rename(&rename).await.unwrap()), nfsstat3::NFS3_OK);
    assert_eq!(read(&mut client, &file, 0, 9).await.0, b"012", "a handle outlives a rename");
    assert_eq!(lookup(&mut client, &d, "f").await, Err(nfsstat3::NFS3ERR_NOENT));
    let moved = lookup(&mut client, &root, "g").await.unwrap();
    let remove = |name| RMDIR3args { object: entry(&root, name) };
    assert_eq!(status(&client.rmdir(&remove("g")).await.unwrap()), nfsstat3::NFS3ERR_NOTDIR);
    assert_eq!(status(&client.rmdir(&remove("d")).await.unwrap()), nfsstat3::NFS3_OK);
    let remove = REMOVE3args { object: entry(&root, "g") };
    assert_eq!(status(&client.remove(&remove).await.unwrap()), nfsstat3::NFS3_OK);
    let found = client.getattr(&GETATTR3args { object: moved }).await.unwrap();
    assert_eq!(status(&found), nfsstat3::NFS3ERR_STALE);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    client.unmount().await.unwrap();
}

#[tokio::test]
async fn writes_that_a_lost_server_has_not_committed_are_sent_again_to_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("a/b")).unwrap();
    let servers = [start_open(directory.path()).await, start_open(directory.path()).await];
    let mut first = mount(servers[0], "/a/b").await.unwrap();
    let root = first.root_nfs_fh3();
    let file = create(&mut first, &root, "f").await;
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let chunks = || data.chunks(1 << 20).zip((0..).step_by(1 << 20));
    let mut verifiers = Vec::new();
    for (chunk, offset) in chunks() {
        verifiers.push(write(&mut first, &file, offset, chunk, stable_how::UNSTABLE).await);
    }
    assert!(verifiers.iter().all(|verifier| *verifier == verifiers[0]));
    drop(first);

    // The client connects to the address again, which another server now has. It does not mount again.
    let mut second = mount(servers[1], "/").await.unwrap();
    assert_ne!(commit(&mut second, &file).await, verifiers[0]);
    for (chunk, offset) in chunks() {
        verifiers.push(write(&mut second, &file, offset, chunk, stable_how::UNSTABLE).await);
    }
    assert_eq!(commit(&mut second, &file).await, *verifiers.last().unwrap());
    assert_eq!(fs::read(directory.path().join("a/b/f")).unwrap(), data);
    let entries = lookup(&mut second, &root, "f").await;
    assert_eq!(entries, Ok(file), "both servers compute the same handle");
}

#[tokio::test]
async fn an_exclusive_creation_may_be_repeated_at_another_server() {
    let directory = tempfile::tempdir().unwrap();
    let servers = [start_open(directory.path()).await, start_open(directory.path()).await];
    for (at, verifier, expected) in
        [(0, 7, nfsstat3::NFS3_OK), (1, 7, nfsstat3::NFS3_OK), (1, 8, nfsstat3::NFS3ERR_EXIST)]
    {
        let mut client = mount(servers[at], "/").await.unwrap();
        let where_ = entry(&client.root_nfs_fh3(), "f");
        let how = createhow3::EXCLUSIVE(createverf3([verifier; 8]));
        let created = client.create(&CREATE3args { where_, how }).await.unwrap();
        assert_eq!(status(&created), expected, "{at} {verifier}");
    }
}

#[tokio::test]
async fn a_large_directory_is_read_in_pages_from_two_servers_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let mut expected = vec![".".to_owned(), "..".to_owned()];
    for number in 0..2000 {
        fs::write(directory.path().join(format!("f{number}")), "").unwrap();
        expected.push(format!("f{number}"));
    }
    fs::write(directory.path().join(".hidden"), "").unwrap();
    let servers = [start_open(directory.path()).await, start_open(directory.path()).await];
    let mut clients = vec![mount(servers[0], "/").await.unwrap(), mount(servers[1], "/").await.unwrap()];
    let root = clients[0].root_nfs_fh3();
    let mut found = names(&mut clients, &root, 4096).await;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);

    let request = READDIRPLUS3args {
        dir: root.clone(),
        cookie: 0,
        cookieverf: cookieverf3::default(),
        dircount: 1 << 20,
        maxcount: 1 << 20,
    };
    let page = clients[0].readdirplus(&request).await.unwrap().unwrap().reply;
    assert!(page.eof);
    let entries = page.entries.into_inner();
    assert_eq!(entries.len(), expected.len());
    for entry in entries.into_iter().skip(2).step_by(199) {
        let name = String::from_utf8(entry.name.as_ref().to_vec()).unwrap();
        assert_eq!(lookup(&mut clients[1], &root, &name).await, Ok(entry.name_handle.unwrap()));
        assert_eq!(entry.name_attributes.unwrap().fileid, entry.fileid);
    }
    let tiny = READDIR3args { dir: root, cookie: 0, cookieverf: cookieverf3::default(), count: 130 };
    assert_eq!(status(&clients[0].readdir(&tiny).await.unwrap()), nfsstat3::NFS3ERR_TOOSMALL);
}

#[tokio::test]
async fn a_client_has_the_rights_of_its_address() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["open", "shown", "closed"] {
        fs::create_dir(directory.path().join(name)).unwrap();
        fs::write(directory.path().join(name).join("f"), name).unwrap();
    }
    let identify = |address: std::net::IpAddr| address.is_loopback().then(|| Principal::named("cluster"));
    let log = Arc::new(MemoryLog::default());
    let access = ClientAccess::new(Box::new(identify), Some(Arc::new(DirectoryRules)), true);
    let server = start(directory.path(), access, Some(log.clone())).await;
    let mut client = mount(server, "/").await.unwrap();
    let root = client.root_nfs_fh3();
    let mut seen = names(std::slice::from_mut(&mut client), &root, 4096).await;
    seen.sort();
    assert_eq!(seen, [".", "..", "open", "shown"]);
    assert_eq!(lookup(&mut client, &root, "closed").await, Err(nfsstat3::NFS3ERR_NOENT));
    let denied = mount(server, "/closed").await.err().unwrap();
    assert!(matches!(denied, ConnectError::Mount(MountError::Denied(mountstat3::MNT3ERR_NOENT))), "{denied}");
    for (name, expected) in [("open", nfsstat3::NFS3_OK), ("shown", nfsstat3::NFS3ERR_ACCES)] {
        let parent = lookup(&mut client, &root, name).await.unwrap();
        let file = lookup(&mut client, &parent, "f").await.unwrap();
        assert_eq!(read(&mut client, &file, 0, 99).await.0, name.as_bytes());
        let access = ACCESS3_READ | ACCESS3_MODIFY;
        let granted = client.access(&ACCESS3args { object: file.clone(), access }).await.unwrap().unwrap().access;
        assert_eq!(granted == access, expected == nfsstat3::NFS3_OK, "{name}");
        let data = Opaque::borrowed(b"new!");
        let request = WRITE3args { file, offset: 0, count: 4, stable: stable_how::UNSTABLE, data };
        assert_eq!(status(&client.write(&request).await.unwrap()), expected);
        let how = createhow3::UNCHECKED(sattr3::default());
        let created = client.create(&CREATE3args { where_: entry(&parent, "new"), how }).await.unwrap();
        assert_eq!(status(&created), expected);
        let rename = RENAME3args { from: entry(&parent, "f"), to: entry(&root, "g") };
        assert_eq!(status(&client.rename(&rename).await.unwrap()), nfsstat3::NFS3ERR_ACCES);
    }
    let records = log.0.lock().clone();
    let calls: Vec<(&str, &str, &str)> = records
        .iter()
        .map(|record| (record.principal.as_str(), record.call.as_str(), record.resource.as_str()))
        .collect();
    let expected = [
        ("cluster", "NFS READ from 127.0.0.1", "open/f"),
        ("cluster", "NFS WRITE from 127.0.0.1", "open/f"),
        ("cluster", "NFS CREATE from 127.0.0.1", "open/new"),
        ("cluster", "NFS READ from 127.0.0.1", "shown/f"),
    ];
    assert_eq!(calls, expected);

    let unknown = start(directory.path(), ClientAccess::new(Box::new(|_| None), None, true), None).await;
    assert!(mount(unknown, "/").await.is_err());
    assert!(connect(unknown).await.null().await.is_err(), "the server closes the connection");
}

#[tokio::test]
async fn stalled_calls_do_not_delay_those_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_open(directory.path()).await;
    let mut stalled = Vec::new();
    for _ in 1..MAX_CONNECTIONS_PER_ADDRESS {
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(&[0x80, 0x10, 0, 0]).await.unwrap();
        stalled.push(stream);
    }
    connect(server).await.null().await.unwrap();
}

#[tokio::test]
async fn calls_of_two_addresses_that_hang_do_not_hold_those_of_a_third_one() {
    const CONNECTIONS: usize = 8;
    const CALLS_PER_CONNECTION: usize = 16;
    let directory = tempfile::tempdir().unwrap();
    // When all are connected, calls of the first two addresses wait until the sender is dropped.
    let (end_sender, end_receiver) = std::sync::mpsc::channel::<()>();
    let (is_waiting, waiting_calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (end_receiver, is_call_waiting, waiting) =
        (Mutex::new(end_receiver), is_waiting.clone(), waiting_calls.clone());
    let identify = move |address: IpAddr| {
        if address != IpAddr::from([127, 0, 0, 3]) && is_call_waiting.load(Ordering::Relaxed) {
            waiting.fetch_add(1, Ordering::Relaxed);
            let _ = end_receiver.lock().recv();
        }
        Some(Principal::default())
    };
    let access = ClientAccess::new(Box::new(identify), None, true);
    let options = ExportOptions { access, access_log: None, log: Arc::new(|_| ()) };
    let export = Export::open(directory.path(), options).unwrap();
    let server = NfsServer::bind("127.0.0.1:0".parse().unwrap(), export, 2 * CONNECTIONS).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.serve_until(std::future::pending()));
    let connect_from = async |host: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        // The server has accepted a connection from which it answers.
        let mut reply = [0; 28];
        stream.write_all(&call(0, &[])).await.unwrap();
        stream.read_exact(&mut reply).await.unwrap();
        stream
    };
    let mut streams = Vec::new();
    for number in 0..CONNECTIONS {
        streams.push(connect_from(1 + number as u8 % 2).await);
    }
    let mut other = nfs3_client::Nfs3Client::new(TokioIo::new(connect_from(3).await));
    let root = nfs_fh3 { data: Opaque::owned(FileHandle::root().to_bytes()) };
    is_waiting.store(true, Ordering::Relaxed);
    for stream in &mut streams {
        stream.write_all(&call(1, &handle_argument(&root)).repeat(CALLS_PER_CONNECTION)).await.unwrap();
    }
    let limit = std::time::Duration::from_secs(60);
    let others_wait = async {
        while waiting_calls.load(Ordering::Relaxed) < CONNECTIONS * CALLS_PER_CONNECTION {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(limit, others_wait).await.expect("all calls of the two addresses wait");
    let answer = tokio::time::timeout(limit, other.getattr(&GETATTR3args { object: root })).await;
    drop(end_sender);
    assert_eq!(answer.map(|reply| status(&reply.unwrap())), Ok(nfsstat3::NFS3_OK));
}

#[tokio::test]
async fn modes_and_failed_creations_do_not_lock_clients_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut client = mount(start_open(directory.path()).await, "/").await.unwrap();
    let root = client.root_nfs_fh3();
    let where_ = entry(&root, "d");
    let attributes = sattr3 { mode: Nfs3Option::Some(0), uid: Nfs3Option::Some(12_345), ..sattr3::default() };
    let d = client.mkdir(&MKDIR3args { where_, attributes }).await.unwrap().unwrap().obj.unwrap();
    let file = create(&mut client, &d, "f").await;
    for (object, expected) in [(&file, 0), (&d, 0o700)] {
        let new_attributes = sattr3 { mode: Nfs3Option::Some(0), ..sattr3::default() };
        let set = SETATTR3args { object: object.clone(), new_attributes, guard: Nfs3Option::None };
        let found = client.setattr(&set).await.unwrap().unwrap().obj_wcc.after.unwrap();
        assert_eq!(found.mode, expected);
    }
    let how = createhow3::GUARDED(sattr3 { size: Nfs3Option::Some(1 << 63), ..sattr3::default() });
    let created = client.create(&CREATE3args { where_: entry(&d, "large"), how }).await.unwrap();
    assert_eq!(status(&created), nfsstat3::NFS3ERR_INVAL);
    create(&mut client, &d, "large").await;
}

/// Runs a test of this program again without the right of root to ignore modes, and returns true. Returns false in that
/// run, and if this process does not have the right.
fn runs_again_without_override(test: &str) -> bool {
    const MARK: &str = "GODWIT_TEST_WITHOUT_OVERRIDE";
    let file = tempfile::NamedTempFile::new().expect("it can be created");
    fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o000)).expect("it is our file");
    if fs::File::open(file.path()).is_err() {
        return false;
    }
    assert!(std::env::var_os(MARK).is_none(), "setpriv has not removed the right");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]);
    command.arg(std::env::current_exe().expect("it is known")).args(["--exact", test]).env(MARK, "1");
    let output = command.output().expect("setpriv of util-linux starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

#[test]
fn a_file_keeps_a_mode_that_does_not_permit_writes_and_is_written_nevertheless() {
    if runs_again_without_override("a_file_keeps_a_mode_that_does_not_permit_writes_and_is_written_nevertheless") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let (server, other) = (start_open(directory.path()).await, start_open(directory.path()).await);
        let (mut client, mut other) = (mount(server, "/").await.unwrap(), mount(other, "/").await.unwrap());
        let root = client.root_nfs_fh3();
        for mode in [0, 0o200, 0o400, 0o444] {
            let name = format!("f{mode:o}");
            let attributes = sattr3 { mode: Nfs3Option::Some(mode), ..sattr3::default() };
            let request = CREATE3args { where_: entry(&root, &name), how: createhow3::GUARDED(attributes) };
            let file = client.create(&request).await.unwrap().unwrap().obj.unwrap();
            write(&mut client, &file, 0, b"first ", stable_how::UNSTABLE).await;
            write(&mut other, &file, 6, b"second", stable_how::FILE_SYNC).await;
            commit(&mut client, &file).await;
            assert_eq!(read(&mut client, &file, 0, 99).await.0, b"first second");
            // Two servers change and restore the mode at the same time.
            for _ in 0..50 {
                let both = tokio::join!(read(&mut client, &file, 0, 99), read(&mut other, &file, 0, 99));
                assert_eq!((both.0.0, both.1.0), (b"first second".to_vec(), b"first second".to_vec()));
            }
            let (may_read, may_write) = (mode & 0o400 != 0, mode & 0o200 != 0);
            let access = ACCESS3_READ | ACCESS3_MODIFY;
            let granted = client.access(&ACCESS3args { object: file.clone(), access }).await.unwrap().unwrap().access;
            assert_eq!((granted & ACCESS3_READ != 0, granted & ACCESS3_MODIFY != 0), (may_read, may_write));
            let how = createhow3::UNCHECKED(sattr3 { size: Nfs3Option::Some(0), ..sattr3::default() });
            let opened = client.create(&CREATE3args { where_: entry(&root, &name), how }).await.unwrap();
            let expected = if may_write { nfsstat3::NFS3_OK } else { nfsstat3::NFS3ERR_ACCES };
            assert_eq!(status(&opened), expected, "truncation of a file of mode {mode:o}");
            let found = client.getattr(&GETATTR3args { object: file.clone() }).await.unwrap().unwrap();
            assert_eq!(found.obj_attributes.mode, mode);
            // The owner may change the mode of a file that it may not read.
            let new_attributes = sattr3 { mode: Nfs3Option::Some(0o640), ..sattr3::default() };
            let set = SETATTR3args { object: file, new_attributes, guard: Nfs3Option::None };
            assert_eq!(client.setattr(&set).await.unwrap().unwrap().obj_wcc.after.unwrap().mode, 0o640);
        }
    });
}

#[tokio::test]
async fn open_files_outlive_the_move_of_their_directory_and_both_paths_are_recorded() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("a/b")).unwrap();
    fs::create_dir(directory.path().join("c")).unwrap();
    fs::write(directory.path().join("a/b/f"), "f").unwrap();
    let log = Arc::new(MemoryLog::default());
    let access = ClientAccess::new(Box::new(|_| Some(Principal::default())), None, true);
    let mut client = mount(start(directory.path(), access, Some(log.clone())).await, "/").await.unwrap();
    let root = client.root_nfs_fh3();
    let a = lookup(&mut client, &root, "a").await.unwrap();
    let b = lookup(&mut client, &a, "b").await.unwrap();
    let file = lookup(&mut client, &b, "f").await.unwrap();
    let c = lookup(&mut client, &root, "c").await.unwrap();
    let rename = RENAME3args { from: entry(&a, "b"), to: entry(&c, "b") };
    assert_eq!(status(&client.rename(&rename).await.unwrap()), nfsstat3::NFS3_OK);
    assert_eq!(read(&mut client, &file, 0, 9).await.0, b"f");
    let records = log.0.lock().clone();
    let paths: Vec<&str> = records.iter().map(|record| record.resource.as_str()).collect();
    assert_eq!(paths, ["a/b", "c/b", "c/b/f"]);
}

#[tokio::test]
async fn a_server_that_is_not_writable_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("f"), "f").unwrap();
    let access = ClientAccess::new(Box::new(|_| Some(Principal::default())), None, false);
    let mut client = mount(start(directory.path(), access, None).await, "/").await.unwrap();
    let root = client.root_nfs_fh3();
    let remove = REMOVE3args { object: entry(&root, "f") };
    assert_eq!(status(&client.remove(&remove).await.unwrap()), nfsstat3::NFS3ERR_ROFS);
    let where_ = entry(&root, "d");
    let made = client.mkdir(&MKDIR3args { where_, attributes: sattr3::default() }).await.unwrap();
    assert_eq!(status(&made), nfsstat3::NFS3ERR_ROFS);
    let file = lookup(&mut client, &root, "f").await.unwrap();
    assert_eq!(read(&mut client, &file, 0, 9).await.0, b"f");
}

#[tokio::test]
async fn links_are_read_but_not_created_and_limits_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("../elsewhere", directory.path().join("link")).unwrap();
    let server = start_open(directory.path()).await;
    let mut client = mount(server, "/").await.unwrap();
    let root = client.root_nfs_fh3();
    let symlink = lookup(&mut client, &root, "link").await.unwrap();
    let target = client.readlink(&READLINK3args { symlink: symlink.clone() }).await.unwrap().unwrap().data;
    assert_eq!(target.as_ref(), b"../elsewhere");
    let data = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data: nfspath3::from(&b"x"[..]) };
    let made = client.symlink(&SYMLINK3args { where_: entry(&root, "other"), symlink: data }).await.unwrap();
    assert_eq!(status(&made), nfsstat3::NFS3ERR_NOTSUPP);
    let made = client.link(&LINK3args { file: symlink, link: entry(&root, "other") }).await.unwrap();
    assert_eq!(status(&made), nfsstat3::NFS3ERR_NOTSUPP);
    let how = createhow3::UNCHECKED(sattr3::default());
    let hidden = client.create(&CREATE3args { where_: entry(&root, ".godwit"), how }).await.unwrap();
    assert_eq!(status(&hidden), nfsstat3::NFS3ERR_PERM);

    let limits = client.fsinfo(&FSINFO3args { fsroot: root.clone() }).await.unwrap().unwrap();
    assert_eq!((limits.rtmax, limits.wtmax), (1 << 20, 1 << 20));
    let space = client.fsstat(&FSSTAT3args { fsroot: root.clone() }).await.unwrap().unwrap();
    assert!(space.tbytes >= space.fbytes && space.fbytes >= space.abytes && space.tbytes > 0);
    let path = client.pathconf(&PATHCONF3args { object: root }).await.unwrap().unwrap();
    assert_eq!((path.name_max, path.no_trunc), (255, true));
    let exports = client.mount_client.export().await.unwrap().into_inner();
    assert_eq!(exports.iter().map(|export| export.ex_dir.0.to_vec()).collect::<Vec<_>>(), [b"/".to_vec()]);
    assert!(client.mount_client.dump().await.unwrap().is_empty());
}

#[tokio::test]
async fn connections_that_violate_the_protocol_are_closed_and_their_number_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_open(directory.path()).await;
    // A record of 1 GiB, and one that is not a call.
    for bytes in [&[0xc0, 0, 0, 0, 0, 0][..], &[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 9]] {
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    let mut streams = Vec::new();
    for _ in 0..MAX_CONNECTIONS_PER_ADDRESS {
        streams.push(connect(server).await);
    }
    for stream in &mut streams {
        stream.null().await.unwrap();
    }
    assert!(connect(server).await.null().await.is_err());
    streams.pop();
    // The server notices the end of the connection after a moment.
    for attempt in 0.. {
        if connect(server).await.null().await.is_ok() {
            break;
        }
        assert!(attempt < 1000);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn connect(server: SocketAddr) -> nfs3_client::Nfs3Client<TokioIo<TcpStream>> {
    nfs3_client::Nfs3Client::new(TokioIo::new(TcpStream::connect(server).await.expect("the server listens")))
}

/// Returns the record of a call of NFS (RFC 5531, section 9).
fn call(procedure: u32, arguments: &[u8]) -> Vec<u8> {
    // Transaction, CALL, RPC version 2, NFS version 3, the procedure, and two empty AUTH_NONE.
    let header = [7, 0, 2, 100_003, 3, procedure, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let size = (header.len() + arguments.len()) as u32;
    [&(0x8000_0000 | size).to_be_bytes(), &header[..], arguments].concat()
}

fn handle_argument(file: &nfs_fh3) -> Vec<u8> {
    let mut argument = (file.data.len() as u32).to_be_bytes().to_vec();
    argument.extend(file.data.iter());
    argument.resize(argument.len().next_multiple_of(4), 0);
    argument
}

/// Returns the record of a call that writes bytes to a file (RFC 1813, section 3.3.7).
fn write_call(file: &nfs_fh3, data: &[u8; 4]) -> Vec<u8> {
    let mut arguments = handle_argument(file);
    arguments.extend(0_u64.to_be_bytes());
    for word in [data.len() as u32, stable_how::FILE_SYNC as u32, data.len() as u32] {
        arguments.extend(word.to_be_bytes());
    }
    arguments.extend(data);
    call(7, &arguments)
}

#[tokio::test]
async fn calls_that_a_server_reads_after_their_connection_was_reset_are_not_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("f"), "late").unwrap();
    let server = start_open(directory.path()).await;
    let mut client = mount(server, "/").await.unwrap();
    let root = client.root_nfs_fh3();
    let file = lookup(&mut client, &root, "f").await.unwrap();
    for (is_reset, expected) in [(true, "late"), (false, "more")] {
        // The task of the server does not run until the test waits, so the call and the reset are there before it reads.
        let stream = std::net::TcpStream::connect(server).unwrap();
        std::io::Write::write_all(&mut &stream, &write_call(&file, b"more")).unwrap();
        if is_reset {
            socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            drop(stream);
        } else {
            stream.set_nonblocking(true).unwrap();
            TcpStream::from_std(stream).unwrap().readable().await.unwrap();
        }
        // The server accepts this connection after the one before, and the calls leave time for that one.
        let mut later = connect(server).await;
        for _ in 0..20 {
            later.null().await.unwrap();
        }
        assert_eq!(fs::read_to_string(directory.path().join("f")).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_server_that_runs_is_healthy_and_one_that_has_stopped_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let access = ClientAccess::new(Box::new(|_| None), None, false);
    let options = ExportOptions { access, access_log: None, log: Arc::new(|_| ()) };
    let export = Export::open(directory.path(), options).unwrap();
    let server = NfsServer::bind("127.0.0.1:0".parse().unwrap(), export, MAX_CONNECTIONS).await.unwrap();
    let health = server.health();
    assert!(!health.check().await, "it does not run yet");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(server.serve_until(async { drop(stopped.await) }));
    assert_eq!(tokio::join!(health.check(), health.check()), (true, true));
    drop(stop);
    running.await.unwrap();
    assert!(!health.check().await);
}
