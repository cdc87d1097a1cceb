//! The main job on one machine.
//!
//! [`oracle`] tests what the others believe in: that the reference pipeline runs, that generated inputs reach the rules
//! they are made for, and that planted differences are found.

mod bad_input;
mod conduct;
mod configuration;
mod docs;
mod doctor;
mod dry_run;
mod events;
mod flight;
mod identity;
mod oracle;
mod picard;
mod read_names;
mod real_data;
mod resume;
mod validity;
mod verify;
