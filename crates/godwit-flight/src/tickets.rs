//! Tickets: signed rights of a principal to data, for a limited time.
//!
//! A ticket contains everything that is needed to serve it, so that the server stores nothing, and any server with the same
//! key serves it. It is signed: it cannot be forged or changed. It is valid for one principal, until a time. It is not
//! encrypted: it contains only what the principal has requested itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use godwit_model::Region;
use prost::Message;
use tonic::{Code, Status};

use crate::auth::{Principal, Visa};
use crate::dataset::{Scan, ScanPart};
use crate::error_reason::ErrorReason;
use crate::sql::random_bytes;

/// Prefix of the tickets of this version.
const TICKET_PREFIX: &[u8] = b"gw1.";
const MAC_BYTES: usize = blake3::OUT_LEN;

/// The key that tickets are signed with.
#[derive(Clone)]
pub struct TicketKey([u8; blake3::KEY_LEN]);

impl std::fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

impl TicketKey {
    /// Derives a key from a secret of 32 or more random bytes.
    pub fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key("godwit 2026-11 tickets", secret))
    }

    /// Returns the MAC of bytes that are not a ticket; the prefix identifies their kind.
    pub(crate) fn mac(&self, prefix: &[u8], body: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0).update(prefix).update(body).finalize()
    }
}

/// The signed content of a ticket.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TicketClaims {
    /// Time of expiry, seconds since 1970.
    #[prost(uint64, tag = "1")]
    pub(crate) expires_unix_s: u64,
    #[prost(string, tag = "2")]
    pub(crate) principal: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) part: Option<DatasetPart>,
    /// Beside a part: the statement that it was requested by.
    #[prost(message, optional, tag = "4")]
    pub(crate) statement: Option<BoundStatement>,
    /// A Flight SQL command that requests metadata, as it was received.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) command: Vec<u8>,
    /// Its number, by which it is cancelled. A renewed ticket keeps it.
    #[prost(fixed64, tag = "6")]
    pub(crate) id: u64,
    /// A part of a file, for a client of plain HTTP.
    #[prost(message, optional, tag = "7")]
    pub(crate) file: Option<FilePart>,
    /// Beside a file part: the visas of the principal, which the client need not send again.
    #[prost(message, repeated, tag = "8")]
    pub(crate) visas: Vec<Visa>,
}

/// A part of a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FilePart {
    /// Name of the dataset that the file is.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the dataset.
    #[prost(fixed64, tag = "2")]
    pub version: u64,
    /// Start of the part: an offset, bytes; where `recompress_ends` is true, a virtual offset of BGZF (SAMv1 §4.1.1).
    #[prost(uint64, tag = "3")]
    pub start: u64,
    /// End of the part, in the same way.
    #[prost(uint64, tag = "4")]
    pub end: u64,
    /// True if the blocks at both ends are cut and compressed again.
    #[prost(bool, tag = "5")]
    pub recompress_ends: bool,
}

/// A part of a dataset.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DatasetPart {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(fixed64, tag = "2")]
    pub(crate) version: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) columns: Option<ColumnList>,
    #[prost(message, optional, tag = "4")]
    pub(crate) regions: Option<RegionList>,
    /// Starts and ends of ranges, alternating.
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) ranges: Vec<u64>,
    /// The output of the statement, where one requested the part.
    #[prost(message, optional, tag = "6")]
    pub(crate) output: Option<DirectScanOutput>,
}

/// The mapping from the rows that are read to the rows of a statement.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DirectScanOutput {
    /// For each column of the statement its 0-based index among those that are read.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) column_order: Vec<u64>,
    /// True if the part has all rows of the statement.
    #[prost(bool, tag = "2")]
    pub(crate) is_only_part: bool,
    /// Name of the column of the count, where only the number of rows is requested.
    #[prost(string, optional, tag = "3")]
    pub(crate) count_column: Option<String>,
}

/// A list that may be empty, which differs from an absent list.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ColumnList {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) indexes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RegionList {
    #[prost(string, repeated, tag = "1")]
    pub(crate) texts: Vec<String>,
}

/// A statement, with the values of its parameters as an Arrow IPC stream, where it has them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BoundStatement {
    #[prost(string, tag = "1")]
    pub(crate) sql: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) parameters: Vec<u8>,
}

impl DatasetPart {
    pub(crate) fn new(name: &str, version: u64, scan: &Scan, part: &ScanPart) -> Self {
        Self {
            name: name.to_owned(),
            version,
            columns: scan
                .columns
                .as_ref()
                .map(|columns| ColumnList { indexes: columns.iter().map(|at| *at as u64).collect() }),
            regions: scan
                .regions
                .as_ref()
                .map(|regions| RegionList { texts: regions.iter().map(ToString::to_string).collect() }),
            ranges: part.ranges.iter().flat_map(|(start, end)| [*start, *end]).collect(),
            output: None,
        }
    }

    pub(crate) fn to_scan(&self) -> Result<(Scan, ScanPart), Box<Status>> {
        let regions = self
            .regions
            .as_ref()
            .map(|regions| regions.texts.iter().map(|text| Region::parse(text, |_| None)).collect());
        let regions: Option<Result<Vec<Region>, _>> = regions;
        let regions = regions.transpose().map_err(|error| Box::new(Status::invalid_argument(error.to_string())))?;
        let columns = self.columns.as_ref().map(|columns| columns.indexes.iter().map(|at| *at as usize).collect());
        let ranges = self.ranges.as_chunks().0.iter().map(|[start, end]| (*start, *end)).collect();
        Ok((Scan { columns, regions }, ScanPart { ranges }))
    }
}

pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl TicketClaims {
    /// Creates claims of a principal that expire after `lifetime`.
    pub(crate) fn new(principal: &Principal, lifetime: Duration) -> Self {
        let expires_unix_s = now_unix_s().saturating_add(lifetime.as_secs());
        let id = u64::from_le_bytes(random_bytes());
        Self { expires_unix_s, principal: principal.name().to_owned(), id, ..Self::default() }
    }

    /// Encodes and signs a ticket.
    pub(crate) fn sign(&self, key: &TicketKey) -> Vec<u8> {
        let body = self.encode_to_vec();
        let mac = blake3::keyed_hash(&key.0, &body);
        [TICKET_PREFIX, mac.as_bytes(), &body].concat()
    }

    /// Reports whether bytes have the form of a ticket, whatever their signature.
    pub(crate) fn is_ticket(ticket: &[u8]) -> bool {
        ticket.starts_with(TICKET_PREFIX)
    }

    /// Returns the claims of a ticket that this key signed, without checking its principal and expiry.
    pub(crate) fn read_signed(ticket: &[u8], key: &TicketKey) -> Option<Self> {
        let (mac, body) = ticket.strip_prefix(TICKET_PREFIX)?.split_first_chunk::<MAC_BYTES>()?;
        // The type compares in constant time.
        let is_ours = blake3::keyed_hash(&key.0, body) == blake3::Hash::from_bytes(*mac);
        if is_ours { Self::decode(body).ok() } else { None }
    }

    /// Verifies a ticket: signature, principal and expiry.
    pub(crate) fn verify(ticket: &[u8], key: &TicketKey, principal: &Principal) -> Result<Self, Box<Status>> {
        let refused = |reason: ErrorReason, problem: &str| Box::new(reason.status(Code::PermissionDenied, problem));
        let wrong =
            || refused(ErrorReason::TicketOfOtherServer, "the ticket is not of this server; ask for flight info again");
        let claim = Self::read_signed(ticket, key).ok_or_else(wrong)?;
        if claim.principal != principal.name() {
            return Err(refused(ErrorReason::TicketOfOtherPrincipal, "the ticket is another caller's"));
        }
        if now_unix_s() > claim.expires_unix_s {
            return Err(refused(ErrorReason::TicketExpired, "the ticket has expired; ask for flight info again"));
        }
        Ok(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_round_trip_and_changed_ones_are_rejected() {
        let key = TicketKey::new(b"0123456789abcdef0123456789abcdef");
        let scan =
            Scan { columns: Some(vec![]), regions: Some(vec![Region { contig: "a:b".to_owned(), start: 4, end: 9 }]) };
        let part = ScanPart { ranges: vec![(1, 2), (7, u64::MAX)] };
        let mut claim = TicketClaims::new(&Principal::default(), Duration::from_secs(60));
        claim.part = Some(DatasetPart::new("x/y.bam", 5, &scan, &part));
        let ticket = claim.sign(&key);
        let back = TicketClaims::verify(&ticket, &key, &Principal::default()).unwrap();
        assert_eq!(back, claim);
        assert_eq!(back.part.unwrap().to_scan().unwrap(), (scan, part));
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert!(TicketClaims::verify(&changed, &key, &Principal::default()).is_err(), "{at}");
            assert!(TicketClaims::verify(&ticket[..at], &key, &Principal::default()).is_err(), "{at}");
        }
        let other = TicketKey::new(b"another secret");
        assert!(TicketClaims::verify(&ticket, &other, &Principal::default()).is_err());
        claim.expires_unix_s = 1;
        let late = TicketClaims::verify(&claim.sign(&key), &key, &Principal::default()).unwrap_err();
        assert_eq!(ErrorReason::of(&late), Some(ErrorReason::TicketExpired), "{late}");
        let foreign = TicketClaims::verify(&ticket, &other, &Principal::default()).unwrap_err();
        assert_eq!(ErrorReason::of(&foreign), Some(ErrorReason::TicketOfOtherServer), "{foreign}");
    }
}
