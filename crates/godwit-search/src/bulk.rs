//! Searches by DIAMOND and MMseqs2: pieces of the queries, each by a run of the tool, put together as one run writes them.
//!
//! What these tools report of a query depends on the database and on the options alone, but for what is seen to here: in which
//! order queries are reported, which algorithm DIAMOND chooses, and what stands once at the beginning. Options with which it depends on
//! other queries are refused. A worker is a process of godwit's own that speaks as `godwit-blast` does and starts the tool.

mod alias;
mod diamond;
mod mmseqs;
mod prepare;
mod queries;
mod worker;

use std::path::{Path, PathBuf};

use godwit_engines::EngineError;
use godwit_engines::searcher::{blast, diamond as diamond_program, mmseqs as mmseqs_program};
use serde::{Deserialize, Serialize};

use crate::SearchError;
use crate::protocol::FailureKind;

pub(crate) use alias::{Tables, merge};
pub(crate) use diamond::parse as parse_diamond;
pub(crate) use mmseqs::parse as parse_mmseqs;
pub use prepare::Prepared;
pub use worker::serve;

/// Which tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tool {
    /// `diamond`.
    Diamond,
    /// `mmseqs`.
    Mmseqs,
    /// A program of an installed BLAST+, by ranges of its database.
    Blast,
}

impl Tool {
    fn find(self, mode: &str) -> Result<(PathBuf, String), EngineError> {
        match self {
            Self::Diamond => diamond_program::find(),
            Self::Mmseqs => mmseqs_program::find(),
            Self::Blast => blast::find_program(mode),
        }
    }

    /// What it calls itself.
    pub fn title(self) -> &'static str {
        match self {
            Self::Diamond => "DIAMOND",
            Self::Mmseqs => "MMseqs2",
            Self::Blast => "BLAST over aliases",
        }
    }
}

/// What a report begins with, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Heading {
    /// Nothing.
    None,
    /// A line of names.
    Line,
    /// Lines that begin with `@`, one of which has the command line.
    Sam,
    /// All before the first `Query=`.
    Pairwise,
}

/// A command line of such a tool, looked through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkSearch {
    /// The tool.
    pub tool: Tool,
    /// What it is to do: `blastp`, `easy-search`.
    pub mode: String,
    /// Its options, without queries, output, threads and words.
    pub(crate) arguments: Vec<String>,
    /// The database.
    pub(crate) database: PathBuf,
    /// The database or the target as it was named.
    pub(crate) named: PathBuf,
    /// A directory for its scratch files that the user named.
    pub(crate) scratch: Option<PathBuf>,
    /// The command line as it was typed.
    pub(crate) line: String,
    pub(crate) heading: Heading,
    /// Queries are reported by the remainder of their number, counted from 0, over this, and then by their number.
    pub(crate) stride: usize,
    /// Threads of each run.
    pub threads: usize,
    /// Where ranges of the database are searched, and not pieces of the queries.
    pub(crate) tables: Option<Tables>,
}

impl BulkSearch {
    /// A search of which no more than its words is known.
    fn of(tool: Tool, mode: &str, words: &[String]) -> Self {
        Self {
            tool,
            mode: mode.to_owned(),
            arguments: Vec::new(),
            database: PathBuf::new(),
            named: PathBuf::new(),
            scratch: None,
            line: words.join(" "),
            heading: Heading::None,
            stride: 1,
            threads: 1,
            tables: None,
        }
    }

    /// The program and its version.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`].
    pub fn find(&self) -> Result<(PathBuf, String), EngineError> {
        self.tool.find(&self.mode)
    }

    /// What it is, for a later search to compare.
    pub(crate) fn told(&self) -> Vec<String> {
        let tables = self.tables.iter().map(Tables::told);
        std::iter::once(self.mode.clone()).chain(self.arguments.iter().cloned()).chain(tables).collect()
    }

    /// The options for a run over these queries.
    fn words(&self, queries: &Path, out: &Path, scratch: &Path) -> Vec<std::ffi::OsString> {
        let mut words: Vec<std::ffi::OsString> = vec![self.mode.clone().into()];
        match self.tool {
            Tool::Diamond => {
                words.extend(["--query".into(), queries.into(), "--out".into(), out.into(), "--quiet".into()]);
            }
            Tool::Blast => return words,
            Tool::Mmseqs => words.extend([queries.into(), self.database.clone().into(), out.into(), scratch.into()]),
        }
        words.extend(self.arguments.iter().map(Into::into));
        words.extend(["--threads".into(), self.threads.to_string().into()]);
        words
    }

    /// The files of the database or of the target, as far as they are known.
    pub(crate) fn database_files(&self, named: &Path) -> Vec<PathBuf> {
        let endings: &[&str] = match self.tool {
            Tool::Diamond => &["", ".dmnd"],
            Tool::Blast => &[".pin", ".psq", ".phr", ".pal", ".nin", ".nsq", ".nhr", ".nal"],
            Tool::Mmseqs => &["", ".index", ".dbtype", "_h", "_h.index"],
        };
        let with = |ending: &&str| {
            let mut path = named.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        endings.iter().map(with).filter(|path| path.is_file()).collect()
    }
}

/// An option that is refused, and why.
type Refusal = (&'static str, &'static str);

/// Refuses an option that is on the list.
fn refuse(name: &str, refused: &[Refusal]) -> Result<(), SearchError> {
    match refused.iter().find(|(option, _)| *option == name) {
        Some((_, problem)) => Err(SearchError::Unsupported { option: name.to_owned(), problem }),
        None => Ok(()),
    }
}

/// Classifies the failure of a tool by its message: DIAMOND, MMseqs2 and BLAST+ exit with one status for all failures. This is the
/// only place where their messages decide.
fn kind_of(said: &str) -> FailureKind {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&[
        "nvalid option",
        "nrecognized parameter",
        "nvalid parameter",
        "issing parameter",
        "nvalid value",
        "Argument \"",
    ]) {
        FailureKind::Usage
    } else if has(&[
        "database file",
        "Database",
        "target database",
        ".dmnd",
        "opening the database",
        "Error opening file",
    ]) {
        FailureKind::Database
    } else if has(&["input file format", "nvalid character", "is invalid", "query"]) {
        FailureKind::Input
    } else {
        FailureKind::Engine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_tools_are_classified_by_their_messages() {
        for (said, kind) in [
            ("Error: Invalid option: --evalu", FailureKind::Usage),
            ("Unrecognized parameter \"--foo\"", FailureKind::Usage),
            ("Error: Database was built with an older version of DIAMOND", FailureKind::Database),
            ("Error opening file nr.dmnd: No such file or directory", FailureKind::Database),
            ("Error: Error detecting input file format", FailureKind::Input),
            ("Killed for another reason", FailureKind::Engine),
        ] {
            assert_eq!(kind_of(said), kind, "{said}");
        }
    }
}
