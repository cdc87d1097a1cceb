//! Tickets. A ticket is a signed message that allows one principal to download certain data for a limited time.
//!
//! A ticket contains the complete request, so that servers need not store tickets, and any server with the same key
//! accepts a ticket. The signature prevents forging and changing. The content is not encrypted, because it contains
//! only what the principal has requested.

use std::time::Duration;

use godwit_dataset::web::FilePart;
use godwit_dataset::{Principal, Scan, ScanPart, Visa};
use godwit_model::Region;
use prost::Message;
use tonic::{Code, Status};

use crate::error_reason::ErrorReason;
use godwit_auth::random_bytes;
use godwit_auth::{TicketKey, now_unix_s};

/// Prefix of tickets, which identifies the version of their format.
const TICKET_PREFIX: &[u8] = b"gw1.";
const MAC_BYTES: usize = blake3::OUT_LEN;

/// The signed content of a ticket.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TicketClaims {
    /// Expiry time of the ticket, seconds since 1970.
    #[prost(uint64, tag = "1")]
    pub(crate) expires_unix_s: u64,
    #[prost(string, tag = "2")]
    pub(crate) principal: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) part: Option<DatasetPart>,
    /// An SQL statement. If `part` is set too, the part belongs to the direct scan of this statement.
    #[prost(message, optional, tag = "4")]
    pub(crate) statement: Option<BoundStatement>,
    /// An encoded Flight SQL command that requests metadata; empty if the ticket requests other data.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) command: Vec<u8>,
    /// Random identifier of the ticket, by which a client can cancel the download. A renewed ticket has the same
    /// identifier.
    #[prost(fixed64, tag = "6")]
    pub(crate) id: u64,
    /// The part of a file that an HTTP client (htsget) may download.
    #[prost(message, optional, tag = "7")]
    pub(crate) file: Option<FilePart>,
    /// Visas of the principal, if `file` is set: an HTTP client sends only the ticket, not its passport.
    #[prost(message, repeated, tag = "8")]
    pub(crate) visas: Vec<Visa>,
}

/// A part of a dataset with the requested columns and regions.
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
    /// Ranges of [`ScanPart`], as alternating starts and ends.
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) ranges: Vec<u64>,
    /// The output columns, if the part belongs to an SQL statement.
    #[prost(message, optional, tag = "6")]
    pub(crate) output: Option<DirectScanOutput>,
}

/// The mapping from the columns that are read from a dataset to the output of an SQL statement.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DirectScanOutput {
    /// For each output column, the 0-based index of the column among the columns that are read.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) column_order: Vec<u64>,
    /// True if the part contains all rows that the statement returns.
    #[prost(bool, tag = "2")]
    pub(crate) is_only_part: bool,
    /// Name of the output column if the statement requests only the number of rows.
    #[prost(string, optional, tag = "3")]
    pub(crate) count_column: Option<String>,
}

/// A list of column indexes. An empty list means no columns; an absent list means all columns.
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

/// An SQL statement, and the values of its parameters as an Arrow IPC stream (empty if the statement has no
/// parameters).
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

impl TicketClaims {
    /// Creates claims without data for a principal, with a random identifier, which expire after `lifetime`.
    pub(crate) fn new(principal: &Principal, lifetime: Duration) -> Self {
        let expires_unix_s = now_unix_s().saturating_add(lifetime.as_secs());
        let id = u64::from_le_bytes(random_bytes());
        Self { expires_unix_s, principal: principal.name().to_owned(), id, ..Self::default() }
    }

    /// Encodes and signs the claims. Returns the bytes of the ticket.
    pub(crate) fn sign(&self, key: &TicketKey) -> Vec<u8> {
        let body = self.encode_to_vec();
        let mac = key.ticket_mac(&body);
        [TICKET_PREFIX, mac.as_bytes(), &body].concat()
    }

    /// Returns whether bytes begin with the prefix of a ticket. Does not verify the signature.
    pub(crate) fn is_ticket(ticket: &[u8]) -> bool {
        ticket.starts_with(TICKET_PREFIX)
    }

    /// Returns the claims of a ticket that was signed with this key. Does not check principal and expiry.
    pub(crate) fn read_signed(ticket: &[u8], key: &TicketKey) -> Option<Self> {
        let (mac, body) = ticket.strip_prefix(TICKET_PREFIX)?.split_first_chunk::<MAC_BYTES>()?;
        // `blake3::Hash` compares in constant time, which prevents timing attacks.
        let is_ours = key.ticket_mac(body) == blake3::Hash::from_bytes(*mac);
        if is_ours { Self::decode(body).ok() } else { None }
    }

    /// Verifies signature, principal and expiry of a ticket, and returns its claims.
    pub(crate) fn verify(ticket: &[u8], key: &TicketKey, principal: &Principal) -> Result<Self, Box<Status>> {
        let refused = |reason: ErrorReason, problem: &str| Box::new(reason.status(Code::PermissionDenied, problem));
        let wrong = || {
            refused(
                ErrorReason::TicketOfOtherServer,
                "the ticket was not issued by this server; request flight info again",
            )
        };
        let claim = Self::read_signed(ticket, key).ok_or_else(wrong)?;
        if claim.principal != principal.name() {
            return Err(refused(ErrorReason::TicketOfOtherPrincipal, "the ticket was issued to another principal"));
        }
        if now_unix_s() > claim.expires_unix_s {
            return Err(refused(ErrorReason::TicketExpired, "the ticket has expired; request flight info again"));
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
