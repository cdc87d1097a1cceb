//! SIGTERM and Ctrl-C while a verb waits for input or for a response that does not arrive.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_tests::binary::{GodwitCommand, godwit, path as godwit_path};
use godwit_tests::processes::{find_processes, handles_sigterm, is_idle, is_running, send_signal};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::wait::{wait_for, wait_until};
use godwit_tests::{needs, scratch, skip};

use super::bwa_identity;

const EXIT_INTERRUPTED: i32 = 130;
/// The environment variable by which the processes of a run are found.
const MARK_VARIABLE: &str = "GODWIT_TEST_INTERRUPTION";

/// Returns a small sample with bwa's index.
pub(super) fn sample() -> Arc<Sample> {
    Sample::cached(&SampleSpec {
        seed: 39,
        lanes: vec![600],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    })
}

/// Returns a path as text for a command line.
pub(super) fn path_text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}

/// Sets the environment of a run: `directory` for temporary files, and a variable by which the test finds the processes
/// of the run.
pub(super) fn with_mark_variable(command: GodwitCommand, directory: &Path) -> GodwitCommand {
    let temp = directory.join("temp");
    fs::create_dir_all(&temp).expect("it can be made");
    command.env(MARK_VARIABLE, directory).env("TMPDIR", temp)
}

/// Waits until all processes of a run have ended.
pub(super) fn wait_until_processes_exit(directory: &Path) {
    let setting = format!("{MARK_VARIABLE}={}", directory.display());
    let left =
        || find_processes(&[], &[&setting]).into_iter().filter(|process| is_running(*process)).collect::<Vec<_>>();
    wait_until("the end of all processes of the run", || left().is_empty());
}

/// Returns the names below a directory, directories included.
pub(super) fn names_below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            found.push(path_text(path.strip_prefix(directory).expect("it lies below")).to_owned());
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

fn fifo(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    let named = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no NUL is in it");
    // SAFETY: the name ends with NUL and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(named.as_ptr(), 0o600) }, 0);
    path
}

/// Stops a waiting verb by each signal, and checks that it reports the signal and leaves neither a file nor a process.
fn assert_stops_on_signals(verb: &str, make: impl Fn(&Path) -> GodwitCommand) {
    assert_stops_on_signals_when(verb, make, is_idle);
}

/// Like [`assert_stops_on_signals`], with a function `waits` that reports whether the process is waiting.
fn assert_stops_on_signals_when(verb: &str, make: impl Fn(&Path) -> GodwitCommand, waits: impl Fn(u32) -> bool) {
    for number in [libc::SIGTERM, libc::SIGINT] {
        let directory = scratch::directory(&format!("waits-{verb}"));
        let run = with_mark_variable(make(&directory), &directory).spawn();
        let process = run.process_id();
        wait_until(&format!("{verb} to wait"), || !is_running(process) || handles_sigterm(process) && waits(process));
        let before = names_below(&directory);
        send_signal(process, number);
        let finished = run.wait_with_output();
        finished.assert_rejected(&[EXIT_INTERRUPTED], &["interrupted; "]);
        wait_until_processes_exit(&directory);
        assert_eq!(names_below(&directory.join("temp")), [] as [String; 0], "{verb} left files");
        let new: Vec<String> = names_below(&directory).into_iter().filter(|name| !before.contains(name)).collect();
        assert!(new.is_empty(), "{verb} left {new:?}\n{}", finished.describe());
    }
}

#[test]
fn a_verb_that_reads_a_fifo_without_a_writer_ends_by_signals() {
    needs!("bwa", "minimap2");
    let sample = sample();
    let reference = path_text(sample.godwit_indexed_reference());
    let other = scratch::directory("waits-data");
    let rows = fifo(&other, "rows.csv");
    let plain = fs::read(&sample.reference).expect("it is there");
    let target = other.join("reference.fa");
    fs::write(&target, plain).expect("it can be written");
    let (rows, target) = (path_text(&rows), path_text(&target));
    let commands: &[(&str, &[&str])] = &[
        ("index", &["index", rows, "--aligner", "minimap2"]),
        ("align", &["align", "--reference", reference, "--sample", "s", "--out", "OUT/o", "--reads", rows]),
        ("markdup", &["markdup", rows, "--out", "OUT/o.bam"]),
        ("variants", &["variants", rows, "--out", "OUT/o.parquet"]),
        ("compare", &["compare", rows, rows, "--reference", reference]),
        ("pack", &["pack", "--reference", target, rows, "OUT/o.gwp"]),
        ("unpack", &["unpack", "--reference", target, rows, "OUT/o.fa"]),
        ("collection", &["collection", "add", "--reference", target, "OUT/c", rows]),
        ("mutate", &["mutate", rows, "OUT/o.fa"]),
        ("audit", &["audit", "verify", rows]),
        ("policy", &["policy", "test", "--policy", rows, "--dataset", "x"]),
        ("plan", &["plan", "--samples", "2", "--nodes", "2", "--storage-nodes", "1", "--from", rows]),
        ("run", &["run", "--reference", reference, "--samples", rows, "--out", "OUT/o"]),
        ("serve", &["serve", "--root", "OUT", "--listen", "127.0.0.1:0", "--tokens", rows]),
        ("config", &["--config", rows, "config", "show"]),
    ];
    for (verb, words) in commands {
        assert_stops_on_signals(verb, |directory| {
            let words = words.iter().map(|word| word.replace("OUT", path_text(directory)));
            godwit().args(words)
        });
    }
}

#[test]
fn a_verb_whose_server_never_answers_ends_by_signals() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let url = format!("grpc+tcp://{address}");
    // Start a server that accepts connections and reads, but never responds.
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut { connection }, &mut std::io::sink()));
        }
    });
    let (file, one) = (format!("{url}/x"), format!("{url}/"));
    let commands: &[(&str, &[&str])] = &[
        ("query", &["query", "SELECT 1", "--at", &url]),
        ("copy", &["copy", &file, "OUT/x"]),
        ("copy-to", &["copy", path_text(Path::new("/etc/passwd")), &one]),
        ("bench-flight", &["bench", "flight", "--at", &address]),
        ("doctor", &["doctor", "--at", &url]),
    ];
    for (verb, words) in commands {
        assert_stops_on_signals(verb, |directory| {
            let words = words.iter().map(|word| word.replace("OUT", path_text(directory)));
            godwit().args(words)
        });
    }
}

#[test]
fn a_verb_that_waits_for_a_lock_ends_by_signals() {
    let sample = sample();
    let other = scratch::directory("waits-lock");
    let target = other.join("reference.fa");
    fs::copy(&sample.reference, &target).expect("it can be copied");
    let collection = other.join("collection");
    let words = ["collection", "add", "--reference", path_text(&target), path_text(&collection), path_text(&target)];
    godwit().args(words).args(["--name", "first"]).run_ok();
    let locks = fs::read_dir(&collection).expect("it is there").flatten().map(|entry| entry.path());
    let lock = locks.into_iter().find(|path| path.to_string_lossy().contains("lock")).expect("it has a lock");
    let held = File::open(lock).expect("it is there");
    held.lock().expect("no process has the lock");
    assert_stops_on_signals("lock", |_| godwit().args(words).args(["--name", "second"]));
    drop(held);
    godwit().args(words).args(["--name", "second"]).run_ok();
}

#[test]
fn a_verb_whose_output_is_not_read_ends_by_signals() {
    assert_stops_on_signals("pipe", |directory| {
        let statement = "SELECT * FROM generate_series(1, 10000000)";
        godwit().args(["query", statement, "--format", "csv", "--data", path_text(directory)])
    });
}

#[test]
fn a_verb_whose_stderr_is_not_read_ends_by_signals() {
    let directory = scratch::directory("waits-stderr");
    let (mut reader, writer) = std::io::pipe().expect("a pipe can be made");
    let rows = fifo(&directory, "rows.bam");
    // Fill the pipe of stdout, so that the verb blocks when it prints a line.
    let full = vec![b'x'; 1 << 20];
    let fill = writer.try_clone().expect("it can be cloned");
    // SAFETY: fcntl and write access no more than the buffer that they are given.
    unsafe {
        use std::os::fd::AsRawFd;
        libc::fcntl(fill.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        while libc::write(fill.as_raw_fd(), full.as_ptr().cast(), full.len()) > 0 {}
        libc::fcntl(fill.as_raw_fd(), libc::F_SETFL, 0);
    }
    let out = directory.join("o.bam");
    let run = with_mark_variable(godwit().args(["markdup", path_text(&rows), "--out", path_text(&out)]), &directory);
    let run = run.stderr(writer.try_clone().expect("it can be cloned")).spawn();
    wait_until("the verb to wait", || is_idle(run.process_id()));
    send_signal(run.process_id(), libc::SIGTERM);
    assert_eq!(run.wait_with_output().status.code(), Some(EXIT_INTERRUPTED));
    drop((fill, writer));
    reader.read_to_end(&mut Vec::new()).expect("all that held it has ended");
    wait_until_processes_exit(&directory);
}

#[test]
fn programs_that_ignore_sigterm_end_with_the_verb() {
    needs!("bwa");
    let sample = sample();
    let deaf = "trap '' TERM INT\nsleep 600 &\nsleep 600 &\necho x >started\nwait\nwait\nsleep 600\n";
    let program = |directory: &Path| {
        fs::write(directory.join("deaf.sh"), deaf).expect("it can be written");
        format!("/bin/sh -c 'cd {} && exec /bin/sh deaf.sh'", directory.display())
    };
    for number in [libc::SIGTERM, libc::SIGINT] {
        let directory = scratch::directory("deaf");
        let aligner = program(&directory);
        let run = bwa_identity::align(&sample, &AlignOptions::default(), &directory.join("out"));
        let run = with_mark_variable(run.args(["--aligner", &aligner]), &directory).spawn();
        wait_until("the aligner", || directory.join("started").exists());
        send_signal(run.process_id(), number);
        run.wait_with_output().assert_rejected(&[EXIT_INTERRUPTED], &["interrupted; "]);
        wait_until_processes_exit(&directory);
        assert_eq!(names_below(&directory.join("out")), [] as [String; 0]);
    }
}

#[test]
fn a_second_signal_ends_a_verb_at_once_and_in_order() {
    needs!("bwa");
    let sample = sample();
    let directory = scratch::directory("two-signals");
    let rows = fifo(&directory, "reads.fq");
    let run = godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference()).arg("--reads").arg(&rows);
    let run = run.args(["--sample", "s", "--out"]).arg(directory.join("out"));
    let run = with_mark_variable(run, &directory).spawn();
    wait_until("it to wait", || is_idle(run.process_id()));
    send_signal(run.process_id(), libc::SIGINT);
    send_signal(run.process_id(), libc::SIGINT);
    run.wait_with_output().assert_rejected(&[EXIT_INTERRUPTED], &["interrupted; "]);
    wait_until_processes_exit(&directory);
    assert_eq!(names_below(&directory.join("out")), [] as [String; 0]);
}

#[test]
fn with_events_the_interruption_is_the_last_one() {
    let directory = scratch::directory("interruption-events");
    let rows = fifo(&directory, "rows.bam");
    let run = godwit().args(["markdup", path_text(&rows), "--json", "--out"]).arg(directory.join("o.bam"));
    let run = with_mark_variable(run, &directory).spawn();
    wait_until("it to wait", || is_idle(run.process_id()));
    send_signal(run.process_id(), libc::SIGTERM);
    let finished = run.wait_with_output();
    finished.assert_rejected(&[EXIT_INTERRUPTED], &["interrupted; "]);
    let event = finished.stderr.lines().rev().nth(1).unwrap_or_default();
    let event: serde_json::Value = serde_json::from_str(event).unwrap_or_else(|_| panic!("{}", finished.describe()));
    assert_eq!((&event["event"], &event["exit"]), (&"error".into(), &EXIT_INTERRUPTED.into()));
}

#[test]
fn a_verb_started_to_ignore_a_lost_terminal_outlives_it() {
    needs!("nohup");
    let directory = scratch::directory("nohup");
    let rows = fifo(&directory, "rows.bam");
    let mut command = Tool::require("nohup").command();
    command.arg(godwit_path()).arg("markdup").arg(&rows).arg("--out").arg(directory.join("o.bam"));
    let pipes = std::process::Stdio::piped;
    let mut run =
        command.stdin(std::process::Stdio::null()).stdout(pipes()).stderr(pipes()).spawn().expect("it starts");
    wait_until("it to wait", || is_idle(run.id()));
    send_signal(run.id(), libc::SIGHUP);
    // Send SIGTERM after SIGINT.
    send_signal(run.id(), libc::SIGTERM);
    let status = run.wait().expect("it can be waited for");
    assert_eq!(status.code(), Some(EXIT_INTERRUPTED));
    let mut said = String::new();
    run.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it is text");
    assert!(said.contains("interrupted; "), "{said}");
}

/// A separate network namespace, in which the address of the name server drops every packet.
#[test]
fn a_name_that_is_never_resolved_does_not_keep_a_verb() {
    needs!("unshare", "ip", "mount");
    let directory = scratch::directory("waits-name");
    let resolver = directory.join("resolv.conf");
    fs::write(&resolver, "nameserver 192.0.2.53\n").expect("it can be written");
    let script = format!(
        "ip link set lo up && ip link add swallow type dummy && ip address add 192.0.2.1/24 dev swallow && \
         ip link set swallow up && mount --bind {} /etc/resolv.conf && touch {} && \
         exec {} copy grpc+tcp://a.name.that.hangs.example:8815/x {}",
        resolver.display(),
        directory.join("ready").display(),
        godwit_path().display(),
        directory.join("x").display()
    );
    let mut command = Tool::require("unshare").command();
    command.args(["--map-root-user", "--net", "--mount", "sh", "-c", &script]).env(MARK_VARIABLE, &directory);
    let pipes = std::process::Stdio::piped;
    let mut run =
        command.stdin(std::process::Stdio::null()).stdout(pipes()).stderr(pipes()).spawn().expect("it starts");
    let started = wait_for("the namespaces", || {
        let ended = run.try_wait().expect("it can be waited for").is_some();
        (ended || directory.join("ready").exists()).then_some(!ended)
    });
    if !started {
        skip!("network-namespaces", "this process may not make network and mount namespaces");
    }
    wait_until("it to wait", || !is_running(run.id()) || is_idle(run.id()));
    send_signal(run.id(), libc::SIGTERM);
    assert_eq!(run.wait().expect("it can be waited for").code(), Some(EXIT_INTERRUPTED));
    wait_until_processes_exit(&directory);
}
