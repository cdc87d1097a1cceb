//! Reads the file with the issuers of GA4GH visas that a server accepts (`--visas`).

use std::path::{Path, PathBuf};

use godwit_auth::VisaIssuer;
use godwit_cli::cli::KeySource;
use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use serde::Deserialize;

use super::authentication::read_file;
use super::key_fetch;

/// The content of the file as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VisaFileContent {
    #[serde(default, rename = "issuer")]
    issuers: Vec<IssuerEntry>,
}

/// An entry of the file, which describes one issuer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerEntry {
    /// Name of the issuer, as in the claim `iss` of its visas.
    name: String,
    /// Path of the issuer's keys, relative to this file, or their URL.
    keys: String,
    /// Value that the header `jku` of a visa must have; by default the URL in `keys`.
    jku: Option<String>,
}

/// The issuers of visas, and the file or URL of the keys of each issuer.
pub(super) struct VisaFile {
    path: PathBuf,
    issuers: Vec<(IssuerEntry, KeySource)>,
}

impl VisaFile {
    /// Reads the file of visa issuers, but not their keys.
    ///
    /// # Errors
    /// [`ErrorKind::Machine`] if the file cannot be read; [`ErrorKind::Input`] if its content is invalid.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |problem: &str| Failure::new(ErrorKind::Input, format!("{}: {}", path.display(), problem.trim()));
        let written: VisaFileContent = toml::from_str(&read_file(path)?).map_err(|error| wrong(&error.to_string()))?;
        if written.issuers.is_empty() {
            return Err(wrong("the file has no [[issuer]]; add one with the `name` of a visa issuer and its `keys`"));
        }
        let beside = path.parent().unwrap_or(Path::new("."));
        let issuers = written.issuers.into_iter().map(|issuer| {
            let at = match KeySource::parse(&issuer.keys).map_err(|problem| wrong(&problem))? {
                KeySource::File(file) => KeySource::File(beside.join(file)),
                url => url,
            };
            Ok((issuer, at))
        });
        Ok(Self { path: path.to_owned(), issuers: issuers.collect::<Result<_, Failure>>()? })
    }

    /// Returns the paths of the key files on this host.
    pub(super) fn key_files(&self) -> impl Iterator<Item = &Path> {
        self.issuers.iter().filter_map(|(_, at)| match at {
            KeySource::File(path) => Some(path.as_path()),
            KeySource::Url(_) => None,
        })
    }

    /// Returns whether the keys of any issuer must be fetched from a URL.
    pub(super) fn has_key_urls(&self) -> bool {
        self.issuers.iter().any(|(_, at)| matches!(at, KeySource::Url(_)))
    }

    /// Reads or fetches the keys of all issuers. Returns the issuers, and a text that changes if any key changes.
    ///
    /// # Errors
    /// [`ErrorKind::Machine`] if keys cannot be read or fetched; [`ErrorKind::Input`] if they are invalid.
    pub(super) async fn fetch_issuers(&self, authority: Option<&Path>) -> Result<(Vec<VisaIssuer>, String), Failure> {
        let (mut issuers, mut key_texts) = (Vec::new(), String::new());
        for (issuer, at) in &self.issuers {
            let (keys, place) = match at {
                KeySource::File(path) => (read_file(path)?, None),
                KeySource::Url(url) => (key_fetch::fetch_keys(url, authority).await?, Some(url.as_str())),
            };
            let jku = issuer.jku.as_deref().or(place);
            let made = VisaIssuer::new(&issuer.name, jku, &keys);
            let wrong = |error| Failure::new(ErrorKind::Input, format!("{}: {at}: {error}", self.path.display()));
            issuers.push(made.map_err(wrong)?);
            key_texts += &format!("{} {jku:?} {keys}\n", issuer.name);
        }
        Ok((issuers, key_texts))
    }
}
