//! The reference: its contigs, in order.

use std::collections::HashMap;

use crate::ContigId;

/// One reference sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contig {
    /// `SN`, as in the reference FASTA up to the first white space.
    pub name: String,
    /// `LN`, bases.
    pub length: u32,
    /// True if the contig is in the reference's `.alt` file: bwa treats it as an alternate haplotype (`AH:*`).
    pub alternate: bool,
}

/// The contigs of a reference, in `@SQ` order, with unique names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Genome {
    contigs: Vec<Contig>,
    by_name: HashMap<String, u32>,
}

/// An invalid list of contigs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenomeError {
    /// Two contigs share a name, so their records would be indistinguishable.
    #[error("contig name {name} appears twice in the reference; rename one of them")]
    DuplicateContig {
        /// The shared name.
        name: String,
    },
}

impl Genome {
    /// Creates a genome from contigs in `@SQ` order.
    ///
    /// # Errors
    /// [`GenomeError::DuplicateContig`] when two contigs share a name.
    pub fn new(contigs: Vec<Contig>) -> Result<Self, GenomeError> {
        let mut by_name = HashMap::with_capacity(contigs.len());
        for (index, contig) in contigs.iter().enumerate() {
            if by_name.insert(contig.name.clone(), index as u32).is_some() {
                return Err(GenomeError::DuplicateContig { name: contig.name.clone() });
            }
        }
        Ok(Self { contigs, by_name })
    }

    /// Returns all contigs in order.
    pub fn contigs(&self) -> &[Contig] {
        &self.contigs
    }

    /// Returns the id of the contig with this name.
    pub fn contig_id(&self, name: &str) -> Option<ContigId> {
        self.by_name.get(name).copied().map(ContigId)
    }

    /// Returns the contig with this id.
    pub fn contig(&self, id: ContigId) -> Option<&Contig> {
        self.contigs.get(id.0 as usize)
    }

    /// Returns the total number of bases of all contigs.
    pub fn total_bases(&self) -> u64 {
        self.contigs.iter().map(|contig| u64::from(contig.length)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contig(name: &str) -> Contig {
        Contig { name: name.into(), length: 10, alternate: false }
    }

    #[test]
    fn duplicate_contig_names_are_refused() {
        let error = Genome::new(vec![contig("a"), contig("b"), contig("a")]).unwrap_err();
        assert_eq!(error, GenomeError::DuplicateContig { name: "a".into() });
    }

    #[test]
    fn contigs_are_found_by_name() {
        let genome = Genome::new(vec![contig("a"), contig("b")]).unwrap();
        assert_eq!(genome.contig_id("b"), Some(ContigId(1)));
        assert_eq!(genome.contig_id("c"), None);
        assert_eq!(genome.total_bases(), 20);
    }
}
