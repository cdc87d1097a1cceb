//! Checks of the aligner indexes of a reference.

use std::path::Path;

use godwit_align::{IndexNeed, current_index, format_bytes};
use godwit_engines::aligner::bwa::{self, IndexKind, fm_index};
use godwit_engines::aligner::minimap2::{self, Minimap2};
use godwit_model::ErrorKind;
use godwit_model::message_with_causes;
use godwit_pipeline::PipelineError;

use super::{Area, Finding, FindingState};

/// Checks whether the indexes of a reference match the reference. The findings always include the index of bwa, and
/// other indexes if they exist. If one index matches, the problems of the others are only warnings, because alignment
/// needs a single index.
pub fn indexes(reference: &Path) -> Vec<Finding> {
    let kinds = [IndexKind::Bwa, IndexKind::BwaMem3];
    let mut findings: Vec<Finding> = kinds.into_iter().filter_map(|kind| bwa_index(reference, kind)).collect();
    findings.extend(minimap2_index(reference));
    if findings.iter().any(|finding| finding.state == FindingState::Fine) {
        for finding in &mut findings {
            finding.state = finding.state.min(FindingState::Warning);
        }
    }
    findings
}

fn bwa_index(reference: &Path, kind: IndexKind) -> Option<Finding> {
    let name = bwa::library_name(kind);
    let what = format!("{name} index");
    match current_index(reference, kind) {
        Ok(genome) => {
            let shown = reference.display();
            let (contigs, loading) = (genome.contigs().len(), load_cost(reference, kind));
            Some(Finding::new(
                Area::Index,
                what,
                FindingState::Fine,
                format!("{shown}: current, {contigs} contigs{loading}"),
            ))
        }
        Err(PipelineError::Missing { .. }) if kind != IndexKind::Bwa => None,
        Err(error) => {
            let mut found = message_with_causes(&error);
            let remedy = match &error {
                PipelineError::StaleIndex { .. } => {
                    format!("run `godwit index {}`", reference.display())
                }
                PipelineError::Missing { description, path, remedy } => {
                    found = format!("{description} {} is missing", path.display());
                    remedy.clone()
                }
                other if other.kind() == ErrorKind::Input => "correct the reference".into(),
                _ => "check the path and its permissions".into(),
            };
            Some(Finding::new(Area::Index, what, FindingState::Missing, found).with_remedy(remedy))
        }
    }
}

/// Describes the memory and the time for loading an index, and for bwa-mem3 also the stride of its suffix array
/// samples.
fn load_cost(reference: &Path, kind: IndexKind) -> String {
    let need = IndexNeed::measure(&bwa::loaded_files(reference, kind));
    let stride = match kind {
        IndexKind::BwaMem3 => fm_index::sample_stride(reference).ok().flatten(),
        IndexKind::Bwa => None,
    };
    let stride = stride.map_or(String::new(), |stride| format!(", a sample of the suffix array every {stride} rows"));
    let seconds = need.load_seconds.map_or(String::new(), |seconds| format!(", read in {seconds:.1} s"));
    format!("{stride}; {} in memory{seconds}", format_bytes(need.resident_bytes))
}

/// Checks the minimap2 index, if there is one. An index of minimap2 is valid for one preset only. The check expects the
/// preset for short reads, and reports any other preset as a note.
fn minimap2_index(reference: &Path) -> Option<Finding> {
    if !Minimap2::index_path(reference).is_file() {
        return None;
    }
    let what = format!("{} index", minimap2::PROGRAM);
    Some(match Minimap2::find_installed(&[]).and_then(|minimap2| minimap2.check_index(reference)) {
        Ok(genome) => {
            let contigs = genome.contigs().len();
            Finding::new(
                Area::Index,
                what,
                FindingState::Fine,
                format!("{}: current for short reads, {contigs} contigs", reference.display()),
            )
        }
        Err(error) => Finding::new(Area::Index, what, FindingState::Note, message_with_causes(&error)),
    })
}
