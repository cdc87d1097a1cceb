//! Options of duplicate marking, as Picard and as godwit want them told, drawn from seeds.

use crate::random::Random;
use crate::sam::SamText;

/// Everything that changes what MarkDuplicates does to records, beside what becomes of duplicates as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marking {
    /// On input grouped by name: `ASSUME_SORT_ORDER=queryname`.
    pub query: bool,
    /// `REMOVE_SEQUENCING_DUPLICATES`.
    pub remove_sequencing: bool,
    /// `TAGGING_POLICY`.
    pub tagging: Tagging,
    /// `TAG_DUPLICATE_SET_MEMBERS`.
    pub set_members: bool,
    /// `BARCODE_TAG`.
    pub barcode: Option<&'static str>,
    /// `READ_ONE_BARCODE_TAG`.
    pub read_one: Option<&'static str>,
    /// `READ_TWO_BARCODE_TAG`.
    pub read_two: Option<&'static str>,
    /// `DUPLEX_UMI`.
    pub duplex: bool,
    /// `MOLECULAR_IDENTIFIER_TAG`.
    pub molecule: Option<&'static str>,
}

/// `TAGGING_POLICY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tagging {
    /// Nothing is tagged.
    #[default]
    DontTag,
    /// Optical duplicates are.
    OpticalOnly,
    /// All duplicates are.
    All,
}

impl Marking {
    /// Options of a seed; not always other than the default ones.
    pub fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x6f70_7469_6f6e);
        let barcode = random.chance(0.35).then_some("RX");
        let duplex = barcode.is_some() && random.chance(0.4);
        Self {
            query: random.chance(0.6),
            remove_sequencing: random.chance(0.3),
            tagging: *random.pick(&[Tagging::DontTag, Tagging::OpticalOnly, Tagging::All]),
            set_members: random.chance(0.6),
            barcode,
            read_one: random.chance(0.2).then_some("BX"),
            read_two: random.chance(0.2).then_some(if random.chance(0.5) { "BX" } else { "CX" }),
            duplex,
            molecule: barcode.and_then(|_| random.chance(0.4).then_some("MI")),
        }
    }

    fn tags(&self) -> [(&'static str, &'static str, Option<&'static str>); 4] {
        [
            ("--BARCODE_TAG", "--barcode-tag", self.barcode),
            ("--READ_ONE_BARCODE_TAG", "--read-one-barcode-tag", self.read_one),
            ("--READ_TWO_BARCODE_TAG", "--read-two-barcode-tag", self.read_two),
            ("--MOLECULAR_IDENTIFIER_TAG", "--molecular-identifier-tag", self.molecule),
        ]
    }

    /// Arguments of MarkDuplicates.
    pub fn picard_words(&self) -> Vec<&'static str> {
        let truth = |value: bool| if value { "true" } else { "false" };
        let policy = match self.tagging {
            Tagging::DontTag => "DontTag",
            Tagging::OpticalOnly => "OpticalOnly",
            Tagging::All => "All",
        };
        let mut words = vec!["--TAGGING_POLICY", policy, "--DUPLEX_UMI", truth(self.duplex)];
        words.extend(["--REMOVE_SEQUENCING_DUPLICATES", truth(self.remove_sequencing)]);
        words.extend(["--TAG_DUPLICATE_SET_MEMBERS", truth(self.set_members)]);
        if self.query {
            words.extend(["--ASSUME_SORT_ORDER", "queryname"]);
        }
        for (option, _, tag) in self.tags() {
            words.extend(tag.into_iter().flat_map(|tag| [option, tag]));
        }
        words
    }

    /// Arguments of godwit that say the same, but for [`Marking::remove_sequencing`], which is a policy there.
    pub fn godwit_words(&self) -> Vec<&'static str> {
        let policy = match self.tagging {
            Tagging::DontTag => "none",
            Tagging::OpticalOnly => "optical",
            Tagging::All => "all",
        };
        let mode = if self.query { "query" } else { "coordinate" };
        let mut words = vec!["--tagging-policy", policy, "--duplicate-mode", mode];
        words.extend(self.set_members.then_some("--tag-duplicate-set-members"));
        words.extend(self.duplex.then_some("--duplex-umi"));
        for (_, option, tag) in self.tags() {
            words.extend(tag.into_iter().flat_map(|tag| [option, tag]));
        }
        words
    }

    /// A file fit for these options: with barcodes where they are looked at, and without what Picard refuses then, which is
    /// duplex barcodes on reads that have no mate, or whose mate's CIGAR is not told.
    pub fn prepared(&self, case: &SamText, seed: u64) -> SamText {
        let mut case = case.clone();
        let Self { barcode, read_one, read_two, duplex, molecule, .. } = self;
        if barcode.or(*read_one).or(*read_two).is_none() {
            return case;
        }
        let paired = |record: &str| crate::sam::flag(record) & 1 != 0;
        if *duplex && molecule.is_some() {
            case.records.retain(|record| paired(record));
        }
        for record in &mut case.records {
            let name = record.split('\t').next().unwrap_or_default();
            // Mates mostly share their barcodes.
            let mut random = Random::new(mixed(seed, name));
            let shared = if *duplex { DUPLEX } else { SINGLE };
            let own = [random.pick(shared), random.pick(OWN), random.pick(OWN)];
            let mut random = Random::new(mixed(seed, record));
            for (tag, usual) in ["RX", "BX", "CX"].iter().zip(own) {
                let alone = *duplex && *tag == "RX" && !paired(record);
                let values = if *tag != "RX" { OWN } else { shared };
                let value = if random.chance(0.06) { random.pick(values) } else { usual };
                if !alone && random.chance(0.95) {
                    record.push_str(&format!("\t{tag}:Z:{value}"));
                }
            }
            if *duplex && paired(record) && !record.contains("\tMC:Z:") {
                record.push_str("\tMC:Z:3S24M2H");
            }
        }
        case
    }
}

fn mixed(seed: u64, text: &str) -> u64 {
    text.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

const SINGLE: &[&str] = &["ACGT", "ACGT", "ACGT", "ACGA", "N-t"];
const DUPLEX: &[&str] = &["AC-GT", "AC-GT", "GT-AC", "-AT", "AC-GT-"];
/// The first two have one hash in Java, so Picard takes them for one barcode.
const OWN: &[&str] = &["Aa", "BB", "C"];

/// The records of a file grouped by name, in the order in which the names appear, as an aligner writes them.
pub fn grouped(case: &SamText) -> SamText {
    let mut places = std::collections::HashMap::new();
    for record in &case.records {
        let next = places.len();
        places.entry(record.split('\t').next().unwrap_or_default().to_owned()).or_insert(next);
    }
    let mut records = case.records.clone();
    records.sort_by_key(|record| places[record.split('\t').next().unwrap_or_default()]);
    SamText { header: case.header.clone(), records }
}
