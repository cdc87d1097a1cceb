//! Genotypes: alleles of one sample.

/// Maximum alleles of a genotype: enough for pooled samples.
const MAX_PLOIDY: usize = 1024;

/// A valid genotype text: `0/1`, `1|0`, `./.`, `1`, or with a separator in front (VCFv4.4 §1.6.2).
#[derive(Clone, Copy, Debug)]
pub struct Genotype<'t> {
    text: &'t str,
}

impl<'t> Genotype<'t> {
    /// Parses a genotype; returns `None` for other text.
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

    /// Returns the indices of alleles, 0 for the reference; `None` for a missing one.
    pub fn alleles(&self) -> impl Iterator<Item = Option<i32>> + use<'t> {
        self.text.split(['/', '|']).map(|allele| allele.parse().ok())
    }

    /// Reports whether it has several alleles and all of them are phased.
    pub fn is_phased(&self) -> bool {
        self.text.contains('|') && !self.text.contains('/')
    }
}
