//! Compares the output of `godwit demo` with the truth of the simulation: the origins of the reads, and the duplicates.

use std::collections::HashMap;
use std::path::Path;

use godwit_formats::bam;
use godwit_model::message_with_causes;
use godwit_model::{Genome, RawRecord, flags};

/// Maximum distance, in bases, between the aligned and the simulated start of a template that counts as correctly
/// placed. Indels and clips shift the first aligned base.
const POSITION_TOLERANCE_BASES: u32 = 20;
/// Minimum mapping quality (MAPQ) of an alignment that counts as high quality.
const HIGH_MAPPING_QUALITY: u8 = 30;
/// Number of bytes of records that are read at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// Numbers of templates by the result of the comparison.
#[derive(Debug, Default)]
pub struct TruthComparison {
    /// Simulated templates that are neither chimeric nor junk.
    pub ordinary: u64,
    /// Ordinary templates that are aligned at their origin.
    pub correctly_placed: u64,
    /// Ordinary templates of which at least one mate has a high mapping quality.
    pub high_quality: u64,
    /// Ordinary templates with a high mapping quality that are aligned at their origin.
    pub correctly_placed_high_quality: u64,
    /// Simulated duplicates: for each molecule, the number of its templates minus 1.
    pub duplicates: u64,
    /// Templates that were marked as duplicates, for each molecule at most the number of its duplicates.
    pub duplicates_marked: u64,
    /// Templates that were marked as duplicates beyond the number of duplicates of their molecule.
    pub wrongly_marked: u64,
}

/// The alignment of a template in the output of godwit.
#[derive(Default)]
struct TemplateAlignment {
    /// Contig and 0-based position of the leftmost primary record; `None` if no mate is mapped.
    leftmost: Option<(i32, i32)>,
    is_high_quality: bool,
    is_duplicate: bool,
}

/// Compares a BAM file with the table of simulated templates (`PREFIX.truth.tsv`).
pub fn compare_with_truth(bam_path: &Path, table: &Path) -> Result<TruthComparison, String> {
    let mut reader = bam::Reader::open(bam_path, 2).map_err(|error| message_with_causes(&error))?;
    let genome = reader.genome().clone();
    let mut seen: HashMap<Vec<u8>, TemplateAlignment> = HashMap::new();
    let mut chunk = bam::RecordBuffer::default();
    while reader.read_records(&mut chunk, CHUNK_BYTES).map_err(|error| message_with_causes(&error))? {
        chunk.records().map(RawRecord::from_trusted_bytes).for_each(|record| add_record(&mut seen, record));
    }
    let table = std::fs::read_to_string(table).map_err(|error| format!("cannot read {}: {error}", table.display()))?;
    Ok(count_templates(&seen, &table, &genome))
}

fn add_record(seen: &mut HashMap<Vec<u8>, TemplateAlignment>, record: RawRecord) {
    if record.flag() & (flags::NOT_PRIMARY | flags::UNMAPPED) != 0 {
        return;
    }
    let template = seen.entry(record.name().to_vec()).or_default();
    let place = (record.contig(), record.position());
    template.leftmost = Some(template.leftmost.map_or(place, |other| other.min(place)));
    template.is_high_quality |= record.mapping_quality() >= HIGH_MAPPING_QUALITY;
    template.is_duplicate |= record.flag() & flags::DUPLICATE != 0;
}

fn count_templates(seen: &HashMap<Vec<u8>, TemplateAlignment>, table: &str, genome: &Genome) -> TruthComparison {
    let mut counts = TruthComparison::default();
    let mut molecules: HashMap<&str, (u64, u64)> = HashMap::new();
    let nothing = TemplateAlignment::default();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, contig, position_1based, _, first, kind] = fields[..] else { continue };
        let template = seen.get(name.as_bytes()).unwrap_or(&nothing);
        let molecule = molecules.entry(first).or_default();
        molecule.0 += 1;
        molecule.1 += u64::from(template.is_duplicate);
        if kind == "ordinary" {
            let start = position_1based.parse::<u32>().unwrap_or(0).saturating_sub(1);
            let right = template.leftmost.is_some_and(|(seen_contig, seen_start)| {
                genome.contig_id(contig).is_some_and(|id| id.0 as i32 == seen_contig)
                    && seen_start.abs_diff(start as i32) <= POSITION_TOLERANCE_BASES
            });
            counts.ordinary += 1;
            counts.correctly_placed += u64::from(right);
            counts.high_quality += u64::from(template.is_high_quality);
            counts.correctly_placed_high_quality += u64::from(right && template.is_high_quality);
        }
    }
    for (templates, marked) in molecules.into_values() {
        counts.duplicates += templates - 1;
        counts.duplicates_marked += marked.min(templates - 1);
        counts.wrongly_marked += marked.saturating_sub(templates - 1);
    }
    counts
}
