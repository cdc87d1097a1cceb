//! The forms of genotypes that bcftools compares with words such as `het` (`_filters_set_genotype` in `filter.c`).

/// The form of a genotype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GenotypeForm {
    /// The genotype as it is, such as `0/1`.
    Text,
    /// `rr`, `ra`, `aa`, `aA`, `r` or `a`.
    Alleles,
    /// `hom`, `het` or `hap`.
    Zygosity,
    /// `ref`, `alt` or `mis`.
    Presence,
}

impl GenotypeForm {
    /// Returns the form that is compared with a word, and the word as this form spells it.
    pub(super) fn of_word(word: &str) -> (Self, String) {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "hom" | "het" | "hap" => (Self::Zygosity, lower),
            "mis" | "ref" | "alt" => (Self::Presence, lower),
            "rr" | "a" | "r" => (Self::Alleles, lower),
            "ra" | "ar" => (Self::Alleles, "ra".to_owned()),
            "aa" if matches!(word, "aA" | "Aa") => (Self::Alleles, "aA".to_owned()),
            "aa" => (Self::Alleles, lower),
            _ => (Self::Text, word.to_owned()),
        }
    }

    /// Returns a genotype in this form.
    pub(super) fn write(self, genotype: &str) -> &str {
        if self == Self::Text {
            return genotype;
        }
        let alleles = || genotype.split(['/', '|']);
        let is_missing = alleles().any(|allele| allele == "." || allele.is_empty());
        let has_reference = alleles().any(|allele| allele == "0");
        let count = alleles().count();
        let is_het = alleles().zip(alleles().skip(1)).any(|(allele, next)| allele != next);
        match self {
            Self::Presence if is_missing => "mis",
            _ if is_missing => ".",
            Self::Presence if has_reference && !is_het => "ref",
            Self::Presence => "alt",
            Self::Zygosity if count == 1 => "hap",
            Self::Zygosity if is_het => "het",
            Self::Zygosity => "hom",
            _ => match (count, is_het, has_reference) {
                (1, _, true) => "r",
                (1, _, false) => "a",
                (_, false, true) => "rr",
                (_, false, false) => "aa",
                (_, true, true) => "ra",
                (_, true, false) => "aA",
            },
        }
    }
}
