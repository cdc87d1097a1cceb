//! Identifiers of sessions, fetches and relayed copies.

use crate::error::TransferError;

/// Returns a random name that cannot be guessed.
pub(crate) fn random_id() -> Result<String, TransferError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| TransferError::Internal { problem: format!("cannot generate random numbers: {error}") })?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}
