//! TCP connections of file transfers: socket options and samples of the kernel, and control of the sending rate.
//!
//! [`tcp_tuning`] applies the mode of a copy to its sockets, [`rate_control`] computes sending rates from samples
//! without a clock or socket, and [`socket_options`] reads and sets what the standard library does not. The crate does
//! not connect or send.

pub mod rate_control;
pub mod socket_options;
pub mod tcp_tuning;
