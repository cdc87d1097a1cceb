//! Where in a file the header is, and the records of regions: parts that, one behind the other and with an end-of-file block, are a file.
//!
//! Flows in: a file with its index, and a question. Flows out: parts of it. They may hold records beside those asked for, as the
//! specification lets them: BAM, VCF and BCF are cut at the records that an index tells, CRAM at its containers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use godwit_cram::{EOF_CONTAINER, IndexEntry};
use godwit_flight::{Catalog as _, DatasetError};
use godwit_formats::bam::BamFile;
use godwit_formats::bgzf::{BgzfError, EOF_BLOCK, VirtualOffset};
use godwit_formats::index::merge_chunks;
use godwit_formats::random_access::RandomAccess;
use godwit_formats::vcf::{VcfError, VcfFile};
use godwit_model::Region;
use godwit_model::schema::columnar;

use super::error::HtsgetError;
use super::question::{Question, WITHOUT_CONTIG};
use crate::batches::blamed;
use crate::region_lookup::{Lookup, stale};
use crate::root::{FileKind, OneFile, Root};
use crate::store::{SeenFile, Store};

/// Most bytes of an index of CRAM, as it is stored.
const MAX_INDEX_BYTES: u64 = 256 << 20;
/// The contig of slices that are of several (CRAMv3 §8.5).
const SEVERAL: i32 = -2;

/// A file, and what is known of where things are in it.
#[derive(Debug)]
pub(super) struct Layout {
    /// What the format is called.
    pub(super) format: &'static str,
    /// The state of the file and its index.
    pub(super) version: u64,
    bytes: u64,
    places: Places,
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether these are virtual offsets, and the blocks at both ends are cut.
    pub(super) cut: bool,
    pub(super) is_header: bool,
}

/// What is to be sent.
#[derive(Debug)]
pub(super) enum Plan {
    /// The file as it is.
    Whole(Stretch),
    /// Parts of it, and what ends a file of the format.
    Parts(Vec<Stretch>, &'static [u8]),
}

#[derive(Debug)]
enum Places {
    /// BGZF, entered at virtual offsets.
    Blocks {
        first_record: VirtualOffset,
        /// Behind the last record.
        end: VirtualOffset,
        /// Numbers that the index has.
        numbers: HashMap<String, usize>,
        /// Contigs that may be asked for and are in no index, for they have no record.
        known: HashSet<String>,
        /// Whether records may be without a contig.
        are_reads: bool,
        lookup: Lookup,
        /// What makes an index.
        command: &'static str,
    },
    /// CRAM, entered at containers.
    Containers {
        first: u64,
        /// Before the container that ends the file.
        end: u64,
        numbers: HashMap<String, i32>,
        /// `None`: there is no index.
        entries: Option<Vec<IndexEntry>>,
    },
}

impl Layout {
    /// Looks at a file.
    ///
    /// # Errors
    /// Of the file or its index; [`HtsgetError::UnsupportedFormat`] where it cannot be sent in parts nor be named.
    pub(super) fn open(root: &Root, file: &OneFile) -> Result<Self, HtsgetError> {
        let of = file.seen.file()?;
        let source = root.store().open(of)?;
        let bytes = source.bytes();
        let (format, places) = match file.kind {
            FileKind::Bam => ("BAM", bam_places(root.store(), file, source)?),
            FileKind::Vcf => vcf_places(root.store(), file, source)?,
            FileKind::Cram => ("CRAM", cram_places(root, file, &*source)?),
        };
        Ok(Self { format, version: file.seen.version, bytes, places })
    }

    /// The parts of it that answer a question.
    ///
    /// # Errors
    /// [`HtsgetError::NotFound`] for a contig that is not there, [`HtsgetError::InvalidInput`] where there is no index.
    pub(super) fn plan(&self, question: &Question, name: &str) -> Result<Plan, HtsgetError> {
        if question.regions.is_none() && !question.header_only {
            return Ok(Plan::Whole(Stretch { start: 0, end: self.bytes, cut: false, is_header: false }));
        }
        let (first, cut, end_of_file) = match &self.places {
            Places::Blocks { first_record, .. } => (*first_record, true, &EOF_BLOCK[..]),
            Places::Containers { first, .. } => (*first, false, &EOF_CONTAINER[..]),
        };
        let mut parts = vec![Stretch { start: 0, end: first, cut, is_header: true }];
        let found = question.regions.as_ref().map(|regions| self.find(regions, name)).transpose()?.unwrap_or_default();
        parts.extend(found.into_iter().map(|(start, end)| Stretch { start, end, cut, is_header: false }));
        Ok(Plan::Parts(parts, end_of_file))
    }

    fn find(&self, regions: &[Region], name: &str) -> Result<Vec<(u64, u64)>, HtsgetError> {
        let no_contig = |wanted: &Region| HtsgetError::NotFound {
            problem: format!("there is no contig {:?} in the header of {name}", wanted.contig),
        };
        let no_index = |command: &str| {
            HtsgetError::input(format!(
                "{name} has no index, so that regions of it are not found; ask for all of it, or have `{command} {name}` run"
            ))
        };
        let mut found = Vec::new();
        match &self.places {
            Places::Blocks { first_record, end, numbers, known, are_reads, lookup, command } => {
                let index = lookup.index()?.ok_or_else(|| no_index(command))?;
                for wanted in regions {
                    if wanted.contig == WITHOUT_CONTIG && *are_reads {
                        found.push((index.end_of_contigs().unwrap_or(*first_record), *end));
                    } else if let Some(number) = numbers.get(&wanted.contig) {
                        found.extend(index.chunks(*number, wanted.start, wanted.end));
                    } else if !known.contains(&wanted.contig) {
                        return Err(no_contig(wanted));
                    }
                }
                let within = |(start, behind): (u64, u64)| (start.max(*first_record), behind.min(*end));
                let found = merge_chunks(found).into_iter().map(within).filter(|(start, behind)| start < behind);
                Ok(found.collect())
            }
            Places::Containers { end, numbers, entries, .. } => {
                let entries = entries.as_ref().ok_or_else(|| no_index("samtools index"))?;
                let offsets: BTreeSet<u64> = entries.iter().map(|entry| entry.container_offset).collect();
                let mut wanted_offsets = BTreeSet::new();
                for wanted in regions {
                    let number = match wanted.contig.as_str() {
                        WITHOUT_CONTIG => -1,
                        contig => *numbers.get(contig).ok_or_else(|| no_contig(wanted))?,
                    };
                    let hits = entries.iter().filter(|entry| holds(entry, number, wanted));
                    wanted_offsets.extend(hits.map(|entry| entry.container_offset));
                }
                let behind = |offset: u64| offsets.range(offset + 1..).next().copied().unwrap_or(*end);
                for offset in wanted_offsets {
                    match found.last_mut() {
                        Some((_, last)) if *last == offset => *last = behind(offset),
                        _ => found.push((offset, behind(offset))),
                    }
                }
                Ok(found)
            }
        }
    }
}

/// Whether a slice may hold a read of a region.
fn holds(entry: &IndexEntry, number: i32, wanted: &Region) -> bool {
    if entry.contig == SEVERAL {
        return true;
    }
    let start = entry.start_1based.saturating_sub(1);
    let end = start.saturating_add(entry.span.max(1));
    entry.contig == number
        && (number < 0 || (wanted.start < wanted.end && start < i64::from(wanted.end) && end > i64::from(wanted.start)))
}

/// Behind the last record of a BGZF file: before the block that ends it.
fn end_of_blocks(source: &dyn RandomAccess) -> Result<VirtualOffset, HtsgetError> {
    let bytes = source.bytes();
    if ends_with(source, &EOF_BLOCK)? {
        return Ok((bytes - EOF_BLOCK.len() as u64) << 16);
    }
    let problem = format!("{} is truncated: it has no end-of-file block", source.path().display());
    Err(HtsgetError::Damaged { problem })
}

fn ends_with(source: &dyn RandomAccess, ending: &[u8]) -> Result<bool, HtsgetError> {
    let mut last = vec![0; ending.len()];
    let start = source.bytes().saturating_sub(ending.len() as u64);
    let count = source.read_at(&mut last, start).map_err(blamed)?;
    Ok(&last[..count] == ending)
}

fn bam_places(store: &Store, file: &OneFile, source: Arc<dyn RandomAccess>) -> Result<Places, HtsgetError> {
    let bam = BamFile::open(source.clone()).map_err(blamed)?;
    let names = bam.genome().contigs().iter().map(|contig| contig.name.clone());
    let command = "samtools index";
    Ok(Places::Blocks {
        first_record: bam.first_record(),
        end: end_of_blocks(&*source)?,
        numbers: names.zip(0..).collect(),
        known: HashSet::new(),
        are_reads: true,
        lookup: Lookup::beside(store, &file.seen, command)?,
        command,
    })
}

fn vcf_places(
    store: &Store,
    file: &OneFile,
    source: Arc<dyn RandomAccess>,
) -> Result<(&'static str, Places), HtsgetError> {
    let vcf = match VcfFile::open(source.clone()) {
        Ok(vcf) => vcf,
        Err(VcfError::Bgzf(BgzfError::NotBgzf { .. })) => {
            let problem = format!("{} is not compressed by bgzip, as files are that are had here", file.name);
            return Err(HtsgetError::UnsupportedFormat { problem });
        }
        Err(error) => return Err(blamed(error).into()),
    };
    let of_file = vcf.contig_numbers();
    let (format, command) = if of_file.is_some() { ("BCF", "bcftools index") } else { ("VCF", "bcftools index -t") };
    let lookup = Lookup::beside(store, &file.seen, command)?;
    let of_index = || lookup.usable().and_then(|index| index.names()).unwrap_or_default();
    let numbers: HashMap<String, usize> = match of_file {
        Some(numbers) => numbers.into_iter().map(|(name, number)| (name, number as usize)).collect(),
        None => of_index().iter().cloned().zip(0..).collect(),
    };
    let known = vcf.header().contigs().iter().map(|contig| contig.name.clone()).collect();
    let (first_record, end) = (vcf.first_record(), end_of_blocks(&*source)?);
    Ok((format, Places::Blocks { first_record, end, numbers, known, are_reads: false, lookup, command }))
}

fn cram_places(root: &Root, file: &OneFile, source: &dyn RandomAccess) -> Result<Places, HtsgetError> {
    if !ends_with(source, &EOF_CONTAINER)? {
        let problem = format!("{} is not CRAM of version 3, or truncated", file.name);
        return Err(HtsgetError::UnsupportedFormat { problem });
    }
    let end = source.bytes() - EOF_CONTAINER.len() as u64;
    // It is decoded by a process of its own, which tells the header.
    let schema = root.open(&file.name)?.schema();
    let header = schema.metadata().get(columnar::HEADER_KEY).map(String::as_str).unwrap_or_default();
    let contigs = header.lines().filter(|line| line.starts_with("@SQ\t"));
    let names = contigs.filter_map(|line| line.split('\t').find_map(|field| field.strip_prefix("SN:")));
    let numbers = names.map(str::to_owned).zip(0..).collect();
    let entries = match &file.seen.index {
        Some(index) => Some(read_entries(root.store(), file.seen.file()?, index, end)?),
        None => None,
    };
    let first = match &entries {
        Some(entries) => entries.iter().map(|entry| entry.container_offset).min().unwrap_or(end),
        None => end_of_header(source)?,
    };
    Ok(Places::Containers { first, end, numbers, entries })
}

fn read_entries(store: &Store, of: &SeenFile, index: &SeenFile, end: u64) -> Result<Vec<IndexEntry>, HtsgetError> {
    let unusable = |problem: String| {
        let problem = format!("{problem} make it again with `samtools index {}`", of.path.display());
        HtsgetError::from(DatasetError::Refused { problem })
    };
    if let Some(problem) = stale(of, index) {
        return Err(unusable(problem));
    }
    let path = index.path.display();
    if index.bytes > MAX_INDEX_BYTES {
        return Err(unusable(format!("{path} is too long for an index;")));
    }
    let mut bytes = vec![0; index.bytes as usize];
    let count = store.open(index)?.read_at(&mut bytes, 0).map_err(blamed)?;
    let entries = IndexEntry::read_all(&bytes[..count]).map_err(|error| unusable(format!("{path}: {error};")))?;
    if entries.iter().any(|entry| entry.container_offset >= end) {
        return Err(unusable(format!("{path} points behind the end of its file;")));
    }
    Ok(entries)
}

/// Where the container of the header ends: behind the definition of the file, a container's head that begins with the bytes of its
/// blocks (CRAMv3 §6 and §7).
fn end_of_header(source: &dyn RandomAccess) -> Result<u64, HtsgetError> {
    let mut bytes = [0; FILE_DEFINITION_BYTES + CONTAINER_HEAD_BYTES];
    let count = source.read_at(&mut bytes, 0).map_err(blamed)?;
    let head = container_head(bytes[..count].get(FILE_DEFINITION_BYTES..).unwrap_or_default());
    let (blocks, head_bytes) = head.ok_or_else(|| HtsgetError::Damaged {
        problem: format!("{} has no container of a header", source.path().display()),
    })?;
    Ok(FILE_DEFINITION_BYTES as u64 + head_bytes as u64 + u64::from(blocks))
}

/// Magic, version and name (CRAMv3 §6).
const FILE_DEFINITION_BYTES: usize = 26;
/// Most bytes of the head of a container of at most 16 landmarks, of which that of a header has two.
const CONTAINER_HEAD_BYTES: usize = 4 + 5 * 4 + 9 * 2 + 5 * 2 + 5 * 16 + 4;

/// How long the blocks of a container are, and its head.
fn container_head(head: &[u8]) -> Option<(u32, usize)> {
    let (length, mut rest) = head.split_first_chunk()?;
    // Contig, start, span, records; the counters of records and bases; blocks.
    for width in [variable_32, variable_32, variable_32, variable_32, variable_64, variable_64, variable_32] {
        rest = rest.get(width(*rest.first()?)..)?;
    }
    let first = *rest.first()?;
    // Fewer than 128 landmarks are one byte.
    let landmarks = if first < 0x80 { first } else { return None };
    rest = &rest[1..];
    for _ in 0..landmarks {
        rest = rest.get(variable_32(*rest.first()?)..)?;
    }
    rest = rest.get(4..)?;
    Some((u32::from_le_bytes(*length), head.len() - rest.len()))
}

/// Bytes of a number of ITF-8 by its first one (CRAMv3 §2.3).
fn variable_32(first: u8) -> usize {
    (first.leading_ones() as usize).min(4) + 1
}

/// The same for LTF-8.
fn variable_64(first: u8) -> usize {
    first.leading_ones() as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_containers_are_measured() {
        // That of the container which ends a file: 15 bytes of blocks, contig -1 and start 4542278 in five and four bytes.
        assert_eq!(container_head(&EOF_CONTAINER), Some((15, EOF_CONTAINER.len() - 15)));
        for cut in 0..EOF_CONTAINER.len() - 15 {
            assert_eq!(container_head(&EOF_CONTAINER[..cut]), None);
        }
    }

    #[test]
    fn slices_hold_regions_that_they_touch() {
        let entry = |contig, start_1based, span| IndexEntry {
            contig,
            start_1based,
            span,
            container_offset: 0,
            slice_offset: 0,
            slice_bytes: 0,
        };
        let region = |start, end| Region { contig: String::new(), start, end };
        // Bases 100 to 199, 0-based.
        let slice = entry(3, 101, 100);
        for (start, end, held) in
            [(0, 100, false), (0, 101, true), (199, 200, true), (200, 300, false), (150, 150, false)]
        {
            assert_eq!(holds(&slice, 3, &region(start, end)), held, "{start} {end}");
        }
        assert!(!holds(&slice, 2, &region(0, u32::MAX)) && !holds(&slice, -1, &region(0, u32::MAX)));
        assert!(holds(&entry(-1, 0, 1), -1, &region(0, u32::MAX)));
        assert!(holds(&entry(SEVERAL, 1, 1), 7, &region(5000, 6000)));
        assert!(holds(&entry(3, 101, 0), 3, &region(100, 101)));
    }
}
