//! What can go wrong with a search, one variant per thing the caller can act on.

use std::path::PathBuf;

use godwit_engines::EngineError;
use godwit_formats::columnar::ColumnarError;

/// A search that cannot be done, or was not.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A command line that this does not do, or nobody would.
    #[error("{option} is not supported: {problem}")]
    Unsupported {
        /// The option or program.
        option: String,
        /// Why, and what to do.
        problem: &'static str,
    },
    /// The program itself does not accept its options.
    #[error("{program} does not accept its options: {message}")]
    Options {
        /// Name of the program.
        program: &'static str,
        /// What it said.
        message: String,
    },
    /// Queries that cannot be read.
    #[error("the queries of {program} cannot be searched: {message}")]
    Queries {
        /// Name of the program.
        program: &'static str,
        /// What it said.
        message: String,
    },
    /// A database that cannot be read, or is none.
    #[error("the database cannot be searched: {message}")]
    Database {
        /// What the engine said.
        message: String,
    },
    /// The database was written to while it was searched.
    #[error("{} changed while it was searched, so the results would be of no one database; run the search again", .path.display())]
    DatabaseChanged {
        /// The first file found changed.
        path: PathBuf,
    },
    /// Workers do not see the same database, or the same queries.
    #[error(
        "workers see different databases or queries under the same name; all nodes have to see the same files, none of which may \
         change while they are searched"
    )]
    OtherDatabase,
    /// Workers cannot be had where they were to run.
    #[error(transparent)]
    Place(Box<dyn std::error::Error + Send + Sync>),
    /// The engine is not on this machine, or is another's.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A worker ended, and so did those that took its place.
    #[error("the worker {ending} {times} times over the same work ({what}); its last words were: {last_words}")]
    Died {
        /// How it ended: `was killed by signal 9`.
        ending: String,
        /// How often.
        times: u32,
        /// What it worked on.
        what: String,
        /// The end of its stderr.
        last_words: String,
    },
    /// The engine said that it failed.
    #[error("the search engine failed: {message}")]
    Failed {
        /// What it said.
        message: String,
    },
    /// A worker said what was not asked for.
    #[error("a worker broke the protocol: {problem}; this is a bug in godwit")]
    Protocol {
        /// What was wrong.
        problem: String,
    },
    /// A file that cannot be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// Hits cannot be written as columns.
    #[error("cannot write the table of hits")]
    Columns(#[from] ColumnarError),
    /// What a stopped search has left is of another one.
    #[error(
        "cannot resume: {difference}; what the stopped search has finished is in {}; leave out --resume to begin anew",
        .directory.display()
    )]
    Resume {
        /// Where it is.
        directory: PathBuf,
        /// What is different.
        difference: String,
    },
    /// The user has had enough.
    #[error("interrupted; {}", if *.kept { "add --resume to the same command to go on" } else { "nothing was kept" })]
    Interrupted {
        /// Whether a later search can go on with what was done.
        kept: bool,
    },
}

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Whoever typed the command line.
    Usage,
    /// Whoever made the input.
    Input,
    /// Whoever keeps the machine.
    Machine,
    /// The engine.
    Engine,
    /// Other machines.
    Remote,
    /// Nobody: it was stopped.
    Interrupted,
    /// Us.
    Bug,
}

impl SearchError {
    /// Whether the same search may do better, with what this one has finished.
    pub(crate) fn may_be_resumed(&self) -> bool {
        matches!(
            self,
            Self::Interrupted { .. }
                | Self::Place(_)
                | Self::Died { .. }
                | Self::Failed { .. }
                | Self::Engine(_)
                | Self::File { .. }
                | Self::Columns(_)
        )
    }

    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unsupported { .. } | Self::Options { .. } | Self::Resume { .. } => Blame::Usage,
            Self::Queries { .. } | Self::Database { .. } => Blame::Input,
            Self::DatabaseChanged { .. }
            | Self::OtherDatabase
            | Self::File { .. }
            | Self::Engine(_)
            | Self::Columns(_) => Blame::Machine,
            Self::Died { .. } | Self::Failed { .. } => Blame::Engine,
            Self::Place(_) => Blame::Remote,
            Self::Protocol { .. } => Blame::Bug,
            Self::Interrupted { .. } => Blame::Interrupted,
        }
    }
}
