//! A DNS server for the name of a pool (RFC 1035, RFC 3596). It returns the addresses of healthy members, starting with
//! the member that the load balancer assigns.
//!
//! The DNS server is for clients without support for pools, which find servers by a host name. The load balancer counts
//! each query as one client, like a lease, unless no member has an address of the queried type: resolvers query both types
//! for one client. Other names, query types except A, AAAA and ANY, zone transfers, and DNS over TCP are not supported.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;

use super::membership::Membership;

/// Size of the header of a DNS message.
const DNS_HEADER_BYTES: usize = 12;
/// Maximum size of a DNS message over UDP without extensions, bytes (RFC 1035 §4.2.1).
const MAX_DNS_MESSAGE_BYTES: usize = 512;
/// Maximum number of addresses in a response, which fits even with the longest name.
const MAX_ADDRESSES: usize = 8;
/// Time to live of a response, seconds. It is short because members start and stop.
const TTL_S: u32 = 1;

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

/// Answers queries for the name of the pool on a UDP socket, until the runtime ends.
pub async fn serve_dns(socket: UdpSocket, pool: Arc<Membership>) {
    let mut bytes = [0; MAX_DNS_MESSAGE_BYTES];
    loop {
        // Ignore errors: a DNS client repeats a query that was not answered.
        let Ok((count, client)) = socket.recv_from(&mut bytes).await else { continue };
        let answer = match DnsQuestion::parse(&bytes[..count], pool.name()) {
            Err(answer) => answer,
            Ok(question) => {
                let addresses = pool.lease_addresses(|address| question.accepts(address)).await;
                question.encode_response(&addresses)
            }
        };
        if !answer.is_empty() {
            let _ = socket.send_to(&answer, client).await;
        }
    }
}

/// A parsed DNS query for the name of the pool.
struct DnsQuestion<'q> {
    /// The header and the question section, as received.
    message: &'q [u8],
    record_type: u16,
}

impl<'q> DnsQuestion<'q> {
    /// Parses a DNS message. If the message is not a query for this name, the error contains the response to send; an
    /// empty response is not sent.
    fn parse(message: &'q [u8], name: &str) -> Result<Self, Vec<u8>> {
        let Some(header) = message.first_chunk::<DNS_HEADER_BYTES>() else { return Err(Vec::new()) };
        if header[2] & RESPONSE != 0 {
            return Err(Vec::new());
        }
        let questions = u16::from_be_bytes([header[4], header[5]]);
        if header[2] & OPCODE != 0 || questions != 1 {
            return Err(error_response(header, FORMAT_ERROR));
        }
        let Some((asked, rest)) = parse_name(&message[DNS_HEADER_BYTES..]) else {
            return Err(error_response(header, FORMAT_ERROR));
        };
        let Some(&[kind_high, kind_low, class_high, class_low]) = rest.first_chunk::<4>() else {
            return Err(error_response(header, FORMAT_ERROR));
        };
        let (record_type, class) =
            (u16::from_be_bytes([kind_high, kind_low]), u16::from_be_bytes([class_high, class_low]));
        if class != CLASS_IN || !asked.eq_ignore_ascii_case(name.trim_end_matches('.')) {
            return Err(error_response(header, REFUSED));
        }
        let end = message.len() - rest.len() + 4;
        Ok(Self { message: &message[..end], record_type })
    }

    /// Returns whether an address is of the requested record type.
    fn accepts(&self, address: &IpAddr) -> bool {
        match self.record_type {
            TYPE_ANY => true,
            kind => kind == if address.is_ipv4() { TYPE_A } else { TYPE_AAAA },
        }
    }

    /// Encodes the response with these addresses, in the given order.
    fn encode_response(&self, addresses: &[IpAddr]) -> Vec<u8> {
        let addresses = &addresses[..addresses.len().min(MAX_ADDRESSES)];
        let mut answer = self.message.to_vec();
        answer[2] = RESPONSE | AUTHORITATIVE | (answer[2] & RECURSION_DESIRED);
        answer[3] = 0;
        answer[6..DNS_HEADER_BYTES].copy_from_slice(&[0, addresses.len() as u8, 0, 0, 0, 0]);
        for address in addresses {
            let (kind, octets) = match address {
                IpAddr::V4(address) => (TYPE_A, address.octets().to_vec()),
                IpAddr::V6(address) => (TYPE_AAAA, address.octets().to_vec()),
            };
            // Refer to the name in the question section by a compression pointer (RFC 1035 §4.1.4).
            answer.extend([0xC0, DNS_HEADER_BYTES as u8]);
            answer.extend(kind.to_be_bytes());
            answer.extend(CLASS_IN.to_be_bytes());
            answer.extend(TTL_S.to_be_bytes());
            answer.extend((octets.len() as u16).to_be_bytes());
            answer.extend(octets);
        }
        answer
    }
}

/// Encodes an error response, which consists of a header only.
fn error_response(header: &[u8; DNS_HEADER_BYTES], code: u8) -> Vec<u8> {
    let flags = RESPONSE | (header[2] & (OPCODE | RECURSION_DESIRED));
    [&header[..2], &[flags, code], &[0; 8]].concat()
}

/// Parses a DNS name without compression. Returns the labels joined by dots, and the bytes after the name.
fn parse_name(mut bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut name = String::new();
    loop {
        let (&count, rest) = bytes.split_first()?;
        if count == 0 {
            return Some((name, rest));
        }
        // Reject label lengths over 63, which mark a compression pointer; queries contain none.
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
    fn addresses_are_returned_in_order_by_their_type() {
        let addresses: Vec<IpAddr> = ["10.0.0.2", "2001:db8::1", "10.0.0.1"].map(|text| text.parse().unwrap()).to_vec();
        let count_and_records = |kind| {
            let asked = question("Storage.Example", kind);
            let question = DnsQuestion::parse(&asked, "storage.example").ok().unwrap();
            let accepted: Vec<IpAddr> = addresses.iter().copied().filter(|ip| question.accepts(ip)).collect();
            let answer = question.encode_response(&accepted);
            assert_eq!((&answer[..2], answer[2] & RESPONSE, answer[3]), (&asked[..2], RESPONSE, 0));
            (answer[7], answer[asked.len()..].to_vec())
        };
        let (count, records) = count_and_records(TYPE_A);
        assert_eq!((count, records.len()), (2, 2 * 16));
        assert_eq!((&records[12..16], &records[28..32]), (&[10, 0, 0, 2][..], &[10, 0, 0, 1][..]));
        assert_eq!(count_and_records(TYPE_AAAA).0, 1);
        assert_eq!(count_and_records(TYPE_ANY).0, 3);
        assert_eq!(count_and_records(16), (0, Vec::new()), "text: there is none");
    }

    #[test]
    fn other_names_are_rejected_and_responses_are_ignored() {
        let code = |message: &[u8]| DnsQuestion::parse(message, "storage").err().map(|answer| answer.get(3).copied());
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
    fn no_message_causes_a_panic() {
        let whole = question("storage", TYPE_A);
        for at in 0..whole.len() {
            for value in [0, 1, 63, 64, 0xC0, 0xFF] {
                let mut message = whole.clone();
                message[at] = value;
                for end in 0..=message.len() {
                    let _ =
                        DnsQuestion::parse(&message[..end], "storage").map(|question| question.encode_response(&[]));
                }
            }
        }
    }
}
