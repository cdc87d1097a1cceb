//! The table of the blocks of a BGZF file: where each of them begins, in the file and in its text.
//!
//! Flows in: a file, of which only the ends of its blocks are read. Flows out: virtual offsets for offsets in the text, the
//! `.gzi` index that `bgzip --index` writes, which other programs need, and the text itself at any offset ([`BgzfText`]).

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES};
use super::error::{BgzfError, Fault};
use super::reader::Unpacked as _;
use super::seek::{SeekReader, VirtualOffset};
use crate::random_access::RandomAccess;

/// Bytes of a block's header as all known writers write it.
const USUAL_HEADER_BYTES: usize = 18;
/// Bytes of the length at the end of a block.
const LENGTH_BYTES: usize = 4;

/// Offsets of the blocks of a BGZF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Offset in the file and offset in the text of each block that has text, both ascending.
    starts: Vec<(u64, u64)>,
    text_bytes: u64,
}

impl BlockTable {
    /// Reads the header and the length of every block of a file; the compressed data is not read.
    ///
    /// # Errors
    /// [`BgzfError::NotBgzf`] where the file does not start with a block, [`BgzfError::Corrupt`] and
    /// [`BgzfError::Truncated`] for damage, [`BgzfError::Io`].
    pub fn read(source: &Arc<dyn RandomAccess>) -> Result<Self, BgzfError> {
        Self::try_read(source).map_err(|fault| fault.into_error(source.path()))
    }

    fn try_read(source: &Arc<dyn RandomAccess>) -> Result<Self, Fault> {
        let mut table = Self::default();
        let mut offset = 0;
        while offset < source.bytes() {
            let bytes = block_bytes(source, offset)? as u64;
            if offset + bytes > source.bytes() {
                return Err(Fault::Truncated { offset: source.bytes() });
            }
            let length = read_at(source, offset + bytes - LENGTH_BYTES as u64, LENGTH_BYTES)?;
            let text_bytes = block::data_bytes(&length).ok_or_else(|| {
                let detail = "BGZF block of more than 64 KiB of data".to_owned();
                Fault::Corrupt { offset, detail }
            })?;
            if text_bytes > 0 {
                table.starts.push((offset, table.text_bytes));
                table.text_bytes += text_bytes as u64;
            }
            offset += bytes;
        }
        if table.starts.is_empty() && source.bytes() < EOF_BLOCK.len() as u64 {
            return Err(Fault::Garbage { offset: 0 });
        }
        Ok(table)
    }

    /// Returns the block and the offset within it of a byte of the text; `None` at its end and beyond.
    pub fn virtual_offset(&self, text_offset: u64) -> Option<VirtualOffset> {
        let block = self.starts.partition_point(|(_, text)| *text <= text_offset).checked_sub(1)?;
        let (start, text) = self.starts[block];
        (text_offset < self.text_bytes).then(|| start << 16 | (text_offset - text))
    }

    /// Writes the `.gzi` index as bgzip 1.16 does: a count, and the two offsets of every block but the first.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_gzi(&self, mut out: impl Write) -> io::Result<()> {
        let behind_first = self.starts.get(1..).unwrap_or_default();
        out.write_all(&(behind_first.len() as u64).to_le_bytes())?;
        for (start, text) in behind_first {
            out.write_all(&start.to_le_bytes())?;
            out.write_all(&text.to_le_bytes())?;
        }
        Ok(())
    }
}

/// The text of a BGZF file, read at any offset.
#[derive(Clone, Debug)]
pub struct BgzfText {
    source: Arc<dyn RandomAccess>,
    blocks: Arc<BlockTable>,
}

impl BgzfText {
    /// The text of a file that has these blocks.
    pub fn new(source: Arc<dyn RandomAccess>, blocks: Arc<BlockTable>) -> Self {
        Self { source, blocks }
    }
}

impl RandomAccess for BgzfText {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn bytes(&self) -> u64 {
        self.blocks.text_bytes
    }

    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(place) = self.blocks.virtual_offset(offset) else { return Ok(0) };
        let mut reader = SeekReader::new(self.source.clone());
        reader.seek(place).map_err(io::Error::other)?;
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
/// [`BgzfError::Io`].
pub fn starts_with_block(source: &Arc<dyn RandomAccess>) -> Result<bool, BgzfError> {
    match block_bytes(source, 0) {
        Ok(_) => Ok(true),
        Err(Fault::Garbage { .. } | Fault::Truncated { .. }) => Ok(false),
        Err(fault) => Err(fault.into_error(source.path())),
    }
}

/// Bytes of the block at an offset.
fn block_bytes(source: &Arc<dyn RandomAccess>, offset: u64) -> Result<usize, Fault> {
    let mut needed = USUAL_HEADER_BYTES;
    loop {
        let header = read_at(source, offset, needed)?;
        if header.len() < FIXED_HEADER_BYTES {
            return Err(Fault::Truncated { offset: source.bytes() });
        }
        match block::block_bytes(&header) {
            Ok(Some(bytes)) => return Ok(bytes),
            Ok(None) => return Err(Fault::Garbage { offset }),
            Err(_) if header.len() < needed => return Err(Fault::Truncated { offset: source.bytes() }),
            Err(bytes) => needed = bytes,
        }
    }
}

/// Reads that many bytes, fewer at the end of the file.
fn read_at(source: &Arc<dyn RandomAccess>, offset: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
    let mut space = vec![0; bytes];
    let count = source.read_at(&mut space, offset).map_err(|source| Fault::of_reading(offset, source))?;
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

    fn table(path: &Path) -> Result<BlockTable, BgzfError> {
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
        let table = Arc::new(table(&path).unwrap());
        let packed = BgzfText::new(Arc::new(LocalFile::open(&path).unwrap()), table.clone());
        assert_eq!(packed.bytes(), 300_000);
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
        let made = std::process::Command::new("bgzip").args(["--reindex", samples::text(&path)]).status();
        match made {
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
            assert!(table(&path).is_err(), "{what}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(table(&path).is_ok());
    }
}
