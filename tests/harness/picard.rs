//! Picard 3.4.0 as the oracle of duplicate marking and metrics, in resident JVMs for the whole test run.
//!
//! `tools/picard/fetch.sh` puts the jars into the cache; `tools/picard/PicardServer.java` runs commands. A start takes
//! about two seconds, a file of a hundred records about 25 ms.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::duplicate_options::MarkingOptions;
use crate::scratch;
use crate::tool::Tool;

/// Picard clears an array for each file whose size depends on the heap, so a small heap is ten times as fast as a large
/// one.
const JVM_HEAP_OPTION: &str = "-Xmx128m";

/// The maximum number of resident JVMs. With one, most concurrent tests would wait for it and leave a processor idle.
const MAX_JVMS: usize = 2;

/// The number of commands that a JVM runs before the harness replaces it. Picard leaves files open that only a full
/// garbage collection would close.
const COMMANDS_PER_JVM: u32 = 2_000;

/// Options of a run of MarkDuplicates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PicardOptions {
    /// `OPTICAL_DUPLICATE_PIXEL_DISTANCE`; Picard's default is 100.
    pub optical_distance: u32,
    /// `REMOVE_DUPLICATES`.
    pub remove: bool,
    /// The options that are drawn from seeds.
    pub marking: MarkingOptions,
}

impl Default for PicardOptions {
    fn default() -> Self {
        Self { optical_distance: 100, remove: false, marking: MarkingOptions::default() }
    }
}

/// A failure of Picard: exception class and message, or an exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PicardError(pub String);

/// A resident JVM.
#[derive(Debug)]
pub struct PicardServer {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    stderr_path: PathBuf,
    commands_run: u32,
}

/// Returns the missing requirement of Picard on this machine, for [`crate::skip!`]; `None` if Picard can run.
pub fn missing_requirement() -> Option<String> {
    ["java", "samtools"]
        .iter()
        .find(|name| Tool::find(name).is_none())
        .map(|name| format!("{name} is not on PATH"))
        .or_else(|| jar_directory().err())
}

/// Skips the calling test when Picard or samtools is not installed.
#[macro_export]
macro_rules! needs_picard {
    () => {
        if let Some(reason) = $crate::picard::missing_requirement() {
            $crate::skip!("missing-tool", "{reason}");
        }
    };
}

/// Returns the directory with the jars, fetched once per process.
fn jar_directory() -> Result<PathBuf, String> {
    static JARS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    JARS.get_or_init(|| {
        let script = tools_directory().join("fetch.sh");
        let output = Command::new(&script).output().map_err(|error| format!("{}: {error}", script.display()))?;
        if output.status.success() {
            Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    })
    .clone()
}

fn tools_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools/picard")
}

/// Runs `words` (a tool and its arguments) in a resident JVM, and starts the JVM first if necessary.
///
/// # Errors
/// [`PicardError`] with Picard's exception, or with its exit code other than 0.
///
/// # Panics
/// When the JVM cannot be started or has died.
pub fn run(words: &[&str]) -> Result<(), PicardError> {
    static SERVERS: [Mutex<Option<PicardServer>>; MAX_JVMS] = [const { Mutex::new(None) }; MAX_JVMS];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let idle = SERVERS.iter().find_map(Mutex::try_lock);
    let mut server = idle.unwrap_or_else(|| SERVERS[NEXT.fetch_add(1, Ordering::Relaxed) % MAX_JVMS].lock());
    if let Some(worn) = server.take_if(|server| server.commands_run >= COMMANDS_PER_JVM) {
        worn.shut_down();
    }
    server.get_or_insert_with(PicardServer::start).send_command(words)
}

/// Returns `PATH` with a directory appended whose `Rscript` draws nothing: Picard does not count insert sizes where it
/// cannot draw them, and the tests need the numbers only.
fn path_with_rscript() -> String {
    let directory = scratch::directory("rscript");
    scratch::write_executable(&directory.join("Rscript"), "#!/bin/sh\nexit 0\n");
    format!("{}:{}", std::env::var("PATH").unwrap_or_default(), directory.display())
}

impl PicardServer {
    fn start() -> Self {
        let jars = jar_directory().unwrap_or_else(|reason| panic!("no Picard: {reason}"));
        let stderr_path = scratch::directory("picard").join("stderr");
        let stderr = std::fs::File::create(&stderr_path).expect("the scratch directory can be written to");
        let mut child = Tool::require("java")
            .command()
            // Disable System.gc(): Picard calls it nine times for each file to report its memory, which takes 130 of
            // 155 ms.
            .args([JVM_HEAP_OPTION, "-XX:+UseSerialGC", "-XX:+DisableExplicitGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dpicard.useLegacyParser=false")
            .arg("-cp")
            .arg(jars.join("*"))
            .arg(tools_directory().join("PicardServer.java"))
            .env("PATH", path_with_rscript())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("java can be started");
        let commands = child.stdin.take().expect("stdin is piped");
        let replies = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut server = Self { child, commands, replies, stderr_path, commands_run: 0 };
        assert_eq!(server.read_reply(), "READY");
        server
    }

    /// Closes the standard input of the JVM, which then exits, and waits for it.
    fn shut_down(self) {
        let Self { mut child, commands, .. } = self;
        drop(commands);
        child.wait().expect("the JVM can be waited for");
    }

    fn send_command(&mut self, words: &[&str]) -> Result<(), PicardError> {
        self.commands_run += 1;
        assert!(words.iter().all(|word| !word.contains(['\t', '\n'])), "{words:?} cannot be sent in a line");
        let sent = writeln!(self.commands, "{}", words.join("\t")).and_then(|()| self.commands.flush());
        if let Err(error) = sent {
            panic!("{}: {error}", self.describe_exit());
        }
        match self.read_reply().as_str() {
            "OK 0" => Ok(()),
            refusal => Err(PicardError(refusal.to_owned())),
        }
    }

    fn read_reply(&mut self) -> String {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => line.trim_end().to_owned(),
            _ => panic!("{}", self.describe_exit()),
        }
    }

    fn describe_exit(&mut self) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let said = std::fs::read_to_string(&self.stderr_path).unwrap_or_default();
        format!("the resident Picard has ended ({status}):\n{said}")
    }
}

/// Marks duplicates in `input` with Picard, without `@PG` tags on records and with lenient validation.
///
/// # Errors
/// When Picard rejects the file.
pub fn mark_duplicates(
    input: &Path,
    output: &Path,
    metrics: &Path,
    options: &PicardOptions,
) -> Result<(), PicardError> {
    let text = |path: &Path| path.to_str().expect("scratch paths are UTF-8").to_owned();
    let distance = options.optical_distance.to_string();
    let (input, output, metrics, temp) = (text(input), text(output), text(metrics), text(scratch::root()));
    let mut words = vec![
        "MarkDuplicates",
        "--INPUT",
        &input,
        "--OUTPUT",
        &output,
        "--METRICS_FILE",
        &metrics,
        "--OPTICAL_DUPLICATE_PIXEL_DISTANCE",
        &distance,
        "--REMOVE_DUPLICATES",
        if options.remove { "true" } else { "false" },
        "--ADD_PG_TAG_TO_READS",
        "false",
        "--COMPRESSION_LEVEL",
        "1",
        "--VALIDATION_STRINGENCY",
        "SILENT",
        "--TMP_DIR",
        &temp,
        "--VERBOSITY",
        "ERROR",
        "--QUIET",
        "true",
    ];
    words.extend(options.marking.picard_args());
    run(&words)
}

/// Sorts `input` by coordinate with samtools, then marks duplicates: the oracle of `godwit markdup`. Where duplicates are
/// marked in query-grouped input, as `input` then must be, marking precedes sorting. Returns the marked file (of the type
/// `extension` names) and the metrics file, both in `directory`.
///
/// # Errors
/// When Picard rejects the file.
///
/// # Panics
/// When samtools does.
pub fn sort_and_mark(
    input: &Path,
    directory: &Path,
    extension: &str,
    options: &PicardOptions,
) -> Result<(PathBuf, PathBuf), PicardError> {
    let marked = directory.join(format!("expected.{extension}"));
    let metrics = directory.join("expected.duplicates.txt");
    if options.marking.query_grouped {
        let [plain, grouped] = ["plain.bam", "grouped.bam"].map(|name| directory.join(name));
        let words = ["view", "--no-PG", "-1", "-b", "-o"];
        Tool::require("samtools").run(words.iter().map(AsRef::as_ref).chain([plain.as_os_str(), input.as_os_str()]));
        mark_duplicates(&plain, &grouped, &metrics, options)?;
        sort_by_coordinate(&grouped, &marked, extension);
    } else {
        let sorted = directory.join("sorted.bam");
        sort_by_coordinate(input, &sorted, "bam");
        mark_duplicates(&sorted, &marked, &metrics, options)?;
    }
    Ok((marked, metrics))
}

/// Sorts by coordinate.
///
/// # Panics
/// When samtools fails.
pub fn sort_by_coordinate(input: &Path, output: &Path, extension: &str) {
    let words = ["sort", "--no-PG", "-l", "1", "-O", extension, "-o"];
    Tool::require("samtools").run(words.iter().map(AsRef::as_ref).chain([output.as_os_str(), input.as_os_str()]));
}

/// Returns the summary of the problems that ValidateSamFile finds in a file. It is empty if there are no problems.
pub fn validation_problems(file: &Path, reference: Option<&Path>) -> String {
    let report = scratch::directory("validate").join("summary.txt");
    let text = |path: &Path| path.to_str().expect("scratch paths are UTF-8").to_owned();
    let (file, report_path) = (text(file), text(&report));
    let mut words = vec!["ValidateSamFile", "--INPUT", &file, "--OUTPUT", &report_path, "--MODE", "SUMMARY"];
    let reference = reference.map(text);
    if let Some(reference) = &reference {
        words.extend(["--REFERENCE_SEQUENCE", reference]);
    }
    words.extend(["--VERBOSITY", "ERROR", "--QUIET", "true"]);
    let outcome = run(&words);
    let found = std::fs::read_to_string(&report).unwrap_or_default();
    match outcome {
        Ok(()) if found.trim() == "No errors found" => String::new(),
        _ => format!("{outcome:?}\n{found}"),
    }
}
