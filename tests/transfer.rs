//! Files copied from and to servers: what arrives is what was sent, after kills, full disks, lost servers and changed
//! files.

pub mod copies;
mod delta_transfer;
mod directory_trees;
mod emulated_path;
mod faults;
mod relays;
