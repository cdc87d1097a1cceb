//! Databases and queries drawn from seeds: families of similar and distant sequences, with copies for ties.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::random::Random;
use godwit_tests::scratch;
use godwit_tests::tool::{Tool, run_checked};
use parking_lot::Mutex;

const AMINO_ACIDS: &[u8] = b"ACDEFGHIKLMNPQRSTVWY";
const BASES: &[u8] = b"ACGT";
/// The taxa of the database `named`: number, then scientific name, common name, name in BLAST, and kingdom.
pub(super) const TAXONOMY: [(u32, [&str; 4]); 3] = [
    (562, ["Escherichia coli", "Escherichia coli", "enterobacteria", "Bacteria"]),
    (9606, ["Homo sapiens", "human", "primates", "Eukaryota"]),
    (10090, ["Mus musculus", "house mouse", "rodents", "Eukaryota"]),
];

/// The directory with the databases and queries of all tests.
pub(super) struct SearchDatabases {
    pub(super) directory: PathBuf,
    /// Outputs of NCBI's application, by command: several tests compare searches with the same output.
    expected: Mutex<HashMap<String, Arc<OnceLock<Vec<u8>>>>>,
}

/// Returns the databases, which are created once for all tests.
pub(super) fn databases() -> &'static SearchDatabases {
    static DATABASES: OnceLock<SearchDatabases> = OnceLock::new();
    DATABASES.get_or_init(|| {
        let directory = scratch::directory("search");
        let mut random = Random::new(22);
        let proteins = random_families(&mut random, AMINO_ACIDS, 60, 10, (60, 400));
        let genes = random_families(&mut random, BASES, 40, 8, (200, 900));
        let far: Vec<Vec<u8>> =
            proteins.iter().step_by(100).map(|parent| mutate(&mut random, AMINO_ACIDS, parent, 25)).collect();
        let near: Vec<Vec<u8>> = genes.iter().step_by(54).map(|parent| mutate(&mut random, BASES, parent, 4)).collect();
        let coding: Vec<Vec<u8>> =
            proteins.iter().step_by(200).map(|protein| back_translate(&mut random, protein)).collect();
        // A query longer than most proteins, which the engine splits.
        let long: Vec<u8> = proteins.iter().step_by(4).flatten().copied().collect();
        assert!(long.len() > 25_000, "the long query has only {} letters", long.len());
        let coded: Vec<Vec<u8>> = genes.iter().cloned().chain(coding.iter().cloned()).collect();
        for (name, sequences) in [
            ("proteins", &proteins),
            ("genes", &coded),
            ("far", &far),
            ("near", &near),
            ("some", &genes.iter().step_by(6).cloned().collect()),
            ("coding", &coding),
            ("long", &vec![long, far[0].clone()]),
            // Some 5 batches.
            ("batches", &proteins.iter().step_by(3).cloned().collect()),
            // Over 40 batches: two workers search different batches. Their database is small, because such a search takes
            // as long as all others.
            ("many", &proteins.iter().cycle().take(2000).cloned().collect()),
            ("few", &proteins[..30].to_vec()),
        ] {
            std::fs::write(directory.join(format!("{name}.fa")), fasta_text(name, sequences))
                .expect("scratch can be written");
        }
        let halves = proteins.split_at(proteins.len() / 3);
        for (name, half) in [("first", halves.0), ("second", halves.1)] {
            std::fs::write(directory.join(format!("{name}.fa")), fasta_text("proteins", half))
                .expect("scratch can be written");
        }
        let data = SearchDatabases::new(directory);
        for (name, kind) in
            [("proteins", "prot"), ("genes", "nucl"), ("first", "prot"), ("second", "prot"), ("few", "prot")]
        {
            let input = format!("{name}.fa");
            data.run_tool("makeblastdb", &["-in", &input, "-dbtype", kind, "-out", name, "-blastdb_version", "5"]);
        }
        data.make_named_database(proteins.len());
        let two = ["-dblist", "first second", "-dbtype", "prot", "-out", "both", "-title", "both"];
        data.run_tool("blastdb_aliastool", &two);
        data
    })
}

impl SearchDatabases {
    /// Returns the databases of a directory.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, expected: Mutex::default() }
    }

    /// Makes the database `named` of the proteins, with taxa and indexes of names, and a file of the names of the taxa.
    fn make_named_database(&self, sequences: usize) {
        let taxon = |index: usize| TAXONOMY[index % TAXONOMY.len()].0;
        let taxa = (0..sequences).map(|index| format!("proteins_{index} {}\n", taxon(index)));
        std::fs::write(self.directory.join("taxa.txt"), taxa.collect::<String>()).expect("scratch can be written");
        let input = ["-in", "proteins.fa", "-dbtype", "prot", "-out", "named", "-parse_seqids"];
        self.run_tool("makeblastdb", &[&input[..], &["-taxid_map", "taxa.txt"]].concat());
        // The index: a magic number, the number of taxa, four unused numbers, and each taxon with the offset of its names.
        let (mut index, mut names) = (vec![0x8739, TAXONOMY.len() as u32, 0, 0, 0, 0], String::new());
        for (taxon, organism) in TAXONOMY {
            index.extend([taxon, names.len() as u32]);
            names.push_str(&organism.join("\t"));
        }
        let index: Vec<u8> = index.into_iter().flat_map(u32::to_be_bytes).collect();
        std::fs::write(self.directory.join("taxdb.bti"), index).expect("scratch can be written");
        std::fs::write(self.directory.join("taxdb.btd"), names).expect("scratch can be written");
    }

    fn run_tool(&self, name: &str, words: &[&str]) {
        run_checked(Tool::require(name).command().args(words).current_dir(&self.directory));
    }

    /// Returns the output of NCBI's application in one pass.
    pub(super) fn expected_output(&self, command: &str) -> Vec<u8> {
        let output = self.expected.lock().entry(command.to_owned()).or_default().clone();
        output.get_or_init(|| self.run_reference(command)).clone()
    }

    fn run_reference(&self, command: &str) -> Vec<u8> {
        let place = scratch::directory("one-pass").join("out");
        let mut words = split_arguments(command);
        words.extend(["-out".to_owned(), place.display().to_string()]);
        let mut reference = std::process::Command::new(reference_program());
        reference.args(words).current_dir(&self.directory).env("BLAST_USAGE_REPORT", "false");
        run_checked(&mut reference);
        std::fs::read(&place).expect("the application writes its output")
    }

    /// Returns a search with godwit's options, and the program's output in `out`.
    pub(super) fn search(&self, options: &str, command: &str, out: &Path) -> GodwitCommand {
        let options = options.split(' ').filter(|word| !word.is_empty());
        let godwit = godwit().current_dir(&self.directory).arg("search").args(options).arg("--quiet").arg("--");
        godwit.args(split_arguments(command)).arg("-out").arg(out)
    }

    /// Returns the output of a search.
    pub(super) fn search_output(&self, options: &str, command: &str) -> Vec<u8> {
        let out = scratch::directory("found").join("out");
        self.search(options, command, &out).run_ok();
        std::fs::read(&out).expect("the search writes its output")
    }

    /// Checks that a single run and searches in parts write the same bytes.
    pub(super) fn assert_same(&self, options: &[&str], command: &str) {
        let expected = self.expected_output(command);
        assert!(!expected.is_empty(), "{command} found nothing to compare");
        for options in options {
            let found = self.search_output(options, command);
            let same = found == expected;
            assert!(same, "search {options} -- {command}: {} bytes differ from {}", found.len(), expected.len());
        }
    }
}

/// Removes the command line from a SAM header, because the path of the output in it differs in each run.
pub(super) fn without_command_line(command: &str, bytes: Vec<u8>) -> Vec<u8> {
    if !command.contains("-outfmt 17") && !command.contains("-outfmt '17") {
        return bytes;
    }
    let text = String::from_utf8(bytes).expect("SAM is text");
    let lines = text.lines().flat_map(|line| [line.split(" -out ").next().unwrap_or_default(), "\n"]);
    lines.collect::<String>().into_bytes()
}

/// Splits a command line; text between quotes is one argument.
pub(super) fn split_arguments(command: &str) -> Vec<String> {
    shlex::split(command).expect("every quote is closed")
}

/// Returns the oracle: NCBI's application on the libraries that the worker links, without godwit's code.
pub(super) fn reference_program() -> &'static Path {
    static REFERENCE_PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    REFERENCE_PROGRAM.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/blast/build.sh");
        let told = run_checked(&mut std::process::Command::new(script)).stdout;
        PathBuf::from(String::from_utf8(told).expect("a path").trim())
    })
}

fn random_families(
    random: &mut Random,
    letters: &[u8],
    families: usize,
    members: usize,
    length: (i64, i64),
) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..families {
        let length = random.between(length.0, length.1);
        let parent: Vec<u8> = (0..length).map(|_| *random.pick(letters)).collect();
        for member in 0..members as i64 {
            // The first three members of a family are identical.
            all.push(mutate(random, letters, &parent, if member < 3 { 0 } else { member * 4 }));
        }
    }
    // Shuffle the sequences, so that each family is distributed over the whole database.
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|index| (*index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    order.into_iter().map(|index| all[index].clone()).collect()
}

/// Replaces `percent` percent of the letters, and sometimes deletes a letter.
fn mutate(random: &mut Random, letters: &[u8], parent: &[u8], percent: i64) -> Vec<u8> {
    let mut child = Vec::with_capacity(parent.len());
    for letter in parent {
        let drawn = random.between(0, 999);
        if drawn < percent * 10 {
            child.push(*random.pick(letters));
        } else if drawn < 998 || percent == 0 {
            child.push(*letter);
        }
    }
    child
}

fn back_translate(random: &mut Random, protein: &[u8]) -> Vec<u8> {
    let codons = [
        "GCT", "TGC", "GAT", "GAA", "TTC", "GGT", "CAT", "ATT", "AAA", "CTG", "ATG", "AAC", "CCG", "CAG", "CGT", "AGC",
        "ACC", "GTT", "TGG", "TAT",
    ];
    let mut gene: Vec<u8> = (0..random.between(0, 40)).map(|_| *random.pick(BASES)).collect();
    for letter in protein {
        let index = AMINO_ACIDS.iter().position(|known| known == letter).expect("it was drawn from these");
        gene.extend(codons[index].as_bytes());
    }
    gene
}

fn fasta_text(name: &str, sequences: &[Vec<u8>]) -> String {
    let records = sequences
        .iter()
        .enumerate()
        .map(|(index, letters)| format!(">{name}_{index} number {index}\n{}\n", String::from_utf8_lossy(letters)));
    records.collect()
}
