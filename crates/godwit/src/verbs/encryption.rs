//! Keys of Crypt4GH, read before anything else is.

use std::path::PathBuf;

use godwit_formats::crypt4gh::{KeyError, PublicKey, SecretKey, use_keys};
use godwit_formats::with_causes;

use crate::cli::{KeyArgs, RecipientArgs};
use crate::failure::{Exit, Failure};

/// What holds the passphrase where no file does, as for the `crypt4gh` program.
const PASSPHRASE: &str = "C4GH_PASSPHRASE";

impl KeyArgs {
    /// Reads the keys, with which this process opens files from then on.
    pub fn take(&self) -> Result<(), Failure> {
        let passphrase = match &self.c4gh_passphrase {
            Some(path) => {
                let failed = |source| failed(&KeyError::Read { path: path.clone(), source });
                let mut passphrase = std::fs::read(path).map_err(failed)?;
                let kept = passphrase.trim_ascii_end().len();
                passphrase.truncate(kept);
                Some(passphrase)
            }
            None => std::env::var_os(PASSPHRASE).map(std::os::unix::ffi::OsStringExt::into_vec),
        };
        let read = |path: &PathBuf| SecretKey::read(path, passphrase.as_deref()).map_err(|error| failed(&error));
        use_keys(self.c4gh_key.iter().map(read).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// The same for another process of this program.
    pub fn words(&self) -> Vec<PathBuf> {
        let keys = self.c4gh_key.iter().flat_map(|key| [PathBuf::from("--c4gh-key"), key.clone()]);
        keys.chain(self.c4gh_passphrase.iter().flat_map(|path| [PathBuf::from("--c4gh-passphrase"), path.clone()]))
            .collect()
    }
}

impl RecipientArgs {
    /// The keys of those who may read what is written.
    pub fn keys(&self) -> Result<Vec<PublicKey>, Failure> {
        self.c4gh_recipient.iter().map(|path| PublicKey::read(path).map_err(|error| failed(&error))).collect()
    }
}

fn failed(error: &KeyError) -> Failure {
    let exit = match error {
        KeyError::Read { .. } => Exit::Machine,
        KeyError::Locked { .. } | KeyError::Passphrase { .. } => Exit::Usage,
        KeyError::NotAKey { .. } | KeyError::Method { .. } => Exit::Input,
    };
    Failure::new(exit, with_causes(error))
}
