//! The header of an encrypted file: packets, each of which is encrypted for one recipient and contains a data key or an
//! edit list (Crypt4GH 1.0 §2.2 and §3.2).

use std::io;

use super::error::Crypt4ghError;
use super::keys::{PublicKey, SecretKey};
use super::{MAGIC, NONCE_BYTES, SEGMENT_OVERHEAD_BYTES, cipher_for_key, open_in_place, seal};
use crate::random_access::RandomAccess;

const VERSION: u32 = 1;
/// Bytes of the header before the first packet: magic number, version and number of packets.
const HEADER_START_BYTES: usize = 16;
/// Bytes of a packet before its encrypted content: length, method, and the public key of the writer.
const PACKET_START_BYTES: usize = 4 + 4 + 32;
/// Method number: in packets, X25519 and ChaCha20-Poly1305; for data, ChaCha20-Poly1305.
const METHOD_CHACHA20_POLY1305: u32 = 0;
/// Type of a packet with a data key.
const PACKET_DATA_ENCRYPTION: u32 = 0;
/// Type of a packet with an edit list.
const PACKET_EDIT_LIST: u32 = 1;
/// Limits of the number of packets and of the bytes of a packet. They are far above the values in use, and low enough
/// for the memory.
const MAX_PACKETS: u32 = 10_000;
const MAX_PACKET_BYTES: u32 = 16 << 20;

/// The content of the header packets that the given secret keys decrypt.
#[derive(Debug)]
pub(super) struct Header {
    /// Data keys, with one of which each segment is encrypted.
    pub(super) data_keys: Vec<[u8; 32]>,
    /// Edit list: numbers of bytes to skip and of bytes to show, alternating; `None` if all data is visible.
    pub(super) edit_list: Option<Vec<u64>>,
    /// Offset in the encrypted file at which the first segment begins.
    pub(super) data_offset: u64,
}

impl Header {
    /// Reads the header of an encrypted file and decrypts its packets with the given keys.
    pub(super) fn read(source: &dyn RandomAccess, secrets: &[SecretKey]) -> io::Result<Self> {
        let mut start = [0; HEADER_START_BYTES];
        let count = source.read_at(&mut start, 0)?;
        if !start[..count].starts_with(MAGIC) {
            return Err(Crypt4ghError::NotEncrypted.into());
        }
        let short = || io::Error::from(Crypt4ghError::Header { problem: "it is truncated" });
        if count < HEADER_START_BYTES {
            return Err(short());
        }
        let version = parse_u32(&start[8..]);
        if version != VERSION {
            return Err(Crypt4ghError::Version { version }.into());
        }
        let packets = parse_u32(&start[12..]);
        if packets > MAX_PACKETS {
            return Err(Crypt4ghError::Header { problem: "it has more than 10,000 packets" }.into());
        }
        if secrets.is_empty() {
            return Err(Crypt4ghError::NoKey.into());
        }
        let mut header = Self { data_keys: Vec::new(), edit_list: None, data_offset: HEADER_START_BYTES as u64 };
        for _ in 0..packets {
            let mut length = [0; 4];
            if source.read_at(&mut length, header.data_offset)? < length.len() {
                return Err(short());
            }
            let length = u32::from_le_bytes(length);
            if length > MAX_PACKET_BYTES || (length as usize) < PACKET_START_BYTES + SEGMENT_OVERHEAD_BYTES {
                return Err(Crypt4ghError::Header { problem: "a packet has an impossible length" }.into());
            }
            let mut packet = vec![0; length as usize];
            if source.read_at(&mut packet, header.data_offset)? < packet.len() {
                return Err(short());
            }
            header.data_offset += u64::from(length);
            header.apply_packet(&packet, secrets)?;
        }
        if header.data_keys.is_empty() {
            return Err(Crypt4ghError::NoMatchingKey.into());
        }
        Ok(header)
    }

    /// Decrypts a packet and stores its content, if one of the keys decrypts it; otherwise ignores the packet.
    fn apply_packet(&mut self, packet: &[u8], secrets: &[SecretKey]) -> Result<(), Crypt4ghError> {
        let Some(text) = secrets.iter().find_map(|secret| decrypt_packet(packet, secret)) else { return Ok(()) };
        let malformed = |problem| Crypt4ghError::Header { problem };
        let (kind, rest) = text.split_at_checked(4).ok_or(malformed("a packet is empty"))?;
        match parse_u32(kind) {
            PACKET_DATA_ENCRYPTION => {
                let key =
                    rest.strip_prefix(&METHOD_CHACHA20_POLY1305.to_le_bytes()).and_then(|key| key.try_into().ok());
                self.data_keys.push(key.ok_or(malformed("its data encryption method is not part of version 1"))?);
            }
            PACKET_EDIT_LIST if self.edit_list.is_some() => return Err(malformed("it has two edit lists")),
            PACKET_EDIT_LIST => {
                let (count, lengths) = rest.split_at_checked(4).ok_or(malformed("its edit list is truncated"))?;
                let lengths: Vec<u64> =
                    lengths.as_chunks::<8>().0.iter().map(|length| u64::from_le_bytes(*length)).collect();
                if lengths.len() != parse_u32(count) as usize || lengths.is_empty() {
                    return Err(malformed("its edit list differs from its length"));
                }
                self.edit_list = Some(lengths);
            }
            _ => return Err(malformed("a packet has a type that is not part of version 1")),
        }
        Ok(())
    }
}

/// Returns the decrypted content of a packet, or `None` if it is encrypted for another key.
fn decrypt_packet(packet: &[u8], secret: &SecretKey) -> Option<Vec<u8>> {
    let (start, sealed) = packet.split_at(PACKET_START_BYTES);
    if parse_u32(&start[4..]) != METHOD_CHACHA20_POLY1305 {
        return None;
    }
    let writer = PublicKey(*start.last_chunk()?);
    let mut sealed = sealed.to_vec();
    let length = open_in_place(&cipher_for_key(&secret.session_key_from_writer(&writer)?), &mut sealed)?.len();
    Some(sealed[NONCE_BYTES..NONCE_BYTES + length].to_vec())
}

/// Returns the header of a file with this data key, encrypted for the given recipients.
pub(super) fn encode_header(key: &[u8; 32], readers: &[PublicKey]) -> io::Result<Vec<u8>> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(readers.len() as u32).to_le_bytes());
    let text = [&PACKET_DATA_ENCRYPTION.to_le_bytes()[..], &METHOD_CHACHA20_POLY1305.to_le_bytes(), key].concat();
    for reader in readers {
        let writer = SecretKey::random()?;
        let refused = || io::Error::new(io::ErrorKind::InvalidInput, "a public key is invalid (of low order)");
        let shared = writer.session_key_for_reader(reader).ok_or_else(refused)?;
        let length = PACKET_START_BYTES + SEGMENT_OVERHEAD_BYTES + text.len();
        header.extend_from_slice(&(length as u32).to_le_bytes());
        header.extend_from_slice(&METHOD_CHACHA20_POLY1305.to_le_bytes());
        header.extend_from_slice(&writer.public_key().0);
        seal(&cipher_for_key(&shared), &text, &mut header)?;
    }
    Ok(header)
}

fn parse_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
