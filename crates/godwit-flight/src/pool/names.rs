//! Answers for the name of a pool: the addresses of its nodes that are there, the one that is to be used first (RFC 1035, RFC 3596).
//!
//! For clients that know nothing of pools and find servers by name. Each question counts as a client, as a grant does. Nothing else is
//! answered: no other name, no other type, no transfers, nothing over TCP.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;

use super::membership::Membership;
use super::picker::GrantId;
use crate::sql::random_bytes;

/// Of a header.
const HEADER_BYTES: usize = 12;
/// Of a question that is read, and of an answer without extensions (RFC 1035 §4.2.1).
const MESSAGE_BYTES: usize = 512;
/// Addresses of an answer: as many as fit whatever the name is.
const MOST_ADDRESSES: usize = 8;
/// How long an answer may be kept, seconds: nodes come and go.
const KEPT_S: u32 = 1;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const TYPE_ANY: u16 = 255;
const CLASS_IN: u16 = 1;
const RESPONSE: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const RECURSION_DESIRED: u8 = 0x01;
const OPCODE: u8 = 0x78;
const FORMAT_ERROR: u8 = 1;
const REFUSED: u8 = 5;

/// Answers questions for the pool's name that come to a socket, until the runtime ends.
pub async fn answer_names(socket: UdpSocket, pool: Arc<Membership>) {
    let mut bytes = [0; MESSAGE_BYTES];
    loop {
        // What cannot be received or sent is asked again by whoever asked.
        let Ok((count, asker)) = socket.recv_from(&mut bytes).await else { continue };
        let answer = match Question::read(&bytes[..count], pool.name()) {
            Err(answer) => answer,
            Ok(question) => {
                let addresses = pool.addresses_for(GrantId::from_le_bytes(random_bytes())).await;
                question.answer(&addresses)
            }
        };
        if !answer.is_empty() {
            let _ = socket.send_to(&answer, asker).await;
        }
    }
}

/// A question for the pool's name.
struct Question<'q> {
    /// The header and the question, as they came.
    asked: &'q [u8],
    kind: u16,
}

impl<'q> Question<'q> {
    /// Reads a message; where it is no question for this name, what is to be said, which is nothing for an answer.
    fn read(message: &'q [u8], name: &str) -> Result<Self, Vec<u8>> {
        let Some(header) = message.first_chunk::<HEADER_BYTES>() else { return Err(Vec::new()) };
        if header[2] & RESPONSE != 0 {
            return Err(Vec::new());
        }
        let questions = u16::from_be_bytes([header[4], header[5]]);
        if header[2] & OPCODE != 0 || questions != 1 {
            return Err(refusal(header, FORMAT_ERROR));
        }
        let Some((asked, rest)) = name_at(&message[HEADER_BYTES..]) else { return Err(refusal(header, FORMAT_ERROR)) };
        let Some(&[kind_high, kind_low, class_high, class_low]) = rest.first_chunk::<4>() else {
            return Err(refusal(header, FORMAT_ERROR));
        };
        let (kind, class) = (u16::from_be_bytes([kind_high, kind_low]), u16::from_be_bytes([class_high, class_low]));
        if class != CLASS_IN || !asked.eq_ignore_ascii_case(name.trim_end_matches('.')) {
            return Err(refusal(header, REFUSED));
        }
        let end = message.len() - rest.len() + 4;
        Ok(Self { asked: &message[..end], kind })
    }

    /// The answer with these addresses that are of the type that was asked for, in this order.
    fn answer(&self, addresses: &[IpAddr]) -> Vec<u8> {
        let wanted = |address: &&IpAddr| match self.kind {
            TYPE_ANY => true,
            kind => kind == if address.is_ipv4() { TYPE_A } else { TYPE_AAAA },
        };
        let addresses: Vec<&IpAddr> = addresses.iter().filter(wanted).take(MOST_ADDRESSES).collect();
        let mut answer = self.asked.to_vec();
        answer[2] = RESPONSE | AUTHORITATIVE | (answer[2] & RECURSION_DESIRED);
        answer[3] = 0;
        answer[6..HEADER_BYTES].copy_from_slice(&[0, addresses.len() as u8, 0, 0, 0, 0]);
        for address in addresses {
            let (kind, octets) = match address {
                IpAddr::V4(address) => (TYPE_A, address.octets().to_vec()),
                IpAddr::V6(address) => (TYPE_AAAA, address.octets().to_vec()),
            };
            // The name is the one that was asked for (RFC 1035 §4.1.4).
            answer.extend([0xC0, HEADER_BYTES as u8]);
            answer.extend(kind.to_be_bytes());
            answer.extend(CLASS_IN.to_be_bytes());
            answer.extend(KEPT_S.to_be_bytes());
            answer.extend((octets.len() as u16).to_be_bytes());
            answer.extend(octets);
        }
        answer
    }
}

/// A header that says why there is no answer.
fn refusal(header: &[u8; HEADER_BYTES], code: u8) -> Vec<u8> {
    let flags = RESPONSE | (header[2] & (OPCODE | RECURSION_DESIRED));
    [&header[..2], &[flags, code], &[0; 8]].concat()
}

/// A name without compression, its labels joined by points, and what is behind it.
fn name_at(mut bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut name = String::new();
    loop {
        let (&count, rest) = bytes.split_first()?;
        if count == 0 {
            return Some((name, rest));
        }
        // Over 63 it would be a pointer, which questions have none of.
        if count > 63 || name.len() > 255 {
            return None;
        }
        let (label, rest) = rest.split_at_checked(count.into())?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(std::str::from_utf8(label).ok()?);
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xAB, 0xCD, RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        message
    }

    #[test]
    fn addresses_are_told_in_order_by_their_type() {
        let addresses: Vec<IpAddr> = ["10.0.0.2", "2001:db8::1", "10.0.0.1"].map(|text| text.parse().unwrap()).to_vec();
        let told = |kind| {
            let asked = question("Storage.Example", kind);
            let answer = Question::read(&asked, "storage.example").ok().unwrap().answer(&addresses);
            assert_eq!((&answer[..2], answer[2] & RESPONSE, answer[3]), (&asked[..2], RESPONSE, 0));
            (answer[7], answer[asked.len()..].to_vec())
        };
        let (count, records) = told(TYPE_A);
        assert_eq!((count, records.len()), (2, 2 * 16));
        assert_eq!((&records[12..16], &records[28..32]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
        assert_eq!(told(TYPE_AAAA).0, 1);
        assert_eq!(told(TYPE_ANY).0, 3);
        assert_eq!(told(16), (0, Vec::new()), "text: there is none");
    }

    #[test]
    fn other_names_are_refused_and_answers_are_not_answered() {
        let code = |message: &[u8]| Question::read(message, "storage").err().map(|answer| answer.get(3).copied());
        assert_eq!(code(&question("other", TYPE_A)), Some(Some(REFUSED)));
        let mut many = question("storage", TYPE_A);
        many[5] = 2;
        assert_eq!(code(&many), Some(Some(FORMAT_ERROR)));
        let mut answer = question("storage", TYPE_A);
        answer[2] |= RESPONSE;
        assert_eq!(code(&answer), Some(None));
        assert_eq!(code(b"short"), Some(None));
    }

    #[test]
    fn whatever_comes_is_no_panic() {
        let whole = question("storage", TYPE_A);
        for at in 0..whole.len() {
            for value in [0, 1, 63, 64, 0xC0, 0xFF] {
                let mut message = whole.clone();
                message[at] = value;
                for end in 0..=message.len() {
                    let _ = Question::read(&message[..end], "storage").map(|question| question.answer(&[]));
                }
            }
        }
    }
}
