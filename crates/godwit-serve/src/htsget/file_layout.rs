//! Finds the data blocks of a file for an htsget request. The header block, the blocks of regions and an end-of-file
//! block together form a valid file.
//!
//! The blocks may also contain other records, which the specification permits. BAM, VCF and BCF files are cut at the
//! virtual offsets in their index, CRAM files at containers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use godwit_cram::{EOF_CONTAINER, IndexEntry};
use godwit_dataset::{Catalog as _, DatasetError};
use godwit_formats::bam::BamFile;
use godwit_formats::binning_index::merge_chunks;
use godwit_formats::vcf::{VcfError, VcfFile};
use godwit_io::bgzf::{BgzfError, EOF_BLOCK, VirtualOffset};
use godwit_io::random_access::RandomAccess;
use godwit_model::Region;
use godwit_model::schema::alignment_columns;

use super::error::HtsgetError;
use super::request::{HtsgetRequest, UNPLACED_REFERENCE_NAME};
use crate::dataset_root::{DatasetRoot, HtsgetFile, HtsgetFormat};
use crate::file_index::{FileIndex, staleness_problem};
use crate::file_snapshot::FileSnapshot;
use crate::file_store::FileStore;
use crate::read_error::dataset_error;

/// Maximum size of a CRAM index, in bytes as stored.
const MAX_INDEX_BYTES: u64 = 256 << 20;
/// Contig id of a CRAM slice that contains reads of several contigs (CRAMv3 §8.5).
const MULTI_REFERENCE_ID: i32 = -2;

/// The layout of a file: the positions of its header and its records.
#[derive(Debug)]
pub(super) struct FileLayout {
    /// Name of the file format in htsget, such as `BAM`.
    pub(super) format: &'static str,
    /// Version of the file and its index, which changes with every modification.
    pub(super) version: u64,
    bytes: u64,
    format_layout: FormatLayout,
}

/// A range of the file that a URL in a ticket refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataBlock {
    pub(super) start: u64,
    pub(super) end: u64,
    /// True if `start` and `end` are virtual offsets, so that the BGZF blocks at both ends must be cut and compressed
    /// again.
    pub(super) has_virtual_offsets: bool,
    pub(super) is_header: bool,
}

/// The data blocks of a ticket.
#[derive(Debug)]
pub(super) enum TicketPlan {
    /// The whole file, unchanged, as one block.
    Whole(DataBlock),
    /// Data blocks of the file, followed by the end-of-file marker of the format.
    Blocks(Vec<DataBlock>, &'static [u8]),
}

#[derive(Debug)]
enum FormatLayout {
    /// The layout of a BGZF file, which can be cut at virtual offsets.
    Bgzf {
        first_record: VirtualOffset,
        /// Virtual offset of the end of the last record.
        end_of_records: VirtualOffset,
        /// Contig ids in the index, by contig name.
        contig_ids: HashMap<String, usize>,
        /// Contigs in the header. A contig without records may be missing in the index, but a request for it is valid.
        header_contigs: HashSet<String>,
        /// True if the file contains reads, which may have no contig.
        are_reads: bool,
        index: FileIndex,
        /// Command that builds an index for the file.
        index_command: &'static str,
    },
    /// The layout of a CRAM file, which can be cut at containers.
    Cram {
        first_container: u64,
        /// Byte offset of the end-of-file container.
        end_of_containers: u64,
        contig_ids: HashMap<String, i32>,
        /// Entries of the CRAM index; `None` if the file has no index.
        entries: Option<Vec<IndexEntry>>,
    },
}

impl FileLayout {
    /// Reads the positions of the header and the records from a file and its index.
    ///
    /// # Errors
    /// Errors of reading the file or its index; [`HtsgetError::UnsupportedFormat`] for a VCF file that is not
    /// compressed with bgzip.
    pub(super) fn open(root: &DatasetRoot, file: &HtsgetFile) -> Result<Self, HtsgetError> {
        let of = file.snapshot.single_file()?;
        let source = root.store().open(of)?;
        let bytes = source.byte_len();
        let (format, format_layout) = match file.format {
            HtsgetFormat::Bam => ("BAM", bam_layout(root.store(), file, source)?),
            HtsgetFormat::Vcf => vcf_layout(root.store(), file, source)?,
            HtsgetFormat::Cram => ("CRAM", cram_layout(root, file, &*source)?),
        };
        Ok(Self { format, version: file.snapshot.version, bytes, format_layout })
    }

    /// Returns the data blocks for a request. `name`: name of the dataset, for error messages.
    ///
    /// # Errors
    /// [`HtsgetError::NotFound`] for an unknown contig, [`HtsgetError::InvalidInput`] if regions are requested and
    /// there is no index.
    pub(super) fn plan_ticket(&self, question: &HtsgetRequest, name: &str) -> Result<TicketPlan, HtsgetError> {
        if question.regions.is_none() && !question.header_only {
            return Ok(TicketPlan::Whole(DataBlock {
                start: 0,
                end: self.bytes,
                has_virtual_offsets: false,
                is_header: false,
            }));
        }
        let (first, has_virtual_offsets, end_of_file) = match &self.format_layout {
            FormatLayout::Bgzf { first_record, .. } => (*first_record, true, &EOF_BLOCK[..]),
            FormatLayout::Cram { first_container, .. } => (*first_container, false, &EOF_CONTAINER[..]),
        };
        let mut parts = vec![DataBlock { start: 0, end: first, has_virtual_offsets, is_header: true }];
        let found =
            question.regions.as_ref().map(|regions| self.find_ranges(regions, name)).transpose()?.unwrap_or_default();
        parts.extend(found.into_iter().map(|(start, end)| DataBlock {
            start,
            end,
            has_virtual_offsets,
            is_header: false,
        }));
        Ok(TicketPlan::Blocks(parts, end_of_file))
    }

    fn find_ranges(&self, regions: &[Region], name: &str) -> Result<Vec<(u64, u64)>, HtsgetError> {
        let no_contig = |wanted: &Region| HtsgetError::NotFound {
            problem: format!("there is no contig {:?} in the header of {name}", wanted.contig),
        };
        let no_index = |command: &str| {
            HtsgetError::invalid_input(format!(
                "{name} has no index, so regions of it cannot be found; request the whole file, or index it with \
                 `{command} {name}`"
            ))
        };
        let mut found = Vec::new();
        match &self.format_layout {
            FormatLayout::Bgzf {
                first_record,
                end_of_records,
                contig_ids,
                header_contigs,
                are_reads,
                index,
                index_command,
            } => {
                let index = index.usable_or_error()?.ok_or_else(|| no_index(index_command))?;
                for wanted in regions {
                    if wanted.contig == UNPLACED_REFERENCE_NAME && *are_reads {
                        found.push((index.end_of_placed_records().unwrap_or(*first_record), *end_of_records));
                    } else if let Some(number) = contig_ids.get(&wanted.contig) {
                        found.extend(index.chunks(*number, wanted.start, wanted.end));
                    } else if !header_contigs.contains(&wanted.contig) {
                        return Err(no_contig(wanted));
                    }
                }
                let within = |(start, behind): (u64, u64)| (start.max(*first_record), behind.min(*end_of_records));
                let found = merge_chunks(found).into_iter().map(within).filter(|(start, behind)| start < behind);
                Ok(found.collect())
            }
            FormatLayout::Cram { end_of_containers, contig_ids: numbers, entries, .. } => {
                let entries = entries.as_ref().ok_or_else(|| no_index("samtools index"))?;
                let offsets: BTreeSet<u64> = entries.iter().map(|entry| entry.container_offset).collect();
                let mut wanted_offsets = BTreeSet::new();
                for wanted in regions {
                    let number = match wanted.contig.as_str() {
                        UNPLACED_REFERENCE_NAME => -1,
                        contig => *numbers.get(contig).ok_or_else(|| no_contig(wanted))?,
                    };
                    let hits = entries.iter().filter(|entry| slice_overlaps_region(entry, number, wanted));
                    wanted_offsets.extend(hits.map(|entry| entry.container_offset));
                }
                let behind = |offset: u64| offsets.range(offset + 1..).next().copied().unwrap_or(*end_of_containers);
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

/// Returns whether a CRAM slice may contain a read that overlaps a region. `number`: contig id of the region, -1 for
/// unplaced reads.
fn slice_overlaps_region(entry: &IndexEntry, number: i32, wanted: &Region) -> bool {
    if entry.contig == MULTI_REFERENCE_ID {
        return true;
    }
    let start = entry.start_1based.saturating_sub(1);
    let end = start.saturating_add(entry.span.max(1));
    entry.contig == number
        && (number < 0 || (wanted.start < wanted.end && start < i64::from(wanted.end) && end > i64::from(wanted.start)))
}

/// Returns the virtual offset of the end of the last record in a BGZF file, which is the start of the end-of-file
/// block.
fn end_of_records(source: &dyn RandomAccess) -> Result<VirtualOffset, HtsgetError> {
    let bytes = source.byte_len();
    if ends_with(source, &EOF_BLOCK)? {
        return Ok((bytes - EOF_BLOCK.len() as u64) << 16);
    }
    let problem = format!("{} is truncated: it has no end-of-file block", source.path().display());
    Err(HtsgetError::CorruptFile { problem })
}

fn ends_with(source: &dyn RandomAccess, ending: &[u8]) -> Result<bool, HtsgetError> {
    let mut last = vec![0; ending.len()];
    let start = source.byte_len().saturating_sub(ending.len() as u64);
    let count = source.read_at(&mut last, start).map_err(dataset_error)?;
    Ok(&last[..count] == ending)
}

fn bam_layout(
    store: &FileStore,
    file: &HtsgetFile,
    source: Arc<dyn RandomAccess>,
) -> Result<FormatLayout, HtsgetError> {
    let bam = BamFile::open(source.clone()).map_err(dataset_error)?;
    let names = bam.genome().contigs().iter().map(|contig| contig.name.clone());
    let index_command = "samtools index";
    Ok(FormatLayout::Bgzf {
        first_record: bam.first_record_offset(),
        end_of_records: end_of_records(&*source)?,
        contig_ids: names.zip(0..).collect(),
        header_contigs: HashSet::new(),
        are_reads: true,
        index: FileIndex::read_beside(store, &file.snapshot, index_command)?,
        index_command,
    })
}

fn vcf_layout(
    store: &FileStore,
    file: &HtsgetFile,
    source: Arc<dyn RandomAccess>,
) -> Result<(&'static str, FormatLayout), HtsgetError> {
    let vcf = match VcfFile::open(source.clone()) {
        Ok(vcf) => vcf,
        Err(VcfError::Bgzf(BgzfError::NotBgzf { .. })) => {
            let problem = format!("{} is not compressed with bgzip, which htsget requires", file.name);
            return Err(HtsgetError::UnsupportedFormat { problem });
        }
        Err(error) => return Err(dataset_error(error).into()),
    };
    let of_file = vcf.contig_ids();
    let (format, index_command) =
        if of_file.is_some() { ("BCF", "bcftools index") } else { ("VCF", "bcftools index -t") };
    let index = FileIndex::read_beside(store, &file.snapshot, index_command)?;
    let of_index = || index.usable().and_then(|index| index.contig_names()).unwrap_or_default();
    let contig_ids: HashMap<String, usize> = match of_file {
        Some(numbers) => numbers.into_iter().map(|(name, number)| (name, number as usize)).collect(),
        None => of_index().iter().cloned().zip(0..).collect(),
    };
    let header_contigs = vcf.header().contigs().iter().map(|contig| contig.name.clone()).collect();
    let (first_record, end_of_records) = (vcf.first_record_offset(), end_of_records(&*source)?);
    Ok((
        format,
        FormatLayout::Bgzf {
            first_record,
            end_of_records,
            contig_ids,
            header_contigs,
            are_reads: false,
            index,
            index_command,
        },
    ))
}

fn cram_layout(root: &DatasetRoot, file: &HtsgetFile, source: &dyn RandomAccess) -> Result<FormatLayout, HtsgetError> {
    if !ends_with(source, &EOF_CONTAINER)? {
        let problem = format!("{} is not CRAM version 3, or is truncated", file.name);
        return Err(HtsgetError::UnsupportedFormat { problem });
    }
    let end_of_containers = source.byte_len() - EOF_CONTAINER.len() as u64;
    // Open the file as a dataset to get its header: CRAM is decoded by a separate process.
    let schema = root.open(&file.name)?.schema();
    let header = schema.metadata().get(alignment_columns::HEADER_KEY).map(String::as_str).unwrap_or_default();
    let contigs = header.lines().filter(|line| line.starts_with("@SQ\t"));
    let names = contigs.filter_map(|line| line.split('\t').find_map(|field| field.strip_prefix("SN:")));
    let contig_ids = names.map(str::to_owned).zip(0..).collect();
    let entries = match &file.snapshot.index {
        Some(index) => Some(read_crai(root.store(), file.snapshot.single_file()?, index, end_of_containers)?),
        None => None,
    };
    let first_container = match &entries {
        Some(entries) => entries.iter().map(|entry| entry.container_offset).min().unwrap_or(end_of_containers),
        None => cram_header_end(source)?,
    };
    Ok(FormatLayout::Cram { first_container, end_of_containers, contig_ids, entries })
}

fn read_crai(
    store: &FileStore,
    of: &FileSnapshot,
    index: &FileSnapshot,
    end: u64,
) -> Result<Vec<IndexEntry>, HtsgetError> {
    let unusable = |problem: String| {
        let problem = format!("{problem} build it again with `samtools index {}`", of.path.display());
        HtsgetError::from(DatasetError::InvalidRequest { problem })
    };
    if let Some(problem) = staleness_problem(of, index) {
        return Err(unusable(problem));
    }
    let path = index.path.display();
    if index.bytes > MAX_INDEX_BYTES {
        return Err(unusable(format!("{path} is too large for an index;")));
    }
    let mut bytes = vec![0; index.bytes as usize];
    let count = store.open(index)?.read_at(&mut bytes, 0).map_err(dataset_error)?;
    let entries = IndexEntry::read_all(&bytes[..count]).map_err(|error| unusable(format!("{path}: {error};")))?;
    if entries.iter().any(|entry| entry.container_offset >= end) {
        return Err(unusable(format!("{path} refers to offsets after the end of its file;")));
    }
    Ok(entries)
}

/// Returns the byte offset of the end of the header container, which is the first container after the file definition.
/// A container header begins with the total length of the blocks in the container (CRAMv3 §6 and §7).
fn cram_header_end(source: &dyn RandomAccess) -> Result<u64, HtsgetError> {
    let mut bytes = [0; FILE_DEFINITION_BYTES + MAX_CONTAINER_HEADER_BYTES];
    let count = source.read_at(&mut bytes, 0).map_err(dataset_error)?;
    let head = container_header_lengths(bytes[..count].get(FILE_DEFINITION_BYTES..).unwrap_or_default());
    let (blocks, head_bytes) = head.ok_or_else(|| HtsgetError::CorruptFile {
        problem: format!("{} has no header container", source.path().display()),
    })?;
    Ok(FILE_DEFINITION_BYTES as u64 + head_bytes as u64 + u64::from(blocks))
}

/// Length of the file definition in bytes: magic, version and file id (CRAMv3 §6).
const FILE_DEFINITION_BYTES: usize = 26;
/// Maximum length in bytes of a container header with at most 16 landmarks. A header container has two landmarks.
const MAX_CONTAINER_HEADER_BYTES: usize = 4 + 5 * 4 + 9 * 2 + 5 * 2 + 5 * 16 + 4;

/// Returns the total length of the blocks of a container, and the length of its header, both in bytes.
fn container_header_lengths(head: &[u8]) -> Option<(u32, usize)> {
    let (length, mut rest) = head.split_first_chunk()?;
    // Skip the contig, start, span, number of records, record counter, number of bases and number of blocks.
    for width in [itf8_length, itf8_length, itf8_length, itf8_length, ltf8_length, ltf8_length, itf8_length] {
        rest = rest.get(width(*rest.first()?)..)?;
    }
    let first = *rest.first()?;
    // A number of landmarks below 128 has one byte in ITF-8.
    let landmarks = if first < 0x80 { first } else { return None };
    rest = &rest[1..];
    for _ in 0..landmarks {
        rest = rest.get(itf8_length(*rest.first()?)..)?;
    }
    rest = rest.get(4..)?;
    Some((u32::from_le_bytes(*length), head.len() - rest.len()))
}

/// Returns the number of bytes of an ITF-8 integer, which its first byte determines (CRAMv3 §2.3).
fn itf8_length(first: u8) -> usize {
    (first.leading_ones() as usize).min(4) + 1
}

/// Returns the number of bytes of an LTF-8 integer, which its first byte determines.
fn ltf8_length(first: u8) -> usize {
    first.leading_ones() as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_headers_are_measured() {
        // The end-of-file container has blocks of 15 bytes. Its contig -1 has five bytes, and its start 4542278 has
        // four bytes.
        assert_eq!(container_header_lengths(&EOF_CONTAINER), Some((15, EOF_CONTAINER.len() - 15)));
        for cut in 0..EOF_CONTAINER.len() - 15 {
            assert_eq!(container_header_lengths(&EOF_CONTAINER[..cut]), None);
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
        // A slice that covers the 0-based positions 100 to 199.
        let slice = entry(3, 101, 100);
        for (start, end, held) in
            [(0, 100, false), (0, 101, true), (199, 200, true), (200, 300, false), (150, 150, false)]
        {
            assert_eq!(slice_overlaps_region(&slice, 3, &region(start, end)), held, "{start} {end}");
        }
        assert!(
            !slice_overlaps_region(&slice, 2, &region(0, u32::MAX))
                && !slice_overlaps_region(&slice, -1, &region(0, u32::MAX))
        );
        assert!(slice_overlaps_region(&entry(-1, 0, 1), -1, &region(0, u32::MAX)));
        assert!(slice_overlaps_region(&entry(MULTI_REFERENCE_ID, 1, 1), 7, &region(5000, 6000)));
        assert!(slice_overlaps_region(&entry(3, 101, 0), 3, &region(100, 101)));
    }
}
