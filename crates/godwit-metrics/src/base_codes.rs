//! 4-bit codes of the bases (SAMv1 §4.2.3).

pub(crate) const A_CODE: u8 = 1;
pub(crate) const C_CODE: u8 = 2;
pub(crate) const G_CODE: u8 = 4;
pub(crate) const T_CODE: u8 = 8;
/// Code of N, which Picard calls a no-call.
pub(crate) const N_CODE: u8 = 15;
