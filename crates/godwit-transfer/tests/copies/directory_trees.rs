//! Trees with entries that cannot be copied: everything else is copied, and each of them is reported.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rustix::fs::{Mode, OFlags};

use super::*;

/// A name that is not UTF-8.
const BYTES_NAME: &[u8] = b"\xff\xfebad\xc3\xa9";

fn long_name() -> String {
    "n".repeat(255)
}

/// Makes a tree of files with unusual names and of entries that cannot be copied; returns the displayed paths of the latter.
fn fill_with_uncopyable(directory: &Path) -> Vec<&'static str> {
    fs::create_dir_all(directory.join("sub/none")).unwrap();
    let long = long_name();
    let names = ["plain", "sub/plain", "new\nline", "Case", "case", "sub/é\u{1b}", &long];
    for (seed, name) in (0..).zip(names) {
        fs::write(directory.join(name), random_bytes(seed, 1000 + seed as usize)).unwrap();
    }
    fs::write(directory.join(OsStr::from_bytes(BYTES_NAME)), random_bytes(8, 3 * MIB)).unwrap();
    fs::create_dir(directory.join(OsStr::from_bytes(b"d\x80"))).unwrap();
    fs::write(directory.join(OsStr::from_bytes(b"d\x80/f")), "in it").unwrap();
    symlink("plain", directory.join("inside")).unwrap();
    symlink("loop", directory.join("loop")).unwrap();
    symlink("/nonexistent", directory.join("dangling")).unwrap();
    symlink("..", directory.join("sub/up")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, directory.join("fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
    drop(UnixListener::bind(directory.join("socket")).unwrap());
    vec!["dangling", "fifo", "loop", "socket", "sub/up"]
}

/// Removes the entries that cannot be copied, so that two trees can be compared.
fn remove_uncopyable(directory: &Path, odd: &[&str]) {
    odd.iter().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
}

/// Copies a tree with entries that cannot be copied; returns their paths and the reasons.
async fn run_copy_with_failures(
    from: &Location,
    to: &Location,
    options: &CopyOptions,
) -> (CopySummary, Vec<(String, String)>) {
    let watch = RecordingObserver::default();
    let outcome = run_observed_copy(from, to, options, &watch).await;
    let Err(TransferError::PartialFailure { failed_files, summary, .. }) = outcome else { panic!("{outcome:?}") };
    let events = watch.events.lock();
    let told = events.iter().filter_map(|event| match event {
        CopyEvent::NotCopied { path, reason } => Some((path.clone(), reason.clone())),
        _ => None,
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    assert_eq!(told.len(), failed_files, "{told:?}");
    (*summary, told)
}

fn failed_paths(told: &[(String, String)]) -> Vec<&str> {
    told.iter().map(|(path, _)| path.as_str()).collect()
}

#[test]
fn what_cannot_be_copied_of_a_tree_keeps_nothing_else_from_arriving_whichever_way_it_goes() {
    run(async {
        let (_keep, there, mine) = directories();
        let odd = fill_with_uncopyable(&there.join("d"));
        fill_with_uncopyable(&mine.join("d"));
        fs::create_dir(there.join("relay")).unwrap();
        let references =
            FileServiceOptions { writable: true, relay_enabled: true, threads: 1, ..FileServiceOptions::default() };
        let served = DataServer::start_with(&there, own_address(), references).await;
        let relay = DataServer::start_with(&there.join("relay"), own_address(), relay_options(None)).await;
        let through = CopyOptions { relay: Some(relay.location("")), ..options() };
        let delta = Compression::Delta(Arc::new(ReferenceStore::new(Vec::new(), 1)));
        let delta = CopyOptions { compression: delta, ..options() };
        let sync = CopyOptions { sync: true, ..options() };
        let several = CopyOptions { mirrors: vec![served.location("d")], ..options() };
        let place = |path: &Path| local_location(path);
        let ways = [
            (served.location("d"), place(&mine.join("down")), mine.join("down"), options()),
            (place(&mine.join("d")), served.location("up"), there.join("up"), options()),
            (served.location("d"), place(&mine.join("down-relay")), mine.join("down-relay"), through.clone()),
            (place(&mine.join("d")), served.location("up-relay"), there.join("up-relay"), through),
            (served.location("d"), place(&mine.join("down-delta")), mine.join("down-delta"), delta.clone()),
            (place(&mine.join("d")), served.location("up-delta"), there.join("up-delta"), delta),
            (served.location("d"), place(&mine.join("down-sync")), mine.join("down-sync"), sync.clone()),
            (place(&mine.join("d")), served.location("up-sync"), there.join("up-sync"), sync),
            (served.location("d"), place(&mine.join("down-several")), mine.join("down-several"), several),
            (served.location("d"), served.location("third"), there.join("third"), options()),
        ];
        let mut arrived = Vec::new();
        for (from, to, target, options) in ways {
            let (summary, told) = run_copy_with_failures(&from, &to, &options).await;
            assert_eq!(failed_paths(&told), odd, "{from} {to}: {told:?}");
            assert_eq!((summary.files, summary.up_to_date_files), (10, 0), "{from} {to}");
            let why: Vec<_> = told.iter().map(|(_, why)| why.as_str()).collect();
            let parts =
                ["a file that does not exist", "named pipe", "link to itself", "socket", "that contains the link"];
            for (why, part) in why.iter().zip(parts) {
                assert!(why.contains(part), "{from} {to}: {why}");
            }
            let (again, _) = run_copy_with_failures(&from, &to, &options).await;
            assert_eq!((again.files, again.up_to_date_files), (0, 10), "{from} {to}");
            arrived.push(target);
        }
        remove_uncopyable(&there.join("d"), &odd);
        remove_uncopyable(&mine.join("d"), &odd);
        let contents = |directory: &Path| -> Vec<_> {
            directory_contents(directory).into_iter().map(|(path, content, ..)| (path, content)).collect()
        };
        for target in arrived {
            assert!(contents(&there.join("d")) == contents(&target), "{}", target.display());
        }
        // Excluded entries are not reported, and fail nothing.
        let fine = CopyOptions { exclude: odd.iter().map(|name| (*name).to_owned()).collect(), ..options() };
        assert_eq!(
            run_copy(&served.location("d"), &local_location(&mine.join("fine")), &fine).await.unwrap().files,
            10
        );
    });
}

#[test]
fn a_file_with_a_name_of_255_bytes_resumes_where_it_was_stopped() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let name = long_name();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            fs::create_dir(from.join("d")).unwrap();
            fs::write(from.join("d").join(&name), random_bytes(9, 48 * MIB)).unwrap();
            let served = DataServer::start(&there).await;
            let (source, target) = ends_of_copy(downloads, &served, &mine);
            let watch = RecordingObserver { stop_at: AtomicU64::new(12 << 20), ..RecordingObserver::default() };
            let slow = CopyOptions { bits_per_s: Some(300_000_000), ..options() };
            let stopped = run_observed_copy(&source, &target, &slow, &watch).await;
            assert!(matches!(stopped, Err(TransferError::Interrupted)), "{stopped:?}");
            let summary = run_copy(&source, &target, &options()).await.unwrap();
            assert!(summary.resumed_bytes >= 12 << 20, "{summary:?}");
            assert_eq!(directory_contents(&from.join("d")), directory_contents(&to.join("d")));
        });
    }
}

#[test]
fn links_are_kept_within_what_is_copied_and_nowhere_else() {
    run(async {
        let (_keep, there, mine) = directories();
        let source = mine.join("d");
        fs::create_dir_all(source.join("sub/deep")).unwrap();
        fs::write(source.join("plain"), "text").unwrap();
        let within = [
            ("inside", "plain"),
            ("sub/deep/back", "../../plain"),
            ("to-sub", "sub"),
            ("loop", "loop"),
            ("none", "sub/x"),
        ];
        let outside = [
            ("absolute", "/etc"),
            ("sub/deep/higher", "../../../mine"),
            // To the root through a link, and up from there.
            ("sub/deep/through", "up/../x"),
            ("sub/out", "../../x"),
        ];
        symlink("../..", source.join("sub/deep/up")).unwrap();
        for (name, target) in within.iter().chain(&outside) {
            symlink(target, source.join(name)).unwrap();
        }
        let served = DataServer::start(&there).await;
        let keep = CopyOptions { link_policy: LinkPolicy::Preserve, sync: true, ..options() };
        let ways = [
            (local_location(&source), served.location("up"), there.join("up")),
            (served.location("copy"), local_location(&mine.join("down")), mine.join("down")),
            (served.location("copy"), served.location("third"), there.join("third")),
        ];
        fs::rename(&source, there.join("copy")).unwrap();
        std::process::Command::new("cp").arg("-a").arg(there.join("copy")).arg(&source).status().unwrap();
        for (from, to, target) in ways {
            for round in 0..2 {
                let (summary, told) = run_copy_with_failures(&from, &to, &keep).await;
                assert_eq!(failed_paths(&told), outside.map(|(name, _)| name), "{from} {to}: {told:?}");
                assert_eq!(summary.files, if round == 0 { 7 } else { 0 }, "{from} {to}");
            }
            for (name, leads_to) in within {
                assert_eq!(fs::read_link(target.join(name)).unwrap(), Path::new(leads_to), "{name}");
            }
            assert!(outside.iter().all(|(name, _)| !target.join(name).is_symlink()));
            // A link that has changed, one that is a file now, and one that was removed.
            fs::remove_file(target.join("inside")).unwrap();
            symlink("sub", target.join("inside")).unwrap();
            fs::remove_file(target.join("none")).unwrap();
            fs::write(target.join("none"), "a file").unwrap();
            symlink("plain", target.join("surplus")).unwrap();
            let (summary, _) = run_copy_with_failures(&from, &to, &keep).await;
            assert_eq!((summary.files, summary.removed_files), (2, 1), "{from} {to}");
            assert_eq!(fs::read_link(target.join("inside")).unwrap(), Path::new("plain"));
            assert_eq!(fs::read_link(target.join("none")).unwrap(), Path::new("sub/x"));
            assert!(!target.join("surplus").is_symlink());
        }
    });
}

#[test]
fn skipped_links_fail_nothing_and_their_destinations_are_unchanged() {
    run(async {
        let (_keep, there, mine) = directories();
        let odd = fill_with_uncopyable(&there.join("d"));
        remove_uncopyable(&there.join("d"), &["fifo", "socket"]);
        assert!(odd.contains(&"loop"));
        let served = DataServer::start(&there).await;
        fs::create_dir(mine.join("d")).unwrap();
        fs::write(mine.join("d/loop"), "from before").unwrap();
        let skip = CopyOptions { link_policy: LinkPolicy::Skip, sync: true, ..options() };
        let summary = run_copy(&served.location("d"), &local_location(&mine.join("d")), &skip).await.unwrap();
        assert_eq!((summary.files, summary.skipped_links, summary.removed_files), (9, 4, 0), "{summary:?}");
        assert!(mine.join("d/loop").exists() && !mine.join("d/inside").exists());
    });
}

#[test]
fn a_mirror_removes_nothing_of_what_could_not_be_listed_and_nothing_behind_a_link() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            let outside = to.parent().unwrap().join("outside");
            for made in [from.join("d/keep"), to.join("d/odd"), outside.clone()] {
                fs::create_dir_all(made).unwrap();
            }
            // A directory at the destination; nothing of it can be read at the source.
            symlink("/nonexistent", from.join("d/odd")).unwrap();
            for file in [from.join("d/keep/f"), to.join("d/odd/f"), to.join("d/surplus"), outside.join("f")] {
                fs::write(file, "x").unwrap();
            }
            symlink(&outside, to.join("d/linked")).unwrap();
            let served = DataServer::start(&there).await;
            let (source, target) = ends_of_copy(downloads, &served, &mine);
            let sync = CopyOptions { sync: true, ..options() };
            let (summary, told) = run_copy_with_failures(&source, &target, &sync).await;
            assert_eq!((failed_paths(&told), summary.removed_files), (vec!["odd"], 2));
            assert!(to.join("d/odd/f").exists() && to.join("d/keep/f").exists());
            assert!(!to.join("d/surplus").exists() && !to.join("d/linked").is_symlink());
            assert!(outside.join("f").exists());
        });
    }
}

#[test]
fn what_is_in_the_way_at_the_destination_keeps_nothing_else_from_arriving() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            fs::create_dir_all(from.join("d/directory/sub")).unwrap();
            for name in ["d/directory/f", "d/directory/sub/g", "d/file", "d/last"] {
                fs::write(from.join(name), random_bytes(1, 2 * MIB)).unwrap();
            }
            // A directory where the source has a file, and the reverse.
            fs::create_dir_all(to.join("d/file")).unwrap();
            fs::write(to.join("d/directory"), "a file").unwrap();
            let served = DataServer::start(&there).await;
            let (source, target) = ends_of_copy(downloads, &served, &mine);
            let (summary, told) = run_copy_with_failures(&source, &target, &options()).await;
            assert_eq!(failed_paths(&told), ["directory", "directory/f", "directory/sub", "directory/sub/g", "file"]);
            assert_eq!(summary.files, 1);
            let reasons =
                ["/directory is not a directory; move it away", "the destination has a directory of this name"];
            assert!(told[0].1.contains(reasons[0]) && told[2].1.contains(reasons[0]), "{told:?}");
            assert!(told[4].1.contains(reasons[1]), "{told:?}");
            assert!(fs::read(to.join("d/last")).unwrap() == random_bytes(1, 2 * MIB));
            let dry = CopyOptions { dry_run: true, ..options() };
            run_copy(&source, &target, &dry).await.unwrap();
        });
    }
}

/// An observer that calls a function when the work is known.
struct StartHook<F>(Mutex<Option<F>>, RecordingObserver);

impl<F: FnOnce() + Send> CopyObserver for StartHook<F> {
    fn on_event(&self, event: &CopyEvent) {
        if let CopyEvent::Started { .. } = event
            && let Some(change) = self.0.lock().take()
        {
            change();
        }
        self.1.on_event(event);
    }
}

#[test]
fn files_that_vanish_or_shrink_during_the_copy_are_reported_and_all_others_arrive() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            fs::create_dir_all(from.join("d/gone-directory")).unwrap();
            let names = ["gone-directory/f", "gone", "gone-small", "shrunk", "shrunk-small", "stays", "stays-small"];
            for name in names {
                let size = if name.ends_with("small") { 1000 } else { 3 * MIB };
                fs::write(from.join("d").join(name), random_bytes(1, size)).unwrap();
            }
            let served = DataServer::start(&there).await;
            let (source, target) = ends_of_copy(downloads, &served, &mine);
            let directory = from.join("d");
            let change = move || {
                fs::remove_dir_all(directory.join("gone-directory")).unwrap();
                for (gone, shrunk) in [("gone", "shrunk"), ("gone-small", "shrunk-small")] {
                    fs::remove_file(directory.join(gone)).unwrap();
                    fs::OpenOptions::new().write(true).open(directory.join(shrunk)).unwrap().set_len(10).unwrap();
                }
            };
            let observer = StartHook(Mutex::new(Some(change)), RecordingObserver::default());
            let never = AtomicBool::new(false);
            let outcome = copy(&[source], &target, &Credentials::default(), &options(), &observer, &never).await;
            let Err(TransferError::PartialFailure { failed_files: 5, files: 7, summary, .. }) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(summary.files, 2);
            for (name, size) in [("stays", 3 * MIB), ("stays-small", 1000)] {
                assert!(fs::read(to.join("d").join(name)).unwrap() == random_bytes(1, size));
            }
            for name in ["gone", "gone-small", "shrunk", "shrunk-small"] {
                assert!(!to.join("d").join(name).exists(), "{name}");
            }
        });
    }
}

#[test]
fn a_tree_deeper_than_paths_may_be_is_copied_as_far_as_paths_lead() {
    run(async {
        let (_keep, there, mine) = directories();
        fs::create_dir_all(there.join("d/other")).unwrap();
        fs::write(there.join("d/other/f"), "x").unwrap();
        let name = "x".repeat(200);
        let open = |at: &std::os::fd::OwnedFd, name: &str| {
            rustix::fs::openat(at, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
        };
        let mut at = rustix::fs::open(there.join("d"), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        for _ in 0..25 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = open(&at, &name);
        }
        let served = DataServer::start(&there).await;
        let (_, told) =
            run_copy_with_failures(&served.location("d"), &local_location(&mine.join("d")), &options()).await;
        assert!(told.len() == 1 && told[0].1.contains("too long"), "{told:?}");
        assert!(mine.join("d/other/f").exists());
        let longer = "y".repeat(230);
        let (_, told) =
            run_copy_with_failures(&local_location(&mine.join("d")), &served.location(&longer), &options()).await;
        assert!(!told.is_empty());
        assert!(there.join(&longer).join("other/f").exists());
    });
}

#[test]
fn a_client_of_an_earlier_version_receives_the_first_entry_that_cannot_be_copied_as_an_error() {
    run(async {
        let (_keep, there, _mine) = directories();
        let odd = fill_with_uncopyable(&there.join("d"));
        let served = DataServer::start(&there).await;
        let access = ConnectionSecurity { token: None, tls: None };
        let client = Client::connect(&Address::Tcp(served.address), access, TransportOptions::default()).await.unwrap();
        let act = async |kind: &str, body: &str| {
            let answer = client.do_action(kind, body.as_bytes().to_vec()).await;
            answer.map(|messages| messages.iter().map(|message| String::from_utf8(message.to_vec()).unwrap()).collect())
        };
        let list = async || -> Result<Vec<String>, FlightError> { act("godwit.files.list", r#"{"path":"d"}"#).await };
        assert!(godwit_model::message_with_causes(&list().await.unwrap_err()).contains("UTF-8"));
        fs::remove_file(there.join("d").join(OsStr::from_bytes(BYTES_NAME))).unwrap();
        fs::remove_dir_all(there.join("d").join(OsStr::from_bytes(b"d\x80"))).unwrap();
        assert!(list().await.is_err());
        remove_uncopyable(&there.join("d"), &odd);
        let listed = list().await.unwrap();
        assert!(listed.iter().all(|message| message.starts_with('[')), "{listed:?}");
        fs::create_dir_all(there.join("taken/f")).unwrap();
        let entry = |path: &str| {
            format!(
                r#"{{"path":"{path}","directory":false,"size_bytes":1,"mode":420,"modified_s":1,"modified_ns":0,"version":1}}"#
            )
        };
        let begin = format!(
            r#"{{"session":null,"base":"taken","first":0,"entries":[{},{}],"dry_run":false}}"#,
            entry("e"),
            entry("f")
        );
        let begun: Result<Vec<String>, FlightError> = act("godwit.files.begin", &begin).await;
        assert!(
            godwit_model::message_with_causes(&begun.unwrap_err())
                .contains("the destination has a directory of this name")
        );
    });
}

#[test]
fn nothing_waits_for_a_named_pipe_that_a_client_asks_for() {
    run(async {
        let (_keep, there, _mine) = directories();
        fill_with_uncopyable(&there.join("d"));
        let served = DataServer::start(&there).await;
        let access = ConnectionSecurity { token: None, tls: None };
        let client = Client::connect(&Address::Tcp(served.address), access, TransportOptions::default()).await.unwrap();
        let asked = client.do_action("godwit.files.tree", br#"{"path":"d/fifo","version":1}"#.to_vec());
        let answer = tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
        assert!(godwit_model::message_with_causes(&answer.unwrap_err()).contains("named pipe"));
    });
}
