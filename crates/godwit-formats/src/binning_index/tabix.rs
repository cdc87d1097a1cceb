//! A builder of the index of a bgzipped VCF: `.tbi` (tabix format, 2011), or `.csi` with the tabix header if a contig
//! is too long for `.tbi`.

use std::io::{self, Write};

use godwit_io::bgzf::{self, RecordOffsets};
use godwit_model::{Contig, Genome};

use super::{IndexBuilder, IndexError, IndexFormat, MIN_SHIFT};

/// Fields of a tabix header for VCF: format VCF; columns of the contig, the start, and the end (0, because `REF` and
/// `END` determine the end); the comment character `#`; and 0 lines to skip.
const TABIX_VCF_PRESET: [u32; 6] = [2, 1, 2, 0, b'#' as u32, 0];

/// A builder of the index of a bgzipped VCF, to which records are added while the VCF is written.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_io::bgzf::RecordOffsets;
/// use godwit_formats::binning_index::{RegionIndex, TabixBuilder};
/// use godwit_model::{Contig, Genome};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.vcf.gz.tbi");
/// let chr20 = Contig { name: "chr20".to_owned(), length: 64_444_167, alternate: false };
/// let mut index = TabixBuilder::new(&Genome::new(vec![chr20.clone()])?);
/// index.push(&chr20, 999, 1000, RecordOffsets { start: 60, end: 110 })?;
/// assert_eq!(index.extension(), "tbi");
/// index.write(std::fs::File::create(&path)?)?;
///
/// let index = RegionIndex::read(&path)?;
/// assert_eq!(index.contig_names().unwrap(), ["chr20"]);
/// assert_eq!(index.chunks(0, 0, 2000), [(60, 110)]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TabixBuilder {
    format: IndexFormat,
    index: IndexBuilder,
    /// Contigs that have records, in the order of their first records in the file.
    contigs: Vec<Contig>,
}

impl TabixBuilder {
    /// Creates an empty index for records on the contigs of this genome.
    pub fn new(genome: &Genome) -> Self {
        let format = IndexFormat::for_genome(genome);
        Self { format, index: IndexBuilder::new(genome), contigs: Vec::new() }
    }

    /// Returns the file name extension of the index: `tbi` or `csi`.
    pub fn extension(&self) -> &'static str {
        match self.format {
            IndexFormat::Bai => "tbi",
            IndexFormat::Csi => "csi",
        }
    }

    /// Adds a record with its contig, its interval `[start, end)` (0-based; the start is -1 at the telomere), and the
    /// virtual offsets of its line. The records of a contig must be contiguous and sorted by start, with ascending
    /// offsets.
    ///
    /// # Errors
    /// [`IndexError`] if the records are not in order, or the record ends beyond the limit of the index.
    pub fn push(&mut self, contig: &Contig, start: i32, end: i32, offsets: RecordOffsets) -> Result<(), IndexError> {
        if self.contigs.last().is_none_or(|last| last.name != contig.name) {
            if self.contigs.iter().any(|seen| seen.name == contig.name) {
                return Err(IndexError::Order { contig: self.contigs.len() as i32, position: start });
            }
            self.contigs.push(contig.clone());
        }
        self.index.push(self.contigs.len() as i32 - 1, start, end, true, offsets)
    }

    /// Writes the index, compressed as BGZF.
    ///
    /// # Errors
    /// The errors of writing to `out`.
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
