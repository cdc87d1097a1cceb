//! One line of a VCF file, split at its tabs.

use super::error::excerpt;
use super::genotype::Genotype;
use super::header::Header;

/// Number of fields before `FORMAT` and the samples.
const FIXED_FIELDS: usize = 8;
/// The problem of bytes that are not text.
pub(super) const NOT_UTF8_PROBLEM: &str = "it is not UTF-8 text; convert the file, as with iconv";

/// A record, as text that is known to be complete. `.` stays as it is, except in [`Record::alternates`].
#[derive(Clone, Copy, Debug)]
pub struct Record<'l> {
    /// 1-based number of its line; 0 where reading began in the middle of the file.
    pub line: u64,
    /// `CHROM`.
    pub contig: &'l str,
    /// `POS` - 1: 0-based; -1 for the telomere before the first base.
    pub position: i32,
    /// `ID`.
    pub identifiers: &'l str,
    /// `REF`.
    pub reference: &'l str,
    alternates: &'l str,
    /// `QUAL`.
    pub quality: &'l str,
    /// `FILTER`.
    pub filters: &'l str,
    /// `INFO`.
    pub info: &'l str,
    /// `FORMAT`; empty where the file has none.
    pub format: &'l str,
    samples: Option<&'l str>,
    text_bytes: usize,
    /// The end of the record that BCF stores.
    bcf_end_position: Option<i32>,
}

impl<'l> Record<'l> {
    /// Parses a line, which may not be text; `bcf_end_position` is the end of the record that BCF stores.
    ///
    /// # Errors
    /// The problem of the line.
    pub(super) fn parse(
        line: &'l [u8],
        number: u64,
        header: &Header,
        bcf_end_position: Option<i32>,
    ) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| NOT_UTF8_PROBLEM.to_owned())?;
        Ok(Self { bcf_end_position, ..Self::parse_text(text, number, header)? })
    }

    fn parse_text(text: &'l str, line: u64, header: &Header) -> Result<Self, String> {
        let mut rest = Some(text);
        let mut next = || {
            let text = rest?;
            let (field, after) = text.split_once('\t').map_or((text, None), |(field, after)| (field, Some(after)));
            rest = after;
            Some(field)
        };
        let mut fixed = [""; FIXED_FIELDS];
        for (at, field) in fixed.iter_mut().enumerate() {
            *field = next().ok_or_else(|| format!("it has {at} fields, but a record has at least {FIXED_FIELDS}"))?;
        }
        let [contig, position, identifiers, reference, alternates, quality, filters, info] = fixed;
        let format = if header.has_format() { next() } else { None };
        if header.has_format() && format.is_none() && !header.samples().is_empty() {
            return Err("it has no FORMAT field, but the header names samples".to_owned());
        }
        // A tab at the end of a line without samples is ignored, as bcftools 1.16 does.
        let rest = rest.filter(|samples| !samples.is_empty() || !header.samples().is_empty());
        let found = rest.map_or(0, |samples| 1 + memchr::memchr_iter(b'\t', samples.as_bytes()).count());
        let expected = header.samples().len();
        if found != expected {
            return Err(format!("it has {found} fields of samples, but the header names {expected}"));
        }
        for (name, field) in [("CHROM", contig), ("REF", reference), ("ALT", alternates)] {
            if field.is_empty() {
                return Err(format!("its {name} is empty"));
            }
        }
        let position = parse_position(position)?;
        let record = Self {
            line,
            contig,
            position,
            identifiers,
            reference,
            alternates,
            quality,
            filters,
            info,
            format: format.unwrap_or_default(),
            samples: rest,
            text_bytes: text.len(),
            bcf_end_position: None,
        };
        match i32::try_from(i64::from(position) + reference.len() as i64) {
            Ok(_) => Ok(record),
            Err(_) => Err("it ends beyond base 2147483647".to_owned()),
        }
    }

    /// Returns the alternate alleles in order: allele 1 and so on; none for `.`.
    pub fn alternates(&self) -> impl Iterator<Item = &'l str> + use<'l> {
        (self.alternates != ".").then(|| self.alternates.split(',')).into_iter().flatten()
    }

    /// Returns the fields of each sample, unsplit.
    pub fn samples(&self) -> impl Iterator<Item = &'l str> + use<'l> {
        self.samples.into_iter().flat_map(|samples| samples.split('\t'))
    }

    /// Returns the bytes of the line.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Returns the value of an `INFO` key that has one.
    pub fn info_value(&self, key: &str) -> Option<&'l str> {
        self.info.split(';').find_map(|entry| entry.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns one past the last base of the reference that the record covers: the end that BCF stores, else `END` in
    /// `INFO` (symbolic alleles, blocks of GVCF), else by the length of `REF`.
    pub fn end_position(&self) -> i32 {
        if let Some(end) = self.bcf_end_position {
            return end;
        }
        let end_1based = self.info_value("END").and_then(|text| text.parse::<i32>().ok());
        match end_1based.filter(|end| *end > self.position) {
            Some(end) => end,
            // Cannot overflow: the parser checked it.
            None => self.position.saturating_add(self.reference.len() as i32),
        }
    }

    /// Reports whether no filter failed it: `PASS`, or none was applied.
    pub fn passes_filters(&self) -> bool {
        matches!(self.filters, "PASS" | ".")
    }

    /// Returns the genotype of the sample with that index; `None` where `FORMAT` has no `GT` or the sample's is not a
    /// genotype.
    pub fn genotype(&self, sample: usize) -> Option<Genotype<'l>> {
        let at = self.format.split(':').position(|key| key == "GT")?;
        Genotype::parse(self.samples().nth(sample)?.split(':').nth(at)?)
    }
}

/// Parses `POS` as a 0-based position.
fn parse_position(text: &str) -> Result<i32, String> {
    let pos_1based = text.parse::<i32>().ok().filter(|pos_1based| *pos_1based >= 0 && !text.starts_with('-'));
    match pos_1based {
        Some(pos_1based) => Ok(pos_1based - 1),
        None => Err(format!("its POS is {:?}, which is no number from 0 to 2147483647", excerpt(text))),
    }
}
