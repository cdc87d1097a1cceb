//! Small SAM files, made from seeds, that exercise all rules of duplicate marking at once.
//!
//! Input: a seed. Output: a file of 5 to 120 records, unsorted, that samtools can sort and Picard accepts with
//! `VALIDATION_STRINGENCY=SILENT` in at least 98 of 100 cases. All records are close to a few 5' ends, so that most are
//! in a duplicate set with a record that differs from them in exactly one respect: strand, clipping, library, read group,
//! mate, score, position on the flow cell, or position in the file.
//!
//! Each file has a [`Profile`], which decides what is frequent in it. A file never contains what htslib would change
//! while sorting (a mapped record without CIGAR or contig), because then godwit and the oracle would read different
//! input. It also never contains paired records with mapped mates and no read group, on which Picard throws a null
//! pointer exception.
//!
//! Mates may contradict each other about the mapping of each. Two contradictions occur only in
//! [`generate_contradictory_sam`], on whose files Picard itself is inconsistent. The first is a mapped mate on no contig
//! (`RNEXT` `*`): Picard 3.4.0 treats it as a pair and as a fragment, marks it twice, and then misses the duplicates that
//! follow in the file. The second is both mates naming the same third contig: Picard throws if any record is on that
//! contig.

mod alignment;
mod read_names;
mod templates;

use crate::random::Random;
use crate::sam::SamText;

/// The features that are frequent in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All features.
    Mixed,
    /// Large sets of pairs that are neighbours on the flow cell, in chains.
    Optical,
    /// Reads without a mapped mate, and pairs at the same ends.
    Fragments,
    /// Pairs whose ends have equal 5' positions.
    SamePosition,
    /// Names of unusual forms, which are repeated within a read group and in several read groups.
    Names,
    /// Mates that are absent, unmapped, elsewhere, or described wrongly.
    Mates,
    /// Long reads and quality strings on both sides of the cap on scores.
    Scores,
}

/// All profiles, of which a seed selects one. `Optical` occurs twice, because optical sets need many pairs at the same
/// two ends, which are rare in other profiles.
const PROFILES: [Profile; 8] = [
    Profile::Mixed,
    Profile::Optical,
    Profile::Optical,
    Profile::Fragments,
    Profile::SamePosition,
    Profile::Names,
    Profile::Mates,
    Profile::Scores,
];

/// A contig of the fuzzed files.
#[derive(Clone, Debug)]
struct Contig {
    name: String,
    bases: i64,
}

/// A read group and its library, if it names one.
#[derive(Clone, Debug)]
struct ReadGroup {
    id: String,
    library: Option<String>,
}

/// A 5' end that many reads share: contig and 1-based unclipped coordinate, which may be before the contig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FivePrimeEnd {
    contig: usize,
    position_1based: i64,
}

/// Generates the file of `seed`.
pub fn generate_sam(seed: u64) -> SamText {
    generate(seed, false)
}

/// Generates the file of `seed`, with contradictions between mates for which Picard cannot be the oracle.
pub fn generate_contradictory_sam(seed: u64) -> SamText {
    generate(seed, true)
}

fn generate(seed: u64, contradictory: bool) -> SamText {
    let mut random = Random::new(seed);
    let profile = *random.pick(&PROFILES);
    let contigs = random_contigs(&mut random);
    let groups = random_read_groups(&mut random);
    let anchors = random_five_prime_ends(&contigs, profile, &mut random);
    let wanted = 5 + random.below(if profile == Profile::Optical { 116 } else { 80 });
    let mut records = {
        let mut writer =
            templates::TemplateWriter::new(profile, contradictory, &contigs, &groups, &anchors, &mut random);
        writer.records(wanted, &mut random)
    };
    random.shuffle(&mut records);
    SamText { header: header(&contigs, &groups), records }
}

/// Returns the profile of the file of `seed`.
pub fn profile_of_seed(seed: u64) -> Profile {
    *Random::new(seed).pick(&PROFILES)
}

fn random_contigs(random: &mut Random) -> Vec<Contig> {
    let sizes = [100_000, 40_000, 2_000, 700];
    let count = 1 + random.below(sizes.len());
    sizes[..count].iter().zip(1..).map(|(bases, number)| Contig { name: format!("c{number}"), bases: *bases }).collect()
}

/// Draws read groups. Their ids are prefixes of each other, because Picard joins mates by the concatenation of id and
/// name.
fn random_read_groups(random: &mut Random) -> Vec<ReadGroup> {
    let libraries = [Some("libA"), Some("libA"), Some("libB"), None, Some("Unknown Library")];
    let count = 1 + random.below(4);
    ["g1", "g", "g1x", "g2"][..count]
        .iter()
        .map(|id| ReadGroup { id: (*id).to_owned(), library: random.pick(&libraries).map(str::to_owned) })
        .collect()
}

fn random_five_prime_ends(contigs: &[Contig], profile: Profile, random: &mut Random) -> Vec<FivePrimeEnd> {
    let count = if profile == Profile::Optical { 2 } else { 2 + random.below(4) };
    let mut anchors: Vec<FivePrimeEnd> = Vec::new();
    for _ in 0..count {
        let contig = if random.chance(0.7) { 0 } else { random.below(contigs.len()) };
        let position_1based = match random.below(10) {
            0 => random.between(-6, 3),
            1 => contigs[contig].bases - random.between(0, 30),
            _ => random.between(250, contigs[contig].bases - 250),
        };
        anchors.push(FivePrimeEnd { contig, position_1based });
        if random.chance(0.4) {
            // Add a position less than a read length away, so that reads at both positions overlap.
            let five_prime_1based = (position_1based + random.between(1, 60)).min(contigs[contig].bases);
            anchors.push(FivePrimeEnd { contig, position_1based: five_prime_1based });
        }
    }
    anchors
}

fn header(contigs: &[Contig], groups: &[ReadGroup]) -> Vec<String> {
    let mut lines = vec!["@HD\tVN:1.6\tSO:unsorted".to_owned()];
    lines.extend(contigs.iter().map(|contig| format!("@SQ\tSN:{}\tLN:{}", contig.name, contig.bases)));
    for group in groups {
        let library = group.library.as_ref().map_or(String::new(), |library| format!("\tLB:{library}"));
        lines.push(format!("@RG\tID:{}\tSM:sample{library}", group.id));
    }
    lines.push("@PG\tID:fuzz\tPN:fuzz".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_file_again_and_another_seed_another() {
        assert_eq!(generate_sam(7), generate_sam(7));
        assert_ne!(generate_sam(7), generate_sam(8));
    }

    #[test]
    fn files_have_five_records_or_more_and_about_a_hundred_at_most() {
        for seed in 0..300 {
            let records = generate_sam(seed).records.len();
            assert!((5..=125).contains(&records), "seed {seed}: {records} records");
        }
    }
}
