//! Servers and directories mounted as files: what is mounted, and how a mount ends. No mount outlives its process.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::processes::{find_processes, send_signal};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::mounted_files::{UnmountOnDrop, device_of_mount, errno, is_mounted, mount_or_skip, unmount_command};
use super::server_pool::path_text;

#[test]
fn a_mount_leaves_nothing_behind_when_its_process_is_killed() {
    let root = scratch::directory("mount-kill-root");
    fs::write(root.join("f"), "f").expect("it can be written");
    let mounted = mount_or_skip!("mount-kill", path_text(&root));
    let point = mounted.point.clone();
    assert_eq!(fs::read(point.join("f")).expect("it is there"), b"f");
    mounted.stop(libc::SIGKILL);
    wait_until("the mount is removed", || !is_mounted(&point) && fs::read_dir(&point).is_ok());
    // The same mount point can be used again, in the background, too.
    let _unmount = UnmountOnDrop(point.clone());
    godwit().args(["mount", path_text(&root), path_text(&point)]).run_ok();
    assert_eq!(fs::read(point.join("f")).expect("it is there"), b"f");
    fs::write(point.join("g"), "g").expect("it can be written");
    run_checked(&mut unmount_command(&point, false));
    assert_eq!(fs::read(root.join("g")).expect("it is stored"), b"g");
}

#[test]
fn the_guard_of_a_mount_removes_no_other_mount() {
    let root = scratch::directory("mount-guard-root");
    let mounted = mount_or_skip!("mount-guard", path_text(&root));
    let point = mounted.point.clone();
    let device = device_of_mount(&point);
    // Without its guard, the mount of a killed process stays. The guard is another process a moment after the mount begins.
    let find_guards = || find_processes(&["mount-guard", "--detached", path_text(&point)], &[]);
    wait_until("the guard runs", || !find_guards().is_empty());
    find_guards().into_iter().for_each(|process| send_signal(process, libc::SIGKILL));
    wait_until("the guard has ended", || find_guards().is_empty());
    mounted.stop(libc::SIGKILL);
    wait_until("the mount is dead", || fs::metadata(&point).is_err());
    let guard = |device: &str| {
        let device_file = scratch::directory("mount-guard-device").join("device");
        fs::write(&device_file, device).expect("it can be written");
        let input = File::open(&device_file).expect("it was written");
        godwit().args(["mount-guard", "--detached", path_text(&point)]).stdin(input).run_ok();
    };
    guard("0:0");
    assert!(is_mounted(&point));
    guard(&device);
    assert!(!is_mounted(&point));
}

#[test]
fn accesses_fail_after_the_wait_for_a_server_that_is_silent_and_the_log_reports_its_outage_once() {
    let root = scratch::directory("mount-silent-root");
    fs::write(root.join("f"), "f").expect("it can be written");
    let server = DataServer::start(&root, &[]);
    let url = format!("grpc+tcp://{}", server.address);
    let mounted = mount_or_skip!("mount-silent", url.as_str(), "--wait", "6s");
    let file = mounted.point.join("f");
    assert_eq!(fs::read(&file).expect("it is there"), b"f");
    // The system accepts connections for a stopped process, which answers nothing.
    send_signal(server.process_id(), libc::SIGSTOP);
    let absent = mounted.point.join("absent");
    for _ in 0..2 {
        assert_eq!(errno(fs::metadata(&absent)), Some(libc::ETIMEDOUT));
    }
    send_signal(server.process_id(), libc::SIGCONT);
    assert_eq!(fs::read(&file).expect("it is there"), b"f");
    assert_eq!(errno(fs::metadata(&absent)), Some(libc::ENOENT));
    let (code, said) = mounted.stop(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    for message in [format!("{url} has not answered for "), format!("{url} answers again after ")] {
        assert_eq!(said.matches(&message).count(), 1, "{message}: {said}");
    }
}

#[test]
fn a_read_only_server_and_a_missing_one_are_reported() {
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

#[test]
fn a_mount_that_would_wait_for_itself_and_a_small_cache_are_rejected() {
    let directory = scratch::directory("mount-nested");
    for name in ["root/inner", "scratch"] {
        fs::create_dir_all(directory.join(name)).expect("it can be made");
    }
    let mount = |url: &str, point: &str, words: &[&str]| {
        godwit().args(["mount", url, point]).args(words).current_dir(&directory).run()
    };
    for (url, point) in [("root", "root"), ("root", "root/inner"), ("root/inner", "root"), ("root/../root", "./root")] {
        mount(url, point, &[]).assert_rejected(&[2], &["contain one another"]);
    }
    mount("root", "scratch", &["--temp", "scratch"]).assert_rejected(&[2], &["--temp"]);
    mount("root", "scratch", &["--cache", "1M"]).assert_rejected(&[2], &["--cache", "4M"]);
}

#[test]
fn a_mount_that_ends_before_changes_are_stored_fails() {
    needs!("python3");
    let root = scratch::directory("mount-lost-root");
    let mounted = mount_or_skip!("mount-lost", path_text(&root));
    // A process of its own has the file open: where this process starts a child, the child's copy of the handle is closed,
    // which stores the file.
    let program = "import os, sys\n\
        file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n\
        os.write(file, b'never closed')\n\
        print('written', flush=True)\n\
        sys.stdin.read()";
    let mut writer = Tool::require("python3").command();
    writer.arg("-c").arg(program).arg(mounted.point.join("f")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut writer = writer.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(writer.stdout.take().expect("it is a pipe")).read_line(&mut line).expect("it writes a line");
    assert_eq!(line, "written\n");
    let (code, said) = mounted.stop(libc::SIGTERM);
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("changes of files were lost"), "{said}");
    drop(writer.stdin.take());
    writer.wait().expect("it ends");
    assert!(!root.join("f").exists());
}
