//! The text header of SAM and BAM files (SAMv1 §1.3). Its lines are stored unchanged; tags are parsed when they are
//! needed, and only few edits are supported.

use std::collections::HashSet;

use godwit_model::{Contig, Genome, GenomeError};

use super::error::{HeaderError, excerpt};

/// The largest contig length (`LN`) of an `@SQ` line (SAMv1 §1.3).
const MAX_CONTIG_BASES: u32 = i32::MAX as u32;

/// A SAM header. Lines that are not edited keep their bytes, even if they are invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    lines: Vec<Vec<u8>>,
}

/// A read group, described by an `@RG` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadGroup {
    /// Identifier of the read group (`ID`).
    pub id: String,
    /// Library of the read group (`LB`).
    pub library: Option<String>,
    /// Sample of the read group (`SM`).
    pub sample: Option<String>,
    /// The `@RG` line, without its line feed.
    pub line: String,
}

impl Header {
    /// Parses the text of a header. The text may be empty, and its last line may lack the line feed.
    ///
    /// # Errors
    /// [`HeaderError::Line`] if a line does not start with `@`, two characters and a tab.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::{Header, HeaderError};
    ///
    /// let header = Header::parse(b"@HD\tVN:1.6\tSO:coordinate\n@SQ\tSN:chrM\tLN:16569\n")?;
    /// assert_eq!(header.lines().count(), 2);
    /// assert!(header.is_coordinate_sorted());
    /// assert!(matches!(Header::parse(b"chrM\t16569\n"), Err(HeaderError::Line { line: 1, .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse(text: &[u8]) -> Result<Self, HeaderError> {
        let mut header = Self::default();
        if !text.is_empty() {
            for line in text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n') {
                header.push_line(line)?;
            }
        }
        Ok(header)
    }

    /// Appends a line, given without its line feed, to the header.
    ///
    /// # Errors
    /// [`HeaderError::Line`] as in [`Header::parse`], or if the line contains a line feed or a NUL byte.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::Header;
    ///
    /// let mut header = Header::default();
    /// header.push_line(b"@SQ\tSN:chrM\tLN:16569")?;
    /// header.push_line(b"@RG\tID:lane1\tSM:NA12878")?;
    /// assert_eq!(header.text(), b"@SQ\tSN:chrM\tLN:16569\n@RG\tID:lane1\tSM:NA12878\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_line(&mut self, line: &[u8]) -> Result<(), HeaderError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let kind_and_tab = matches!(line, [b'@', a, b] | [b'@', a, b, b'\t', ..]
            if a.is_ascii_alphabetic() && b.is_ascii_alphanumeric());
        if !kind_and_tab || line.contains(&b'\n') || line.contains(&0) {
            return Err(HeaderError::Line { line: self.lines.len() + 1, text: excerpt(line) });
        }
        self.lines.push(line.to_vec());
        Ok(())
    }

    /// Returns the header lines in order, without line feeds.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// Returns the text of the header, with a line feed after every line.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.lines.iter().map(|line| line.len() + 1).sum());
        for line in &self.lines {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        text
    }

    /// Returns the contigs of the `@SQ` lines in order. A contig with the tag `AH` is an alternate contig.
    ///
    /// # Errors
    /// [`HeaderError`] if an `SN` or `LN` is missing, a length is out of range, or a name is used twice or is not
    /// UTF-8.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::Header;
    ///
    /// let header = Header::parse(b"@SQ\tSN:chr1\tLN:248956422\n@SQ\tSN:chrM\tLN:16569\n")?;
    /// let genome = header.genome()?;
    /// assert_eq!(genome.contigs()[1].name, "chrM");
    /// assert_eq!(genome.contigs()[1].length, 16_569);
    /// # Ok(())
    /// # }
    /// ```
    pub fn genome(&self) -> Result<Genome, HeaderError> {
        let mut contigs = Vec::new();
        for line in self.lines_of_type("SQ") {
            let name = line.required_tag_text("SN")?;
            let length = line.required_tag_text("LN")?;
            let bases = length.parse().ok().filter(|bases| (1..=MAX_CONTIG_BASES).contains(bases));
            let Some(length) = bases.filter(|_| length.bytes().all(|byte| byte.is_ascii_digit())) else {
                return Err(HeaderError::ContigLength { contig: name, length: excerpt(length.as_bytes()) });
            };
            contigs.push(Contig { name, length, alternate: line.tag("AH").is_some() });
        }
        Genome::new(contigs)
            .map_err(|GenomeError::DuplicateContig { name }| HeaderError::DuplicateContig { contig: name })
    }

    /// Returns the read groups of the `@RG` lines in order.
    ///
    /// # Errors
    /// [`HeaderError`] if an `ID` is missing or used twice, or if a line is not UTF-8.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::Header;
    ///
    /// let header = Header::parse(b"@RG\tID:lane1\tSM:NA12878\tLB:lib1\n")?;
    /// let groups = header.read_groups()?;
    /// assert_eq!(groups[0].id, "lane1");
    /// assert_eq!(groups[0].sample.as_deref(), Some("NA12878"));
    /// assert_eq!(groups[0].library.as_deref(), Some("lib1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_groups(&self) -> Result<Vec<ReadGroup>, HeaderError> {
        let mut groups = Vec::new();
        let mut seen = HashSet::new();
        for line in self.lines_of_type("RG") {
            let id = line.required_tag_text("ID")?;
            if !seen.insert(id.clone()) {
                return Err(HeaderError::DuplicateId { kind: "RG", id });
            }
            let (library, sample) = (line.tag_text("LB")?, line.tag_text("SM")?);
            groups.push(ReadGroup { id, library, sample, line: line.to_utf8(line.bytes)? });
        }
        Ok(groups)
    }

    /// Returns whether any `@SQ` line contains the MD5 checksum of its contig (`M5`).
    pub fn has_checksums(&self) -> bool {
        self.lines_of_type("SQ").any(|line| line.tag("M5").is_some())
    }

    /// Returns whether the `@HD` line contains `SO:coordinate`.
    pub fn is_coordinate_sorted(&self) -> bool {
        self.lines_of_type("HD").any(|line| line.tag("SO") == Some(b"coordinate"))
    }

    /// Marks the records as sorted by coordinate: sets `SO:coordinate` on the `@HD` line, which is created if missing.
    /// The tags `GO` and `SS`, which describe another order, are removed.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::Header;
    ///
    /// let mut header = Header::parse(b"@HD\tVN:1.6\tGO:query\n")?;
    /// header.set_coordinate_sorted();
    /// assert_eq!(header.text(), b"@HD\tVN:1.6\tSO:coordinate\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_coordinate_sorted(&mut self) {
        let Some(line) = self.lines.iter_mut().find(|line| line.starts_with(b"@HD")) else {
            self.lines.insert(0, b"@HD\tVN:1.6\tSO:coordinate".to_vec());
            return;
        };
        let mut sorted = Vec::new();
        let mut has_order = false;
        for (index, field) in line.split(|byte| *byte == b'\t').enumerate() {
            let is_order = field.starts_with(b"SO:");
            if index > 0 && (field.starts_with(b"GO:") || field.starts_with(b"SS:") || (is_order && has_order)) {
                continue;
            }
            if index > 0 {
                sorted.push(b'\t');
            }
            sorted.extend_from_slice(if is_order { b"SO:coordinate" } else { field });
            has_order |= is_order;
        }
        if !has_order {
            sorted.extend_from_slice(b"\tSO:coordinate");
        }
        *line = sorted;
    }

    /// Adds a program to the end of every chain of `@PG` lines, as `samtools` 1.16 does. One line is added for each
    /// program to which no `PP` tag refers, or a single line if there are no programs. The `ID` is the name of the
    /// program, with `.1`, `.2`, ... appended if it is already used.
    ///
    /// The tags in `fields` follow `ID`, `PN` and `PP` in the given order. Tabs and line feeds in their values become
    /// blanks.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::Header;
    ///
    /// let mut header = Header::parse(b"@PG\tID:bwa\tPN:bwa\n")?;
    /// header.add_program("godwit", &[("VN", "1.0"), ("CL", "godwit align")]);
    /// let added = header.lines().last().unwrap();
    /// assert_eq!(added, b"@PG\tID:godwit\tPN:godwit\tPP:bwa\tVN:1.0\tCL:godwit align");
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_program(&mut self, name: &str, fields: &[(&str, &str)]) {
        let ids: Vec<Vec<u8>> =
            self.lines_of_type("PG").filter_map(|line| line.tag("ID")).map(<[u8]>::to_vec).collect();
        let followed: HashSet<&[u8]> = self.lines_of_type("PG").filter_map(|line| line.tag("PP")).collect();
        let leaves: Vec<Vec<u8>> = ids.iter().filter(|id| !followed.contains(id.as_slice())).cloned().collect();
        let mut used_ids: HashSet<Vec<u8>> = ids.into_iter().collect();
        let mut suffix = 1;
        let parents = if leaves.is_empty() { vec![None] } else { leaves.into_iter().map(Some).collect() };
        for parent in parents {
            let mut id = name.as_bytes().to_vec();
            while used_ids.contains(&id) {
                id = format!("{name}.{suffix}").into_bytes();
                suffix += 1;
            }
            let mut line = b"@PG".to_vec();
            let mut push = |tag: &str, value: &[u8]| {
                line.extend_from_slice(format!("\t{tag}:").as_bytes());
                let blank = |byte: &u8| if matches!(byte, b'\t' | b'\n' | b'\r' | 0) { b' ' } else { *byte };
                line.extend(value.iter().map(blank));
            };
            push("ID", &id);
            push("PN", name.as_bytes());
            if let Some(parent) = &parent {
                push("PP", parent);
            }
            fields.iter().for_each(|(tag, value)| push(tag, value.as_bytes()));
            used_ids.insert(id);
            self.lines.push(line);
        }
    }

    /// Adds the MD5 checksum `M5` to every `@SQ` line that has none. `checksum` is called for every `@SQ` line with its
    /// `SN`, `LN` and existing `M5`, and returns the correct checksum.
    ///
    /// # Errors
    /// The errors of `checksum`. The lines before the failed line have already been changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::Header;
    ///
    /// let mut header = Header::parse(b"@SQ\tSN:chrM\tLN:16569\n")?;
    /// header.try_fill_checksums(|name, _, _| match name {
    ///     "chrM" => Ok("c68f52674c9fb33aef52dcf399755519".to_owned()),
    ///     _ => Err("the reference does not have this contig"),
    /// })?;
    /// assert_eq!(header.text(), b"@SQ\tSN:chrM\tLN:16569\tM5:c68f52674c9fb33aef52dcf399755519\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_fill_checksums<E>(
        &mut self,
        mut checksum: impl FnMut(&str, &str, Option<&str>) -> Result<String, E>,
    ) -> Result<(), E> {
        for (index, bytes) in self.lines.iter_mut().enumerate().filter(|(_, line)| line.starts_with(b"@SQ\t")) {
            let line = HeaderLine { number: index + 1, bytes };
            let text = |tag| line.tag(tag).map(|value| String::from_utf8_lossy(value).into_owned());
            let present = text("M5");
            let found = checksum(&text("SN").unwrap_or_default(), &text("LN").unwrap_or_default(), present.as_deref())?;
            if present.is_none() {
                bytes.extend_from_slice(format!("\tM5:{found}").as_bytes());
            }
        }
        Ok(())
    }

    fn lines_of_type(&self, kind: &'static str) -> impl Iterator<Item = HeaderLine<'_>> {
        let numbered = self.lines.iter().enumerate().map(|(index, bytes)| HeaderLine { number: index + 1, bytes });
        numbered.filter(move |line| &line.bytes[1..3] == kind.as_bytes())
    }
}

/// A header line with its 1-based number.
struct HeaderLine<'a> {
    number: usize,
    bytes: &'a [u8],
}

impl<'a> HeaderLine<'a> {
    /// Returns the value of a tag of the line, or `None` if the line does not have the tag.
    fn tag(&self, tag: &str) -> Option<&'a [u8]> {
        let mut fields = self.bytes.split(|byte| *byte == b'\t').skip(1);
        fields.find_map(|field| field.strip_prefix(tag.as_bytes())?.strip_prefix(b":"))
    }

    fn to_utf8(&self, bytes: &[u8]) -> Result<String, HeaderError> {
        let not_utf8 = |_| HeaderError::NotUtf8 { line: self.number, text: excerpt(self.bytes) };
        std::str::from_utf8(bytes).map(str::to_owned).map_err(not_utf8)
    }

    fn tag_text(&self, tag: &str) -> Result<Option<String>, HeaderError> {
        self.tag(tag).map(|value| self.to_utf8(value)).transpose()
    }

    fn required_tag_text(&self, tag: &'static str) -> Result<String, HeaderError> {
        let missing = || HeaderError::MissingTag { line: self.number, tag, text: excerpt(self.bytes) };
        self.tag_text(tag)?.filter(|value| !value.is_empty()).ok_or_else(missing)
    }
}
