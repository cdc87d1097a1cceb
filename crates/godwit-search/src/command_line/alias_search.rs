//! Converts the command line of BLAST+ to a search with an installed BLAST+, one run for each range of the database.

use std::path::PathBuf;

use crate::SearchError;
use crate::command_line::SearchCommand;
use crate::tool_search::{DEFAULT_MAX_SUBJECTS, RangeTables, SearchTool, ToolSearch};

/// Default fields of tabular output of BLAST+, as in `-outfmt`.
const STANDARD_FIELDS: &str = "std";
/// Rejected options: with them, the order of the rows is unknown, so the tables cannot be merged.
const REFUSED_OPTIONS: [&str; 6] =
    ["parse_deflines", "sorthits", "sorthsps", "num_descriptions", "num_alignments", "sum_stats"];

impl SearchCommand {
    /// Converts the command to the same search with an installed BLAST+, one run for each range of the database.
    ///
    /// # Errors
    /// [`SearchError::Unsupported`] if tables of this format cannot be merged, or if an option changes the order of
    /// rows.
    pub fn with_aliases(mut self) -> Result<Self, SearchError> {
        let unsupported = |option: String, problem| Err(SearchError::Unsupported { option, problem });
        if self.tool_search.is_some() {
            return unsupported("--engine alias".into(), "it is supported only for the programs of BLAST+");
        }
        if self.subject_path.is_some() {
            return unsupported("-subject".into(), "--engine alias searches a database; use -db, or --engine exact");
        }
        if !["6", "10"].contains(&self.format.to_string().as_str()) {
            let problem = "--engine alias merges tables; use 6 or 10, or --engine exact";
            return unsupported(format!("-outfmt {}", self.format), problem);
        }
        let (mut arguments, mut fields, mut max_subjects) =
            (Vec::new(), STANDARD_FIELDS.to_owned(), DEFAULT_MAX_SUBJECTS);
        let mut database = PathBuf::new();
        let mut words = self.arguments.iter();
        while let Some(word) = words.next() {
            let name = word.trim_start_matches('-');
            if REFUSED_OPTIONS.contains(&name) {
                return unsupported(
                    word.clone(),
                    "it changes the order of rows, which --engine alias does not support; omit it, or use --engine \
                     exact",
                );
            }
            match name {
                "outfmt" => {
                    let value = words.next().cloned().unwrap_or_default();
                    let custom = value.split_once(' ').map_or("", |(_, fields)| fields.trim());
                    if custom.contains("delim=") {
                        return unsupported(
                            "delim=".into(),
                            "--engine alias supports only the default delimiter; omit delim",
                        );
                    }
                    fields = if custom.is_empty() { STANDARD_FIELDS.to_owned() } else { custom.to_owned() };
                }
                "db" => database = words.next().map(PathBuf::from).unwrap_or_default(),
                "max_target_seqs" => {
                    let value = words.next().cloned().unwrap_or_default();
                    max_subjects = value.parse().unwrap_or(DEFAULT_MAX_SUBJECTS);
                    arguments.extend([word.clone(), value]);
                }
                _ => arguments.push(word.clone()),
            }
        }
        let delimiter = if self.format == 10 { ',' } else { '\t' };
        let output_format = format!("{} {fields} score", self.format);
        let is_protein = matches!(self.program.name(), "blastp" | "blastx");
        let tables = RangeTables::new(output_format, delimiter, max_subjects, is_protein);
        let mut bulk = ToolSearch::from_words(SearchTool::Blast, self.program.name(), &self.words);
        (bulk.arguments, bulk.database_argument, bulk.database, bulk.range_tables) =
            (arguments, database.clone(), database, Some(tables));
        self.tool_search = Some(bulk);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_aliases(line: &str) -> Result<SearchCommand, SearchError> {
        SearchCommand::parse(&words(line)).expect("a command line").with_aliases()
    }

    /// Splits a line into words at spaces; text in single quotes is one word.
    fn words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn only_tables_are_merged() {
        let command =
            with_aliases("blastp -db d -query q -outfmt '6 qseqid sseqid' -max_target_seqs 7 -evalue 1").unwrap();
        let bulk = command.tool_search.unwrap();
        assert_eq!(bulk.arguments, ["-max_target_seqs", "7", "-evalue", "1"]);
        assert_eq!(bulk.identity_words().last().unwrap(), "-outfmt '6 qseqid sseqid score' -max_target_seqs 7");
        for line in
            ["blastp -db d", "blastp -db d -outfmt 7", "blastp -db d -outfmt 6 -sorthits 2", "diamond blastp -d d -q q"]
        {
            assert!(matches!(with_aliases(line), Err(SearchError::Unsupported { .. })), "{line}");
        }
    }
}
