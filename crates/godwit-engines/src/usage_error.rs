//! The form in which an own aligner program rejects its arguments: an exit status, and a line on stderr.

/// Exit status of an aligner program that rejects its arguments. The last line on its stderr is then an [`error_line`].
pub const EXIT_USAGE: u8 = 2;
/// The separator between the program name and the error message in an [`error_line`].
const ERROR_MARK: &str = ": error: ";

/// Returns the line that an aligner program prints on stderr to report an error.
pub fn error_line(program: &str, message: &str) -> String {
    format!("{program}{ERROR_MARK}{message}")
}

/// Returns the message of an [`error_line`], or the whole line if it has another form.
pub fn error_message(line: &str) -> &str {
    line.split_once(ERROR_MARK).map_or(line, |(_, message)| message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_an_error_line_is_what_was_put_into_it() {
        for message in ["bwa mem has no option -q", "x: error: y", ""] {
            assert_eq!(error_message(&error_line("godwit-bwa", message)), message);
        }
        assert_eq!(error_line("godwit-bwa", "m"), "godwit-bwa: error: m");
        assert_eq!(error_message("of another program"), "of another program");
    }
}
