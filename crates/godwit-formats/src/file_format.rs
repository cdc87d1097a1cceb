//! Detection of file formats from the first bytes of a file, independent of the file name.

use std::io::{self, Read};

use godwit_io::bgzf::GZIP_MAGIC;
use godwit_io::random_access::RandomAccess;

use crate::sam::{AlignmentFormat, detect_format_in_bytes};

/// Number of bytes that are read to detect the format; they contain at most two complete BGZF blocks.
const DETECTION_BYTES: usize = 64 << 10;
/// First bytes of a bigWig file in little-endian byte order.
pub const BIGWIG_MAGIC: [u8; 4] = 0x888F_FC26_u32.to_le_bytes();
/// First bytes of a bigBed file in little-endian byte order.
pub const BIGBED_MAGIC: [u8; 4] = 0x8789_F2EB_u32.to_le_bytes();

/// A file format that can be detected from the first bytes of a file. BED, CSV and TSV files have no magic bytes and
/// cannot be detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// BAM alignments.
    Bam,
    /// SAM alignments as text, plain or compressed.
    Sam,
    /// CRAM alignments.
    Cram,
    /// Variants as VCF text, plain or compressed, or as BCF.
    VcfOrBcf,
    /// A Parquet file.
    Parquet,
    /// Arrow IPC, in the file or the streaming format.
    Arrow,
    /// A genome packed by godwit (`gwp`).
    Gwp,
    /// A bigWig or bigBed file.
    Bbi,
    /// FASTA sequences, plain or compressed.
    Fasta,
    /// FASTQ reads, plain or compressed.
    Fastq,
}

impl FileFormat {
    /// Detects the format from the first bytes of a file; returns `None` if it is none of these formats.
    ///
    /// # Errors
    /// Errors of reading the source.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::file_format::FileFormat;
    /// use godwit_io::random_access::LocalFile;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("input");
    /// std::fs::write(&path, "@r1\nACGT\n+\nIIII\n")?;
    /// assert_eq!(FileFormat::detect(&LocalFile::open(&path)?)?, Some(FileFormat::Fastq));
    /// std::fs::write(&path, "@SQ\tSN:chr1\tLN:1000\n")?;
    /// assert_eq!(FileFormat::detect(&LocalFile::open(&path)?)?, Some(FileFormat::Sam));
    /// // BED has no magic bytes.
    /// std::fs::write(&path, "chr1\t0\t1000\n")?;
    /// assert_eq!(FileFormat::detect(&LocalFile::open(&path)?)?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn detect(source: &dyn RandomAccess) -> io::Result<Option<Self>> {
        let bytes = usize::try_from(source.byte_len()).unwrap_or(usize::MAX).min(DETECTION_BYTES);
        let mut raw = vec![0; bytes];
        let count = source.read_at(&mut raw, 0)?;
        raw.truncate(count);
        if !raw.starts_with(&GZIP_MAGIC) {
            return Ok(Self::detect_in_bytes(&raw, true));
        }
        let mut text = Vec::new();
        // Ignore the error of a truncated or damaged block and use the text before it. The reader of the format reports
        // the damage later.
        let _ = flate2::read::MultiGzDecoder::new(&raw[..]).take(DETECTION_BYTES as u64).read_to_end(&mut text);
        Ok(Self::detect_in_bytes(&text, false))
    }

    fn detect_in_bytes(head: &[u8], is_plain: bool) -> Option<Self> {
        match detect_format_in_bytes(head, is_plain) {
            AlignmentFormat::Bam => return Some(Self::Bam),
            AlignmentFormat::Cram => return Some(Self::Cram),
            AlignmentFormat::Sam => return Some(Self::Sam),
            AlignmentFormat::Unknown => {}
        }
        let marks: [(&[u8], Self); 8] = [
            (b"##fileformat=VCF", Self::VcfOrBcf),
            (b"BCF\x02", Self::VcfOrBcf),
            (b"PAR1", Self::Parquet),
            (b"ARROW1", Self::Arrow),
            // Continuation marker at the start of an Arrow IPC stream (Arrow Columnar Format 1.5, "Encapsulated message
            // format").
            (&[0xFF; 4], Self::Arrow),
            (b"GWP", Self::Gwp),
            (&BIGWIG_MAGIC, Self::Bbi),
            (&BIGBED_MAGIC, Self::Bbi),
        ];
        let letters: [(&[u8], Self); 2] = [(b">", Self::Fasta), (b"@", Self::Fastq)];
        let found = marks.into_iter().chain(letters).find(|(mark, _)| head.starts_with(mark));
        // These binary formats are not supported within gzip.
        let is_binary = |content: &Self| matches!(content, Self::Parquet | Self::Arrow | Self::Gwp | Self::Bbi);
        found.map(|(_, content)| content).filter(|content| is_plain || !is_binary(content))
    }
}

#[cfg(test)]
mod tests {
    use godwit_io::random_access::LocalFile;

    use super::*;

    #[test]
    fn the_first_bytes_show_the_format_plain_or_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        for (head, content) in [
            (&b"BAM\x01\0\0\0\0"[..], Some(FileFormat::Bam)),
            (b"@HD\tVN:1.6\n", Some(FileFormat::Sam)),
            (b"##fileformat=VCFv4.2\n", Some(FileFormat::VcfOrBcf)),
            (b"BCF\x02\x02", Some(FileFormat::VcfOrBcf)),
            (b">chr1\nACGT\n", Some(FileFormat::Fasta)),
            (b"@read\nACGT\n+\nIIII\n", Some(FileFormat::Fastq)),
            (b"chr1\t0\t5\n", None),
            (b"", None),
        ] {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::Write::write_all(&mut packed, head).unwrap();
            for bytes in [head, &packed.finish().unwrap()] {
                std::fs::write(&path, bytes).unwrap();
                let found = FileFormat::detect(&LocalFile::open(&path).unwrap()).unwrap();
                assert_eq!(found, content, "{}", String::from_utf8_lossy(head));
            }
        }
        for (head, content) in [
            (&b"CRAM\x03\0"[..], FileFormat::Cram),
            (b"PAR1", FileFormat::Parquet),
            (b"ARROW1\0\0", FileFormat::Arrow),
            (b"GWP\x01", FileFormat::Gwp),
            (&BIGWIG_MAGIC, FileFormat::Bbi),
            (&BIGBED_MAGIC, FileFormat::Bbi),
        ] {
            assert_eq!(FileFormat::detect_in_bytes(head, true), Some(content));
        }
    }
}
