//! Regions as people write them, and sets of spans to look records up in.

use std::fmt;

/// A stretch of a contig that is known by name, `[start, end)`, 0-based.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region {
    /// The contig.
    pub contig: String,
    /// First base, 0-based.
    pub start: u32,
    /// One past the last base; [`Region::OPEN_END`] for that of the contig.
    pub end: u32,
}

/// Why a text is no region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no region: {problem}; write it like chr20, chr20:1000001 or chr20:1,000,001-1,010,000")]
pub struct RegionError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Region {
    /// Behind every base that a contig can have (SAMv1 §1.3: lengths below 2^31).
    pub const OPEN_END: u32 = i32::MAX as u32;

    /// Reads what samtools takes for a region (samtools 1.16, "REGIONS" in `samtools-view(1)`): `NAME`, `NAME:FIRST`,
    /// `NAME:FIRST-LAST` and `NAME:-LAST`, 1-based and closed, with or without commas. Braces around a name
    /// keep its colons together, as in `{HLA-A*01:01}:1-100`.
    ///
    /// # Errors
    /// [`RegionError`].
    ///
    /// ```
    /// use godwit_model::Region;
    /// let region = Region::parse("chr20:1,001-2,000")?;
    /// assert_eq!((region.contig.as_str(), region.start, region.end), ("chr20", 1000, 2000));
    /// assert_eq!(region.to_string(), "chr20:1001-2000");
    /// # Ok::<(), godwit_model::RegionError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, RegionError> {
        let wrong = |problem| RegionError { text: text.to_owned(), problem };
        let (contig, range) = match text.strip_prefix('{') {
            Some(rest) => {
                let (name, rest) = rest.split_once('}').ok_or_else(|| wrong("its brace is not closed"))?;
                match rest.strip_prefix(':') {
                    Some(range) => (name, Some(range)),
                    None if rest.is_empty() => (name, None),
                    None => return Err(wrong("a colon is expected behind the brace")),
                }
            }
            None => text.rsplit_once(':').map_or((text, None), |(name, range)| (name, Some(range))),
        };
        if contig.is_empty() {
            return Err(wrong("it names no contig"));
        }
        let (mut start, mut end) = (0, Self::OPEN_END);
        if let Some(range) = range {
            let (first, last) = range.split_once('-').map_or((range, None), |(first, last)| (first, Some(last)));
            if !first.is_empty() {
                start = position(first).ok_or_else(|| wrong("its first base is no number from 1 on"))?;
            } else if last.is_none_or(str::is_empty) {
                return Err(wrong("it has a colon but no bases"));
            }
            if let Some(last) = last.filter(|last| !last.is_empty()) {
                // The last base, 1-based, is one past the last, 0-based.
                end = position(last).ok_or_else(|| wrong("its last base is no number from 1 on"))? + 1;
            }
        }
        if start >= end {
            return Err(wrong("its first base lies behind its last"));
        }
        Ok(Self { contig: contig.to_owned(), start, end })
    }
}

/// A 1-based position, commas allowed, as a 0-based one below [`Region::OPEN_END`].
fn position(text: &str) -> Option<u32> {
    let digits: String = text.chars().filter(|character| *character != ',').collect();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let pos_1based = digits.parse::<u32>().ok().filter(|_| plain)?;
    (1..=Region::OPEN_END).contains(&pos_1based).then(|| pos_1based - 1)
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.contig.contains(':') {
            true => write!(f, "{{{}}}", self.contig)?,
            false => f.write_str(&self.contig)?,
        }
        match (self.start, self.end) {
            (0, Self::OPEN_END) => Ok(()),
            (start, Self::OPEN_END) => write!(f, ":{}-", start + 1),
            (start, end) => write!(f, ":{}-{end}", start + 1),
        }
    }
}

/// Spans of numbered contigs: sorted, and joined where they touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSet {
    /// Contig, start, end.
    spans: Vec<(u32, u32, u32)>,
}

impl SpanSet {
    /// A set of `(contig, start, end)`, 0-based and half-open, in any order. Empty spans are left out.
    pub fn new(spans: impl IntoIterator<Item = (u32, u32, u32)>) -> Self {
        let mut spans: Vec<_> = spans.into_iter().filter(|(_, start, end)| start < end).collect();
        spans.sort_unstable();
        spans.dedup_by(|next, span| {
            let joined = next.0 == span.0 && next.1 <= span.2;
            if joined {
                span.2 = span.2.max(next.2);
            }
            joined
        });
        Self { spans }
    }

    /// Whether one of them has a base in common with `[start, end)` of a contig. What is empty is taken as one base.
    #[inline]
    pub fn overlaps(&self, contig: u32, start: u32, end: u32) -> bool {
        let at = self.spans.partition_point(|span| (span.0, span.2) <= (contig, start));
        self.spans.get(at).is_some_and(|span| span.0 == contig && span.1 < end.max(start.saturating_add(1)))
    }

    /// Whether all of them lie before a base: nothing that starts there or behind can overlap one.
    #[inline]
    pub fn end_before(&self, contig: u32, position: u32) -> bool {
        self.spans.last().is_none_or(|span| (span.0, span.2) <= (contig, position))
    }

    /// The spans in order: contig, start, end.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32, u32)> {
        self.spans.iter().copied()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, u32, u32)> {
        Region::parse(text).ok().map(|region| (region.contig, region.start, region.end))
    }

    #[test]
    fn what_samtools_takes_is_taken() {
        let open = Region::OPEN_END;
        for (text, contig, start, end) in [
            ("chr20", "chr20", 0, open),
            ("chr20:5", "chr20", 4, open),
            ("chr20:5-", "chr20", 4, open),
            ("chr20:-10", "chr20", 0, 10),
            ("chr20:1,000-2,000", "chr20", 999, 2000),
            ("{HLA-A*01:01}", "HLA-A*01:01", 0, open),
            ("{HLA-A*01:01}:7-7", "HLA-A*01:01", 6, 7),
        ] {
            assert_eq!(parsed(text), Some((contig.to_owned(), start, end)), "{text}");
            assert_eq!(parsed(&Region::parse(text).unwrap().to_string()), parsed(text), "{text}");
        }
        for text in ["", ":1-2", "a:", "a:-", "a:0-5", "a:9-3", "a:x", "a:1-y", "{a:1", "{a}1", "a:99999999999", "a:+1"]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_joined_and_found() {
        let set = SpanSet::new([(1, 50, 60), (0, 10, 20), (0, 15, 30), (0, 30, 31), (2, 5, 5)]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 10, 31), (1, 50, 60)]);
        for (contig, start, end, found) in [
            (0, 0, 10, false),
            (0, 0, 11, true),
            (0, 30, 40, true),
            (0, 31, 40, false),
            (1, 0, 100, true),
            (1, 60, 61, false),
            (2, 5, 6, false),
            // Empty: the one base at its start.
            (0, 10, 10, true),
            (0, 9, 9, false),
        ] {
            assert_eq!(set.overlaps(contig, start, end), found, "{contig} {start} {end}");
        }
        assert!(set.end_before(1, 60) && !set.end_before(1, 59) && set.end_before(2, 0));
    }
}
