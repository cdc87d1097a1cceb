//! The index of a bgzipped VCF: `.tbi` (tabix format, 2011), and `.csi` with the same head where a contig is too long for it.

use std::io::{self, Write};

use godwit_model::{Contig, Genome};

use super::{IndexBuilder, IndexError, IndexFormat, MIN_SHIFT};
use crate::bgzf::{self, RecordPlace};

/// Format VCF; columns of contig, start and end (none: `REF` and `END` tell); comments start with `#`; no lines to skip.
const VCF: [u32; 6] = [2, 1, 2, 0, b'#' as u32, 0];

/// Collects the index of a VCF while it is written.
#[derive(Clone, Debug)]
pub struct TabixBuilder {
    format: IndexFormat,
    index: IndexBuilder,
    /// Contigs that have records, in the order in which they came.
    seen: Vec<Contig>,
}

impl TabixBuilder {
    /// An empty index of records on contigs of this genome.
    pub fn new(genome: &Genome) -> Self {
        let format = IndexFormat::for_genome(genome);
        Self { format, index: IndexBuilder::new(genome), seen: Vec::new() }
    }

    /// The file name's ending: `tbi` or `csi`.
    pub fn extension(&self) -> &'static str {
        match self.format {
            IndexFormat::Bai => "tbi",
            IndexFormat::Csi => "csi",
        }
    }

    /// Adds a record: contig, span `[start, end)` (0-based; -1 for a start at the telomere), and where its line lies.
    /// Records of a contig come together, by start; offsets ascend.
    ///
    /// # Errors
    /// [`IndexError`].
    pub fn push(&mut self, contig: &Contig, start: i32, end: i32, place: RecordPlace) -> Result<(), IndexError> {
        if self.seen.last().is_none_or(|last| last.name != contig.name) {
            if self.seen.iter().any(|seen| seen.name == contig.name) {
                return Err(IndexError::Order { contig: self.seen.len() as i32, position: start });
            }
            self.seen.push(contig.clone());
        }
        self.index.push(self.seen.len() as i32 - 1, start, end, true, place)
    }

    /// Writes the index.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let names: Vec<u8> = self.seen.iter().flat_map(|contig| contig.name.bytes().chain([0])).collect();
        let mut head: Vec<u8> = VCF.iter().chain([&(names.len() as u32)]).flat_map(|n| n.to_le_bytes()).collect();
        head.extend_from_slice(&names);
        let count = (self.seen.len() as u32).to_le_bytes();
        let mut bytes = match self.format {
            IndexFormat::Bai => [b"TBI\x01", &count[..], &head].concat(),
            IndexFormat::Csi => {
                let numbers = [MIN_SHIFT, self.index.depth, head.len() as u32].map(u32::to_le_bytes);
                [b"CSI\x01", numbers.as_flattened(), &head, &count].concat()
            }
        };
        let genome = Genome::new(self.seen.clone()).map_err(io::Error::other)?;
        self.index.append_contigs(self.format, &genome, &mut bytes);
        let mut writer = bgzf::Writer::new(out, bgzf::Writer::<Vec<u8>>::DEFAULT_LEVEL);
        writer.write_bytes(&bytes)?;
        writer.finish_file()?;
        Ok(())
    }
}
