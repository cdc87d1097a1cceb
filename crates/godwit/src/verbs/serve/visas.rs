//! Whose visas a server takes, as a file says it.

use std::path::{Path, PathBuf};

use godwit_flight::VisaIssuer;
use serde::Deserialize;

use super::admission::read;
use super::keys;
use crate::cli::KeysAt;
use crate::failure::{Exit, Failure};

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, rename = "issuer")]
    issuers: Vec<WrittenIssuer>,
}

/// An issuer, as it stands there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenIssuer {
    /// What its visas say that it is called (`iss`).
    name: String,
    /// A file beside this one, or an address.
    keys: String,
    /// Where its visas say that its keys are; where nothing is said, the address of its keys, if that is one.
    jku: Option<String>,
}

/// Issuers of visas, and where their keys are.
pub(super) struct VisaFile {
    path: PathBuf,
    issuers: Vec<(WrittenIssuer, KeysAt)>,
}

impl VisaFile {
    /// Reads it.
    ///
    /// # Errors
    /// Where it cannot be read, or is no such file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |problem: &str| Failure::new(Exit::Input, format!("{}: {}", path.display(), problem.trim()));
        let written: Written = toml::from_str(&read(path)?).map_err(|error| wrong(&error.to_string()))?;
        if written.issuers.is_empty() {
            return Err(wrong("it has no [[issuer]], with the `name` of who issues visas and its `keys`"));
        }
        let beside = path.parent().unwrap_or(Path::new("."));
        let issuers = written.issuers.into_iter().map(|issuer| {
            let at = match KeysAt::parse(&issuer.keys).map_err(|problem| wrong(&problem))? {
                KeysAt::File(file) => KeysAt::File(beside.join(file)),
                url => url,
            };
            Ok((issuer, at))
        });
        Ok(Self { path: path.to_owned(), issuers: issuers.collect::<Result<_, Failure>>()? })
    }

    /// Files with keys.
    pub(super) fn key_files(&self) -> impl Iterator<Item = &Path> {
        self.issuers.iter().filter_map(|(_, at)| match at {
            KeysAt::File(path) => Some(path.as_path()),
            KeysAt::Url(_) => None,
        })
    }

    /// Whether keys of any are to be fetched.
    pub(super) fn are_keys_elsewhere(&self) -> bool {
        self.issuers.iter().any(|(_, at)| matches!(at, KeysAt::Url(_)))
    }

    /// The issuers with their keys, and all that these were had from.
    ///
    /// # Errors
    /// Where keys cannot be had, or are none.
    pub(super) async fn issuers(&self, authority: Option<&Path>) -> Result<(Vec<VisaIssuer>, String), Failure> {
        let (mut issuers, mut had) = (Vec::new(), String::new());
        for (issuer, at) in &self.issuers {
            let (keys, place) = match at {
                KeysAt::File(path) => (read(path)?, None),
                KeysAt::Url(url) => (keys::fetch(url, authority).await?, Some(url.as_str())),
            };
            let jku = issuer.jku.as_deref().or(place);
            let made = VisaIssuer::new(&issuer.name, jku, &keys);
            let wrong = |error| Failure::new(Exit::Input, format!("{}: {at}: {error}", self.path.display()));
            issuers.push(made.map_err(wrong)?);
            had += &format!("{} {jku:?} {keys}\n", issuer.name);
        }
        Ok((issuers, had))
    }
}
