//! The header: packets, each for one reader, of the data's keys and of edits (Crypt4GH 1.0 §2.2 and §3.2).

use std::io;

use super::error::Crypt4ghError;
use super::keys::{PublicKey, SecretKey};
use super::{MAGIC, NONCE_BYTES, OVERHEAD_BYTES, cipher, opened, seal};
use crate::random_access::RandomAccess;

const VERSION: u32 = 1;
/// Magic, version and number of packets.
const START_BYTES: usize = 16;
/// Length, method, and the writer's public key.
const PACKET_START_BYTES: usize = 4 + 4 + 32;
/// X25519 and ChaCha20-Poly1305, of packets; ChaCha20-Poly1305, of data.
const METHOD: u32 = 0;
/// A packet with a key of the data.
const DATA_KEY: u32 = 0;
/// A packet with edits.
const EDITS: u32 = 1;
/// Most packets, and bytes of one: far beyond what is in use, and little enough to be held.
const MOST_PACKETS: u32 = 10_000;
const MOST_PACKET_BYTES: u32 = 16 << 20;

/// What the header says to who has a key.
#[derive(Debug)]
pub(super) struct Header {
    /// Keys of the data; each segment is of one of them.
    pub(super) keys: Vec<[u8; 32]>,
    /// Bytes that are left out and shown, in turns.
    pub(super) edits: Option<Vec<u64>>,
    /// Where the data begins.
    pub(super) bytes: u64,
}

impl Header {
    /// Reads the header of a file.
    pub(super) fn read(source: &dyn RandomAccess, secrets: &[SecretKey]) -> io::Result<Self> {
        let mut start = [0; START_BYTES];
        let count = source.read_at(&mut start, 0)?;
        if !start[..count].starts_with(MAGIC) {
            return Err(Crypt4ghError::NotEncrypted.into());
        }
        let short = || io::Error::from(Crypt4ghError::Header { problem: "it is cut short" });
        if count < START_BYTES {
            return Err(short());
        }
        let version = number(&start[8..]);
        if version != VERSION {
            return Err(Crypt4ghError::Version { version }.into());
        }
        let packets = number(&start[12..]);
        if packets > MOST_PACKETS {
            return Err(Crypt4ghError::Header { problem: "it has more than 10,000 packets" }.into());
        }
        if secrets.is_empty() {
            return Err(Crypt4ghError::NoKey.into());
        }
        let mut header = Self { keys: Vec::new(), edits: None, bytes: START_BYTES as u64 };
        for _ in 0..packets {
            let mut length = [0; 4];
            if source.read_at(&mut length, header.bytes)? < length.len() {
                return Err(short());
            }
            let length = u32::from_le_bytes(length);
            if length > MOST_PACKET_BYTES || (length as usize) < PACKET_START_BYTES + OVERHEAD_BYTES {
                return Err(Crypt4ghError::Header { problem: "a packet has a length that cannot be" }.into());
            }
            let mut packet = vec![0; length as usize];
            if source.read_at(&mut packet, header.bytes)? < packet.len() {
                return Err(short());
            }
            header.bytes += u64::from(length);
            header.take(&packet, secrets)?;
        }
        if header.keys.is_empty() {
            return Err(Crypt4ghError::ForOthers.into());
        }
        Ok(header)
    }

    /// Takes what a packet says, where it is for one of these keys.
    fn take(&mut self, packet: &[u8], secrets: &[SecretKey]) -> Result<(), Crypt4ghError> {
        let Some(text) = secrets.iter().find_map(|secret| decrypted(packet, secret)) else { return Ok(()) };
        let malformed = |problem| Crypt4ghError::Header { problem };
        let (kind, rest) = text.split_at_checked(4).ok_or(malformed("a packet is empty"))?;
        match number(kind) {
            DATA_KEY => {
                let key = rest.strip_prefix(&METHOD.to_le_bytes()).and_then(|key| key.try_into().ok());
                self.keys.push(key.ok_or(malformed("its data is encrypted in a way that version 1 does not have"))?);
            }
            EDITS if self.edits.is_some() => return Err(malformed("it has two lists of edits")),
            EDITS => {
                let (count, lengths) = rest.split_at_checked(4).ok_or(malformed("its list of edits is cut short"))?;
                let lengths: Vec<u64> =
                    lengths.as_chunks::<8>().0.iter().map(|length| u64::from_le_bytes(*length)).collect();
                if lengths.len() != number(count) as usize || lengths.is_empty() {
                    return Err(malformed("its list of edits has another length than it says"));
                }
                self.edits = Some(lengths);
            }
            _ => return Err(malformed("a packet is of a kind that version 1 does not have")),
        }
        Ok(())
    }
}

/// What a packet says to who has a key; `None` where it is for somebody else.
fn decrypted(packet: &[u8], secret: &SecretKey) -> Option<Vec<u8>> {
    let (start, sealed) = packet.split_at(PACKET_START_BYTES);
    if number(&start[4..]) != METHOD {
        return None;
    }
    let writer = PublicKey(*start.last_chunk()?);
    let mut sealed = sealed.to_vec();
    let length = opened(&cipher(&secret.shared_with_writer(&writer)?), &mut sealed)?.len();
    Some(sealed[NONCE_BYTES..NONCE_BYTES + length].to_vec())
}

/// The header of a file whose data has a key, for some readers.
pub(super) fn written(key: &[u8; 32], readers: &[PublicKey]) -> io::Result<Vec<u8>> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(readers.len() as u32).to_le_bytes());
    let text = [&DATA_KEY.to_le_bytes()[..], &METHOD.to_le_bytes(), key].concat();
    for reader in readers {
        let writer = SecretKey::random()?;
        let refused = || io::Error::new(io::ErrorKind::InvalidInput, "a public key is none that anybody can have made");
        let shared = writer.shared_with_reader(reader).ok_or_else(refused)?;
        let length = PACKET_START_BYTES + OVERHEAD_BYTES + text.len();
        header.extend_from_slice(&(length as u32).to_le_bytes());
        header.extend_from_slice(&METHOD.to_le_bytes());
        header.extend_from_slice(&writer.public().0);
        seal(&cipher(&shared), &text, &mut header)?;
    }
    Ok(header)
}

fn number(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
