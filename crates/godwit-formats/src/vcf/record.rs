//! A VCF record: one line of a VCF file, divided into its fields.

use super::error::excerpt;
use super::fields::split_fields;
use super::genotype::Genotype;
use super::header::Header;

/// Number of fields of a record before `FORMAT` and the samples.
const FIXED_FIELDS: usize = 8;
/// The error message for a line that is not UTF-8 text.
pub(super) const NOT_UTF8_PROBLEM: &str = "it is not UTF-8 text; convert the file, for example with iconv";

/// A record as text, with all its fields present. A missing value `.` remains as text, except in
/// [`Record::alternates`].
#[derive(Clone, Copy, Debug)]
pub struct Record<'l> {
    /// 1-based number of the line of the record; 0 if reading began in the middle of the file.
    pub line: u64,
    /// Name of the contig (`CHROM`).
    pub contig: &'l str,
    /// 0-based position (`POS` - 1); -1 for a record at the telomere before the first base.
    pub position: i32,
    /// Identifiers (`ID`).
    pub identifiers: &'l str,
    /// Reference allele (`REF`).
    pub reference: &'l str,
    alternates: &'l str,
    /// Quality (`QUAL`).
    pub quality: &'l str,
    /// Filters (`FILTER`).
    pub filters: &'l str,
    /// Text of the field `INFO`.
    pub info: &'l str,
    /// Text of the field `FORMAT`; empty if the file has no such field.
    pub format: &'l str,
    samples: Option<&'l str>,
    text_bytes: usize,
    /// 0-based position after the last base, which BCF stores; `None` for VCF.
    bcf_end_position: Option<i32>,
}

impl<'l> Record<'l> {
    /// Parses the bytes of a line. `bcf_end_position` is the end position that BCF stores for the record.
    ///
    /// # Errors
    /// A description of the problem of the line.
    pub(super) fn parse(
        line: &'l [u8],
        number: u64,
        header: &Header,
        bcf_end_position: Option<i32>,
    ) -> Result<Self, String> {
        let text = std::str::from_utf8(line).map_err(|_| NOT_UTF8_PROBLEM.to_owned())?;
        Ok(Self { bcf_end_position, ..Self::parse_text(text, number, header)? })
    }

    /// Parses a line of VCF text, given without its line end.
    ///
    /// # Errors
    /// A description of the problem of the line.
    pub fn from_line(line: &'l str, header: &Header) -> Result<Self, String> {
        Self::parse_text(line, 0, header)
    }

    fn parse_text(text: &'l str, line: u64, header: &Header) -> Result<Self, String> {
        let mut fields = split_fields(text, b'\t');
        let mut samples_start = 0;
        let mut next = || {
            let field = fields.next()?;
            samples_start += field.len() + 1;
            Some(field)
        };
        let mut fixed = [""; FIXED_FIELDS];
        for (at, field) in fixed.iter_mut().enumerate() {
            *field = next().ok_or_else(|| format!("it has {at} fields, but a record has at least {FIXED_FIELDS}"))?;
        }
        let [contig, position, identifiers, reference, alternates, quality, filters, info] = fixed;
        let format = if header.has_format() { next() } else { None };
        if header.has_format() && format.is_none() && !header.samples().is_empty() {
            return Err("it has no FORMAT field, but the header has samples".to_owned());
        }
        // If the file has no samples, a tab at the end of a line is ignored, as in bcftools 1.16.
        let samples = text.get(samples_start..).filter(|samples| !samples.is_empty() || !header.samples().is_empty());
        let found = samples.map_or(0, |samples| 1 + memchr::memchr_iter(b'\t', samples.as_bytes()).count());
        let expected = header.samples().len();
        if found != expected {
            return Err(format!("it has {found} fields of samples, but the header has {expected} samples"));
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
            samples,
            text_bytes: text.len(),
            bcf_end_position: None,
        };
        match i32::try_from(i64::from(position) + reference.len() as i64) {
            Ok(_) => Ok(record),
            Err(_) => Err("it ends beyond base 2147483647".to_owned()),
        }
    }

    /// Returns the alternate alleles in order, beginning with allele 1; empty if `ALT` is `.`.
    pub fn alternates(&self) -> impl Iterator<Item = &'l str> + use<'l> {
        (self.alternates != ".").then(|| split_fields(self.alternates, b',')).into_iter().flatten()
    }

    /// Returns the text of each sample, with all its fields.
    pub fn samples(&self) -> impl Iterator<Item = &'l str> + use<'l> {
        self.samples.into_iter().flat_map(|samples| split_fields(samples, b'\t'))
    }

    /// Returns the length of the line in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Returns the value of a key of `INFO`, or `None` if the key is absent or has no value.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::vcf::Reader;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf");
    /// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    /// std::fs::write(&path, format!("{header}chr20\t1000\trs1\tA\tC\t50\tPASS\tDP=31;DB\n"))?;
    /// let mut reader = Reader::open(&path, 1)?;
    /// let record = reader.next_record()?.unwrap();
    /// assert_eq!(record.info_value("DP"), Some("31"));
    /// // A flag has no value.
    /// assert_eq!(record.info_value("DB"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn info_value(&self, key: &str) -> Option<&'l str> {
        split_fields(self.info, b';').find_map(|entry| entry.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns the 0-based position after the last reference base that the record covers. This is the end that BCF
    /// stores; otherwise `END` in `INFO` (symbolic alleles, blocks of GVCF); otherwise the position plus the length of
    /// `REF`.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::vcf::Reader;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf");
    /// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    /// std::fs::write(&path, format!("{header}chr20\t1000\t.\tN\t<DEL>\t50\tPASS\tSVTYPE=DEL;END=1500\n"))?;
    /// let mut reader = Reader::open(&path, 1)?;
    /// let record = reader.next_record()?.unwrap();
    /// assert_eq!((record.position, record.end_position()), (999, 1500));
    /// # Ok(())
    /// # }
    /// ```
    pub fn end_position(&self) -> i32 {
        if let Some(end) = self.bcf_end_position {
            return end;
        }
        let end_1based = self.info_value("END").and_then(|text| text.parse::<i32>().ok());
        match end_1based.filter(|end| *end > self.position) {
            Some(end) => end,
            // The sum cannot overflow, because the parser has checked it.
            None => self.position.saturating_add(self.reference.len() as i32),
        }
    }

    /// Returns whether the record failed no filter: `FILTER` is `PASS`, or `.` if no filter was applied.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::vcf::Reader;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.vcf");
    /// let header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n";
    /// std::fs::write(&path, format!("{header}chr20\t1000\t.\tA\tC\t9\tq10\t.\nchr20\t1001\t.\tA\tC\t50\tPASS\t.\n"))?;
    /// let mut reader = Reader::open(&path, 1)?;
    /// assert!(!reader.next_record()?.unwrap().passes_filters());
    /// assert!(reader.next_record()?.unwrap().passes_filters());
    /// # Ok(())
    /// # }
    /// ```
    pub fn passes_filters(&self) -> bool {
        matches!(self.filters, "PASS" | ".")
    }

    /// Returns the genotype of the sample with index `sample`. Returns `None` if `FORMAT` does not contain `GT`, or the
    /// value of the sample is not a genotype.
    pub fn genotype(&self, sample: usize) -> Option<Genotype<'l>> {
        let at = split_fields(self.format, b':').position(|key| key == "GT")?;
        Genotype::parse(split_fields(self.samples().nth(sample)?, b':').nth(at)?)
    }
}

/// Parses `POS` as a 0-based position.
fn parse_position(text: &str) -> Result<i32, String> {
    let pos_1based = text.parse::<i32>().ok().filter(|pos_1based| *pos_1based >= 0 && !text.starts_with('-'));
    match pos_1based {
        Some(pos_1based) => Ok(pos_1based - 1),
        None => Err(format!("its POS is {:?}, not a number from 0 to 2147483647", excerpt(text))),
    }
}
