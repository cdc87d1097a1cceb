//! The files that a search reads, as far as the command line names them.

use std::path::PathBuf;

use super::{SearchCommand, SearchProgram};
use crate::database_files::blast_database_files;
use crate::tool_search::SearchTool;

/// Options of BLAST+ whose value is the path of a list of sequences.
const LIST_OPTIONS: [&str; 8] = [
    "-seqidlist",
    "-negative_seqidlist",
    "-gilist",
    "-negative_gilist",
    "-taxidlist",
    "-negative_taxidlist",
    "-ipglist",
    "-negative_ipglist",
];

impl SearchCommand {
    /// Returns the files that the search reads, each with the option that names it: queries, subjects, lists of
    /// sequences, and the files of the database. Volumes that only an alias file names are left out.
    pub fn input_files(&self) -> Vec<(&'static str, PathBuf)> {
        let queries = self.query_path.iter().map(|path| (self.query_option(), path.clone()));
        let subjects = self.subject_path.iter().map(|path| ("-subject", path.clone()));
        let mut files: Vec<_> = queries.chain(subjects).collect();
        match &self.tool_search {
            Some(search) if search.tool != SearchTool::Blast => {
                let database = search.database_files(&search.database_argument);
                files.extend(database.into_iter().map(|path| ("the file of the database", path)));
            }
            _ => {
                let databases = self.option_values(&["-db"]).flat_map(str::split_whitespace);
                files.extend(databases.flat_map(blast_database_files).map(|path| ("the file of -db", path)));
                files.extend(self.option_values(&LIST_OPTIONS).map(|path| ("the list of sequences", path.into())));
            }
        }
        files
    }

    /// Returns the option of the search program that names the file of the queries.
    pub(crate) fn query_option(&self) -> &'static str {
        match self.program {
            SearchProgram::Mmseqs => "QUERIES",
            SearchProgram::Diamond => "--query",
            _ => "-query",
        }
    }

    /// Returns the values of options of BLAST+ on the command line, written as `-db nr` or `-db=nr`.
    fn option_values(&self, options: &[&str]) -> impl Iterator<Item = &str> {
        let inline = self.words.iter().filter_map(|word| word.split_once('='));
        let separate = self.words.windows(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
        inline.chain(separate).filter(move |(option, _)| options.contains(option)).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_of_a_search_are_found() {
        let directory = tempfile::tempdir().expect("scratch");
        for name in ["db.psq", "db.00.pin", "db.x.pin", "db.out", "db2.psq", "other.pal"] {
            fs::write(directory.path().join(name), "").expect("scratch can be written");
        }
        let at = |name: &str| directory.path().join(name).display().to_string();
        let databases = format!("{} {}", at("db"), at("other"));
        let words = ["blastp", "-query", "q.fa", "-db", &databases, "-seqidlist=ids", "-out", "o"].map(str::to_owned);
        let command = SearchCommand::parse(&words).expect("it is valid");
        let mut files: Vec<String> =
            command.input_files().into_iter().map(|(_, path)| path.display().to_string()).collect();
        files.sort();
        let mut expected = [at("db.psq"), at("db.00.pin"), at("other.pal"), "q.fa".to_owned(), "ids".to_owned()];
        expected.sort();
        assert_eq!(files, expected);
    }
}
