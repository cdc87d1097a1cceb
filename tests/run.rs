//! The main job on one machine.
//!
//! [`oracle`] tests what the others believe in: that the reference pipeline runs, that generated inputs reach the rules
//! they are made for, and that planted differences are found.

mod bad_input;
mod conduct;
mod docs;
mod flight;
mod formats;
mod identity;
mod oracle;
mod picard;
mod real_data;
mod validity;
