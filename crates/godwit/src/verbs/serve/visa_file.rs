//! The list of visa issuers that a server accepts, in a file.

use std::path::{Path, PathBuf};

use godwit_flight::VisaIssuer;
use serde::Deserialize;

use super::authentication::read_file;
use super::key_fetch;
use crate::cli::KeySource;
use crate::failure::{Exit, Failure};

/// Content of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VisaFileContent {
    #[serde(default, rename = "issuer")]
    issuers: Vec<IssuerEntry>,
}

/// An entry of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssuerEntry {
    /// Name of the issuer, the claim `iss` of its visas.
    name: String,
    /// Path relative to this file, or URL, of its keys.
    keys: String,
    /// Required `jku` of its visas; by default the URL of its keys, if that is one.
    jku: Option<String>,
}

/// Issuers of visas, with the sources of their keys.
pub(super) struct VisaFile {
    path: PathBuf,
    issuers: Vec<(IssuerEntry, KeySource)>,
}

impl VisaFile {
    /// Reads the file.
    ///
    /// # Errors
    /// [`Exit::Machine`] if it cannot be read, [`Exit::Input`] if its content is invalid.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |problem: &str| Failure::new(Exit::Input, format!("{}: {}", path.display(), problem.trim()));
        let written: VisaFileContent = toml::from_str(&read_file(path)?).map_err(|error| wrong(&error.to_string()))?;
        if written.issuers.is_empty() {
            return Err(wrong("it has no [[issuer]], with the `name` of who issues visas and its `keys`"));
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

    /// Returns the key files.
    pub(super) fn key_files(&self) -> impl Iterator<Item = &Path> {
        self.issuers.iter().filter_map(|(_, at)| match at {
            KeySource::File(path) => Some(path.as_path()),
            KeySource::Url(_) => None,
        })
    }

    /// Reports whether the keys of any issuer are remote.
    pub(super) fn has_key_urls(&self) -> bool {
        self.issuers.iter().any(|(_, at)| matches!(at, KeySource::Url(_)))
    }

    /// Reads or fetches the keys of all issuers; returns the issuers, and a text that changes with any key.
    ///
    /// # Errors
    /// [`Exit::Machine`] if keys cannot be read or fetched, [`Exit::Input`] if they are invalid.
    pub(super) async fn fetch_issuers(&self, authority: Option<&Path>) -> Result<(Vec<VisaIssuer>, String), Failure> {
        let (mut issuers, mut key_texts) = (Vec::new(), String::new());
        for (issuer, at) in &self.issuers {
            let (keys, place) = match at {
                KeySource::File(path) => (read_file(path)?, None),
                KeySource::Url(url) => (key_fetch::fetch_keys(url, authority).await?, Some(url.as_str())),
            };
            let jku = issuer.jku.as_deref().or(place);
            let made = VisaIssuer::new(&issuer.name, jku, &keys);
            let wrong = |error| Failure::new(Exit::Input, format!("{}: {at}: {error}", self.path.display()));
            issuers.push(made.map_err(wrong)?);
            key_texts += &format!("{} {jku:?} {keys}\n", issuer.name);
        }
        Ok((issuers, key_texts))
    }
}
