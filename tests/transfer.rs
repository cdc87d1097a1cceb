//! Copies from and to servers: the copied files equal the sources, also after kills, full disks, lost servers and
//! changed files.

pub mod copies;
mod delta_transfer;
mod directory_trees;
mod emulated_path;
mod faults;
mod relays;
