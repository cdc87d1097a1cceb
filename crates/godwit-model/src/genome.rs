//! The reference genome as an ordered list of contigs.

use std::collections::HashMap;

use crate::ContigId;

/// One reference sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contig {
    /// Name of the contig (`SN` of the `@SQ` line): the title in the reference FASTA up to the first white space.
    pub name: String,
    /// Length of the contig in bases (`LN` of the `@SQ` line).
    pub length: u32,
    /// True if the contig is in the `.alt` file of the reference. bwa treats such a contig as an alternate haplotype
    /// (`AH:*`).
    pub alternate: bool,
}

impl Contig {
    /// Returns whether SAM and BAM permit the name of a contig (SAMv1 §1.2.1, 2023-05-24). Names of HLA alleles, with `*`
    /// and `:` inside, are permitted.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::Contig;
    ///
    /// assert!(Contig::is_valid_name("HLA-A*01:01:01:01"));
    /// assert!(!Contig::is_valid_name("*") && !Contig::is_valid_name("scaffold,1"));
    /// ```
    pub fn is_valid_name(name: &str) -> bool {
        let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&*+./:;=?@^_|~-".contains(&byte);
        !name.is_empty() && !name.starts_with(['*', '=']) && name.bytes().all(is_permitted)
    }
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
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_model::{Contig, Genome, GenomeError};
    ///
    /// let contig = |name: &str, length| Contig { name: name.to_owned(), length, alternate: false };
    /// let genome = Genome::new(vec![contig("chr20", 64_444_167), contig("chrM", 16_569)])?;
    /// assert_eq!(genome.contigs()[1].name, "chrM");
    ///
    /// let error = Genome::new(vec![contig("chrM", 16_569), contig("chrM", 16_571)]).unwrap_err();
    /// assert_eq!(error, GenomeError::DuplicateContig { name: "chrM".to_owned() });
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(contigs: Vec<Contig>) -> Result<Self, GenomeError> {
        let mut by_name = HashMap::with_capacity(contigs.len());
        for (index, contig) in contigs.iter().enumerate() {
            if by_name.insert(contig.name.clone(), index as u32).is_some() {
                return Err(GenomeError::DuplicateContig { name: contig.name.clone() });
            }
        }
        Ok(Self { contigs, by_name })
    }

    /// Returns all contigs in `@SQ` order.
    pub fn contigs(&self) -> &[Contig] {
        &self.contigs
    }

    /// Returns the id of the contig with this name, or `None` if the genome does not have such a contig.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_model::{Contig, ContigId, Genome};
    ///
    /// let contig = |name: &str, length| Contig { name: name.to_owned(), length, alternate: false };
    /// let genome = Genome::new(vec![contig("chr20", 64_444_167), contig("chrM", 16_569)])?;
    /// assert_eq!(genome.contig_id("chrM"), Some(ContigId(1)));
    /// assert_eq!(genome.contig_id("MT"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contig_id(&self, name: &str) -> Option<ContigId> {
        self.by_name.get(name).copied().map(ContigId)
    }

    /// Returns the contig with this id, or `None` if the id is out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_model::{Contig, ContigId, Genome};
    ///
    /// let contig = Contig { name: "chrM".to_owned(), length: 16_569, alternate: false };
    /// let genome = Genome::new(vec![contig])?;
    /// assert_eq!(genome.contig(ContigId(0)).map(|contig| contig.length), Some(16_569));
    /// assert_eq!(genome.contig(ContigId(1)), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contig(&self, id: ContigId) -> Option<&Contig> {
        self.contigs.get(id.0 as usize)
    }

    /// Returns the total number of bases of all contigs.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_model::{Contig, Genome};
    ///
    /// let contig = |name: &str, length| Contig { name: name.to_owned(), length, alternate: false };
    /// let genome = Genome::new(vec![contig("chr20", 64_444_167), contig("chrM", 16_569)])?;
    /// assert_eq!(genome.total_bases(), 64_460_736);
    /// # Ok(())
    /// # }
    /// ```
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
