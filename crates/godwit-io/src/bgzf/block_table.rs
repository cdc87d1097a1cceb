//! A table of the blocks of a BGZF file: for each block its offset in the file and its offset in the uncompressed text.
//!
//! Flows in: a BGZF file, of which only the header and the length field of each block are read. Flows out: virtual
//! offsets for offsets in the text, the `.gzi` index that `bgzip --index` writes for other programs, and the text
//! itself from any offset ([`BgzfText`]).

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES};
use super::error::{BgzfError, InputError};
use super::reader::BgzfBufRead as _;
use super::seek_reader::{SeekReader, VirtualOffset};
use crate::random_access::RandomAccess;

/// Bytes of a block header that has no extra field besides that of BGZF, as all known writers write it.
const USUAL_HEADER_BYTES: usize = 18;
/// Bytes of the length field at the end of a block (ISIZE, RFC 1952 §2.3.1).
const ISIZE_BYTES: usize = 4;

/// A table of the blocks of a BGZF file, with their offsets in the file and in the uncompressed text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Offset in the file and offset in the text, both ascending, of each block that is not empty.
    block_offsets: Vec<(u64, u64)>,
    text_bytes: u64,
}

impl BlockTable {
    /// Reads the header and the uncompressed length of every block of a file, but not the compressed data.
    ///
    /// # Errors
    /// [`BgzfError::NotBgzf`] if the file does not start with a block, [`BgzfError::Corrupt`] or
    /// [`BgzfError::Truncated`] if it is damaged, [`BgzfError::Io`] if reading fails.
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

    /// Returns the virtual offset of the byte at `text_offset` of the uncompressed text, or `None` at the end of the
    /// text and beyond.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::File;
    /// use std::sync::Arc;
    ///
    /// use godwit_io::bgzf::{BlockTable, Writer};
    /// use godwit_io::random_access::{LocalFile, RandomAccess};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.bed.gz");
    /// let mut file = Writer::new(File::create(&path)?, 6);
    /// file.write_bytes(b"chr1\t0\t9\n")?;
    /// file.flush_block()?;
    /// let second_block = file.virtual_offset();
    /// file.write_bytes(b"chr2\t0\t9\n")?;
    /// file.finish_file()?;
    ///
    /// let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(&path)?);
    /// let table = BlockTable::read(&source)?;
    /// assert_eq!(table.virtual_offset(9), Some(second_block));
    /// assert_eq!(table.virtual_offset(18), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn virtual_offset(&self, text_offset: u64) -> Option<VirtualOffset> {
        let block = self.block_offsets.partition_point(|(_, text)| *text <= text_offset).checked_sub(1)?;
        let (start, text) = self.block_offsets[block];
        (text_offset < self.text_bytes).then(|| start << 16 | (text_offset - text))
    }

    /// Writes the `.gzi` index as bgzip 1.16 does: the number of entries, then for every block except the first its
    /// offset in the file and its offset in the text.
    ///
    /// # Errors
    /// The errors of writing to `out`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use godwit_io::bgzf::{BlockTable, Writer};
    /// use godwit_io::random_access::{LocalFile, RandomAccess};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.fa.gz");
    /// let mut file = Writer::new(std::fs::File::create(&path)?, 6);
    /// file.write_bytes(b">chr1\nACGT\n")?;
    /// file.finish_file()?;
    ///
    /// let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(&path)?);
    /// let mut gzi = Vec::new();
    /// BlockTable::read(&source)?.write_gzi(&mut gzi)?;
    /// // The file has one block with text, and the index lists the blocks after the first.
    /// assert_eq!(gzi, 0_u64.to_le_bytes());
    /// # Ok(())
    /// # }
    /// ```
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

/// The uncompressed text of a BGZF file, readable from any offset.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use godwit_io::bgzf::{BgzfText, BlockTable, Writer};
/// use godwit_io::random_access::{LocalFile, RandomAccess};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.fa.gz");
/// let mut file = Writer::new(std::fs::File::create(&path)?, 6);
/// file.write_bytes(b">chr1\nACGTAC\n")?;
/// file.finish_file()?;
///
/// let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(&path)?);
/// let blocks = Arc::new(BlockTable::read(&source)?);
/// let text = BgzfText::new(source, blocks);
/// let mut bases = [0; 4];
/// assert_eq!(text.read_at(&mut bases, 8)?, 4);
/// assert_eq!(&bases, b"GTAC");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BgzfText {
    source: Arc<dyn RandomAccess>,
    blocks: Arc<BlockTable>,
}

impl BgzfText {
    /// Creates a view of the text of the BGZF file `source`, whose blocks are `blocks`.
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
/// [`BgzfError::Io`] if reading fails.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use godwit_io::bgzf::{EOF_BLOCK, starts_with_block};
/// use godwit_io::random_access::{LocalFile, RandomAccess};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.gz");
/// std::fs::write(&path, EOF_BLOCK)?;
/// let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(&path)?);
/// assert!(starts_with_block(&source)?);
/// # Ok(())
/// # }
/// ```
pub fn starts_with_block(source: &Arc<dyn RandomAccess>) -> Result<bool, BgzfError> {
    match read_block_length(source, 0) {
        Ok(_) => Ok(true),
        Err(InputError::NotCompressed { .. } | InputError::Truncated { .. }) => Ok(false),
        Err(error) => Err(error.into_bgzf_error(source.path())),
    }
}

/// Returns the length in bytes of the compressed block at `offset`.
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

/// Reads `bytes` bytes at `offset`, or fewer if the file ends before.
fn read_bytes_at(source: &Arc<dyn RandomAccess>, offset: u64, bytes: usize) -> Result<Vec<u8>, InputError> {
    let mut space = vec![0; bytes];
    let count = source.read_at(&mut space, offset).map_err(|source| InputError::from_read_error(offset, source))?;
    space.truncate(count);
    Ok(space)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use godwit_tests::needs;

    use super::*;
    use crate::bgzf::Writer;
    use crate::random_access::LocalFile;

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
        needs!("bgzip");
        let indexed = std::process::Command::new("bgzip").arg("--reindex").arg(&path).status();
        assert!(indexed.unwrap().success());
        assert_eq!(std::fs::read(path.with_added_extension("gzi")).unwrap(), gzi);
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
