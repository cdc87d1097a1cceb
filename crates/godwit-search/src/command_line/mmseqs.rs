//! Parses the command line of MMseqs2 (`mmseqs easy-search`).

use std::path::PathBuf;

use super::{RefusedOption, SearchCommand, SearchProgram, check_option, output_file_path};
use crate::SearchError;
use crate::tool_search::{ReportHeader, SearchTool, ToolSearch};

/// Number of files to which `mmseqs createdb --shuffle` distributes sequences in turn. MMseqs2 then reads one file
/// after another.
const SHUFFLE_FILES: usize = 32;

/// Rejected options: with them, the results for a query depend on other queries, or the output is not a single file of
/// rows.
const REFUSED_OPTIONS: [RefusedOption; 10] = [
    ("--db-output", "databases of several pieces of the queries cannot be joined; omit it"),
    ("--mpi-runner", "godwit distributes the work itself; omit it, or run MMseqs2 without godwit"),
    ("--force-reuse", "each piece of the queries has its own scratch files, which cannot be reused; omit it"),
    (
        "--exhaustive-search",
        "it searches the database against all queries, but godwit searches queries in pieces; omit it",
    ),
    ("--createdb-mode", "godwit passes the queries to MMseqs2 in its own files; omit it"),
    ("--lca-search", "its results may change if queries are searched in pieces; omit it"),
    ("--id-offset", "each piece of the queries is numbered from 0; omit it"),
    ("--compressed", "godwit joins uncompressed outputs; omit it, and compress the output afterwards"),
    ("--help", "run MMseqs2 without godwit for this option"),
    ("-h", "run MMseqs2 without godwit for this option"),
];

/// Boolean options, whose value may be omitted.
const BOOLEAN_OPTIONS: [&str; 14] = [
    "-a",
    "--add-self-matches",
    "--diag-score",
    "--wrapped-scoring",
    "--realign",
    "--wg",
    "--allow-deletion",
    "--use-all-table-starts",
    "--add-orf-stop",
    "--shuffle",
    "--greedy-best-hits",
    "--remove-tmp-files",
    "--filter-hits",
    "--force-reuse",
];

/// Parses the words of the command line after `mmseqs`.
pub(super) fn parse_mmseqs(words: &[String]) -> Result<SearchCommand, SearchError> {
    let wrong = |message: String| SearchError::Options { program: SearchProgram::Mmseqs.name(), message };
    let Some((mode, rest)) = words.split_first().filter(|(mode, _)| *mode == "easy-search") else {
        let option = format!("mmseqs {}", words.first().map_or("", String::as_str));
        return Err(SearchError::Unsupported { option, problem: "write mmseqs easy-search QUERIES TARGET OUT TMP" });
    };
    let words: Vec<String> = std::iter::once("mmseqs".to_owned()).chain(words.iter().cloned()).collect();
    let mut bulk = ToolSearch::from_words(SearchTool::Mmseqs, mode, &words);
    let mut command = SearchCommand::from_words(SearchProgram::Mmseqs, words.into_iter());
    bulk.query_stride = SHUFFLE_FILES;
    let (mut positional_arguments, mut words) = (Vec::new(), rest.iter().peekable());
    while let Some(word) = words.next() {
        if !word.starts_with('-') || word == "-" {
            positional_arguments.push(word.clone());
            continue;
        }
        check_option(word, &REFUSED_OPTIONS)?;
        let is_truth = |value: &&String| ["0", "1", "true", "false"].contains(&value.to_ascii_lowercase().as_str());
        let value = match BOOLEAN_OPTIONS.contains(&word.as_str()) {
            true => words.next_if(|value| is_truth(value)).cloned(),
            false => Some(words.next().ok_or_else(|| wrong(format!("{word} has no value")))?.clone()),
        };
        apply_option(word, value, &mut command, &mut bulk)?;
    }
    let [queries, target, out, scratch] = positional_arguments.as_slice() else {
        let given = positional_arguments.len();
        return Err(wrong(format!(
            "write easy-search QUERIES TARGET OUT TMP with one path for each; {given} paths are given"
        )));
    };
    command.query_path = Some(queries).filter(|query| *query != "stdin" && *query != "-").map(PathBuf::from);
    command.output_path = output_file_path(out);
    bulk.database = PathBuf::from(target);
    bulk.scratch_directory = Some(PathBuf::from(scratch));
    // `QueryFile` already puts the queries into the order of the shuffled database, so MMseqs2 must not shuffle them
    // again.
    bulk.arguments.extend(["--shuffle", "0", "-v", "1"].map(str::to_owned));
    bulk.database_argument = bulk.database.clone();
    command.tool_search = Some(bulk);
    Ok(command)
}

fn apply_option(
    name: &str,
    value: Option<String>,
    command: &mut SearchCommand,
    bulk: &mut ToolSearch,
) -> Result<(), SearchError> {
    let unsupported = |problem| {
        let option = format!("{name} {}", value.as_deref().unwrap_or_default());
        Err(SearchError::Unsupported { option, problem })
    };
    let words = value.as_deref().unwrap_or_default();
    match name {
        "--threads" => {
            let wrong = || SearchError::Options {
                program: SearchProgram::Mmseqs.name(),
                message: format!("--threads {words} is not a number of threads"),
            };
            command.threads = Some(words.parse().ok().filter(|threads| *threads > 0).ok_or_else(wrong)?);
            return Ok(());
        }
        "--shuffle" => {
            let is_off = ["0", "false"].contains(&words.to_ascii_lowercase().as_str());
            bulk.query_stride = if is_off { 1 } else { SHUFFLE_FILES };
            return Ok(());
        }
        "-v" | "--remove-tmp-files" => return Ok(()),
        "--format-mode" => match words {
            "0" | "2" => bulk.header = ReportHeader::None,
            "4" => bulk.header = ReportHeader::Line,
            "1" => {
                return unsupported(
                    "its header lists the targets with a hit of any query, but godwit searches queries in pieces; use \
                     0, 2 or 4",
                );
            }
            _ => return unsupported("it is an HTML page, which cannot be joined from pieces; use 0, 2 or 4"),
        },
        "--format-output" if words.split(',').any(|field| ["qset", "qsetid"].contains(&field)) => {
            return unsupported("the field qset is the name of the query file, which differs for each piece; omit it");
        }
        _ => {}
    }
    bulk.arguments.push(name.to_owned());
    bulk.arguments.extend(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<SearchCommand, SearchError> {
        parse_mmseqs(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn positional_arguments_and_threads_are_parsed_and_the_rest_passes_through() {
        let command =
            parse_line("easy-search -s 7.5 q.fa t.fa o.m8 -a tmp --threads 4 -e 1e-5 --format-mode 4").unwrap();
        let bulk = command.tool_search.as_ref().unwrap();
        assert_eq!((command.query_path, command.output_path), (Some("q.fa".into()), Some("o.m8".into())));
        assert_eq!(
            (bulk.database.to_str(), bulk.scratch_directory.as_deref().unwrap().to_str()),
            (Some("t.fa"), Some("tmp"))
        );
        assert_eq!((bulk.query_stride, bulk.header, command.threads), (SHUFFLE_FILES, ReportHeader::Line, Some(4)));
        assert_eq!(bulk.arguments.join(" "), "-s 7.5 -a -e 1e-5 --format-mode 4 --shuffle 0 -v 1");
        let unshuffled = parse_line("easy-search stdin t o tmp --shuffle 0").unwrap();
        assert_eq!((unshuffled.query_path, unshuffled.tool_search.unwrap().query_stride), (None, 1));
    }

    #[test]
    fn what_depends_on_other_queries_is_refused_by_name() {
        for (line, name) in [
            ("search q t o tmp", "mmseqs search"),
            ("easy-search q t o tmp --format-mode 1", "--format-mode 1"),
            ("easy-search q t o tmp --format-mode 3", "--format-mode 3"),
            ("easy-search q t o tmp --format-output query,qset", "qset"),
            ("easy-search q t o tmp --db-output 1", "--db-output"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(matches!(error, SearchError::Unsupported { .. }) && error.to_string().contains(name), "{error}");
        }
        for line in [
            "easy-search q t o",
            "easy-search q1 q2 t o tmp",
            "easy-search q t o tmp -s",
            "easy-search q t o tmp --threads x",
        ] {
            assert!(matches!(parse_line(line), Err(SearchError::Options { .. })), "{line}");
        }
    }
}
