//! The binary header of BAM (SAMv1 §4.2, `magic` to `l_ref`).

use super::MAGIC;
use crate::sam::{Header, HeaderError};

/// Appends magic, text and the binary list of contigs of the `@SQ` lines: what a BAM file holds before its records.
///
/// # Errors
/// [`HeaderError`] where the `@SQ` lines are no genome.
///
/// ```
/// use godwit_formats::{bam::encode_header, sam::Header};
/// let mut bytes = Vec::new();
/// encode_header(&Header::parse(b"@SQ\tSN:a\tLN:9\n")?, &mut bytes)?;
/// assert_eq!(bytes, b"BAM\x01\x0e\0\0\0@SQ\tSN:a\tLN:9\n\x01\0\0\0\x02\0\0\0a\0\x09\0\0\0");
/// # Ok::<(), godwit_formats::sam::HeaderError>(())
/// ```
pub fn encode_header(header: &Header, out: &mut Vec<u8>) -> Result<(), HeaderError> {
    let genome = header.genome()?;
    let text = header.text();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&text);
    out.extend_from_slice(&(genome.contigs().len() as u32).to_le_bytes());
    for contig in genome.contigs() {
        out.extend_from_slice(&(contig.name.len() as u32 + 1).to_le_bytes());
        out.extend_from_slice(contig.name.as_bytes());
        out.push(0);
        out.extend_from_slice(&contig.length.to_le_bytes());
    }
    Ok(())
}
