//! Gzip members (RFC 1952), read strictly: every checksum, every length, and nothing between or after members but the
//! zero padding that gzip itself tolerates.

use flate2::{Decompress, FlushDecompress, Status};

use super::error::Fault;
use super::read_ahead::Chunks;
use super::source::Source;

/// First bytes of a member.
pub(super) const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The largest window, which every member fits.
const WINDOW_BITS: u8 = 15;

/// What stands after a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another member.
    Member,
    /// Nothing, or zeros up to the end of the file.
    End,
}

/// Decompresses members up to the end of the file; the source stands at the first.
pub(super) fn inflate_members(source: &mut Source, chunks: &mut Chunks) -> Result<(), Fault> {
    loop {
        inflate_member(source, chunks)?;
        if next(source)? == Next::End {
            return Ok(());
        }
    }
}

/// Looks at what stands after a member.
pub(super) fn next(source: &mut Source) -> Result<Next, Fault> {
    let ahead = source.peek(MAGIC.len())?;
    if ahead.starts_with(&MAGIC) {
        return Ok(Next::Member);
    }
    loop {
        let ahead = source.peek(1)?;
        if ahead.is_empty() {
            return Ok(Next::End);
        }
        let zeros = ahead.iter().take_while(|&&byte| byte == 0).count();
        let whole = zeros == ahead.len();
        source.consume(zeros);
        if !whole {
            return Err(Fault::Garbage { offset: source.offset() });
        }
    }
}

fn inflate_member(source: &mut Source, chunks: &mut Chunks) -> Result<(), Fault> {
    let mut inflate = Decompress::new_gzip(WINDOW_BITS);
    loop {
        let ahead = source.peek(1)?;
        let at_end = ahead.is_empty();
        let (total_in, total_out) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(ahead, chunks.space(), FlushDecompress::None);
        // Both are bounded by the lengths of the slices above.
        let consumed = (inflate.total_in() - total_in) as usize;
        let produced = (inflate.total_out() - total_out) as usize;
        source.consume(consumed);
        chunks.advance(produced)?;
        let corrupt = |detail: &str| Fault::Corrupt { offset: source.offset(), detail: detail.to_owned() };
        match status {
            Ok(Status::StreamEnd) => return Ok(()),
            Ok(_) if consumed + produced > 0 => {}
            Ok(_) if at_end => return Err(Fault::Truncated { offset: source.offset() }),
            Ok(_) => return Err(corrupt("the decoder makes no progress")),
            Err(error) => return Err(corrupt(error.message().unwrap_or("invalid compressed data"))),
        }
    }
}
