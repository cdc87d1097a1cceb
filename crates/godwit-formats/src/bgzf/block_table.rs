//! The table of the blocks of a BGZF file: the offset of each, in the file and in its text.
//!
//! Flows in: a file, of which only the headers and ends of its blocks are read. Flows out: virtual offsets for offsets in
//! the text, the `.gzi` index that `bgzip --index` writes for other programs, and the text itself at any offset
//! ([`BgzfText`]).

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES};
use super::error::{BgzfError, InputError};
use super::reader::BgzfBufRead as _;
use super::seek_reader::{SeekReader, VirtualOffset};
use crate::random_access::RandomAccess;

/// Bytes of a block's header as all known writers write it.
const USUAL_HEADER_BYTES: usize = 18;
/// Bytes of the length at the end of a block.
const ISIZE_BYTES: usize = 4;

/// Offsets of the blocks of a BGZF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Offset in the file and offset in the text of each block that has text, both ascending.
    block_offsets: Vec<(u64, u64)>,
    text_bytes: u64,
}

impl BlockTable {
    /// Reads the header and the length of every block of a file, not the compressed data.
    ///
    /// # Errors
    /// [`BgzfError::NotBgzf`] where the file does not start with a block, [`BgzfError::Corrupt`] and
    /// [`BgzfError::Truncated`] for damage, [`BgzfError::Io`] where reading fails.
    pub fn read(source: &Arc<dyn RandomAccess>) -> Result<Self, BgzfError> {
        Self::try_read(source).map_err(|error| error.into_bgzf_error(source.path()))
    }

    fn try_read(source: &Arc<dyn RandomAccess>) -> Result<Self, InputError> {
        let mut table = Self::default();
        let mut offset = 0;
        while offset < source.byte_len() {
            let bytes = read_block_length(source, offset)? as u64;
            if offset + bytes > source.byte_len() {
                return Err(InputError::Truncated { offset: source.byte_len() });
            }
            let length = read_bytes_at(source, offset + bytes - ISIZE_BYTES as u64, ISIZE_BYTES)?;
            let text_bytes = block::parse_data_length(&length).ok_or_else(|| {
                let detail = "BGZF block of more than 64 KiB of data".to_owned();
                InputError::Corrupt { offset, detail }
            })?;
            if text_bytes > 0 {
                table.block_offsets.push((offset, table.text_bytes));
                table.text_bytes += text_bytes as u64;
            }
            offset += bytes;
        }
        if table.block_offsets.is_empty() && source.byte_len() < EOF_BLOCK.len() as u64 {
            return Err(InputError::NotCompressed { offset: 0 });
        }
        Ok(table)
    }

    /// Returns the block and the offset within it of a byte of the text; `None` at its end and beyond.
    pub fn virtual_offset(&self, text_offset: u64) -> Option<VirtualOffset> {
        let block = self.block_offsets.partition_point(|(_, text)| *text <= text_offset).checked_sub(1)?;
        let (start, text) = self.block_offsets[block];
        (text_offset < self.text_bytes).then(|| start << 16 | (text_offset - text))
    }

    /// Writes the `.gzi` index as bgzip 1.16 does: a count, and the two offsets of every block but the first.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_gzi(&self, mut out: impl Write) -> io::Result<()> {
        let after_first = self.block_offsets.get(1..).unwrap_or_default();
        out.write_all(&(after_first.len() as u64).to_le_bytes())?;
        for (start, text) in after_first {
            out.write_all(&start.to_le_bytes())?;
            out.write_all(&text.to_le_bytes())?;
        }
        Ok(())
    }
}

/// The text of a BGZF file, for reading at any offset.
#[derive(Clone, Debug)]
pub struct BgzfText {
    source: Arc<dyn RandomAccess>,
    blocks: Arc<BlockTable>,
}

impl BgzfText {
    /// Creates the text of a file that has these blocks.
    pub fn new(source: Arc<dyn RandomAccess>, blocks: Arc<BlockTable>) -> Self {
        Self { source, blocks }
    }
}

impl RandomAccess for BgzfText {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn byte_len(&self) -> u64 {
        self.blocks.text_bytes
    }

    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(virtual_offset) = self.blocks.virtual_offset(offset) else { return Ok(0) };
        let mut reader = SeekReader::new(self.source.clone());
        reader.seek(virtual_offset).map_err(io::Error::other)?;
        let mut filled = 0;
        while filled < space.len() {
            let data = reader.data().map_err(io::Error::other)?;
            if data.is_empty() {
                break;
            }
            let count = data.len().min(space.len() - filled);
            space[filled..filled + count].copy_from_slice(&data[..count]);
            reader.consume(count);
            filled += count;
        }
        Ok(filled)
    }
}

/// Returns whether a file starts with a BGZF block.
///
/// # Errors
/// [`BgzfError::Io`] where reading fails.
pub fn starts_with_block(source: &Arc<dyn RandomAccess>) -> Result<bool, BgzfError> {
    match read_block_length(source, 0) {
        Ok(_) => Ok(true),
        Err(InputError::NotCompressed { .. } | InputError::Truncated { .. }) => Ok(false),
        Err(error) => Err(error.into_bgzf_error(source.path())),
    }
}

/// Returns the bytes of the block at an offset.
fn read_block_length(source: &Arc<dyn RandomAccess>, offset: u64) -> Result<usize, InputError> {
    let mut needed = USUAL_HEADER_BYTES;
    loop {
        let header = read_bytes_at(source, offset, needed)?;
        if header.len() < FIXED_HEADER_BYTES {
            return Err(InputError::Truncated { offset: source.byte_len() });
        }
        match block::parse_block_length(&header) {
            Ok(Some(bytes)) => return Ok(bytes),
            Ok(None) => return Err(InputError::NotCompressed { offset }),
            Err(_) if header.len() < needed => return Err(InputError::Truncated { offset: source.byte_len() }),
            Err(bytes) => needed = bytes,
        }
    }
}

/// Reads `bytes` bytes, fewer at the end of the file.
fn read_bytes_at(source: &Arc<dyn RandomAccess>, offset: u64, bytes: usize) -> Result<Vec<u8>, InputError> {
    let mut space = vec![0; bytes];
    let count = source.read_at(&mut space, offset).map_err(|source| InputError::from_read_error(offset, source))?;
    space.truncate(count);
    Ok(space)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bgzf::Writer;
    use crate::random_access::LocalFile;
    use crate::sam::tests::samples;

    fn read_table(path: &Path) -> Result<BlockTable, BgzfError> {
        let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(path).unwrap());
        BlockTable::read(&source)
    }

    #[test]
    fn every_byte_of_the_text_is_found_and_the_gzi_is_that_of_bgzip() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.gz");
        let text: Vec<u8> = (0..300_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap(), 1);
        writer.write_bytes(&text).unwrap();
        writer.finish_file().unwrap();
        let table = Arc::new(read_table(&path).unwrap());
        let packed = BgzfText::new(Arc::new(LocalFile::open(&path).unwrap()), table.clone());
        assert_eq!(packed.byte_len(), 300_000);
        for offset in [0, 1, 0xfeff, 0xff00, 0xff01, 100_000, 299_999, 300_000, 400_000] {
            for bytes in [0, 1, 70_000] {
                let mut space = vec![0; bytes];
                let count = packed.read_at(&mut space, offset as u64).unwrap();
                let expected =
                    &text[offset.min(text.len())..(offset + bytes).min(text.len()).max(offset.min(text.len()))];
                assert_eq!(&space[..count], expected, "{offset} {bytes}");
            }
        }
        let mut gzi = Vec::new();
        table.write_gzi(&mut gzi).unwrap();
        assert_eq!(gzi.len(), 8 + 16 * 4);
        let bgzip_status = std::process::Command::new("bgzip").args(["--reindex", samples::path_text(&path)]).status();
        match bgzip_status {
            Ok(status) if status.success() => {
                assert_eq!(std::fs::read(path.with_added_extension("gzi")).unwrap(), gzi);
            }
            _ => eprintln!("skipped: bgzip cannot be run"),
        }
    }

    #[test]
    fn what_is_not_whole_bgzf_has_no_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.gz");
        let mut bgzf = Writer::new(Vec::new(), 1);
        bgzf.write_bytes(&[b'A'; 200_000]).unwrap();
        let whole = bgzf.finish_file().unwrap().0;
        for (content, what) in [
            (&b""[..], "empty"),
            (b">a\nACGT\n", "plain"),
            (&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], "gzip"),
            (&whole[..whole.len() - 30], "cut"),
            (&[&whole[..], b"x"].concat(), "more"),
        ] {
            std::fs::write(&path, content).unwrap();
            assert!(read_table(&path).is_err(), "{what}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(read_table(&path).is_ok());
    }
}
