//! Options of duplicate marking drawn from seeds, as arguments of Picard and of godwit.

use crate::random::Random;
use crate::sam::SamText;

/// All options of MarkDuplicates that change records, except the choice between marking and removing duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MarkingOptions {
    /// `ASSUME_SORT_ORDER=queryname`, for input grouped by name.
    pub query_grouped: bool,
    /// `REMOVE_SEQUENCING_DUPLICATES`.
    pub remove_sequencing_duplicates: bool,
    /// `TAGGING_POLICY`.
    pub tagging: TaggingPolicy,
    /// `TAG_DUPLICATE_SET_MEMBERS`.
    pub tag_set_members: bool,
    /// `BARCODE_TAG`.
    pub barcode: Option<&'static str>,
    /// `READ_ONE_BARCODE_TAG`.
    pub read_one_barcode: Option<&'static str>,
    /// `READ_TWO_BARCODE_TAG`.
    pub read_two_barcode: Option<&'static str>,
    /// `DUPLEX_UMI`.
    pub duplex_umi: bool,
    /// `MOLECULAR_IDENTIFIER_TAG`.
    pub molecular_identifier: Option<&'static str>,
}

/// `TAGGING_POLICY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaggingPolicy {
    /// No duplicates are tagged.
    #[default]
    DontTag,
    /// Optical duplicates are tagged.
    OpticalOnly,
    /// All duplicates are tagged.
    All,
}

impl MarkingOptions {
    /// Returns random options for a seed. Some seeds give the default options.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x6f70_7469_6f6e);
        let barcode = random.chance(0.35).then_some("RX");
        let duplex_umi = barcode.is_some() && random.chance(0.4);
        Self {
            query_grouped: random.chance(0.6),
            remove_sequencing_duplicates: random.chance(0.3),
            tagging: *random.pick(&[TaggingPolicy::DontTag, TaggingPolicy::OpticalOnly, TaggingPolicy::All]),
            tag_set_members: random.chance(0.6),
            barcode,
            read_one_barcode: random.chance(0.2).then_some("BX"),
            read_two_barcode: random.chance(0.2).then_some(if random.chance(0.5) { "BX" } else { "CX" }),
            duplex_umi,
            molecular_identifier: barcode.and_then(|_| random.chance(0.4).then_some("MI")),
        }
    }

    fn tag_options(&self) -> [(&'static str, &'static str, Option<&'static str>); 4] {
        [
            ("--BARCODE_TAG", "--barcode-tag", self.barcode),
            ("--READ_ONE_BARCODE_TAG", "--read-one-barcode-tag", self.read_one_barcode),
            ("--READ_TWO_BARCODE_TAG", "--read-two-barcode-tag", self.read_two_barcode),
            ("--MOLECULAR_IDENTIFIER_TAG", "--molecular-identifier-tag", self.molecular_identifier),
        ]
    }

    /// Returns the arguments of MarkDuplicates.
    pub fn picard_args(&self) -> Vec<&'static str> {
        let truth = |value: bool| if value { "true" } else { "false" };
        let policy = match self.tagging {
            TaggingPolicy::DontTag => "DontTag",
            TaggingPolicy::OpticalOnly => "OpticalOnly",
            TaggingPolicy::All => "All",
        };
        let mut words = vec!["--TAGGING_POLICY", policy, "--DUPLEX_UMI", truth(self.duplex_umi)];
        words.extend(["--REMOVE_SEQUENCING_DUPLICATES", truth(self.remove_sequencing_duplicates)]);
        words.extend(["--TAG_DUPLICATE_SET_MEMBERS", truth(self.tag_set_members)]);
        if self.query_grouped {
            words.extend(["--ASSUME_SORT_ORDER", "queryname"]);
        }
        for (option, _, tag) in self.tag_options() {
            words.extend(tag.into_iter().flat_map(|tag| [option, tag]));
        }
        words
    }

    /// Returns the equivalent arguments of godwit, without [`MarkingOptions::remove_sequencing_duplicates`], which is a
    /// value of `--duplicates` in godwit.
    pub fn godwit_args(&self) -> Vec<&'static str> {
        let policy = match self.tagging {
            TaggingPolicy::DontTag => "none",
            TaggingPolicy::OpticalOnly => "optical",
            TaggingPolicy::All => "all",
        };
        let mode = if self.query_grouped { "query" } else { "coordinate" };
        let mut words = vec!["--tagging-policy", policy, "--duplicate-mode", mode];
        words.extend(self.tag_set_members.then_some("--tag-duplicate-set-members"));
        words.extend(self.duplex_umi.then_some("--duplex-umi"));
        for (_, option, tag) in self.tag_options() {
            words.extend(tag.into_iter().flat_map(|tag| [option, tag]));
        }
        words
    }

    /// Adapts a file to these options: adds barcodes where the options use them, and removes what Picard rejects then:
    /// duplex barcodes on reads that have no mate, or that do not give the CIGAR of their mate.
    pub fn sam_with_barcodes(&self, case: &SamText, seed: u64) -> SamText {
        let mut case = case.clone();
        let Self { barcode, read_one_barcode, read_two_barcode, duplex_umi, molecular_identifier, .. } = self;
        if barcode.or(*read_one_barcode).or(*read_two_barcode).is_none() {
            return case;
        }
        let paired = |record: &str| crate::sam::flag(record) & 1 != 0;
        if *duplex_umi && molecular_identifier.is_some() {
            case.records.retain(|record| paired(record));
        }
        for record in &mut case.records {
            let name = record.split('\t').next().unwrap_or_default();
            // Most templates get one of a few shared barcodes, so that duplicates have equal barcodes.
            let mut random = Random::new(mix_seed(seed, name));
            let shared = if *duplex_umi { DUPLEX_UMIS } else { SINGLE_UMIS };
            let own = [random.pick(shared), random.pick(READ_BARCODES), random.pick(READ_BARCODES)];
            let mut random = Random::new(mix_seed(seed, record));
            for (tag, usual) in ["RX", "BX", "CX"].iter().zip(own) {
                let alone = *duplex_umi && *tag == "RX" && !paired(record);
                let values = if *tag != "RX" { READ_BARCODES } else { shared };
                let value = if random.chance(0.06) { random.pick(values) } else { usual };
                if !alone && random.chance(0.95) {
                    record.push_str(&format!("\t{tag}:Z:{value}"));
                }
            }
            if *duplex_umi && paired(record) && !record.contains("\tMC:Z:") {
                record.push_str("\tMC:Z:3S24M2H");
            }
        }
        case
    }
}

fn mix_seed(seed: u64, text: &str) -> u64 {
    text.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

const SINGLE_UMIS: &[&str] = &["ACGT", "ACGT", "ACGT", "ACGA", "N-t"];
const DUPLEX_UMIS: &[&str] = &["AC-GT", "AC-GT", "GT-AC", "-AT", "AC-GT-"];
/// Barcodes of reads. The first two have the same hash in Java, so Picard treats them as one barcode.
const READ_BARCODES: &[&str] = &["Aa", "BB", "C"];

/// Groups the records of a file by name, in the order in which the names first appear, as an aligner writes them.
pub fn group_by_name(case: &SamText) -> SamText {
    let mut places = std::collections::HashMap::new();
    for record in &case.records {
        let next = places.len();
        places.entry(record.split('\t').next().unwrap_or_default().to_owned()).or_insert(next);
    }
    let mut records = case.records.clone();
    records.sort_by_key(|record| places[record.split('\t').next().unwrap_or_default()]);
    SamText { header: case.header.clone(), records }
}
