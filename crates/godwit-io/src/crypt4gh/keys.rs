//! Public and secret keys, and the key files that `crypt4gh-keygen` creates.
//!
//! A key file is base64 text between a begin line and an end line. A public key consists of 32 bytes. A secret key
//! consists of `c4gh-v1` and five strings, each preceded by its length: the key derivation function, its rounds and
//! salt, the cipher, and the encrypted key.

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
use super::{cipher_for_key, open_in_place};

/// First bytes of a secret key, after base64 decoding.
const SECRET_KEY_MAGIC: &[u8] = b"c4gh-v1";
/// Name of the key derivation function and of the cipher of a secret key that is not encrypted.
const KDF_NONE: &[u8] = b"none";
/// Parameters of scrypt, which key files do not contain: log2 of the cost, block size and parallelism (the values of
/// `crypt4gh-keygen`).
const SCRYPT_PARAMS: (u8, u32, u32) = (14, 8, 1);
/// Maximum rounds of PBKDF2: a hundred times the usual number of rounds.
const MAX_PBKDF2_ROUNDS: u32 = 10_000_000;

/// A public key, for which files can be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub(super) [u8; 32]);

/// A secret key, which decrypts the files encrypted for its public key.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretKey(..)")
    }
}

impl PublicKey {
    /// Reads a public key from a key file.
    ///
    /// # Errors
    /// [`KeyError`] if the file cannot be read or is not a public key.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::crypt4gh::PublicKey;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("key.pub");
    /// let (kind, key) = ("CRYPT4GH PUBLIC KEY", "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=");
    /// std::fs::write(&path, format!("-----BEGIN {kind}-----\n{key}\n-----END {kind}-----\n"))?;
    /// let hexadecimal = "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f";
    /// assert_eq!(PublicKey::read(&path)?.to_hex(), hexadecimal);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let not_a_key = || KeyError::NotAKey { path: path.to_owned(), expected: "public" };
        let bytes = read_armored(path, "PUBLIC")?.ok_or_else(not_a_key)?;
        bytes.try_into().map(Self).map_err(|_| not_a_key())
    }

    /// Returns the key in hexadecimal digits.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl SecretKey {
    /// Reads a secret key from a key file. If the key is encrypted, the passphrase decrypts it.
    ///
    /// # Errors
    /// [`KeyError`] if the file cannot be read, is not a secret key, or cannot be decrypted with the passphrase.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::crypt4gh::SecretKey;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("key.sec");
    /// // A key that is not locked: its bytes are 0 to 31.
    /// let kind = "CRYPT4GH PRIVATE KEY";
    /// let key = "YzRnaC12MQAEbm9uZQAEbm9uZQAgAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    /// std::fs::write(&path, format!("-----BEGIN {kind}-----\n{key}\n-----END {kind}-----\n"))?;
    /// let secret = SecretKey::read(&path, None)?;
    /// let public_key = "8f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285f";
    /// assert_eq!(secret.public_key().to_hex(), public_key);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(path: &Path, passphrase: Option<&[u8]>) -> Result<Self, KeyError> {
        let not_a_key = || KeyError::NotAKey { path: path.to_owned(), expected: "secret" };
        let bytes = read_armored(path, "PRIVATE")?.ok_or_else(not_a_key)?;
        let mut rest = bytes.strip_prefix(SECRET_KEY_MAGIC).ok_or_else(not_a_key)?;
        let kdf = take_string(&mut rest).ok_or_else(not_a_key)?;
        let options = if kdf == KDF_NONE { &[] } else { take_string(&mut rest).ok_or_else(not_a_key)? };
        let method = take_string(&mut rest).ok_or_else(not_a_key)?;
        let locked = take_string(&mut rest).ok_or_else(not_a_key)?;
        if kdf == KDF_NONE && method == KDF_NONE {
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
            b"scrypt" => derive_scrypt_key(passphrase, salt),
            _ => derive_pbkdf2_key(passphrase, salt, u32::from_be_bytes(*rounds)).ok_or_else(not_a_key)?,
        };
        let mut locked = locked.to_vec();
        let secret = open_in_place(&cipher_for_key(&key), &mut locked).and_then(|secret| (&*secret).try_into().ok());
        secret.map(Self).ok_or_else(|| KeyError::Passphrase { path: path.to_owned() })
    }

    /// Creates a random secret key for one use.
    pub(super) fn random() -> std::io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(std::io::Error::other)?;
        Ok(Self(secret))
    }

    /// Returns the public key that belongs to this secret key.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(MontgomeryPoint::mul_base_clamped(self.0).to_bytes())
    }

    /// Returns the key with which a writer that has this secret key encrypts for `reader` (libsodium's `crypto_kx`,
    /// sending key of the server).
    pub(super) fn session_key_for_reader(&self, reader: &PublicKey) -> Option<[u8; 32]> {
        self.session_key(reader, reader, &self.public_key())
    }

    /// Returns the key with which a reader that has this secret key decrypts what `writer` encrypted.
    pub(super) fn session_key_from_writer(&self, writer: &PublicKey) -> Option<[u8; 32]> {
        self.session_key(writer, &self.public_key(), writer)
    }

    /// Returns the session key of a writer and a reader, one of which has this secret key. Returns `None` if the other
    /// public key is of low order, which gives the same shared secret with every key.
    fn session_key(&self, other: &PublicKey, reader: &PublicKey, writer: &PublicKey) -> Option<[u8; 32]> {
        let shared = MontgomeryPoint(other.0).mul_clamped(self.0).to_bytes();
        if shared == [0; 32] {
            return None;
        }
        let digest = Blake2b512::new().chain_update(shared).chain_update(reader.0).chain_update(writer.0).finalize();
        digest.first_chunk::<32>().copied()
    }
}

fn derive_scrypt_key(passphrase: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let (log_n, r, p) = SCRYPT_PARAMS;
    let costs = scrypt::Params::new(log_n, r, p, key.len()).expect("these costs are within scrypt's bounds");
    scrypt::scrypt(passphrase, salt, &costs, &mut key).expect("scrypt makes keys of 32 bytes");
    key
}

fn derive_pbkdf2_key(passphrase: &[u8], salt: &[u8], rounds: u32) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let rounds = NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= MAX_PBKDF2_ROUNDS)?;
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, passphrase, &mut key);
    Some(key)
}

/// Returns the decoded bytes between the begin line and the end line of a key file. Returns `None` if the file is not a
/// key of this kind.
fn read_armored(path: &Path, kind: &str) -> Result<Option<Vec<u8>>, KeyError> {
    let read = fs::read(path).map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&read);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let [first, between @ .., last] = &lines[..] else { return Ok(None) };
    let is_it = *first == format!("-----BEGIN CRYPT4GH {kind} KEY-----")
        && *last == format!("-----END CRYPT4GH {kind} KEY-----");
    Ok(if is_it { STANDARD.decode(between.concat()).ok() } else { None })
}

/// Returns the next string, which is preceded by its length in two bytes.
fn take_string<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, behind) = rest.split_first_chunk::<2>()?;
    let (found, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *rest = behind;
    Some(found)
}
