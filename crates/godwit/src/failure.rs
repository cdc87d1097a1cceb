//! Failures as users see them: one line and an exit code.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use godwit_flight::{DatasetError, FlightError};
use godwit_formats::with_causes;
use godwit_pipeline::{Blame, PipelineError};
use serde_json::json;

use crate::cli::{Common, LogLevel};

/// Exit codes; `docs/reference/exit-codes.md` documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A bug in godwit.
    Bug = 1,
    /// Wrong usage.
    Usage = 2,
    /// Bad input data.
    Input = 3,
    /// Something missing or refused on this machine.
    Machine = 4,
    /// An engine failed.
    Engine = 5,
    /// A remote or the network failed.
    Remote = 6,
    /// Interrupted.
    Interrupted = 130,
}

impl Exit {
    /// What another godwit meant by the code it ended with.
    pub fn of_code(code: Option<i32>) -> Self {
        Blame::of_exit_code(code).into()
    }
}

impl From<Blame> for Exit {
    fn from(blame: Blame) -> Self {
        match blame {
            Blame::Usage => Self::Usage,
            Blame::Input => Self::Input,
            Blame::Machine => Self::Machine,
            Blame::Engine => Self::Engine,
            Blame::Remote => Self::Remote,
            Blame::Interrupted => Self::Interrupted,
            Blame::Bug => Self::Bug,
        }
    }
}

impl From<Exit> for Blame {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Usage => Self::Usage,
            Exit::Input => Self::Input,
            Exit::Machine => Self::Machine,
            Exit::Engine => Self::Engine,
            Exit::Remote => Self::Remote,
            Exit::Interrupted => Self::Interrupted,
            Exit::Bug => Self::Bug,
        }
    }
}

/// Why a verb failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What, where and what to do.
    pub message: String,
}

impl Failure {
    /// A failure with its message.
    pub fn new(exit: Exit, message: String) -> Self {
        Self { exit, message }
    }

    /// The message on one line.
    pub fn line(&self) -> String {
        self.message.trim().replace('\n', " | ")
    }
}

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        Self::new(error.blame().into(), with_causes(&error))
    }
}

impl From<FlightError> for Failure {
    fn from(error: FlightError) -> Self {
        let exit = match &error {
            FlightError::Listen { .. } => Exit::Machine,
            _ => Exit::Remote,
        };
        Self::new(exit, with_causes(&error))
    }
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Self {
        let exit = match error {
            DatasetError::NotFound { .. } | DatasetError::Refused { .. } => Exit::Usage,
            DatasetError::Changed { .. }
            | DatasetError::Forbidden { .. }
            | DatasetError::AlreadyThere { .. }
            | DatasetError::Machine(_) => Exit::Machine,
            DatasetError::Data(_) => Exit::Input,
            DatasetError::Remote(_) => Exit::Remote,
        };
        Self::new(exit, with_causes(&error))
    }
}

/// Help and version go to stdout and are no failure; anything else is wrong usage. With `events` stderr takes only what
/// programs can read.
pub fn of_command_line(error: &clap::Error, events: bool) -> Result<(), Failure> {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return print(&text);
    }
    if !events {
        log_plain(text.trim_end());
    }
    Err(Failure::new(Exit::Usage, summary(&text)))
}

/// Prints a result on stdout as JSON.
pub fn print_json(result: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(result);
    let text = text.map_err(|error| Failure::new(Exit::Bug, format!("a bug in godwit: no JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Prints results on stdout. A reader that has seen enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Machine, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// What clap says before its usage lines, on one line.
fn summary(text: &str) -> String {
    let told =
        text.lines().map_while(|line| (!line.starts_with("Usage:") && !line.starts_with("For more")).then_some(line));
    let told: Vec<&str> = told.map(str::trim).filter(|line| !line.is_empty()).collect();
    match told.join(" ").strip_prefix("error: ") {
        Some(message) => format!("{message}; see godwit --help"),
        None => "no verb was given; see godwit --help".into(),
    }
}

/// A line on stderr.
#[derive(Clone, Copy, Debug)]
enum Line<'l> {
    /// The outcome of a failure.
    Error(&'l str),
    /// Something that may be wrong.
    Warning(&'l str),
    /// Anything else that the user should know.
    Message(&'l str),
    /// Text of another program part, which has its own beginning.
    Plain(&'l str),
    /// An event, in JSON.
    Event(&'l str),
}

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(text) => write!(formatter, "{ERROR_PREFIX}{text}"),
            Self::Warning(text) => write!(formatter, "godwit: warning: {text}"),
            Self::Message(text) => write!(formatter, "godwit: {text}"),
            Self::Plain(text) | Self::Event(text) => formatter.write_str(text),
        }
    }
}

/// The beginning of the line on the outcome of a failure. Another godwit reads that line in the log of a process.
pub const ERROR_PREFIX: &str = "godwit: error: ";

/// How a server speaks: whether in events, and of what.
static VOICE: OnceLock<(bool, LogLevel)> = OnceLock::new();

/// Has this process, a server, say what it says from now on as `--json`, `--quiet` and `--log` want it: it has no outcome that would be
/// told otherwise.
pub fn speak_as(options: &Common) {
    let level = if options.quiet { LogLevel::Error } else { options.log };
    let _ = VOICE.set((options.json, level));
}

/// Prints the line on the outcome of a failure on stderr.
pub fn log_error(text: &str) {
    log(Line::Error(text));
}

/// Prints a warning on stderr.
pub fn log_warning(text: &str) {
    log(Line::Warning(text));
}

/// Prints a message on stderr.
pub fn log_message(text: &str) {
    log(Line::Message(text));
}

/// Prints text on stderr that has its own beginning.
pub fn log_plain(text: &str) {
    log(Line::Plain(text));
}

/// Prints an event, in JSON, on stderr.
pub fn log_event(text: &str) {
    log(Line::Event(text));
}

/// Prints a line on stderr. Where that is closed or full, nothing is left to tell it to.
fn log(line: Line<'_>) {
    if let Some(line) = VOICE.get().map_or(Some(line.to_string()), |(events, level)| spoken(line, *events, *level)) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// A line as it is told, where it is.
fn spoken(line: Line<'_>, events: bool, level: LogLevel) -> Option<String> {
    let (event, of, text) = match line {
        // The last line of a failure is what it is for everybody; what is an event already was asked for.
        Line::Error(_) | Line::Event(_) => return Some(line.to_string()),
        Line::Warning(text) => ("warning", LogLevel::Warn, text),
        Line::Message(text) | Line::Plain(text) => ("message", LogLevel::Info, text),
    };
    let told = if events { json!({ "event": event, "message": text }).to_string() } else { line.to_string() };
    (level >= of).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_what_is_asked_for_in_the_form_that_is_asked_for() {
        let (warning, message) = (Line::Warning("x \"y\""), Line::Message("z"));
        assert_eq!(spoken(warning, false, LogLevel::Warn).as_deref(), Some("godwit: warning: x \"y\""));
        let told = spoken(warning, true, LogLevel::Warn).unwrap();
        assert_eq!(told, r#"{"event":"warning","message":"x \"y\""}"#);
        assert_eq!(spoken(message, true, LogLevel::Debug).as_deref(), Some(r#"{"event":"message","message":"z"}"#));
        assert_eq!((spoken(message, true, LogLevel::Warn), spoken(warning, false, LogLevel::Error)), (None, None));
        assert_eq!(spoken(Line::Error("x"), true, LogLevel::Error).as_deref(), Some("godwit: error: x"));
    }

    #[test]
    fn the_level_of_a_line_does_not_depend_on_its_text() {
        for text in ["godwit: warning: x", "godwit: error: x", "{x", "godwit: x"] {
            assert_eq!(spoken(Line::Message(text), false, LogLevel::Warn), None);
            assert_eq!(spoken(Line::Plain(text), false, LogLevel::Info).as_deref(), Some(text));
            assert!(spoken(Line::Warning(text), false, LogLevel::Error).is_none());
        }
        let event = spoken(Line::Event("{}"), true, LogLevel::Error);
        assert_eq!(event.as_deref(), Some("{}"));
    }

    #[test]
    fn exit_codes_are_those_that_other_processes_are_understood_by() {
        for exit in [Exit::Bug, Exit::Usage, Exit::Input, Exit::Machine, Exit::Engine, Exit::Remote, Exit::Interrupted]
        {
            assert_eq!((Blame::from(exit).exit_code(), Exit::of_code(Some(exit as i32))), (exit as i32, exit));
        }
        assert_eq!(Exit::of_code(None), Exit::Remote);
    }

    #[test]
    fn missing_arguments_are_named_on_one_line() {
        let text = "error: the following required arguments were not provided:\n  --out <DIR>\n  --sample <NAME>\n\nUsage: x\n";
        let expected =
            "the following required arguments were not provided: --out <DIR> --sample <NAME>; see godwit --help";
        assert_eq!(summary(text), expected);
    }
}
