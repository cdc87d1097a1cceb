//! Tests of the positions at which blocks and batches end.

use super::*;

fn block_sizes(files: &[PathBuf], block_bases: u64) -> Vec<(u64, u64)> {
    read_lane(files, &LaneOptions { block_bases, ..strict_options() }).expect("files are sound").blocks
}

#[test]
fn a_block_ends_with_the_base_that_reaches_its_size() {
    let files = TestDirectory::new();
    let file = [files.write("reads.fq", fastq_text(7, &[50]))];
    assert_eq!(block_sizes(&file, 100), [(2, 100), (2, 100), (2, 100), (1, 50)]);
    assert_eq!(block_sizes(&file, 101), [(4, 200), (3, 150)]);
    assert_eq!(block_sizes(&file, 1_000), [(7, 350)]);
    assert_eq!(block_sizes(&file, 1), [(2, 100), (2, 100), (2, 100), (1, 50)]);
}

#[test]
fn a_block_of_single_reads_holds_an_even_number_of_them() {
    let files = TestDirectory::new();
    let file = [files.write("reads.fq", fastq_text(6, &[30, 5, 65]))];
    // The first three reads have 30+5+65 = 100 bases; the fourth read makes the number of reads even.
    assert_eq!(block_sizes(&file, 100), [(4, 130), (2, 70)]);
}

#[test]
fn both_mates_count_and_stay_together() {
    let files = TestDirectory::new();
    let paths = [files.write("1.fq", fastq_text(5, &[31])), files.write("2.fq", fastq_text(5, &[20]))];
    assert_eq!(block_sizes(&paths, 100), [(4, 102), (4, 102), (2, 51)]);
    assert_eq!(block_sizes(&paths, 51), [(2, 51); 5]);
    let lane = read_lane(&paths, &LaneOptions { batch_bytes: 1, ..strict_options() }).expect("files are sound");
    assert!(lane.batches.iter().all(|batch| batch.num_rows() == 2));
    assert!(lane.reads.chunks(2).all(|pair| pair[0].name == pair[1].name));
    assert!(lane.reads.chunks(2).all(|pair| (pair[0].sequence.len(), pair[1].sequence.len()) == (31, 20)));
}

#[test]
fn an_input_that_ends_with_a_block_has_no_empty_one_behind_it() {
    let files = TestDirectory::new();
    let file = [files.write("reads.fq", fastq_text(4, &[50]))];
    assert_eq!(block_sizes(&file, 100), [(2, 100), (2, 100)]);
    let lane = read_lane(&file, &LaneOptions { block_bases: 100, batch_bytes: 1, ..strict_options() })
        .expect("the file is sound");
    assert_eq!((lane.batches.len(), lane.blocks.len()), (4, 2));
}

#[test]
fn reads_without_bases_make_a_block_of_their_own_at_the_end() {
    let files = TestDirectory::new();
    let file = [files.write("reads.fq", fastq_text(3, &[50, 50, 0]))];
    assert_eq!(block_sizes(&file, 100), [(2, 100), (1, 0)]);
}

#[test]
fn batches_are_about_as_large_as_asked_and_do_not_change_the_reads() {
    let files = TestDirectory::new();
    let file = [files.write("reads.fq", fastq_text(5_000, &[100]))];
    let whole = read_lane(&file, &strict_options()).expect("the file is sound");
    assert_eq!(whole.batches.len(), 1);
    let cut = read_lane(&file, &LaneOptions { batch_bytes: 10_000, ..strict_options() }).expect("the file is sound");
    assert_eq!((&cut.reads, &cut.blocks), (&whole.reads, &whole.blocks));
    assert!(cut.batches.len() > 100);
    for batch in &cut.batches[..cut.batches.len() - 1] {
        let bytes: usize = rows(batch).iter().map(|read| read.name.len() + 2 * read.sequence.len()).sum();
        assert!((10_000..10_000 + 220).contains(&bytes), "{bytes}");
    }
}
