//! Files copied from and to servers: what arrives is what was there, whatever is killed, full, gone or changed on the way.

pub mod copies;
mod faults;
mod genomes;
mod path;
mod relays;
mod trees;
