//! The shuffle: blocks of reads go to nodes, sorted slices of their records go from node to node, partitions of the genome
//! are written by their owners.
//!
//! [`Ledger`] decides all of it, without a socket or a clock: events and the time flow in, actions flow out. [`Head`] and
//! [`Node`] are the two ends of the network that carries them, on Arrow Flight: small things on a connection of their own,
//! so that data never holds up a sign of life. What a slice holds, how it is made, kept and merged, is the business of
//! `godwit-pipeline`. Regions to be called, and what workers of a search are asked and say, travel the same way; who gets
//! which is decided by `godwit_fleet::Leases`.

pub mod bytes_batch;
mod error;
mod head;
mod ledger;
mod node;
mod protocol;
mod shelf;

pub use error::ExchangeError;
pub use godwit_flight::FlightError;
pub use head::{Head, Incoming, Orders};
pub use ledger::{Action, Event, FILES, Ledger, LedgerOptions, NodeId, PerFile, Share};
pub use node::{Incoming as Downloading, Keys, Node};
pub use protocol::{Gift, Order, Report, Ticket};
pub use shelf::{Item, Shelf};
