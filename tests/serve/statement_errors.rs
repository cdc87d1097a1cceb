//! Errors of users in statements: the message explains the error and names the nearest existing name, both from `godwit
//! query` and from a server.

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::needs;

use super::contig_names::data_directory;

/// Statements, exit codes, and words of their messages.
const STATEMENT_ERRORS: [(&str, i32, &[&str]); 23] = [
    ("SELECT sequence FROM reads('odd.bam')", 2, &["no column sequence; did you mean bases?", "mapping_quality"]),
    ("SELECT positon FROM reads('odd.parquet')", 2, &["no column positon; did you mean position?", "cigar"]),
    ("SELECT name FROM reads('odd.bam') WHERE contig = \"chr1\"", 2, &["no column chr1", "single quotes"]),
    ("SELECT x.name FROM reads('odd.bam') y", 2, &["no column x.name", "no table of the statement is named x"]),
    ("SELECT name FROM reads('odd.bam') ORDER BY nam", 2, &["no column nam; did you mean name?"]),
    ("SELECT nothing", 2, &["no column nothing", "FROM"]),
    ("SELECT * FROM od", 2, &["no table \"od\"", "odd.bam"]),
    ("SELECT * FROM reads('odd.bma')", 2, &["no table \"odd.bma\"; did you mean odd.bam?", "odd.parquet"]),
    ("SELECT lenght(name) FROM reads('odd.bam')", 2, &["no function lenght; did you mean length?"]),
    ("SELECT * FROM read('odd.bam')", 2, &["no table function read", "did you mean reads?", "coverage"]),
    ("SELECT * FROM reads(odd.bam)", 2, &["reads()", "single quotes"]),
    ("SELECT name FROM reads('odd.parquet') WHERE name = 5", 3, &["the text 'chr1-", "whole number", "single quotes"]),
    ("SELECT name FROM reads('odd.bam') WHERE name = 5", 3, &["the text 'chr1-", "whole number", "single quotes"]),
    ("SELECT CAST(name AS INT) FROM reads('odd.parquet')", 3, &["the text 'chr1-", "whole number"]),
    ("SELECT name FROM reads('odd.bam') WHERE position = 'first'", 3, &["the text 'first'", "whole number"]),
    ("SELECT name, count(*) FROM reads('odd.bam')", 2, &["name is neither grouped nor aggregated", "GROUP BY"]),
    ("SELECT abs(name) FROM reads('odd.bam')", 2, &["abs", "takes numbers, not text"]),
    ("SELECT name FROM reads('odd.bam') WHERE cigar", 2, &["cigar", "true or false"]),
    ("SELECT flags / (flags - flags) FROM reads('odd.parquet')", 3, &["divided by zero"]),
    ("SELEC name FROM reads('odd.bam')", 2, &["cannot be read as SQL", "SELEC", "column 1"]),
    (
        "SELECT name FROM reads('odd.bam') a JOIN reads('odd.sam') b ON a.flags = b.flags",
        2,
        &["name", "several tables"],
    ),
    (
        "SELECT name FROM reads('odd.bam') WHERE mapq >= 30 && [NM] <= 2",
        2,
        &["&& is not an operator", "AND", "filter('"],
    ),
    ("SELECT name FROM reads('odd.bam') UNION SELECT name, flags FROM reads('odd.bam')", 2, &["columns"]),
];
/// Words that address programmers, not users.
const INTERNAL_WORDS: [&str; 12] = [
    "Error(",
    "Some(",
    "None",
    "Utf8",
    "Int64",
    "Int32",
    "DataFusion",
    "rrow error",
    "Schema error",
    "Error during planning",
    "caused by",
    "::",
];

#[test]
fn mistakes_in_statements_are_named_with_what_exists_and_without_words_of_the_engine() {
    needs!("samtools");
    let served = DataServer::start(data_directory(), &[]);
    let at = format!("grpc+tcp://{}", served.address);
    let mut wrong = Vec::new();
    for (sql, code, words) in STATEMENT_ERRORS {
        for place in [["--data", data_directory().to_str().expect("scratch has a plain name")], ["--at", &at]] {
            let finished = godwit().args(["query", sql]).args(place).run();
            let last = finished.stderr.trim_end().lines().last().unwrap_or_default();
            let is_right = (place[0] == "--at" || finished.status.code() == Some(code))
                && last.starts_with("godwit: error: ")
                && words.iter().all(|word| last.contains(word))
                && !INTERNAL_WORDS.iter().any(|raw| last.contains(raw));
            if !is_right {
                wrong.push(format!("{} {sql}\n  {:?} {}", place[0], finished.status.code(), finished.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
