//! Ploidy by contig, position and sex, with the rules of the `--ploidy-file` option of bcftools.
//!
//! The input is the text of such a file, or the name of a table that is built into bcftools. The output is the ploidy
//! at a position for a sex, and the positions on a contig at which the ploidy changes.

use std::collections::BTreeSet;

/// Names and text of the built-in tables, as bcftools 1.16 prints them for `bcftools call --ploidy NAME?`.
const BUILT_IN_TABLES: [(&str, &str); 6] = [
    ("1", "* * * * 1\n"),
    ("2", "* * * * 2\n"),
    ("X", "* * * M 1\n* * * F 2\n"),
    ("Y", "* * * M 1\n* * * F 0\n"),
    (
        "GRCh37",
        "X 1 60000 M 1\nX 2699521 154931043 M 1\nY 1 59373566 M 1\nY 1 59373566 F 0\nMT 1 16569 M 1\nMT 1 16569 F 1\n\
         chrX 1 60000 M 1\nchrX 2699521 154931043 M 1\nchrY 1 59373566 M 1\nchrY 1 59373566 F 0\nchrM 1 16569 M 1\n\
         chrM 1 16569 F 1\n* * * M 2\n* * * F 2\n",
    ),
    (
        "GRCh38",
        "X 1 9999 M 1\nX 2781480 155701381 M 1\nY 1 57227415 M 1\nY 1 57227415 F 0\nMT 1 16569 M 1\nMT 1 16569 F 1\n\
         chrX 1 9999 M 1\nchrX 2781480 155701381 M 1\nchrY 1 57227415 M 1\nchrY 1 57227415 F 0\nchrM 1 16569 M 1\n\
         chrM 1 16569 F 1\n* * * M 2\n* * * F 2\n",
    ),
];
/// The ploidy at positions to which no rule applies.
const DEFAULT_PLOIDY: u8 = 2;
/// The text in a rule that matches any contig, position or sex.
const WILDCARD: &str = "*";

/// A table of ploidy rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PloidyTable {
    rules: Vec<PloidyRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PloidyRule {
    /// The region that the rule applies to; `None` if the rule applies wherever no rule with a region does.
    region: Option<RuleRegion>,
    /// The sex that the rule applies to; `None` for any sex.
    sex: Option<String>,
    ploidy: u8,
}

/// A part of a contig, `[start, end)`, 0-based.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleRegion {
    contig: String,
    start: u32,
    end: u32,
}

/// An invalid ploidy table, or a sex that it does not contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PloidyError {
    /// A line is not a valid rule.
    #[error(
        "line {line} is {text:?}, but a rule is a contig, first and last position (1-based), sex and ploidy, or * * * SEX PLOIDY"
    )]
    InvalidRule {
        /// 1-based line number.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// A sex is not named by any rule.
    #[error("the ploidy table has no rule for the sex {sex}; it has rules for {listed_sexes}")]
    UnknownSex {
        /// The sex that was requested.
        sex: String,
        /// The sexes that the rules name, joined by "and".
        listed_sexes: String,
    },
}

impl PloidyTable {
    /// Returns the built-in table with this name (`1`, `2`, `X`, `Y`, `GRCh37` or `GRCh38`), or `None` for another
    /// name.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::PloidyTable;
    ///
    /// let table = PloidyTable::built_in("GRCh38").unwrap();
    /// assert_eq!(table.ploidy("chrM", 100, Some("F")), 1);
    /// assert_eq!(PloidyTable::built_in("hg19"), None);
    /// ```
    pub fn built_in(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN_TABLES.iter().find(|(known, _)| *known == name)?;
        Self::parse(text).ok()
    }

    /// Parses the text of a ploidy file. A line has a contig, first and last position (1-based), sex and ploidy. A line
    /// `* * * SEX PLOIDY` applies wherever no other line does. `#` starts a comment.
    ///
    /// # Errors
    /// [`PloidyError::InvalidRule`] for a line that is not a rule.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_model::PloidyTable;
    ///
    /// let table = PloidyTable::parse("chrZ * * M 2\nchrZ * * F 1 # birds\n* * * M 2\n* * * F 2\n")?;
    /// assert_eq!(table.ploidy("chrZ", 999, Some("F")), 1);
    /// assert_eq!(table.ploidy("chr1", 999, Some("F")), 2);
    /// assert!(PloidyTable::parse("chrZ F 1").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse(text: &str) -> Result<Self, PloidyError> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let rule = line.split('#').next().unwrap_or_default();
            if rule.trim().is_empty() {
                continue;
            }
            let wrong = || PloidyError::InvalidRule { line: index + 1, text: line.to_owned() };
            rules.push(PloidyRule::parse(rule).ok_or_else(wrong)?);
        }
        Ok(Self { rules })
    }

    /// Returns the text that represents this value in job fingerprints. Files on disk contain hashes of this text, so
    /// it must not depend on names of types and fields. If the text changes, a stopped job starts again from the
    /// beginning.
    pub fn fingerprint_text(&self) -> String {
        let rules: Vec<String> = self.rules.iter().map(PloidyRule::fingerprint_text).collect();
        format!("PloidyTable {{ rules: [{}] }}", rules.join(", "))
    }

    /// Rejects a sex that no rule of the table names. A table whose rules do not name a sex accepts any sex.
    ///
    /// # Errors
    /// [`PloidyError::UnknownSex`] if rules name sexes, but not this sex.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::PloidyTable;
    ///
    /// let table = PloidyTable::built_in("GRCh38").unwrap();
    /// assert_eq!(table.check_sex("F"), Ok(()));
    /// assert!(table.check_sex("female").is_err());
    /// ```
    pub fn check_sex(&self, sex: &str) -> Result<(), PloidyError> {
        let known: BTreeSet<&str> = self.rules.iter().filter_map(|rule| rule.sex.as_deref()).collect();
        if known.is_empty() || known.contains(sex) {
            return Ok(());
        }
        let listed_sexes = known.into_iter().collect::<Vec<_>>().join(" and ");
        Err(PloidyError::UnknownSex { sex: sex.to_owned(), listed_sexes })
    }

    /// Returns the ploidy at a 0-based position. Without a sex, returns the highest ploidy of all sexes in the table,
    /// so that no variant is missed.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::PloidyTable;
    ///
    /// let table = PloidyTable::built_in("GRCh38").unwrap();
    /// assert_eq!(table.ploidy("chrX", 50_000_000, Some("M")), 1);
    /// // The first pseudoautosomal region.
    /// assert_eq!(table.ploidy("chrX", 100_000, Some("M")), 2);
    /// assert_eq!(table.ploidy("chrY", 50_000_000, Some("F")), 0);
    /// assert_eq!(table.ploidy("chrY", 50_000_000, None), 1);
    /// ```
    pub fn ploidy(&self, contig: &str, position: u32, sex: Option<&str>) -> u8 {
        let of_sex = |sex: Option<&str>| {
            let fits = |rule: &&PloidyRule| sex.is_none() || rule.sex.is_none() || rule.sex.as_deref() == sex;
            let mut rules = self.rules.iter().filter(fits);
            let here = |rule: &PloidyRule| rule.region.as_ref().is_some_and(|place| place.contains(contig, position));
            let special = rules.clone().find(|rule| here(rule));
            special.or_else(|| rules.find(|rule| rule.region.is_none())).map(|rule| rule.ploidy)
        };
        let sexes: BTreeSet<&str> = self.rules.iter().filter_map(|rule| rule.sex.as_deref()).collect();
        match sex {
            None if !sexes.is_empty() => sexes.into_iter().filter_map(|sex| of_sex(Some(sex))).max(),
            sex => of_sex(sex),
        }
        .unwrap_or(DEFAULT_PLOIDY)
    }

    /// Returns the 0-based positions on a contig of `bases` bases at which the ploidy differs from the ploidy of the
    /// preceding base, in ascending order.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::PloidyTable;
    ///
    /// let table = PloidyTable::built_in("GRCh38").unwrap();
    /// assert_eq!(table.ploidy_changes("chrX", 156_040_895, Some("M")), [9_999, 2_781_479, 155_701_381]);
    /// assert!(table.ploidy_changes("chrX", 156_040_895, Some("F")).is_empty());
    /// ```
    pub fn ploidy_changes(&self, contig: &str, bases: u32, sex: Option<&str>) -> Vec<u32> {
        let places = self.rules.iter().filter_map(|rule| rule.region.as_ref()).filter(|place| place.contig == contig);
        let edges: BTreeSet<u32> = places.flat_map(|place| [place.start, place.end]).collect();
        let changes = |edge: &u32| self.ploidy(contig, edge - 1, sex) != self.ploidy(contig, *edge, sex);
        edges.into_iter().filter(|edge| *edge > 0 && *edge < bases).filter(changes).collect()
    }
}

impl PloidyRule {
    fn parse(line: &str) -> Option<Self> {
        let [contig, first, last, sex, ploidy] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        let ploidy = ploidy.parse().ok()?;
        let sex = Some(sex).filter(|sex| *sex != WILDCARD).map(str::to_owned);
        if contig == WILDCARD {
            return (first == WILDCARD && last == WILDCARD).then_some(Self { region: None, sex, ploidy });
        }
        let (first_1based, end): (u32, u32) = match (first, last) {
            (WILDCARD, WILDCARD) => (1, u32::MAX),
            (first, last) => (first.parse().ok()?, last.parse().ok()?),
        };
        let start = first_1based.checked_sub(1)?;
        (start < end).then_some(Self {
            region: Some(RuleRegion { contig: contig.to_owned(), start, end }),
            sex,
            ploidy,
        })
    }
}

impl PloidyRule {
    fn fingerprint_text(&self) -> String {
        let Self { region, sex, ploidy } = self;
        let place = match region {
            Some(RuleRegion { contig, start, end }) => {
                format!("Some(Place {{ contig: {contig:?}, start: {start}, end: {end} }})")
            }
            None => "None".to_owned(),
        };
        format!("Rule {{ place: {place}, sex: {sex:?}, ploidy: {ploidy} }}")
    }
}

impl RuleRegion {
    fn contains(&self, contig: &str, position: u32) -> bool {
        self.contig == contig && (self.start..self.end).contains(&position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn male_samples_have_one_x_outside_its_pseudoautosomal_regions() {
        let table = PloidyTable::built_in("GRCh38").unwrap();
        let male = |position| table.ploidy("chrX", position, Some("M"));
        assert_eq!([0, 9_998, 9_999, 2_781_478, 2_781_479, 155_701_380, 155_701_381].map(male), [1, 1, 2, 2, 1, 1, 2]);
        assert_eq!(table.ploidy_changes("chrX", 156_040_895, Some("M")), [9_999, 2_781_479, 155_701_381]);
        assert!(table.ploidy_changes("chrX", 156_040_895, Some("F")).is_empty());
        assert_eq!(table.ploidy("chrM", 5, Some("F")), 1);
        assert_eq!(["F", "M"].map(|sex| table.ploidy("chrY", 5, Some(sex))), [0, 1]);
        assert_eq!(table.ploidy("chr1", 5, Some("F")), 2);
        // Without a sex, the highest ploidy applies, so that no variant is missed.
        assert_eq!(table.ploidy("chrY", 5, None), 1);
        assert!(table.ploidy_changes("chrX", 156_040_895, None).is_empty());
    }

    #[test]
    fn the_text_in_fingerprints_has_the_bytes_of_earlier_versions() {
        let table = PloidyTable::parse("chrX 1 60000 M 1\n* * * F 2\n\"q\" * * * 3\n").unwrap();
        let expected = concat!(
            r#"PloidyTable { rules: [Rule { place: Some(Place { contig: "chrX", start: 0, end: 60000 }), sex: Some("M"), ploidy: 1 }, "#,
            r#"Rule { place: None, sex: Some("F"), ploidy: 2 }, "#,
            r#"Rule { place: Some(Place { contig: "\"q\"", start: 0, end: 4294967295 }), sex: None, ploidy: 3 }] }"#
        );
        assert_eq!(table.fingerprint_text(), expected);
        assert_eq!(PloidyTable::default().fingerprint_text(), "PloidyTable { rules: [] }");
    }

    #[test]
    fn files_are_read_and_refused_by_line() {
        let table = PloidyTable::parse("# fungus\n\nm1 * * * 1\nb 11 20 * 4 # part\n").unwrap();
        assert_eq!(["m1", "b", "c"].map(|contig| table.ploidy(contig, 15, None)), [1, 4, 2]);
        assert_eq!(table.ploidy_changes("b", 100, None), [10, 20]);
        assert_eq!(table.ploidy_changes("b", 15, None), [10]);
        for line in ["x 1 2 M", "x 0 5 M 1", "x 5 4 M 1", "* 1 5 M 1", "x 1 2 M two", "x 1 2 M 1 1"] {
            let refused = PloidyTable::parse(&format!("* * * M 2\n{line}\n"));
            assert_eq!(refused, Err(PloidyError::InvalidRule { line: 2, text: line.to_owned() }));
        }
        assert!(PloidyTable::built_in("GRCh39").is_none());
        assert!(
            PloidyTable::built_in("GRCh38").unwrap().check_sex("male").unwrap_err().to_string().contains("F and M")
        );
        assert_eq!(table.check_sex("male"), Ok(()));
    }
}
