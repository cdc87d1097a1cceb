//! Tags that duplicate marking adds to records: `DT`, `DI`, `DS` and, if requested, a tag with the identifier of the
//! molecule.

use godwit_kernels::markdup::{DuplicateSet, MoleculeStrand, molecule_strand};
use godwit_model::{ContigId, Genome, RawRecord, flags};

use crate::marking::{MarkingOptions, TaggingPolicy};

/// The result of duplicate marking for one record.
#[derive(Clone, Copy, Default)]
pub(super) struct DuplicateStatus<'s> {
    pub(super) duplicate: bool,
    pub(super) optical: bool,
    pub(super) set: Option<&'s DuplicateSet>,
}

/// A writer of the tags, whose record buffer is reused.
pub(super) struct Annotator<'g> {
    options: MarkingOptions,
    genome: &'g Genome,
    record: Vec<u8>,
}

impl<'g> Annotator<'g> {
    /// Returns an annotator, or `None` if the options request no tag.
    pub(super) fn new(options: MarkingOptions, genome: &'g Genome) -> Option<Self> {
        let any = options.tagging != TaggingPolicy::None || options.tag_set_members || options.molecule_tag.is_some();
        any.then(|| Self { options, genome, record: Vec::new() })
    }

    /// Returns the record with the new tags. Existing tags with the same names are removed.
    pub(super) fn annotate(&mut self, record: RawRecord, judgement: DuplicateStatus) -> RawRecord<'_> {
        let set = judgement.set.filter(|_| record.flag() & (flags::UNMAPPED | flags::NOT_PRIMARY) == 0);
        let tagging = self.options.tagging != TaggingPolicy::None;
        let replaced = |name: [u8; 2]| {
            name == *b"DT" && tagging
                || (name == *b"DI" || name == *b"DS") && set.is_some()
                || Some(name) == self.options.molecule_tag
        };
        let bytes = record.bytes();
        self.record.clear();
        let mut kept = 0;
        for tag in record.iter_tags().filter(|tag| replaced(tag.name)) {
            self.record.extend_from_slice(&bytes[kept..tag.start]);
            kept = tag.end;
        }
        self.record.extend_from_slice(&bytes[kept..]);
        match self.options.tagging {
            TaggingPolicy::None => {}
            _ if judgement.duplicate && judgement.optical => self.record.extend_from_slice(b"DTZSQ\0"),
            TaggingPolicy::All if judgement.duplicate => self.record.extend_from_slice(b"DTZLB\0"),
            _ => {}
        }
        if let Some(set) = set {
            push_integer(&mut self.record, *b"DI", i64::from(set.index));
            push_integer(&mut self.record, *b"DS", i64::from(set.pairs));
        }
        if let Some(tag) = self.options.molecule_tag {
            let text = self.molecule(record);
            self.record.extend_from_slice(&tag);
            self.record.push(b'Z');
            self.record.extend_from_slice(text.as_bytes());
            self.record.push(0);
        }
        RawRecord::from_trusted_bytes(&self.record)
    }

    /// Returns Picard's identifier of a molecule (`UmiUtil.setMolecularIdentifier`): contig, 1-based position of the
    /// record if it is reverse or else of its mate, and the strand for duplex barcodes if it is known.
    fn molecule(&self, record: RawRecord) -> String {
        let mapped = record.flag() & flags::UNMAPPED == 0;
        let id = u32::try_from(record.contig()).ok().filter(|_| mapped);
        // Picard prints these words instead of the contig name: `null` for an unmapped record, `*` for a mapped record
        // without a contig.
        let none = if mapped { "*" } else { "null" };
        let contig = id.and_then(|id| self.genome.contig(ContigId(id))).map_or(none, |contig| contig.name.as_str());
        let reverse = record.flag() & flags::REVERSE != 0;
        let position = if reverse { record.position() } else { record.mate_position() };
        let strand = if self.options.barcodes.duplex { molecule_strand(record).unwrap_or(None) } else { None };
        let suffix = match strand {
            Some(MoleculeStrand::Top) => "/A",
            Some(MoleculeStrand::Bottom) => "/B",
            None => "",
        };
        format!("{contig}:{}/{suffix}", i64::from(position) + 1)
    }
}

/// Appends an integer tag in the smallest type that can represent the value. As in htsjdk, a signed type precedes the
/// unsigned type of the same size.
fn push_integer(record: &mut Vec<u8>, name: [u8; 2], value: i64) {
    record.extend_from_slice(&name);
    let bytes = value.to_le_bytes();
    let (kind, count) = if i8::try_from(value).is_ok() {
        (b'c', 1)
    } else if u8::try_from(value).is_ok() {
        (b'C', 1)
    } else if i16::try_from(value).is_ok() {
        (b's', 2)
    } else if u16::try_from(value).is_ok() {
        (b'S', 2)
    } else if i32::try_from(value).is_ok() {
        (b'i', 4)
    } else {
        (b'I', 4)
    };
    record.push(kind);
    record.extend_from_slice(&bytes[..count]);
}
