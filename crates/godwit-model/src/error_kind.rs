//! The class of an error, by which a process exits.

use serde::{Deserialize, Serialize};

/// The class of an error, which decides the exit code. It names the cause that the user has to change before the job
/// can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A wrong or contradictory command line.
    Usage,
    /// Wrong input data.
    Input,
    /// A problem of this machine, for example a missing file or tool, a missing permission or a full disk.
    Machine,
    /// A failure of another program that godwit started, for example an aligner.
    Engine,
    /// A failure of another machine or of the network.
    Remote,
    /// A stop by the user or by a signal, for example Ctrl-C.
    Interrupted,
    /// A bug in godwit.
    Bug,
}

impl ErrorKind {
    const ALL: [Self; 7] =
        [Self::Usage, Self::Input, Self::Machine, Self::Engine, Self::Remote, Self::Interrupted, Self::Bug];

    /// Returns the exit code of a process that fails with this kind.
    pub fn exit_code(self) -> i32 {
        match self {
            Self::Bug => 1,
            Self::Usage => 2,
            Self::Input => 3,
            Self::Machine => 4,
            Self::Engine => 5,
            Self::Remote => 6,
            Self::Interrupted => 130,
        }
    }

    /// Returns the error kind of another godwit process from its exit code. An unknown or missing exit code means that
    /// the machine of the process was lost.
    pub fn of_exit_code(code: Option<i32>) -> Self {
        Self::ALL.into_iter().find(|kind| Some(kind.exit_code()) == code).unwrap_or(Self::Remote)
    }

    /// Returns the text of this kind in the outcome file of a sample. The text stays the same if a variant of this type
    /// is renamed.
    pub fn outcome_text(self) -> &'static str {
        match self {
            Self::Usage => "Usage",
            Self::Input => "Input",
            Self::Machine => "Machine",
            Self::Engine => "Engine",
            Self::Remote => "Remote",
            Self::Interrupted => "Interrupted",
            Self::Bug => "Bug",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_say_what_a_process_failed_for() {
        assert_eq!(ErrorKind::ALL.map(ErrorKind::exit_code), [2, 3, 4, 5, 6, 130, 1]);
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::of_exit_code(Some(kind.exit_code())), kind);
        }
        for code in [None, Some(0), Some(137)] {
            assert_eq!(ErrorKind::of_exit_code(code), ErrorKind::Remote);
        }
    }

    #[test]
    fn texts_in_outcome_files_are_those_of_earlier_versions() {
        let texts = ErrorKind::ALL.map(ErrorKind::outcome_text);
        assert_eq!(texts, ["Usage", "Input", "Machine", "Engine", "Remote", "Interrupted", "Bug"]);
    }
}
