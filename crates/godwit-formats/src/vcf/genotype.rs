//! The genotype of a sample, parsed from VCF text.

/// Maximum number of alleles of a genotype, which suffices for pooled samples.
const MAX_PLOIDY: usize = 1024;

/// A genotype such as `0/1`, `1|0`, `./.` or `1`; a separator before the first allele is allowed (VCFv4.4 §1.6.2).
#[derive(Clone, Copy, Debug)]
pub struct Genotype<'t> {
    text: &'t str,
}

impl<'t> Genotype<'t> {
    /// Parses a genotype; returns `None` if the text is not a genotype.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_formats::vcf::Genotype;
    ///
    /// let genotype = Genotype::parse("0|1").unwrap();
    /// assert_eq!(genotype.alleles().collect::<Vec<_>>(), [Some(0), Some(1)]);
    /// assert!(genotype.is_phased());
    /// assert!(Genotype::parse("./.").unwrap().alleles().all(|allele| allele.is_none()));
    /// assert!(Genotype::parse("A/C").is_none());
    /// ```
    pub fn parse(text: &'t str) -> Option<Self> {
        let text = text.strip_prefix(['/', '|']).unwrap_or(text);
        let is_allele = |allele: &str| {
            allele == "." || (allele.bytes().all(|byte| byte.is_ascii_digit()) && allele.parse::<i32>().is_ok())
        };
        let mut ploidy = 0;
        for allele in text.split(['/', '|']) {
            ploidy += 1;
            if ploidy > MAX_PLOIDY || !is_allele(allele) {
                return None;
            }
        }
        Some(Self { text })
    }

    /// Returns the allele numbers, with 0 for the reference allele and `None` for a missing allele.
    pub fn alleles(&self) -> impl Iterator<Item = Option<i32>> + use<'t> {
        self.text.split(['/', '|']).map(|allele| allele.parse().ok())
    }

    /// Returns whether the genotype has several alleles and all of them are phased.
    pub fn is_phased(&self) -> bool {
        self.text.contains('|') && !self.text.contains('/')
    }
}
