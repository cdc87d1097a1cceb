//! Parses the command line of DIAMOND (`diamond blastp`, `diamond blastx`).

use std::path::PathBuf;

use super::{RefusedOption, SearchCommand, SearchProgram, check_option, output_file_path};
use crate::SearchError;
use crate::tool_search::{ReportHeader, SearchTool, ToolSearch};

/// Rejected options: with them, the results for a query depend on other queries, or the output is not a single file of
/// rows.
const REFUSED_OPTIONS: [RefusedOption; 22] = [
    ("--un", "it writes unaligned queries to a second file, which godwit does not merge; run DIAMOND without godwit"),
    ("--al", "it writes aligned queries to a second file, which godwit does not merge; run DIAMOND without godwit"),
    ("--compress", "godwit joins uncompressed outputs; omit it, and compress the output afterwards"),
    ("--daa", "archives of several pieces of the queries cannot be joined; use --outfmt 6"),
    ("-a", "archives of several pieces of the queries cannot be joined; use --outfmt 6"),
    ("--multiprocessing", "godwit distributes the work itself; omit it, or run DIAMOND without godwit"),
    ("--mp-init", "godwit distributes the work itself; omit it, or run DIAMOND without godwit"),
    ("--mp-recover", "godwit distributes the work itself; omit it, or run DIAMOND without godwit"),
    ("--parallel-tmpdir", "godwit distributes the work itself; omit it, or run DIAMOND without godwit"),
    ("--freq-masking", "the frequency of a seed depends on all queries, but godwit searches them in pieces; omit it"),
    ("--freq-sd", "the frequency of a seed depends on all queries, but godwit searches them in pieces; omit it"),
    ("--freq-treshold", "the frequency of a seed depends on all queries, but godwit searches them in pieces; omit it"),
    ("--lin-stage1", "it selects the query of each seed from all queries, but godwit searches them in pieces; omit it"),
    ("--linsearch", "it selects the query of each seed from all queries, but godwit searches them in pieces; omit it"),
    ("--kmer-ranking", "the ranks of k-mers depend on all queries, but godwit searches them in pieces; omit it"),
    ("--global-ranking", "its ranks may change if queries are searched in pieces; omit it"),
    ("-g", "its ranks may change if queries are searched in pieces; omit it"),
    ("--no-self-hits", "its results may change if queries are searched in pieces; omit it"),
    (
        "--unfmt",
        "it writes unaligned queries to a second file, which godwit does not merge; run DIAMOND without godwit",
    ),
    ("--alfmt", "it writes aligned queries to a second file, which godwit does not merge; run DIAMOND without godwit"),
    ("--help", "run DIAMOND without godwit for this option"),
    ("--version", "run DIAMOND without godwit for this option"),
];

/// Output formats for which the concatenated outputs of the pieces equal the output of one run, each with its kind of
/// header.
const SUPPORTED_FORMATS: [(&str, ReportHeader); 8] = [
    ("0", ReportHeader::Pairwise),
    ("pairwise", ReportHeader::Pairwise),
    ("6", ReportHeader::None),
    ("tab", ReportHeader::None),
    ("101", ReportHeader::Sam),
    ("sam", ReportHeader::Sam),
    ("103", ReportHeader::None),
    ("paf", ReportHeader::None),
];

/// Parses the words of the command line after `diamond`.
pub(super) fn parse_diamond(words: &[String]) -> Result<SearchCommand, SearchError> {
    let wrong = |message: String| SearchError::Options { program: SearchProgram::Diamond.name(), message };
    let Some((mode, rest)) = words.split_first().filter(|(mode, _)| ["blastp", "blastx"].contains(&mode.as_str()))
    else {
        let option = format!("diamond {}", words.first().map_or("", String::as_str));
        return Err(SearchError::Unsupported { option, problem: "use diamond blastp or diamond blastx" });
    };
    let words: Vec<String> = std::iter::once("diamond".to_owned()).chain(words.iter().cloned()).collect();
    let mut bulk = ToolSearch::from_words(SearchTool::Diamond, mode, &words);
    let mut command = SearchCommand::from_words(SearchProgram::Diamond, words.into_iter());
    for (name, values) in group_options(rest).map_err(wrong)? {
        check_option(&name, &REFUSED_OPTIONS)?;
        let one = || match values.as_slice() {
            [value] => Ok(value.clone()),
            _ => Err(wrong(format!("{name} has {} values, but godwit accepts one", values.len()))),
        };
        match name.as_str() {
            "--query" | "-q" => command.query_path = Some(one()?).filter(|query| query != "-").map(PathBuf::from),
            "--out" | "-o" => command.output_path = output_file_path(&one()?),
            "--threads" | "-p" => {
                let threads = one()?.parse().ok().filter(|threads| *threads > 0);
                command.threads =
                    Some(threads.ok_or_else(|| wrong(format!("{name} {} is not a number of threads", values[0])))?);
            }
            "--quiet" | "--log" | "--verbose" | "-v" => {}
            _ => {
                match name.as_str() {
                    "--db" | "-d" => bulk.database = PathBuf::from(one()?),
                    "--outfmt" | "-f" => bulk.header = format_header(&values, bulk.header)?,
                    "--header" => bulk.header = header_option(&values, bulk.header)?,
                    _ => {}
                }
                bulk.arguments.push(name);
                bulk.arguments.extend(values);
            }
        }
    }
    if bulk.database.as_os_str().is_empty() {
        return Err(wrong("--db is missing".to_owned()));
    }
    bulk.database_argument = bulk.database.clone();
    command.tool_search = Some(bulk);
    Ok(command)
}

/// Groups the words of a command line into options, each with its values.
fn group_options(words: &[String]) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for word in words {
        let is_name =
            word.len() > 1 && word.starts_with('-') && !word[1..].starts_with(|letter: char| letter.is_ascii_digit());
        match (is_name, found.last_mut()) {
            (true, _) => match word.split_once('=').filter(|_| word.starts_with("--")) {
                Some((name, value)) => found.push((name.to_owned(), vec![value.to_owned()])),
                None => found.push((word.clone(), Vec::new())),
            },
            (false, Some((_, values))) => values.push(word.clone()),
            (false, None) => return Err(format!("{word} stands before the first option; write options first")),
        }
    }
    Ok(found)
}

fn format_header(values: &[String], named: ReportHeader) -> Result<ReportHeader, SearchError> {
    let format = values.first().map_or("6", String::as_str);
    let unsupported = |option: String, problem| Err(SearchError::Unsupported { option, problem });
    if values.iter().any(|value| value == "qnum") {
        return unsupported(
            "--outfmt with qnum".to_owned(),
            "each piece of the queries is numbered from 0; use qseqid",
        );
    }
    match SUPPORTED_FORMATS.iter().find(|(name, _)| *name == format) {
        Some((_, ReportHeader::None)) => Ok(named),
        Some((_, heading)) => Ok(*heading),
        None => {
            let problem =
                "outputs of several workers in this format cannot be merged into that of one run; use 0, 6, 101 or 103";
            unsupported(format!("--outfmt {format}"), problem)
        }
    }
}

fn header_option(values: &[String], otherwise: ReportHeader) -> Result<ReportHeader, SearchError> {
    match values.first().map(String::as_str) {
        Some("0") => Ok(otherwise),
        Some("simple") => Ok(ReportHeader::Line),
        _ => {
            let problem = "its header contains the command line and the time, which differ between pieces; use \
                           --header simple";
            Err(SearchError::Unsupported { option: "--header verbose".to_owned(), problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<SearchCommand, SearchError> {
        parse_diamond(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn queries_output_and_threads_are_ours_and_the_rest_passes_through() {
        let command =
            parse_line("blastp -q q.fa --db=d -o o.tsv -p 3 --quiet -f 6 qseqid sseqid --evalue 1e-3 -k 5").unwrap();
        let bulk = command.tool_search.as_ref().unwrap();
        assert_eq!((command.query_path, command.output_path), (Some("q.fa".into()), Some("o.tsv".into())));
        assert_eq!((command.threads, bulk.header), (Some(3), ReportHeader::None));
        assert_eq!(bulk.arguments.join(" "), "--db d -f 6 qseqid sseqid --evalue 1e-3 -k 5");
        let sam = parse_line("blastx -d d -q - -f sam").unwrap();
        assert_eq!((sam.query_path, sam.tool_search.unwrap().header), (None, ReportHeader::Sam));
    }

    #[test]
    fn what_depends_on_other_queries_is_refused_by_name() {
        for (line, name) in [
            ("blastp -d d --un u.fa", "--un"),
            ("blastp -d d -f 100", "--outfmt 100"),
            ("blastp -d d -f xml", "--outfmt xml"),
            ("blastp -d d -f 6 qnum", "qnum"),
            ("blastp -d d --header", "--header"),
            ("blastp -d d --freq-sd 3", "--freq-sd"),
            ("makedb --in d.fa -d d", "diamond makedb"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(matches!(error, SearchError::Unsupported { .. }) && error.to_string().contains(name), "{error}");
        }
        for line in ["blastp -q a.fa b.fa -d d", "blastp -d d -p 0", "blastp -q a.fa", "blastp q.fa"] {
            assert!(matches!(parse_line(line), Err(SearchError::Options { .. })), "{line}");
        }
    }
}
