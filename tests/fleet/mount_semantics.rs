//! Mounted servers as file systems: names, errors and contents are those of a local directory, and of the rules.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch, skip};

use super::mount_balance::call_metric;
use super::mounted_files::{UnmountOnDrop, errno, mount_or_skip, shell};
use super::server_pool::path_text;
use crate::transfer::copies::pseudorandom_bytes;

/// Time after which the kernel sees the changes of other clients, and some more.
const ATTRIBUTE_LIFETIME: Duration = Duration::from_millis(1_200);
/// The BLAKE3 of an empty file (test vectors of BLAKE3, length 0).
const EMPTY_BLAKE3: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

/// Makes calls about names below an empty directory, and returns the error number of each; 0 if it succeeds.
fn outcomes_of_names(base: &Path) -> Vec<(&'static str, i32)> {
    let at = |name: &str| base.join(name);
    let create = |name: &str| OpenOptions::new().write(true).create_new(true).open(at(name)).map(drop);
    let rename = |from: &str, to: &str| fs::rename(at(from), at(to));
    let (longest, too_long) = ("n".repeat(255), "n".repeat(256));
    let calls: [(&str, io::Result<()>); 41] = [
        ("create a file", create("f")),
        ("create a file that exists", create("f")),
        ("create a directory", fs::create_dir(at("d"))),
        ("create a directory that exists", fs::create_dir(at("d"))),
        ("create a directory at a file", fs::create_dir(at("f"))),
        ("create a directory below a file", fs::create_dir(at("f/d"))),
        ("create a directory in an absent one", fs::create_dir(at("absent/d"))),
        ("create a file in a directory", create("d/f")),
        ("create a file below a file", create("f/f")),
        ("create a file in an absent directory", create("absent/f")),
        ("open an absent file", File::open(at("absent")).map(drop)),
        ("open a directory for writing", OpenOptions::new().write(true).open(at("d")).map(drop)),
        ("inspect a path below a file", fs::metadata(at("f/x")).map(drop)),
        ("inspect a directory by dots", fs::metadata(at("d/../d/.")).map(drop)),
        ("list a file", fs::read_dir(at("f")).map(drop)),
        ("remove a directory with files", fs::remove_dir(at("d"))),
        ("remove a file as a directory", fs::remove_dir(at("f"))),
        ("remove an absent directory", fs::remove_dir(at("absent"))),
        ("remove a directory as a file", fs::remove_file(at("d"))),
        ("remove an absent file", fs::remove_file(at("absent"))),
        ("remove a directory by a dot", fs::remove_dir(at("d/."))),
        ("rename an absent file", rename("absent", "g")),
        ("rename into an absent directory", rename("f", "absent/f")),
        ("rename a file to a directory", rename("f", "d")),
        ("rename a directory to a file", rename("d", "f")),
        ("rename a directory into itself", rename("d", "d/d")),
        ("rename a file to itself", rename("f", "f")),
        ("create an empty directory", fs::create_dir(at("e"))),
        ("rename a directory to one with files", rename("e", "d")),
        ("rename a directory to an empty one", rename("d", "e")),
        ("find the file of the renamed directory", fs::metadata(at("e/f")).map(drop)),
        ("do not find its old name", fs::metadata(at("d")).map(drop)),
        ("rename a file between directories", rename("f", "e/g")),
        ("rename a file to another", rename("e/g", "e/f")),
        ("create a file with the longest name", create(&longest)),
        ("create a file with a longer name", create(&too_long)),
        ("create a directory with a longer name", fs::create_dir(at(&too_long))),
        ("rename to the longest name", rename("e/f", &format!("e/{longest}"))),
        ("rename to a longer name", rename(&longest, &too_long)),
        ("inspect a longer name", fs::metadata(at(&too_long)).map(drop)),
        ("remove the file with the longest name", fs::remove_file(at(&longest))),
    ];
    calls
        .map(|(name, outcome)| (name, outcome.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)))
        .to_vec()
}

/// Changes contents and attributes of files below a directory, and returns what programs read meanwhile.
fn outcomes_of_contents(base: &Path) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let at = |name: &str| base.join(name);
    let both = |name: &str| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at(name));
    let append = || OpenOptions::new().append(true).create(true).open(at("appended"));
    let mut found = Vec::new();
    let (mut one, mut other) = (append()?, append()?);
    one.write_all(b"one ")?;
    other.write_all(b"other ")?;
    one.write_all(b"one again")?;
    drop((one, other));
    found.push(("two handles append", fs::read(at("appended"))?));
    let file = both("sparse")?;
    file.write_all_at(b"end", 300_000)?;
    file.set_len(300_002)?;
    file.set_len(300_010)?;
    let mut beyond = [1; 10];
    found.push(("a read beyond the end", vec![file.read_at(&mut beyond, 400_000)? as u8]));
    found.push(("a file with a hole", fs::read(at("sparse"))?));
    drop(file);
    let file = both("removed")?;
    fs::remove_file(at("removed"))?;
    file.write_all_at(b"still here", 0)?;
    let mut text = String::new();
    (&file).read_to_string(&mut text)?;
    found.push(("a removed file that is open", text.into_bytes()));
    let file = both("moved")?;
    file.write_all_at(b"before ", 0)?;
    fs::rename(at("moved"), at("moved-on"))?;
    file.write_all_at(b"after", 7)?;
    drop(file);
    found.push(("a file that is renamed while it is written", fs::read(at("moved-on"))?));
    fs::write(at("old"), "old")?;
    fs::write(at("new"), "new")?;
    let mut file = File::open(at("old"))?;
    fs::rename(at("new"), at("old"))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    found.push(("a replaced file that is open", text.into_bytes()));
    fs::set_permissions(at("old"), Permissions::from_mode(0o640))?;
    found.push(("a mode", (fs::metadata(at("old"))?.mode() & 0o777).to_le_bytes().to_vec()));
    let time = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    both("old")?.set_times(FileTimes::new().set_modified(time))?;
    let seen = fs::metadata(at("old"))?;
    found.push(("a time", [seen.mtime().to_le_bytes(), seen.mtime_nsec().to_le_bytes()].concat()));
    let (one, other) = (both("locked")?, both("locked")?);
    one.lock()?;
    found.push(("a lock", vec![u8::from(matches!(other.try_lock(), Err(TryLockError::WouldBlock)))]));
    Ok(found)
}

/// Writes to a memory map of a file.
const MEMORY_MAP: &str = "head -c 9000 /dev/zero >mapped && python3 -c '
import mmap
with open(\"mapped\", \"r+b\") as file:
    with mmap.mmap(file.fileno(), 0) as pages:
        pages[4090:4099] = b\"new bytes\"
'";

#[test]
fn names_contents_and_errors_are_those_of_a_local_directory() {
    needs!("python3");
    let (root, local) = (scratch::directory("mount-posix-root"), scratch::directory("mount-posix-local"));
    let server = DataServer::start(&root, &["--writable"]);
    let url = format!("grpc+tcp://{}/", server.address);
    let mounted = mount_or_skip!("mount-posix", &url, "--wait", "20s");
    for (found, expected) in outcomes_of_names(&mounted.point).iter().zip(outcomes_of_names(&local)) {
        assert_eq!(*found, expected);
    }
    let found = outcomes_of_contents(&mounted.point).expect("each call succeeds");
    for (found, expected) in found.iter().zip(outcomes_of_contents(&local).expect("each call succeeds")) {
        assert!(*found == expected, "{}: {} and {} bytes", found.0, found.1.len(), expected.1.len());
    }
    // The server has hidden files of its own.
    let describe =
        "find . -not -path './.godwit-*' | sort && find . -type f -not -path './.godwit-*' | sort | xargs md5sum";
    for directory in [&mounted.point, &local] {
        shell(MEMORY_MAP, directory);
    }
    let expected = shell(describe, &local);
    assert_eq!(shell(describe, &mounted.point), expected);
    assert_eq!(shell(describe, &root), expected);
    let space = "df --output=size -B1 . | tail -n 1";
    assert_eq!(shell(space, &mounted.point), shell(space, &root));
}

/// Lists a directory `many` of that many files through a mount.
fn check_listing(root: &Path, mount: &Path, files: usize) {
    fs::create_dir(root.join("many")).expect("it can be made");
    for number in 0..files {
        File::create(root.join(format!("many/{number}"))).expect("it can be made");
    }
    let started = Instant::now();
    let names = fs::read_dir(mount.join("many")).expect("it can be listed").flatten().count();
    eprintln!("{names} names listed in {:?}", started.elapsed());
    assert_eq!(names, files);
}

#[test]
#[ignore = "it creates 100,000 files; run it by name"]
fn a_directory_of_a_hundred_thousand_files_is_listed() {
    let root = scratch::directory("mount-many-root");
    let server = DataServer::start(&root, &["--writable"]);
    let mounted = mount_or_skip!("mount-many", &format!("grpc+tcp://{}/", server.address), "--wait", "20s");
    check_listing(&root, &mounted.point, 100_000);
}

#[test]
fn a_listing_with_attributes_takes_few_calls() {
    needs!("curl");
    let root = scratch::directory("mount-listing-root");
    let server = DataServer::start(&root, &[]);
    for number in 0..500 {
        fs::write(root.join(format!("f{number}")), vec![0; number]).expect("it can be written");
    }
    let mounted = mount_or_skip!("mount-listing", &format!("grpc+tcp://{}/", server.address), "--wait", "20s");
    let before = call_metric(&server, "godwit_calls_total", "DoAction");
    for entry in fs::read_dir(&mounted.point).expect("it can be listed") {
        let entry = entry.expect("it can be listed");
        let size = entry.metadata().expect("it can be inspected").len();
        assert_eq!(format!("f{size}"), entry.file_name().into_string().expect("it is text"));
    }
    let calls = call_metric(&server, "godwit_calls_total", "DoAction") - before;
    // On a busy machine the attributes of the listing may be too old before they are used.
    assert!(calls < 100.0, "{calls} calls");
}

#[test]
fn appended_lines_are_not_lost_while_the_directory_is_listed() {
    let root = scratch::directory("mount-append-root");
    let server = DataServer::start(&root, &["--writable"]);
    let mounted = mount_or_skip!("mount-append", &format!("grpc+tcp://{}/", server.address), "--wait", "20s");
    for number in 0..200 {
        File::create(root.join(format!("other{number}"))).expect("it can be made");
    }
    let (log, ended) = (mounted.point.join("log"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _lister = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&mounted.point).expect("it can be listed").flatten() {
                    drop(entry.metadata());
                }
            }
        });
        let mut open = OpenOptions::new().append(true).create(true).open(&log).expect("it opens");
        let written = (0..3_000).try_for_each(|number| writeln!(open, "line {number}"));
        ended.store(true, Ordering::Relaxed);
        written.expect("it can be written");
    });
    let expected: String = (0..3_000).map(|number| format!("line {number}\n")).collect();
    assert!(fs::read_to_string(root.join("log")).expect("it is stored") == expected);
}

#[test]
fn a_handle_of_a_replaced_file_neither_changes_nor_serves_the_new_file() {
    let root = scratch::directory("mount-replaced-root");
    let server = DataServer::start(&root, &["--writable"]);
    let mounted = mount_or_skip!("mount-replaced", &format!("grpc+tcp://{}/", server.address), "--wait", "20s");
    let (stored, path) = (root.join("f"), mounted.point.join("f"));
    let old_content = pseudorandom_bytes(600_000);
    fs::write(&stored, &old_content).expect("it can be written");
    let old = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
    let mut found = vec![0; 600_000];
    old.read_exact_at(&mut found, 0).expect("it can be read");
    assert!(found == old_content);
    // Another client replaces the file by one of another size.
    let new_content = vec![7; 700_000];
    fs::write(root.join("new"), &new_content).expect("it can be written");
    fs::rename(root.join("new"), &stored).expect("it can be renamed");
    std::thread::sleep(ATTRIBUTE_LIFETIME);
    let new = File::open(&path).expect("it opens");
    let failed = old.read_exact_at(&mut found, 0);
    let mut found = vec![0; 700_000];
    new.read_exact_at(&mut found, 0).expect("it can be read");
    assert!(found == new_content);
    assert_eq!(errno(failed), Some(libc::ESTALE));
    assert_eq!(errno(old.write_all_at(b"old", 0)), Some(libc::ESTALE));
    drop((old, new));
    assert!(fs::read(&stored).expect("it is stored") == new_content);
}

#[test]
fn long_directories_names_that_servers_reject_and_files_that_others_replace() {
    needs!("python3");
    let root = scratch::directory("mount-names-root");
    let server = DataServer::start(&root, &["--writable"]);
    let url = format!("grpc+tcp://{}/", server.address);
    let mounted = mount_or_skip!("mount-names", &url, "--wait", "20s");
    let at = |name: &str| mounted.point.join(name);
    check_listing(&root, &mounted.point, 10_000);
    // Another client replaces a file that is open.
    fs::write(root.join("r"), pseudorandom_bytes(3_000_000)).expect("it can be written");
    let open = File::open(at("r")).expect("it can be opened");
    fs::write(root.join("new"), pseudorandom_bytes(2_000_000)).expect("it can be written");
    fs::rename(root.join("new"), root.join("r")).expect("it can be renamed");
    assert_eq!(errno(open.read_exact_at(&mut [0; 10], 2_900_000)), Some(libc::ESTALE));
    // Names that servers do not accept, links, and attributes.
    assert_eq!(errno(fs::write(at(".hidden"), "")), Some(libc::EPERM));
    assert_eq!(errno(std::os::unix::fs::symlink("r", at("link"))), Some(libc::EPERM));
    fs::write(at("empty"), "").expect("it can be written");
    assert_eq!(extended_attribute(&at("empty"), "user.godwit.blake3").as_deref(), Some(EMPTY_BLAKE3));
    assert_eq!(extended_attribute(&at("many/7"), "user.godwit.dataset").as_deref(), Some("many/7"));
    assert_eq!(extended_attribute(&at("empty"), "user.other"), None);
}

fn extended_attribute(path: &Path, name: &str) -> Option<String> {
    let found = Command::new("python3")
        .args(["-c", "import os, sys; print(os.getxattr(sys.argv[1], sys.argv[2]).decode(), end='')"])
        .arg(path)
        .arg(name)
        .output()
        .expect("python3 can be started");
    found.status.success().then(|| String::from_utf8(found.stdout).expect("it is text"))
}

#[test]
fn the_rules_of_the_server_apply_to_the_token_of_a_mount() {
    let directory = scratch::directory("mount-rules");
    let root = directory.join("root");
    for (name, content) in [("open/a", "a"), ("closed/b", "b"), ("in/c", "c")] {
        fs::create_dir_all(root.join(name).with_file_name("")).expect("it can be made");
        fs::write(root.join(name), content).expect("it can be written");
    }
    let [tokens, token, policy, audit] = ["tokens", "token", "policy.toml", "audit"].map(|name| directory.join(name));
    let created = godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout;
    fs::write(&token, created).expect("it can be written");
    let rules = "[[rule]]\nname = 'readers'\nwho = ['alice']\ndatasets = ['open/**']\n\n\
                 [[rule]]\nname = 'writers'\nwho = ['alice']\ndatasets = ['in/**']\nwrite = true\n";
    fs::write(&policy, rules).expect("it can be written");
    let words =
        ["--writable", "--tokens", path_text(&tokens), "--policy", path_text(&policy), "--audit", path_text(&audit)];
    let server = DataServer::start(&root, &words);
    let url = format!("grpc+tcp://{}/", server.address);
    let mounted = mount_or_skip!("mount-rules-point", &url, "--wait", "20s", "--token-file", path_text(&token));
    let at = |name: &str| mounted.point.join(name);
    assert_eq!(scratch::entry_names(&mounted.point), ["in", "open"]);
    assert_eq!(errno(fs::read(at("closed/b"))), Some(libc::ENOENT));
    fs::copy(at("open/a"), at("in/a")).expect("it can be copied");
    assert_eq!(fs::read(root.join("in/a")).expect("it is stored"), b"a");
    fs::remove_file(at("in/c")).expect("it can be removed");
    let changed = OpenOptions::new().write(true).open(at("open/a")).expect("it can be opened");
    (&changed).write_all(b"other").expect("the scratch file can be written");
    assert_eq!(errno(changed.sync_all()), Some(libc::EACCES));
    drop(changed);
    assert_eq!(errno(fs::remove_file(at("open/a"))), Some(libc::EACCES));
    assert_eq!(errno(fs::rename(at("open/a"), at("in/b"))), Some(libc::EACCES));
    assert_eq!(errno(fs::create_dir(at("open/d"))), Some(libc::EACCES));
    assert_eq!(fs::read(root.join("open/a")).expect("it is stored"), b"a");
    let recorded = fs::read_to_string(&audit).expect("it is there");
    assert!(recorded.lines().any(|line| line.contains("alice") && line.contains("in/a")), "{recorded}");
}

#[test]
fn two_writers_leave_complete_files() {
    needs!("python3");
    let root = scratch::directory("mount-writers-root");
    let server = DataServer::start(&root, &["--writable"]);
    let url = format!("grpc+tcp://{}/", server.address);
    let mounts = [
        mount_or_skip!("mount-writer-1", &url, "--wait", "20s"),
        mount_or_skip!("mount-writer-2", &url, "--wait", "20s"),
    ];
    // The last one to store its content wins, and the file is never a mixture. The last writes are stored by the close.
    let program = "import os, sys\n\
        files = [open(path, 'wb', buffering=0) for path in sys.argv[1:3]]\n\
        def stored():\n\
        \x20   return open(sys.argv[3], 'rb').read() if os.path.exists(sys.argv[3]) else b''\n\
        for round in range(30):\n\
        \x20   for writer, file in enumerate(files):\n\
        \x20       assert file.write(bytes([writer + 1]) * 20_000) == 20_000\n\
        \x20       if (round + writer) % 4 == 0:\n\
        \x20           os.fsync(file.fileno())\n\
        \x20       assert len(set(stored())) <= 1, f'round {round}'\n\
        for writer, file in enumerate(files):\n\
        \x20   file.close()\n\
        \x20   assert stored() == bytes([writer + 1]) * 600_000, f'writer {writer}'";
    let [one, other] = mounts.each_ref().map(|mounted| mounted.point.join("both"));
    run_checked(python_process(program).arg(one).arg(other).arg(root.join("both")));
}

/// Returns a process that runs a Python program. If this process had the files open, each process that another test starts
/// would close copies of their handles, which stores the files.
fn python_process(program: &str) -> Command {
    let mut command = Tool::require("python3").command();
    command.arg("-c").arg(program);
    command
}

/// Writes a file that does not fit into a small file system of the server: the old file stays complete. The script
/// mounts the file system at `small` and creates the directory `small/d`.
fn check_full_storage(label: &str, script: &str, expected: i32) {
    let root = scratch::directory(label);
    let small = root.join("small");
    fs::create_dir(&small).expect("it can be made");
    let server = DataServer::start(&root, &["--writable"]);
    let mounted = mount_or_skip!("mount-full", &format!("grpc+tcp://{}/", server.address), "--wait", "20s");
    let unmount = UnmountOnDrop(small.clone());
    let prepared = Command::new("bash").args(["-ec", script]).current_dir(&root).output();
    if !prepared.is_ok_and(|output| output.status.success()) {
        skip!("small-disk", "this machine does not permit to mount a small file system");
    }
    let (full, stored) = (mounted.point.join("small/d/full"), small.join("d/full"));
    fs::write(&full, "before").expect("it can be written");
    let program = "import os, sys\n\
        file = open(sys.argv[1], 'wb', buffering=0)\n\
        assert file.write(os.urandom(3_000_000)) == 3_000_000\n\
        try:\n\
        \x20   os.fsync(file.fileno())\n\
        except OSError as error:\n\
        \x20   print(error.errno, end='')";
    let told = run_checked(python_process(program).arg(&full)).stdout;
    assert_eq!(String::from_utf8_lossy(&told), expected.to_string());
    assert_eq!(fs::read(stored).expect("it is stored"), b"before");
    let count = || fs::read_dir(small.join("d")).expect("it can be listed").count();
    wait_until("the temporary files of the attempts are removed", || count() == 1);
    drop(unmount);
}

#[test]
fn a_full_disk_leaves_the_complete_old_file() {
    needs!("python3");
    check_full_storage("mount-full-root", "mount -t tmpfs -o size=1m tmpfs small && mkdir small/d", libc::ENOSPC);
}

#[test]
fn an_exceeded_quota_leaves_the_complete_old_file() {
    needs!("python3");
    let script = "truncate -s 128M .image && mkfs.btrfs -q .image && mount -o loop .image small &&
        btrfs quota enable small && btrfs subvolume create small/d && btrfs qgroup limit 1M small/d && sync small";
    check_full_storage("mount-quota-root", script, libc::EDQUOT);
}
