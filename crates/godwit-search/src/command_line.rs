//! Parses the command line of a search program: godwit's options, the engine's, and the rejected ones.

use std::path::PathBuf;

use crate::SearchError;
use crate::tool_search::{self, ToolSearch};
use crate::worker_process::WorkerSpec;

/// A search program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchProgram {
    /// Proteins in proteins.
    Blastp,
    /// Nucleotides in nucleotides: megablast, dc-megablast, blastn, blastn-short.
    Blastn,
    /// Translated nucleotides in proteins.
    Blastx,
    /// Proteins in translated nucleotides.
    Tblastn,
    /// Translated nucleotides in translated nucleotides.
    Tblastx,
    /// Proteins or translated nucleotides in proteins, by pieces of the queries.
    Diamond,
    /// Proteins or nucleotides, by pieces of the queries.
    Mmseqs,
}

impl SearchProgram {
    /// The programs of BLAST+.
    pub const BLAST_PROGRAMS: [Self; 5] = [Self::Blastp, Self::Blastn, Self::Blastx, Self::Tblastn, Self::Tblastx];

    /// Returns the name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blastp => "blastp",
            Self::Blastn => "blastn",
            Self::Blastx => "blastx",
            Self::Tblastn => "tblastn",
            Self::Tblastx => "tblastx",
            Self::Diamond => "diamond",
            Self::Mmseqs => "mmseqs",
        }
    }
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchCommand {
    /// The program.
    pub program: SearchProgram,
    /// All words as typed, from the program's name on.
    pub words: Vec<String>,
    /// Options for the engine: all but output, query and threads.
    pub arguments: Vec<String>,
    /// `-query`; `None`: standard input.
    pub query_path: Option<PathBuf>,
    /// `-out`; `None`: standard output.
    pub output_path: Option<PathBuf>,
    /// `-num_threads`.
    pub threads: Option<usize>,
    /// The number at the start of `-outfmt`.
    pub format: u32,
    /// The search by an external tool over pieces of the queries, if there is one.
    pub tool_search: Option<ToolSearch>,
}

/// Options without a value. All others have one.
const FLAGS: [&str; 14] = [
    "ungapped",
    "parse_deflines",
    "lcase_masking",
    "use_sw_tback",
    "html",
    "show_gis",
    "remote",
    "no_greedy",
    "subject_besthit",
    "no_taxid_expansion",
    "help",
    "h",
    "version",
    "verbose",
];

/// Options that a partitioned search does not support, and the reason.
const REFUSED_OPTIONS: [(&str, &str); 10] = [
    ("remote", "the search would run at NCBI; leave it out, or run the program without godwit"),
    (
        "subject",
        "the program compares these sequences one by one; make a database of them with makeblastdb, and use -db",
    ),
    ("subject_loc", "it goes with -subject; make a database with makeblastdb, and use -db"),
    ("in_pssm", "a search with a profile runs in rounds; run the program without godwit"),
    ("import_search_strategy", "its options cannot be seen here; give them on the command line"),
    ("export_search_strategy", "run the program without godwit to write one"),
    ("use_index", "an indexed search goes over the index, not over the database; leave it out"),
    ("index_name", "an indexed search goes over the index, not over the database; leave it out"),
    ("entrez_query", "it is for -remote; use -seqidlist, -gilist or -taxids"),
    ("html", "the pages number what they show through the whole report; use another format"),
];

/// Rejected formats, and the reason.
const REFUSED_FORMATS: [(u32, &str); 3] = [
    (13, "it is one file for each query; 15 is the same in one file"),
    (14, "it is one file for each query; 16 is the same in one file"),
    (18, "it is of all queries at once; use 6 or 7 with staxids"),
];

/// The highest format number.
const MAX_FORMAT: u32 = 17;

impl SearchCommand {
    /// Parses the words of a command line, from the program's name on.
    ///
    /// # Errors
    /// [`SearchError::Unsupported`] for a program, an option or a format that cannot be searched in parts;
    /// [`SearchError::Options`] for an option without its value, or an invalid number.
    pub fn parse(words: &[String]) -> Result<Self, SearchError> {
        let unknown = || SearchError::Unsupported {
            option: format!("the program {:?}", words.first().map_or("", String::as_str)),
            problem: "give blastp, blastn, blastx, tblastn, tblastx, diamond or mmseqs, and its options, after --",
        };
        let (name, rest) = words.split_first().ok_or_else(unknown)?;
        let base = name.rsplit('/').next().unwrap_or(name);
        match base {
            "diamond" => return tool_search::parse_diamond(rest),
            "mmseqs" => return tool_search::parse_mmseqs(rest),
            _ => {}
        }
        let program =
            SearchProgram::BLAST_PROGRAMS.into_iter().find(|program| program.name() == base).ok_or_else(unknown)?;
        let words = std::iter::once(program.name().to_owned()).chain(rest.iter().cloned());
        let mut command = Self::from_words(program, words);
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            command.parse_option(word, &mut rest)?;
        }
        Ok(command)
    }

    /// Creates a command line with only its words set.
    pub(crate) fn from_words(program: SearchProgram, words: impl Iterator<Item = String>) -> Self {
        Self {
            program,
            words: words.collect(),
            arguments: Vec::new(),
            query_path: None,
            output_path: None,
            threads: None,
            format: 0,
            tool_search: None,
        }
    }

    /// Returns the start parameters of workers for the queries of this file.
    pub fn worker_spec(&self, query_path: PathBuf) -> WorkerSpec {
        let (program, arguments) = (self.program.name().to_owned(), self.arguments.clone());
        WorkerSpec { program, arguments, query_path, tool_search: self.tool_search.clone() }
    }

    fn parse_option(&mut self, word: &str, rest: &mut std::slice::Iter<'_, String>) -> Result<(), SearchError> {
        let (name, inline) = match word.strip_prefix('-') {
            // The engine rejects words that are not options.
            None => {
                self.arguments.push(word.to_owned());
                return Ok(());
            }
            Some(name) => name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value.to_owned()))),
        };
        if let Some((_, problem)) = REFUSED_OPTIONS.iter().find(|(refused, _)| *refused == name) {
            return Err(SearchError::Unsupported { option: format!("-{name}"), problem });
        }
        if ["help", "h", "version"].contains(&name) {
            let problem = "ask the program itself";
            return Err(SearchError::Unsupported { option: format!("-{name}"), problem });
        }
        if FLAGS.contains(&name) {
            self.arguments.push(word.to_owned());
            return Ok(());
        }
        let missing = || self.options_error(format!("-{name} has no value"));
        let value = inline.map_or_else(|| rest.next().cloned().ok_or_else(missing), Ok)?;
        match name {
            "out" => self.output_path = Some(value).filter(|out| out != "-").map(PathBuf::from),
            "query" => self.query_path = Some(value).filter(|query| query != "-").map(PathBuf::from),
            "num_threads" => {
                let number = value.parse().ok().filter(|threads| *threads > 0);
                let wrong = || self.options_error(format!("-num_threads {value} is no number of threads"));
                self.threads = Some(number.ok_or_else(wrong)?);
            }
            // Sets how the program would divide work among its threads.
            "mt_mode" => {}
            _ => {
                if name == "outfmt" {
                    self.format = self.parse_format(&value)?;
                }
                self.arguments.extend([format!("-{name}"), value]);
            }
        }
        Ok(())
    }

    fn parse_format(&self, value: &str) -> Result<u32, SearchError> {
        let number = value.split_whitespace().next().and_then(|number| number.parse().ok());
        let number = number.filter(|number| *number <= MAX_FORMAT + 1);
        let number =
            number.ok_or_else(|| self.options_error(format!("-outfmt {value} begins with no number of a format")))?;
        match REFUSED_FORMATS.iter().find(|(refused, _)| *refused == number) {
            Some((_, problem)) => Err(SearchError::Unsupported { option: format!("-outfmt {number}"), problem }),
            None => Ok(number),
        }
    }

    fn options_error(&self, message: String) -> SearchError {
        SearchError::Options { program: self.program.name(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<SearchCommand, SearchError> {
        SearchCommand::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_ours_is_taken_out_and_the_rest_passes_through() {
        let command =
            parse("blastn -query q.fa -penalty -3 -out o.txt -ungapped -num_threads=4 -mt_mode 1 -db nt").unwrap();
        assert_eq!(command.program, SearchProgram::Blastn);
        assert_eq!(command.query_path, Some("q.fa".into()));
        assert_eq!(command.output_path, Some("o.txt".into()));
        assert_eq!(command.threads, Some(4));
        assert_eq!(command.arguments, ["-penalty", "-3", "-ungapped", "-db", "nt"]);
    }

    #[test]
    fn a_minus_is_a_standard_stream() {
        let command = parse("/usr/bin/blastp -query - -out - -db nr").unwrap();
        assert_eq!((command.query_path, command.output_path), (None, None));
        assert_eq!(command.words[0], "blastp");
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for (line, name) in [
            ("blastp -db nr -remote", "-remote"),
            ("blastn -subject s.fa", "-subject"),
            ("blastp -db nr -outfmt 13", "-outfmt 13"),
            ("psiblast -db nr", "\"psiblast\""),
        ] {
            let error = parse(line).unwrap_err();
            assert!(matches!(error, SearchError::Unsupported { .. }) && error.to_string().contains(name), "{error}");
        }
        for line in ["blastp -db", "blastp -outfmt x", "blastp -num_threads 0"] {
            assert!(matches!(parse(line), Err(SearchError::Options { .. })), "{line}");
        }
    }
}
