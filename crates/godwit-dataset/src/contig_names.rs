//! The contigs that regions of a dataset may name, and suggestions for names that do not exist.

use godwit_model::{Region, RegionError};

use crate::dataset::{Dataset, DatasetKind, contig_names};

/// Returns whether a dataset has the contig that a region names, for [`Region::parse`]. Datasets of reads also have
/// unplaced reads ([`Region::UNPLACED`]).
pub fn has_region_contig(dataset: &dyn Dataset, name: &str) -> Option<bool> {
    match name {
        Region::UNPLACED => Some(dataset.kind() == DatasetKind::Reads),
        name => dataset.has_contig(name),
    }
}

/// Returns the message of a region error of a dataset. If the dataset has the contig under the name of another naming
/// scheme, the message names it.
pub fn region_error_message(error: &RegionError, dataset: &dyn Dataset) -> String {
    let suggestion = match error {
        RegionError::UnknownContig { contig, .. } => suggest_contig(contig, contig_names(&dataset.schema())),
        _ => String::new(),
    };
    format!("{error}{suggestion}")
}

/// Returns `; did you mean X?` if one of the known contigs has the same name in another naming scheme, else an empty
/// text.
///
/// # Examples
///
/// ```
/// use godwit_dataset::suggest_contig;
///
/// assert_eq!(suggest_contig("20", ["chr19", "chr20"]), "; did you mean chr20?");
/// assert_eq!(suggest_contig("chrM", ["1", "MT"]), "; did you mean MT?");
/// assert_eq!(suggest_contig("chr9", ["chr19", "chr20"]), "");
/// ```
pub fn suggest_contig<'c>(contig: &str, known: impl IntoIterator<Item = &'c str>) -> String {
    let wanted = common_name(contig);
    let found = known.into_iter().find(|name| common_name(name) == wanted);
    found.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// Returns what the names of a contig have in common in the schemes of UCSC (`chr1`, `chrM`) and Ensembl (`1`, `MT`).
fn common_name(contig: &str) -> String {
    let lower = contig.to_ascii_lowercase();
    match lower.strip_prefix("chr").unwrap_or(&lower) {
        "m" => "mt".to_owned(),
        name => name.to_owned(),
    }
}
