//! The index of a bgzipped VCF: `.tbi` (tabix format, 2011), and `.csi` with the same header where a contig is too long for
//! it.

use std::io::{self, Write};

use godwit_model::{Contig, Genome};

use super::{IndexBuilder, IndexError, IndexFormat, MIN_SHIFT};
use crate::bgzf::{self, RecordOffsets};

/// Format VCF; columns of contig, start and end (none: `REF` and `END` give it); comments start with `#`; no lines to skip.
const TABIX_VCF_PRESET: [u32; 6] = [2, 1, 2, 0, b'#' as u32, 0];

/// A builder of the index of a VCF while it is written.
#[derive(Clone, Debug)]
pub struct TabixBuilder {
    format: IndexFormat,
    index: IndexBuilder,
    /// Contigs that have records, in the order of the file.
    contigs: Vec<Contig>,
}

impl TabixBuilder {
    /// Creates an empty index of records on contigs of this genome.
    pub fn new(genome: &Genome) -> Self {
        let format = IndexFormat::for_genome(genome);
        Self { format, index: IndexBuilder::new(genome), contigs: Vec::new() }
    }

    /// Returns the file name extension: `tbi` or `csi`.
    pub fn extension(&self) -> &'static str {
        match self.format {
            IndexFormat::Bai => "tbi",
            IndexFormat::Csi => "csi",
        }
    }

    /// Adds a record: contig, interval `[start, end)` (0-based; -1 for a start at the telomere), and the virtual offsets of
    /// its line. Records of a contig are contiguous, by start; offsets ascend.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn push(&mut self, contig: &Contig, start: i32, end: i32, offsets: RecordOffsets) -> Result<(), IndexError> {
        if self.contigs.last().is_none_or(|last| last.name != contig.name) {
            if self.contigs.iter().any(|seen| seen.name == contig.name) {
                return Err(IndexError::Order { contig: self.contigs.len() as i32, position: start });
            }
            self.contigs.push(contig.clone());
        }
        self.index.push(self.contigs.len() as i32 - 1, start, end, true, offsets)
    }

    /// Writes the index.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let names: Vec<u8> = self.contigs.iter().flat_map(|contig| contig.name.bytes().chain([0])).collect();
        let mut header: Vec<u8> =
            TABIX_VCF_PRESET.iter().chain([&(names.len() as u32)]).flat_map(|n| n.to_le_bytes()).collect();
        header.extend_from_slice(&names);
        let count = (self.contigs.len() as u32).to_le_bytes();
        let mut bytes = match self.format {
            IndexFormat::Bai => [b"TBI\x01", &count[..], &header].concat(),
            IndexFormat::Csi => {
                let numbers = [MIN_SHIFT, self.index.depth, header.len() as u32].map(u32::to_le_bytes);
                [b"CSI\x01", numbers.as_flattened(), &header, &count].concat()
            }
        };
        let genome = Genome::new(self.contigs.clone()).map_err(io::Error::other)?;
        self.index.append_contigs(self.format, &genome, &mut bytes);
        let mut writer = bgzf::Writer::new(out, bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        writer.write_bytes(&bytes)?;
        writer.finish_file()?;
        Ok(())
    }
}
