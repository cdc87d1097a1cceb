//! Trees with entries that cannot be copied: everything else arrives, and each of them is named.

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

/// Makes a tree of files with unusual names, and of entries that cannot be copied; the paths of these as they are shown.
fn fill_with_odd(directory: &Path) -> Vec<&'static str> {
    fs::create_dir_all(directory.join("sub/none")).unwrap();
    let long = long_name();
    let names = ["plain", "sub/plain", "new\nline", "Case", "case", "sub/é\u{1b}", &long];
    for (seed, name) in (0..).zip(names) {
        fs::write(directory.join(name), bytes(seed, 1000 + seed as usize)).unwrap();
    }
    fs::write(directory.join(OsStr::from_bytes(BYTES_NAME)), bytes(8, 3 * MIB)).unwrap();
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

/// Removes what cannot be copied, so that two trees can be compared.
fn remove_odd(directory: &Path, odd: &[&str]) {
    odd.iter().for_each(|name| fs::remove_file(directory.join(name)).unwrap());
}

/// Copies what holds entries that cannot be copied; their paths, and why not.
async fn copied_but_for(from: &Place, to: &Place, options: &CopyOptions) -> (CopySummary, Vec<(String, String)>) {
    let watch = Watch::default();
    let outcome = watched(from, to, options, &watch).await;
    let Err(TransferError::Some { failed, summary, .. }) = outcome else { panic!("{outcome:?}") };
    let events = watch.events.lock().unwrap();
    let told = events.iter().filter_map(|event| match event {
        CopyEvent::NotCopied { path, why } => Some((path.clone(), why.clone())),
        _ => None,
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    assert_eq!(told.len(), failed, "{told:?}");
    (*summary, told)
}

fn paths(told: &[(String, String)]) -> Vec<&str> {
    told.iter().map(|(path, _)| path.as_str()).collect()
}

#[test]
fn what_cannot_be_copied_of_a_tree_keeps_nothing_else_from_arriving_whichever_way_it_goes() {
    run(async {
        let (_keep, there, mine) = directories();
        let odd = fill_with_odd(&there.join("d"));
        fill_with_odd(&mine.join("d"));
        fs::create_dir(there.join("relay")).unwrap();
        let references = FilesOptions { writable: true, relays: true, threads: 1, ..FilesOptions::default() };
        let served = Serving::with(&there, "127.0.0.1:0", references).await;
        let relay = Serving::with(&there.join("relay"), "127.0.0.1:0", relaying(None)).await;
        let through = CopyOptions { relay: Some(relay.place("")), ..options() };
        let delta = Compression::Delta(Arc::new(References::new(Vec::new(), 1)));
        let delta = CopyOptions { compress: delta, ..options() };
        let sync = CopyOptions { sync: true, ..options() };
        let several = CopyOptions { also_from: vec![served.place("d")], ..options() };
        let place = |path: &Path| here(path);
        let ways = [
            (served.place("d"), place(&mine.join("down")), mine.join("down"), options()),
            (place(&mine.join("d")), served.place("up"), there.join("up"), options()),
            (served.place("d"), place(&mine.join("down-relay")), mine.join("down-relay"), through.clone()),
            (place(&mine.join("d")), served.place("up-relay"), there.join("up-relay"), through),
            (served.place("d"), place(&mine.join("down-delta")), mine.join("down-delta"), delta.clone()),
            (place(&mine.join("d")), served.place("up-delta"), there.join("up-delta"), delta),
            (served.place("d"), place(&mine.join("down-sync")), mine.join("down-sync"), sync.clone()),
            (place(&mine.join("d")), served.place("up-sync"), there.join("up-sync"), sync),
            (served.place("d"), place(&mine.join("down-several")), mine.join("down-several"), several),
            (served.place("d"), served.place("third"), there.join("third"), options()),
        ];
        let mut arrived = Vec::new();
        for (from, to, target, options) in ways {
            let (summary, told) = copied_but_for(&from, &to, &options).await;
            assert_eq!(paths(&told), odd, "{from} {to}: {told:?}");
            assert_eq!((summary.files, summary.same), (10, 0), "{from} {to}");
            let why: Vec<_> = told.iter().map(|(_, why)| why.as_str()).collect();
            for (why, part) in
                why.iter().zip(["link to nothing", "named pipe", "link to itself", "socket", "that it is in"])
            {
                assert!(why.contains(part), "{from} {to}: {why}");
            }
            let (again, _) = copied_but_for(&from, &to, &options).await;
            assert_eq!((again.files, again.same), (0, 10), "{from} {to}");
            arrived.push(target);
        }
        remove_odd(&there.join("d"), &odd);
        remove_odd(&mine.join("d"), &odd);
        let contents = |directory: &Path| -> Vec<_> {
            tree(directory).into_iter().map(|(path, content, ..)| (path, content)).collect()
        };
        for target in arrived {
            assert!(contents(&there.join("d")) == contents(&target), "{}", target.display());
        }
        // What is left out by its name is not told, and fails nothing.
        let fine = CopyOptions { exclude: odd.iter().map(|name| (*name).to_owned()).collect(), ..options() };
        assert_eq!(copied(&served.place("d"), &here(&mine.join("fine")), &fine).await.unwrap().files, 10);
    });
}

#[test]
fn a_file_with_a_name_of_255_bytes_goes_on_where_it_was_stopped() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let name = long_name();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            fs::create_dir(from.join("d")).unwrap();
            fs::write(from.join("d").join(&name), bytes(9, 48 * MIB)).unwrap();
            let served = Serving::start(&there, "127.0.0.1:0").await;
            let (source, target) = match downloads {
                true => (served.place("d"), here(&mine.join("d"))),
                false => (here(&mine.join("d")), served.place("d")),
            };
            let watch = Watch { stop_at: AtomicU64::new(12 << 20), ..Watch::default() };
            let slow = CopyOptions { bits_per_s: Some(300_000_000), ..options() };
            let stopped = watched(&source, &target, &slow, &watch).await;
            assert!(matches!(stopped, Err(TransferError::Interrupted)), "{stopped:?}");
            let summary = copied(&source, &target, &options()).await.unwrap();
            assert!(summary.kept_bytes >= 12 << 20, "{summary:?}");
            assert_eq!(tree(&from.join("d")), tree(&to.join("d")));
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
        let served = Serving::start(&there, "127.0.0.1:0").await;
        let keep = CopyOptions { links: Links::Keep, sync: true, ..options() };
        let ways = [
            (here(&source), served.place("up"), there.join("up")),
            (served.place("copy"), here(&mine.join("down")), mine.join("down")),
            (served.place("copy"), served.place("third"), there.join("third")),
        ];
        fs::rename(&source, there.join("copy")).unwrap();
        std::process::Command::new("cp").arg("-a").arg(there.join("copy")).arg(&source).status().unwrap();
        for (from, to, target) in ways {
            for round in 0..2 {
                let (summary, told) = copied_but_for(&from, &to, &keep).await;
                assert_eq!(paths(&told), outside.map(|(name, _)| name), "{from} {to}: {told:?}");
                assert_eq!(summary.files, if round == 0 { 7 } else { 0 }, "{from} {to}");
            }
            for (name, leads_to) in within {
                assert_eq!(fs::read_link(target.join(name)).unwrap(), Path::new(leads_to), "{name}");
            }
            assert!(outside.iter().all(|(name, _)| !target.join(name).is_symlink()));
            // A link that is another now, one that is a file now, and one that is gone.
            fs::remove_file(target.join("inside")).unwrap();
            symlink("sub", target.join("inside")).unwrap();
            fs::remove_file(target.join("none")).unwrap();
            fs::write(target.join("none"), "a file").unwrap();
            symlink("plain", target.join("surplus")).unwrap();
            let (summary, _) = copied_but_for(&from, &to, &keep).await;
            assert_eq!((summary.files, summary.removed), (2, 1), "{from} {to}");
            assert_eq!(fs::read_link(target.join("inside")).unwrap(), Path::new("plain"));
            assert_eq!(fs::read_link(target.join("none")).unwrap(), Path::new("sub/x"));
            assert!(!target.join("surplus").is_symlink());
        }
    });
}

#[test]
fn links_that_are_skipped_fail_nothing_and_their_places_are_let_be() {
    run(async {
        let (_keep, there, mine) = directories();
        let odd = fill_with_odd(&there.join("d"));
        remove_odd(&there.join("d"), &["fifo", "socket"]);
        assert!(odd.contains(&"loop"));
        let served = Serving::start(&there, "127.0.0.1:0").await;
        fs::create_dir(mine.join("d")).unwrap();
        fs::write(mine.join("d/loop"), "from before").unwrap();
        let skip = CopyOptions { links: Links::Skip, sync: true, ..options() };
        let summary = copied(&served.place("d"), &here(&mine.join("d")), &skip).await.unwrap();
        assert_eq!((summary.files, summary.skipped_links, summary.removed), (9, 4, 0), "{summary:?}");
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
            // A directory there, of which the source has nothing that can be read.
            symlink("/nonexistent", from.join("d/odd")).unwrap();
            for file in [from.join("d/keep/f"), to.join("d/odd/f"), to.join("d/surplus"), outside.join("f")] {
                fs::write(file, "x").unwrap();
            }
            symlink(&outside, to.join("d/linked")).unwrap();
            let served = Serving::start(&there, "127.0.0.1:0").await;
            let (source, target) = match downloads {
                true => (served.place("d"), here(&mine.join("d"))),
                false => (here(&mine.join("d")), served.place("d")),
            };
            let sync = CopyOptions { sync: true, ..options() };
            let (summary, told) = copied_but_for(&source, &target, &sync).await;
            assert_eq!((paths(&told), summary.removed), (vec!["odd"], 2));
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
                fs::write(from.join(name), bytes(1, 2 * MIB)).unwrap();
            }
            // A directory where the source has a file, and the other way round.
            fs::create_dir_all(to.join("d/file")).unwrap();
            fs::write(to.join("d/directory"), "a file").unwrap();
            let served = Serving::start(&there, "127.0.0.1:0").await;
            let (source, target) = match downloads {
                true => (served.place("d"), here(&mine.join("d"))),
                false => (here(&mine.join("d")), served.place("d")),
            };
            let (summary, told) = copied_but_for(&source, &target, &options()).await;
            assert_eq!(paths(&told), ["directory", "directory/f", "directory/sub", "directory/sub/g", "file"]);
            assert_eq!(summary.files, 1);
            assert!(fs::read(to.join("d/last")).unwrap() == bytes(1, 2 * MIB));
            let dry = CopyOptions { dry_run: true, ..options() };
            copied(&source, &target, &dry).await.unwrap();
        });
    }
}

/// Does something when it is known what there is to copy.
struct OnStart<F>(Mutex<Option<F>>, Watch);

impl<F: FnOnce() + Send> CopyObserver for OnStart<F> {
    fn event(&self, event: &CopyEvent) {
        if let CopyEvent::Started { .. } = event
            && let Some(change) = self.0.lock().unwrap().take()
        {
            change();
        }
        self.1.event(event);
    }
}

#[test]
fn files_that_vanish_or_shrink_meanwhile_are_told_and_all_others_arrive() {
    for downloads in [true, false] {
        run(async {
            let (_keep, there, mine) = directories();
            let (from, to) = if downloads { (&there, &mine) } else { (&mine, &there) };
            fs::create_dir_all(from.join("d/gone-directory")).unwrap();
            let names = ["gone-directory/f", "gone", "gone-small", "shrunk", "shrunk-small", "stays", "stays-small"];
            for name in names {
                let size = if name.ends_with("small") { 1000 } else { 3 * MIB };
                fs::write(from.join("d").join(name), bytes(1, size)).unwrap();
            }
            let served = Serving::start(&there, "127.0.0.1:0").await;
            let (source, target) = match downloads {
                true => (served.place("d"), here(&mine.join("d"))),
                false => (here(&mine.join("d")), served.place("d")),
            };
            let directory = from.join("d");
            let change = move || {
                fs::remove_dir_all(directory.join("gone-directory")).unwrap();
                for (gone, shrunk) in [("gone", "shrunk"), ("gone-small", "shrunk-small")] {
                    fs::remove_file(directory.join(gone)).unwrap();
                    fs::OpenOptions::new().write(true).open(directory.join(shrunk)).unwrap().set_len(10).unwrap();
                }
            };
            let observer = OnStart(Mutex::new(Some(change)), Watch::default());
            let never = AtomicBool::new(false);
            let outcome = copy(&[source], &target, &Credentials::default(), &options(), &observer, &never).await;
            let Err(TransferError::Some { failed: 5, files: 7, summary, .. }) = outcome else { panic!("{outcome:?}") };
            assert_eq!(summary.files, 2);
            for (name, size) in [("stays", 3 * MIB), ("stays-small", 1000)] {
                assert!(fs::read(to.join("d").join(name)).unwrap() == bytes(1, size));
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
        let served = Serving::start(&there, "127.0.0.1:0").await;
        let (_, told) = copied_but_for(&served.place("d"), &here(&mine.join("d")), &options()).await;
        assert!(told.len() == 1 && told[0].1.contains("too long"), "{told:?}");
        assert!(mine.join("d/other/f").exists());
        let longer = "y".repeat(230);
        let (_, told) = copied_but_for(&here(&mine.join("d")), &served.place(&longer), &options()).await;
        assert!(!told.is_empty());
        assert!(there.join(&longer).join("other/f").exists());
    });
}

#[test]
fn a_client_of_an_earlier_version_is_told_of_the_first_entry_that_cannot_be_copied() {
    run(async {
        let (_keep, there, _mine) = directories();
        let odd = fill_with_odd(&there.join("d"));
        let served = Serving::start(&there, "127.0.0.1:0").await;
        let access = Access { token: None, tls: None };
        let client = Client::connect(&Address::Tcp(served.address), access, Tuning::default()).await.unwrap();
        let act = async |kind: &str, body: &str| {
            let answer = client.act(kind, body.as_bytes().to_vec()).await;
            answer.map(|messages| messages.iter().map(|message| String::from_utf8(message.to_vec()).unwrap()).collect())
        };
        let list = async || -> Result<Vec<String>, FlightError> { act("godwit.files.list", r#"{"path":"d"}"#).await };
        assert!(godwit_model::with_causes(&list().await.unwrap_err()).contains("UTF-8"));
        fs::remove_file(there.join("d").join(OsStr::from_bytes(BYTES_NAME))).unwrap();
        fs::remove_dir_all(there.join("d").join(OsStr::from_bytes(b"d\x80"))).unwrap();
        assert!(list().await.is_err());
        remove_odd(&there.join("d"), &odd);
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
        assert!(godwit_model::with_causes(&begun.unwrap_err()).contains("it is a directory, and a file at the source"));
    });
}

#[test]
fn nothing_waits_for_a_named_pipe_that_a_client_asks_for() {
    run(async {
        let (_keep, there, _mine) = directories();
        fill_with_odd(&there.join("d"));
        let served = Serving::start(&there, "127.0.0.1:0").await;
        let access = Access { token: None, tls: None };
        let client = Client::connect(&Address::Tcp(served.address), access, Tuning::default()).await.unwrap();
        let asked = client.act("godwit.files.tree", br#"{"path":"d/fifo","version":1}"#.to_vec());
        let answer = tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
        assert!(godwit_model::with_causes(&answer.unwrap_err()).contains("named pipe"));
    });
}
