//! Every program, format and set of limits on real proteins and genes, at every number of ranges and of workers: hours of
//! one processor, run by `cargo xtask search [ROUND..]`. A round takes each command at one number of ranges for each
//! number of workers; rounds 1 to 7 combine them all. Equal results are recorded in a file, and are not searched again by
//! the same program.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use godwit_tests::random::Random;
use godwit_tests::{binary, needs, skip};

use super::real_data::{real_databases, shared_data_directory};
use super::test_databases::{SearchDatabases, without_command_line};

const RANGE_COUNTS: [u32; 7] = [1, 2, 3, 7, 16, 64, 256];
const WORKER_COUNT: usize = 4;

/// Commands without their formats, and whether they can write SAM.
const COMMANDS: [(&str, bool); 10] = [
    ("blastp -db proteins -query few.fa", false),
    ("blastp -db volumes -query few.fa", false),
    ("blastn -db genes -query some.fa", true),
    ("blastn -db gene_volumes -query some.fa", true),
    ("blastn -task blastn -db genes -query some.fa", true),
    ("blastn -task dc-megablast -db genes -query some.fa", true),
    ("blastn -task blastn-short -db genes -query short.fa", true),
    ("blastx -db volumes -query three.fa", false),
    ("tblastn -db gene_volumes -query few.fa", false),
    ("tblastx -db genes -query three.fa", false),
];

const OUTPUT_FORMATS: [&str; 8] =
    ["0", "5", "6", "'7 qseqid sseqid evalue bitscore qcovs btop'", "10", "11", "15", "16"];

/// Limits for queries with many hits. The last one, 500, is the default of the programs, given explicitly.
const HIT_LIST_OPTIONS: [&str; 6] = [
    "",
    "-evalue 2000",
    "-evalue 2000 -max_target_seqs 5",
    "-evalue 2000 -max_target_seqs 50",
    "-evalue 2000 -max_target_seqs 1000",
    "-evalue 2000 -max_target_seqs 500",
];

/// Returns all commands, in an order drawn from a seed: if the test is stopped anywhere, the commands so far are a random
/// sample.
fn commands() -> Vec<String> {
    let mut commands = Vec::new();
    for (search, writes_sam) in COMMANDS {
        for torture in HIT_LIST_OPTIONS {
            for format in OUTPUT_FORMATS.iter().chain(writes_sam.then_some(&"17")) {
                commands.push(format!("{search} -outfmt {format} {torture}").trim_end().to_owned());
            }
        }
    }
    let mut random = Random::new(64_421);
    for last in (1..commands.len()).rev() {
        commands.swap(last, random.between(0, last as i64) as usize);
    }
    commands
}

/// The results so far: commands with numbers of ranges and workers, for this build of the program.
struct MatrixJournal {
    path: PathBuf,
    finished: HashSet<String>,
}

impl MatrixJournal {
    fn open() -> Self {
        let program = std::fs::metadata(binary::path()).expect("the program is built");
        let name = format!("search-matrix-{}-{}.tsv", program.size(), program.mtime());
        let path = binary::path().with_file_name(name);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        Self { path, finished: text.lines().map(str::to_owned).collect() }
    }

    fn add(&mut self, line: String) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(&self.path).expect("it lies beside the program");
        writeln!(file, "{line}").expect("there is room for a line");
        self.finished.insert(line);
    }
}

/// Compares the bytes of a search; where they differ, both outputs are kept.
fn assert_same(data: &SearchDatabases, command: &str, parts: &str, expected: &[u8]) {
    let found = without_command_line(command, data.search_output(parts, command));
    if found == expected {
        return;
    }
    let [one, other] = ["expected", "found"].map(|name| data.directory.join(format!("differs.{name}")));
    std::fs::write(&one, expected).and_then(|()| std::fs::write(&other, found)).expect("scratch can be written");
    panic!("search {parts} -- {command}: {} is not {}", other.display(), one.display());
}

#[test]
#[ignore = "it takes hours; the generated data cover the same rules"]
fn every_command_at_every_number_of_parts_writes_the_bytes_of_one_pass() {
    needs!("makeblastdb", "gzip");
    let Some(shared) = shared_data_directory() else { skip!("shared-data", "no real proteins beside the repository") };
    let rounds: Vec<usize> = match std::env::var("GODWIT_MATRIX_ROUNDS") {
        Ok(text) => text.split(',').map(|round| round.parse().expect("numbers of rounds, with commas")).collect(),
        Err(_) => (1..=RANGE_COUNTS.len()).collect(),
    };
    for round in &rounds {
        let last = RANGE_COUNTS.len();
        assert!((1..=last).contains(round), "GODWIT_MATRIX_ROUNDS has round {round}; name rounds from 1 to {last}");
    }
    let (data, commands, mut journal) = (real_databases(shared), commands(), MatrixJournal::open());
    let mut compared = 0;
    for &round in &rounds {
        for (number, command) in commands.iter().enumerate() {
            let parts = (0..WORKER_COUNT).map(|worker| {
                let ranges = RANGE_COUNTS[(number + round - 1 + 2 * worker) % RANGE_COUNTS.len()];
                format!("--fragments {ranges} --workers {}", worker + 1)
            });
            let left: Vec<String> =
                parts.filter(|parts| !journal.finished.contains(&format!("{parts}\t{command}"))).collect();
            if left.is_empty() {
                continue;
            }
            let expected = without_command_line(command, data.expected_output(command));
            assert!(!expected.is_empty(), "{command} found nothing to compare");
            for parts in left {
                assert_same(data, command, &parts, &expected);
                journal.add(format!("{parts}\t{command}"));
                compared += 1;
            }
            println!(
                "round {round} of {rounds:?}, command {} of {}: {} the same",
                number + 1,
                commands.len(),
                journal.finished.len()
            );
        }
    }
    println!("{compared} searches compared now, {} in all, none differs", journal.finished.len());
}
