//! Every program, format and torture on real proteins and genes, at every number of ranges and of workers: hours of one processor, run by
//! `cargo xtask search [ROUNDS]`. A round takes each command at one number of ranges for each number of workers; seven rounds
//! cross them all. What was found the same is kept in a file, and is not searched again by the same program.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use godwit_tests::random::Random;
use godwit_tests::{binary, needs, skip};

use super::data::{Data, comparable};
use super::real_data::{real, shared};

const RANGES: [u32; 7] = [1, 2, 3, 7, 16, 64, 256];
const WORKERS: usize = 4;

/// Commands without their formats, and whether they write SAM.
const SEARCHES: [(&str, bool); 10] = [
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

const FORMATS: [&str; 8] = ["0", "5", "6", "'7 qseqid sseqid evalue bitscore qcovs btop'", "10", "11", "15", "16"];

/// What hit-rich queries are tortured with. The last is 500, which is what programs take by themselves, said aloud.
const TORTURES: [&str; 6] = [
    "",
    "-evalue 2000",
    "-evalue 2000 -max_target_seqs 5",
    "-evalue 2000 -max_target_seqs 50",
    "-evalue 2000 -max_target_seqs 1000",
    "-evalue 2000 -max_target_seqs 500",
];

/// All commands, in an order drawn from a seed: wherever it is stopped, what was done is a fair sample.
fn commands() -> Vec<String> {
    let mut commands = Vec::new();
    for (search, writes_sam) in SEARCHES {
        for torture in TORTURES {
            for format in FORMATS.iter().chain(writes_sam.then_some(&"17")) {
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

/// What is known already: commands at parts, of this very program.
struct Journal {
    path: PathBuf,
    done: HashSet<String>,
}

impl Journal {
    fn open() -> Self {
        let program = std::fs::metadata(binary::path()).expect("the program is built");
        let name = format!("search-matrix-{}-{}.tsv", program.size(), program.mtime());
        let path = binary::path().with_file_name(name);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        Self { path, done: text.lines().map(str::to_owned).collect() }
    }

    fn add(&mut self, line: String) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(&self.path).expect("it lies beside the program");
        writeln!(file, "{line}").expect("there is room for a line");
        self.done.insert(line);
    }
}

/// Where they are other bytes, both are kept.
fn assert_same(data: &Data, command: &str, parts: &str, expected: &[u8]) {
    let found = comparable(command, data.found(parts, command));
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
    let Some(shared) = shared() else { skip!("shared-data", "no real proteins beside the repository") };
    let rounds = std::env::var("GODWIT_MATRIX_ROUNDS").map_or(RANGES.len(), |text| text.parse().expect("a number"));
    let (data, commands, mut journal) = (real(shared), commands(), Journal::open());
    let mut compared = 0;
    for round in 0..rounds.min(RANGES.len()) {
        for (number, command) in commands.iter().enumerate() {
            let parts = (0..WORKERS).map(|worker| {
                let ranges = RANGES[(number + round + 2 * worker) % RANGES.len()];
                format!("--fragments {ranges} --workers {}", worker + 1)
            });
            let left: Vec<String> =
                parts.filter(|parts| !journal.done.contains(&format!("{parts}\t{command}"))).collect();
            if left.is_empty() {
                continue;
            }
            let expected = comparable(command, data.one_pass(command));
            assert!(!expected.is_empty(), "{command} found nothing to compare");
            for parts in left {
                assert_same(data, command, &parts, &expected);
                journal.add(format!("{parts}\t{command}"));
                compared += 1;
            }
            println!(
                "round {} of {rounds}, command {} of {}: {} the same",
                round + 1,
                number + 1,
                commands.len(),
                journal.done.len()
            );
        }
    }
    println!("{compared} searches compared now, {} in all, none differs", journal.done.len());
}
