//! The whole matrix on real proteins and genes: hours of one processor, run by
//! `cargo test --profile ci -p godwit-tests -- --ignored search::real_data`.

use std::path::Path;
use std::process::Command;

use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, scratch, skip};

use super::data::Data;

/// Ranges and workers of every command.
const PARTS: [&str; 7] = [
    "--fragments 1 --workers 1",
    "--fragments 2 --workers 2",
    "--fragments 3 --workers 3",
    "--fragments 7 --workers 4",
    "--fragments 16 --workers 2",
    "--fragments 64 --workers 2",
    "--fragments 256 --workers 4",
];

/// What hit-rich queries are tortured with.
const TORTURES: [&str; 5] = [
    "",
    "-evalue 2000",
    "-evalue 2000 -max_target_seqs 5",
    "-evalue 2000 -max_target_seqs 50",
    "-evalue 2000 -max_target_seqs 1000",
];

#[test]
#[ignore = "it takes hours; the generated data cover the same rules"]
fn real_proteins_and_genes_are_searched_as_by_one_pass() {
    needs!("makeblastdb", "gzip");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/blast");
    if !shared.is_dir() {
        skip!("shared-data", "no {}", shared.display());
    }
    let directory = scratch::directory("search-real");
    for (name, file) in [("proteins", "real64k.faa.gz"), ("genes", "resist_nt.fna.gz"), ("queries", "QUERY.fasta.gz")] {
        let unpacked = Tool::need("gzip").run(["-dc".as_ref(), shared.join(file).as_os_str()]).stdout;
        std::fs::write(directory.join(format!("{name}.fa")), unpacked).expect("scratch can be written");
    }
    for (name, kind) in [("proteins", "prot"), ("genes", "nucl")] {
        let input = format!("{name}.fa");
        // Volumes of 10 MB: the proteins become several.
        let words = ["-in", &input, "-dbtype", kind, "-out", name, "-blastdb_version", "5", "-max_file_sz", "10MB"];
        succeed(Command::new("makeblastdb").args(words).current_dir(&directory));
    }
    let genes = std::fs::read_to_string(directory.join("genes.fa")).expect("FASTA is text");
    let some = genes.split_inclusive("\n>").step_by(300).map(|record| record.trim_end_matches('>'));
    let some: String = some.map(|record| format!(">{}", record.trim_start_matches('>'))).collect();
    std::fs::write(directory.join("some.fa"), some).expect("scratch can be written");
    let data = Data { directory };
    for torture in TORTURES {
        for format in ["0", "6"] {
            for search in [
                "blastp -db proteins -query queries.fa",
                "blastn -db genes -query some.fa",
                "blastn -task blastn -db genes -query some.fa",
                "blastx -db proteins -query some.fa",
                "tblastn -db genes -query queries.fa",
                "tblastx -db genes -query some.fa",
            ] {
                data.assert_same(&PARTS, &format!("{search} -outfmt {format} {torture}"));
            }
        }
    }
}
