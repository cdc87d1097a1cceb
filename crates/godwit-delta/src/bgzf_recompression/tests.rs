use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::rc::Rc;

use godwit_io::bgzf::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA_BYTES};
use proptest::prelude::*;

use super::{BgzfBlockWriter, BgzfTextReader, BlockSpec, SharedCell, decode_block_specs};

/// Returns a BGZF file with blocks of `cut` bytes of text at compression level `level`. The header of the block with
/// index `odd` has a modification time, so that this block cannot be restored from its text.
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

/// Returns the text of a BGZF file and its block specifications.
fn inflate(file: &[u8], threads: usize) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let making: SharedCell<Vec<u8>> = Rc::default();
    let mut text = Vec::new();
    BgzfTextReader::new(file, threads, making.clone()).read_to_end(&mut text)?;
    let entries = making.take();
    Ok((text, entries))
}

fn recompress(text: &[u8], entries: &[u8], threads: usize) -> Option<Vec<u8>> {
    let blocks: SharedCell<VecDeque<BlockSpec>> = Rc::default();
    decode_block_specs(entries, &mut blocks.borrow_mut())?;
    let mut out = BgzfBlockWriter::new(Vec::new(), threads, blocks);
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
        cut in 5_000usize..MAX_BLOCK_DATA_BYTES,
        level in 0u8..=12,
        odd in 8usize..80,
        threads in 1usize..4,
    ) {
        let text = genome(bases);
        let file = compressed(&text, cut, level, odd);
        let (found, entries) = inflate(&file, threads).unwrap();
        prop_assert!(found == text);
        prop_assert!(recompress(&found, &entries, 4 - threads).unwrap() == file);
    }

    #[test]
    fn arbitrary_block_specs_never_panic(
        entries in proptest::collection::vec(any::<u8>(), 0..60),
        small in proptest::collection::vec(0u8..40, 0..60),
        text in 0usize..200_000,
    ) {
        for entries in [entries, small] {
            let blocks: SharedCell<VecDeque<BlockSpec>> = Rc::default();
            if decode_block_specs(&entries, &mut blocks.borrow_mut()).is_some() {
                // The output has a size limit, as a received file has; a longer output fails.
                let mut out = BgzfBlockWriter::new(LimitedWriter(1 << 20), 2, blocks);
                let _ = out.write_all(&genome(text)).and_then(|()| out.finish().map(drop));
            }
        }
    }
}

/// A writer that fails after this number of bytes.
struct LimitedWriter(usize);

impl std::io::Write for LimitedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn files_that_cannot_be_reproduced_are_detected_at_once() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&genome(9)).unwrap();
    let gzip = gzip.finish().unwrap();
    let refused = |file: &[u8]| inflate(file, 2).unwrap_err().to_string();
    assert!(refused(&gzip).contains("gzip"));
    let text = genome(300_000);
    let mut file = compressed(&text, 40_000, 6, 99);
    assert!(refused(&file[..file.len() - 3]).contains("truncated"));
    // Simulate a compressor that sets the modification time in the header of every block.
    let mut at = 0;
    while at < file.len() {
        file[at + 5] = 7;
        at += usize::from(u16::from_le_bytes([file[at + 16], file[at + 17]])) + 1;
    }
    assert!(refused(&file).contains("its compressor is not supported"));
    let told = refused(&compressed(b"no FASTA", 40_000, 6, 99));
    assert!(told.contains("not a FASTA file"), "{told}");
}

#[test]
fn text_without_blocks_and_blocks_without_text_make_no_file() {
    let text = genome(100_000);
    let (_, entries) = inflate(&compressed(&text, 40_000, 6, 99), 1).unwrap();
    assert!(recompress(&text, &entries, 1).is_some());
    assert!(recompress(&text[..50_000], &entries, 1).is_none());
    assert!(recompress(&[&text[..], b"A"].concat(), &entries, 1).is_none());
    assert!(recompress(&text, &[], 1).is_none());
}
