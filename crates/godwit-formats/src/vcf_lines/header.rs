//! Headers: kept by the line, put together over the pieces of one file.

use std::collections::{HashMap, HashSet};

use super::error::{VcfLinesError, shown};

/// Endings of keys, in lower case, whose lines tell of one process and not of the records: command lines, dates, paths of
/// temporary files in them. bcftools, freebayes, GATK, DeepVariant, Strelka and Octopus write such.
const VOLATILE: [&str; 6] = ["command", "commandline", "cmdline", "filedate", "starttime", "octopus"];

/// Whether a header line (`##key=value`) is of one process: the same command on another day, or on a part of the genome,
/// would write another.
pub fn is_volatile(line: &[u8]) -> bool {
    let Some(line) = line.strip_prefix(b"##") else { return false };
    let key = line.split(|byte| *byte == b'=').next().unwrap_or_default().to_ascii_lowercase();
    VOLATILE.iter().any(|ending| key.ends_with(ending.as_bytes()))
}

/// A header: its `##` lines in order, and the `#CHROM` line; without line feeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    lines: Vec<Vec<u8>>,
    columns: Vec<u8>,
}

impl Header {
    /// A header of those lines. `columns`: the `#CHROM` line.
    pub fn new(lines: Vec<Vec<u8>>, columns: Vec<u8>) -> Self {
        Self { lines, columns }
    }

    /// The `##` lines.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    /// The `#CHROM` line.
    pub fn columns(&self) -> &[u8] {
        &self.columns
    }

    /// Names of the samples.
    pub fn samples(&self) -> impl Iterator<Item = &[u8]> {
        self.columns.split(|byte| *byte == b'\t').skip(9)
    }

    /// The text, with line feeds.
    pub fn text(&self) -> Vec<u8> {
        let lines = self.lines.iter().chain([&self.columns]);
        lines.flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
    }

    /// Drops lines of one process.
    pub fn drop_volatile(&mut self) {
        self.lines.retain(|line| !is_volatile(line));
    }

    /// Adds the lines of the header of another piece that this one lacks, each behind what it has of its kind
    /// (`##INFO`, `##contig` ...), in their order. Of lines without an `ID` the first of a kind stays.
    ///
    /// # Errors
    /// [`VcfLinesError::Conflict`] where the two have other samples, or define one `ID` in two ways, or another `fileformat`.
    pub fn add(&mut self, other: &Self) -> Result<(), VcfLinesError> {
        let conflict =
            |first: &[u8], second: &[u8]| VcfLinesError::Conflict { first: shown(first), second: shown(second) };
        if self.columns != other.columns {
            return Err(conflict(&self.columns, &other.columns));
        }
        if self.lines == other.lines {
            return Ok(());
        }
        let present: HashSet<&[u8]> = self.lines().collect();
        let named: HashMap<(&[u8], &[u8]), &[u8]> = self.lines().map(|line| (name_of(line), line)).collect();
        let mut missing = Vec::new();
        for line in other.lines().filter(|line| !present.contains(line)) {
            match named.get(&name_of(line)) {
                // Callers say what they like in lines of their own; the first region's is as good as any.
                Some(_) if name_of(line).1.is_empty() && kind_of(line) != b"fileformat" => {}
                Some(first) => return Err(conflict(first, line)),
                None => missing.push(line.to_vec()),
            }
        }
        for line in missing {
            let of_kind = |present: &Vec<u8>| kind_of(present) == kind_of(&line);
            let place = self.lines.iter().rposition(of_kind).map_or(self.lines.len(), |place| place + 1);
            self.lines.insert(place, line);
        }
        Ok(())
    }

    /// Adds a line behind all others.
    pub fn push(&mut self, line: Vec<u8>) {
        self.lines.push(line);
    }

    /// Whether there is a line of that kind, as `contig`.
    pub fn has(&self, kind: &str) -> bool {
        self.lines.iter().any(|line| kind_of(line) == kind.as_bytes())
    }
}

fn kind_of(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"##").unwrap_or(line);
    line.split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// What a line defines: kind and `ID`; kind alone where it has none.
fn name_of(line: &[u8]) -> (&[u8], &[u8]) {
    let kind = kind_of(line);
    let fields = line.get(kind.len() + 3..).and_then(|value| value.strip_prefix(b"<ID="));
    let id = fields.and_then(|fields| fields.split(|byte| matches!(byte, b',' | b'>')).next());
    (kind, id.unwrap_or_default())
}
