//! Picard 3.4.0 as the oracle of duplicate marking, in one resident JVM for the whole test run.
//!
//! `tools/picard/fetch.sh` puts the jars into the cache; `tools/picard/PicardServer.java` runs commands. A start takes
//! about two seconds, a file of a hundred records about 25 ms.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::marking::Marking;
use crate::scratch;
use crate::tool::Tool;

/// Picard sizes an array it clears for every file by the heap, so a small heap is ten times as fast as a large one.
const HEAP: &str = "-Xmx128m";

/// Commands that one JVM runs before another takes its place: Picard leaves files open that only a full collection would close.
const COMMANDS_PER_JVM: u32 = 2_000;

/// How MarkDuplicates is run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MarkOptions {
    /// `OPTICAL_DUPLICATE_PIXEL_DISTANCE`; Picard's default is 100.
    pub optical_distance: u32,
    /// `REMOVE_DUPLICATES`.
    pub remove: bool,
    /// The rest.
    pub marking: Marking,
}

impl Default for MarkOptions {
    fn default() -> Self {
        Self { optical_distance: 100, remove: false, marking: Marking::default() }
    }
}

/// Why Picard did not do it: exception class and message, or an exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

/// The resident JVM.
#[derive(Debug)]
pub struct Picard {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    chatter: PathBuf,
    commands_run: u32,
}

/// Why the oracle cannot run here, if it cannot: for [`crate::skip!`].
pub fn missing() -> Option<String> {
    ["java", "samtools"]
        .iter()
        .find(|name| Tool::find(name).is_none())
        .map(|name| format!("{name} is not on PATH"))
        .or_else(|| jars().err())
}

/// Skips the calling test when Picard or samtools is not there.
#[macro_export]
macro_rules! needs_picard {
    () => {
        if let Some(reason) = $crate::picard::missing() {
            $crate::skip!("missing-tool", "{reason}");
        }
    };
}

/// The directory with the jars, fetched once per process.
fn jars() -> Result<PathBuf, String> {
    static JARS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    JARS.get_or_init(|| {
        let script = tools().join("fetch.sh");
        let output = Command::new(&script).output().map_err(|error| format!("{}: {error}", script.display()))?;
        if output.status.success() {
            Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    })
    .clone()
}

fn tools() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tools/picard")
}

/// Runs `words` (a tool and its arguments) in the resident JVM, starting it first if need be.
///
/// # Errors
/// What Picard threw, or its exit code other than 0.
///
/// # Panics
/// When the JVM cannot be started or has died.
pub fn run(words: &[&str]) -> Result<(), Refusal> {
    static SERVER: Mutex<Option<Picard>> = Mutex::new(None);
    // A test that failed while it held the lock has left the conversation whole or the JVM dead.
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(worn) = server.take_if(|server| server.commands_run >= COMMANDS_PER_JVM) {
        worn.end();
    }
    server.get_or_insert_with(Picard::start).command(words)
}

/// `PATH` with an `Rscript` that draws nothing behind everything else: Picard refuses to count insert sizes where it could
/// not draw them, and only the numbers are wanted.
fn path_with_rscript() -> String {
    let directory = scratch::directory("rscript");
    scratch::program(&directory.join("Rscript"), "#!/bin/sh\nexit 0\n");
    format!("{}:{}", std::env::var("PATH").unwrap_or_default(), directory.display())
}

impl Picard {
    fn start() -> Self {
        let jars = jars().unwrap_or_else(|reason| panic!("no Picard: {reason}"));
        let chatter = scratch::root().join("picard.stderr");
        let stderr = std::fs::File::create(&chatter).expect("the scratch directory can be written to");
        let mut child = Tool::need("java")
            .command()
            // Picard calls System.gc() nine times per file to report its memory: 130 of 155 ms.
            .args([HEAP, "-XX:+UseSerialGC", "-XX:+DisableExplicitGC", "-XX:TieredStopAtLevel=1"])
            .arg("-Dpicard.useLegacyParser=false")
            .arg("-cp")
            .arg(jars.join("*"))
            .arg(tools().join("PicardServer.java"))
            .env("PATH", path_with_rscript())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("java can be started");
        let commands = child.stdin.take().expect("stdin is piped");
        let replies = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut server = Self { child, commands, replies, chatter, commands_run: 0 };
        assert_eq!(server.reply(), "READY");
        server
    }

    /// Waits until the JVM has ended, which it does when nobody can send it commands any more.
    fn end(self) {
        let Self { mut child, commands, .. } = self;
        drop(commands);
        child.wait().expect("the JVM can be waited for");
    }

    fn command(&mut self, words: &[&str]) -> Result<(), Refusal> {
        self.commands_run += 1;
        assert!(words.iter().all(|word| !word.contains(['\t', '\n'])), "{words:?} cannot be sent in a line");
        let sent = writeln!(self.commands, "{}", words.join("\t")).and_then(|()| self.commands.flush());
        if let Err(error) = sent {
            panic!("{}: {error}", self.death());
        }
        match self.reply().as_str() {
            "OK 0" => Ok(()),
            refusal => Err(Refusal(refusal.to_owned())),
        }
    }

    fn reply(&mut self) -> String {
        let mut line = String::new();
        match self.replies.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => line.trim_end().to_owned(),
            _ => panic!("{}", self.death()),
        }
    }

    fn death(&mut self) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let said = std::fs::read_to_string(&self.chatter).unwrap_or_default();
        format!("the resident Picard has ended ({status}):\n{said}")
    }
}

/// Marks duplicates in `input` as the oracle does: no `@PG` tags on records, everything accepted.
///
/// # Errors
/// When Picard refuses the file.
pub fn mark_duplicates(input: &Path, output: &Path, metrics: &Path, options: &MarkOptions) -> Result<(), Refusal> {
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
    words.extend(options.marking.picard_words());
    run(&words)
}

/// Sorts `input` by coordinate with samtools, then marks duplicates: the oracle of `godwit markdup`. Where duplicates are
/// marked in query-grouped input, which `input` then must be, it is the other way round. Returns the marked file (of the
/// type `extension` names) and the metrics file, both in `directory`.
///
/// # Errors
/// When Picard refuses the file.
///
/// # Panics
/// When samtools does.
pub fn sort_and_mark(
    input: &Path,
    directory: &Path,
    extension: &str,
    options: &MarkOptions,
) -> Result<(PathBuf, PathBuf), Refusal> {
    let marked = directory.join(format!("expected.{extension}"));
    let metrics = directory.join("expected.duplicates.txt");
    if options.marking.query {
        let [plain, grouped] = ["plain.bam", "grouped.bam"].map(|name| directory.join(name));
        let words = ["view", "--no-PG", "-1", "-b", "-o"];
        Tool::need("samtools").run(words.iter().map(AsRef::as_ref).chain([plain.as_os_str(), input.as_os_str()]));
        mark_duplicates(&plain, &grouped, &metrics, options)?;
        sort(&grouped, &marked, extension);
    } else {
        let sorted = directory.join("sorted.bam");
        sort(input, &sorted, "bam");
        mark_duplicates(&sorted, &marked, &metrics, options)?;
    }
    Ok((marked, metrics))
}

/// Sorts by coordinate.
///
/// # Panics
/// When samtools fails.
pub fn sort(input: &Path, output: &Path, extension: &str) {
    let words = ["sort", "--no-PG", "-l", "1", "-O", extension, "-o"];
    Tool::need("samtools").run(words.iter().map(AsRef::as_ref).chain([output.as_os_str(), input.as_os_str()]));
}

/// What ValidateSamFile finds in a file, as its summary: empty when it finds nothing.
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
