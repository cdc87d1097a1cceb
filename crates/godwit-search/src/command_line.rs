//! The command line of a program: what of it is ours, what the engine's, and what is refused.

use std::path::PathBuf;

use crate::SearchError;
use crate::bulk::{self, BulkSearch};
use crate::worker::Engine;

/// A program that searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
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

impl Program {
    /// Those of BLAST+.
    pub const BLAST: [Self; 5] = [Self::Blastp, Self::Blastn, Self::Blastx, Self::Tblastn, Self::Tblastx];

    /// What it is called.
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

/// A command line, looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchCommand {
    /// The program.
    pub program: Program,
    /// As it was typed, from the program's name on.
    pub words: Vec<String>,
    /// Options for the engine: what was typed without output, query and threads.
    pub arguments: Vec<String>,
    /// `-query`; `None`: standard input.
    pub query: Option<PathBuf>,
    /// `-out`; `None`: standard output.
    pub out: Option<PathBuf>,
    /// `-num_threads`.
    pub threads: Option<usize>,
    /// The number that `-outfmt` begins with.
    pub format: u32,
    /// Where pieces of the queries are searched by a tool of their own.
    pub bulk: Option<BulkSearch>,
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

/// Options that no partitioned search does, and why.
const REFUSED: [(&str, &str); 10] = [
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

/// Formats that are refused, and why.
const REFUSED_FORMATS: [(u32, &str); 3] = [
    (13, "it is one file for each query; 15 is the same in one file"),
    (14, "it is one file for each query; 16 is the same in one file"),
    (18, "it is of all queries at once; use 6 or 7 with staxids"),
];

/// The highest format there is.
const LAST_FORMAT: u32 = 17;

impl SearchCommand {
    /// Looks through the words of a command line, from the program's name on.
    ///
    /// # Errors
    /// [`SearchError::Unsupported`] for a program, an option or a format that is not searched in parts;
    /// [`SearchError::Options`] for an option without its value, or a number that is none.
    pub fn parse(words: &[String]) -> Result<Self, SearchError> {
        let unknown = || SearchError::Unsupported {
            option: format!("the program {:?}", words.first().map_or("", String::as_str)),
            problem: "give blastp, blastn, blastx, tblastn, tblastx, diamond or mmseqs, and its options, after --",
        };
        let (name, rest) = words.split_first().ok_or_else(unknown)?;
        let base = name.rsplit('/').next().unwrap_or(name);
        match base {
            "diamond" => return bulk::parse_diamond(rest),
            "mmseqs" => return bulk::parse_mmseqs(rest),
            _ => {}
        }
        let program = Program::BLAST.into_iter().find(|program| program.name() == base).ok_or_else(unknown)?;
        let words = std::iter::once(program.name().to_owned()).chain(rest.iter().cloned());
        let mut command = Self::of(program, words);
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            command.take(word, &mut rest)?;
        }
        Ok(command)
    }

    /// A command line of which nothing but its words is known.
    pub(crate) fn of(program: Program, words: impl Iterator<Item = String>) -> Self {
        Self {
            program,
            words: words.collect(),
            arguments: Vec::new(),
            query: None,
            out: None,
            threads: None,
            format: 0,
            bulk: None,
        }
    }

    /// What workers are started with, for the queries of this file.
    pub fn engine(&self, query: PathBuf) -> Engine {
        let (program, arguments) = (self.program.name().to_owned(), self.arguments.clone());
        Engine { program, arguments, query, bulk: self.bulk.clone() }
    }

    fn take(&mut self, word: &str, rest: &mut std::slice::Iter<'_, String>) -> Result<(), SearchError> {
        let (name, inline) = match word.strip_prefix('-') {
            // Words that are no options are for the engine to refuse.
            None => {
                self.arguments.push(word.to_owned());
                return Ok(());
            }
            Some(name) => name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value.to_owned()))),
        };
        if let Some((_, problem)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
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
        let missing = || self.wrong(format!("-{name} has no value"));
        let value = inline.map_or_else(|| rest.next().cloned().ok_or_else(missing), Ok)?;
        match name {
            "out" => self.out = Some(value).filter(|out| out != "-").map(PathBuf::from),
            "query" => self.query = Some(value).filter(|query| query != "-").map(PathBuf::from),
            "num_threads" => {
                let number = value.parse().ok().filter(|threads| *threads > 0);
                let wrong = || self.wrong(format!("-num_threads {value} is no number of threads"));
                self.threads = Some(number.ok_or_else(wrong)?);
            }
            // How the program would share work among its threads.
            "mt_mode" => {}
            _ => {
                if name == "outfmt" {
                    self.format = self.format_of(&value)?;
                }
                self.arguments.extend([format!("-{name}"), value]);
            }
        }
        Ok(())
    }

    fn format_of(&self, value: &str) -> Result<u32, SearchError> {
        let number = value.split_whitespace().next().and_then(|number| number.parse().ok());
        let number = number.filter(|number| *number <= LAST_FORMAT + 1);
        let number = number.ok_or_else(|| self.wrong(format!("-outfmt {value} begins with no number of a format")))?;
        match REFUSED_FORMATS.iter().find(|(refused, _)| *refused == number) {
            Some((_, problem)) => Err(SearchError::Unsupported { option: format!("-outfmt {number}"), problem }),
            None => Ok(number),
        }
    }

    fn wrong(&self, message: String) -> SearchError {
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
        assert_eq!(command.program, Program::Blastn);
        assert_eq!(command.query, Some("q.fa".into()));
        assert_eq!(command.out, Some("o.txt".into()));
        assert_eq!(command.threads, Some(4));
        assert_eq!(command.arguments, ["-penalty", "-3", "-ungapped", "-db", "nt"]);
    }

    #[test]
    fn a_minus_is_a_standard_stream() {
        let command = parse("/usr/bin/blastp -query - -out - -db nr").unwrap();
        assert_eq!((command.query, command.out), (None, None));
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
