//! Rules on the manifests: who may depend on whom, versions in one place, lints and licenses.
//!
//! Reads the part of TOML that our manifests use, one `key = value` to a line; a manifest written otherwise fails the rules, it
//! does not slip through.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Which crates of the workspace each crate may name. Dependencies point one way (docs/architecture.md): the model knows nobody,
/// and what a crate may use, those above it may use too where it is listed. `godwit` may use all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("godwit-model", &[]),
    // How children end is the same for the programs of a run and for its workers; whatever makes temporary files lists them there.
    ("godwit-process", &[]),
    // A network to measure on, and nothing of what is measured.
    ("godwit-path", &[]),
    ("godwit-formats", &["godwit-model"]),
    // htslib's symbols clash with those of bwa's library, so CRAM is no part of what `godwit-bwa` links.
    ("godwit-cram", &["godwit-model", "godwit-formats", "godwit-process"]),
    ("godwit-kernels", &["godwit-model"]),
    // What aligners print becomes records and duplicate signatures at once, while mates are neighbours.
    ("godwit-engines", &["godwit-model", "godwit-formats", "godwit-kernels", "godwit-process"]),
    // The pipe's protocol is the engine's; the programs at its other end speak it.
    ("godwit-mem", &["godwit-model", "godwit-formats", "godwit-engines"]),
    ("godwit-bwa", &["godwit-model", "godwit-mem", "godwit-engines"]),
    ("godwit-bwa-mem3", &["godwit-model", "godwit-formats", "godwit-mem", "godwit-engines"]),
    ("godwit-flight", &["godwit-model"]),
    ("godwit-fleet", &["godwit-model", "godwit-process"]),
    // Genomes are packed against FASTA references.
    ("godwit-transfer", &["godwit-model", "godwit-flight", "godwit-formats", "godwit-process"]),
    ("godwit-exchange", &["godwit-model", "godwit-flight", "godwit-kernels"]),
    ("godwit-query", &["godwit-model", "godwit-flight", "godwit-formats", "godwit-process"]),
    (
        "godwit-search",
        &["godwit-model", "godwit-flight", "godwit-formats", "godwit-engines", "godwit-fleet", "godwit-process"],
    ),
    // Rules are about datasets and files as callers ask for them, and know neither.
    ("godwit-rules", &["godwit-model", "godwit-flight"]),
    // Packed genomes are datasets.
    (
        "godwit-serve",
        &["godwit-model", "godwit-flight", "godwit-formats", "godwit-cram", "godwit-process", "godwit-transfer"],
    ),
    (
        "godwit-pipeline",
        &[
            "godwit-model",
            "godwit-exchange",
            "godwit-cram",
            "godwit-formats",
            "godwit-kernels",
            "godwit-engines",
            "godwit-fleet",
            "godwit-process",
            "godwit-search",
        ],
    ),
    (
        "godwit",
        &[
            "godwit-model",
            "godwit-formats",
            "godwit-kernels",
            "godwit-engines",
            "godwit-flight",
            "godwit-fleet",
            "godwit-transfer",
            "godwit-exchange",
            "godwit-query",
            "godwit-rules",
            "godwit-search",
            "godwit-serve",
            "godwit-pipeline",
            "godwit-path",
            "godwit-process",
        ],
    ),
    // What outside bytes are read with, and nothing that runs.
    (
        "godwit-fuzz",
        &["godwit-model", "godwit-formats", "godwit-cram", "godwit-engines", "godwit-pipeline", "godwit-transfer"],
    ),
    // The harness of the tests knows none of the crates.
    ("godwit-tests", &[]),
    // Decisions alone, in a world of its own.
    ("godwit-sim", &["godwit-model", "godwit-exchange", "godwit-transfer"]),
    // An oracle that shares code with what it judges repeats its mistakes.
    ("godwit-identity", &[]),
    ("xtask", &[]),
];

/// Heavy libraries have one door: only this crate names them, so that one crate changes when they do.
const DOORS: &[(&str, &str)] = &[
    ("tonic", "godwit-flight"),
    ("arrow-flight", "godwit-flight"),
    ("datafusion", "godwit-query"),
    ("parquet", "godwit-formats"),
    ("hts-sys", "godwit-cram"),
    ("clap", "godwit"),
    ("anyhow", "xtask"),
];

/// `godwit-bwa` links bwa, which is GPL-3.0; the rest inherits the workspace's license.
const OWN_LICENSE: &[(&str, &str)] = &[("godwit-bwa", "\"GPL-3.0-or-later\"")];

/// What the tests of a crate may use besides, as `[dev-dependencies]` alone.
const TESTS_MAY_USE: &[(&str, &[&str])] = &[
    // The harness tells how processes are, and which tools are missing.
    ("godwit-engines", &["godwit-tests"]),
    ("godwit-fleet", &["godwit-tests"]),
    ("godwit-flight", &["godwit-tests"]),
    // End-to-end tests see what users see: the programs and their files. Launchers start them where no command line reaches.
    ("godwit-tests", &["godwit-fleet"]),
];

/// Fields every package takes from the workspace.
const INHERITED: [&str; 4] = ["version", "edition", "rust-version", "publish"];

/// Sections and their `key = value` lines, by section name. The value holds everything after the first `=`.
struct Manifest {
    /// Path from the root.
    path: String,
    sections: BTreeMap<String, Vec<(String, String)>>,
}

/// Everything that is wrong with the manifests below `root`.
///
/// # Errors
/// When a manifest cannot be read.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let apart = ["identity/Cargo.toml", "tests/Cargo.toml", "xtask/Cargo.toml"].map(str::to_owned);
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

    /// Name, value and whether it is for tests alone of every dependency, on any target. `name.workspace = true` keeps its suffix
    /// in the value.
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
    let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{path}: crate `{name}` is not in tidy's table; add it to MAY_USE with what it may use")];
    };
    let of_tests = TESTS_MAY_USE.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, allowed)| allowed);
    for (dependency, value, for_tests) in manifest.dependencies() {
        if !value.contains("workspace = true") || value.contains("version") || value.contains("path") {
            findings.push(format!(
                "{path}: {dependency}: write `{dependency}.workspace = true`; versions live in the root"
            ));
        }
        let ours = MAY_USE.iter().any(|(known, _)| *known == dependency);
        if ours && !allowed.contains(&dependency) && !(for_tests && of_tests.contains(&dependency)) {
            findings.push(format!("{path}: {name} must not use {dependency}; dependencies point one way"));
        }
        let is_of = |library: &str| {
            dependency.strip_prefix(library).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
        };
        let door = DOORS.iter().find(|(library, door)| is_of(library) && *door != name);
        if let Some((_, door)) = door {
            findings.push(format!("{path}: only {door} may use {dependency}; go through it"));
        }
    }
    for field in INHERITED {
        if manifest.value("package", &format!("{field}.workspace")) != Some("true") {
            findings.push(format!("{path}: write `{field}.workspace = true` under [package]"));
        }
    }
    if manifest.value("lints", "workspace") != Some("true") {
        findings.push(format!("{path}: write `workspace = true` under [lints]"));
    }
    let (field, license) = match OWN_LICENSE.iter().find(|(own, _)| *own == name) {
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

    const HEAD: &str = "version.workspace = true\nedition.workspace = true\nrust-version.workspace = true\n\
                        publish.workspace = true\n";

    fn findings(name: &str, license: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{HEAD}{license}\n[lints]\nworkspace = true\n{rest}");
        check_manifest(&Manifest::parse("Cargo.toml".to_owned(), &text))
    }

    fn of(name: &str, dependencies: &str) -> usize {
        findings(name, "license.workspace = true", &format!("[dependencies]\n{dependencies}\n")).len()
    }

    #[test]
    fn dependencies_point_one_way() {
        assert_eq!(of("godwit-formats", "godwit-model.workspace = true"), 0);
        assert_eq!(of("godwit-model", "godwit-formats.workspace = true"), 1);
        assert_eq!(of("godwit-kernels", "godwit-formats = { workspace = true }"), 1);
        assert_eq!(of("godwit-formats", "[dev-dependencies]\ngodwit-pipeline.workspace = true"), 1);
        assert_eq!(of("godwit-formats", "[target.'cfg(unix)'.dependencies]\ngodwit-kernels.workspace = true"), 1);
        assert_eq!(of("godwit-fleet", "[dev-dependencies]\ngodwit-tests.workspace = true"), 0);
        assert_eq!(of("godwit-fleet", "godwit-tests.workspace = true"), 1);
    }

    #[test]
    fn no_crate_of_the_table_uses_itself_through_others() {
        for (name, allowed) in MAY_USE {
            let mut reached: Vec<&str> = allowed.to_vec();
            let mut next = 0;
            while let Some(used) = reached.get(next).copied() {
                let (_, further) = MAY_USE.iter().find(|(known, _)| *known == used).unwrap();
                reached.extend(further.iter().filter(|other| !reached.contains(other)).collect::<Vec<_>>());
                next += 1;
            }
            assert!(!reached.contains(name), "{name} reaches itself");
        }
    }

    #[test]
    fn versions_live_in_the_root_only() {
        assert_eq!(of("godwit-model", "thiserror.workspace = true"), 0);
        assert_eq!(of("godwit-model", "thiserror = { workspace = true, features = [\"std\"] }"), 0);
        assert_eq!(of("godwit-model", "thiserror = \"2\""), 1);
        assert_eq!(of("godwit-model", "thiserror = { version = \"2\" }"), 1);
        assert_eq!(of("godwit-model", "[dependencies.thiserror]\nversion = \"2\""), 1);
        assert_eq!(of("godwit-model", "[build-dependencies]\ncc = \"1\""), 1);
    }

    #[test]
    fn heavy_libraries_have_one_door() {
        assert_eq!(of("godwit", "clap.workspace = true"), 0);
        assert_eq!(of("godwit-pipeline", "clap.workspace = true"), 1);
        assert_eq!(of("godwit-pipeline", "datafusion-expr.workspace = true"), 1);
        assert_eq!(of("godwit-formats", "anyhow.workspace = true"), 1);
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
    fn a_crate_nobody_placed_is_a_finding() {
        assert_eq!(findings("godwit-utils", "license.workspace = true", "").len(), 1);
    }
}
