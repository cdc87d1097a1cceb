//! The header of random SAM records ([`godwit_tests::sam_records`]), and samtools as the reference implementation.

use std::path::Path;
use std::process::Command;

use godwit_tests::sam_records::HEADER;

use crate::sam::Header;

pub(crate) fn header() -> Header {
    Header::parse(HEADER.as_bytes()).unwrap()
}

/// Runs samtools and returns its output. Tests that call it begin with `needs!("samtools")`.
pub(crate) fn samtools(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("samtools").args(arguments).output().unwrap();
    assert!(output.status.success(), "samtools {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}
