//! Subsets of variants by the type and zygosity of their genotypes.

use crate::comparison_options::Subset;
use crate::genotype::{AlleleTexts, Genotype, VariantType};
use crate::record::Record;

impl Subset {
    /// Returns the name of the subset in the tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Snp => "SNP",
            Self::NonSnp => "NON_SNP",
            Self::Mnp => "MNP",
            Self::Indel => "INDEL",
            Self::Homozygous => "HOM",
            Self::Heterozygous => "HET",
        }
    }

    /// Returns the name of the table without its ending.
    pub(crate) fn file_stem(self) -> &'static str {
        match self {
            Self::Snp => "snp",
            Self::NonSnp => "non_snp",
            Self::Mnp => "mnp",
            Self::Indel => "indel",
            Self::Homozygous => "homozygous",
            Self::Heterozygous => "heterozygous",
        }
    }

    fn accepts(self, genotype: &Genotype, variant_type: VariantType) -> bool {
        match self {
            Self::Snp => variant_type == VariantType::Snp,
            Self::NonSnp => variant_type != VariantType::Snp,
            Self::Mnp => variant_type == VariantType::Mnp,
            Self::Indel => variant_type.is_indel(),
            Self::Homozygous => genotype.is_homozygous_alternate(),
            Self::Heterozygous => genotype.is_heterozygous(),
        }
    }
}

/// Returns the subsets that contain a record: bit 0 for all variants, and the following bits for `subsets`.
///
/// # Errors
/// The problem of a record without a valid genotype.
pub(crate) fn subset_bits(record: &Record, sample: Option<usize>, subsets: &[Subset]) -> Result<u32, &'static str> {
    let Some(sample) = sample.filter(|_| !subsets.is_empty()) else { return Ok(1) };
    let genotype = Genotype::of_sample(record, sample)?.ok_or("it has no GT")?;
    let variant_type = AlleleTexts::new(record)?.genotype_type(&genotype);
    let bits = subsets.iter().enumerate().filter(|(_, subset)| subset.accepts(&genotype, variant_type));
    Ok(bits.fold(1, |bits, (index, _)| bits | 2 << index))
}
