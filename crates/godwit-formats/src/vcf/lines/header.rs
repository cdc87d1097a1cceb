//! VCF headers, stored as lines, and the merging of headers of several parts of one file.

use std::collections::{HashMap, HashSet};

use super::error::{VcfLinesError, excerpt};

/// Suffixes, in lower case, of the keys of header lines that describe one execution of a program and not the records:
/// command lines, which may contain paths of temporary files, and dates. bcftools, freebayes, GATK, DeepVariant,
/// Strelka and Octopus write such lines.
const VOLATILE_KEY_SUFFIXES: [&str; 6] = ["command", "commandline", "cmdline", "filedate", "starttime", "octopus"];

/// Returns whether a header line (`##key=value`) describes one execution of a program. Such a line differs if the same
/// command runs on another day, or on another part of the genome.
///
/// # Examples
///
/// ```
/// use godwit_formats::vcf::lines::is_volatile;
///
/// assert!(is_volatile(b"##bcftools_callCommand=call -m; Date=Mon Jan 5 2026"));
/// assert!(is_volatile(b"##fileDate=20260105"));
/// assert!(!is_volatile(b"##contig=<ID=chr20>"));
/// ```
pub fn is_volatile(line: &[u8]) -> bool {
    let Some(line) = line.strip_prefix(b"##") else { return false };
    let key = line.split(|byte| *byte == b'=').next().unwrap_or_default().to_ascii_lowercase();
    VOLATILE_KEY_SUFFIXES.iter().any(|ending| key.ends_with(ending.as_bytes()))
}

/// A VCF header: the `##` lines in order, and the `#CHROM` line, all without line feeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    lines: Vec<Vec<u8>>,
    column_line: Vec<u8>,
}

impl Header {
    /// Creates a header from its `##` lines and its `#CHROM` line, `column_line`.
    pub fn new(lines: Vec<Vec<u8>>, column_line: Vec<u8>) -> Self {
        Self { lines, column_line }
    }

    /// Returns the `##` lines in order, without line feeds.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// Returns the names of the samples.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_formats::vcf::lines::Header;
    ///
    /// let columns = b"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tNA12878\tNA12891".to_vec();
    /// let header = Header::new(Vec::new(), columns);
    /// assert!(header.samples().eq([b"NA12878", b"NA12891"]));
    /// ```
    pub fn samples(&self) -> impl Iterator<Item = &[u8]> {
        self.column_line.split(|byte| *byte == b'\t').skip(9)
    }

    /// Returns the text of the header, with line feeds.
    pub fn text(&self) -> Vec<u8> {
        let lines = self.lines.iter().chain([&self.column_line]);
        lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
    }

    /// Removes the lines that describe one execution of a program ([`is_volatile`]).
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_formats::vcf::lines::Header;
    ///
    /// let lines = vec![b"##fileDate=20260105".to_vec(), b"##contig=<ID=chr1>".to_vec()];
    /// let mut header = Header::new(lines, b"#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO".to_vec());
    /// header.remove_volatile();
    /// assert!(header.has_kind("contig"));
    /// assert!(!header.has_kind("fileDate"));
    /// ```
    pub fn remove_volatile(&mut self) {
        self.lines.retain(|line| !is_volatile(line));
    }

    /// Adds the lines that `other`, the header of another part of the file, has in addition. Each is inserted after the
    /// last line of the same kind (`##INFO`, `##contig`, ...), in the order of `other`. If both headers have different
    /// lines of one kind without an `ID`, the line of this header stays.
    ///
    /// # Errors
    /// [`VcfLinesError::Conflict`] if the headers have different samples, define one `ID` differently, or have
    /// different `fileformat` lines.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::vcf::lines::{Header, VcfLinesError};
    ///
    /// let columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO";
    /// let header = |line: &str| Header::new(vec![line.into()], columns.into());
    /// let mut merged = header("##contig=<ID=chr1>");
    /// merged.merge(&header("##contig=<ID=chr2>"))?;
    /// assert!(merged.lines().eq([b"##contig=<ID=chr1>", b"##contig=<ID=chr2>"]));
    ///
    /// let error = merged.merge(&header("##contig=<ID=chr1,length=1000>")).unwrap_err();
    /// assert!(matches!(error, VcfLinesError::Conflict { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(&mut self, other: &Self) -> Result<(), VcfLinesError> {
        let conflict =
            |first: &[u8], second: &[u8]| VcfLinesError::Conflict { first: excerpt(first), second: excerpt(second) };
        if self.column_line != other.column_line {
            return Err(conflict(&self.column_line, &other.column_line));
        }
        if self.lines == other.lines {
            return Ok(());
        }
        let present: HashSet<&[u8]> = self.lines().collect();
        let named: HashMap<(&[u8], &[u8]), &[u8]> = self.lines().map(|line| (line_key(line), line)).collect();
        let mut missing = Vec::new();
        for line in other.lines().filter(|line| !present.contains(line)) {
            match named.get(&line_key(line)) {
                // Lines without an `ID` may differ between parts of the file; keep the line of this header.
                Some(_) if line_key(line).1.is_empty() && line_kind(line) != b"fileformat" => {}
                Some(first) => return Err(conflict(first, line)),
                None => missing.push(line.to_vec()),
            }
        }
        for line in missing {
            let of_kind = |present: &Vec<u8>| line_kind(present) == line_kind(&line);
            let index = self.lines.iter().rposition(of_kind).map_or(self.lines.len(), |place| place + 1);
            self.lines.insert(index, line);
        }
        Ok(())
    }

    /// Appends a `##` line to the header.
    pub fn push_line(&mut self, line: Vec<u8>) {
        self.lines.push(line);
    }

    /// Returns whether the header has a line of this kind, such as `contig`.
    pub fn has_kind(&self, kind: &str) -> bool {
        self.lines.iter().any(|line| line_kind(line) == kind.as_bytes())
    }
}

fn line_kind(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"##").unwrap_or(line);
    line.split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// Returns the kind and the `ID` of a header line; the `ID` is empty if the line has none.
fn line_key(line: &[u8]) -> (&[u8], &[u8]) {
    let kind = line_kind(line);
    let fields = line.get(kind.len() + 3..).and_then(|value| value.strip_prefix(b"<ID="));
    let id = fields.and_then(|fields| fields.split(|byte| matches!(byte, b',' | b'>')).next());
    (kind, id.unwrap_or_default())
}
