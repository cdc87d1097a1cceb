//! A read simulator that imitates a sequencer; each template is determined by its number alone.
//!
//! In: contigs, a [`Scenario`] and qualities. Out: any template by its number, without the templates before it. Fragments
//! are drawn from all contigs and differ from the genome as an individual does. Reads have errors at the rates of their
//! qualities. A fraction of the reads is odd: chimeras, foreign sequence, runs of N, lower-case and IUPAC letters, tails
//! of G, few bases, pieces over the end of a contig, mates in an unusual orientation. Where a fragment is shorter than a
//! read, the adapter follows.

use crate::qualities::QualitySource;
use crate::random::{Purpose, Random, reverse_complement};
use crate::scenario::{ReadLengths, Scenario};

/// The starts of the adapters that follow the fragment in read 1 and read 2 (Illumina TruSeq).
const ADAPTERS: [&[u8]; 2] = [b"AGATCGGAAGAGCACACGTCTGAACTCCAGTCAC", b"AGATCGGAAGAGCGTCGTGTAGGGAAAGAGTGTA"];
/// The rate of differences of an individual from the genome, per base.
const VARIANT_SHARE: f64 = 0.0015;
/// Letters that stand for two or three bases.
const IUPAC: &[u8] = b"RYSWKMBDHV";
/// The offset of qualities in FASTQ text.
const PHRED_OFFSET: u8 = 33;
/// The quality of a base that the sequencer did not call.
const NOT_CALLED: u8 = 2;

/// A read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Letters of the sequence.
    pub bases: Vec<u8>,
    /// Qualities as FASTQ letters, as many as bases.
    pub qualities: Vec<u8>,
}

/// A read, or a read and its mate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// One read or two.
    pub reads: Vec<Read>,
}

impl Template {
    /// Returns the number of bases of all reads.
    pub fn bases(&self) -> u64 {
        self.reads.iter().map(|read| read.bases.len() as u64).sum()
    }
}

/// A simulator of the reads of a scenario.
pub struct ReadSimulator<'a> {
    contigs: &'a [Vec<u8>],
    /// The number of bases of the contigs up to and including each.
    contig_ends: Vec<usize>,
    scenario: &'a Scenario,
    qualities: &'a QualitySource,
}

/// The oddities; each occurs in the same fraction of the templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddity {
    ForeignRead,
    ForeignTemplate,
    ChimericRead,
    DistantMate,
    SameStrand,
    OutwardPair,
    ContigEnd,
    UncalledRun,
    LowerCase,
    Iupac,
    GuanineTail,
    FewBases,
}

const ODDITIES: [Oddity; 12] = [
    Oddity::ForeignRead,
    Oddity::ForeignTemplate,
    Oddity::ChimericRead,
    Oddity::DistantMate,
    Oddity::SameStrand,
    Oddity::OutwardPair,
    Oddity::ContigEnd,
    Oddity::UncalledRun,
    Oddity::LowerCase,
    Oddity::Iupac,
    Oddity::GuanineTail,
    Oddity::FewBases,
];

impl<'a> ReadSimulator<'a> {
    /// Returns a simulator of the reads of `scenario` on contigs in upper case.
    pub fn new(contigs: &'a [Vec<u8>], scenario: &'a Scenario, qualities: &'a QualitySource) -> Self {
        let mut total = 0;
        let contig_ends = contigs
            .iter()
            .map(|contig| {
                total += contig.len();
                total
            })
            .collect();
        Self { contigs, contig_ends, scenario, qualities }
    }

    /// Returns template `index` of the scenario.
    pub fn template(&self, index: u64) -> Template {
        let stream = self.scenario.round << 40 ^ index;
        let mut random = Random::stream(self.scenario.seed, Purpose::Template, stream);
        let oddity = random.chance(self.scenario.oddity_share * ODDITIES.len() as f64).then(|| *random.pick(&ODDITIES));
        let mates = if self.scenario.paired { 2 } else { 1 };
        let fragment = self.fragment(&mut random, oddity);
        let mut ends = [fragment.clone(), reverse_complement(&fragment)];
        match oddity {
            Some(Oddity::SameStrand) => ends[1] = fragment,
            Some(Oddity::OutwardPair) => ends = ends.map(|end| reverse_complement(&end)),
            Some(Oddity::DistantMate) => ends[1] = self.fragment(&mut random, None),
            Some(Oddity::ForeignTemplate) => ends = ends.map(|end| random.bases(end.len(), 0.45)),
            Some(Oddity::ForeignRead) => {
                let mate = random.below(mates);
                ends[mate] = random.bases(1000, 0.45);
            }
            _ => {}
        }
        let odd_mate = random.below(mates);
        let reads = (0..mates)
            .map(|mate| self.read(&mut random, mate, &ends[mate], oddity.filter(|_| mate == odd_mate)))
            .collect();
        Template { reads }
    }

    /// Returns a piece of the genome with the differences of an individual, on either strand.
    fn fragment(&self, random: &mut Random, oddity: Option<Oddity>) -> Vec<u8> {
        let mean = self.scenario.fragment_mean;
        let most = if oddity == Some(Oddity::OutwardPair) { 20.0 * mean } else { 4.0 * mean };
        let length = (mean + self.scenario.fragment_deviation * random.normal()).clamp(20.0, most) as usize;
        let at_end = oddity == Some(Oddity::ContigEnd);
        let mut bases = if at_end { self.piece_over_end(random, length) } else { self.piece(random, length) };
        if oddity == Some(Oddity::ChimericRead) {
            let other = self.piece(random, length);
            let joint = random.below(bases.len().min(self.scenario.read_lengths.most()));
            bases.splice(joint.., other);
        }
        let changed = random.mutated(&bases, VARIANT_SHARE);
        if random.chance(0.5) { reverse_complement(&changed) } else { changed }
    }

    /// Returns a piece of one contig, shorter where the contig ends.
    fn piece(&self, random: &mut Random, length: usize) -> Vec<u8> {
        let place = random.below(self.contig_ends.last().copied().unwrap_or(0));
        let contig = self.contig_ends.partition_point(|end| *end <= place);
        let start = self.contigs[contig].len() - (self.contig_ends[contig] - place);
        let end = (start + length).min(self.contigs[contig].len());
        let mut bases = self.contigs[contig][start..end].to_vec();
        if bases.len() < 20 {
            bases.extend(random.bases(20, 0.5));
        }
        bases
    }

    /// Returns the end of a contig and the start of the next one, which are neighbours in the index; or the start of a contig.
    fn piece_over_end(&self, random: &mut Random, length: usize) -> Vec<u8> {
        let contig = random.below(self.contigs.len());
        let (bases, next) = (&self.contigs[contig], &self.contigs[(contig + 1) % self.contigs.len()]);
        if random.chance(0.5) {
            return bases[..length.min(bases.len())].to_vec();
        }
        let before = random.between(1, length).min(bases.len());
        let mut piece = bases[bases.len() - before..].to_vec();
        piece.extend(&next[..(length - before.min(length)).min(next.len())]);
        piece
    }

    /// Reads `end` from its start: as many bases as a read has, with adapter, qualities, errors and the oddities of
    /// single reads.
    fn read(&self, random: &mut Random, mate: usize, end: &[u8], oddity: Option<Oddity>) -> Read {
        let length = match self.scenario.read_lengths {
            ReadLengths::Fixed(bases) => bases,
            ReadLengths::Mixed(least, most) => random.between(least, most),
        };
        let length = if oddity == Some(Oddity::FewBases) { random.between(1, 30.min(length)) } else { length };
        let mut bases: Vec<u8> = end.iter().chain(ADAPTERS[mate]).take(length).copied().collect();
        let missing = length - bases.len();
        bases.extend(random.bases(missing, 0.5));
        if oddity == Some(Oddity::GuanineTail) {
            let start = random.below(length);
            bases[start..].fill(b'G');
        }
        let mut qualities = Vec::with_capacity(length);
        self.qualities.draw(self.scenario.quality_profile, mate, length, random, &mut qualities);
        for (base, letter) in bases.iter_mut().zip(&mut qualities) {
            let quality = letter.saturating_sub(PHRED_OFFSET);
            if quality <= NOT_CALLED || *base == b'N' {
                (*base, *letter) = (b'N', NOT_CALLED + PHRED_OFFSET);
            } else if random.chance(10f64.powf(-f64::from(quality) / 10.0)) {
                *base = random.other_base(*base);
            }
        }
        match oddity {
            Some(Oddity::UncalledRun) => {
                let start = random.below(length);
                let stop = random.between(start, length);
                bases[start..stop].fill(b'N');
            }
            Some(Oddity::LowerCase) => bases.make_ascii_lowercase(),
            Some(Oddity::Iupac) => {
                let at = random.below(length);
                bases[at] = *random.pick(IUPAC);
            }
            _ => {}
        }
        Read { bases, qualities }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contigs() -> Vec<Vec<u8>> {
        let mut random = Random::stream(1, Purpose::Genome, 0);
        [50_000, 10, 20_000].map(|bases| random.bases(bases, 0.4)).to_vec()
    }

    #[test]
    fn every_round_gives_whole_reads_that_are_the_same_again() {
        let contigs = contigs();
        for round in 0..60 {
            let scenario = Scenario { oddity_share: 0.05, ..Scenario::draw(1, round, 1000) };
            let simulator = ReadSimulator::new(&contigs, &scenario, &QualitySource::Model);
            for index in 0..100 {
                let template = simulator.template(index);
                assert_eq!(template.reads.len(), if scenario.paired { 2 } else { 1 });
                for read in &template.reads {
                    assert!((1..=scenario.read_lengths.most()).contains(&read.bases.len()));
                    assert_eq!(read.bases.len(), read.qualities.len());
                    assert!(read.qualities.iter().all(|letter| (b'!'..=b'~').contains(letter)));
                }
                assert_eq!(template, simulator.template(index));
            }
        }
    }

    #[test]
    fn without_oddities_most_reads_are_pieces_of_the_genome() {
        let contigs = contigs();
        let scenario = Scenario {
            read_lengths: ReadLengths::Fixed(100),
            fragment_mean: 300.0,
            fragment_deviation: 20.0,
            oddity_share: 0.0,
            ..Scenario::draw(1, 0, 1000)
        };
        let simulator = ReadSimulator::new(&contigs, &scenario, &QualitySource::Model);
        let strands = [contigs[0].clone(), reverse_complement(&contigs[0])];
        let words: std::collections::HashSet<&[u8]> = strands.iter().flat_map(|strand| strand.windows(20)).collect();
        let found = (0..300).filter(|index| {
            let template = simulator.template(*index);
            template.reads.iter().all(|read| read.bases.windows(20).any(|word| words.contains(word)))
        });
        assert!(found.count() > 180);
    }
}
