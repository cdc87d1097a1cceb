//! Numbering of read groups and libraries, and warnings about read groups that other tools reject.

use std::collections::HashMap;

use godwit_formats::sam::ReadGroup;
use godwit_kernels::markdup::UNKNOWN_LIBRARY;
use godwit_model::NO_READ_GROUP;

use crate::error::PipelineError;

/// The read groups of a header, by their ID, and the libraries to which they belong.
#[derive(Clone, Debug)]
pub struct ReadGroups {
    by_id: HashMap<Vec<u8>, ReadGroupIndexes>,
    libraries: Vec<String>,
    header_libraries: usize,
    unknown_library: u16,
}

/// The indexes of the read group and of the library of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadGroupIndexes {
    /// Index of the read group in the header; [`NO_READ_GROUP`] if the record has no read group.
    pub read_group: u16,
    /// Index of the library in [`ReadGroups::libraries`].
    pub library: u16,
}

impl ReadGroups {
    /// Numbers the read groups of a header in the order of the header.
    ///
    /// Read groups without `LB` and records without a read group belong to "Unknown Library", as in Picard.
    ///
    /// # Errors
    /// [`PipelineError::Options`] for more than 65,534 read groups.
    pub fn new(read_groups: &[ReadGroup]) -> Result<Self, PipelineError> {
        if read_groups.len() >= usize::from(NO_READ_GROUP) {
            let problem = format!("the header has {} read groups; godwit supports at most 65534", read_groups.len());
            return Err(PipelineError::Options { problem });
        }
        let mut libraries: Vec<String> = Vec::new();
        let mut known: HashMap<&str, u16> = HashMap::new();
        let mut by_id = HashMap::new();
        for (index, group) in read_groups.iter().enumerate() {
            let name = group.library.as_deref().unwrap_or(UNKNOWN_LIBRARY);
            let library = *known.entry(name).or_insert_with(|| {
                libraries.push(name.to_owned());
                libraries.len() as u16 - 1
            });
            by_id.insert(group.id.clone().into_bytes(), ReadGroupIndexes { read_group: index as u16, library });
        }
        let named_unknown = by_id.is_empty() || !libraries.iter().any(|library| library == UNKNOWN_LIBRARY);
        let header_libraries = libraries.len();
        if named_unknown {
            libraries.push(UNKNOWN_LIBRARY.to_owned());
        }
        let unknown_library = libraries.iter().position(|library| library == UNKNOWN_LIBRARY).unwrap_or(0) as u16;
        Ok(Self { by_id, libraries, header_libraries, unknown_library })
    }

    /// Returns the indexes of the read group and library of a record with this value of the `RG` tag.
    pub fn indexes_of(&self, id: Option<&[u8]>) -> ReadGroupIndexes {
        let unknown = ReadGroupIndexes { read_group: NO_READ_GROUP, library: self.unknown_library };
        id.and_then(|id| self.by_id.get(id).copied()).unwrap_or(unknown)
    }

    /// Returns the names of the libraries, in the order of their indexes.
    pub fn libraries(&self) -> &[String] {
        &self.libraries
    }

    /// Returns the number of libraries that the header names. Libraries with higher indexes are reported only if a
    /// record belongs to them.
    pub fn header_libraries(&self) -> usize {
        self.header_libraries
    }
}

/// Values of `PL` in the specification SAMv1 §1.3 (2024-11-06). htsjdk 4.2.0 accepts them in upper and lower case.
const PLATFORMS: [&str; 12] = [
    "CAPILLARY",
    "DNBSEQ",
    "ELEMENT",
    "HELICOS",
    "ILLUMINA",
    "IONTORRENT",
    "LS454",
    "ONT",
    "PACBIO",
    "SINGULAR",
    "SOLID",
    "ULTIMA",
];

/// Returns the value of the tag `name` in a header line.
pub fn header_tag<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split('\t').skip(1).find_map(|field| field.strip_prefix(name)?.strip_prefix(':'))
}

/// Returns a warning for each defect of an `@RG` line because of which GATK or Picard would reject the file.
pub fn compatibility_warnings<'l>(lines: impl Iterator<Item = &'l str>) -> Vec<String> {
    let mut warnings = Vec::new();
    for line in lines {
        let id = header_tag(line, "ID").unwrap_or_default();
        if header_tag(line, "SM").is_none_or(str::is_empty) {
            warnings.push(format!(
                "read group {id} has no sample (SM): GATK rejects the file; add a sample with `samtools addreplacerg \
                 -r '@RG\\tID:{id}\\tSM:NAME'`"
            ));
        }
        if let Some(platform) = header_tag(line, "PL").filter(|platform| !is_platform(platform)) {
            warnings.push(format!(
                "read group {id} has PL:{platform}, which is not a platform of the SAM specification: GATK's base \
                 recalibration rejects it; use one of {}",
                PLATFORMS.join(", ")
            ));
        }
    }
    warnings
}

fn is_platform(text: &str) -> bool {
    PLATFORMS.iter().any(|platform| platform.eq_ignore_ascii_case(text))
}
