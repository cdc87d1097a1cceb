//! The format of a file by its first bytes, whatever its name ends with.

use std::io::{self, Read};

use crate::random_access::RandomAccess;
use crate::sam::{InputFormat, format_of};

/// Bytes that are read to tell the format; two BGZF blocks at most.
const HEAD_BYTES: usize = 64 << 10;
/// First bytes of gzip and BGZF (RFC 1952 §2.3.1).
const GZIP: [u8; 2] = [0x1F, 0x8B];

/// A format that the first bytes of a file show. Formats of tables as text (BED, CSV, TSV) have no such mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// BAM.
    Bam,
    /// SAM text, plain or compressed.
    Sam,
    /// CRAM.
    Cram,
    /// VCF text, plain or compressed, or BCF.
    Variants,
    /// Parquet.
    Parquet,
    /// Arrow IPC, a file or a stream.
    Arrow,
    /// A packed genome of godwit.
    Packed,
    /// FASTA, plain or compressed.
    Fasta,
    /// FASTQ, plain or compressed.
    Fastq,
}

impl FileContent {
    /// Reads the first bytes of a file; `None` where they show none of these formats.
    ///
    /// # Errors
    /// Those of the file.
    pub fn read(source: &dyn RandomAccess) -> io::Result<Option<Self>> {
        let bytes = usize::try_from(source.bytes()).unwrap_or(usize::MAX).min(HEAD_BYTES);
        let mut raw = vec![0; bytes];
        let count = source.read_at(&mut raw, 0)?;
        raw.truncate(count);
        if !raw.starts_with(&GZIP) {
            return Ok(Self::of_head(&raw, true));
        }
        let mut text = Vec::new();
        // A block that is cut short, or damaged, ends the text; reading it on says what is wrong.
        let _ = flate2::read::MultiGzDecoder::new(&raw[..]).take(HEAD_BYTES as u64).read_to_end(&mut text);
        Ok(Self::of_head(&text, false))
    }

    fn of_head(head: &[u8], is_plain: bool) -> Option<Self> {
        match format_of(head, is_plain) {
            InputFormat::Bam => return Some(Self::Bam),
            InputFormat::Cram => return Some(Self::Cram),
            InputFormat::Sam => return Some(Self::Sam),
            InputFormat::Unknown => {}
        }
        let marks: [(&[u8], Self); 6] = [
            (b"##fileformat=VCF", Self::Variants),
            (b"BCF\x02", Self::Variants),
            (b"PAR1", Self::Parquet),
            (b"ARROW1", Self::Arrow),
            // A message of an IPC stream (Arrow Columnar Format 1.5, "Encapsulated message format").
            (&[0xFF; 4], Self::Arrow),
            (b"GWP", Self::Packed),
        ];
        let letters: [(&[u8], Self); 2] = [(b">", Self::Fasta), (b"@", Self::Fastq)];
        let found = marks.into_iter().chain(letters).find(|(mark, _)| head.starts_with(mark));
        // These are not read from within gzip.
        let is_binary = |content: &Self| matches!(content, Self::Parquet | Self::Arrow | Self::Packed);
        found.map(|(_, content)| content).filter(|content| is_plain || !is_binary(content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_access::LocalFile;

    #[test]
    fn the_first_bytes_show_the_format_plain_or_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        for (head, content) in [
            (&b"BAM\x01\0\0\0\0"[..], Some(FileContent::Bam)),
            (b"@HD\tVN:1.6\n", Some(FileContent::Sam)),
            (b"##fileformat=VCFv4.2\n", Some(FileContent::Variants)),
            (b"BCF\x02\x02", Some(FileContent::Variants)),
            (b">chr1\nACGT\n", Some(FileContent::Fasta)),
            (b"@read\nACGT\n+\nIIII\n", Some(FileContent::Fastq)),
            (b"chr1\t0\t5\n", None),
            (b"", None),
        ] {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::Write::write_all(&mut packed, head).unwrap();
            for bytes in [head, &packed.finish().unwrap()] {
                std::fs::write(&path, bytes).unwrap();
                let found = FileContent::read(&LocalFile::open(&path).unwrap()).unwrap();
                assert_eq!(found, content, "{}", String::from_utf8_lossy(head));
            }
        }
        for (head, content) in [
            (&b"CRAM\x03\0"[..], FileContent::Cram),
            (b"PAR1", FileContent::Parquet),
            (b"ARROW1\0\0", FileContent::Arrow),
            (b"GWP\x01", FileContent::Packed),
        ] {
            assert_eq!(FileContent::of_head(head, true), Some(content));
        }
    }
}
