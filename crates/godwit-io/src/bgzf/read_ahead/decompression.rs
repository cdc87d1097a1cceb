//! The work of the read-ahead thread of a [`ReadAhead`](super::ReadAhead): detects the format of the file from its
//! content, and decompresses the file.

use libdeflater::Decompressor;

use super::{BAM_MAGIC, ExpectedFormat, TextSender, UNSUPPORTED_MAGICS};
use crate::bgzf::access_point::{AccessPoint, AccessPointKind, ResumePoint};
use crate::bgzf::error::InputError;
use crate::bgzf::parallel_inflate::{inflate_blocks, peek_block};
use crate::bgzf::peek_reader::PeekReader;
use crate::bgzf::{block, gzip};

/// Decompresses a file from its start to its end.
pub(super) fn decompress_file(
    source: &mut PeekReader,
    sender: &mut TextSender,
    threads: usize,
    expected_format: ExpectedFormat,
) -> Result<(), InputError> {
    let accept = match expected_format {
        ExpectedFormat::Any { .. } if peek_is_bam(source)? => ExpectedFormat::Bgzf,
        ExpectedFormat::Any { lenient } => ExpectedFormat::Text { lenient },
        accept => accept,
    };
    if accept == ExpectedFormat::Bgzf {
        sender.recorder = None;
        source.mark_compressed();
        source.mark_bgzf();
        // The result is dropped, because only the end of the file can follow the blocks; other data is an error.
        return inflate_blocks(source, sender, threads, accept).map(drop);
    }
    let start = source.peek(8)?;
    if let Some(&(_, format)) = UNSUPPORTED_MAGICS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Err(InputError::Unsupported { format });
    }
    if !start.starts_with(&gzip::GZIP_MAGIC) {
        return copy_plain_text(source, sender);
    }
    source.mark_compressed();
    inflate_blocks_and_members(source, sender, threads, accept)
}

/// Decompresses the BGZF blocks at the current position, then the other gzip members that follow.
fn inflate_blocks_and_members(
    source: &mut PeekReader,
    sender: &mut TextSender,
    threads: usize,
    expected_format: ExpectedFormat,
) -> Result<(), InputError> {
    if peek_block(source)?.is_some()
        && inflate_blocks(source, sender, threads, expected_format)? == gzip::NextSection::EndOfFile
    {
        return Ok(());
    }
    gzip::inflate_members(source, sender)
}

/// Decompresses the text of a file from the access point of a resume point on.
pub(super) fn decompress_from_resume_point(
    resume_point: &ResumePoint,
    source: &mut PeekReader,
    sender: &mut TextSender,
    threads: usize,
    expected_format: ExpectedFormat,
) -> Result<(), InputError> {
    let accept = ExpectedFormat::Text {
        lenient: matches!(
            expected_format,
            ExpectedFormat::Text { lenient: true } | ExpectedFormat::Any { lenient: true }
        ),
    };
    source.resume_at(resume_point)?;
    let AccessPoint { kind, window, .. } = &resume_point.access_point;
    if *kind != AccessPointKind::Plain {
        source.mark_compressed();
    }
    match kind {
        AccessPointKind::Plain => copy_plain_text(source, sender),
        AccessPointKind::BgzfBlock => inflate_blocks_and_members(source, sender, threads, accept),
        AccessPointKind::GzipMember => gzip::inflate_members(source, sender),
        AccessPointKind::DeflateBlock(within) => gzip::inflate_from_state(within, window, source, sender),
    }
}

/// Returns whether the next bytes are a BGZF block whose data starts with the magic number of BAM.
fn peek_is_bam(source: &mut PeekReader) -> Result<bool, InputError> {
    if !source.peek(gzip::GZIP_MAGIC.len())?.starts_with(&gzip::GZIP_MAGIC) {
        return Ok(false);
    }
    let Some(block_bytes) = peek_block(source)? else { return Ok(false) };
    let block = &source.peek(block_bytes)?[..block_bytes];
    let mut text = vec![0; block::parse_data_length(block).unwrap_or_default()];
    Ok(block::inflate_block(&mut Decompressor::new(), block, &mut text) && text.starts_with(BAM_MAGIC))
}

fn copy_plain_text(source: &mut PeekReader, sender: &mut TextSender) -> Result<(), InputError> {
    loop {
        if sender.is_access_point_due() {
            sender.send_access_point(source.offset(), AccessPointKind::Plain, Vec::new())?;
        }
        match source.read(sender.unfilled_buffer())? {
            0 => return Ok(()),
            count => sender.advance(count)?,
        }
    }
}
