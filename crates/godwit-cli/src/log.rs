//! The lines that godwit prints on stderr.

use std::io::Write;
use std::sync::OnceLock;

use godwit_fleet::ERROR_PREFIX;
use serde_json::json;

use crate::cli::{CommonArgs, LogLevel, SHORT_HELP};
use crate::failure::{Failure, print};
use godwit_model::ErrorKind;

/// Handles an error of clap. A request for help or the version is printed on stdout and succeeds; any other error
/// becomes a [`Failure`] for wrong usage. If `events` is true, nothing but JSON is printed on stderr.
pub fn command_line_outcome(error: &clap::Error, events: bool) -> Result<(), Failure> {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return print(&text);
    }
    if !events {
        log_plain(text.trim_end());
    }
    Err(Failure::new(ErrorKind::Usage, clap_summary(&text)))
}

/// Prints the short help on stderr, and returns the failure of a command line without a verb.
pub fn report_missing_verb() -> Failure {
    log_plain(SHORT_HELP);
    Failure::new(ErrorKind::Usage, NO_VERB.into())
}

/// Error message of a command line without a verb.
const NO_VERB: &str = "no verb was given; see godwit --help";

/// Returns the error message of clap without its usage, as a single line that names the help of the verb.
fn clap_summary(text: &str) -> String {
    let shown_lines =
        text.lines().map_while(|line| (!line.starts_with("Usage:") && !line.starts_with("For more")).then_some(line));
    let shown_lines: Vec<&str> = shown_lines.map(str::trim).filter(|line| !line.is_empty()).collect();
    match shown_lines.join(" ").strip_prefix("error: ") {
        Some(message) => format!("{message}; see {} --help", command_of_usage(text)),
        None => NO_VERB.into(),
    }
}

/// Returns the program and the verb of the usage in an error message of clap, such as `godwit bench flight`.
fn command_of_usage(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or("godwit");
    let is_verb = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    usage.split(' ').take_while(is_verb).collect::<Vec<_>>().join(" ")
}

/// A line to print on stderr.
#[derive(Clone, Copy, Debug)]
enum Line<'l> {
    /// The error message of a failure, which is the last line of the process.
    Error(&'l str),
    /// A warning about a possible problem.
    Warning(&'l str),
    /// Information for the user.
    Message(&'l str),
    /// Text that is printed without the prefix `godwit:`.
    Plain(&'l str),
    /// An event as a line of JSON.
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

/// Log format of a server: true if lines are JSON events, and the log level. Other processes do not set it.
static SERVER_LOG_FORMAT: OnceLock<(bool, LogLevel)> = OnceLock::new();

/// Applies `--json`, `--quiet` and `--log` to all lines that this process prints on stderr. For servers only, because
/// other verbs apply these options in their progress display.
pub fn set_server_log(options: &CommonArgs) {
    let level = if options.quiet { LogLevel::Error } else { options.log };
    let _ = SERVER_LOG_FORMAT.set((options.json, level));
}

/// Prints the line that reports a failure on stderr.
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

/// Prints text on stderr without the prefix `godwit:`.
pub fn log_plain(text: &str) {
    log(Line::Plain(text));
}

/// Prints an event, which is a line of JSON, on stderr.
pub fn log_event(text: &str) {
    log(Line::Event(text));
}

/// Prints a line on stderr. If printing fails, the error is ignored, because it cannot be reported anywhere else.
fn log(line: Line<'_>) {
    if let Some(line) =
        SERVER_LOG_FORMAT.get().map_or(Some(line.to_string()), |(events, level)| format_log_line(line, *events, *level))
    {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Formats a line for the log of a server; returns `None` if the log level suppresses the line.
fn format_log_line(line: Line<'_>, events: bool, level: LogLevel) -> Option<String> {
    let (event, of, text) = match line {
        // The error message of a failure is always printed as text. An event is JSON already.
        Line::Error(_) | Line::Event(_) => return Some(line.to_string()),
        Line::Warning(text) => ("warning", LogLevel::Warn, text),
        Line::Message(text) | Line::Plain(text) => ("message", LogLevel::Info, text),
    };
    let log_line = if events { json!({ "event": event, "message": text }).to_string() } else { line.to_string() };
    (level >= of).then_some(log_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_logs_the_levels_and_the_format_that_options_select() {
        let (warning, message) = (Line::Warning("x \"y\""), Line::Message("z"));
        assert_eq!(format_log_line(warning, false, LogLevel::Warn).as_deref(), Some("godwit: warning: x \"y\""));
        let log_line = format_log_line(warning, true, LogLevel::Warn).unwrap();
        assert_eq!(log_line, r#"{"event":"warning","message":"x \"y\""}"#);
        assert_eq!(
            format_log_line(message, true, LogLevel::Debug).as_deref(),
            Some(r#"{"event":"message","message":"z"}"#)
        );
        assert_eq!(
            (format_log_line(message, true, LogLevel::Warn), format_log_line(warning, false, LogLevel::Error)),
            (None, None)
        );
        assert_eq!(format_log_line(Line::Error("x"), true, LogLevel::Error).as_deref(), Some("godwit: error: x"));
    }

    #[test]
    fn the_level_of_a_line_does_not_depend_on_its_text() {
        for text in ["godwit: warning: x", "godwit: error: x", "{x", "godwit: x"] {
            assert_eq!(format_log_line(Line::Message(text), false, LogLevel::Warn), None);
            assert_eq!(format_log_line(Line::Plain(text), false, LogLevel::Info).as_deref(), Some(text));
            assert!(format_log_line(Line::Warning(text), false, LogLevel::Error).is_none());
        }
        let event = format_log_line(Line::Event("{}"), true, LogLevel::Error);
        assert_eq!(event.as_deref(), Some("{}"));
    }

    #[test]
    fn missing_arguments_are_named_on_one_line_with_the_help_of_the_verb() {
        let missing = "the following required arguments were not provided:";
        let text = format!("error: {missing}\n  --out <DIR>\n  --sample <NAME>\n\nUsage: godwit align --out <DIR>\n");
        let expected = format!("{missing} --out <DIR> --sample <NAME>; see godwit align --help");
        assert_eq!(clap_summary(&text), expected);
        let unknown = "error: unrecognized subcommand 'version'\n\nUsage: godwit [OPTIONS] <COMMAND>\n";
        assert_eq!(clap_summary(unknown), "unrecognized subcommand 'version'; see godwit --help");
    }
}
