//! `godwit bench path`: measures `godwit copy` over a long-distance network path, emulated between two network
//! namespaces of this host.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use godwit_cli::ValueEnum as _;
use godwit_cli::cli::{BenchPathArgs, PathEmulatorArgs, TableFormat};
use godwit_cli::failure::{Failure, print, print_json};
use godwit_flight::create_identity;
use godwit_model::ErrorKind;
use godwit_process::TemporaryItem;
use serde_json::{Value, json};

use super::{ServerProcess, current_program, report_stage};
use crate::interruption;
use crate::text_table::align_columns;

/// IP addresses of the two ends of the path. They do not clash with addresses of the host, because namespaces are
/// separate.
const END_ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// Maximum time to wait for the emulator to start, and to exit.
const EMULATOR_TIMEOUT: Duration = Duration::from_secs(5);
/// Payload of a full packet as a fraction of its size. Of 1500 bytes, 40 are IP and TCP headers, and 12 are TCP
/// timestamps.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
/// Initial congestion window of a connection, in bytes: 10 segments (RFC 6928).
const INITIAL_WINDOW_BYTES: f64 = 14_480.0;
/// Number of connections that `godwit copy --mode fast` opens.
const FAST_STREAMS: f64 = 16.0;
/// Capabilities that the benchmark needs, as bits of `CapEff` in proc(5): CAP_NET_ADMIN and CAP_SYS_ADMIN.
const REQUIRED_CAPABILITIES: u64 = 1 << 12 | 1 << 21;

/// Runs the emulator in this process, which [`run`] has started as a child process.
pub fn run_emulator(args: &PathEmulatorArgs) -> Result<(), Failure> {
    match godwit_path::run_emulator(&args.settings) {
        Ok(0) => Ok(()),
        Ok(_) | Err(_) => Err(Failure::new(ErrorKind::Usage, "the emulator rejected its settings; see above".into())),
    }
}

/// Emulates the path, measures the copies over it, and prints the result.
pub fn run(args: &BenchPathArgs) -> Result<(), Failure> {
    check_requirements()?;
    // On Ctrl-C, the terminal also stops the child processes. The failure of the copy then ends this function, and
    // dropping the path removes the namespaces.
    let _cancelled = interruption::flag();
    let parent = args.temp.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-path-").tempdir_in(&parent));
    let scratch = scratch.map_err(|error| {
        Failure::new(
            ErrorKind::Machine,
            format!("cannot make a directory in {}: {error}; choose another with --temp", parent.display()),
        )
    })?;
    let source = scratch.path().join("root");
    fs::create_dir(&source).and_then(|()| write_random(&source.join("f"), args.bytes)).map_err(|error| {
        Failure::new(ErrorKind::Machine, format!("cannot write {} bytes to {}: {error}", args.bytes, parent.display()))
    })?;
    report_stage(args.json, "setting up the path");
    let path = EmulatedPath::set_up(args, scratch.path())?;
    let server = RemoteServer::start(&path, &source, scratch.path())?;
    let mut seconds = Vec::new();
    for round in 1..=args.rounds {
        report_stage(args.json, &format!("copy {round} of {}", args.rounds));
        seconds.push(time_copy(args, &path, &server, scratch.path())?);
    }
    drop(server);
    let result = result_json(args, seconds, &path.tear_down());
    match args.format {
        TableFormat::Json => print_json(&result),
        TableFormat::Table => print(&table(&result)),
    }
}

/// Checks that this host has the capabilities, devices and programs that the benchmark needs; the error contains a
/// remedy.
fn check_requirements() -> Result<(), Failure> {
    let missing = |problem: &str| Err(Failure::new(ErrorKind::Machine, problem.to_owned()));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or_default();
    if effective & REQUIRED_CAPABILITIES != REQUIRED_CAPABILITIES {
        return missing("an emulated path needs network namespaces, which require root; run it with sudo");
    }
    if !Path::new("/dev/net/tun").exists() {
        return missing(
            "/dev/net/tun does not exist; load the module with `modprobe tun`, or add the device to the container",
        );
    }
    match Command::new("ip").arg("-V").output() {
        Ok(_) => Ok(()),
        Err(_) => missing("the program `ip` is not on PATH; install the Debian package iproute2"),
    }
}

/// Writes a file of random bytes, which cannot be compressed.
fn write_random(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut random = File::open("/dev/urandom")?.take(bytes);
    std::io::copy(&mut random, &mut File::create(path)?).map(|_| ())
}

/// Runs the program `ip` with these arguments; returns its error message if it fails.
fn run_ip(words: &[&str]) -> Result<(), Failure> {
    let failed = |problem: String| {
        Failure::new(
            ErrorKind::Machine,
            format!("`ip {}` failed: {}; does this container lack the permission?", words.join(" "), problem.trim()),
        )
    };
    let output = Command::new("ip").args(words).output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Two network namespaces and the emulated path between them. Dropping this value removes them.
struct EmulatedPath {
    namespaces: [String; 2],
    emulator: Child,
    control_file: PathBuf,
    counters_file: PathBuf,
}

impl EmulatedPath {
    fn set_up(args: &BenchPathArgs, scratch: &Path) -> Result<Self, Failure> {
        let namespaces = ["a", "b"].map(|end| format!("godwit-{}-{end}", std::process::id()));
        let (control_file, counters_file) = (scratch.join("control"), scratch.join("counters"));
        let named = Namespaces(&namespaces);
        for name in &namespaces {
            run_ip(&["netns", "add", name])?;
            run_ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let mut command = Command::new(current_program()?);
        command.args(["bench", "path-emulator", "--"]).args(emulator_settings(args));
        command.arg(format!("nsa={}", namespaces[0])).arg(format!("nsb={}", namespaces[1]));
        command.arg(format!("ctl={}", control_file.display())).arg(format!("stats={}", counters_file.display()));
        let emulator = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let emulator = emulator
            .map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot start the emulator: {error}")))?;
        std::mem::forget(named);
        let mut path = Self { namespaces, emulator, control_file, counters_file };
        path.await_devices()?;
        for (name, own, other) in [
            (&path.namespaces[0], END_ADDRESSES[0], END_ADDRESSES[1]),
            (&path.namespaces[1], END_ADDRESSES[1], END_ADDRESSES[0]),
        ] {
            // The emulator implements the queue of the path, so the queue of the device must be longer.
            run_ip(&["-n", name, "link", "set", "wan0", "mtu", "1500", "txqueuelen", "20000", "up"])?;
            run_ip(&["-n", name, "addr", "add", own, "peer", other, "dev", "wan0"])?;
        }
        Ok(path)
    }

    /// Waits until the emulator has created both network devices. It creates the device of the second namespace last.
    fn await_devices(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            if run_ip(&["-n", &self.namespaces[1], "link", "show", "wan0"]).is_ok() {
                return Ok(());
            }
            let ended = self.emulator.try_wait().ok().flatten().is_some();
            if ended || begun.elapsed() > EMULATOR_TIMEOUT {
                return Err(Failure::new(ErrorKind::Machine, "the emulator did not start; see above".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns a command that runs this executable in the namespace at one end of the path.
    fn command_at_end(&self, end: usize) -> Result<Command, Failure> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[end]]).arg(current_program()?);
        Ok(command)
    }

    /// Stops the emulator and returns its packet counters as JSON.
    fn tear_down(mut self) -> Value {
        if fs::write(&self.control_file, "quit\n").is_ok() {
            let begun = Instant::now();
            while matches!(self.emulator.try_wait(), Ok(None)) && begun.elapsed() < EMULATOR_TIMEOUT {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        fs::read(&self.counters_file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

impl Drop for EmulatedPath {
    fn drop(&mut self) {
        // Ignore errors: both calls fail only if the emulator has exited already.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        drop(Namespaces(&self.namespaces));
    }
}

/// Names of two network namespaces. Dropping this value removes those that exist.
struct Namespaces<'a>(&'a [String; 2]);

impl Drop for Namespaces<'_> {
    fn drop(&mut self) {
        for name in self.0 {
            // Ignore the error: the namespace may not have been created.
            let _ = run_ip(&["netns", "del", name]);
        }
    }
}

/// Returns the settings of the path, from the command line, as arguments of the emulator.
fn emulator_settings(args: &BenchPathArgs) -> Vec<String> {
    let mut words = vec![
        format!("rate={}", args.rate as f64 / 1e6),
        format!("delay={}", args.rtt / 2.0),
        format!("queue={}", args.queue),
        format!("seed={}", args.seed),
    ];
    words.extend(args.loss.map(|share| format!("loss={share}")));
    words.extend(args.loss_per_second.map(|packets| format!("losspps={packets}")));
    words.extend(args.jitter.map(|ms| format!("jitter={ms}")));
    words
}

/// A `godwit serve` process at the far end of the path, with TLS and a token.
struct RemoteServer {
    server: ServerProcess,
    certificate_file: PathBuf,
    token_file: PathBuf,
}

impl RemoteServer {
    fn start(path: &EmulatedPath, root: &Path, scratch: &Path) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start the server: {error}"));
        let (certificate_file, key) = create_identity(scratch, END_ADDRESSES[1])
            .map_err(|error| Failure::new(ErrorKind::Machine, godwit_model::message_with_causes(&error)))?;
        let (token_file, tokens) = (scratch.join("token"), scratch.join("tokens"));
        let made = Command::new(current_program()?)
            .args(["token", "bench", "--tokens"])
            .arg(&tokens)
            .output()
            .map_err(failed)?;
        fs::write(&token_file, made.stdout).map_err(failed)?;
        let mut command = path.command_at_end(1)?;
        command.arg("serve").arg("--root").arg(root).args(["--listen", &format!("{}:0", END_ADDRESSES[1])]);
        command.arg("--tls-cert").arg(&certificate_file).arg("--tls-key").arg(key).arg("--tokens").arg(tokens);
        command.args(["--no-config", "--until-stdin-closes"]);
        Ok(Self { server: ServerProcess::start(command)?, certificate_file, token_file })
    }
}

/// Copies the file once from the far end to the near end. Returns the duration in seconds, including the start of the
/// process and the handshakes.
fn time_copy(args: &BenchPathArgs, path: &EmulatedPath, server: &RemoteServer, scratch: &Path) -> Result<f64, Failure> {
    let failed = |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start the copy: {error}"));
    let target = scratch.join("copy");
    let mut command = path.command_at_end(0)?;
    command.arg("copy").arg(format!("{}/f", server.server.url())).arg(&target);
    command.args(["--mode", &mode_name(args), "--streams", &streams_name(args), "--quiet", "--no-config"]);
    command.arg("--ca").arg(&server.certificate_file).arg("--token-file").arg(&server.token_file);
    let begun = Instant::now();
    let status = command.stdin(Stdio::null()).status().map_err(failed)?;
    let seconds = begun.elapsed().as_secs_f64();
    match status.code() {
        Some(0) => {}
        Some(130) => return Err(Failure::new(ErrorKind::Interrupted, "interrupted".into())),
        _ => return Err(Failure::new(ErrorKind::Remote, "the copy failed; see above".into())),
    }
    fs::remove_file(target).map_err(failed)?;
    Ok(seconds)
}

fn mode_name(args: &BenchPathArgs) -> String {
    args.mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn streams_name(args: &BenchPathArgs) -> String {
    args.streams.0.map_or("auto".to_owned(), |count| count.to_string())
}

/// Returns the result as JSON. Percentages are relative to the payload rate of the path. `bound_percent` is the best
/// percentage that is possible: the copy needs five round trips before data arrives (TCP and TLS twice, and the first
/// request), and slow start of as many connections as `--mode fast` opens.
fn result_json(args: &BenchPathArgs, mut seconds: Vec<f64>, counted: &Value) -> Value {
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let payload_bytes_per_s = args.rate as f64 * PAYLOAD_SHARE / 8.0;
    let ideal_s = args.bytes as f64 / payload_bytes_per_s;
    let trip_s = args.rtt / 1e3;
    let doublings = (payload_bytes_per_s * trip_s / (FAST_STREAMS * INITIAL_WINDOW_BYTES)).log2().max(0.0);
    let bound_s = ideal_s + 5.0 * trip_s + doublings * trip_s * 0.5;
    json!({
        "rate_bit_per_s": args.rate,
        "rtt_ms": args.rtt,
        "loss": args.loss,
        "loss_per_second": args.loss_per_second,
        "jitter_ms": args.jitter,
        "queue": args.queue,
        "mode": mode_name(args),
        "streams": streams_name(args),
        "bytes": args.bytes,
        "rounds": seconds.len(),
        "seconds": median,
        "seconds_fastest": seconds[0],
        "seconds_slowest": seconds[seconds.len() - 1],
        "mbit_per_s": args.bytes as f64 * 8.0 / 1e6 / median,
        "percent_of_payload": 100.0 * ideal_s / median,
        "bound_percent": 100.0 * ideal_s / bound_s,
        // Packets in the direction of the data, from the far end to the near end.
        "packets": counted["ba"]["packets"],
        "lost_in_queue": counted["ba"]["queue_drops"],
        "lost_at_random": counted["ba"]["random_drops"],
        // 99th percentile of the delay by which the emulator itself forwards packets too late, because other processes
        // run.
        "late_us_p99": counted["ba"]["late_us_le"]["p99"],
    })
}

fn table(result: &Value) -> String {
    let number = |key: &str, places: usize| format!("{:.places$}", result[key].as_f64().unwrap_or_default());
    let word = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
    let heads =
        ["mode", "streams", "seconds", "fastest", "slowest", "Mbit/s", "% of payload", "bound %", "lost", "late us"];
    let lost = ["lost_in_queue", "lost_at_random"].iter().filter_map(|key| result[*key].as_u64()).sum::<u64>();
    let row = [
        word("mode"),
        word("streams"),
        number("seconds", 2),
        number("seconds_fastest", 2),
        number("seconds_slowest", 2),
        number("mbit_per_s", 0),
        number("percent_of_payload", 1),
        number("bound_percent", 1),
        lost.to_string(),
        number("late_us_p99", 0),
    ];
    align_columns(&[heads.map(str::to_owned), row], 1)
}
