//! Filters called variants with GATK: by variant quality score recalibration (VQSR), or by hard filters if there are
//! too few variants for its training.
//!
//! The annotations, thresholds and sensitivity follow GATK's documentation ("Filter variants either with VQSR or by
//! hard-filtering", 2024). Its thresholds for indels apply to all records that are not SNPs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::gatk::GatkToolkit;
use crate::{EngineError, ProcessPipeline};

/// Name of each hard filter, and a JEXL expression that is true for the records that fail the filter.
pub const HARD_FILTERS: [(&str, &str); 9] = [
    ("QD2", "QD < 2.0"),
    ("QUAL30", "QUAL < 30.0"),
    ("SOR3", "vc.isSNP() && SOR > 3.0"),
    ("FS60", "vc.isSNP() && FS > 60.0"),
    ("MQ40", "vc.isSNP() && MQ < 40.0"),
    ("MQRankSum-12.5", "vc.isSNP() && MQRankSum < -12.5"),
    ("ReadPosRankSum-8", "vc.isSNP() && ReadPosRankSum < -8.0"),
    ("FS200", "!vc.isSNP() && FS > 200.0"),
    ("ReadPosRankSum-20", "!vc.isSNP() && ReadPosRankSum < -20.0"),
];
/// Percentage of the true variants in the training resources that must pass the filter.
const TRUTH_SENSITIVITY_PERCENT: &str = "99.7";
/// Truth sensitivity percentages for which VariantRecalibrator reports a tranche.
const TRANCHES_PERCENT: [&str; 7] = ["100.0", "99.95", "99.9", "99.7", "99.0", "97.0", "90.0"];

/// A VCF file of known variants, on which VQSR trains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingResource {
    /// Name and properties of the resource in GATK's syntax, such as
    /// `hapmap,known=false,training=true,truth=true,prior=15.0`.
    pub tags: String,
    /// Path of the VCF file, with its index beside it.
    pub path: PathBuf,
}

impl FromStr for TrainingResource {
    type Err = EngineError;

    /// Parses the form `TAGS:FILE`.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        let wrong = |problem: &str| EngineError::Arguments {
            message: format!(
                "{text:?} {problem}; write a resource as \
                 'hapmap,known=false,training=true,truth=true,prior=15.0:hapmap.vcf.gz'"
            ),
        };
        let (tags, path) = text.split_once(':').ok_or_else(|| wrong("has no :"))?;
        let mut words = tags.split(',');
        let name = words.next().unwrap_or_default();
        if name.is_empty() || name.contains('=') || path.is_empty() {
            return Err(wrong("does not begin with a name or does not end with a file"));
        }
        for word in words {
            let is_known = match word.split_once('=') {
                Some(("known" | "training" | "truth", value)) => matches!(value, "true" | "false"),
                Some(("prior", value)) => value.parse::<f64>().is_ok_and(f64::is_finite),
                _ => false,
            };
            if !is_known {
                return Err(wrong(&format!("has {word:?}, which is not one of known, training, truth and prior")));
            }
        }
        Ok(Self { tags: tags.to_owned(), path: path.into() })
    }
}

/// The two kinds of variants for which VQSR trains separate models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariantKind {
    /// Single-base variants.
    Snp,
    /// All variants that are not single-base variants.
    Indel,
}

impl VariantKind {
    /// Returns the name of the kind, as used in file names and in GATK's options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snp => "SNP",
            Self::Indel => "INDEL",
        }
    }

    fn annotations(self) -> &'static [&'static str] {
        match self {
            Self::Snp => &["QD", "MQRankSum", "ReadPosRankSum", "FS", "MQ", "SOR", "DP"],
            Self::Indel => &["FS", "ReadPosRankSum", "MQRankSum", "QD", "SOR", "DP"],
        }
    }

    fn max_gaussians(self) -> &'static str {
        match self {
            Self::Snp => "6",
            Self::Indel => "4",
        }
    }
}

/// The inputs and limits for one start of a filter tool.
#[derive(Clone, Copy, Debug)]
pub struct FilterInvocation<'a> {
    /// Path of the reference, with its `.fai` and `.dict` beside it.
    pub reference: &'a Path,
    /// Path of a private directory for recalibration tables and temporary files.
    pub directory: &'a Path,
    /// Memory limit of the GATK process, bytes.
    pub memory_bytes: u64,
}

impl FilterInvocation<'_> {
    fn tool_command(&self, toolkit: &GatkToolkit, tool: &str, variants: &Path) -> Command {
        let mut command = toolkit.tool_command(tool, self.memory_bytes, self.directory);
        command.arg("-R").arg(self.reference).arg("-V").arg(variants);
        command
    }

    fn table_path(&self, kind: VariantKind, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", kind.name()))
    }
}

/// Starts VariantFiltration with the hard filters.
///
/// # Errors
/// [`EngineError::Io`] if Java does not start.
pub fn start_hard_filtering(
    toolkit: &GatkToolkit,
    work: &FilterInvocation,
    variants: &Path,
    out: &Path,
) -> Result<ProcessPipeline, EngineError> {
    let mut command = work.tool_command(toolkit, "VariantFiltration", variants);
    for (name, expression) in HARD_FILTERS {
        command.args(["--filter-expression", expression, "--filter-name", name]);
    }
    command.arg("-O").arg(out);
    toolkit.start_tool(command)
}

/// Starts VariantRecalibrator, which trains the VQSR model for one kind of variants.
///
/// # Errors
/// [`EngineError::Io`] if Java does not start.
pub fn start_variant_recalibrator(
    toolkit: &GatkToolkit,
    work: &FilterInvocation,
    kind: VariantKind,
    variants: &Path,
    resources: &[TrainingResource],
) -> Result<ProcessPipeline, EngineError> {
    let mut command = work.tool_command(toolkit, "VariantRecalibrator", variants);
    command.args(["-mode", kind.name(), "--max-gaussians", kind.max_gaussians(), "--trust-all-polymorphic"]);
    command.args(TRANCHES_PERCENT.iter().flat_map(|tranche| ["-tranche", tranche]));
    command.args(kind.annotations().iter().flat_map(|annotation| ["-an", annotation]));
    for resource in resources {
        command.arg(format!("--resource:{}", resource.tags)).arg(&resource.path);
    }
    command
        .arg("--tranches-file")
        .arg(work.table_path(kind, "tranches"))
        .arg("-O")
        .arg(work.table_path(kind, "recal.vcf"));
    toolkit.start_tool(command)
}

/// Starts ApplyVQSR, which filters one kind of variants with its VQSR model. Other variants stay unchanged.
///
/// # Errors
/// [`EngineError::Io`] if Java does not start.
pub fn start_apply_vqsr(
    toolkit: &GatkToolkit,
    work: &FilterInvocation,
    kind: VariantKind,
    variants: &Path,
    out: &Path,
) -> Result<ProcessPipeline, EngineError> {
    let mut command = work.tool_command(toolkit, "ApplyVQSR", variants);
    command.args(["-mode", kind.name(), "--truth-sensitivity-filter-level", TRUTH_SENSITIVITY_PERCENT]);
    command.arg("--recal-file").arg(work.table_path(kind, "recal.vcf"));
    command.arg("--tranches-file").arg(work.table_path(kind, "tranches")).arg("-O").arg(out);
    toolkit.start_tool(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_names_tags_and_files() {
        let resource: TrainingResource =
            "hapmap,known=false,training=true,truth=true,prior=15.0:/a/b:c.vcf.gz".parse().unwrap();
        assert_eq!(resource.path, Path::new("/a/b:c.vcf.gz"));
        for wrong in ["a.vcf.gz", ":a", "a:", "a,prior=x:b", "a,known=yes:b", "a,weight=1:b", "known=true:b"] {
            assert!(wrong.parse::<TrainingResource>().is_err(), "{wrong}");
        }
    }
}
