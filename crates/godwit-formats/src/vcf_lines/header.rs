//! Headers: stored by the line, merged over the pieces of one file.

use std::collections::{HashMap, HashSet};

use super::error::{VcfLinesError, excerpt};

/// Suffixes of keys, in lower case, of lines that describe one process and not the records: command lines, dates, and paths
/// of temporary files in them. bcftools, freebayes, GATK, DeepVariant, Strelka and Octopus write such lines.
const VOLATILE_KEY_SUFFIXES: [&str; 6] = ["command", "commandline", "cmdline", "filedate", "starttime", "octopus"];

/// Reports whether a header line (`##key=value`) describes one process: the same command on another day, or on a part of
/// the genome, would write another line.
pub fn is_volatile(line: &[u8]) -> bool {
    let Some(line) = line.strip_prefix(b"##") else { return false };
    let key = line.split(|byte| *byte == b'=').next().unwrap_or_default().to_ascii_lowercase();
    VOLATILE_KEY_SUFFIXES.iter().any(|ending| key.ends_with(ending.as_bytes()))
}

/// A header: its `##` lines in order, and the `#CHROM` line; without line feeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    lines: Vec<Vec<u8>>,
    column_line: Vec<u8>,
}

impl Header {
    /// Creates a header of those lines. `column_line`: the `#CHROM` line.
    pub fn new(lines: Vec<Vec<u8>>, column_line: Vec<u8>) -> Self {
        Self { lines, column_line }
    }

    /// Returns the `##` lines.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// Returns the `#CHROM` line.
    pub fn column_line(&self) -> &[u8] {
        &self.column_line
    }

    /// Returns the names of the samples.
    pub fn samples(&self) -> impl Iterator<Item = &[u8]> {
        self.column_line.split(|byte| *byte == b'\t').skip(9)
    }

    /// Returns the text, with line feeds.
    pub fn text(&self) -> Vec<u8> {
        let lines = self.lines.iter().chain([&self.column_line]);
        lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
    }

    /// Drops the lines that describe one process.
    pub fn remove_volatile(&mut self) {
        self.lines.retain(|line| !is_volatile(line));
    }

    /// Adds the lines that only the header of another piece has, each behind the lines of its kind (`##INFO`, `##contig`
    /// ...), in their order. Of lines without an `ID` the first of a kind stays.
    ///
    /// # Errors
    /// [`VcfLinesError::Conflict`] where the two have other samples, define one `ID` in two ways, or have another
    /// `fileformat`.
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
                // Lines of callers without an `ID` may differ; those of the first region are as good as any.
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

    /// Appends a line.
    pub fn push_line(&mut self, line: Vec<u8>) {
        self.lines.push(line);
    }

    /// Reports whether there is a line of that kind, such as `contig`.
    pub fn has_kind(&self, kind: &str) -> bool {
        self.lines.iter().any(|line| line_kind(line) == kind.as_bytes())
    }
}

fn line_kind(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"##").unwrap_or(line);
    line.split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// Returns the kind and `ID` that a line defines; kind alone where it has no `ID`.
fn line_key(line: &[u8]) -> (&[u8], &[u8]) {
    let kind = line_kind(line);
    let fields = line.get(kind.len() + 3..).and_then(|value| value.strip_prefix(b"<ID="));
    let id = fields.and_then(|fields| fields.split(|byte| matches!(byte, b',' | b'>')).next());
    (kind, id.unwrap_or_default())
}
