//! Compares with `bwa index` byte for byte, and with `bwa mem -K` line for line.
//!
//! Lines are compared as text: our packed records go through `samtools view`. Tests without a required tool print that and pass.
#![allow(clippy::unwrap_used)] // A test may panic.

#[path = "identity/aligner_runner.rs"]
mod aligner_runner;
#[path = "identity/common_tests.rs"]
mod common_tests;
#[path = "identity/test_reads.rs"]
mod test_reads;

use std::fs;

use aligner_runner::{Lane, Tools, bwa_lines, godwit_lines};
use common_tests::{BLOCK_BASES, assert_same_records};
use godwit_engines::aligner::bwa::IndexKind;
use test_reads::Layout;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_godwit-bwa");
/// Name of the program, and name and version of the linked library.
const PROGRAM_NAME: &str = "godwit-bwa";
const ENGINE_NAME: &str = "bwa";
const ENGINE_VERSION: &str = "0.7.17";
/// Kind of its index.
const INDEX_KIND: IndexKind = IndexKind::Bwa;

/// Makes nothing: the program loads the index that bwa made.
fn make_index(_: &std::path::Path) {}

#[test]
fn index_files_are_those_of_bwa_index() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let ours = tools.directory.path().join("ours.fa");
    fs::copy(&tools.reference, &ours).unwrap();
    godwit_engines::aligner::bwa::build_index(&ours, IndexKind::Bwa, Some(PROGRAM.as_ref())).unwrap();
    for extension in ["amb", "ann", "bwt", "pac", "sa"] {
        let read = |path: &std::path::Path| fs::read(path.with_extension(format!("fa.{extension}"))).unwrap();
        assert!(read(&ours) == read(&tools.reference), "{extension}");
    }
    let left_over = fs::read_dir(tools.directory.path()).unwrap().flatten().find(|entry| entry.path().is_dir());
    assert!(left_over.is_none(), "{left_over:?}");
}

#[test]
fn a_reference_that_is_not_there_makes_no_index() {
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("none.fa");
    let error =
        godwit_engines::aligner::bwa::build_index(&reference, IndexKind::Bwa, Some(PROGRAM.as_ref())).unwrap_err();
    assert!(error.to_string().contains("none.fa"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn paired_reads_under_all_options_are_those_of_bwa_mem() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = test_reads::reads(&tools.genome, 2000, Layout::Paired, 7);
    for options in [
        "",
        "-M -Y",
        "-MC",
        "-a",
        "-a -Y -h 2,10",
        "-5",
        "-q",
        "-S",
        "-P",
        "-SP",
        "-V",
        "-A 2",
        "-A2 -B3 -L 9",
        "-x ont2d",
        "-x pacbio -A 2",
        "-x intractg",
        "-x pacbio -k 19 -r 2",
        "-k15 -w 50 -d 50 -r 1.2 -y 10 -c 100 -D 0.3 -W 20 -m 5",
        "-B 3 -O 5,7 -E 2,1 -L 3,6 -U 10 -T 20",
        "-s 5 -N 30 -G 500 -X 0.8 -Q 40",
        "-I 300,40",
        "-I 300.5",
        "-I 200,20,260,150",
    ] {
        assert_same_records(&tools, &reads, BLOCK_BASES, options);
    }
}

#[test]
fn single_reads_are_those_of_bwa_mem() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = test_reads::reads(&tools.genome, 2000, Layout::Single, 11);
    for options in ["", "-a -M -C"] {
        assert_same_records(&tools, &reads, BLOCK_BASES, options);
    }
}

#[test]
fn alternate_contigs_are_treated_as_bwa_treats_them() {
    let Some(tools) = Tools::find_or_skip() else { return };
    fs::write(tools.reference.with_extension("fa.alt"), "chr1_alt\t0\tchr1\n").unwrap();
    let reads = test_reads::reads(&tools.genome, 1500, Layout::Paired, 13);
    let lane = || Lane { reads: &reads, read_group: None, block_bases: BLOCK_BASES };
    for options in ["", "-j", "-a -h 3"] {
        assert_same_records(&tools, &reads, BLOCK_BASES, options);
        let (_, hello) = godwit_lines(&tools, &[lane()], options, false).unwrap();
        assert_eq!(hello.sq_lines, aligner_runner::bwa_sq_lines(&tools, options), "{options}");
        assert_eq!(
            hello.genome.contigs().iter().filter(|contig| contig.alternate).count(),
            usize::from(options != "-j")
        );
    }
}

#[test]
fn reads_of_odd_lengths_are_those_of_bwa_mem() {
    let Some(tools) = Tools::find_or_skip() else { return };
    for layout in [Layout::Paired, Layout::Single] {
        let mut reads = test_reads::reads(&tools.genome, 300, layout, 23);
        for (at, length) in [(0, 1), (1, 0), (4, 0), (5, 0), (6, 19), (7, 30), (9, 2)] {
            reads.all[at].sequence.truncate(length);
            reads.all[at].quality.truncate(length);
        }
        reads.all[20].sequence.fill(b'N');
        reads.all[22].sequence.make_ascii_lowercase();
        assert_same_records(&tools, &reads, BLOCK_BASES, "");
    }
}

#[test]
fn two_processes_share_an_index_and_agree() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = test_reads::reads(&tools.genome, 1000, Layout::Paired, 29);
    let lane = || Lane { reads: &reads, read_group: None, block_bases: BLOCK_BASES };
    let expected = bwa_lines(&tools, &lane(), "");
    std::thread::scope(|scope| {
        let runs = [0, 1].map(|_| scope.spawn(|| godwit_lines(&tools, &[lane()], "", true).unwrap().0));
        for run in runs {
            aligner_runner::assert_equal(&expected, &run.join().unwrap(), "shared index");
        }
    });
}

#[test]
fn reads_that_bwa_cannot_take_are_refused_with_their_place() {
    let Some(tools) = Tools::find_or_skip() else { return };
    type Change = fn(&mut test_reads::Read);
    let changes: [(Change, &str); 4] = [
        (|read| read.sequence[3] = 0xc3, "not a letter"),
        (|read| read.sequence[3] = 2, "not a letter"),
        (|read| read.quality.push(b'I'), "another length"),
        (|read| read.name.push(' '), "white space"),
    ];
    for (change, word) in changes {
        let mut reads = test_reads::reads(&tools.genome, 20, Layout::Paired, 41);
        change(&mut reads.all[5]);
        let error = aligner_runner::align_one_block(&tools, &reads, 0).unwrap_err().to_string();
        assert!(error.contains("read 5") && error.contains(word) && error.contains("status 1"), "{error}");
    }
}

#[test]
fn an_option_that_godwit_sets_is_wrong_usage() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let error = godwit_lines(&tools, &[], "-t 4", false).unwrap_err();
    let godwit_engines::EngineError::Usage { message, .. } = &error else { panic!("{error}") };
    assert!(message.contains("--threads"), "{message}");
}

#[test]
fn a_missing_index_ends_the_program_with_the_message_of_bwa() {
    let Some(mut tools) = Tools::find_or_skip() else { return };
    tools.reference = tools.directory.path().join("none.fa");
    let error = godwit_lines(&tools, &[], "", false).unwrap_err();
    assert!(error.to_string().contains("none.fa.ann"), "{error}");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let output = aligner_runner::run_with_closed_stdout(&tools);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), ""));
}
