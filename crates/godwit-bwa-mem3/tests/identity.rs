//! Compares with `bwa mem -K` 0.7.17, line for line.
//!
//! Lines are compared as text: our packed records go through `samtools view`. Tests without a required tool print that and pass.
#![allow(clippy::unwrap_used)] // A test may panic.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

#[path = "../../godwit-bwa/tests/identity/aligner_runner.rs"]
mod aligner_runner;
#[path = "../../godwit-bwa/tests/identity/common_tests.rs"]
mod common_tests;
#[path = "../../godwit-bwa/tests/identity/test_reads.rs"]
mod test_reads;

use std::fs;
use std::path::Path;

use aligner_runner::{Lane, Tools, godwit_lines};
use common_tests::{BLOCK_BASES, assert_same_records};
use godwit_engines::aligner::bwa::IndexKind;
use godwit_engines::aligner::bwa::fm_index::{self, SampleStride};
use test_reads::{Layout, Random};

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_godwit-bwa-mem3");
/// Name of the program, and name and version of the linked library.
const PROGRAM_NAME: &str = "godwit-bwa-mem3";
const ENGINE_NAME: &str = "bwa-mem3";
const ENGINE_VERSION: &str = "0.15.0";
/// Kind of its index.
const INDEX_KIND: IndexKind = IndexKind::BwaMem3;
fn make_index(reference: &Path) {
    let file = fs::File::create(fm_index::index_path(reference)).unwrap();
    fm_index::convert_bwa_index(reference, SampleStride::EVERY_8, 1, file).unwrap().unwrap();
}

#[test]
fn paired_reads_under_all_options_are_those_of_bwa_mem() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let reads = test_reads::reads(&tools.genome, 2000, Layout::Paired, 7);
    for options in [
        "",
        "-M -Y",
        "-MC",
        "-5",
        "-q",
        "-S",
        "-P",
        "-SP",
        "-x intractg",
        "-k15 -w 50 -d 50 -r 1.2 -y 10 -c 100 -D 0.3 -m 5",
        "-B 3 -O 5,7 -E 2,1 -L 3,6 -U 10 -T 20",
        "-s 5 -N 30 -G 500 -X 0.8 -Q 40",
        "-h 2,10",
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
    for options in ["", "-M -C", "-Y -5"] {
        assert_same_records(&tools, &reads, BLOCK_BASES, options);
    }
}

#[test]
fn alternate_contigs_are_treated_as_bwa_treats_them() {
    let Some(tools) = Tools::find_or_skip() else { return };
    fs::write(tools.reference.with_extension("fa.alt"), "chr1_alt\t0\tchr1\n").unwrap();
    let reads = test_reads::reads(&tools.genome, 1500, Layout::Paired, 13);
    let single = test_reads::reads(&tools.genome, 1500, Layout::Single, 13);
    let lane = || Lane { reads: &reads, read_group: None, block_bases: BLOCK_BASES };
    for options in ["", "-j", "-M -h 3", "-Y -5"] {
        assert_same_records(&tools, &reads, BLOCK_BASES, options);
        assert_same_records(&tools, &single, BLOCK_BASES, options);
        let (_, hello) = godwit_lines(&tools, &[lane()], options, false).unwrap();
        assert_eq!(hello.sq_lines, aligner_runner::bwa_sq_lines(&tools, options), "{options}");
        assert_eq!(
            hello.genome.contigs().iter().filter(|contig| contig.alternate).count(),
            usize::from(options != "-j")
        );
    }
}

#[test]
fn blocks_of_many_kernel_batches_are_those_of_bwa_mem() {
    let Some(tools) = Tools::find_or_skip() else { return };
    for layout in [Layout::Paired, Layout::Single] {
        let reads = test_reads::reads(&tools.genome, 6000, layout, 53);
        assert_same_records(&tools, &reads, 400_000, "");
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
        // Runs of N, letters that are not bases, and an adapter that nothing aligns to.
        reads.all[24].sequence[10..60].fill(b'N');
        reads.all[26].sequence[5] = b'R';
        for read in reads.all[30..60].iter_mut().step_by(3) {
            let keep = read.sequence.len() / 2;
            let adapter = b"AGATCGGAAGAGCACACGTCTGAACTCCAGTCAC".iter().cycle();
            read.sequence.iter_mut().skip(keep).zip(adapter).for_each(|(base, adapter)| *base = *adapter);
        }
        assert_same_records(&tools, &reads, BLOCK_BASES, "");
    }
}

/// The library's buffers are initially sized for short reads.
#[test]
fn reads_of_36_to_1000_bases_are_those_of_bwa_mem() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let mut random = Random::new(59);
    for layout in [Layout::Paired, Layout::Single] {
        let mut reads = test_reads::reads(&tools.genome, 400, layout, 61);
        for read in &mut reads.all {
            let bases = [36, 75, 151, 152, 250, 300, 600, 1000][random.next_below(8)];
            let (_, contig) = &tools.genome[[0, 0, 1, 3][random.next_below(4)]];
            let start = random.next_below(contig.len() - bases);
            read.sequence = contig[start..start + bases].to_vec();
            for _ in 0..bases / 60 {
                let at = random.next_below(bases);
                read.sequence[at] = b"ACGT"[random.next_below(4)];
            }
            read.quality = vec![b'F'; bases];
        }
        assert_same_records(&tools, &reads, 60_000, "");
    }
}

/// A genome without N, and reads from its first and last bases: the walk through a sampled suffix array ends there at the
/// start of the text.
#[test]
fn reads_at_the_very_ends_of_the_genome_are_those_of_bwa_mem() {
    if Tools::find_or_skip().is_none() {
        return;
    }
    let mut random = Random::new(67);
    let genome: Vec<u8> = (0..3000).map(|_| b"ACGT"[random.next_below(4)]).collect();
    let tools = Tools::with_genome(vec![("only", genome.clone())]);
    let mut reads = test_reads::reads(&vec![("only", genome.clone()); 4], 121, Layout::Single, 71);
    for (at, read) in reads.all.iter_mut().enumerate() {
        let start = if at < 60 { at } else { genome.len() - 160 + at - 60 };
        let end = (start + 100).min(genome.len());
        read.sequence = genome[start..end].to_vec();
        read.quality = vec![b'I'; end - start];
    }
    assert_same_records(&tools, &reads, BLOCK_BASES, "");
}

#[test]
fn options_that_would_give_other_records_are_refused_by_name() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let refused =
        [("-A 2", "-A"), ("-x ont2d", "-x ont2d"), ("-a", "-a"), ("-V", "-V"), ("-W 30", "-W"), ("-t 4", "--threads")];
    for (options, word) in refused {
        let error = godwit_lines(&tools, &[], options, false).unwrap_err();
        let godwit_engines::EngineError::Usage { message, .. } = &error else { panic!("{error}") };
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn reads_that_no_record_can_hold_are_refused_with_their_place() {
    let Some(tools) = Tools::find_or_skip() else { return };
    type Change = fn(&mut test_reads::Read);
    let changes: [(Change, &str); 5] = [
        (|read| read.sequence[3] = 0xc3, "not a letter"),
        (|read| read.quality.push(b'I'), "another length"),
        (|read| read.name.push(' '), "white space"),
        (|read| read.quality[3] = 0xc3, "quality"),
        (|read| read.name = "n".repeat(255), "254"),
    ];
    for (change, word) in changes {
        let mut reads = test_reads::reads(&tools.genome, 20, Layout::Single, 41);
        change(&mut reads.all[5]);
        let error = aligner_runner::align_one_block(&tools, &reads, 0).unwrap_err().to_string();
        assert!(error.contains("read 5") && error.contains(word) && error.contains("status 1"), "{error}");
    }
}

/// Changes a file, checks that the index is rejected with that file's name, and restores the file.
fn assert_index_rejected(tools: &Tools, extension: &str, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
    let path = tools.reference.with_extension(format!("fa.{extension}"));
    let whole = fs::read(&path).unwrap();
    match change(whole.clone()) {
        Some(changed) => fs::write(&path, changed).unwrap(),
        None => fs::remove_file(&path).unwrap(),
    }
    let error = godwit_lines(tools, &[], "", false).unwrap_err().to_string();
    let name = format!("ref.fa.{extension}");
    assert!(error.contains(&name) && error.contains("status 1"), "{error}");
    fs::write(&path, whole).unwrap();
}

#[test]
fn an_index_that_is_missing_cut_or_of_another_reference_is_refused_by_name() {
    let Some(tools) = Tools::find_or_skip() else { return };
    for extension in ["amb", "ann", "pac", "bwt.2bit.64"] {
        assert_index_rejected(&tools, extension, |_| None);
        assert_index_rejected(&tools, extension, |whole| Some(whole[..whole.len() / 2].to_vec()));
        assert_index_rejected(&tools, extension, |_| Some(Vec::new()));
    }
    assert_index_rejected(&tools, "bwt.2bit.64", |whole| Some(whole[..whole.len() - 1].to_vec()));
    let other = Tools::with_genome(vec![("other", b"ACGTTGCAAC".repeat(50)); 1]);
    let table = fs::read(other.reference.with_extension("fa.bwt.2bit.64")).unwrap();
    assert_index_rejected(&tools, "bwt.2bit.64", |_| Some(table));
    assert_eq!(godwit_lines(&tools, &[], "", false).unwrap().0, "");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_without_a_message_of_its_own() {
    let Some(tools) = Tools::find_or_skip() else { return };
    let output = aligner_runner::run_with_closed_stdout(&tools);
    assert_eq!(output.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("error:"), "{output:?}");
}
