use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::rc::Rc;

use godwit_formats::bgzf::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA};
use proptest::prelude::*;

use super::may_be_genome;
use super::pieces::{Last, Piece};
use super::remade::{BlockWriter, Shared, TextReader, ToMake, read_entries};

/// A BGZF file; `cut` says how long blocks are, `level` how they are made. Blocks whose number is `odd` have a time in their header, which is never made again.
fn compressed(text: &[u8], cut: usize, level: u8, odd: usize) -> Vec<u8> {
    let mut file = Vec::new();
    let mut compressor = BlockCompressor::new(level);
    for (number, data) in text.chunks(cut).enumerate() {
        let start = file.len();
        compressor.compress(data, &mut file);
        if number == odd {
            file[start + 5] = 7;
        }
    }
    file.extend(EOF_BLOCK);
    file
}

/// Text and entries about blocks, as they are read in small pieces.
fn taken_apart(file: &[u8], threads: usize) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let making: Shared<Vec<u8>> = Rc::default();
    let mut text = Vec::new();
    TextReader::new(file, threads, making.clone()).read_to_end(&mut text)?;
    let entries = making.take();
    Ok((text, entries))
}

fn made_again(text: &[u8], entries: &[u8], threads: usize) -> Option<Vec<u8>> {
    let blocks: Shared<VecDeque<ToMake>> = Rc::default();
    read_entries(entries, &mut blocks.borrow_mut())?;
    let mut out = BlockWriter::new(Vec::new(), threads, blocks);
    text.chunks(77_777).try_for_each(|some| out.write_all(some)).ok()?;
    out.finish().ok()
}

fn genome(bases: usize) -> Vec<u8> {
    let letters = (0..bases as u32).map(|at| b"ACGT"[(at.wrapping_mul(2_654_435_761) >> 30) as usize]);
    [b">x\n".to_vec(), letters.collect()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn bgzf_comes_back_byte_by_byte_whatever_its_level_and_threads(
        bases in 1usize..300_000,
        cut in 5_000usize..MAX_BLOCK_DATA,
        level in 0u8..=12,
        odd in 8usize..80,
        threads in 1usize..4,
    ) {
        let text = genome(bases);
        let file = compressed(&text, cut, level, odd);
        let (found, entries) = taken_apart(&file, threads).unwrap();
        prop_assert!(found == text);
        prop_assert!(made_again(&found, &entries, 4 - threads).unwrap() == file);
    }

    #[test]
    fn entries_that_somebody_made_up_make_nothing_or_something_but_never_a_panic(
        entries in proptest::collection::vec(any::<u8>(), 0..60),
        small in proptest::collection::vec(0u8..40, 0..60),
        text in 0usize..200_000,
    ) {
        for entries in [entries, small] {
            let blocks: Shared<VecDeque<ToMake>> = Rc::default();
            if read_entries(&entries, &mut blocks.borrow_mut()).is_some() {
                // Who writes it ends a file that grows beyond its size.
                let mut out = BlockWriter::new(Limited(1 << 20), 2, blocks);
                let _ = out.write_all(&genome(text)).and_then(|()| out.finish().map(drop));
            }
        }
    }
}

struct Limited(usize);

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_comes_back_as_another_file_is_found_out_at_once() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&genome(9)).unwrap();
    let gzip = gzip.finish().unwrap();
    let refused = |file: &[u8]| taken_apart(file, 2).unwrap_err().to_string();
    assert!(refused(&gzip).contains("gzip"));
    let text = genome(300_000);
    let mut file = compressed(&text, 40_000, 6, 99);
    assert!(refused(&file[..file.len() - 3]).contains("cut short"));
    // What made it sets a time in every header.
    let mut at = 0;
    while at < file.len() {
        file[at + 5] = 7;
        at += usize::from(u16::from_le_bytes([file[at + 16], file[at + 17]])) + 1;
    }
    assert!(refused(&file).contains("otherwise"));
    let told = refused(&compressed(b"no FASTA", 40_000, 6, 99));
    assert!(told.contains("no FASTA"), "{told}");
}

#[test]
fn text_without_blocks_and_blocks_without_text_make_no_file() {
    let text = genome(100_000);
    let (_, entries) = taken_apart(&compressed(&text, 40_000, 6, 99), 1).unwrap();
    assert!(made_again(&text, &entries, 1).is_some());
    assert!(made_again(&text[..50_000], &entries, 1).is_none());
    assert!(made_again(&[&text[..], b"A"].concat(), &entries, 1).is_none());
    assert!(made_again(&text, &[], 1).is_none());
}

#[test]
fn pieces_come_as_they_were_sent() {
    let last = Last::Whole { bytes: 5, blake3: "00".to_owned() };
    for last in [None, Some(last), Some(Last::Unsuited { why: "so".to_owned() })] {
        let piece = Piece { packed: vec![1, 2], making: vec![3], last };
        let (batch, said) = piece.to_batch().unwrap();
        assert_eq!(Piece::of(&batch, &said).unwrap(), piece);
    }
    let (batch, _) = Piece::default().to_batch().unwrap();
    assert!(Piece::of(&batch.slice(0, 0), &[]).is_err() && Piece::of(&batch, b"?").is_err());
}

#[test]
fn genomes_are_known_by_their_names() {
    for name in ["a/b.fa", "x.FASTA.gz", "y.fna.bgz", "z.fsa"] {
        assert!(may_be_genome(name, 1 << 20), "{name}");
        assert!(!may_be_genome(name, 1 << 10), "{name} is short");
    }
    for name in ["fa", "fa.gz", "a.bam", "a.fq.gz", "a.fa.fai", "a.fa.zst"] {
        assert!(!may_be_genome(name, 1 << 20), "{name}");
    }
}
