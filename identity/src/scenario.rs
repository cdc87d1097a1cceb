//! The parameters of one round: reads, block size and options of the aligner, drawn from the seed and the number of the
//! round.

use std::fmt;

use crate::qualities::QualityProfile;
use crate::random::{Purpose, Random};

/// Read lengths of sequencers, and lengths on both sides of the sizes of buffers in aligners.
const READ_BASES: [usize; 16] = [36, 50, 75, 76, 100, 101, 125, 148, 150, 151, 152, 250, 300, 500, 700, 1000];
/// The smallest read length in a round with mixed lengths.
const LEAST_READ_BASES: usize = 36;
/// Values of bwa's `-K`; the smallest gives a small round many blocks.
const BLOCK_BASES: [u64; 4] = [100_000, 1_000_000, 10_000_000, 100_000_000];
/// The read length of a round with the full number of templates; rounds with longer reads have fewer templates.
const ORDINARY_READ_BASES: usize = 150;

/// The lengths of the reads of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLengths {
    /// All reads have this length.
    Fixed(usize),
    /// Lengths are uniformly distributed between these two, as after trimming.
    Mixed(usize, usize),
}

impl ReadLengths {
    /// Returns the greatest length.
    pub fn most(self) -> usize {
        match self {
            Self::Fixed(bases) | Self::Mixed(_, bases) => bases,
        }
    }
}

impl fmt::Display for ReadLengths {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bases) => write!(formatter, "{bases} b"),
            Self::Mixed(least, most) => write!(formatter, "{least}-{most} b"),
        }
    }
}

/// The parameters of one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed of the genome and of all rounds.
    pub seed: u64,
    /// The number of the round under the seed, from 0.
    pub round: u64,
    /// The number of templates: pairs, or single reads.
    pub templates: u64,
    /// True if templates have two reads.
    pub paired: bool,
    /// The lengths of the reads.
    pub read_lengths: ReadLengths,
    /// bwa's `-K`, in bases.
    pub block_bases: u64,
    /// Options of `bwa mem`, each with its value.
    pub options: Vec<String>,
    /// True if an option is one that godwit rejects with bwa-mem3, so that only bwa itself is compared.
    pub only_bwa: bool,
    /// The mean length of a fragment, in bases.
    pub fragment_mean: f64,
    /// The standard deviation of that length, in bases.
    pub fragment_deviation: f64,
    /// The set of quality values.
    pub quality_profile: QualityProfile,
    /// The fraction of reads with each unusual property: foreign sequence, chimeras, runs of N, lower case, IUPAC
    /// letters, few bases.
    pub oddity_share: f64,
}

impl Scenario {
    /// Returns the parameters of round `round` of `seed`, with at most `pairs` templates.
    pub fn draw(seed: u64, round: u64, pairs: u64) -> Self {
        let mut random = Random::stream(seed, Purpose::Scenario, round);
        let paired = random.chance(0.8);
        let bases = if random.chance(0.4) { 150 } else { *random.pick(&READ_BASES) };
        let mixed = random.chance(0.25) && bases > LEAST_READ_BASES;
        let read_lengths = if mixed { ReadLengths::Mixed(LEAST_READ_BASES, bases) } else { ReadLengths::Fixed(bases) };
        let only_bwa = random.chance(0.1);
        let mut options = if random.chance(0.4) { Vec::new() } else { draw_options(&mut random) };
        if random.chance(0.4) {
            options.push("-j".to_owned());
        }
        if only_bwa {
            let refused = ["-A 2", "-x pacbio", "-x ont2d", "-a", "-V", "-W 20"];
            let option = *random.pick(&refused);
            options.retain(|other| other.as_bytes()[1] != option.as_bytes()[1]);
            options.push(option.to_owned());
        }
        let fragment_mean = match random.below(4) {
            0 => 0.9 * bases as f64,
            1 => 3.5 * bases as f64,
            _ => 2.3 * bases as f64,
        };
        Self {
            seed,
            round,
            templates: pairs.min(pairs * ORDINARY_READ_BASES as u64 / bases as u64).max(1),
            paired,
            read_lengths,
            block_bases: *random.pick(&BLOCK_BASES),
            options,
            only_bwa,
            fragment_mean: fragment_mean.max(60.0),
            fragment_deviation: fragment_mean.max(60.0) * (0.05 + 0.2 * random.unit()),
            quality_profile: *random.pick(&[QualityProfile::Unbinned, QualityProfile::Binned]),
            oddity_share: *random.pick(&[0.0, 0.005, 0.02]),
        }
    }

    /// Returns [`Scenario::options`] as arguments.
    pub fn option_words(&self) -> Vec<String> {
        split_words(&self.options)
    }
}

/// Splits options with their values into arguments.
pub(crate) fn split_words(options: &[String]) -> Vec<String> {
    options.iter().flat_map(|option| option.split(' ')).map(str::to_owned).collect()
}

impl fmt::Display for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = if self.paired { "pairs" } else { "single reads" };
        write!(formatter, "{} {layout} of {}", self.templates, self.read_lengths)?;
        if self.paired {
            write!(formatter, ", fragments {:.0}±{:.0} b", self.fragment_mean, self.fragment_deviation)?;
        }
        write!(formatter, ", -K {}", self.block_bases)?;
        for option in &self.options {
            write!(formatter, " {option}")?;
        }
        let profile = if self.quality_profile == QualityProfile::Binned { "binned" } else { "unbinned" };
        write!(formatter, ", {profile} qualities, {:.1} % odd reads", 100.0 * self.oddity_share)
    }
}

/// Draws one to four options that godwit passes to bwa and to bwa-mem3 alike.
fn draw_options(random: &mut Random) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for _ in 0..random.between(1, 4) {
        let option = draw_option(random);
        // Use each option at most once, because bwa uses only the last value of a repeated option.
        if options.iter().all(|other| other.as_bytes()[1] != option.as_bytes()[1]) {
            options.push(option);
        }
    }
    options
}

/// Options without a value, and the preset that both aligners accept.
const FLAGS: [&str; 8] = ["-M", "-Y", "-5", "-q", "-S", "-P", "-C", "-x intractg"];
/// Options with a whole number between the two limits.
const NUMBERS: [(char, usize, usize); 13] = [
    ('k', 15, 30),
    ('w', 5, 200),
    ('d', 20, 200),
    ('y', 5, 30),
    ('c', 20, 1000),
    ('m', 1, 60),
    ('B', 2, 8),
    ('U', 5, 25),
    ('T', 15, 60),
    ('s', 1, 20),
    ('N', 5, 60),
    ('G', 100, 20_000),
    ('Q', 30, 60),
];
/// Options with two whole numbers, each between its own limits.
const NUMBER_PAIRS: [(char, [usize; 2], [usize; 2]); 5] = [
    ('O', [3, 9], [3, 9]),
    ('E', [1, 3], [1, 3]),
    ('L', [0, 9], [0, 9]),
    ('h', [0, 20], [5, 200]),
    ('I', [150, 500], [10, 80]),
];
/// Options with a fraction between the two limits.
const FRACTIONS: [(char, f64, f64); 3] = [('r', 1.0, 2.0), ('D', 0.2, 0.8), ('X', 0.3, 0.9)];

fn draw_option(random: &mut Random) -> String {
    match random.below(4) {
        0 => (*random.pick(&FLAGS)).to_owned(),
        1 => {
            let (letter, [first_least, first_most], [second_least, second_most]) = *random.pick(&NUMBER_PAIRS);
            let first = random.between(first_least, first_most);
            format!("-{letter} {first},{}", random.between(second_least, second_most))
        }
        2 => {
            let (letter, least, most) = *random.pick(&FRACTIONS);
            format!("-{letter} {:.1}", least + (most - least) * random.unit())
        }
        _ => {
            let (letter, least, most) = *random.pick(&NUMBERS);
            format!("-{letter} {}", random.between(least, most))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_the_same_whenever_it_is_drawn() {
        assert_eq!(Scenario::draw(7, 3, 1000), Scenario::draw(7, 3, 1000));
        assert_ne!(Scenario::draw(7, 3, 1000), Scenario::draw(7, 4, 1000));
    }

    #[test]
    fn rounds_have_all_lengths_block_sizes_layouts_and_options() {
        let rounds: Vec<Scenario> = (0..2000).map(|round| Scenario::draw(1, round, 1000)).collect();
        for bases in READ_BASES {
            assert!(rounds.iter().any(|scenario| scenario.read_lengths == ReadLengths::Fixed(bases)), "{bases}");
        }
        for block_bases in BLOCK_BASES {
            assert!(rounds.iter().any(|scenario| scenario.block_bases == block_bases));
        }
        for letter in "MY5qSPCxkwdycmBUTsNGQOELhIrDXjAaVW".bytes() {
            let has = |scenario: &Scenario| scenario.options.iter().any(|option| option.as_bytes()[1] == letter);
            assert!(rounds.iter().any(has), "no round has -{}", char::from(letter));
        }
        let singles = rounds.iter().filter(|scenario| !scenario.paired).count();
        assert!((200..600).contains(&singles), "{singles}");
    }

    #[test]
    fn no_round_gives_an_option_twice_and_none_is_refused_by_bwa_mem3_unless_it_says_so() {
        for scenario in (0..2000).map(|round| Scenario::draw(2, round, 1000)) {
            let mut letters: Vec<u8> = scenario.options.iter().map(|option| option.as_bytes()[1]).collect();
            letters.sort_unstable();
            assert!(letters.windows(2).all(|pair| pair[0] != pair[1]), "{scenario}");
            let refused = |option: &String| {
                ["-A", "-a", "-V", "-W"].iter().any(|start| option.starts_with(start))
                    || option.starts_with("-x p")
                    || option.starts_with("-x o")
            };
            assert_eq!(scenario.options.iter().any(refused), scenario.only_bwa, "{scenario}");
        }
    }
}
