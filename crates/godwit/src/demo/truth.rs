//! The output against the places and duplicates that were simulated.

use std::collections::HashMap;
use std::path::Path;

use godwit_formats::bam;
use godwit_pipeline::model::{Genome, RawRecord, flags};

use godwit_formats::with_causes;

/// Bases a template may be off its place: indels and clips move the first base.
const PLACE_TOLERANCE: u32 = 20;
/// MAPQ from which a placement counts as sure.
const SURE_MAPPING_QUALITY: u8 = 30;
/// Bytes of records read at a time.
const CHUNK_BYTES: usize = 4 << 20;

/// Counts of templates.
#[derive(Debug, Default)]
pub struct TruthComparison {
    /// Templates that are neither chimeric nor junk.
    pub ordinary: u64,
    /// Of those, placed where they came from.
    pub placed: u64,
    /// Ordinary templates of which one mate has a high mapping quality.
    pub sure: u64,
    /// Of those, placed where they came from.
    pub placed_sure: u64,
    /// Templates beyond the first of their molecule.
    pub duplicates: u64,
    /// Of those, as many as were marked, set by set.
    pub duplicates_marked: u64,
    /// Templates marked beyond all but one of their molecule's.
    pub marked_wrongly: u64,
}

/// What the output says of a template.
#[derive(Default)]
struct Seen {
    /// Contig and 0-based leftmost position of its primary records.
    leftmost: Option<(i32, i32)>,
    sure: bool,
    duplicate: bool,
}

/// Reads the output and the table of templates.
pub fn compare_with_truth(bam_path: &Path, table: &Path) -> Result<TruthComparison, String> {
    let mut reader = bam::Reader::open(bam_path, 2).map_err(|error| with_causes(&error))?;
    let genome = reader.genome().clone();
    let mut seen: HashMap<Vec<u8>, Seen> = HashMap::new();
    let mut chunk = bam::RecordChunk::default();
    while reader.read_chunk(&mut chunk, CHUNK_BYTES).map_err(|error| with_causes(&error))? {
        chunk.records().map(RawRecord::trusted).for_each(|record| see(&mut seen, record));
    }
    let table = std::fs::read_to_string(table).map_err(|error| format!("cannot read {}: {error}", table.display()))?;
    Ok(compare(&seen, &table, &genome))
}

fn see(seen: &mut HashMap<Vec<u8>, Seen>, record: RawRecord) {
    if record.flag() & (flags::NOT_PRIMARY | flags::UNMAPPED) != 0 {
        return;
    }
    let template = seen.entry(record.name().to_vec()).or_default();
    let place = (record.contig(), record.position());
    template.leftmost = Some(template.leftmost.map_or(place, |other| other.min(place)));
    template.sure |= record.mapping_quality() >= SURE_MAPPING_QUALITY;
    template.duplicate |= record.flag() & flags::DUPLICATE != 0;
}

fn compare(seen: &HashMap<Vec<u8>, Seen>, table: &str, genome: &Genome) -> TruthComparison {
    let mut counts = TruthComparison::default();
    let mut molecules: HashMap<&str, (u64, u64)> = HashMap::new();
    let nothing = Seen::default();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, contig, position_1based, _, first, kind] = fields[..] else { continue };
        let template = seen.get(name.as_bytes()).unwrap_or(&nothing);
        let molecule = molecules.entry(first).or_default();
        molecule.0 += 1;
        molecule.1 += u64::from(template.duplicate);
        if kind == "ordinary" {
            let start = position_1based.parse::<u32>().unwrap_or(0).saturating_sub(1);
            let right = template.leftmost.is_some_and(|(seen_contig, seen_start)| {
                genome.find(contig).is_some_and(|id| id.0 as i32 == seen_contig)
                    && seen_start.abs_diff(start as i32) <= PLACE_TOLERANCE
            });
            counts.ordinary += 1;
            counts.placed += u64::from(right);
            counts.sure += u64::from(template.sure);
            counts.placed_sure += u64::from(right && template.sure);
        }
    }
    for (templates, marked) in molecules.into_values() {
        counts.duplicates += templates - 1;
        counts.duplicates_marked += marked.min(templates - 1);
        counts.marked_wrongly += marked.saturating_sub(templates - 1);
    }
    counts
}
