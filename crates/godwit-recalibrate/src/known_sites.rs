//! Positions of known variants. Mismatches there do not count as sequencing errors.

/// Maximum length of a short site, bases. Longer sites are kept apart, so that a search among the short ones looks back
/// by at most this length.
const MAX_SHORT_BASES: u32 = 256;

/// A known site, 0-based and half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The known sites of a genome: 8 bytes for each different site.
#[derive(Debug, Default)]
pub struct KnownSites {
    contigs: Vec<ContigSites>,
}

/// The known sites of a contig, sorted.
#[derive(Debug, Default)]
struct ContigSites {
    short: Vec<Site>,
    long: Vec<Site>,
    /// For each long site, the maximum end of it and all before it.
    long_ends: Vec<u32>,
}

/// A builder of [`KnownSites`], which receives sites in any order.
///
/// # Examples
///
/// ```
/// use godwit_recalibrate::KnownSitesBuilder;
///
/// let mut sites = KnownSitesBuilder::new(1);
/// sites.push(0, 999, 1000);
/// sites.push(0, 99, 102);
/// sites.push(0, 999, 1000);
/// assert_eq!(sites.finish().site_count(), 2);
/// ```
#[derive(Debug, Default)]
pub struct KnownSitesBuilder {
    contigs: Vec<Vec<Site>>,
}

impl KnownSitesBuilder {
    /// Creates a builder for a genome with `contigs` contigs.
    pub fn new(contigs: usize) -> Self {
        Self { contigs: vec![Vec::new(); contigs] }
    }

    /// Adds the site `[start, end)` of a contig, 0-based. Ignores a site without bases.
    ///
    /// # Panics
    /// Panics if the contig is not one of the genome.
    pub fn push(&mut self, contig: usize, start: u32, end: u32) {
        if start < end {
            self.contigs[contig].push(Site { start, end });
        }
    }

    /// Sorts the sites and drops repeated ones.
    pub fn finish(self) -> KnownSites {
        KnownSites { contigs: self.contigs.into_iter().map(ContigSites::new).collect() }
    }
}

impl ContigSites {
    fn new(mut sites: Vec<Site>) -> Self {
        sites.sort_unstable();
        sites.dedup();
        let long: Vec<Site> = sites.iter().copied().filter(|site| site.end - site.start > MAX_SHORT_BASES).collect();
        sites.retain(|site| site.end - site.start <= MAX_SHORT_BASES);
        sites.shrink_to_fit();
        let mut furthest = 0;
        let longest_before = long.iter().map(|site| {
            furthest = furthest.max(site.end);
            furthest
        });
        Self { short: sites, long_ends: longest_before.collect(), long }
    }
}

impl KnownSites {
    /// Returns the number of different sites.
    pub fn site_count(&self) -> usize {
        self.contigs.iter().map(|contig| contig.short.len() + contig.long.len()).sum()
    }
}

/// A search among known sites. It is fast if each read starts at or after the one before.
#[derive(Clone, Debug)]
pub(crate) struct SiteSearch<'s> {
    sites: &'s KnownSites,
    contig: usize,
    /// Index of the first short site that may overlap the last read.
    first_short: usize,
    last_start: u32,
}

impl<'s> SiteSearch<'s> {
    pub(crate) fn new(sites: &'s KnownSites) -> Self {
        Self { sites, contig: usize::MAX, first_short: 0, last_start: 0 }
    }

    /// Calls `each` with every site that overlaps `[start, end)` of a contig, 0-based.
    pub(crate) fn overlapping(&mut self, contig: usize, start: u32, end: u32, mut each: impl FnMut(Site)) {
        let Some(sites) = self.sites.contigs.get(contig) else { return };
        let lowest = start.saturating_sub(MAX_SHORT_BASES);
        if contig != self.contig || start < self.last_start {
            self.first_short = sites.short.partition_point(|site| site.start < lowest);
        } else {
            let behind = sites.short[self.first_short..].iter().take_while(|site| site.start < lowest).count();
            self.first_short += behind;
        }
        (self.contig, self.last_start) = (contig, start);
        let short = sites.short[self.first_short..].iter().take_while(|site| site.start < end);
        short.filter(|site| site.end > start).for_each(|site| each(*site));
        let before = sites.long.partition_point(|site| site.start < end);
        for at in (0..before).rev().take_while(|at| sites.long_ends[*at] > start) {
            if sites.long[at].end > start {
                each(sites.long[at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_finds_the_sites_that_a_scan_finds() {
        let mut builder = KnownSitesBuilder::new(2);
        let mut random = 7u32;
        let mut all = Vec::new();
        for _ in 0..400 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let start = (random >> 8) % 10_000;
            let bases = [1, 1, 3, 40, 256, 257, 3000][(random % 7) as usize];
            builder.push(1, start, start + bases);
            all.push(Site { start, end: start + bases });
        }
        all.sort_unstable();
        all.dedup();
        let sites = builder.finish();
        assert_eq!(sites.site_count(), all.len());
        let mut search = SiteSearch::new(&sites);
        for start in (0..11_000).step_by(17).chain([5000, 30, 9999]) {
            let mut found = Vec::new();
            search.overlapping(1, start, start + 100, |site| found.push(site));
            found.sort_unstable();
            let expected = all.iter().filter(|site| site.start < start + 100 && site.end > start);
            assert!(found.iter().eq(expected), "at {start}");
        }
        search.overlapping(0, 0, 10_000, |site| panic!("{site:?} is on another contig"));
    }
}
