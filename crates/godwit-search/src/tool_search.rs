//! Searches by DIAMOND and MMseqs2: pieces of the queries, each by a run of the tool, merged into the output of one run.
//!
//! The output of these tools for a query depends only on the database and the options, with exceptions that this module
//! handles: the order of queries, DIAMOND's choice of its algorithm, and the header. Options that make it depend on other
//! queries are rejected. A worker is a process of godwit that speaks the protocol of `godwit-blast` and starts the tool.

mod alias;
mod diamond;
mod mmseqs;
mod preparation;
mod query_file;
mod tool_worker;

use std::path::{Path, PathBuf};

use godwit_engines::EngineError;
use godwit_engines::searcher::{blast, diamond as diamond_program, mmseqs as mmseqs_program};
use serde::{Deserialize, Serialize};

use crate::SearchError;
use crate::worker_protocol::FailureKind;

pub(crate) use alias::{RangeTables, merge_tables};
pub(crate) use diamond::parse_diamond;
pub(crate) use mmseqs::parse_mmseqs;
pub use preparation::SearchScratch;
pub use tool_worker::serve_tool_worker;

/// A search tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchTool {
    /// `diamond`.
    Diamond,
    /// `mmseqs`.
    Mmseqs,
    /// A program of an installed BLAST+, by ranges of its database.
    Blast,
}

impl SearchTool {
    fn find_program_version(self, mode: &str) -> Result<(PathBuf, String), EngineError> {
        match self {
            Self::Diamond => diamond_program::find_program_version(),
            Self::Mmseqs => mmseqs_program::find_program_version(),
            Self::Blast => blast::find_program_version(mode),
        }
    }

    /// Returns the name that the tool uses for itself.
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Diamond => "DIAMOND",
            Self::Mmseqs => "MMseqs2",
            Self::Blast => "BLAST over aliases",
        }
    }
}

/// The header of a report, which the output contains once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReportHeader {
    /// No header.
    None,
    /// One line with the names of the columns.
    Line,
    /// Lines that start with `@`, one of which has the command line.
    Sam,
    /// Everything before the first `Query=`.
    Pairwise,
}

/// A parsed command line of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSearch {
    /// The tool.
    pub tool: SearchTool,
    /// Subcommand: `blastp`, `easy-search`.
    pub mode: String,
    /// Options, without queries, output, threads and verbosity.
    pub(crate) arguments: Vec<String>,
    /// Path of the database.
    pub(crate) database: PathBuf,
    /// The database or the target as the user named it.
    #[serde(rename = "named")]
    pub(crate) database_argument: PathBuf,
    /// A directory for scratch files, if the user named one.
    #[serde(rename = "scratch")]
    pub(crate) scratch_directory: Option<PathBuf>,
    /// The command line as typed.
    #[serde(rename = "line")]
    pub(crate) command_line: String,
    #[serde(rename = "heading")]
    pub(crate) header: ReportHeader,
    /// Queries are reported by the remainder of their 0-based number divided by this, and then by their number.
    #[serde(rename = "stride")]
    pub(crate) query_stride: usize,
    /// Number of threads of each run.
    pub threads: usize,
    /// Set if ranges of the database are searched, not pieces of the queries.
    #[serde(rename = "tables")]
    pub(crate) range_tables: Option<RangeTables>,
}

impl ToolSearch {
    /// Creates a search with only its words set.
    fn from_words(tool: SearchTool, mode: &str, words: &[String]) -> Self {
        Self {
            tool,
            mode: mode.to_owned(),
            arguments: Vec::new(),
            database: PathBuf::new(),
            database_argument: PathBuf::new(),
            scratch_directory: None,
            command_line: words.join(" "),
            header: ReportHeader::None,
            query_stride: 1,
            threads: 1,
            range_tables: None,
        }
    }

    /// Finds the program; returns its path and version.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if there is no such program.
    pub fn find_program_version(&self) -> Result<(PathBuf, String), EngineError> {
        self.tool.find_program_version(&self.mode)
    }

    /// Returns its identity, for a resumed search to compare.
    pub(crate) fn identity_words(&self) -> Vec<String> {
        let tables = self.range_tables.iter().map(RangeTables::description);
        std::iter::once(self.mode.clone()).chain(self.arguments.iter().cloned()).chain(tables).collect()
    }

    /// Returns the options of a run over these queries.
    fn run_arguments(&self, queries: &Path, out: &Path, scratch: &Path) -> Vec<std::ffi::OsString> {
        let mut words: Vec<std::ffi::OsString> = vec![self.mode.clone().into()];
        match self.tool {
            SearchTool::Diamond => {
                words.extend(["--query".into(), queries.into(), "--out".into(), out.into(), "--quiet".into()]);
            }
            SearchTool::Blast => return words,
            SearchTool::Mmseqs => {
                words.extend([queries.into(), self.database.clone().into(), out.into(), scratch.into()])
            }
        }
        words.extend(self.arguments.iter().map(Into::into));
        words.extend(["--threads".into(), self.threads.to_string().into()]);
        words
    }

    /// Returns the files of the database or of the target, as far as they are known.
    pub(crate) fn database_files(&self, named: &Path) -> Vec<PathBuf> {
        let endings: &[&str] = match self.tool {
            SearchTool::Diamond => &["", ".dmnd"],
            SearchTool::Blast => &[".pin", ".psq", ".phr", ".pal", ".nin", ".nsq", ".nhr", ".nal"],
            SearchTool::Mmseqs => &["", ".index", ".dbtype", "_h", "_h.index"],
        };
        let with = |ending: &&str| {
            let mut path = named.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        endings.iter().map(with).filter(|path| path.is_file()).collect()
    }
}

/// A rejected option, and the reason.
type RefusedOption = (&'static str, &'static str);

/// Rejects an option that is on the list.
fn check_option(name: &str, refused: &[RefusedOption]) -> Result<(), SearchError> {
    match refused.iter().find(|(option, _)| *option == name) {
        Some((_, problem)) => Err(SearchError::Unsupported { option: name.to_owned(), problem }),
        None => Ok(()),
    }
}

/// Classifies the failure of a tool by its message: DIAMOND, MMseqs2 and BLAST+ exit with one status for all failures. Only
/// this function interprets their messages.
fn failure_kind(said: &str) -> FailureKind {
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
            assert_eq!(failure_kind(said), kind, "{said}");
        }
    }
}
