//! Parsers of outside bytes that have no name of their own outside of this crate, for `godwit-fuzz`.

use std::fs;
use std::io;
use std::path::Path;

use godwit_model::BlockId;

use crate::journal::{Entry, Journal, checksum};
use crate::run_directory::{NAME, Opened, RunDirectory};
use crate::staging::StagedFile;

/// Goes on with the run in `out`, whose journal has these lines of JSON, each given the checksum that it lacks, and whose
/// data is `blocks`, `parts` and `windows`. Asks for everything that was kept.
///
/// # Errors
/// Those of the run directory.
pub fn take_over(out: &Path, lines: &[u8], blocks: &[u8], parts: &[u8], windows: &[u8]) -> io::Result<()> {
    let directory = out.join(NAME);
    fs::create_dir_all(&directory)?;
    let mut journal = Vec::new();
    for text in lines.split(|byte| *byte == b'\n') {
        let text = with_checksum(text, blocks, windows);
        journal.extend_from_slice(checksum(&text).as_bytes());
        journal.extend([&b" "[..], &text, b"\n"].concat());
    }
    fs::write(directory.join("journal"), journal)?;
    fs::write(directory.join("blocks"), blocks)?;
    fs::write(directory.join("parts"), parts)?;
    fs::write(directory.join("windows"), windows)?;
    let entries = Journal::open(&directory.join("journal"))?.1;
    // Directories elsewhere are made and used in earnest.
    if entries.iter().any(|entry| matches!(entry, Entry::Start { data: Some(_), .. })) {
        return Ok(());
    }
    let Some(Entry::Start { facts, aside, over_nodes, .. }) = entries.first() else { return Ok(()) };
    let opened = RunDirectory::open(out, None, facts, aside, over_nodes.clone(), true).map_err(io::Error::other)?;
    let Opened::Run(run) = opened else { return Ok(()) };
    for block in run.kept_blocks() {
        block?;
    }
    for lane in 0..4 {
        run.block_start(BlockId { lane, ordinal: BlockId::MAX_BLOCKS })?;
    }
    let file = StagedFile::create(&out.join("file"))?;
    for index in 0..4 {
        run.kept_partition(index, &file)?;
    }
    run.discard(aside);
    Ok(())
}

/// A line that is of a block, with the checksum that its stretch of `blocks` or of `windows` has; nobody guesses one.
fn with_checksum(text: &[u8], blocks: &[u8], windows: &[u8]) -> Vec<u8> {
    let checksum_of = |bytes: &[u8], offset: u64, sizes: &[u64]| {
        let length = sizes.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes))?;
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        Some(blake3::hash(bytes.get(offset..offset.checked_add(length)?)?).to_hex().to_string())
    };
    let mended = serde_json::from_slice(text).ok().and_then(|mut entry| {
        match &mut entry {
            Entry::Block(block) => {
                let sizes = [block.frame_bytes, block.pair_bytes, block.end_bytes, block.table_bytes];
                block.checksum = checksum_of(blocks, block.offset, &sizes)?;
            }
            Entry::BlockStart(start) => {
                let sizes: Vec<u64> = start.window_bytes.iter().map(|bytes| u64::from(*bytes)).collect();
                start.window_checksum = checksum_of(windows, start.window_offset, &sizes)?;
            }
            _ => return None,
        }
        serde_json::to_vec(&entry).ok()
    });
    mended.unwrap_or_else(|| text.to_vec())
}
