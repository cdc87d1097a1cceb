//! Writers of the index formats `.bai` (SAMv1 §5.2) and `.csi` (CSIv1).

use std::io::{self, Write};

use godwit_io::bgzf;
use godwit_model::Genome;

use super::contig_index::{CompactContigIndex, first_bin};
use super::{BAI_DEPTH, IndexBuilder, IndexFormat, MIN_SHIFT};

impl IndexBuilder {
    /// Writes the index as `.bai`. No contig of the genome may be too long for `.bai` ([`IndexFormat::for_genome`]).
    ///
    /// # Errors
    /// The errors of writing to `out`; [`io::ErrorKind::InvalidInput`] if a contig of the genome is too long for
    /// `.bai`.
    pub fn write_bai(&self, genome: &Genome, mut out: impl Write) -> io::Result<()> {
        if self.depth != BAI_DEPTH {
            let message = "a contig is too long for a .bai index; write a .csi index";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut bytes = b"BAI\x01".to_vec();
        bytes.extend_from_slice(&(genome.contigs().len() as u32).to_le_bytes());
        self.append_contigs(IndexFormat::Bai, genome, &mut bytes);
        out.write_all(&bytes)
    }

    /// Writes the index as `.csi`, compressed as BGZF.
    ///
    /// # Errors
    /// The errors of writing to `out`.
    pub fn write_csi(&self, genome: &Genome, out: impl Write) -> io::Result<()> {
        let mut bytes = b"CSI\x01".to_vec();
        // The third number is the length of the auxiliary data, which is empty.
        for number in [MIN_SHIFT, self.depth, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(genome.contigs().len() as u32).to_le_bytes());
        self.append_contigs(IndexFormat::Csi, genome, &mut bytes);
        let mut writer = bgzf::Writer::new(out, bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        writer.write_bytes(&bytes)?;
        writer.finish_file()?;
        Ok(())
    }

    /// Appends the indexes of all contigs, and the number of records without a contig.
    pub(super) fn append_contigs(&self, format: IndexFormat, genome: &Genome, out: &mut Vec<u8>) {
        let mut indexed = self.contigs.iter().peekable();
        for number in 0..genome.contigs().len() {
            match indexed.next_if(|(contig, _)| *contig as usize == number) {
                Some((_, index)) => self.append_contig(format, &index.to_compact(self.depth), out),
                None => out.extend_from_slice(if format == IndexFormat::Bai { &[0; 8] } else { &[0; 4] }),
            }
        }
        out.extend_from_slice(&self.unplaced_records.to_le_bytes());
    }

    fn append_contig(&self, format: IndexFormat, contig: &CompactContigIndex, out: &mut Vec<u8>) {
        out.extend_from_slice(&(contig.bins.len() as u32 + 1).to_le_bytes());
        let mut append_bin = |bin: u32, first_offset: u64, chunks: &[(u64, u64)]| {
            out.extend_from_slice(&bin.to_le_bytes());
            if format == IndexFormat::Csi {
                out.extend_from_slice(&first_offset.to_le_bytes());
            }
            out.extend_from_slice(&(chunks.len() as u32).to_le_bytes());
            for (start, end) in chunks {
                out.extend_from_slice(&start.to_le_bytes());
                out.extend_from_slice(&end.to_le_bytes());
            }
        };
        // The metadata bin has two pairs of numbers that are not chunks (SAMv1 §5.2). Its number is 37450 for the
        // levels of `.bai`.
        let metadata_bin = first_bin(self.depth + 1) + 1;
        let metadata = [(contig.start_offset, contig.end_offset), (contig.mapped_records, contig.unmapped_records)];
        for (bin, chunks) in &contig.bins {
            append_bin(*bin, contig.first_offset(*bin, self.depth), chunks);
        }
        append_bin(metadata_bin, 0, &metadata);
        if format == IndexFormat::Bai {
            out.extend_from_slice(&(contig.linear_index.len() as u32).to_le_bytes());
            contig.linear_index.iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
        }
    }
}
