//! The shuffle: blocks of reads go to nodes, sorted slices of their records go from node to node, partitions of the genome
//! are written by their owners.
//!
//! [`Ledger`] decides all of it, without a socket or a clock: events and the time flow in, actions flow out. Who carries
//! them out (threads and Arrow Flight in `godwit-pipeline`, or a simulation in the tests) is not its business, nor is what
//! a slice holds.

mod ledger;

pub use ledger::{Action, Event, Ledger, LedgerOptions, NodeId, Share};
