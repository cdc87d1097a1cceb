//! `godwit bench path`: what `godwit copy` makes of a long network path, which is emulated between two network namespaces here.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use godwit_flight::make_identity;
use godwit_process::Temporary;
use serde_json::{Value, json};

use super::{OwnServer, program, tell_stage};
use crate::cli::{BenchPathArgs, PathEmulatorArgs, TableFormat};
use crate::failure::{Exit, Failure, print, print_json};
use crate::interruption;
use crate::table::aligned;

/// Addresses of the two ends; the namespaces know no others.
const ENDS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// How long the emulator may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Payload of a full packet over its size: 40 bytes are headers of IP and TCP, 12 the time stamps.
const PAYLOAD: f64 = 1448.0 / 1500.0;
/// Bytes that a connection may send before it has heard anything: 10 segments (RFC 6928).
const FIRST_WINDOW_BYTES: f64 = 14_480.0;
/// Connections of `--mode fast`.
const FAST_STREAMS: f64 = 16.0;
/// Bits of `CapEff` in proc(5): CAP_NET_ADMIN and CAP_SYS_ADMIN.
const CAPABILITIES: u64 = 1 << 12 | 1 << 21;

/// Runs the emulator alone: what `run` starts as a process.
pub fn emulate(args: &PathEmulatorArgs) -> Result<(), Failure> {
    match godwit_path::emulate(&args.words) {
        Ok(0) => Ok(()),
        Ok(_) | Err(_) => Err(Failure::new(Exit::Usage, "the emulator does not understand that; see above".into())),
    }
}

/// Measures.
pub fn run(args: &BenchPathArgs) -> Result<(), Failure> {
    check_machine()?;
    // The programs that are started hear of Ctrl-C themselves; what is set up is then taken down here.
    let _cancelled = interruption::flag();
    let parent = args.temp.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = Temporary::create(|| tempfile::Builder::new().prefix("godwit-path-").tempdir_in(&parent));
    let scratch = scratch.map_err(|error| {
        Failure::new(
            Exit::Machine,
            format!("cannot make a directory in {}: {error}; choose another with --temp", parent.display()),
        )
    })?;
    let source = scratch.path().join("root");
    fs::create_dir(&source).and_then(|()| write_random(&source.join("f"), args.bytes)).map_err(|error| {
        Failure::new(Exit::Machine, format!("cannot write {} bytes to {}: {error}", args.bytes, parent.display()))
    })?;
    tell_stage(args.json, "setting up the path");
    let path = EmulatedPath::up(args, scratch.path())?;
    let server = FarServer::start(&path, &source, scratch.path())?;
    let mut seconds = Vec::new();
    for round in 1..=args.rounds {
        tell_stage(args.json, &format!("copy {round} of {}", args.rounds));
        seconds.push(copied(args, &path, &server, scratch.path())?);
    }
    drop(server);
    let result = told(args, seconds, &path.down());
    match args.format {
        TableFormat::Json => print_json(&result),
        TableFormat::Table => print(&table(&result)),
    }
}

/// Says what is missing here, and how to do without.
fn check_machine() -> Result<(), Failure> {
    let missing = |problem: &str| Err(Failure::new(Exit::Machine, problem.to_owned()));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or_default();
    if effective & CAPABILITIES != CAPABILITIES {
        return missing("an emulated path needs network namespaces, which root may make; run it with sudo");
    }
    if !Path::new("/dev/net/tun").exists() {
        return missing(
            "/dev/net/tun is not there; load the module with `modprobe tun`, or give the container that device",
        );
    }
    match Command::new("ip").arg("-V").output() {
        Ok(_) => Ok(()),
        Err(_) => missing("the program `ip` is not on PATH; install the Debian package iproute2"),
    }
}

/// Bytes that no compression gets smaller.
fn write_random(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut random = File::open("/dev/urandom")?.take(bytes);
    std::io::copy(&mut random, &mut File::create(path)?).map(|_| ())
}

/// Runs `ip` and takes its word.
fn ip(words: &[&str]) -> Result<(), Failure> {
    let failed = |problem: String| {
        Failure::new(
            Exit::Machine,
            format!("`ip {}` failed: {}; is this a container without that right?", words.join(" "), problem.trim()),
        )
    };
    let output = Command::new("ip").args(words).output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// Two namespaces and the path between them. Dropping it takes them down.
struct EmulatedPath {
    namespaces: [String; 2],
    emulator: Child,
    control: PathBuf,
    counters: PathBuf,
}

impl EmulatedPath {
    fn up(args: &BenchPathArgs, scratch: &Path) -> Result<Self, Failure> {
        let namespaces = ["a", "b"].map(|end| format!("godwit-{}-{end}", std::process::id()));
        let (control, counters) = (scratch.join("control"), scratch.join("counters"));
        let named = Namespaces(&namespaces);
        for name in &namespaces {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let mut command = Command::new(program()?);
        command.args(["bench", "path-emulator", "--"]).args(words_of(args));
        command.arg(format!("nsa={}", namespaces[0])).arg(format!("nsb={}", namespaces[1]));
        command.arg(format!("ctl={}", control.display())).arg(format!("stats={}", counters.display()));
        let emulator = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let emulator =
            emulator.map_err(|error| Failure::new(Exit::Machine, format!("cannot start the emulator: {error}")))?;
        std::mem::forget(named);
        let mut path = Self { namespaces, emulator, control, counters };
        path.await_devices()?;
        for (name, own, other) in [(&path.namespaces[0], ENDS[0], ENDS[1]), (&path.namespaces[1], ENDS[1], ENDS[0])] {
            // The queue is the emulator's; that of the device is never to be the shorter one.
            ip(&["-n", name, "link", "set", "wan0", "mtu", "1500", "txqueuelen", "20000", "up"])?;
            ip(&["-n", name, "addr", "add", own, "peer", other, "dev", "wan0"])?;
        }
        Ok(path)
    }

    /// Waits until the emulator has made its devices, the second last.
    fn await_devices(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            if ip(&["-n", &self.namespaces[1], "link", "show", "wan0"]).is_ok() {
                return Ok(());
            }
            let ended = self.emulator.try_wait().ok().flatten().is_some();
            if ended || begun.elapsed() > PATIENCE {
                return Err(Failure::new(Exit::Machine, "the emulator did not begin; see above".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A command at one end.
    fn command(&self, end: usize) -> Result<Command, Failure> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[end]]).arg(program()?);
        Ok(command)
    }

    /// Takes it down; returns what the emulator counted, in JSON.
    fn down(mut self) -> Value {
        if fs::write(&self.control, "quit\n").is_ok() {
            let begun = Instant::now();
            while matches!(self.emulator.try_wait(), Ok(None)) && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        fs::read(&self.counters).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

impl Drop for EmulatedPath {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
        drop(Namespaces(&self.namespaces));
    }
}

/// Namespaces that may be there. Dropping it removes them.
struct Namespaces<'a>(&'a [String; 2]);

impl Drop for Namespaces<'_> {
    fn drop(&mut self) {
        for name in self.0 {
            // One that was never made cannot be removed.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

/// What the emulator is told of a path, in its own words.
fn words_of(args: &BenchPathArgs) -> Vec<String> {
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

/// `godwit serve` at the far end, with TLS and a token.
struct FarServer {
    server: OwnServer,
    certificate: PathBuf,
    token: PathBuf,
}

impl FarServer {
    fn start(path: &EmulatedPath, root: &Path, scratch: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot start the server: {error}"));
        let (certificate, key) = make_identity(scratch, ENDS[1])
            .map_err(|error| Failure::new(Exit::Machine, godwit_formats::with_causes(&error)))?;
        let (token, tokens) = (scratch.join("token"), scratch.join("tokens"));
        let made =
            Command::new(program()?).args(["token", "bench", "--tokens"]).arg(&tokens).output().map_err(failed)?;
        fs::write(&token, made.stdout).map_err(failed)?;
        let mut command = path.command(1)?;
        command.arg("serve").arg("--root").arg(root).args(["--listen", &format!("{}:0", ENDS[1])]);
        command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(key).arg("--tokens").arg(tokens);
        command.args(["--no-config", "--until-stdin-closes"]);
        Ok(Self { server: OwnServer::start(command)?, certificate, token })
    }
}

/// Seconds of one copy from the far end's disk to the near end's, the start of the program and its handshakes included.
fn copied(args: &BenchPathArgs, path: &EmulatedPath, server: &FarServer, scratch: &Path) -> Result<f64, Failure> {
    let failed = |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot start the copy: {error}"));
    let target = scratch.join("copy");
    let mut command = path.command(0)?;
    command.arg("copy").arg(format!("{}/f", server.server.url())).arg(&target);
    command.args(["--mode", &mode_of(args), "--streams", &streams_of(args), "--quiet", "--no-config"]);
    command.arg("--ca").arg(&server.certificate).arg("--token-file").arg(&server.token);
    let begun = Instant::now();
    let status = command.stdin(Stdio::null()).status().map_err(failed)?;
    let seconds = begun.elapsed().as_secs_f64();
    match status.code() {
        Some(0) => {}
        Some(130) => return Err(Failure::new(Exit::Interrupted, "interrupted".into())),
        _ => return Err(Failure::new(Exit::Remote, "the copy failed; see above".into())),
    }
    fs::remove_file(target).map_err(failed)?;
    Ok(seconds)
}

fn mode_of(args: &BenchPathArgs) -> String {
    args.mode.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn streams_of(args: &BenchPathArgs) -> String {
    args.streams.0.map_or("auto".to_owned(), |count| count.to_string())
}

/// The result. Percents are of what the path carries of payload; the bound is what is left of it after five round trips (TCP and
/// TLS twice, the first request) and the doublings of slow start, by as many connections as `--mode fast` has.
fn told(args: &BenchPathArgs, mut seconds: Vec<f64>, counted: &Value) -> Value {
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let payload_bytes_per_s = args.rate as f64 * PAYLOAD / 8.0;
    let ideal_s = args.bytes as f64 / payload_bytes_per_s;
    let trip_s = args.rtt / 1e3;
    let doublings = (payload_bytes_per_s * trip_s / (FAST_STREAMS * FIRST_WINDOW_BYTES)).log2().max(0.0);
    let bound_s = ideal_s + 5.0 * trip_s + doublings * trip_s * 0.5;
    json!({
        "rate_bit_per_s": args.rate,
        "rtt_ms": args.rtt,
        "loss": args.loss,
        "loss_per_second": args.loss_per_second,
        "jitter_ms": args.jitter,
        "queue": args.queue,
        "mode": mode_of(args),
        "streams": streams_of(args),
        "bytes": args.bytes,
        "rounds": seconds.len(),
        "seconds": median,
        "seconds_fastest": seconds[0],
        "seconds_slowest": seconds[seconds.len() - 1],
        "mbit_per_s": args.bytes as f64 * 8.0 / 1e6 / median,
        "percent_of_payload": 100.0 * ideal_s / median,
        "bound_percent": 100.0 * ideal_s / bound_s,
        // From the far end to the near one.
        "packets": counted["ba"]["packets"],
        "lost_in_queue": counted["ba"]["queue_drops"],
        "lost_at_random": counted["ba"]["random_drops"],
        // How late the emulator itself was: it is a program among others on this machine.
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
    aligned(&[heads.map(str::to_owned), row], 1)
}
