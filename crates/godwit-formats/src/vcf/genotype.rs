//! Genotypes: alleles of one sample.

/// Most alleles of a genotype: enough for pooled samples.
const MAX_PLOIDY: usize = 1024;

/// The text of a genotype, known to be one: `0/1`, `1|0`, `./.`, `1`, or with a separator in front (VCFv4.4 §1.6.2).
#[derive(Clone, Copy, Debug)]
pub struct Genotype<'t> {
    text: &'t str,
}

impl<'t> Genotype<'t> {
    /// `None` for what is no genotype.
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

    /// Indices of alleles, 0 for the reference; `None` for one that is missing.
    pub fn alleles(&self) -> impl Iterator<Item = Option<i32>> + use<'t> {
        self.text.split(['/', '|']).map(|allele| allele.parse().ok())
    }

    /// Whether it has several alleles, and which of them came from one chromosome is known.
    pub fn is_phased(&self) -> bool {
        self.text.contains('|') && !self.text.contains('/')
    }
}
