//! Rules on the manifests: allowed dependencies, versions in one place, lints and licenses.
//!
//! Reads the part of TOML that our manifests use, one `key = value` to a line; a manifest in another form fails the
//! rules.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::language_rules::check_description;

/// The crates of the workspace that each crate may depend on. Dependencies have one direction: the model depends on no
/// other crate, and a crate may use the dependencies of those below it only where they are listed. docs/architecture.md
/// has the same table, with the purpose of each crate.
pub(super) const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("godwit-model", &[]),
    // The end of child processes is the same for the programs of a run and for its workers; all code that creates
    // temporary files registers them there.
    ("godwit-process", &[]),
    // Files that are complete or absent after a crash are the same for jobs, servers and copies.
    ("godwit-files", &["godwit-process"]),
    // A network to measure on, independent of the measured code.
    ("godwit-path", &[]),
    ("godwit-io", &[]),
    ("godwit-formats", &["godwit-model", "godwit-io"]),
    // htslib's symbols clash with those of bwa's library, so CRAM is not part of what `godwit-bwa` links.
    ("godwit-cram", &["godwit-model", "godwit-process", "godwit-formats"]),
    ("godwit-kernels", &["godwit-model"]),
    ("godwit-haplotypes", &["godwit-model", "godwit-io", "godwit-formats"]),
    // Counts and qualities of single records, without files.
    ("godwit-recalibrate", &["godwit-model", "godwit-kernels"]),
    ("godwit-metrics", &["godwit-model", "godwit-formats", "godwit-kernels"]),
    // The output of aligners becomes records and duplicate signatures at once, while mates are neighbours.
    ("godwit-engines", &["godwit-model", "godwit-process", "godwit-files", "godwit-formats", "godwit-kernels"]),
    // The pipe's protocol belongs to the engine; the programs at its other end implement it.
    ("godwit-mem", &["godwit-model", "godwit-formats", "godwit-engines"]),
    ("godwit-bwa", &["godwit-model", "godwit-engines", "godwit-mem"]),
    ("godwit-bwa-mem3", &["godwit-model", "godwit-formats", "godwit-engines", "godwit-mem"]),
    ("godwit-dataset", &["godwit-model"]),
    ("godwit-auth", &["godwit-dataset"]),
    ("godwit-flight", &["godwit-model", "godwit-dataset", "godwit-auth"]),
    ("godwit-fleet", &["godwit-process", "godwit-files"]),
    ("godwit-delta", &["godwit-model", "godwit-files", "godwit-io", "godwit-formats"]),
    ("godwit-transfer-session", &[]),
    // Genomes are compressed against FASTA references.
    (
        "godwit-transfer",
        &[
            "godwit-model",
            "godwit-files",
            "godwit-io",
            "godwit-dataset",
            "godwit-auth",
            "godwit-flight",
            "godwit-delta",
            "godwit-transfer-session",
            "godwit-tcp",
        ],
    ),
    ("godwit-tcp", &["godwit-flight"]),
    // Programs that know only files use servers through the client of copies.
    ("godwit-mount", &["godwit-model", "godwit-files", "godwit-flight", "godwit-transfer-session", "godwit-transfer"]),
    // Clients of NFS have the rights that the rules give to their addresses.
    ("godwit-nfs", &["godwit-dataset", "godwit-transfer-session"]),
    // The decisions of the shuffle, without a network.
    ("godwit-exchange", &["godwit-model", "godwit-fleet"]),
    ("godwit-cluster", &["godwit-dataset", "godwit-auth", "godwit-flight", "godwit-fleet"]),
    ("godwit-columnar", &["godwit-model", "godwit-io", "godwit-formats"]),
    (
        "godwit-search",
        &[
            "godwit-model",
            "godwit-process",
            "godwit-files",
            "godwit-engines",
            "godwit-fleet",
            "godwit-cluster",
            "godwit-columnar",
        ],
    ),
    // Rules are about datasets and files as principals request them, and do not depend on either implementation.
    ("godwit-rules", &["godwit-model", "godwit-files", "godwit-dataset"]),
    // Genomes in gwp files are datasets.
    (
        "godwit-serve",
        &[
            "godwit-model",
            "godwit-process",
            "godwit-files",
            "godwit-io",
            "godwit-formats",
            "godwit-cram",
            "godwit-dataset",
            "godwit-delta",
            "godwit-columnar",
        ],
    ),
    (
        "godwit-pipeline",
        &[
            "godwit-model",
            "godwit-process",
            "godwit-files",
            "godwit-io",
            "godwit-formats",
            "godwit-cram",
            "godwit-kernels",
            "godwit-haplotypes",
            "godwit-recalibrate",
            "godwit-metrics",
            "godwit-engines",
            "godwit-fleet",
            "godwit-exchange",
            "godwit-cluster",
            "godwit-columnar",
        ],
    ),
    // Both ends of the protocol with statement processes see the same datasets, unfinished jobs included.
    (
        "godwit-query",
        &[
            "godwit-model",
            "godwit-process",
            "godwit-files",
            "godwit-io",
            "godwit-formats",
            "godwit-dataset",
            "godwit-flight",
            "godwit-columnar",
            "godwit-serve",
            "godwit-pipeline",
        ],
    ),
    // DataFusion is linked by a program of its own, which godwit starts.
    (
        "godwit-sql",
        &[
            "godwit-model",
            "godwit-process",
            "godwit-io",
            "godwit-dataset",
            "godwit-flight",
            "godwit-delta",
            "godwit-columnar",
            "godwit-rules",
            "godwit-serve",
            "godwit-query",
        ],
    ),
    ("godwit-simulate", &["godwit-files", "godwit-io", "godwit-formats"]),
    (
        "godwit-align",
        &[
            "godwit-model",
            "godwit-files",
            "godwit-io",
            "godwit-formats",
            "godwit-cram",
            "godwit-kernels",
            "godwit-recalibrate",
            "godwit-metrics",
            "godwit-engines",
            "godwit-fleet",
            "godwit-exchange",
            "godwit-cluster",
            "godwit-pipeline",
        ],
    ),
    (
        "godwit-call",
        &[
            "godwit-model",
            "godwit-process",
            "godwit-files",
            "godwit-io",
            "godwit-formats",
            "godwit-cram",
            "godwit-kernels",
            "godwit-recalibrate",
            "godwit-engines",
            "godwit-fleet",
            "godwit-cluster",
            "godwit-columnar",
            "godwit-pipeline",
        ],
    ),
    (
        "godwit-compare",
        &[
            "godwit-model",
            "godwit-files",
            "godwit-io",
            "godwit-formats",
            "godwit-haplotypes",
            "godwit-engines",
            "godwit-pipeline",
        ],
    ),
    (
        "godwit-workflow",
        &[
            "godwit-model",
            "godwit-files",
            "godwit-recalibrate",
            "godwit-engines",
            "godwit-fleet",
            "godwit-cluster",
            "godwit-pipeline",
            "godwit-align",
            "godwit-call",
        ],
    ),
    (
        "godwit-cli",
        &[
            "godwit-model",
            "godwit-io",
            "godwit-kernels",
            "godwit-recalibrate",
            "godwit-metrics",
            "godwit-engines",
            "godwit-dataset",
            "godwit-auth",
            "godwit-flight",
            "godwit-fleet",
            "godwit-delta",
            "godwit-transfer",
            "godwit-search",
            "godwit-rules",
            "godwit-pipeline",
            "godwit-query",
            "godwit-call",
            "godwit-workflow",
        ],
    ),
    (
        "godwit",
        &[
            "godwit-model",
            "godwit-process",
            "godwit-files",
            "godwit-path",
            "godwit-io",
            "godwit-formats",
            "godwit-cram",
            "godwit-haplotypes",
            "godwit-recalibrate",
            "godwit-engines",
            "godwit-dataset",
            "godwit-auth",
            "godwit-flight",
            "godwit-fleet",
            "godwit-delta",
            "godwit-transfer",
            "godwit-mount",
            "godwit-nfs",
            "godwit-cluster",
            "godwit-columnar",
            "godwit-search",
            "godwit-rules",
            "godwit-serve",
            "godwit-pipeline",
            "godwit-query",
            "godwit-simulate",
            "godwit-align",
            "godwit-call",
            "godwit-compare",
            "godwit-workflow",
            "godwit-cli",
        ],
    ),
    // All parsers of untrusted bytes, without the crates that run jobs.
    (
        "godwit-fuzz",
        &[
            "godwit-model",
            "godwit-io",
            "godwit-formats",
            "godwit-cram",
            "godwit-engines",
            "godwit-delta",
            "godwit-columnar",
            "godwit-pipeline",
            "godwit-dataset",
            "godwit-nfs",
        ],
    ),
    // The harness of the tests uses none of the crates.
    ("godwit-tests", &[]),
    // Only decisions, in a simulation.
    ("godwit-sim", &["godwit-model", "godwit-transfer-session", "godwit-exchange"]),
    // An oracle that shares code with the program under test repeats its mistakes.
    ("godwit-identity", &[]),
    ("xtask", &[]),
];

/// Each large library has one dependent crate, so that only one crate changes when the library does.
pub(super) const SOLE_DEPENDENTS: &[(&str, &str)] = &[
    ("tonic", "godwit-flight"),
    ("hyper", "godwit-flight"),
    ("arrow-flight", "godwit-flight"),
    ("object_store", "godwit-serve"),
    ("datafusion", "godwit-sql"),
    ("fuser", "godwit-mount"),
    ("nfs3_types", "godwit-nfs"),
    ("parquet", "godwit-columnar"),
    ("hts-sys", "godwit-cram"),
    ("clap", "godwit-cli"),
    ("anyhow", "xtask"),
];

/// `godwit-bwa` links bwa, which is GPL-3.0; the others inherit the workspace's license.
const LICENSE_EXCEPTIONS: &[(&str, &str)] = &[("godwit-bwa", "\"GPL-3.0-or-later\"")];

/// The additional crates that the tests of a crate may use, as `[dev-dependencies]` only.
const ALLOWED_DEV_DEPENDENCIES: &[(&str, &[&str])] = &[
    // The harness observes processes, finds missing tools and reports skipped tests.
    ("godwit-bwa", &["godwit-tests"]),
    ("godwit-bwa-mem3", &["godwit-tests"]),
    ("godwit-engines", &["godwit-tests"]),
    ("godwit-files", &["godwit-tests"]),
    ("godwit-fleet", &["godwit-tests"]),
    ("godwit-flight", &["godwit-tests"]),
    ("godwit-columnar", &["godwit-tests"]),
    ("godwit-formats", &["godwit-tests"]),
    ("godwit-haplotypes", &["godwit-tests"]),
    ("godwit-io", &["godwit-tests"]),
    ("godwit-mount", &["godwit-tests"]),
    // The golden reads are SAM, and their known sites VCF.
    ("godwit-recalibrate", &["godwit-formats"]),
    // End-to-end tests use what users see: the programs and their files. Launchers start them where the command line
    // cannot.
    ("godwit-tests", &["godwit-fleet"]),
];

/// The fields that every package inherits from the workspace.
const INHERITED_FIELDS: [&str; 4] = ["version", "edition", "rust-version", "publish"];

/// A manifest as its sections and their `key = value` lines, by section name. The value holds everything after the first
/// `=`.
struct Manifest {
    /// The path from the root.
    path: String,
    sections: BTreeMap<String, Vec<(String, String)>>,
}

/// Returns all findings on the manifests below `root`.
///
/// # Errors
/// When a manifest cannot be read.
pub fn check_manifests(root: &Path) -> Result<Vec<String>> {
    let apart = ["identity/Cargo.toml", "sim/Cargo.toml", "tests/Cargo.toml", "xtask/Cargo.toml"].map(str::to_owned);
    let mut paths: Vec<_> = apart.into_iter().filter(|path| root.join(path).exists()).collect();
    let folder = root.join("crates");
    for entry in folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))? {
        let name = entry?.file_name();
        if folder.join(&name).join("Cargo.toml").exists() {
            paths.push(format!("crates/{}/Cargo.toml", name.to_string_lossy()));
        }
    }
    paths.sort();
    let mut findings = Vec::new();
    for path in paths {
        let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read {path}"))?;
        findings.extend(check_description(&path, &text));
        findings.extend(check_manifest(&Manifest::parse(path, &text)));
    }
    Ok(findings)
}

impl Manifest {
    fn parse(path: String, text: &str) -> Self {
        let mut sections: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        let mut section = String::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_matches(['[', ']']).to_owned();
                sections.entry(section.clone()).or_default();
            } else if let Some((key, value)) = line.split_once('=') {
                let entry = (key.trim().to_owned(), value.trim().to_owned());
                sections.entry(section.clone()).or_default().push(entry);
            }
        }
        Self { path, sections }
    }

    fn value(&self, section: &str, key: &str) -> Option<&str> {
        let found = self.sections.get(section)?.iter().find(|(name, _)| name == key)?;
        Some(&found.1)
    }

    /// Returns name, value and whether it is for tests alone of every dependency, on any target. `name.workspace = true`
    /// keeps its suffix in the value.
    fn dependencies(&self) -> impl Iterator<Item = (&str, String, bool)> {
        self.sections.iter().flat_map(|(section, entries)| {
            let for_tests = section.contains("dev-dependencies");
            let list = section.ends_with("dependencies");
            let table = section.split_once("dependencies.").map(|(_, name)| (name, "a table of its own".to_owned()));
            let listed = entries.iter().filter(move |_| list).map(|(key, value)| match key.split_once('.') {
                Some((name, field)) => (name, format!("{field} = {value}")),
                None => (key.as_str(), value.clone()),
            });
            listed.chain(table).map(move |(name, value)| (name, value, for_tests))
        })
    }
}

fn check_manifest(manifest: &Manifest) -> Vec<String> {
    let path = &manifest.path;
    let mut findings = Vec::new();
    let name = manifest.value("package", "name").unwrap_or_default().trim_matches('"');
    let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(known, _)| *known == name) else {
        return vec![format!(
            "{path}: crate `{name}` is not in tidy's table; add it with its dependencies to ALLOWED_DEPENDENCIES"
        )];
    };
    let of_tests =
        ALLOWED_DEV_DEPENDENCIES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, allowed)| allowed);
    for (dependency, value, for_tests) in manifest.dependencies() {
        if !value.contains("workspace = true") || value.contains("version") || value.contains("path") {
            findings.push(format!(
                "{path}: {dependency}: write `{dependency}.workspace = true`; versions belong to the root manifest"
            ));
        }
        let ours = ALLOWED_DEPENDENCIES.iter().any(|(known, _)| *known == dependency);
        if ours && !allowed.contains(&dependency) && !(for_tests && of_tests.contains(&dependency)) {
            findings.push(format!("{path}: {name} must not use {dependency}; dependencies have one direction"));
        }
        let is_of = |library: &str| {
            dependency.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
        };
        let door = SOLE_DEPENDENTS.iter().find(|(library, door)| is_of(library) && *door != name);
        if let Some((_, door)) = door {
            findings.push(format!("{path}: only {door} may use {dependency}; use {door} instead"));
        }
    }
    for field in INHERITED_FIELDS {
        if manifest.value("package", &format!("{field}.workspace")) != Some("true") {
            findings.push(format!("{path}: write `{field}.workspace = true` under [package]"));
        }
    }
    if manifest.value("lints", "workspace") != Some("true") {
        findings.push(format!("{path}: write `workspace = true` under [lints]"));
    }
    let (field, license) = match LICENSE_EXCEPTIONS.iter().find(|(own, _)| *own == name) {
        Some((_, license)) => ("license", *license),
        None => ("license.workspace", "true"),
    };
    if manifest.value("package", field) != Some(license) {
        findings.push(format!("{path}: write `{field} = {license}` under [package]"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE_HEAD: &str = "version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
                        publish.workspace = true\n";

    fn findings(name: &str, license: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{PACKAGE_HEAD}{license}\n[lints]\nworkspace = true\n{rest}");
        check_manifest(&Manifest::parse("Cargo.toml".to_owned(), &text))
    }

    fn count_findings(name: &str, dependencies: &str) -> usize {
        findings(name, "license.workspace = true", &format!("[dependencies]\n{dependencies}\n")).len()
    }

    #[test]
    fn dependencies_point_one_way() {
        assert_eq!(count_findings("godwit-formats", "godwit-model.workspace = true"), 0);
        assert_eq!(count_findings("godwit-model", "godwit-formats.workspace = true"), 1);
        assert_eq!(count_findings("godwit-kernels", "godwit-formats = { workspace = true }"), 1);
        assert_eq!(count_findings("godwit-formats", "[dev-dependencies]\ngodwit-pipeline.workspace = true"), 1);
        assert_eq!(
            count_findings("godwit-formats", "[target.'cfg(unix)'.dependencies]\ngodwit-kernels.workspace = true"),
            1
        );
        assert_eq!(count_findings("godwit-fleet", "[dev-dependencies]\ngodwit-tests.workspace = true"), 0);
        assert_eq!(count_findings("godwit-fleet", "godwit-tests.workspace = true"), 1);
    }

    #[test]
    fn no_crate_of_the_table_uses_itself_through_others() {
        for (name, allowed) in ALLOWED_DEPENDENCIES {
            let mut reached: Vec<&str> = allowed.to_vec();
            let mut next = 0;
            while let Some(used) = reached.get(next).copied() {
                let (_, further) = ALLOWED_DEPENDENCIES.iter().find(|(known, _)| *known == used).unwrap();
                reached.extend(further.iter().filter(|other| !reached.contains(other)).collect::<Vec<_>>());
                next += 1;
            }
            assert!(!reached.contains(name), "{name} reaches itself");
        }
    }

    #[test]
    fn versions_live_in_the_root_only() {
        assert_eq!(count_findings("godwit-model", "thiserror.workspace = true"), 0);
        assert_eq!(count_findings("godwit-model", "thiserror = { workspace = true, features = [\"std\"] }"), 0);
        assert_eq!(count_findings("godwit-model", "thiserror = \"2\""), 1);
        assert_eq!(count_findings("godwit-model", "thiserror = { version = \"2\" }"), 1);
        assert_eq!(count_findings("godwit-model", "[dependencies.thiserror]\nversion = \"2\""), 1);
        assert_eq!(count_findings("godwit-model", "[build-dependencies]\ncc = \"1\""), 1);
    }

    #[test]
    fn heavy_libraries_have_one_dependent() {
        assert_eq!(count_findings("godwit-cli", "clap.workspace = true"), 0);
        assert_eq!(count_findings("godwit-pipeline", "clap.workspace = true"), 1);
        assert_eq!(count_findings("godwit-pipeline", "datafusion-expr.workspace = true"), 1);
        assert_eq!(count_findings("godwit-formats", "anyhow.workspace = true"), 1);
    }

    #[test]
    fn lints_licenses_and_shared_fields_are_inherited() {
        assert_eq!(findings("godwit-model", "license = \"MIT\"", "").len(), 1);
        assert_eq!(findings("godwit-bwa", "license = \"GPL-3.0-or-later\"", ""), [""; 0]);
        assert_eq!(findings("godwit-bwa", "license.workspace = true", "").len(), 1);
        let bare = Manifest::parse("Cargo.toml".to_owned(), "[package]\nname = \"godwit-model\"\n");
        assert_eq!(check_manifest(&bare).len(), 6);
    }

    #[test]
    fn a_crate_without_a_place_in_the_table_is_a_finding() {
        assert_eq!(findings("godwit-utils", "license.workspace = true", "").len(), 1);
    }
}
