//! Keys, and the files they are kept in: those that `crypt4gh-keygen` makes.
//!
//! A file has a line before and a line behind base64. Of a public key that is 32 bytes; of a secret key it is `c4gh-v1` and strings, each
//! behind its length: how the key of the lock is made, of what (rounds and salt), how it locks, and what it locks.

use std::fmt;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake2::{Blake2b512, Digest as _};
use curve25519_dalek::MontgomeryPoint;
use ring::pbkdf2;

use super::error::KeyError;
use super::{cipher, opened};

/// First bytes of a secret key.
const MAGIC: &[u8] = b"c4gh-v1";
/// What a key that is not locked says in place of a method.
const NONE: &[u8] = b"none";
/// log2 of the cost, block size and parallelism of scrypt, which keys do not say (as `crypt4gh-keygen` has them).
const SCRYPT: (u8, u32, u32) = (14, 8, 1);
/// Most rounds of PBKDF2 that are gone through: a hundred times what is usual.
const MOST_ROUNDS: u32 = 10_000_000;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub(super) [u8; 32]);

/// What opens files that were encrypted for its public key.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretKey(..)")
    }
}

impl PublicKey {
    /// Reads a key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let not_a_key = || KeyError::NotAKey { path: path.to_owned(), wanted: "public" };
        let bytes = armored(path, "PUBLIC")?.ok_or_else(not_a_key)?;
        bytes.try_into().map(Self).map_err(|_| not_a_key())
    }

    /// The key in hexadecimal digits.
    pub fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl SecretKey {
    /// Reads a key; the passphrase unlocks it where it is locked.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path, passphrase: Option<&[u8]>) -> Result<Self, KeyError> {
        let not_a_key = || KeyError::NotAKey { path: path.to_owned(), wanted: "secret" };
        let bytes = armored(path, "PRIVATE")?.ok_or_else(not_a_key)?;
        let mut rest = bytes.strip_prefix(MAGIC).ok_or_else(not_a_key)?;
        let kdf = string(&mut rest).ok_or_else(not_a_key)?;
        let options = if kdf == NONE { &[] } else { string(&mut rest).ok_or_else(not_a_key)? };
        let method = string(&mut rest).ok_or_else(not_a_key)?;
        let locked = string(&mut rest).ok_or_else(not_a_key)?;
        if kdf == NONE && method == NONE {
            return locked.try_into().map(Self).map_err(|_| not_a_key());
        }
        let unknown = |method: &[u8]| KeyError::Method {
            path: path.to_owned(),
            method: String::from_utf8_lossy(method).into_owned(),
        };
        if method != b"chacha20_poly1305" {
            return Err(unknown(method));
        }
        let (rounds, salt) = options.split_first_chunk::<4>().ok_or_else(not_a_key)?;
        if kdf != b"scrypt" && kdf != b"pbkdf2_hmac_sha256" {
            return Err(unknown(kdf));
        }
        let passphrase = passphrase.ok_or_else(|| KeyError::Locked { path: path.to_owned() })?;
        let key = match kdf {
            b"scrypt" => by_scrypt(passphrase, salt),
            _ => by_pbkdf2(passphrase, salt, u32::from_be_bytes(*rounds)).ok_or_else(not_a_key)?,
        };
        let mut locked = locked.to_vec();
        let secret = opened(&cipher(&key), &mut locked).and_then(|secret| (&*secret).try_into().ok());
        secret.map(Self).ok_or_else(|| KeyError::Passphrase { path: path.to_owned() })
    }

    /// A key that is used once.
    pub(super) fn random() -> std::io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(std::io::Error::other)?;
        Ok(Self(secret))
    }

    /// What others encrypt with.
    pub fn public(&self) -> PublicKey {
        PublicKey(MontgomeryPoint::mul_base_clamped(self.0).to_bytes())
    }

    /// The key that a writer, who has this one, shares with a reader (libsodium's `crypto_kx`, the server's sending key).
    pub(super) fn shared_with_reader(&self, reader: &PublicKey) -> Option<[u8; 32]> {
        self.shared(reader, reader, &self.public())
    }

    /// The key that a reader, who has this one, shares with a writer.
    pub(super) fn shared_with_writer(&self, writer: &PublicKey) -> Option<[u8; 32]> {
        self.shared(writer, &self.public(), writer)
    }

    /// `None` for a public key that shares the same with everybody, which nobody makes by honest means.
    fn shared(&self, other: &PublicKey, reader: &PublicKey, writer: &PublicKey) -> Option<[u8; 32]> {
        let shared = MontgomeryPoint(other.0).mul_clamped(self.0).to_bytes();
        if shared == [0; 32] {
            return None;
        }
        let digest = Blake2b512::new().chain_update(shared).chain_update(reader.0).chain_update(writer.0).finalize();
        digest.first_chunk::<32>().copied()
    }
}

fn by_scrypt(passphrase: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let (log_n, r, p) = SCRYPT;
    let costs = scrypt::Params::new(log_n, r, p, key.len()).expect("these costs are within scrypt's bounds");
    scrypt::scrypt(passphrase, salt, &costs, &mut key).expect("scrypt makes keys of 32 bytes");
    key
}

fn by_pbkdf2(passphrase: &[u8], salt: &[u8], rounds: u32) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= MOST_ROUNDS)?;
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, passphrase, &mut key);
    Some(key)
}

/// The bytes between the lines of a key of a kind; `None` where it is none.
fn armored(path: &Path, kind: &str) -> Result<Option<Vec<u8>>, KeyError> {
    let read = fs::read(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&read);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let [first, between @ .., last] = &lines[..] else { return Ok(None) };
    let is_it = *first == format!("-----BEGIN CRYPT4GH {kind} KEY-----")
        && *last == format!("-----END CRYPT4GH {kind} KEY-----");
    Ok(if is_it { STANDARD.decode(between.concat()).ok() } else { None })
}

/// The next string, behind its length in two bytes.
fn string<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, behind) = rest.split_first_chunk::<2>()?;
    let (found, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *rest = behind;
    Some(found)
}
