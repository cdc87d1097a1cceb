//! Parses the command line of a search program: takes out the options that godwit handles, passes the others to the
//! engine, and rejects unsupported ones.

mod alias_search;
mod diamond;
mod input_files;
mod mmseqs;

use std::path::PathBuf;

use godwit_files::is_stdout;

use crate::SearchError;
use crate::tool_search::ToolSearch;
use crate::worker_process::WorkerSpec;

/// A search program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchProgram {
    /// Searches protein queries in a protein database.
    Blastp,
    /// Searches nucleotide queries in a nucleotide database (tasks megablast, dc-megablast, blastn, blastn-short).
    Blastn,
    /// Searches translated nucleotide queries in a protein database.
    Blastx,
    /// Searches protein queries in a translated nucleotide database.
    Tblastn,
    /// Searches translated nucleotide queries in a translated nucleotide database.
    Tblastx,
    /// Searches protein or translated nucleotide queries in a protein database; workers search pieces of the queries.
    Diamond,
    /// Searches protein or nucleotide queries; workers search pieces of the queries.
    Mmseqs,
}

impl SearchProgram {
    /// The programs of BLAST+.
    pub(crate) const BLAST_PROGRAMS: [Self; 5] =
        [Self::Blastp, Self::Blastn, Self::Blastx, Self::Tblastn, Self::Tblastx];

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

/// The parsed command line of a search program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchCommand {
    /// The search program.
    pub program: SearchProgram,
    /// All words of the command line; the first is the name of the program.
    pub words: Vec<String>,
    /// Options that the engine receives: all except output, query and threads.
    pub arguments: Vec<String>,
    /// Path of the queries (`-query`); `None` for standard input.
    pub query_path: Option<PathBuf>,
    /// Path of the FASTA file of the subjects (`-subject`); `None` if a database is searched.
    pub subject_path: Option<PathBuf>,
    /// Path of the output (`-out`); `None` for standard output.
    pub output_path: Option<PathBuf>,
    /// Number of threads that the user requested (`-num_threads`).
    pub threads: Option<usize>,
    /// Output format of BLAST+: the number at the start of `-outfmt`.
    pub format: u32,
    /// The search that workers run with an installed DIAMOND, MMseqs2 or BLAST+; `None` for the NCBI engine of the
    /// workers.
    pub tool_search: Option<ToolSearch>,
}

/// Options of BLAST+ that have no value. All other options have one.
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

/// Options of BLAST+ that a partitioned search does not support, each with the reason and what to do instead.
const REFUSED_OPTIONS: [(&str, &str); 8] = [
    ("remote", "the search would run at NCBI; omit it, or run the program without godwit"),
    ("in_pssm", "a search with a profile runs in rounds; run the program without godwit"),
    ("import_search_strategy", "godwit cannot read the options in this file; put them on the command line"),
    ("export_search_strategy", "godwit does not write a strategy file; run the program without godwit to write it"),
    ("use_index", "an indexed search reads the index, not the database; omit it"),
    ("index_name", "an indexed search reads the index, not the database; omit it"),
    ("entrez_query", "it requires -remote; use -seqidlist, -gilist or -taxids"),
    ("html", "the numbers in an HTML report continue over all queries; use another format"),
];

/// Output formats of BLAST+ that are rejected, each with the reason and the alternative.
const REFUSED_FORMATS: [(u32, &str); 3] = [
    (13, "it writes one file for each query; use 15, which writes the same to one file"),
    (14, "it writes one file for each query; use 16, which writes the same to one file"),
    (18, "it summarizes all queries in one report; use 6 or 7 with the column staxids"),
];

/// Highest accepted number of an output format.
const MAX_FORMAT: u32 = 17;

impl SearchCommand {
    /// Parses the words of a command line. The first word is the name or the path of the search program.
    ///
    /// # Errors
    /// [`SearchError::Unsupported`] if the search cannot be partitioned with this program, option or format.
    /// [`SearchError::Options`] if an option has no value, or a number is invalid.
    pub fn parse(words: &[String]) -> Result<Self, SearchError> {
        let unknown = || SearchError::Unsupported {
            option: format!("the program {:?}", words.first().map_or("", String::as_str)),
            problem: "after --, write blastp, blastn, blastx, tblastn, tblastx, diamond or mmseqs, and the options of \
                      the program",
        };
        let (name, rest) = words.split_first().ok_or_else(unknown)?;
        let base = name.rsplit('/').next().unwrap_or(name);
        match base {
            "diamond" => return diamond::parse_diamond(rest),
            "mmseqs" => return mmseqs::parse_mmseqs(rest),
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

    /// Creates a command with the program and its words; all other fields are empty.
    fn from_words(program: SearchProgram, words: impl Iterator<Item = String>) -> Self {
        Self {
            program,
            words: words.collect(),
            arguments: Vec::new(),
            query_path: None,
            subject_path: None,
            output_path: None,
            threads: None,
            format: 0,
            tool_search: None,
        }
    }

    /// Returns the parameters for starting workers that read their queries from the file `query_path`.
    pub(crate) fn worker_spec(&self, query_path: PathBuf) -> WorkerSpec {
        let (program, arguments) = (self.program.name().to_owned(), self.arguments.clone());
        WorkerSpec { program, arguments, query_path, tool_search: self.tool_search.clone() }
    }

    fn parse_option(&mut self, word: &str, rest: &mut std::slice::Iter<'_, String>) -> Result<(), SearchError> {
        let (name, inline) = match word.strip_prefix('-') {
            // Pass on a word that is not an option; the engine rejects it with its own message.
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
            let problem = "run the program without godwit for this option";
            return Err(SearchError::Unsupported { option: format!("-{name}"), problem });
        }
        if FLAGS.contains(&name) {
            self.arguments.push(word.to_owned());
            return Ok(());
        }
        let missing = || self.options_error(format!("-{name} has no value"));
        let value = inline.map_or_else(|| rest.next().cloned().ok_or_else(missing), Ok)?;
        match name {
            "out" => self.output_path = output_file_path(&value),
            "query" => self.query_path = Some(value).filter(|query| query != "-").map(PathBuf::from),
            "subject" if ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].contains(&value.as_str()) => {
                let problem = "every worker reads the subjects; write them to a file";
                return Err(SearchError::Unsupported { option: format!("-subject {value}"), problem });
            }
            "subject" => {
                self.arguments.extend(["-subject".to_owned(), value.clone()]);
                self.subject_path = Some(value.into());
            }
            "num_threads" => {
                let number = value.parse().ok().filter(|threads| *threads > 0);
                let wrong = || self.options_error(format!("-num_threads {value} is not a number of threads"));
                self.threads = Some(number.ok_or_else(wrong)?);
            }
            // Ignored: this option sets how the program divides work among threads, which godwit does itself.
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
        let number = number
            .ok_or_else(|| self.options_error(format!("-outfmt {value} does not start with the number of a format")))?;
        match REFUSED_FORMATS.iter().find(|(refused, _)| *refused == number) {
            Some((_, problem)) => Err(SearchError::Unsupported { option: format!("-outfmt {number}"), problem }),
            None => Ok(number),
        }
    }

    fn options_error(&self, message: String) -> SearchError {
        SearchError::Options { program: self.program.name(), message }
    }
}

/// Returns the path of an output file; `None` for a name of standard output.
fn output_file_path(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(name)).filter(|path| !is_stdout(path))
}

/// A rejected option, and the reason with the alternative.
type RefusedOption = (&'static str, &'static str);

/// Returns an error if the option is in the list `refused`.
fn check_option(name: &str, refused: &[RefusedOption]) -> Result<(), SearchError> {
    match refused.iter().find(|(option, _)| *option == name) {
        Some((_, problem)) => Err(SearchError::Unsupported { option: name.to_owned(), problem }),
        None => Ok(()),
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
    fn subjects_are_a_file_that_the_engine_reads() {
        let command = parse("blastn -query q.fa -subject s.fa -subject_loc 1-9").unwrap();
        assert_eq!(command.subject_path, Some("s.fa".into()));
        assert_eq!(command.arguments, ["-subject", "s.fa", "-subject_loc", "1-9"]);
    }

    #[test]
    fn a_minus_is_a_standard_stream() {
        let command = parse("/usr/bin/blastp -query - -out - -db nr").unwrap();
        assert_eq!((command.query_path, command.output_path), (None, None));
        assert_eq!(command.words[0], "blastp");
        for line in [
            "blastn -query q.fa -db nt -out /dev/stdout",
            "diamond blastp -q q.fa -d d -o /dev/stdout",
            "mmseqs easy-search q t /dev/stdout tmp",
            "blastn -query q.fa -db nt -out=/dev/fd/1",
            "mmseqs easy-search q t - tmp",
        ] {
            assert_eq!(parse(line).unwrap().output_path, None, "{line}");
        }
    }

    #[test]
    fn what_is_not_done_is_refused_by_name() {
        for (line, name) in [
            ("blastp -db nr -remote", "-remote"),
            ("blastn -subject -", "-subject"),
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
