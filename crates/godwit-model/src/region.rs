//! Region strings by the syntax of samtools, and sets of intervals for overlap queries.

use std::fmt;

/// A region `[start, end)`, 0-based, of a contig that is identified by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    /// Name of the contig.
    pub contig: String,
    /// 0-based position of the first base.
    pub start: u32,
    /// 0-based position one past the last base; [`Region::OPEN_END`] if the region extends to the end of the contig.
    pub end: u32,
}

/// An invalid region string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// The text does not have the syntax of a region.
    #[error("{text:?} is not a region: {problem}; write it like chr20, chr20:1000001 or chr20:1,000,001-1,010,000")]
    Syntax {
        /// The region string.
        text: String,
        /// The reason why the text is not a region.
        problem: &'static str,
    },
    /// The region names a contig that does not exist.
    #[error("there is no contig {contig:?}{}", whole_name_hint(.contig, .text))]
    UnknownContig {
        /// Name of the contig that does not exist, without the range that may follow in the text.
        contig: String,
        /// The region string.
        text: String,
    },
    /// The text selects unplaced reads, but there are none.
    #[error("\"*\" selects unplaced reads, and there are none here; write a contig, such as chr20")]
    NoUnplacedReads,
    /// The text has two meanings: the name of a contig, or a range of another contig.
    #[error(
        "{text:?} is ambiguous: a contig has this name, and it is also a range of contig {contig:?}; write {{{text}}} for \
         the contig, or {{{contig}}}:{range} for the range"
    )]
    Ambiguous {
        /// The region string.
        text: String,
        /// Name of the contig, if the text is a range.
        contig: String,
        /// Text of the range after the contig name and colon, if the text is a range.
        range: String,
    },
    /// The text has two meanings: one region whose position has a thousands separator, or a list of several regions.
    #[error(
        "{text:?} is ambiguous: the comma may separate thousands or two regions; write the number without commas, or \
         pass each region as a separate argument"
    )]
    AmbiguousList {
        /// The text of the list.
        text: String,
    },
    /// The region starts after the end of its contig.
    #[error("{region} starts after the end of contig {contig}, which has {bases} bases")]
    AfterContigEnd {
        /// Text of the region.
        region: String,
        /// Name of the contig.
        contig: String,
        /// Number of bases of the contig.
        bases: u64,
    },
}

/// Returns a suffix for the error message that mentions the whole text as a second contig name that does not exist;
/// empty if `contig` is already the whole text.
fn whole_name_hint(contig: &str, text: &str) -> String {
    if contig == text { String::new() } else { format!(", and none named {text:?}") }
}

impl Region {
    /// The `end` of a region whose text does not have an end. It is at or above every contig length (SAMv1 §1.3:
    /// lengths below 2^31).
    pub const OPEN_END: u32 = i32::MAX as u32;
    /// The `contig` of the region of unplaced reads, which have no contig. It cannot be the name of a contig (SAMv1
    /// §1.2.1).
    pub const UNPLACED: &str = "*";

    /// Returns the region of unplaced reads.
    pub fn unplaced() -> Self {
        Self { contig: Self::UNPLACED.to_owned(), start: 0, end: Self::OPEN_END }
    }

    /// Returns whether this is the region of unplaced reads.
    pub fn is_unplaced(&self) -> bool {
        self.contig == Self::UNPLACED
    }

    /// Returns the text that represents this value in job fingerprints. Files on disk contain hashes of this text, so
    /// it must not depend on names of types and fields. If the text changes, a stopped job starts again from the
    /// beginning.
    pub fn fingerprint_text(&self) -> String {
        let Self { contig, start, end } = self;
        format!("Region {{ contig: {contig:?}, start: {start}, end: {end} }}")
    }

    /// Parses a region string by the rules of samtools ("REGIONS" in `samtools-view(1)`; `hts_parse_region` of htslib
    /// 1.16): `NAME`, `NAME:FIRST`, `NAME:FIRST-`, `NAME:FIRST-LAST` and `NAME:-LAST`. Positions are 1-based and
    /// closed, with or without thousands separators. Contig names may contain colons, so the whole text is first looked
    /// up as a contig name. Braces quote a name: `{HLA-A*01:01:01:01}:1-100`. `*` is the region of unplaced reads.
    ///
    /// `has_contig` returns whether a contig exists, or `None` if the list of contigs is not known. In that case, the
    /// text is a range if the characters after its last colon have the syntax of a range, and a contig name otherwise.
    /// For [`Region::UNPLACED`], it returns whether there are unplaced reads.
    ///
    /// # Errors
    /// [`RegionError::Syntax`] for a malformed text, and [`RegionError::UnknownContig`] for a contig that does not
    /// exist. [`RegionError::Ambiguous`] if the whole text and the part before the last colon both name contigs.
    /// [`RegionError::NoUnplacedReads`] for `*` without unplaced reads.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::Region;
    /// let has_contig = |name: &str| Some(["chr20", "HLA-A*01:01:01:01"].contains(&name));
    /// let region = Region::parse("chr20:1,001-2,000", has_contig)?;
    /// assert_eq!((region.contig.as_str(), region.start, region.end), ("chr20", 1000, 2000));
    /// assert_eq!(region.to_string(), "chr20:1001-2000");
    /// assert_eq!(Region::parse("HLA-A*01:01:01:01", has_contig)?.contig, "HLA-A*01:01:01:01");
    /// # Ok::<(), godwit_model::RegionError>(())
    /// ```
    pub fn parse(text: &str, has_contig: impl Fn(&str) -> Option<bool>) -> Result<Self, RegionError> {
        let syntax = |problem| RegionError::Syntax { text: text.to_owned(), problem };
        let no_contig = |contig: &str| RegionError::UnknownContig { contig: contig.to_owned(), text: text.to_owned() };
        let of = |contig: &str, (start, end)| Self { contig: contig.to_owned(), start, end };
        if text == Self::UNPLACED {
            return match has_contig(text) {
                Some(false) => Err(RegionError::NoUnplacedReads),
                _ => Ok(Self::unplaced()),
            };
        }
        if let Some(quoted) = text.strip_prefix('{') {
            let (name, rest) =
                quoted.rsplit_once('}').ok_or_else(|| syntax("the brace before the contig is not closed"))?;
            let range = match rest.strip_prefix(':') {
                Some(range) => parse_range(range).map_err(syntax)?,
                None if rest.is_empty() => (0, Self::OPEN_END),
                None => return Err(syntax("a colon is expected after the brace")),
            };
            if name.is_empty() {
                return Err(syntax("the name of the contig is missing"));
            }
            return if has_contig(name) == Some(false) { Err(no_contig(name)) } else { Ok(of(name, range)) };
        }
        let whole = of(text, (0, Self::OPEN_END));
        let is_contig = has_contig(text);
        let Some((contig, range)) = text.rsplit_once(':') else {
            return match is_contig {
                _ if text.is_empty() => Err(syntax("the name of the contig is missing")),
                Some(false) => Err(no_contig(text)),
                _ => Ok(whole),
            };
        };
        match (is_contig, has_contig(contig)) {
            (Some(true), Some(true)) => {
                let (text, contig, range) = (text.to_owned(), contig.to_owned(), range.to_owned());
                Err(RegionError::Ambiguous { text, contig, range })
            }
            (Some(true), _) => Ok(whole),
            _ if contig.is_empty() => Err(syntax("the name of the contig is missing")),
            (_, Some(true)) => parse_range(range).map(|range| of(contig, range)).map_err(syntax),
            // Neither reading of the text is the name of a known contig. Without a list of contigs, the syntax of the
            // text decides.
            (Some(false), Some(false)) => Err(no_contig(contig)),
            (None, known) if known == Some(false) || !is_range_syntax(range) => Ok(whole),
            _ => parse_range(range).map(|range| of(contig, range)).map_err(syntax),
        }
    }

    /// Checks that the region does not start after the end of its contig, which has `contig_bases` bases. An empty region
    /// may be anywhere.
    ///
    /// # Errors
    /// [`RegionError::AfterContigEnd`].
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::Region;
    ///
    /// let region = Region { contig: "chr20".to_owned(), start: 1999, end: 3000 };
    /// assert!(region.check_start(2000).is_ok());
    /// let error = region.check_start(1000).unwrap_err().to_string();
    /// assert_eq!(error, "chr20:2000-3000 starts after the end of contig chr20, which has 1000 bases");
    /// ```
    pub fn check_start(&self, contig_bases: u64) -> Result<(), RegionError> {
        if self.start >= self.end || u64::from(self.start) < contig_bases {
            return Ok(());
        }
        let (region, contig) = (self.to_string(), self.contig.clone());
        Err(RegionError::AfterContigEnd { region, contig, bases: contig_bases })
    }

    /// Parses a list of regions: one region, or several regions separated by commas as in `bcftools --regions`. Commas
    /// within braces belong to a contig name.
    ///
    /// # Errors
    /// The errors of [`Region::parse`]; [`RegionError::AmbiguousList`] if the text is both one region with a thousands
    /// separator and a list of several regions.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_model::Region;
    ///
    /// let has_contig = |name: &str| Some(["chr20", "chrX"].contains(&name));
    /// let regions = Region::parse_list("chr20:1,001-2,000", has_contig)?;
    /// assert_eq!(regions.len(), 1);
    /// let regions = Region::parse_list("chr20:1001-2000,chrX", has_contig)?;
    /// assert_eq!(regions.len(), 2);
    /// assert_eq!((regions[1].contig.as_str(), regions[1].end), ("chrX", Region::OPEN_END));
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse_list(text: &str, has_contig: impl Fn(&str) -> Option<bool>) -> Result<Vec<Self>, RegionError> {
        let one = Self::parse(text, &has_contig);
        let items = split_region_list(text);
        if items.len() == 1 {
            return Ok(vec![one?]);
        }
        let several: Result<Vec<Self>, RegionError> = items.iter().map(|item| Self::parse(item, &has_contig)).collect();
        match (one, several) {
            (Ok(_), Ok(_)) => Err(RegionError::AmbiguousList { text: text.to_owned() }),
            (Ok(one), Err(_)) => Ok(vec![one]),
            (Err(_), several) => several,
        }
    }
}

/// Splits a list of regions at the commas outside braces.
fn split_region_list(text: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let is_separator = |letter: char| {
        match letter {
            '{' => is_quoted = true,
            '}' => is_quoted = false,
            _ => {}
        }
        letter == ',' && !is_quoted
    };
    text.split(is_separator).collect()
}

/// Returns whether a text consists only of digits, commas and hyphens, the characters of a range.
fn is_range_syntax(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_digit() || letter == ',' || letter == '-')
}

/// Parses `FIRST`, `FIRST-`, `FIRST-LAST` or `-LAST` (1-based, closed) as `[start, end)`, 0-based. The error describes
/// the defect.
fn parse_range(text: &str) -> Result<(u32, u32), &'static str> {
    let (first, last) = text.split_once('-').unwrap_or((text, ""));
    if first.is_empty() && last.is_empty() {
        return Err("the range of bases after the colon is missing");
    }
    let number = |text: &str, without: u32| if text.is_empty() { Some(without) } else { parse_position_1based(text) };
    // The last base, 1-based, equals the 0-based end of the half-open interval.
    let start = number(first, 1).ok_or("its first base is not a number from 1 on")? - 1;
    let end = number(last, Region::OPEN_END).ok_or("its last base is not a number from 1 on")?;
    if start >= end {
        return Err("its first base is after its last");
    }
    Ok((start, end))
}

/// Parses a 1-based position with or without commas. A position above the maximum contig length becomes
/// [`Region::OPEN_END`].
fn parse_position_1based(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|letter| letter.is_ascii_digit() || letter == b',');
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let position_1based = digits
        .bytes()
        .try_fold(0u64, |number, digit| Some(number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))?;
    let position_1based = position_1based.min(u64::from(Region::OPEN_END)) as u32;
    Some(position_1based).filter(|position| is_number && !digits.is_empty() && *position > 0)
}

impl Region {
    /// Returns the text of the region without braces around the contig name, for use as a title.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::Region;
    ///
    /// let region = Region { contig: "HLA-A*01:01:01:01".to_owned(), start: 0, end: 100 };
    /// assert_eq!(region.title(), "HLA-A*01:01:01:01:1-100");
    /// assert_eq!(region.to_string(), "{HLA-A*01:01:01:01}:1-100");
    /// ```
    pub fn title(&self) -> String {
        format!("{}{}", self.contig, RangeSuffix(self))
    }
}

impl fmt::Display for Region {
    /// Writes a text that [`Region::parse`] converts back to this region if the list of contigs is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.contig.contains(':') || self.contig.starts_with('{') {
            true => write!(f, "{{{}}}{}", self.contig, RangeSuffix(self)),
            false => write!(f, "{}{}", self.contig, RangeSuffix(self)),
        }
    }
}

/// Displays the range of a region with the preceding colon; displays nothing for a whole contig.
struct RangeSuffix<'r>(&'r Region);

impl fmt::Display for RangeSuffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start, self.0.end) {
            (0, Region::OPEN_END) => Ok(()),
            (start, Region::OPEN_END) => write!(f, ":{}-", start + 1),
            (start, end) => write!(f, ":{}-{end}", start + 1),
        }
    }
}

/// A sorted set of intervals on numbered contigs. Intervals that touch or overlap are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// Contig index, start and end of each interval, 0-based and half-open.
    intervals: Vec<(u32, u32, u32)>,
}

impl IntervalSet {
    /// The contig index of unplaced reads, which is -1 in BAM. The interval of their [`Region`] contains all of them,
    /// because a position before the contig counts as position 0.
    pub const UNPLACED: u32 = u32::MAX;

    /// Creates a set of `(contig, start, end)` intervals, 0-based and half-open, given in any order. Empty intervals
    /// are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::IntervalSet;
    ///
    /// let targets = IntervalSet::new([(1, 50, 60), (0, 100, 200), (0, 150, 300)]);
    /// assert_eq!(targets.iter().collect::<Vec<_>>(), [(0, 100, 300), (1, 50, 60)]);
    /// ```
    pub fn new(spans: impl IntoIterator<Item = (u32, u32, u32)>) -> Self {
        let mut intervals: Vec<_> = spans.into_iter().filter(|(_, start, end)| start < end).collect();
        intervals.sort_unstable();
        intervals.dedup_by(|next, span| {
            let joined = next.0 == span.0 && next.1 <= span.2;
            if joined {
                span.2 = span.2.max(next.2);
            }
            joined
        });
        Self { intervals }
    }

    /// Returns whether an interval of the set overlaps `[start, end)` of a contig. An empty query is treated as the one
    /// base at `start`.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::IntervalSet;
    ///
    /// let targets = IntervalSet::new([(0, 100, 200), (0, 500, 600)]);
    /// assert!(targets.overlaps(0, 150, 300));
    /// assert!(!targets.overlaps(0, 200, 500));
    /// assert!(!targets.overlaps(1, 150, 300));
    /// ```
    #[inline]
    pub fn overlaps(&self, contig: u32, start: u32, end: u32) -> bool {
        let at = self.intervals.partition_point(|span| (span.0, span.2) <= (contig, start));
        self.intervals.get(at).is_some_and(|span| span.0 == contig && span.1 < end.max(start.saturating_add(1)))
    }

    /// Returns whether all intervals end at or before a position. If so, a record that starts at or after the position
    /// cannot overlap an interval.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::IntervalSet;
    ///
    /// let targets = IntervalSet::new([(0, 100, 200), (0, 500, 600)]);
    /// assert!(!targets.all_end_before(0, 599));
    /// assert!(targets.all_end_before(0, 600));
    /// assert!(targets.all_end_before(1, 0));
    /// ```
    #[inline]
    pub fn all_end_before(&self, contig: u32, position: u32) -> bool {
        self.intervals.last().is_none_or(|span| (span.0, span.2) <= (contig, position))
    }

    /// Returns an iterator over the intervals in ascending order, as (contig, start, end).
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32, u32)> {
        self.intervals.iter().copied()
    }

    /// Reports whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const CONTIGS: [&str; 6] = ["chr1", "chr1:100-200", "HLA-A*01:01:01:01", "a,b", "1", "200"];

    fn has_contig(name: &str) -> Option<bool> {
        Some(CONTIGS.contains(&name))
    }

    fn region_fields(region: Result<Region, RegionError>) -> Result<(String, u32, u32), RegionError> {
        region.map(|region| (region.contig, region.start, region.end))
    }

    #[test]
    fn the_whole_text_is_a_name_before_it_is_a_range() {
        let open = Region::OPEN_END;
        for (text, contig, start, end) in [
            ("chr1", "chr1", 0, open),
            ("chr1:5", "chr1", 4, open),
            ("chr1:5-", "chr1", 4, open),
            ("chr1:-10", "chr1", 0, 10),
            ("chr1:1,000-2,000", "chr1", 999, 2000),
            ("chr1:7-99999999999", "chr1", 6, open),
            ("{chr1}:100-200", "chr1", 99, 200),
            ("{chr1:100-200}", "chr1:100-200", 0, open),
            ("chr1:100-200:5-6", "chr1:100-200", 4, 6),
            ("HLA-A*01:01:01:01", "HLA-A*01:01:01:01", 0, open),
            ("HLA-A*01:01:01:01:7-7", "HLA-A*01:01:01:01", 6, 7),
            ("{HLA-A*01:01:01:01}:7-7", "HLA-A*01:01:01:01", 6, 7),
            ("a,b:1-2", "a,b", 0, 2),
        ] {
            let region = Region::parse(text, has_contig).unwrap();
            assert_eq!(region_fields(Ok(region.clone())).unwrap(), (contig.to_owned(), start, end), "{text}");
            // A region that is displayed and then parsed without a list of contigs is unchanged.
            assert_eq!(Region::parse(&region.to_string(), |_| None), Ok(region), "{text}");
        }
    }

    #[test]
    fn a_text_with_two_readings_is_refused_and_both_are_named() {
        let error = Region::parse("chr1:100-200", has_contig).unwrap_err().to_string();
        assert!(error.contains("{chr1:100-200}") && error.contains("{chr1}:100-200"), "{error}");
        let error = Region::parse_list("1:100,200", has_contig).unwrap_err();
        assert!(matches!(error, RegionError::AmbiguousList { .. }), "{error}");
    }

    #[test]
    fn errors_of_region_strings_name_the_defect() {
        for text in [
            "", ":1-2", "chr1:", "chr1:-", "chr1:0-5", "chr1:9-3", "chr1:x", "chr1:1-y", "{chr1:1", "{chr1}1", "{}",
            "chr1:+1",
        ] {
            let error = Region::parse(text, has_contig).unwrap_err();
            assert!(matches!(error, RegionError::Syntax { .. }), "{text}: {error}");
        }
        for (text, said) in [
            ("chr9:1-2", "there is no contig \"chr9\", and none named \"chr9:1-2\""),
            ("chr9", "there is no contig \"chr9\""),
            ("{chr1:1-2}", "there is no contig \"chr1:1-2\""),
        ] {
            let error = Region::parse(text, has_contig).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn without_a_list_of_contigs_a_range_is_what_is_written_as_one() {
        for (text, contig) in
            [("x:1-2", Some("x")), ("HLA-A*24:02:01:02L", Some("HLA-A*24:02:01:02L")), ("x:9-3", None)]
        {
            assert_eq!(Region::parse(text, |_| None).ok().map(|region| region.contig).as_deref(), contig, "{text}");
        }
        // A contig that is known to exist takes precedence over a contig that may exist.
        let some = |name: &str| (name == "chr1").then_some(true);
        assert_eq!(Region::parse("chr1:5-6", some).unwrap().contig, "chr1");
    }

    proptest! {
        #[test]
        fn what_is_displayed_is_read_back(contig in "[!-~]{1,12}", start in 0..1000u32, bases in 1..1000u32, open: bool) {
            let end = if open { Region::OPEN_END } else { start + bases };
            let region = Region { contig, start, end };
            prop_assert_eq!(Region::parse(&region.to_string(), |_| None), Ok(region));
        }

        #[test]
        fn any_text_is_a_region_on_a_known_contig_or_refused(text in "[a:{},*1-9-]{0,12}", contigs in vec("[a:,*1-9-]{1,4}", 0..6)) {
            let has_contig = |name: &str| Some(contigs.iter().any(|contig| contig == name));
            if let Ok(region) = Region::parse(&text, has_contig) {
                prop_assert!(contigs.contains(&region.contig) && region.start < region.end);
            }
            for region in Region::parse_list(&text, has_contig).into_iter().flatten() {
                prop_assert!(contigs.contains(&region.contig) && region.start < region.end);
            }
        }
    }

    #[test]
    fn the_text_in_fingerprints_has_the_bytes_of_earlier_versions() {
        let region = Region { contig: "HLA\"A\\".to_owned(), start: 9, end: Region::OPEN_END };
        assert_eq!(region.fingerprint_text(), r#"Region { contig: "HLA\"A\\", start: 9, end: 2147483647 }"#);
    }

    #[test]
    fn an_asterisk_is_the_region_of_unplaced_reads() {
        let unplaced = Region::parse("*", |_| None).unwrap();
        assert!(unplaced.is_unplaced() && unplaced.to_string() == "*");
        assert_eq!(Region::parse("*", |name| Some(name == "*")), Ok(unplaced.clone()));
        assert_eq!(Region::parse("*", has_contig), Err(RegionError::NoUnplacedReads));
        let listed = Region::parse_list("*,chr1:1-5", |name| Some(name == "*" || name == "chr1")).unwrap();
        assert_eq!((listed.len(), &listed[0]), (2, &unplaced));
        assert!(Region::parse("*:1-5", has_contig).is_err());
    }

    #[test]
    fn lists_are_separated_by_commas_outside_braces() {
        let names = |text| {
            let regions = Region::parse_list(text, has_contig)?;
            Ok::<_, RegionError>(regions.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        for (text, regions) in [
            ("chr1:1-5,{chr1:100-200},1", &["chr1:1-5", "{chr1:100-200}", "1"][..]),
            ("chr1:1,000-2,000", &["chr1:1000-2000"]),
            ("{a,b}:1-2,chr1", &["a,b:1-2", "chr1"]),
            ("a,b", &["a,b"]),
        ] {
            assert_eq!(names(text).unwrap(), regions, "{text}");
        }
        assert!(names("chr1,chr9:1-5").unwrap_err().to_string().contains("\"chr9\""));
    }

    #[test]
    fn intervals_are_joined_and_found() {
        let set = IntervalSet::new([(1, 50, 60), (0, 10, 20), (0, 15, 30), (0, 30, 31), (2, 5, 5)]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 10, 31), (1, 50, 60)]);
        for (contig, start, end, found) in [
            (0, 0, 10, false),
            (0, 0, 11, true),
            (0, 30, 40, true),
            (0, 31, 40, false),
            (1, 0, 100, true),
            (1, 60, 61, false),
            (2, 5, 6, false),
            // An empty query is treated as the one base at its start.
            (0, 10, 10, true),
            (0, 9, 9, false),
        ] {
            assert_eq!(set.overlaps(contig, start, end), found, "{contig} {start} {end}");
        }
        assert!(set.all_end_before(1, 60) && !set.all_end_before(1, 59) && set.all_end_before(2, 0));
    }
}
