//! GATK's judgement of called variants: recalibration (VQSR), and hard filters where there is too little to learn from.
//!
//! Annotations, thresholds and sensitivity are those of GATK's documentation ("Filter variants either with VQSR or by
//! hard-filtering", 2024). Records that are not SNPs are held to what it has for indels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::gatk::Toolkit;
use crate::{Chain, EngineError};

/// Name of each hard filter, and what a record fails it by (JEXL).
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
/// Share of the true variants of the resources that are to pass, percent.
const SENSITIVITY: &str = "99.7";
/// Shares that the table of tranches tells of, percent.
const TRANCHES: [&str; 7] = ["100.0", "99.95", "99.9", "99.7", "99.0", "97.0", "90.0"];

/// Known variants to learn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name and what it is good for, as GATK takes them: `hapmap,known=false,training=true,truth=true,prior=15.0`.
    pub tags: String,
    /// VCF with its index.
    pub path: PathBuf,
}

impl FromStr for Resource {
    type Err = EngineError;

    /// `TAGS:FILE`.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        let wrong = |problem: &str| EngineError::Arguments {
            message: format!(
                "{text:?} {problem}; a resource is as 'hapmap,known=false,training=true,truth=true,prior=15.0:hapmap.vcf.gz'"
            ),
        };
        let (tags, path) = text.split_once(':').ok_or_else(|| wrong("has no :"))?;
        let mut words = tags.split(',');
        let name = words.next().unwrap_or_default();
        if name.is_empty() || name.contains('=') || path.is_empty() {
            return Err(wrong("lacks its name or its file"));
        }
        for word in words {
            let is_known = match word.split_once('=') {
                Some(("known" | "training" | "truth", value)) => matches!(value, "true" | "false"),
                Some(("prior", value)) => value.parse::<f64>().is_ok_and(f64::is_finite),
                _ => false,
            };
            if !is_known {
                return Err(wrong(&format!("has {word:?}, which is none of known, training, truth and prior")));
            }
        }
        Ok(Self { tags: tags.to_owned(), path: path.into() })
    }
}

/// Kinds of variants, which are recalibrated apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Single bases.
    Snp,
    /// All others.
    Indel,
}

impl Kind {
    /// The word for it in file names and in GATK's options.
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

/// What is judged, and where.
#[derive(Clone, Copy, Debug)]
pub struct FilterWork<'a> {
    /// The reference, with its `.fai` and `.dict` beside it.
    pub reference: &'a Path,
    /// A private directory: tables of recalibration lie there, and scratch files.
    pub directory: &'a Path,
    /// Memory a process may take, bytes.
    pub memory_bytes: u64,
}

impl FilterWork<'_> {
    fn command(&self, toolkit: &Toolkit, tool: &str, variants: &Path) -> Command {
        let mut command = toolkit.command(tool, self.memory_bytes, self.directory);
        command.arg("-R").arg(self.reference).arg("-V").arg(variants);
        command
    }

    fn table(&self, kind: Kind, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", kind.name()))
    }
}

/// Starts VariantFiltration by the hard filters.
///
/// # Errors
/// [`EngineError::Io`].
pub fn hard(toolkit: &Toolkit, work: &FilterWork, variants: &Path, out: &Path) -> Result<Chain, EngineError> {
    let mut command = work.command(toolkit, "VariantFiltration", variants);
    for (name, expression) in HARD_FILTERS {
        command.args(["--filter-expression", expression, "--filter-name", name]);
    }
    command.arg("-O").arg(out);
    toolkit.start(command)
}

/// Starts VariantRecalibrator, which learns from one kind of variants.
///
/// # Errors
/// [`EngineError::Io`].
pub fn learn(
    toolkit: &Toolkit,
    work: &FilterWork,
    kind: Kind,
    variants: &Path,
    resources: &[Resource],
) -> Result<Chain, EngineError> {
    let mut command = work.command(toolkit, "VariantRecalibrator", variants);
    command.args(["-mode", kind.name(), "--max-gaussians", kind.max_gaussians(), "--trust-all-polymorphic"]);
    command.args(TRANCHES.iter().flat_map(|tranche| ["-tranche", tranche]));
    command.args(kind.annotations().iter().flat_map(|annotation| ["-an", annotation]));
    for resource in resources {
        command.arg(format!("--resource:{}", resource.tags)).arg(&resource.path);
    }
    command.arg("--tranches-file").arg(work.table(kind, "tranches")).arg("-O").arg(work.table(kind, "recal.vcf"));
    toolkit.start(command)
}

/// Starts ApplyVQSR by what was learnt of one kind of variants; others go through as they are.
///
/// # Errors
/// [`EngineError::Io`].
pub fn apply(
    toolkit: &Toolkit,
    work: &FilterWork,
    kind: Kind,
    variants: &Path,
    out: &Path,
) -> Result<Chain, EngineError> {
    let mut command = work.command(toolkit, "ApplyVQSR", variants);
    command.args(["-mode", kind.name(), "--truth-sensitivity-filter-level", SENSITIVITY]);
    command.arg("--recal-file").arg(work.table(kind, "recal.vcf"));
    command.arg("--tranches-file").arg(work.table(kind, "tranches")).arg("-O").arg(out);
    toolkit.start(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_names_tags_and_files() {
        let resource: Resource =
            "hapmap,known=false,training=true,truth=true,prior=15.0:/a/b:c.vcf.gz".parse().unwrap();
        assert_eq!(resource.path, Path::new("/a/b:c.vcf.gz"));
        for wrong in ["a.vcf.gz", ":a", "a:", "a,prior=x:b", "a,known=yes:b", "a,weight=1:b", "known=true:b"] {
            assert!(wrong.parse::<Resource>().is_err(), "{wrong}");
        }
    }
}
