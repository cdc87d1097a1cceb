//! Texts that are hashed into the fingerprints of jobs and that are stored in journals and manifests.
//!
//! Each function returns the same bytes as in earlier versions of godwit, because a stopped job is resumed only if its
//! fingerprint is equal. Types and fields may be renamed; these texts must not change. `{:?}` is used only for strings
//! of the standard library, whose format is stable.

use std::collections::BTreeMap;

use godwit_model::{BlockId, Region};

use crate::journal::FingerprintEntry;

/// The name of a fingerprint entry. Entries are looked up and compared by this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FingerprintKey<'k> {
    /// Version of the aligner with this name.
    AlignerVersion(&'k str),
    /// A FASTQ file to align.
    ReadsFile {
        /// Number of the lane, 0-based.
        lane: usize,
        /// Number of the file within the lane, 0-based.
        file: usize,
    },
    /// Version of godwit.
    GodwitVersion,
    /// Version of fastp, which trims reads.
    FastpVersion,
    /// Name and version of the variant caller.
    CallerVersion,
    /// Version of GATK, or `none` if it does not recalibrate.
    GatkVersion,
    /// Options that change the output records, as a command line.
    Command,
    /// Name of the sample.
    Sample,
    /// Number of partitions into which the genome is divided.
    Partitions,
    /// Formats of the outputs.
    Format,
    /// Public keys of the recipients of encrypted outputs.
    Recipients,
    /// `@RG` lines of the header.
    ReadGroups,
    /// The index of the aligner.
    AlignerIndex,
    /// The function of `--step` and the content of its Python module.
    StepModule,
    /// The input file of `markdup`.
    Input,
    /// Genomic intervals in which variants are called.
    Regions,
    /// Number of copies of each contig in the sample.
    Ploidy,
    /// Sex of the sample.
    Sex,
    /// Size of a calling region, bases.
    GridSize,
    /// Length by which a calling region is extended on each side while its variants are called, bases.
    Padding,
    /// The reference genome.
    Reference,
    /// The file of aligned reads.
    Reads,
    /// The file of aligned reads of the normal sample, for somatic calling.
    Normal,
    /// The index of the file of aligned reads.
    ReadsIndex,
    /// Known variants, for base quality recalibration.
    KnownSites,
    /// Number of records in a slice of the aligned reads, for base quality recalibration.
    SliceRecords,
    /// The options of a base quality recalibration that change the new qualities.
    RecalibrationOptions,
    /// The VCF of variants to filter.
    Variants,
    /// Known SNPs on which variant recalibration trains.
    SnpResource,
    /// Known indels on which variant recalibration trains.
    IndelResource,
    /// Expressions of GATK's hard filters.
    HardFilters,
    /// The filter method that was selected.
    FiltersUsed,
    /// The requested metrics of Picard, with names and checksums of their interval lists.
    PicardMetrics,
}

impl FingerprintKey<'_> {
    /// Returns the name of the entry in journals and manifests. It must stay as earlier versions wrote it.
    fn name(self) -> String {
        let name = match self {
            Self::AlignerVersion(aligner) => return format!("the version of {aligner}"),
            Self::ReadsFile { lane, file } => return format!("file {} of lane {}", file + 1, lane + 1),
            Self::GodwitVersion => "the version of godwit",
            Self::FastpVersion => "the version of fastp",
            Self::CallerVersion => "the version of the caller",
            Self::GatkVersion => "the version of GATK",
            Self::Command => "the command",
            Self::Sample => "--sample",
            Self::Partitions => "--partitions",
            Self::Format => "--format",
            Self::Recipients => "--c4gh-recipient",
            Self::ReadGroups => "the read groups",
            Self::AlignerIndex => "the index",
            Self::StepModule => "the module of --step",
            Self::Input => "the input",
            Self::Regions => "--regions",
            Self::Ploidy => "--ploidy",
            Self::Sex => "--sex",
            Self::GridSize => "--grid-size",
            Self::Padding => "--padding",
            Self::Reference => "the reference",
            Self::Reads => "the reads",
            Self::Normal => "--normal",
            Self::ReadsIndex => "the index of the reads",
            Self::KnownSites => "--known-sites",
            Self::SliceRecords => "--slice-records",
            Self::RecalibrationOptions => "the options of recalibration",
            Self::Variants => "the variants",
            Self::SnpResource => "--snp-resource",
            Self::IndelResource => "--indel-resource",
            Self::HardFilters => "the hard filters",
            Self::FiltersUsed => "the filters used",
            Self::PicardMetrics => "--metrics",
        };
        name.to_owned()
    }

    /// Returns a fingerprint entry with this name and a value.
    pub fn entry(self, value: String) -> FingerprintEntry {
        FingerprintEntry { name: self.name(), value }
    }

    /// Reports whether a fingerprint entry has the name of this key.
    pub fn is_of(self, entry: &FingerprintEntry) -> bool {
        entry.name == self.name()
    }
}

/// Returns the verbs for the name of a fingerprint entry in messages: `was` and `is`, or `were` and `are`.
pub(crate) fn verb_forms(name: &str) -> (&'static str, &'static str) {
    let plurals = [
        FingerprintKey::ReadGroups,
        FingerprintKey::Reads,
        FingerprintKey::RecalibrationOptions,
        FingerprintKey::Variants,
        FingerprintKey::HardFilters,
        FingerprintKey::FiltersUsed,
    ];
    if plurals.into_iter().any(|key| key.name() == name) { ("were", "are") } else { ("was", "is") }
}

/// Returns the fingerprint entries as one text, in the given order.
pub(crate) fn entries_text(entries: &[FingerprintEntry]) -> String {
    let text =
        |FingerprintEntry { name, value }: &FingerprintEntry| format!("Fact {{ name: {name:?}, value: {value:?} }}");
    list_text(entries.iter().map(text))
}

/// Returns the checksums of the reads of each block as one text, in the order of the blocks.
pub(crate) fn blocks_text(contents: &BTreeMap<BlockId, String>) -> String {
    let text = |(id, content): (&BlockId, &String)| format!("{}: {content:?}", id.fingerprint_text());
    format!("{{{}}}", contents.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// Returns the regions as one text, in the given order.
pub fn regions_text(regions: &[Region]) -> String {
    list_text(regions.iter().map(Region::fingerprint_text))
}

/// Returns an optional value as text. `text`: the text of the value itself.
pub fn option_text(text: Option<String>) -> String {
    text.map_or_else(|| "None".to_owned(), |text| format!("Some({text})"))
}

fn list_text(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_names_of_earlier_versions() {
        for (key, name) in [
            (FingerprintKey::AlignerVersion("bwa"), "the version of bwa"),
            (FingerprintKey::ReadsFile { lane: 1, file: 0 }, "file 1 of lane 2"),
            (FingerprintKey::GodwitVersion, "the version of godwit"),
            (FingerprintKey::FastpVersion, "the version of fastp"),
            (FingerprintKey::CallerVersion, "the version of the caller"),
            (FingerprintKey::GatkVersion, "the version of GATK"),
            (FingerprintKey::Command, "the command"),
            (FingerprintKey::Sample, "--sample"),
            (FingerprintKey::Partitions, "--partitions"),
            (FingerprintKey::Format, "--format"),
            (FingerprintKey::Recipients, "--c4gh-recipient"),
            (FingerprintKey::ReadGroups, "the read groups"),
            (FingerprintKey::AlignerIndex, "the index"),
            (FingerprintKey::StepModule, "the module of --step"),
            (FingerprintKey::Input, "the input"),
            (FingerprintKey::Regions, "--regions"),
            (FingerprintKey::Ploidy, "--ploidy"),
            (FingerprintKey::Sex, "--sex"),
            (FingerprintKey::GridSize, "--grid-size"),
            (FingerprintKey::Padding, "--padding"),
            (FingerprintKey::Reference, "the reference"),
            (FingerprintKey::Reads, "the reads"),
            (FingerprintKey::Normal, "--normal"),
            (FingerprintKey::ReadsIndex, "the index of the reads"),
            (FingerprintKey::KnownSites, "--known-sites"),
            (FingerprintKey::SliceRecords, "--slice-records"),
            (FingerprintKey::Variants, "the variants"),
            (FingerprintKey::SnpResource, "--snp-resource"),
            (FingerprintKey::IndelResource, "--indel-resource"),
            (FingerprintKey::HardFilters, "the hard filters"),
            (FingerprintKey::FiltersUsed, "the filters used"),
            (FingerprintKey::PicardMetrics, "--metrics"),
        ] {
            let entry = key.entry("v".to_owned());
            assert_eq!((entry.name.as_str(), entry.value.as_str()), (name, "v"));
            assert!(key.is_of(&entry));
        }
        assert!(!FingerprintKey::Reads.is_of(&FingerprintKey::ReadsIndex.entry(String::new())));
        assert_eq!(
            [verb_forms("the read groups"), verb_forms("the index of the reads")],
            [("were", "are"), ("was", "is")]
        );
    }

    #[test]
    fn texts_have_the_bytes_of_earlier_versions() {
        let entry = |name: &str, value: &str| FingerprintEntry { name: name.to_owned(), value: value.to_owned() };
        let entries = [entry("--regions", "none"), entry("the command", "a \"b\"\tc")];
        let expected =
            r#"[Fact { name: "--regions", value: "none" }, Fact { name: "the command", value: "a \"b\"\tc" }]"#;
        assert_eq!(entries_text(&entries), expected);
        assert_eq!(entries_text(&[]), "[]");

        let block = |lane, ordinal, content: &str| (BlockId { lane, ordinal }, content.to_owned());
        let blocks = BTreeMap::from([block(1, 0, "ef"), block(0, 7, "ab")]);
        let expected = r#"{BlockId { lane: 0, ordinal: 7 }: "ab", BlockId { lane: 1, ordinal: 0 }: "ef"}"#;
        assert_eq!(blocks_text(&blocks), expected);
        assert_eq!(blocks_text(&BTreeMap::new()), "{}");

        let regions = [Region { contig: "chr1".to_owned(), start: 0, end: 5 }];
        assert_eq!(regions_text(&regions), r#"[Region { contig: "chr1", start: 0, end: 5 }]"#);
        assert_eq!([option_text(None), option_text(Some("1".to_owned()))], ["None", "Some(1)"]);
    }
}
