//! Pools and servers mounted as files: samtools, bcftools and other programs read and write them, and do not fail when
//! pool members are killed or suspended.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_tests::binary::{GodwitProcess, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::processes::{is_running, send_signal, wait_until_exited};
use godwit_tests::random::Random;
use godwit_tests::tool::run_checked;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch, skip};

use super::server_pool::{ServerPool, path_text};
use crate::transfer::copies::pseudorandom_bytes;

/// Longest delay of a read or write that a program may notice.
const MAX_STALL: Duration = Duration::from_secs(3);

/// The BLAKE3 of an empty file (test vectors of BLAKE3, length 0).
const EMPTY_BLAKE3: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

/// A mount of a running process. Dropping it stops the process.
struct MountedFiles {
    process: Option<GodwitProcess>,
    point: PathBuf,
}

fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(path_text(point)))
}

impl MountedFiles {
    /// Mounts a location; returns `None` if this machine does not permit it.
    fn start(label: &str, words: &[&str]) -> Option<Self> {
        let point = scratch::directory(label);
        let running = godwit().arg("mount").arg(words[0]).arg(&point).args(&words[1..]).arg("--foreground").spawn();
        let process = running.process_id();
        wait_until("the files are mounted", || is_mounted(&point) || !is_running(process));
        if is_mounted(&point) {
            return Some(Self { process: Some(running), point });
        }
        let ended = running.wait_with_output();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.describe());
        assert!(ended.stderr.contains("cannot mount at"), "{}", ended.describe());
        None
    }

    fn process_id(&self) -> u32 {
        self.process.as_ref().map(GodwitProcess::process_id).expect("it runs")
    }

    /// Stops the process by a signal, and returns its exit code and its standard error.
    fn stop(mut self, signal: i32) -> (Option<i32>, String) {
        let running = self.process.take().expect("it runs");
        send_signal(running.process_id(), signal);
        let ended = running.wait_with_output();
        (ended.status.code(), ended.stderr)
    }
}

impl Drop for MountedFiles {
    fn drop(&mut self) {
        if let Some(running) = self.process.take() {
            send_signal(running.process_id(), libc::SIGTERM);
            wait_until_exited(&[running.process_id()]);
        }
    }
}

/// Skips the calling test where file systems in user space cannot be mounted.
macro_rules! mount_or_skip {
    ($label:expr, $($word:expr),+) => {
        match MountedFiles::start($label, &[$($word),+]) {
            Some(mounted) => mounted,
            None => skip!("fuse", "this machine does not permit to mount a file system in user space"),
        }
    };
}

fn has_fuse() -> bool {
    OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// Runs a shell script; every command of it must succeed. Returns its output.
fn shell(script: &str, directory: &Path) -> Vec<u8> {
    run_checked(Command::new("bash").args(["-eo", "pipefail", "-c", script]).current_dir(directory)).stdout
}

/// Writes reads in random order, their sorted and indexed BAM, and the reference, below a directory.
fn write_reads(directory: &Path) {
    let mut random = Random::new(45);
    let (bases, reads) = (400_000, 60_000);
    let reference = String::from_utf8(random.bases(bases)).expect("bases are letters");
    let lines: Vec<&str> = (0..bases).step_by(80).map(|start| &reference[start..(start + 80).min(bases)]).collect();
    fs::write(directory.join("ref.fa"), format!(">chr1\n{}\n", lines.join("\n"))).expect("it can be written");
    let mut sam = format!("@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:{bases}\n");
    for number in 0..reads {
        let start = random.below(bases - 100);
        let quality = "F".repeat(100);
        let read = &reference[start..start + 100];
        sam += &format!("r{number}\t0\tchr1\t{}\t60\t100M\t*\t0\t0\t{read}\t{quality}\n", start + 1);
    }
    fs::write(directory.join("unsorted.sam"), sam).expect("it can be written");
    let script = "samtools view -b -o unsorted.bam unsorted.sam && samtools sort -o s.bam unsorted.bam &&
        samtools index s.bam && samtools faidx ref.fa && rm unsorted.sam";
    shell(script, directory);
}

/// Scripts that read through the mount; the output must be that of the same script in the directory of the servers.
const READING_SCRIPTS: [&str; 5] = [
    "md5sum big",
    "samtools view s.bam chr1:100,000-120,000 | md5sum",
    "samtools view s.bam | md5sum",
    "bcftools mpileup -f ref.fa -r chr1:50000-60000 s.bam 2>/dev/null | grep -v '^##' | md5sum",
    "cp big /dev/stdout | cksum",
];

/// Scripts that write through the mount, and the scripts that describe what they have written.
const WRITING_SCRIPTS: [(&str, &str); 3] = [
    ("samtools sort -o out/sorted.bam unsorted.bam", "samtools view out/sorted.bam | md5sum"),
    ("cp big out/copy", "md5sum out/copy"),
    (
        "samtools view -b -o out/part.bam s.bam chr1:1-200,000 && samtools index out/part.bam",
        "samtools view out/part.bam chr1:7,000-9,000 | md5sum",
    ),
];

/// Runs the scripts through a mount until `ended`; returns the number of runs.
fn run_programs(mount: &Path, root: &Path, ended: &AtomicBool) -> usize {
    let expected: Vec<Vec<u8>> = READING_SCRIPTS.iter().map(|script| shell(script, root)).collect();
    let reference = scratch::directory("mount-expected");
    for name in ["big", "s.bam", "s.bam.bai", "unsorted.bam"] {
        fs::copy(root.join(name), reference.join(name)).expect("it can be copied");
    }
    fs::create_dir(reference.join("out")).expect("it can be made");
    let written: Vec<Vec<u8>> = WRITING_SCRIPTS
        .iter()
        .map(|(write, describe)| [shell(write, &reference), shell(describe, &reference)].concat())
        .collect();
    let mut runs = 0;
    while !ended.load(Ordering::Relaxed) {
        for (script, expected) in READING_SCRIPTS.iter().zip(&expected) {
            assert_eq!(shell(script, mount), *expected, "{script}");
            runs += 1;
        }
        for ((write, describe), expected) in WRITING_SCRIPTS.iter().zip(&written) {
            shell(write, mount);
            // The servers have the complete file when the program has closed it.
            assert_eq!(shell(describe, root), *expected, "{write}");
            assert_eq!(shell(describe, mount), *expected, "{write}");
            runs += 1;
        }
    }
    runs
}

/// Reads pieces of a file in random order until `ended`; returns the longest time of a read.
fn longest_read(path: &Path, ended: &AtomicBool) -> Duration {
    let (file, content) = (File::open(path).expect("it can be opened"), fs::read(path).expect("it can be read"));
    let (mut random, mut longest, mut piece) = (Random::new(7), Duration::ZERO, vec![0; 4096]);
    while !ended.load(Ordering::Relaxed) {
        // SAFETY: the call has numbers only; it drops the pages, so that the next read reaches the server.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let offset = random.below(content.len() - piece.len());
        let started = Instant::now();
        file.read_exact_at(&mut piece, offset as u64).expect("it can be read");
        longest = longest.max(started.elapsed());
        assert!(piece == content[offset..offset + piece.len()], "other bytes at {offset}");
        std::thread::sleep(Duration::from_millis(5));
    }
    longest
}

/// Runs random operations on a file, compared with a vector, until `ended`; returns the number of operations.
fn random_operations(seed: u64, path: &Path, stored: &Path, ended: &AtomicBool) -> usize {
    let (mut random, mut model, mut count) = (Random::new(seed), Vec::new(), 0);
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("it opens");
    let mut file = open();
    while !ended.load(Ordering::Relaxed) || count < 50 {
        // Half of the files have one block.
        let end = if random.below(2) == 0 { 3_000 } else { 500_000 };
        let offset = random.below(end);
        let case = format!("seed {seed}, operation {count}");
        match random.below(9) {
            0..=2 => {
                let data = vec![random.below(256) as u8; 1 + random.below(60_000)];
                file.write_all_at(&data, offset as u64).expect("it can be written");
                model.resize(model.len().max(offset + data.len()), 0);
                model[offset..offset + data.len()].copy_from_slice(&data);
            }
            3 => {
                file.set_len(offset as u64).expect("its size can be set");
                model.resize(offset, 0);
            }
            4 => {
                file.sync_all().expect("it can be synced");
                assert!(fs::read(stored).expect("it is stored") == model, "{case}");
            }
            5 => {
                drop(file);
                assert!(fs::read(stored).expect("it is stored") == model, "{case}");
                file = open();
            }
            6 => {
                let other = path.with_extension("renamed");
                fs::rename(path, &other).expect("it can be renamed");
                assert!(fs::read(&other).expect("it can be read") == model, "{case}");
                fs::rename(&other, path).expect("it can be renamed");
            }
            _ => {
                let mut found = vec![0; random.below(90_000)];
                let read = file.read_at(&mut found, offset as u64).expect("it can be read");
                let expected = &model[offset.min(model.len())..(offset + found.len()).min(model.len())];
                assert!(found[..read] == expected[..read] && read == expected.len(), "{case}");
            }
        }
        count += 1;
    }
    count
}

#[test]
fn programs_do_not_notice_that_pool_members_are_killed_and_suspended() {
    needs!("python3", "samtools", "bcftools");
    if !has_fuse() {
        skip!("fuse", "/dev/fuse cannot be opened");
    }
    let mut pool = ServerPool::start("mount-pool", "connections", 3, &["--writable"]);
    write_reads(&pool.root);
    fs::write(pool.root.join("big"), pseudorandom_bytes(20_000_000)).expect("it can be written");
    fs::create_dir(pool.root.join("out")).expect("it can be made");
    let (url, description) = (ServerPool::url(""), path_text(&pool.description).to_owned());
    let mounted = mount_or_skip!("mount-point", &url, "--pool", &description, "--cache", "2M", "--wait", "1m");
    let (point, root, ended) = (mounted.point.clone(), pool.root.clone(), AtomicBool::new(false));
    let (runs, longest, operations) = std::thread::scope(|scope| {
        let programs = scope.spawn(|| run_programs(&point, &root, &ended));
        let reads = scope.spawn(|| longest_read(&point.join("big"), &ended));
        let random =
            scope.spawn(|| random_operations(2026, &point.join("out/random"), &root.join("out/random"), &ended));
        let is_over = || programs.is_finished() || reads.is_finished() || random.is_finished();
        for round in 0..4 {
            let member = pool.member_of_process(mounted.process_id()).unwrap_or(round % 3);
            if round % 2 == 0 {
                pool.members[member] = None;
                std::thread::sleep(Duration::from_secs(2));
                pool.start_member(member);
            } else {
                send_signal(pool.member_process_id(member), libc::SIGSTOP);
                std::thread::sleep(Duration::from_secs(4));
                send_signal(pool.member_process_id(member), libc::SIGCONT);
            }
            pool.wait_until_health_is(&[true; 3]);
            if is_over() {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
        let (runs, longest) = (programs.join().expect("no program failed"), reads.join().expect("no read failed"));
        (runs, longest, random.join().expect("no operation failed"))
    });
    eprintln!("{runs} programs, {operations} random operations, longest read {longest:?}");
    assert!(longest < MAX_STALL, "a read took {longest:?}");
    let (code, said) = mounted.stop(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is lost; continuing at another member"), "{said}");
    assert!(!is_mounted(&point));
}

fn errno<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> Option<i32> {
    outcome.expect_err("it fails").raw_os_error()
}

#[test]
fn names_directories_and_errors_are_those_of_a_file_system() {
    needs!("python3");
    if !has_fuse() {
        skip!("fuse", "/dev/fuse cannot be opened");
    }
    let root = scratch::directory("mount-names-root");
    let server = DataServer::start(&root, &["--writable"]);
    let url = format!("grpc+tcp://{}/", server.address);
    let mounted = mount_or_skip!("mount-names", &url, "--wait", "20s");
    let at = |name: &str| mounted.point.join(name);
    // Many files, and names as long as they may be.
    fs::create_dir(root.join("many")).expect("it can be made");
    for number in 0..100_000 {
        File::create(root.join(format!("many/{number}"))).expect("it can be made");
    }
    let started = Instant::now();
    let names = fs::read_dir(at("many")).expect("it can be listed").flatten().count();
    eprintln!("{names} names listed in {:?}", started.elapsed());
    assert_eq!(names, 100_000);
    let longest = "n".repeat(255);
    fs::write(at(&longest), "long").expect("it can be written");
    assert_eq!(fs::read(root.join(&longest)).expect("it is stored"), b"long");
    assert_eq!(errno(fs::write(at(&"n".repeat(256)), "")), Some(libc::ENAMETOOLONG));
    // Directories.
    fs::create_dir(at("d")).expect("it can be made");
    assert_eq!(errno(fs::create_dir(at("d"))), Some(libc::EEXIST));
    fs::write(at("d/f"), "f").expect("it can be written");
    assert_eq!(errno(fs::remove_dir(at("d"))), Some(libc::ENOTEMPTY));
    fs::rename(at("d"), at("e")).expect("it can be renamed");
    assert_eq!(fs::read(at("e/f")).expect("it is there"), b"f");
    fs::remove_file(at("e/f")).expect("it can be removed");
    fs::remove_dir(at("e")).expect("it can be removed");
    assert_eq!(errno(File::open(at("e"))), Some(libc::ENOENT));
    // Exclusive files, and files that are removed or replaced while they are open.
    let mut exclusive = OpenOptions::new().write(true).create_new(true).open(at("x")).expect("it can be made");
    assert_eq!(errno(OpenOptions::new().write(true).create_new(true).open(at("x"))), Some(libc::EEXIST));
    exclusive.write_all(b"x").expect("it can be written");
    drop(exclusive);
    let mut open = File::open(at("x")).expect("it can be opened");
    fs::remove_file(at("x")).expect("it can be removed");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("it can be read");
    assert_eq!(text, "x");
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
    assert_eq!(extended_attribute(&at(&longest), "user.godwit.dataset"), Some(longest.clone()));
    assert_eq!(extended_attribute(&at(&longest), "user.other"), None);
    // The mode is kept, and a new time is seen by the server.
    let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).expect("it is there")) & 0o777;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    fs::set_permissions(at("r"), permissions).expect("it can be changed");
    assert_eq!(mode(&root.join("r")), 0o640);
}

#[test]
fn two_writers_and_a_full_disk_leave_complete_files() {
    needs!("python3");
    if !has_fuse() {
        skip!("fuse", "/dev/fuse cannot be opened");
    }
    let root = scratch::directory("mount-writers-root");
    let tmpfs = root.join("small");
    fs::create_dir(&tmpfs).expect("it can be made");
    let server = DataServer::start(&root, &["--writable"]);
    let url = format!("grpc+tcp://{}/", server.address);
    let mounts = [
        mount_or_skip!("mount-writer-1", &url, "--wait", "20s"),
        mount_or_skip!("mount-writer-2", &url, "--wait", "20s"),
    ];
    // The last one to store its content wins, and the file is never a mixture. The last writes are stored by the close.
    let mut open = mounts.each_ref().map(|mounted| File::create(mounted.point.join("both")).expect("it opens"));
    for round in 0..30u8 {
        for (writer, file) in (0u8..).zip(&mut open) {
            file.write_all(&vec![writer + 1; 20_000]).expect("it can be written");
            if (round + writer) % 4 == 0 {
                file.sync_all().expect("it can be synced");
            }
            let stored = fs::read(root.join("both")).unwrap_or_default();
            assert!(stored.windows(2).all(|two| two[0] == two[1]), "round {round}");
        }
    }
    for (writer, file) in (1u8..).zip(open) {
        drop(file);
        assert!(fs::read(root.join("both")).expect("it is stored") == vec![writer; 600_000]);
    }
    // A process that may not write, and a storage that is full.
    let mounted_small = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&tmpfs).status();
    if !mounted_small.is_ok_and(|status| status.success()) {
        skip!("small-disk", "this machine does not permit to mount a small file system");
    }
    let full = mounts[0].point.join("small/full");
    fs::write(&full, "before").expect("it can be written");
    let mut file = File::create(&full).expect("it opens");
    file.write_all(&pseudorandom_bytes(3_000_000)).expect("it can be written");
    let synced = file.sync_all();
    drop(file);
    let stored = fs::read(tmpfs.join("full")).expect("it is stored");
    let left = fs::read_dir(&tmpfs).expect("it can be listed").count();
    run_checked(Command::new("umount").arg("--lazy").arg(&tmpfs));
    assert_eq!(errno(synced), Some(libc::ENOSPC));
    assert_eq!((&stored[..], left), (&b"before"[..], 1));
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
fn a_mount_leaves_nothing_behind_when_its_process_is_killed() {
    if !has_fuse() {
        skip!("fuse", "/dev/fuse cannot be opened");
    }
    let root = scratch::directory("mount-kill-root");
    fs::write(root.join("f"), "f").expect("it can be written");
    let mounted = mount_or_skip!("mount-kill", path_text(&root));
    let point = mounted.point.clone();
    assert_eq!(fs::read(point.join("f")).expect("it is there"), b"f");
    mounted.stop(libc::SIGKILL);
    wait_until("the mount is removed", || !is_mounted(&point) && fs::read_dir(&point).is_ok());
    // The same mount point can be used again, in the background, too.
    godwit().args(["mount", path_text(&root), path_text(&point)]).run_ok();
    assert_eq!(fs::read(point.join("f")).expect("it is there"), b"f");
    fs::write(point.join("g"), "g").expect("it can be written");
    run_checked(Command::new("umount").arg(&point));
    assert_eq!(fs::read(root.join("g")).expect("it is stored"), b"g");
}

#[test]
fn a_read_only_server_and_a_missing_one_are_reported() {
    if !has_fuse() {
        skip!("fuse", "/dev/fuse cannot be opened");
    }
    let root = scratch::directory("mount-read-only-root");
    fs::write(root.join("f"), "f").expect("it can be written");
    let server = DataServer::start(&root, &[]);
    let url = format!("grpc+tcp://{}", server.address);
    let mounted = mount_or_skip!("mount-read-only", &url);
    assert_eq!(fs::read(mounted.point.join("f")).expect("it is there"), b"f");
    assert_eq!(errno(fs::write(mounted.point.join("g"), "g")), Some(libc::EROFS));
    assert_eq!(errno(fs::remove_file(mounted.point.join("f"))), Some(libc::EROFS));
    let point = scratch::directory("mount-missing");
    let command = |url: &str, point: &Path| godwit().args(["mount", url, path_text(point), "--wait", "1s"]).run();
    command(&format!("{url}/absent"), &point).assert_rejected(&[2], &["absent", "does not exist"]);
    command(&format!("{url}/f"), &point).assert_rejected(&[2], &["is a file"]);
    command("grpc+tcp://127.0.0.1:1", &point).assert_rejected(&[6], &["127.0.0.1:1"]);
    command(&url, &point.join("absent")).assert_rejected(&[2], &["is not a directory", "mkdir"]);
}
