//! The crates that the shipped programs contain: their list as a CycloneDX bill of materials, and their license texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Release, output_text};

/// A crate that is part of a shipped program.
pub(super) struct Dependency {
    name: String,
    version: String,
    /// An SPDX expression; empty if the crate names only a file.
    license: String,
    /// SHA-256 of the crate's archive; crates of the workspace have none.
    checksum: Option<String>,
    /// The directory of its sources.
    sources: PathBuf,
    /// References of the crates that it depends on.
    requires: BTreeSet<String>,
}

impl Dependency {
    /// Returns the package URL, which also is its reference in the bill.
    fn package_url(&self) -> String {
        package_url(&self.name, &self.version)
    }
}

fn package_url(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// Returns the crates that the programs and their build scripts use on x86-64 Linux, sorted by name and version.
pub(super) fn shipped_dependencies(release: &Release, programs: &[String]) -> Result<Vec<Dependency>> {
    let mut cargo = crate::cargo::command();
    cargo.current_dir(&release.root).args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ]);
    let metadata: Value = serde_json::from_str(&output_text(&mut cargo)?).context("cargo metadata is not JSON")?;
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        items(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let mut requires: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in items(&metadata["resolve"]["nodes"]) {
        let is_shipped = |dependency: &Value| items(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
        let shipped = items(&node["deps"]).into_iter().filter(is_shipped).map(|dependency| text(&dependency["pkg"]));
        requires.insert(text(&node["id"]), shipped.collect());
    }
    let checksums = lock_file_checksums(&release.root)?;
    let is_program =
        |package: &Value| programs.iter().any(|name| package["name"] == name.as_str()) && package["source"].is_null();
    let mut pending: Vec<String> =
        packages.iter().filter(|(_, package)| is_program(package)).map(|(id, _)| id.clone()).collect();
    let mut found: BTreeMap<String, Dependency> = BTreeMap::new();
    while let Some(id) = pending.pop() {
        if found.contains_key(&id) {
            continue;
        }
        let package = packages.get(&id).with_context(|| format!("cargo metadata does not describe {id}"))?;
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let ids = requires.remove(&id).unwrap_or_default();
        let reference = |id: &String| {
            packages.get(id).map(|package| package_url(&text(&package["name"]), &text(&package["version"])))
        };
        let dependency = Dependency {
            checksum: checksums.get(&(name.clone(), version.clone())).cloned(),
            license: text(&package["license"]),
            sources: Path::new(&text(&package["manifest_path"])).parent().map(Path::to_path_buf).unwrap_or_default(),
            requires: ids.iter().filter_map(reference).collect(),
            name,
            version,
        };
        found.insert(id, dependency);
        pending.extend(ids);
    }
    let mut dependencies: Vec<Dependency> = found.into_values().collect();
    dependencies.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(dependencies)
}

/// Returns the checksums of `Cargo.lock` by name and version.
fn lock_file_checksums(root: &Path) -> Result<BTreeMap<(String, String), String>> {
    let text = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let value = |entry: &str, key: &str| -> Option<String> {
        let line = entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let entries = text.split("[[package]]\n").skip(1);
    Ok(entries
        .filter_map(|entry| Some(((value(entry, "name")?, value(entry, "version")?), value(entry, "checksum")?)))
        .collect())
}

/// Returns the bill of materials in CycloneDX 1.6.
pub(super) fn bill_of_materials(release: &Release, programs: &[String], dependencies: &[Dependency]) -> String {
    let component = |dependency: &Dependency| {
        let kind = if programs.contains(&dependency.name) { "application" } else { "library" };
        let url = dependency.package_url();
        let mut component = json!({ "type": kind, "bom-ref": url, "name": dependency.name, "version": dependency.version, "purl": url });
        if !dependency.license.is_empty() {
            // Older crates write `MIT/Apache-2.0`, which is not an SPDX expression.
            let expression = dependency.license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
            component["licenses"] = json!([{ "expression": expression }]);
        }
        if let Some(checksum) = &dependency.checksum {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        component
    };
    let bwa = json!({
        "type": "library", "bom-ref": "pkg:deb/debian/libbwa-dev", "name": "bwa", "purl": "pkg:deb/debian/libbwa-dev",
        "description": "linked into godwit-bwa", "licenses": [{ "expression": "GPL-3.0-or-later" }],
    });
    let requires = |dependency: &Dependency| {
        let bwa = (dependency.name == "godwit-bwa").then(|| "pkg:deb/debian/libbwa-dev".to_owned());
        let references: Vec<String> = dependency.requires.iter().cloned().chain(bwa).collect();
        json!({ "ref": dependency.package_url(), "dependsOn": references })
    };
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": { "type": "application", "bom-ref": "godwit", "name": "godwit", "version": release.version } },
        "components": dependencies.iter().map(component).chain([bwa]).collect::<Vec<_>>(),
        "dependencies": dependencies.iter().map(requires).collect::<Vec<_>>(),
    });
    format!("{bill:#}\n")
}

/// Returns the license texts of all crates from a registry; each text stands once, below the names of its crates.
///
/// # Errors
/// When the sources of a crate cannot be read.
pub(super) fn license_texts(dependencies: &[Dependency]) -> Result<String> {
    let mut crates_by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut without_text = Vec::new();
    for dependency in dependencies.iter().filter(|dependency| dependency.checksum.is_some()) {
        let title = format!("{} {} ({})", dependency.name, dependency.version, dependency.license);
        let mut files = license_files(&dependency.sources)?;
        files.sort();
        if files.is_empty() {
            without_text.push(title);
            continue;
        }
        for file in files {
            let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            crates_by_text.entry(String::from_utf8_lossy(&text).trim().to_owned()).or_default().push(title.clone());
        }
    }
    let mut sections: Vec<(Vec<String>, String)> =
        crates_by_text.into_iter().map(|(text, crates)| (crates, text)).collect();
    sections.sort();
    let mut all = "The programs of godwit contain these libraries. godwit-bwa also contains bwa, under the GNU General Public License,\n\
                   version 3 or later (https://www.gnu.org/licenses/gpl-3.0.html).\n"
        .to_owned();
    for (crates, text) in sections {
        let line = "=".repeat(72);
        all.push_str(&format!("\n{line}\n{}\n{line}\n\n{text}\n", crates.join("\n")));
    }
    if !without_text.is_empty() {
        all.push_str(&format!(
            "\nThese libraries name their license, and their archives contain no text of it:\n\n{}\n",
            without_text.join("\n")
        ));
    }
    Ok(all)
}

/// Returns the files of a crate that contain licenses and notices.
fn license_files(sources: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in sources.read_dir().with_context(|| format!("cannot list {}", sources.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_license =
            ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start));
        if is_license && entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}
