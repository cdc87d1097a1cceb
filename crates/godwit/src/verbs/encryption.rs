//! Reads the Crypt4GH keys that the command line names; verbs do this before they open any input.

use std::path::PathBuf;

use godwit_formats::message_with_causes;
use godwit_io::crypt4gh::{KeyError, PublicKey, SecretKey, set_process_keys};

use crate::cli::{KeyArgs, RecipientArgs};
use crate::failure::{Exit, Failure};

/// Environment variable with the passphrase of secret keys, if no file contains it. The program `crypt4gh` uses the
/// same variable.
const PASSPHRASE_VARIABLE: &str = "C4GH_PASSPHRASE";

impl KeyArgs {
    /// Reads the secret keys, with which this process decrypts files from now on.
    pub fn load_keys(&self) -> Result<(), Failure> {
        let passphrase = match &self.c4gh_passphrase {
            Some(path) => {
                let failed = |source| key_failure(&KeyError::Read { path: path.clone(), source });
                let mut passphrase = std::fs::read(path).map_err(failed)?;
                let kept = passphrase.trim_ascii_end().len();
                passphrase.truncate(kept);
                Some(passphrase)
            }
            None => std::env::var_os(PASSPHRASE_VARIABLE).map(std::os::unix::ffi::OsStringExt::into_vec),
        };
        let read = |path: &PathBuf| SecretKey::read(path, passphrase.as_deref()).map_err(|error| key_failure(&error));
        set_process_keys(self.c4gh_key.iter().map(read).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// Returns the command-line options that pass the same keys to another process of this program.
    pub fn arguments(&self) -> Vec<PathBuf> {
        let keys = self.c4gh_key.iter().flat_map(|key| [PathBuf::from("--c4gh-key"), key.clone()]);
        keys.chain(self.c4gh_passphrase.iter().flat_map(|path| [PathBuf::from("--c4gh-passphrase"), path.clone()]))
            .collect()
    }
}

impl RecipientArgs {
    /// Reads the public keys of the recipients of encrypted outputs.
    pub fn read_keys(&self) -> Result<Vec<PublicKey>, Failure> {
        self.c4gh_recipient.iter().map(|path| PublicKey::read(path).map_err(|error| key_failure(&error))).collect()
    }
}

fn key_failure(error: &KeyError) -> Failure {
    let exit = match error {
        KeyError::Read { .. } => Exit::Machine,
        KeyError::Locked { .. } | KeyError::Passphrase { .. } => Exit::Usage,
        KeyError::NotAKey { .. } | KeyError::Method { .. } => Exit::Input,
    };
    Failure::new(exit, message_with_causes(error))
}
