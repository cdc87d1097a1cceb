//! Tickets: what a caller was told it may have, for a while.
//!
//! A ticket says everything that is needed to serve it, so that the server keeps nothing, and any server with the same key
//! serves it. It is signed: nobody can make one, or change it. It is for one caller, until a time. It is not encrypted: it holds
//! nothing that the caller has not asked for itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use godwit_model::Region;
use prost::Message;
use tonic::{Code, Status};

use crate::dataset::{Part, Scan};
use crate::error_reason::ErrorReason;
use crate::gate::{Caller, Visa};
use crate::sql::random_bytes;

/// What tickets of this version start with.
const MARK: &[u8] = b"gw1.";
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
    /// A key from bytes that nobody can guess, 32 or more.
    pub fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key("godwit 2026-11 tickets", secret))
    }

    /// The signature of bytes that mean something else than a ticket, as their mark says.
    pub(crate) fn mac(&self, mark: &[u8], body: &[u8]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0).update(mark).update(body).finalize()
    }
}

/// What a ticket is for.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Claim {
    /// Seconds since 1970 at which it ends.
    #[prost(uint64, tag = "1")]
    pub(crate) expires_unix_s: u64,
    #[prost(string, tag = "2")]
    pub(crate) caller: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) part: Option<DatasetPart>,
    /// Beside a part: what it was asked for by.
    #[prost(message, optional, tag = "4")]
    pub(crate) statement: Option<StatementText>,
    /// A command of Flight SQL that asks for metadata, as it came.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) command: Vec<u8>,
    /// Its number, by which it is ended. One that is renewed keeps it.
    #[prost(fixed64, tag = "6")]
    pub(crate) id: u64,
    /// A part of a file, for who asks over plain HTTP.
    #[prost(message, optional, tag = "7")]
    pub(crate) file: Option<FilePart>,
    /// Beside it: what the caller showed, who need not show it again.
    #[prost(message, repeated, tag = "8")]
    pub(crate) visas: Vec<Visa>,
}

/// A part of a file as it is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FilePart {
    /// The dataset that the file is.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The state of it.
    #[prost(fixed64, tag = "2")]
    pub version: u64,
    /// Where the part begins: an offset, bytes; where `cut` is true, a virtual offset of BGZF (SAMv1 §4.1.1).
    #[prost(uint64, tag = "3")]
    pub start: u64,
    /// Where it ends, in the same way.
    #[prost(uint64, tag = "4")]
    pub end: u64,
    /// Whether the blocks at both ends are cut, and compressed again.
    #[prost(bool, tag = "5")]
    pub cut: bool,
}

/// A part of a dataset.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DatasetPart {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(fixed64, tag = "2")]
    pub(crate) version: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) columns: Option<Columns>,
    #[prost(message, optional, tag = "4")]
    pub(crate) regions: Option<Regions>,
    /// Starts and ends of stretches, one after the other.
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) stretches: Vec<u64>,
    /// Where it is asked for by a statement.
    #[prost(message, optional, tag = "6")]
    pub(crate) selected: Option<Selected>,
}

/// How the rows of a statement are made of those that are read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Selected {
    /// Where each column of the statement is among those that are read.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) order: Vec<u64>,
    /// Whether the part has all rows of the statement.
    #[prost(bool, tag = "2")]
    pub(crate) is_all: bool,
    /// Where only the number of rows is wanted: what it is called.
    #[prost(string, optional, tag = "3")]
    pub(crate) count: Option<String>,
}

/// A list, which may be empty, as opposed to none.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Columns {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) indexes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Regions {
    #[prost(string, repeated, tag = "1")]
    pub(crate) texts: Vec<String>,
}

/// A statement, with the values of its parameters as an Arrow IPC stream, where it has them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatementText {
    #[prost(string, tag = "1")]
    pub(crate) sql: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) parameters: Vec<u8>,
}

impl DatasetPart {
    pub(crate) fn new(name: &str, version: u64, scan: &Scan, part: &Part) -> Self {
        Self {
            name: name.to_owned(),
            version,
            columns: scan
                .columns
                .as_ref()
                .map(|columns| Columns { indexes: columns.iter().map(|at| *at as u64).collect() }),
            regions: scan
                .regions
                .as_ref()
                .map(|regions| Regions { texts: regions.iter().map(ToString::to_string).collect() }),
            stretches: part.stretches.iter().flat_map(|(start, end)| [*start, *end]).collect(),
            selected: None,
        }
    }

    pub(crate) fn scan(&self) -> Result<(Scan, Part), Box<Status>> {
        let regions = self
            .regions
            .as_ref()
            .map(|regions| regions.texts.iter().map(|text| Region::parse(text, |_| None)).collect());
        let regions: Option<Result<Vec<Region>, _>> = regions;
        let regions = regions.transpose().map_err(|error| Box::new(Status::invalid_argument(error.to_string())))?;
        let columns = self.columns.as_ref().map(|columns| columns.indexes.iter().map(|at| *at as usize).collect());
        let stretches = self.stretches.as_chunks().0.iter().map(|[start, end]| (*start, *end)).collect();
        Ok((Scan { columns, regions }, Part { stretches }))
    }
}

pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Claim {
    /// A claim of a caller that ends after a while.
    pub(crate) fn new(caller: &Caller, lifetime: Duration) -> Self {
        let expires_unix_s = now_unix_s().saturating_add(lifetime.as_secs());
        let id = u64::from_le_bytes(random_bytes());
        Self { expires_unix_s, caller: caller.name().to_owned(), id, ..Self::default() }
    }

    /// The bytes of its ticket.
    pub(crate) fn sign(&self, key: &TicketKey) -> Vec<u8> {
        let body = self.encode_to_vec();
        let mac = blake3::keyed_hash(&key.0, &body);
        [MARK, mac.as_bytes(), &body].concat()
    }

    /// Whether bytes look like a ticket of ours, whoever signed it.
    pub(crate) fn is_ticket(ticket: &[u8]) -> bool {
        ticket.starts_with(MARK)
    }

    /// The claim of a ticket that this key signed, whoever shows it and when.
    pub(crate) fn read(ticket: &[u8], key: &TicketKey) -> Option<Self> {
        let (mac, body) = ticket.strip_prefix(MARK)?.split_first_chunk::<MAC_BYTES>()?;
        // Compared in constant time by its type.
        let is_ours = blake3::keyed_hash(&key.0, body) == blake3::Hash::from_bytes(*mac);
        if is_ours { Self::decode(body).ok() } else { None }
    }

    /// The claim of a ticket that this caller shows in time.
    pub(crate) fn check(ticket: &[u8], key: &TicketKey, caller: &Caller) -> Result<Self, Box<Status>> {
        let refused = |reason: ErrorReason, problem: &str| Box::new(reason.status(Code::PermissionDenied, problem));
        let wrong =
            || refused(ErrorReason::TicketOfOtherServer, "the ticket is not of this server; ask for flight info again");
        let claim = Self::read(ticket, key).ok_or_else(wrong)?;
        if claim.caller != caller.name() {
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
    fn tickets_come_back_and_changed_ones_are_refused() {
        let key = TicketKey::new(b"0123456789abcdef0123456789abcdef");
        let scan =
            Scan { columns: Some(vec![]), regions: Some(vec![Region { contig: "a:b".to_owned(), start: 4, end: 9 }]) };
        let part = Part { stretches: vec![(1, 2), (7, u64::MAX)] };
        let mut claim = Claim::new(&Caller::default(), Duration::from_secs(60));
        claim.part = Some(DatasetPart::new("x/y.bam", 5, &scan, &part));
        let ticket = claim.sign(&key);
        let back = Claim::check(&ticket, &key, &Caller::default()).unwrap();
        assert_eq!(back, claim);
        assert_eq!(back.part.unwrap().scan().unwrap(), (scan, part));
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert!(Claim::check(&changed, &key, &Caller::default()).is_err(), "{at}");
            assert!(Claim::check(&ticket[..at], &key, &Caller::default()).is_err(), "{at}");
        }
        let other = TicketKey::new(b"another secret");
        assert!(Claim::check(&ticket, &other, &Caller::default()).is_err());
        claim.expires_unix_s = 1;
        let late = Claim::check(&claim.sign(&key), &key, &Caller::default()).unwrap_err();
        assert_eq!(ErrorReason::of(&late), Some(ErrorReason::TicketExpired), "{late}");
        let foreign = Claim::check(&ticket, &other, &Caller::default()).unwrap_err();
        assert_eq!(ErrorReason::of(&foreign), Some(ErrorReason::TicketOfOtherServer), "{foreign}");
    }
}
