//! Entry points for `godwit-fuzz` to private parsers of this crate, which read bytes that another program may have
//! changed.

use std::fs;
use std::io;
use std::path::Path;

use godwit_files::{AtomicFile, Journal, line_checksum};
use godwit_model::BlockId;

use crate::job_directory::{DIRECTORY_NAME, JobDirectory, JobDirectoryState};
use crate::journal::AlignJournalEntry;

/// Writes a job directory into `out`, resumes its job and reads all checkpoints. `lines`: journal entries as lines of
/// JSON, to which this function adds checksums. `blocks`, `parts` and `windows`: contents of the data files.
///
/// # Errors
/// The I/O error that opening or reading the job directory returns.
pub fn resume_job_directory(out: &Path, lines: &[u8], blocks: &[u8], parts: &[u8], windows: &[u8]) -> io::Result<()> {
    let directory = out.join(DIRECTORY_NAME);
    fs::create_dir_all(&directory)?;
    let mut journal = Vec::new();
    for text in lines.split(|byte| *byte == b'\n') {
        let text = with_checksum(text, blocks, windows);
        journal.extend_from_slice(line_checksum(&text).as_bytes());
        journal.extend([&b" "[..], &text, b"\n"].concat());
    }
    fs::write(directory.join("journal"), journal)?;
    fs::write(directory.join("blocks"), blocks)?;
    fs::write(directory.join("parts"), parts)?;
    fs::write(directory.join("windows"), windows)?;
    let entries = Journal::open(&directory.join("journal"))?.1;
    // Stop if the journal names a data directory outside `out`, because resuming would create and use it.
    if entries.iter().any(|entry| matches!(entry, AlignJournalEntry::Start { data_directory: Some(_), .. })) {
        return Ok(());
    }
    let Some(AlignJournalEntry::Start { fingerprint, temporary_names, cluster_run, .. }) = entries.first() else {
        return Ok(());
    };
    let opened = JobDirectory::open(out, None, fingerprint, temporary_names, cluster_run.clone(), true)
        .map_err(io::Error::other)?;
    let JobDirectoryState::Open(run) = opened else { return Ok(()) };
    for block in run.block_checkpoints() {
        block?;
    }
    for lane in 0..4 {
        run.latest_block_start(BlockId { lane, ordinal: BlockId::MAX_BLOCKS })?;
    }
    let file = AtomicFile::create(&out.join("file"))?;
    for index in 0..4 {
        run.restore_partition(index, &file)?;
    }
    run.discard(temporary_names);
    Ok(())
}

/// Replaces the checksum in a journal line by the checksum of the bytes in `blocks` or `windows` to which the line
/// refers, because a fuzzer cannot guess a checksum.
fn with_checksum(text: &[u8], blocks: &[u8], windows: &[u8]) -> Vec<u8> {
    let checksum_of = |bytes: &[u8], offset: u64, sizes: &[u64]| {
        let length = sizes.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes))?;
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        Some(blake3::hash(bytes.get(offset..offset.checked_add(length)?)?).to_hex().to_string())
    };
    let mended = serde_json::from_slice(text).ok().and_then(|mut entry| {
        match &mut entry {
            AlignJournalEntry::Block(block) => {
                block.checksum = checksum_of(blocks, block.offset, &block.sizes())?;
            }
            AlignJournalEntry::BlockStart(start) => {
                let sizes: Vec<u64> = start.window_bytes.iter().map(|bytes| u64::from(*bytes)).collect();
                start.window_checksum = checksum_of(windows, start.window_offset, &sizes)?;
            }
            _ => return None,
        }
        serde_json::to_vec(&entry).ok()
    });
    mended.unwrap_or_else(|| text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::BlockEntry;

    #[test]
    fn the_checksum_of_a_block_covers_all_its_sections() {
        let block = BlockEntry {
            id: BlockId { lane: 0, ordinal: 0 },
            reads: 1,
            reads_checksum: String::new(),
            records: 1,
            longest_bases: 1,
            counts: Vec::new(),
            offset: 1,
            frame_bytes: 1,
            pair_bytes: 2,
            end_bytes: 3,
            table_bytes: 4,
            template_bytes: 5,
            barcode_bytes: 6,
            checksum: String::new(),
        };
        let blocks: Vec<u8> = (0..30).collect();
        let line = serde_json::to_vec(&AlignJournalEntry::Block(block.clone())).unwrap();
        let checksum = blake3::hash(&blocks[1..22]).to_hex().to_string();
        let expected = AlignJournalEntry::Block(BlockEntry { checksum, ..block });
        assert_eq!(with_checksum(&line, &blocks, &[]), serde_json::to_vec(&expected).unwrap());
    }
}
