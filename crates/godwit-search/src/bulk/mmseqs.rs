//! The command line of MMseqs2.

use std::path::PathBuf;

use super::{BulkSearch, Heading, Refusal, Tool, refuse};
use crate::SearchError;
use crate::command_line::{Program, SearchCommand};

/// Into how many files MMseqs2 deals sequences one by one, which it then takes one after another (createdb, `--shuffle`).
const DEALT: usize = 32;

/// What depends on more than one query, or is not one file of rows.
const REFUSED: [Refusal; 10] = [
    ("--db-output", "a database has its queries numbered; leave it out"),
    ("--mpi-runner", "MMseqs2 would share the work by itself; leave it out, or run it without godwit"),
    ("--force-reuse", "each piece has scratch files of its own; leave it out"),
    ("--exhaustive-search", "it turns the search round, and takes all queries at a time; leave it out"),
    ("--createdb-mode", "pieces of the queries are files of their own; leave it out"),
    ("--lca-search", "that it is the same by pieces is not known; leave it out"),
    ("--id-offset", "queries are numbered in each piece; leave it out"),
    ("--compressed", "pieces that are compressed one by one are another file; leave it out"),
    ("--help", "ask the tool itself"),
    ("-h", "ask the tool itself"),
];

/// Options that need not have a value.
const SWITCHES: [&str; 14] = [
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

/// Looks through the words behind `mmseqs`.
pub(crate) fn parse(words: &[String]) -> Result<SearchCommand, SearchError> {
    let wrong = |message: String| SearchError::Options { program: Program::Mmseqs.name(), message };
    let Some((mode, rest)) = words.split_first().filter(|(mode, _)| *mode == "easy-search") else {
        let option = format!("mmseqs {}", words.first().map_or("", String::as_str));
        return Err(SearchError::Unsupported { option, problem: "give mmseqs easy-search QUERIES TARGET OUT TMP" });
    };
    let words: Vec<String> = std::iter::once("mmseqs".to_owned()).chain(words.iter().cloned()).collect();
    let mut bulk = BulkSearch::of(Tool::Mmseqs, mode, &words);
    let mut command = SearchCommand::of(Program::Mmseqs, words.into_iter());
    bulk.stride = DEALT;
    let (mut places, mut words) = (Vec::new(), rest.iter().peekable());
    while let Some(word) = words.next() {
        if !word.starts_with('-') || word == "-" {
            places.push(word.clone());
            continue;
        }
        refuse(word, &REFUSED)?;
        let is_truth = |value: &&String| ["0", "1", "true", "false"].contains(&value.to_ascii_lowercase().as_str());
        let value = match SWITCHES.contains(&word.as_str()) {
            true => words.next_if(|value| is_truth(value)).cloned(),
            false => Some(words.next().ok_or_else(|| wrong(format!("{word} has no value")))?.clone()),
        };
        take(word, value, &mut command, &mut bulk)?;
    }
    let [queries, target, out, scratch] = places.as_slice() else {
        let given = places.len();
        return Err(wrong(format!(
            "easy-search takes QUERIES TARGET OUT TMP here, one file of each, and has {given} words"
        )));
    };
    command.query = Some(queries).filter(|query| *query != "stdin" && *query != "-").map(PathBuf::from);
    command.out = Some(out).filter(|out| *out != "/dev/stdout").map(PathBuf::from);
    bulk.database = PathBuf::from(target);
    bulk.scratch = Some(PathBuf::from(scratch));
    // Queries come in the order in which they are reported.
    bulk.arguments.extend(["--shuffle", "0", "-v", "1"].map(str::to_owned));
    bulk.named = bulk.database.clone();
    command.bulk = Some(bulk);
    Ok(command)
}

fn take(
    name: &str,
    value: Option<String>,
    command: &mut SearchCommand,
    bulk: &mut BulkSearch,
) -> Result<(), SearchError> {
    let unsupported = |problem| {
        let option = format!("{name} {}", value.as_deref().unwrap_or_default());
        Err(SearchError::Unsupported { option, problem })
    };
    let words = value.as_deref().unwrap_or_default();
    match name {
        "--threads" => {
            let wrong = || SearchError::Options {
                program: Program::Mmseqs.name(),
                message: format!("--threads {words} is no number of threads"),
            };
            command.threads = Some(words.parse().ok().filter(|threads| *threads > 0).ok_or_else(wrong)?);
            return Ok(());
        }
        "--shuffle" => {
            let is_off = ["0", "false"].contains(&words.to_ascii_lowercase().as_str());
            bulk.stride = if is_off { 1 } else { DEALT };
            return Ok(());
        }
        "-v" | "--remove-tmp-files" => return Ok(()),
        "--format-mode" => match words {
            "0" | "2" => bulk.heading = Heading::None,
            "4" => bulk.heading = Heading::Line,
            "1" => return unsupported("its header has the targets that were hit by any query; use 0, 2 or 4"),
            _ => return unsupported("it is one page; use 0, 2 or 4"),
        },
        "--format-output" if words.split(',').any(|field| ["qset", "qsetid"].contains(&field)) => {
            return unsupported("qset names the file of the queries, which is another for each piece; leave it out");
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
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn places_and_threads_are_ours_and_the_rest_passes_through() {
        let command =
            parse_line("easy-search -s 7.5 q.fa t.fa o.m8 -a tmp --threads 4 -e 1e-5 --format-mode 4").unwrap();
        let bulk = command.bulk.as_ref().unwrap();
        assert_eq!((command.query, command.out), (Some("q.fa".into()), Some("o.m8".into())));
        assert_eq!((bulk.database.to_str(), bulk.scratch.as_deref().unwrap().to_str()), (Some("t.fa"), Some("tmp")));
        assert_eq!((bulk.stride, bulk.heading, command.threads), (DEALT, Heading::Line, Some(4)));
        assert_eq!(bulk.arguments.join(" "), "-s 7.5 -a -e 1e-5 --format-mode 4 --shuffle 0 -v 1");
        let unshuffled = parse_line("easy-search stdin t o tmp --shuffle 0").unwrap();
        assert_eq!((unshuffled.query, unshuffled.bulk.unwrap().stride), (None, 1));
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
