//! The reference: the names of its contigs, and their bases.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_formats::fasta::{FaiRecord, IndexedReader, build_fai, parse_fai};

use crate::alleles::Template;
use crate::error::HaplotypeError;

/// Number of bases that are read at once; even, because a template is filled by pairs.
const READ_BASES: u64 = 1 << 16;

/// A FASTA file with the records of its index.
#[derive(Debug)]
pub(crate) struct Reference {
    path: PathBuf,
    reader: IndexedReader,
    contigs: Arc<[FaiRecord]>,
}

impl Reference {
    /// Opens a FASTA file. Uses the `.fai` index beside it if the index matches; otherwise reads the whole file.
    pub(crate) fn open(path: &Path) -> Result<Self, HaplotypeError> {
        let index = std::fs::read_to_string(path.with_added_extension("fai")).ok();
        if let Some(contigs) = index.and_then(|text| parse_fai(&text)) {
            let mut reference = Self::with_index(path, contigs)?;
            if reference.reader.check_index().is_ok() {
                return Ok(reference);
            }
        }
        Self::with_index(path, build_fai(path)?)
    }

    fn with_index(path: &Path, contigs: Vec<FaiRecord>) -> Result<Self, HaplotypeError> {
        let contigs: Arc<[FaiRecord]> = contigs.into();
        let reader = IndexedReader::open(path, contigs.clone())?;
        Ok(Self { path: path.to_owned(), reader, contigs })
    }

    /// Returns the contigs in their order.
    pub(crate) fn contigs(&self) -> &[FaiRecord] {
        &self.contigs
    }

    /// Reads the bases of a contig.
    pub(crate) fn read_template(&self, contig: usize) -> Result<Template, HaplotypeError> {
        let mut reader = self.reader.clone();
        let (mut start, bases) = (0, self.contigs[contig].bases);
        let mut template = Template::with_capacity(bases);
        while start < bases {
            let end = bases.min(start + READ_BASES);
            let failed = |source| HaplotypeError::Reference { path: self.path.clone(), source };
            template.extend(reader.base_codes(contig, start, end).map_err(failed)?);
            start = end;
        }
        Ok(template)
    }
}
