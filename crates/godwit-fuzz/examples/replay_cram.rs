//! Runs godwit on inputs that crashed the library that decodes CRAM: each file must be read, or rejected as damaged, in
//! little memory and time.
//!
//!     replay_cram GODWIT INPUT...     INPUT: an input of the target `cram`

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Success, or bad input.
const ACCEPTED_EXIT_CODES: [i32; 2] = [0, 3];
const MAX_SECONDS: f64 = 60.0;
const MAX_MEMORY_KIB: i64 = 1 << 20;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let godwit = arguments.next().expect("usage: replay_cram GODWIT INPUT...");
    let directory = tempfile::tempdir().expect("there is room for a directory");
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("a.fa"), godwit_fuzz::cram_reference()).expect("there is room for a reference");
    let (mut inputs, mut failures, mut slowest) = (0, 0, 0.0_f64);
    for input in arguments {
        let bytes = std::fs::read(&input).expect("the input can be read");
        let Some((file, with_reference)) = godwit_fuzz::cram_file(&bytes) else { continue };
        std::fs::write(at("a.cram"), file).expect("there is room for a file");
        let out = at(&format!("{inputs}.bam"));
        let mut command = Command::new(&godwit);
        command.args(["markdup", "--quiet", "--threads", "1"]).arg(at("a.cram")).arg("--out").arg(out);
        if with_reference {
            command.arg("--reference").arg(at("a.fa"));
        }
        let started = Instant::now();
        let output = command.stdin(Stdio::null()).output().expect("godwit can be started");
        let seconds = started.elapsed().as_secs_f64();
        (inputs, slowest) = (inputs + 1, slowest.max(seconds));
        if !output.status.code().is_some_and(|code| ACCEPTED_EXIT_CODES.contains(&code)) || seconds > MAX_SECONDS {
            failures += 1;
            let stderr = String::from_utf8_lossy(&output.stderr);
            eprintln!("{}: {} after {seconds:.1} s: {}", Path::new(&input).display(), output.status, stderr.trim());
        }
    }
    let peak = peak_memory_of_children();
    println!("replay: {inputs} inputs, {failures} failures, slowest {slowest:.2} s, most memory {} MB", peak / 1024);
    ExitCode::from(u8::from(failures > 0 || peak > MAX_MEMORY_KIB))
}

/// Returns the highest memory of any descendant process, kilobytes.
fn peak_memory_of_children() -> i64 {
    // SAFETY: all-zero is a valid `rusage`, and the call writes to this one only.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage.ru_maxrss
    }
}
