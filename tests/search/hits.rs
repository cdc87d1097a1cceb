//! Tables of hits (`--hits`): for any report format, the rows equal the table that NCBI's program prints, in the same
//! order.

use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::{needs, scratch};

use super::test_databases::{TAXONOMY, databases};

/// The columns after the first, which are fields of BLAST+'s tables.
const TABLE_FIELDS: &str = "qaccver saccver pident length mismatch gapopen qstart qend sstart send evalue bitscore score qlen slen nident positive \
                      gaps qframe sframe qcovs qcovhsp staxid stitle btop ssciname scomname sblastname sskingdom";

/// Returns the rows of a table, read by `godwit query`. Fields that are null are empty.
fn query_rows(directory: &Path, name: &str) -> Vec<Vec<String>> {
    let told = godwit().current_dir(directory).args(["query", "--threads", "1", "--format", "tsv"]);
    let columns = TABLE_FIELDS.replace(' ', ", ");
    let told = told.arg(format!("SELECT query_index, {columns} FROM \"{name}\"")).args(["--data", "."]).run_ok();
    told.stdout.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Returns the rows that the application prints for a command line without a format.
fn one_pass_rows(command: &str) -> Vec<Vec<String>> {
    let text = databases().expected_output(&format!("{command} -outfmt '6 {TABLE_FIELDS}'"));
    let text = String::from_utf8(text).expect("a table is text");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Reports whether `value` is printed as this text. A rounded number differs by at most half of the last digit, and a
/// truncated one (bit scores from 100 on) by less than one digit.
fn is_printed_as(value: &str, printed: &str, is_cut: bool) -> bool {
    let (value, rounded): (f64, f64) = (value.parse().expect("a number"), printed.parse().expect("a number"));
    let (digits, exponent) = printed.split_once('e').unwrap_or((printed, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    let unit = 10_f64.powi(exponent.parse::<i32>().expect("an exponent") - decimals);
    // BLAST+ prints e-values below 1e-180 as 0.0.
    (rounded == 0.0 && (0.0..1e-180).contains(&value))
        || (value - rounded).abs() <= if is_cut { 0.999_999 * unit } else { 0.500_001 * unit }
}

#[track_caller]
fn assert_rows(command: &str, found: &[Vec<String>], expected: &[Vec<String>]) {
    assert!(!expected.is_empty(), "{command} found nothing to compare");
    assert_eq!(found.len(), expected.len(), "{command}: rows");
    let mut queries: Vec<&str> = Vec::new();
    for (found, expected) in found.iter().zip(expected) {
        // A change of the query name starts the rows of the next query, because all names differ and the rows of a
        // query are adjacent.
        if queries.last() != Some(&expected[0].as_str()) {
            queries.push(&expected[0]);
        }
        assert_eq!(found.len(), expected.len() + 1, "{command}: {found:?}");
        for ((name, found), expected) in TABLE_FIELDS.split_whitespace().zip(&found[1..]).zip(expected) {
            let same = match (name, expected.as_str()) {
                ("bitscore", _) => is_printed_as(found, expected, true),
                ("evalue" | "pident", _) => is_printed_as(found, expected, false),
                (_, "N/A") => found.is_empty(),
                _ => found == expected,
            };
            assert!(same, "{command}: {name} is {found}, and {expected} is printed");
        }
    }
    let mut indices: Vec<u64> = found.iter().map(|row| row[0].parse().expect("a number")).collect();
    assert!(indices.is_sorted(), "{command}: {indices:?}");
    indices.dedup();
    assert_eq!(indices.len(), queries.len(), "{command}: {indices:?}");
}

#[test]
fn hits_are_the_rows_of_one_pass_whatever_the_program_the_format_and_the_parts() {
    needs!("makeblastdb");
    for (options, format, name, command) in [
        ("--fragments 3 --workers 2", "6", "hits.parquet", "blastp -db proteins -query far.fa"),
        ("--fragments 3 --workers 2", "6", "hits.arrow", "blastp -db named -query far.fa -evalue 1e-5"),
        ("--fragments 7 --workers 1", "0", "hits.parquet", "blastp -db both -query far.fa -evalue 1e-5"),
        ("--fragments 3 --workers 2", "17", "hits.arrow", "blastn -db genes -query near.fa"),
        ("--fragments 3 --workers 2", "11", "hits.parquet", "blastx -db proteins -query coding.fa -evalue 1e-10"),
        (
            "--fragments 2 --workers 2",
            "5",
            "hits.arrow",
            "tblastn -db genes -query far.fa -ungapped -comp_based_stats F",
        ),
        ("--fragments 2 --workers 2", "7", "hits.parquet", "blastp -db proteins -query long.fa -max_target_seqs 5"),
        ("--workers 2", "6", "hits.parquet", "blastp -db few -query many.fa -evalue 1e-30"),
        ("--on local --nodes 2 --threads 1", "6", "hits.parquet", "blastp -db proteins -query far.fa -evalue 1e-5"),
        ("--on local --nodes 2 --threads 1", "6", "hits.parquet", "blastp -db few -query many.fa -evalue 1e-30"),
    ] {
        let directory = scratch::directory("hits");
        let formatted = format!("{command} -outfmt {format}");
        databases()
            .search(&format!("{options} --hits {}/{name}", directory.display()), &formatted, &directory.join("out"))
            .run_ok();
        assert_eq!(scratch::entry_names(&directory), [name, "out"], "{command}");
        if format != "17" {
            let same = std::fs::read(directory.join("out")).expect("the search writes its output")
                == databases().expected_output(&formatted);
            assert!(same, "{formatted}: with --hits the output is another");
        }
        assert_rows(&formatted, &query_rows(&directory, name), &one_pass_rows(command));
    }
}

#[test]
fn hits_have_the_names_of_the_organisms() {
    needs!("makeblastdb");
    let directory = scratch::directory("hits-names");
    let options = format!("--workers 1 --hits {}/hits.parquet", directory.display());
    let command = "blastp -db named -query far.fa -evalue 1e-30 -outfmt 6";
    databases().search(&options, command, &directory.join("out")).run_ok();
    let rows = query_rows(&directory, "hits.parquet");
    let index = |name: &str| 1 + TABLE_FIELDS.split_whitespace().position(|field| field == name).expect("a column");
    let names = ["staxid", "ssciname", "scomname", "sblastname", "sskingdom"].map(index);
    for (taxon, organism) in TAXONOMY {
        let taxon = taxon.to_string();
        let expected: Vec<&str> = std::iter::once(taxon.as_str()).chain(organism).collect();
        let is_named = |row: &Vec<String>| names.iter().zip(&expected).all(|(column, name)| row[*column] == *name);
        assert!(rows.iter().any(is_named), "no row has {expected:?}");
    }
}

#[test]
fn a_search_without_hits_makes_a_table_without_rows() {
    needs!("makeblastdb");
    let directory = scratch::directory("no-hits");
    let options = format!("--workers 1 --hits {}/hits.parquet", directory.display());
    let command = "blastp -db proteins -query far.fa -evalue 1e-300 -outfmt 6";
    databases().search(&options, command, &directory.join("out")).run_ok();
    assert_eq!(query_rows(&directory, "hits.parquet"), [] as [Vec<String>; 0]);
}

#[test]
fn a_table_that_cannot_be_is_refused_before_the_search_and_leaves_nothing() {
    needs!("makeblastdb");
    let directory = scratch::directory("hits-refused");
    let place = directory.display();
    for (options, code, said) in [
        (format!("--hits {place}/hits.tsv"), 2, ".parquet or .arrow"),
        (format!("--hits {place}/out.arrow"), 2, "--hits"),
        (format!("--hits {place}/no/such/directory/hits.arrow"), 4, "no/such/directory"),
    ] {
        let search = databases().search(&options, "blastp -db proteins -query far.fa", &directory.join("out.arrow"));
        search.run().assert_rejected(&[code], &[said]);
        assert_eq!(scratch::entry_names(&directory), [] as [&str; 0], "{options}");
    }
}
