//! Real proteins and genes: large inputs, small memory and lost workers. `super::program_matrix` tests all programs and
//! formats on them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use godwit_tests::binary;
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{needs, scratch, skip};

use super::test_databases::{SearchDatabases, split_arguments};
use super::worker_loss::kill_workers;

/// The numbers of ranges and workers.
const PARTS_ARGS: [&str; 3] =
    ["--fragments 7 --workers 3", "--fragments 64 --workers 4", "--fragments 256 --workers 2"];
/// The number of proteins in a search of all against all.
const ALL_AGAINST_ALL_PROTEINS: usize = 5_000;

/// Returns the directory of the data; `None` where it does not exist.
pub(super) fn shared_data_directory() -> Option<&'static Path> {
    let shared = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/blast"));
    shared.is_dir().then_some(shared)
}

/// Returns databases of real proteins, of several volumes, and of genes; and queries.
pub(super) fn real_databases(shared: &Path) -> &'static SearchDatabases {
    static REAL_DATABASES: OnceLock<SearchDatabases> = OnceLock::new();
    REAL_DATABASES.get_or_init(|| {
        let directory = scratch::directory("search-real");
        for (name, file) in
            [("proteins", "real64k.faa.gz"), ("genes", "resist_nt.fna.gz"), ("queries", "QUERY.fasta.gz")]
        {
            let unpacked = Tool::require("gzip").run(["-dc".as_ref(), shared.join(file).as_os_str()]).stdout;
            std::fs::write(directory.join(format!("{name}.fa")), unpacked).expect("scratch can be written");
        }
        let proteins = fasta_records(&directory, "proteins");
        let long: String = proteins[..40].iter().flat_map(|record| record.lines().skip(1)).collect();
        assert!(long.len() > 10_000, "the long query has only {} letters", long.len());
        std::fs::write(directory.join("long.fa"), format!(">long\n{long}\n{}", proteins[100])).expect("scratch");
        let (genes, queries) = (fasta_records(&directory, "genes"), fasta_records(&directory, "queries"));
        let some = |records: &[String], step: usize| records.iter().step_by(step).cloned().collect::<String>();
        let short =
            some(&genes, 700).lines().map(|line| format!("{}\n", &line[..line.len().min(30)])).collect::<Vec<_>>();
        let short =
            short.chunk_by(|_, next| !next.starts_with('>')).map(|record| record[..2.min(record.len())].concat());
        for (name, text) in [
            ("some", some(&genes, 300)),
            ("three", some(&genes, 4000)),
            ("short", short.collect()),
            ("few", some(&queries, 90)),
            ("all", proteins[..ALL_AGAINST_ALL_PROTEINS].concat()),
        ] {
            std::fs::write(directory.join(format!("{name}.fa")), text).expect("scratch can be written");
        }
        for (name, input, kind, volume) in [
            ("proteins", "proteins", "prot", "1GB"),
            ("volumes", "proteins", "prot", "10MB"),
            ("genes", "genes", "nucl", "1GB"),
            ("gene_volumes", "genes", "nucl", "1MB"),
            ("all", "all", "prot", "1GB"),
        ] {
            let input = format!("{input}.fa");
            let words = ["-in", &input, "-dbtype", kind, "-out", name, "-blastdb_version", "5", "-max_file_sz", volume];
            run_checked(Command::new("makeblastdb").args(words).current_dir(&directory));
        }
        SearchDatabases::new(directory)
    })
}

/// Returns the records of a FASTA file, each ended by a line feed.
fn fasta_records(directory: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join(format!("{name}.fa"))).expect("FASTA is text");
    text.split("\n>").map(|record| format!(">{}\n", record.trim_start_matches('>').trim_end())).collect()
}

macro_rules! real_or_skip {
    () => {{
        needs!("makeblastdb", "gzip");
        match shared_data_directory() {
            Some(shared) => real_databases(shared),
            None => skip!("shared-data", "no real proteins beside the repository"),
        }
    }};
}

#[test]
#[ignore = "it takes minutes"]
fn a_real_query_of_over_ten_thousand_letters_is_searched_as_by_one_pass() {
    let data = real_or_skip!();
    for more in ["-outfmt 6", "-outfmt 0 -evalue 2000 -max_target_seqs 50"] {
        data.assert_same(&PARTS_ARGS, &format!("blastp -db proteins -query long.fa {more}"));
    }
}

#[test]
#[ignore = "it takes minutes"]
fn all_of_five_thousand_proteins_in_all_are_found_as_by_one_pass() {
    let data = real_or_skip!();
    let parts = ["--workers 2", "--fragments 16 --workers 2"];
    data.assert_same(&parts, "blastp -db all -query all.fa -outfmt 6");
}

/// Size of the largest output in the evaluation of pioBLAST (doi:10.1109/IPDPS.2005.190), bytes.
const PIOBLAST_OUTPUT_BYTES: usize = 153_000_000;

#[test]
#[ignore = "the four searches take a minute; run it by name"]
fn a_large_output_of_32_and_64_workers_is_that_of_one_pass() {
    let data = real_or_skip!();
    let genes = fasta_records(&data.directory, "genes");
    let queries: String = genes.iter().step_by(12).cloned().collect();
    std::fs::write(data.directory.join("many.fa"), queries).expect("scratch can be written");
    let command = "blastn -db genes -query many.fa -outfmt 0 -max_target_seqs 1000";
    let expected = data.expected_output(command);
    assert!(expected.len() >= PIOBLAST_OUTPUT_BYTES, "the output has only {} bytes", expected.len());
    for parts in ["--workers 32", "--workers 64", "--fragments 256 --workers 64"] {
        let found = data.search_output(parts, command);
        assert!(found == expected, "{parts}: the output of {} bytes is another", found.len());
    }
}

#[test]
#[ignore = "the search takes a minute; run it by name"]
fn workers_that_are_killed_over_real_proteins_change_nothing() {
    let data = real_or_skip!();
    let command = "blastp -db proteins -query queries.fa -outfmt 6 -evalue 2000 -max_target_seqs 50";
    let directory = scratch::directory("killed-real");
    let search = data.search("--fragments 64 --workers 2", command, &directory.join("out")).spawn();
    let killed = kill_workers(search.process_id(), &directory, 3);
    let finished = search.wait_with_output();
    assert!(finished.status.success(), "{}", finished.describe());
    let found = std::fs::read(directory.join("out")).expect("it wrote its output");
    assert!(
        found == data.expected_output(command) && killed > 0,
        "the output is another, or none of the workers was killed"
    );
}

/// The memory limit of all processes of a search in bytes, including the page cache.
const CGROUP_LIMIT_BYTES: u64 = 256 << 20;

/// A control group whose memory is limited. Dropping it removes it, after its processes have ended.
struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Returns `None` where control groups cannot be created.
    fn create() -> Option<Self> {
        let name = format!("godwit-tests-{}", std::process::id());
        let places = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.iter().find_map(|(root, limit)| {
            let group = Self(Path::new(root).join(&name));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(limit), CGROUP_LIMIT_BYTES.to_string()).ok()?;
            Some(group)
        })
    }

    /// Returns the peak memory in bytes.
    fn peak_bytes(&self) -> u64 {
        let files = ["memory.max_usage_in_bytes", "memory.peak"];
        let told = files.iter().find_map(|file| std::fs::read_to_string(self.0.join(file)).ok());
        told.and_then(|text| text.trim().parse().ok()).expect("the kernel tells it")
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // Remove the control group, whose name is unique to this process.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
#[ignore = "it takes minutes, 2 GB of disk, and root"]
fn a_database_of_three_times_the_memory_of_all_workers_is_searched_as_by_one_pass() {
    let real = real_or_skip!();
    let Some(group) = MemoryCgroup::create() else {
        skip!("memory-group", "no group of processes with a limit of memory can be made here");
    };
    let data = SearchDatabases::new(scratch::directory("search-big"));
    let (queries, proteins) = (fasta_records(&real.directory, "queries"), fasta_records(&real.directory, "proteins"));
    std::fs::write(data.directory.join("few.fa"), queries[..3].concat()).expect("scratch can be written");
    let mut big = BufWriter::new(File::create(data.directory.join("big.fa")).expect("scratch can be written"));
    let mut bytes = 0;
    for copy in 0.. {
        if bytes >= 3 * CGROUP_LIMIT_BYTES as usize {
            break;
        }
        for (number, protein) in proteins.iter().enumerate() {
            let letters: String = protein.lines().skip(1).collect();
            // Shorten some copies by a few letters, so that their hits have different scores.
            let letters = &letters[(copy % 7).min(letters.len() - 1)..];
            bytes += letters.len();
            writeln!(big, ">c{copy}_{number}\n{letters}").expect("scratch can be written");
        }
    }
    drop(big);
    let make = ["-in", "big.fa", "-dbtype", "prot", "-out", "big", "-blastdb_version", "5"];
    run_checked(Command::new("makeblastdb").args(make).current_dir(&data.directory));
    let command = "blastp -db big -query few.fa -outfmt 6";
    let expected = data.expected_output(command);
    // The kernel charges cached pages to the control group that read them first. Drop the files from the cache, so that
    // the group of the test reads them again.
    let forget = "for file in big.p*; do dd if=$file iflag=nocache count=0 status=none; done";
    run_checked(Command::new("bash").args(["-euc", forget]).current_dir(&data.directory));
    let mut search = Command::new("bash");
    let enter = r#"echo $$ > "$0/cgroup.procs"; exec "$@" -out found"#;
    search.args(["-euc", enter]).arg(&group.0).arg(binary::path());
    search.args(["search", "--quiet", "--workers", "2", "--fragments", "24", "--"]).args(split_arguments(command));
    run_checked(search.current_dir(&data.directory));
    assert!(
        std::fs::read(data.directory.join("found")).expect("it wrote its output") == expected,
        "the output is another"
    );
    assert!(group.peak_bytes() > CGROUP_LIMIT_BYTES / 10 * 9, "only {} bytes were in use", group.peak_bytes());
}
