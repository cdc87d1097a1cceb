//! The indexes of a reference.

use std::path::Path;

use godwit_engines::aligner::bwa::{self, IndexKind, fm_index};
use godwit_engines::aligner::minimap2::{self, Minimap2};
use godwit_formats::with_causes;
use godwit_pipeline::{Blame, IndexNeed, PipelineError, current_index, show_bytes};

use super::{Area, Finding, State};

/// Whether the indexes of a reference belong to it. That of bwa is told of in any case, those of others where they are
/// there. Nothing can be aligned where none belongs.
pub fn indexes(reference: &Path) -> Vec<Finding> {
    let kinds = [IndexKind::Bwa, IndexKind::BwaMem3];
    let mut findings: Vec<Finding> = kinds.into_iter().filter_map(|kind| own(reference, kind)).collect();
    findings.extend(of_minimap2(reference));
    if findings.iter().any(|finding| finding.state == State::Fine) {
        for finding in &mut findings {
            finding.state = finding.state.min(State::Warning);
        }
    }
    findings
}

fn own(reference: &Path, kind: IndexKind) -> Option<Finding> {
    let name = bwa::library_name(kind);
    let what = format!("{name} index");
    match current_index(reference, kind) {
        Ok(genome) => {
            let shown = reference.display();
            let (contigs, loading) = (genome.contigs().len(), loading(reference, kind));
            Some(Finding::new(Area::Index, what, State::Fine, format!("{shown}: current, {contigs} contigs{loading}")))
        }
        Err(PipelineError::Missing { .. }) if kind != IndexKind::Bwa => None,
        Err(error) => {
            let mut found = with_causes(&error);
            let remedy = match &error {
                PipelineError::StaleIndex { .. } => {
                    format!("run `godwit index {}`", reference.display())
                }
                PipelineError::Missing { what, path, remedy } => {
                    found = format!("{what} {} is missing", path.display());
                    remedy.clone()
                }
                other if other.blame() == Blame::Input => "mend the reference".into(),
                _ => "check the path and its permissions".into(),
            };
            Some(Finding::new(Area::Index, what, State::Missing, found).remedy(remedy))
        }
    }
}

/// Describes memory and time that loading the index takes. Only bwa-mem3 stores samples of the suffix array at several strides.
fn loading(reference: &Path, kind: IndexKind) -> String {
    let need = IndexNeed::measured(&bwa::loaded_files(reference, kind));
    let stride = match kind {
        IndexKind::BwaMem3 => fm_index::sample_stride(reference).ok().flatten(),
        IndexKind::Bwa => None,
    };
    let stride = stride.map_or(String::new(), |stride| format!(", a sample of the suffix array every {stride} rows"));
    let seconds = need.load_seconds.map_or(String::new(), |seconds| format!(", read in {seconds:.1} s"));
    format!("{stride}; {} in memory{seconds}", show_bytes(need.resident_bytes))
}

/// minimap2 has an index for each of its presets. Which of them is meant is not known here: that of short reads is looked
/// for, and another is good to know.
fn of_minimap2(reference: &Path) -> Option<Finding> {
    if !Minimap2::index_path(reference).is_file() {
        return None;
    }
    let what = format!("{} index", minimap2::PROGRAM);
    Some(match Minimap2::find(&[]).and_then(|minimap2| minimap2.check_index(reference)) {
        Ok(genome) => {
            let contigs = genome.contigs().len();
            Finding::new(
                Area::Index,
                what,
                State::Fine,
                format!("{}: current for short reads, {contigs} contigs", reference.display()),
            )
        }
        Err(error) => Finding::new(Area::Index, what, State::Note, with_causes(&error)),
    })
}
