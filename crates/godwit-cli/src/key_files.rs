//! Reads the Crypt4GH keys that the command line names; verbs do this before they open any input.

use godwit_io::crypt4gh::{KeyError, PublicKey, load_process_keys};
use godwit_model::message_with_causes;

use crate::cli::{KeyArgs, RecipientArgs};
use crate::failure::Failure;
use godwit_model::ErrorKind;

impl KeyArgs {
    /// Reads the secret keys, with which this process decrypts files from now on.
    pub fn load_keys(&self) -> Result<(), Failure> {
        load_process_keys(&self.c4gh_key, self.c4gh_passphrase.as_deref()).map_err(|error| key_failure(&error))
    }
}

impl RecipientArgs {
    /// Reads the public keys of the recipients of encrypted outputs.
    pub fn read_keys(&self) -> Result<Vec<PublicKey>, Failure> {
        self.c4gh_recipient.iter().map(|path| PublicKey::read(path).map_err(|error| key_failure(&error))).collect()
    }
}

fn key_failure(error: &KeyError) -> Failure {
    let kind = match error {
        KeyError::Read { .. } => ErrorKind::Machine,
        KeyError::Locked { .. } | KeyError::Passphrase { .. } => ErrorKind::Usage,
        KeyError::NotAKey { .. } | KeyError::Method { .. } => ErrorKind::Input,
    };
    Failure::new(kind, message_with_causes(error))
}
